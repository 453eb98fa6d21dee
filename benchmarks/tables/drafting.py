"""Learning to draft: Figure 6 of Novati & Koumoutsakos (2019), what it needs, other readings, and lost starts."""

from typing import Any

import numpy as np

from benchmarks.flow.drafting_sigma import WINDOW, moving
from benchmarks.tables.stored import cell, cells, facts, results, runs
from benchmarks.tables.text import captioned, number, spread, table


def texts() -> dict[str, str]:
    return {**_drafting(), **_drafting_vracer(), **_readings(), **_starts()}


_DRAFTING = (
    ("V-RACER", "FIFO[Uniform+ReFER]"),
    ("DDPG", "FIFO[Uniform+ReFER]"),
    ("NAF", "FIFO[Uniform+ReFER]"),
    ("DDPG", "FIFO[Uniform]"),
    ("DDPG:correlated", "FIFO[Uniform]"),
    ("ACER", "FIFO[Uniform]"),
)
INSIDE, LOST = 200, -60.0
"""Actions with which a seed counts as staying inside; return below which a greedy episode is lost."""


def _drafting() -> dict[str, str]:
    study, rows = "novati2019-fig6", []
    for learner, strategy in _DRAFTING:
        if learner not in results(study)["learner"].values:
            continue
        one = cell(study, learner=learner, strategy=strategy)
        sound = np.isfinite(one.data["reward"].values).all(axis=1)
        steps, late = one.data["episode_steps"].values[sound], one.late(one.last)[sound]
        whole = late[late >= LOST]
        rows.append([
            f"{learner}, {strategy}",
            f"{sound.sum()}",
            spread(one.final[sound], 0),
            f"{number(steps[:, -one.last :].mean(), 0)} of 400",
            stays(steps),
            f"{number(100 * (late < LOST).mean(), 0)} %",
            number(-float(np.median(whole)) / 400, 3) if whole.size else "–",
        ])  # fmt: skip
    caption = (
        f"{runs(study, 'iterations')} of 400 steps, an update after each, N = 20,000. n: runs whose "
        "networks did not diverge. Return and actions survived: means over these and the last tenth of the iterations, "
        "exploration included. Inside: the first iteration after which the last "
        f"{WINDOW} have survived {INSIDE} actions and more on average, median over seeds, and how many seeds "
        f"reach it. Greedy episodes of the last tenth, {late.shape[1]} a seed: how many are lost, and "
        "the median cost per action of the others."
    )
    headings = (
        "learner",
        "n",
        "return, training [95 %]",
        "actions survived",
        "inside from iteration",
        "greedy, lost",
        "cost",
    )
    return {"drafting": captioned(caption, table(headings, rows))}


def stays(steps: np.ndarray, actions: int = INSIDE) -> str:
    """Return the median iteration from which seeds `[seeds, iterations]` survive so many actions, and how many do."""
    survived = moving(steps) >= actions
    there = survived.any(axis=1)
    first = np.where(there, survived.argmax(axis=1) + WINDOW, np.inf)
    return f"{number(float(np.median(first)), 0)} ({there.sum()} of {there.size})"


_VARIANTS = {
    "slow": ("3e-4", "as they are"),
    "slow-rewards": ("3e-4", "normalised"),
    "fast": ("1e-3", "as they are"),
    "fast-rewards": ("1e-3", "normalised"),
    "wide": ("3e-4", "as they are, σ = 0.2 at first"),
    "DDPG": ("as in figure 6", "normalised"),
}
"""Rate and rewards by the name that drafting-vracer.toml gives."""


def _drafting_vracer() -> dict[str, str]:
    name, rows = "drafting-vracer", []
    for found in sorted(cells(name), key=lambda c: c.learner == "DDPG"):
        steps = found.data["episode_steps"].values[:, -found.last :].mean(axis=1)
        capacity = found.strategy.removeprefix("FIFO(").split(")")[0]
        rows.append([
            found.learner.split(":")[0],
            f"{int(capacity):,}",
            *_VARIANTS[found.learner.removeprefix("V-RACER:")],
            spread(found.final, 0),
            f"{number(steps.mean(), 0)} of 400",
            f"{(steps >= 200).sum()} of {steps.size}",
            f"{number(found.late(found.last).max(), 0)}",
        ])  # fmt: skip
    caption = (
        f"{runs(name, 'iterations')} of 400 steps. Means over seeds and the last tenth of the iterations, "
        "exploration included; seeds that then survive 200 actions and more on average; the best greedy episode."
    )
    headings = ("learner", "capacity", "rate", "rewards", "return, training [95 %]", "actions survived", "seeds")
    return {"drafting-vracer": captioned(caption, table((*headings, "best greedy"), rows))}


