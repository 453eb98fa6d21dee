"""Store the golden numbers of the present version: `python -m tests.golden.record [--unreleased]`.

New cases are added. Numbers that are there already are replaced only with `--unreleased`, which says that no results
have been made with this version's old numbers yet: otherwise raise `NUMERICS_VERSION` first.
"""

import sys

from tests.golden.golden_store import differing, plain, store, stored
from tests.golden.test_numerics_version import KINDS


def main(unreleased: bool) -> int:
    """Measure all cases; return an exit code."""
    refused = 0
    for kind, cases in KINDS.items():
        known, found = stored(kind), {}
        for case in cases.CASES:
            found[case] = plain(cases.measure(case))
            if case not in known:
                print(f"{kind}: {case} is new")
            elif not (differences := differing(found[case], known[case])):
                found[case] = known[case]
            else:
                worst = max(differences, key=lambda name: differences[name])
                print(f"{kind}: {case} differs, most in {worst}, relatively by {differences[worst]:.2g}")
                if not unreleased:
                    found[case] = known[case]
                    refused += 1
        store(kind, found)
    if refused:
        print(f"{refused} cases left as they were: raise NUMERICS_VERSION, or say --unreleased")
    return int(refused > 0)


if __name__ == "__main__":
    sys.exit(main("--unreleased" in sys.argv[1:]))
