"""Tune ACER and each of its variants alone, with as many settings, and print the best as tables of a preset.

Wang et al. (2017, appendix E.1) try 30 random settings of the learning rates and δ with every method and every task.
Here 20 settings cover the ranges evenly (a Latin hypercube), the first of them is the learner's default, and all
variants try the same. A variant without trust region has no δ. The root seed is not that of the results.

    python benchmarks/evidence/acer_settings.py runs/acer-settings
"""

import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from scipy.stats import qmc

from replaybench.evidence.preset import read_preset
from replaybench.experiments.study import Study
from replaybench.experiments.sweep import cores, run_sweep
from replaybench.runtime.configuration import build

RESULTS: Final = Path(__file__).parents[1] / "results" / "acer_settings.json"
DEFAULT: Final = {"policy_rate": 5e-4, "critic_rate": 3e-3, "delta": 10.0}
LOW, HIGH = (1e-4, 5e-4, 1.0), (2e-3, 6e-3, 100.0)
COUNT: Final = 20


def settings() -> list[dict[str, float]]:
    """Return the settings that every variant tries, the default first."""
    drawn = qmc.LatinHypercube(d=3, rng=np.random.default_rng(2017)).random(COUNT - 1)
    logs = qmc.scale(drawn, np.log(LOW), np.log(HIGH))
    return [DEFAULT, *(dict(zip(DEFAULT, [float(f"{x:.2g}") for x in np.exp(row)], strict=True)) for row in logs)]


def variants() -> dict[str, dict[str, Any]]:
    """Return the changed settings of the learners of Figures 3 and 4, by label."""
    tables: dict[str, dict[str, Any]] = {"ACER:intact": {}}
    for name in ("wang2017/fig3", "wang2017/fig4"):
        tables |= read_preset(name).figure.study["learner"]
    return {label: {k: v for k, v in table.items() if k not in DEFAULT} for label, table in tables.items()}


def study() -> Study:
    """Return the study of all variants with all settings, whose learners are named `VARIANT-INDEX`."""
    tables = {f"{label}-{i}": table | row for label, table in variants().items() for i, row in enumerate(settings())}
    table = {"name": "acer-settings", "plants": ["PendulumDCSC", "Magman"], "learners": list(tables), "learner": tables}
    table |= {"strategies": ["FIFO[Uniform]"], "seeds": 3, "episodes": 600, "root_seed": 30, "buffers": "none"}
    return build(Study, table, "settings of ACER")


def main() -> None:
    output = Path(sys.argv[1])
    run_sweep(study(), output, cores(), None, checkpoint_seconds=600.0, console=Console())


if __name__ == "__main__":
    main()
