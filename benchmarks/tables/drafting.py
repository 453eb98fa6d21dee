"""Learning to draft: Figure 6 of Novati & Koumoutsakos (2019), what it needs, other readings, and lost starts."""

from typing import Any

import numpy as np

from benchmarks.flow.drafting_sigma import WINDOW, moving
from benchmarks.tables.stored import cell, cells, facts, runs
from benchmarks.tables.text import captioned, number, spread, table


def texts() -> dict[str, str]:
    return {**_drafting(), **_drafting_vracer(), **_readings(), **_starts()}


_DRAFTING = (
    ("novati2019-fig6", "V-RACER", "FIFO[Uniform+ReFER]"),
    ("novati2019-fig6ddpg", "DDPG", "FIFO[Uniform+ReFER]"),
    ("novati2019-fig6", "NAF", "FIFO[Uniform+ReFER]"),
    ("novati2019-fig6", "DDPG", "FIFO[Uniform]"),
    ("novati2019-fig6ddpg", "DDPG:correlated", "FIFO[Uniform]"),
    ("novati2019-fig6", "ACER", "FIFO[Uniform]"),
)
"""Run, learner and strategy. Cells of DDPG were run again after Rule 1 of ReF-ER was corrected."""
INSIDE, LOST = 200, -60.0
"""Mean actions survived from which a seed counts as staying in the wake; return below which an episode is lost."""
MEANS = (
    "Return and actions survived are means over seeds and over the last tenth of the iterations, exploration included."
)
STAYS = (
    f"*Stays from* is the first iteration at which the episodes of the preceding {WINDOW} iterations have at least "
    f"{INSIDE} actions on average. The column shows the median over seeds, and how many seeds reach this."
)
BEST = "The last column is the return of the best greedy episode in the last tenth of the iterations."
"""Sentences of several captions."""


def _drafting() -> dict[str, str]:
    rows = []
    for study, learner, strategy in _DRAFTING:
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
        f"{runs('novati2019-fig6', 'iterations')} of 400 steps, with one update after each step and buffers of 20,000 "
        "experiences. "
        f"n is the number of seeds whose networks did not diverge. Only these seeds count. {MEANS} {STAYS} "
        f"The last two columns use the greedy episodes in the last tenth of the iterations, {late.shape[1]} per seed. "
        f"An episode is *lost* if its return is below {number(LOST, 0)}. The cost is the median over the other "
        "episodes."
    )
    headings = (
        "learner",
        "n",
        "training return [95 %]",
        "actions survived",
        "stays from iteration",
        "greedy episodes lost",
        "cost per action",
    )
    return {"drafting": captioned(caption, table(headings, rows))}


def stays(steps: np.ndarray, actions: int = INSIDE) -> str:
    """Return the median iteration from which seeds `[seeds, iterations]` survive so many actions, and how many do."""
    survived = moving(steps) >= actions
    there = survived.any(axis=1)
    first = np.where(there, survived.argmax(axis=1) + WINDOW, np.inf)
    return f"{number(float(np.median(first)), 0)} ({there.sum()} of {there.size})"


_VARIANTS = {
    "slow": ("3e-4", "not normalised"),
    "slow-rewards": ("3e-4", "normalised"),
    "fast": ("1e-3", "not normalised"),
    "fast-rewards": ("1e-3", "normalised"),
    "wide": ("3e-4, initial σ = 0.2", "not normalised"),
    "DDPG": ("actor 3e-4, critic 1e-3", "normalised"),
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
        f"{runs(name, 'iterations')} of 400 steps, with ReF-ER. The initial σ is 0.05 unless the row gives another. "
        f"{MEANS} The column *seeds at {INSIDE}* counts the seeds that survive at least {INSIDE} actions on average in "
        f"these iterations. {BEST}"
    )
    headings = ("learner", "capacity", "learning rate", "rewards", "training return [95 %]", "actions survived")
    return {"drafting-vracer": captioned(caption, table((*headings, f"seeds at {INSIDE}", "best greedy return"), rows))}


_READINGS = {
    ("Drafting", "V-RACER"): ("default: the paper's box, unit ¼ ρU²D", 1),
    ("January", "V-RACER"): ("box and start angles of the code of January 2019, unit ¼ ρU²D", 1),
    ("PaperUnit", "V-RACER"): ("the paper's box, unit ρU²D, initial σ = 0.05", 16),
    ("PaperUnit", "V-RACER:quiet"): ("the paper's box, unit ρU²D, initial σ = 0.0125", 16),
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
        f"V-RACER, {runs(name, 'iterations')} of 400 steps. {MEANS} The last two columns use the greedy episodes in "
        f"the last tenth of the iterations, {greedy.shape[1]} per seed. An episode is *lost* if its return is below "
        f"{number(LOST, 0)}. The cost is the median over the other episodes, as a percentage of the cost of holding "
        "station in the free stream."
    )
    headings = ("task", "training return [95 %]", "actions survived", "greedy episodes lost", "cost")
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
        f"The learner with episodes of 25 actions was trained for {runs(_SHORT, 'iterations')} of 25 steps. The others "
        "are those of figure 6. Every seed's final policy runs one greedy episode of 400 actions from each of "
        f"{stored['starts']:,} starts, which are the same for all policies. A start is *kept* if the episode is "
        "completed, and *lost early* if it ends within ten actions. Both columns are medians over seeds; brackets hold "
        "the lowest and the highest value of a seed. The cost is a median over the seeds that keep any start, and is "
        "measured in completed episodes. The last column is for the best seed of a learner and 96 starts. It shows the "
        "share of starts from which an episode lasts 60 actions: with the policy alone, and after a search over its "
        "first eight actions."
    )
    headings = ("learner", "episode length in training", "kept", "lost early", "cost per action", "policy / search")
    return {
        "drafting-starts": captioned(caption, table(headings, rows)),
        "drafting-starts.good": f"{len(good)} of {len(short)}",
        "drafting-starts.cost": number(max(one["cost per action of whole episodes"] for one in good), 3),
    }


def _by_kept(by_run: dict[str, Any]) -> list[tuple[tuple[str, str], list[dict[str, float]]]]:
    """Return what each learner keeps, those that keep most first."""
    found = {(run, name): members for run, by_name in by_run.items() for name, members in by_name.items()}
    return sorted(found.items(), key=lambda item: -float(np.median([one["whole"] for one in item[1]])))