_READINGS = {
    ("Drafting", "V-RACER"): ("the paper's box, a quarter of its unit (the default)", 1),
    ("January", "V-RACER"): ("the box and start angles of January 2019, a quarter of the unit", 1),
    ("PaperUnit", "V-RACER"): ("the paper's box and unit, σ = 0.05 at first", 16),
    ("PaperUnit", "V-RACER:quiet"): ("the paper's box and unit, σ = 0.0125 at first, the same forces", 16),
}
"""Plants and learners of drafting-readings.toml in words, and how many times as much their unit of cost is worth."""
STATION = 0.2581
"""Cost per action of holding station in the free stream, in the default unit."""


def _readings() -> dict[str, str]:
    name, rows = "drafting-readings", []
    found = {(one.plant.split(":")[-1], one.learner): one for one in cells(name)}
    for key, (words, times) in _READINGS.items():
        one = found[key]
        greedy, steps = one.late(one.last), one.data["episode_steps"].values[:, -one.last :]
        cost = -times * float(np.median(greedy[greedy >= LOST])) / 400
        lost = number(100 * (greedy < LOST).mean(), 0)
        row = [spread(one.final, 0), f"{number(steps.mean(), 0)} of 400", f"{lost} %"]
        rows.append([words, *row, f"{number(100 * cost / STATION, 0)} %"])
    caption = (
        f"{runs(name, 'iterations')} of 400 steps. Return and actions survived: means over seeds and the "
        "last tenth of the iterations, exploration included. Greedy episodes of the last tenth, "
        f"{greedy.shape[1]} a seed: how many are lost, and the median cost of the others, relative to holding station "
        "in the free stream."
    )
    headings = ("reading", "return, training [95 %]", "actions survived", "greedy, lost", "cost")
    return {"drafting-readings": captioned(caption, table(headings, rows))}


_SHORT = "drafting-starts"


def _starts() -> dict[str, str]:
    stored = facts("flow/starts.json")
    rows = []
    for (run, name), found in _by_kept(stored["runs"]):
        whole = [100 * one["whole"] for one in found]
        costs = [one["cost per action of whole episodes"] for one in found if one["whole"]]
        early = float(np.median([100 * one["lost early"] for one in found]))
        extent = f"{number(min(whole), 0)} to {number(max(whole), 0)}"
        rows.append([
            name,
            "25" if run == _SHORT else "400",
            f"{number(float(np.median(whole)), 0)} % ({extent}, n = {len(whole)})",
            f"{number(early, 0)} %",
            number(float(np.median(costs)), 3),
            " / ".join(f"{number(100 * share, 0)} %" for share in stored["kept"][run][name].values()),
        ])  # fmt: skip
    short = stored["runs"][_SHORT]["V-RACER, FIFO[Uniform+ReFER]"]
    good = [one for one in short if one["whole"] >= 0.95]
    caption = (
        f"{runs(_SHORT, 'iterations')} of 25 steps, and the runs above in episodes of 400; greedy episodes "
        f"of 400 actions from {stored['starts']:,} starts that all share. Kept: median over seeds, lowest to highest. "
        "Lost early: within ten actions, median. Cost per action of kept episodes: median over seeds that keep any. "
        "Search: of 96 starts, how many the best policy keeps for 60 actions by itself, and how many after a search "
        "over the first eight."
    )
    headings = ("learner", "trained in episodes of", "kept", "lost early", "cost", "policy / search")
    return {
        "drafting-starts": captioned(caption, table(headings, rows)),
        "drafting-starts.good": f"{len(good)} of {len(short)}",
        "drafting-starts.cost": number(max(one["cost per action of whole episodes"] for one in good), 3),
    }


def _by_kept(by_run: dict[str, Any]) -> list[tuple[tuple[str, str], list[dict[str, float]]]]:
    """Return what each learner keeps, those that keep most first."""
    found = {(run, name): members for run, by_name in by_run.items() for name, members in by_name.items()}
    return sorted(found.items(), key=lambda item: -float(np.median([one["whole"] for one in item[1]])))
