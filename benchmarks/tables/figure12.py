"""Figure 12 of de Bruin et al. (2018): ten strategies beside each other, and beside replaying the newest uniformly."""

from __future__ import annotations

import numpy as np

from benchmarks.tables.stored import cells, facts, made, results, runs
from benchmarks.tables.text import between, captioned, listed, number, table
from replaybench.experiments.results.comparison_tables import Row, compared
from replaybench.experiments.results.effects import SIGNIFICANT

STUDY, BASELINE = "debruin2018-fig12", "FIFO[Uniform]"


def texts() -> dict[str, str]:
    rows, said = [], []
    for plant in results(STUDY)["plant"].values.tolist():
        beside = {row.strategy: row for row in compared(results(STUDY).sel(plant=plant), BASELINE)}
        digits = 1 if plant.startswith("Pendulum") else 2
        for found in (cell for cell in cells(STUDY) if cell.plant == plant):
            row = beside[found.strategy]
            rows.append([
                plant,
                found.strategy,
                str(row.scores.size),
                f"{number(found.final.mean(), digits)} ({number(float(np.median(found.final)), digits)})",
                between(*(found[f"mu_final_{bound}"] for bound in ("mean", "low", "high")), 3),
                *_beside(row),
                number(found["dead"], 0),
            ])  # fmt: skip
        said.append(f"on {plant} {_said(list(beside.values()))}")
    caption = (
        f"{runs(STUDY)} at 50 Hz without noise, {made(STUDY)}. Reward per step: mean (median) over seeds of the last "
        "100 training episodes, exploration included; μ_final: mean over seeds with its 95 % interval; differences of "
        f"paired seeds to {BASELINE} with BCa intervals, p by flipped signs (Holm within a plant). {_time()}"
    )
    headings = ("plant", "strategy", "n", "reward per step", "μ_final [95 %]", "difference [95 %]", "p", "dead")
    return {"figure12": captioned(caption, table(headings, rows)), "figure12.said": "; ".join(said)}


def _time() -> str:
    """Say how long one core is busy with all of it."""
    ran = facts(f"{STUDY}/provenance.json")["cells"].values()
    (processor,) = {stint["code"]["processor"] for cell in ran for stint in cell["stints"]}
    minutes = sum(cell["seconds"] for cell in ran) / 60
    return f"It took {number(minutes, 0)} minutes of one core ({processor}), which other work shared."


def _beside(row: Row) -> tuple[str, str]:
    if row.effect is None:
        return "", ""
    chance = number(row.chance, 3) if row.chance >= 0.001 else "< 0.001"
    return between(row.effect.estimate, *row.effect.interval(), 3), chance


def _said(rows: list[Row]) -> str:
    """Say which strategies surely end better or worse than the baseline, and which ends best."""
    others = [row for row in rows if row.effect is not None and row.chance < SIGNIFICANT]
    better, worse = (
        [row.strategy for row in others if row.effect is not None and sign * row.effect.estimate > 0]
        for sign in (1, -1)
    )
    means = {row.strategy: float(np.nanmean(row.scores)) for row in rows}
    best = max(means, key=means.__getitem__)
    told = f"{best} ends best on average ({number(means[best], 3)}, {BASELINE} {number(means[BASELINE], 3)})"
    told += f"; surely better than {BASELINE}: {listed(better) if better else 'none'}"
    return told + (f"; surely worse: {listed(worse)}" if worse else "")
