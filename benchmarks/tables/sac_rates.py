"""SAC on HalfCheetah with AER, ERE and PER, by learning rate."""

from __future__ import annotations

from typing import Final

import numpy as np

from benchmarks.tables.stored import Cell, cell, runs
from benchmarks.tables.text import captioned, difference, number, table

STUDY: Final = "sac-rates"
PUBLISHED: Final = {
    "FIFO[Annealed]": "sun2020-fig6compressed",
    "FIFO[AER]": "sun2020-fig6compressed",
    "FIFO[ERE(phase=1000)]": "wang2019-table1compressed",
    "FIFO[PERprop]": "sun2020-fig3compressed",
}
"""Where the runs at the papers' rate are, with those of uniform replay on the same seeds."""


def texts() -> dict[str, str]:
    rows = []
    for rate, studies in (("3e-4, the papers'", PUBLISHED), ("1e-3", dict.fromkeys(PUBLISHED, STUDY))):
        for strategy, study in studies.items():
            mine, plain = (_cheetah(study, name).final for name in (strategy, "FIFO[Uniform]"))
            means = [number(float(np.mean(returns)), 0) for returns in (plain, mine)]
            rows.append([rate, strategy, *means, *difference(mine, plain, digits=0)])
    caption = (
        f"{runs(STUDY)} of 1000 steps on HalfCheetah; at 3e-4 the runs of the papers' figures, "
        "where ERE has the FIFO[Uniform] of its own study, with other seeds. Return: mean over seeds of the last tenth "
        "of training. Differences of paired seeds with BCa intervals, p of sign-flip tests, uncorrected."
    )
    headings = ("learning rate", "strategy", "return, FIFO[Uniform]", "its return", "difference [95 %]", "p")
    return {"sac.rates": captioned(caption, table(headings, rows)), "sac.slow": rows[0][2], "sac.fast": rows[-1][2]}


def _cheetah(study: str, strategy: str) -> Cell:
    return cell(study, plant="MujocoHalfCheetah", strategy=strategy)
