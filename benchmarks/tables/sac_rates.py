"""SAC on locomotion with AER, ERE and PER, by learning rate and schedule."""

from typing import Final

import numpy as np

from benchmarks.tables.stored import Cell, cell, runs
from benchmarks.tables.text import captioned, difference, number, table

STUDY: Final = "sac-rates"
ANNEALED, AER, ERE, PER, UNIFORM = (
    "FIFO[Annealed]",
    "FIFO[AER]",
    "FIFO[ERE(phase=1000)]",
    "FIFO[PERprop]",
    "FIFO[Uniform]",
)
HOPPER: Final = "(first=4.0, alpha=1.0)"
"""λ₀ and α of AER on Hopper, as in the paper."""
ROWS: Final = (
    ("3e-4", "papers'", {ANNEALED: "sun2020-fig6", AER: "sun2020-fig6", ERE: "wang2019-table1"}),
    (
        "3e-4",
        "within the run",
        {ANNEALED: "sun2020-fig6compressed", AER: "sun2020-fig6compressed", ERE: "wang2019-table1compressed"},
    ),
    ("3e-4", "none", {PER: "sun2020-fig3"}),
    ("1e-3", "within the run", dict.fromkeys((ANNEALED, AER, ERE), STUDY)),
    ("1e-3", "none", {PER: STUDY}),
)
"""Learning rate, schedule, and where the runs of each strategy are, with those of uniform replay on the same seeds."""
COMPARISONS: Final = ((AER, UNIFORM, "fig3"), (AER, PER, "fig3"), (ANNEALED, UNIFORM, "fig6"), (AER, ANNEALED, "fig6"))


def texts() -> dict[str, str]:
    rows = []
    for rate, schedule, studies in ROWS:
        for strategy, study in studies.items():
            mine, plain = (_final(study, name) for name in (strategy, UNIFORM))
            means = [number(float(np.mean(returns)), 0) for returns in (plain, mine)]
            rows.append([rate, schedule, strategy, *means, *difference(mine, plain, digits=0)])
    caption = (
        f"SAC on HalfCheetah, {runs(STUDY)} of 1000 steps. The runs at 3e-4 are those of the papers' figures. At 3e-4, "
        "ERE is compared with FIFO[Uniform] of another study with other seeds. The papers' schedules take 2.5·10⁶ "
        "steps (λ of AER) and 3·10⁶ steps (η of ERE). Returns are means over seeds and over the last tenth of "
        "training. *Difference* is the return of the strategy minus that of FIFO[Uniform], as a mean over paired seeds "
        "with its 95 % BCa interval. *p* is from a sign-flip test, uncorrected."
    )
    headings = (
        "learning rate", "schedule", "strategy", f"return of {UNIFORM}", "return of the strategy", "difference [95 %]",
        "p",
    )  # fmt: skip
    return {
        "sac.rates": captioned(caption, table(headings, rows)),
        "sac.slow": rows[0][3],
        "sac.fast": rows[-1][3],
        "sac.schedules": _schedules(),
    }


def _schedules() -> str:
    """Compare AER, its learning rates alone, uniform and prioritised replay with long and short schedules."""
    rows = []
    for plant in ("MujocoHalfCheetah", "MujocoHopper"):
        for one, other, figure in COMPARISONS:
            names = [_of(plant, strategy) for strategy in (one, other)]
            found = [
                difference(*(_final(f"sun2020-{figure}{short}", name, plant) for name in names), digits=0)
                for short in ("", "compressed")
            ]
            rows.append([plant.removeprefix("Mujoco"), f"{one} − {other}", *(f"{text}, p {p}" for text, p in found)])
    size = runs("sun2020-fig3").replace("episodes", "iterations")
    caption = (
        f"Runs: SAC with {size} of 1000 steps. Values are mean paired differences in the return of the last tenth of "
        "training (exploration included), with 95 % BCa intervals. *p* is from a sign-flip test, uncorrected. "
        "FIFO[AER] and FIFO[Annealed] have the paper's settings: λ₀ = 2.5 and α = 2/3 on HalfCheetah, λ₀ = 4 and α = 1 "
        "on Hopper. Both columns use the same runs of FIFO[Uniform] and FIFO[PERprop], which have no schedule."
    )
    headings = ("plant", "difference", "the paper's schedule (2.5·10⁶ steps)", "λ falls to 1 within the run")
    return captioned(caption, table(headings, rows))


def _of(plant: str, strategy: str) -> str:
    """Return a strategy with the paper's parameters for a plant."""
    own = plant == "MujocoHopper" and strategy in (AER, ANNEALED)
    return f"{strategy.removesuffix(']')}{HOPPER}]" if own else strategy


def _final(study: str, strategy: str, plant: str = "MujocoHalfCheetah") -> np.ndarray:
    found: Cell = cell(study, plant=plant, strategy=strategy)
    return found.final
