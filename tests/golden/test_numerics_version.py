"""Numbers may change only together with NUMERICS_VERSION, which is part of every cell's identity.

If this fails, results made before the change must not be mixed with new ones: raise the version, in
`replaybench.runtime.version`, and store the new numbers with `python -m tests.golden.record`. Cases come from the
registries: what is new fails here until its numbers are stored, which the same command does.
"""

from types import ModuleType

import pytest

from tests.golden import learner_cases, plant_cases, reference_cases, strategy_cases
from tests.golden.golden_store import WITH, differing, plain, stored
from tests.helpers.tiers import slow

KINDS: dict[str, ModuleType] = {
    "learners": learner_cases,
    "strategies": strategy_cases,
    "plants": plant_cases,
    "references": reference_cases,
}
CASES = [(kind, case) for kind, cases in KINDS.items() for case in cases.CASES]
SLOW = [("learners", "SAC version=first"), ("references", "Magman"), *(part for part in CASES if "memory" in part[1])]


@pytest.mark.parametrize(("kind", "case"), slow(CASES, only=SLOW), ids=lambda part: str(part))
def test_numbers_are_those_of_this_version(kind: str, case: str) -> None:
    golden = stored(kind)
    assert case in golden, f"store this version's numbers of {case}: see the top of this file"
    if kind == "plants" and (lacking := plant_cases.lacking(case)):
        pytest.skip(lacking)
    measured = plain(KINDS[kind].measure(case))
    if others := [name for name in golden[case].keys() - measured.keys() if name.startswith(WITH)]:
        pytest.skip(f"the numbers were made {others[0]}")
    found = differing(measured, golden[case])
    assert not found, f"{case} differs from this version's numbers, relatively by {found}: see the top of this file"


@pytest.mark.parametrize("kind", KINDS)
def test_no_numbers_of_what_is_gone(kind: str) -> None:
    assert stored(kind).keys() <= set(KINDS[kind].CASES)
