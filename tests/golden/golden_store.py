"""Golden numbers of the present version: where they are kept and how measured ones are held against them.

Each kind of case has a file here, `learners.json` and so on: the version, and a line per case. What a case measures is
a few lists of numbers by name; a list is compared to its largest element.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from replaybench.runtime.version import NUMERICS_VERSION

FOLDER = Path(__file__).parent
TOLERANCE = 1e-6
"""Relative. What is left between processors is a last place of float32, a tenth of this."""

WITH = "with "
"""How names begin that hold no numbers but say which version of another's package made those of the case."""

Measured = Mapping[str, ArrayLike]
Numbers = dict[str, list[float]]


def plain(measured: Measured) -> Numbers:
    """Return what is measured as lists, with more digits than are compared and fewer than would differ by chance."""
    arrays = {name: np.asarray(values, np.float64).ravel() for name, values in measured.items()}
    return {name: [float(f"{value:.9g}") for value in array] for name, array in arrays.items()}


def stored(kind: str) -> dict[str, Numbers]:
    """Return the golden numbers of a kind by case; none if they are another version's."""
    path = FOLDER / f"{kind}.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found["cases"] if found.get("version") == NUMERICS_VERSION else {}


def store(kind: str, cases: Mapping[str, Numbers]) -> None:
    """Write the golden numbers of a kind, a line per case, so that two branches' changes merge where they can."""
    lines = [f"  {json.dumps(case, ensure_ascii=False)}: {json.dumps(cases[case])}" for case in sorted(cases)]
    text = f'{{\n "version": {NUMERICS_VERSION},\n "cases": {{\n' + ",\n".join(lines) + "\n }\n}\n"
    (FOLDER / f"{kind}.json").write_text(text, encoding="utf-8")


def differing(found: Numbers, golden: Numbers) -> dict[str, float]:
    """Return what differs by more than the tolerance, by name, and by how much relative to its largest element."""
    differences = dict.fromkeys(found.keys() ^ golden.keys(), np.inf)
    for name in found.keys() & golden.keys():
        here, there = np.array(found[name]), np.array(golden[name])
        if here.shape != there.shape or (np.isnan(here) != np.isnan(there)).any():
            differences[name] = np.inf
        elif there.size:
            largest = max(float(np.nanmax(np.abs(there), initial=0)), float(np.finfo(np.float32).eps))
            differences[name] = float(np.nanmax(np.abs(here - there), initial=0)) / largest
    return {name: value for name, value in differences.items() if not value <= TOLERANCE}
