"""Learning to draft: Figure 6 of Novati & Koumoutsakos (2019), what it needs, other readings, and lost starts."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.flow.drafting_sigma import SEEDS, VARIANTS, WINDOW, moving
from benchmarks.tables.stored import Cell, cell, cells, facts, made, runs
from benchmarks.tables.text import captioned, listed, number, spread, table


def texts() -> dict[str, str]:
    return {**_drafting(), **_drafting_vracer(), **_recurrent(), **_longer(), **_sigma(), **_readings(), **_starts()}


_DRAFTING = (
    ("V-RACER", "FIFO[Uniform+ReFER]"),
    ("DDPG", "FIFO[Uniform+ReFER]"),
    ("NAF", "FIFO[Uniform+ReFER]"),
    ("DDPG", "FIFO[Uniform]"),
    ("ACER", "FIFO[Uniform]"),
)
_INSIDE, _LOST = 200, -60.0
"""Actions with which a seed counts as staying inside; return below which a greedy episode is lost."""


def _drafting() -> dict[str, str]:
    study, rows, found = "novati2019-fig6", [], {}
    for learner, strategy in _DRAFTING:
        one = found[learner, strategy] = cell(study, learner=learner, strategy=strategy)
        sound = np.isfinite(one.data["reward"].values).all(axis=1)
        steps, late = one.data["episode_steps"].values[sound], one.late(one.last)[sound]
        whole = late[late >= _LOST]
        rows.append([
            f"{learner}, {strategy}",
            f"{sound.sum()}",
            spread(one.final[sound], 0),
            f"{number(steps[:, -one.last :].mean(), 0)} of 400",
            _stays(steps),
            f"{number(100 * (late < _LOST).mean(), 0)} %",
            number(-float(np.median(whole)) / 400, 3) if whole.size else "–",
        ])  # fmt: skip
    caption = (
        f"{runs(study, 'rounds')} of 400 steps, an update after each, N = 20,000, {made(study)}. n: runs whose "
        "networks did not diverge. Return and actions survived: means over these and the last tenth of the rounds, "
        "exploration included. Inside: the first round after which the last "
        f"{WINDOW} have survived {_INSIDE} actions and more on average, median over seeds, and how many seeds come so "
        f"far. Greedy episodes of the last tenth, {late.shape[1]} a seed: how many are lost, and "
        "the median cost per action of the others."
    )
    headings = (
        "learner",
        "n",
        "return, training [95 %]",
        "actions survived",
        "inside from round",
        "greedy, lost",
        "cost",
    )
    plain = found["DDPG", "FIFO[Uniform]"].data["episode_steps"].values.mean(axis=0)
    middle = max(plain[start : start + 250].mean() for start in range(0, plain.size, 250))
    return {"drafting": captioned(caption, table(headings, rows)), "drafting.plain-best": number(middle, 0)}


def _stays(steps: np.ndarray, actions: int = _INSIDE) -> str:
    """Say from which round on seeds `[seeds, rounds]` survive so many actions, stay inside, and how many ever do."""
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
        f"{runs(name, 'rounds')} of 400 steps, {made(name)}. Means over seeds and the last tenth of the rounds, "
        "exploration included; seeds that then survive 200 actions and more on average; the best greedy episode."
    )
    headings = ("learner", "capacity", "rate", "rewards", "return, training [95 %]", "actions survived", "seeds")
    return {"drafting-vracer": captioned(caption, table((*headings, "best greedy"), rows))}


_MEMORY = {
    "V-RACER:lstm": "V-RACER, LSTM 2 × 32",
    "V-RACER:lstm-64-64": "V-RACER, LSTM 2 × 32, then 64-64",
    "V-RACER:slow": "V-RACER, 64-64, from above",
    "DDPG:lstm": "DDPG, LSTM 2 × 32, critic then 64",
    "DDPG": "DDPG, 64-64, from above",
}
"""Learners of drafting-recurrent.toml, and those of drafting-vracer.toml beside which they stand, in words."""


_ROW = ("learner", "return, training [95 %]", "actions survived", "inside from round", "best greedy")


def _recurrent() -> dict[str, str]:
    name = "drafting-recurrent"
    stored = [*cells("drafting-vracer"), *cells(name)]
    known = {one.learner: one for one in stored if one.strategy == "FIFO(20000)[Uniform+ReFER]"}
    n = len(known["V-RACER:lstm"].final)
    rows = [_remembering(words, known[learner], n) for learner, words in _MEMORY.items()]
    caption = (
        f"{runs(name, 'rounds')} of 400 steps, {made(name)}, N = 20,000, ReF-ER; the same seeds of the studies above. "
        "Means over seeds and the last tenth of the rounds, exploration included; inside as above; the best greedy "
        "episode."
    )
    sigmas = [
        number(float(known[learner].data["metric_sigma"].values[:n, -1].mean()), 3)
        for learner in ("V-RACER:lstm", "V-RACER:slow")
    ]
    with_memory, without = (
        known[learner].data["episode_steps"].values[:n].mean(axis=0)
        for learner in ("V-RACER:lstm-64-64", "V-RACER:slow")
    )
    there = moving(without[None])[0] >= with_memory[-WINDOW:].mean()
    return {
        "drafting-recurrent": captioned(caption, table(_ROW, rows)),
        "drafting-recurrent.level": f"round {int(there.argmax()) + WINDOW}",
        "drafting-recurrent.sigma": sigmas[0],
        "drafting-recurrent.sigma-without": sigmas[1],
    }


def _longer() -> dict[str, str]:
    name, learner = "drafting-recurrent-million", "V-RACER:lstm-64-64"
    with_memory, without = cell(name), cell("novati2019-fig6", learner="V-RACER")
    rows = [
        _remembering(_MEMORY[learner], with_memory),
        _remembering("V-RACER, 64-64, of figure 6", without),
    ]
    caption = (
        f"{runs(name, 'rounds')} of 400 steps, {made(name)}; without memory {len(without.final)} other seeds. All else "
        "as above."
    )
    survived = with_memory.data["episode_steps"].values[:, -with_memory.last :].mean(axis=1)
    seeds = listed([number(actions, 0) for actions in survived])
    return {name: captioned(caption, table(_ROW, rows)), f"{name}.seeds": seeds}


_ON_THE_WAY = 10
"""Actions that are survived when a policy has left its first state behind and has not found the wake."""


def _sigma() -> dict[str, str]:
    name, rows = "drafting-sigma", []
    for variant in VARIANTS:
        found = variant.stored()
        steps = found.data["episode_steps"].values[:SEEDS]
        sigma = number(float(found.data["metric_sigma"].sel(greedy_episode=300).values[:SEEDS].mean()), 3)
        rounds = f"{steps.shape[1]}"
        survived = f"{number(steps[:, -found.last :].mean(), 0)} of 400"
        rows.append(
            [variant.networks, variant.sigma, sigma, rounds, _stays(steps, _ON_THE_WAY), _stays(steps), survived]
        )
    caption = (
        f"V-RACER, {SEEDS} seeds, the same for all; with σ kept, {made(name)}, with an episode's age, "
        f"{made('drafting-clock')}, others of the studies above. σ at round 300; rounds of 400 steps that were run; "
        f"from which of them {_ON_THE_WAY} actions are survived, and from which {_INSIDE}, medians over seeds as "
        "above; the last tenth of the rounds."
    )
    headings = (
        "networks",
        "σ",
        "σ, round 300",
        "rounds",
        f"{_ON_THE_WAY} actions from",
        "inside from",
        "actions survived",
    )
    return {name: captioned(caption, table(headings, rows)), **_older_memory()}


def _older_memory() -> dict[str, str]:
    told = facts("drafting-sigma/memory.json")
    ways = told["survived"]["V-RACER:lstm-64-64-fixed"]
    fresh, older, forgotten = (listed([number(x, 0) for x in ways[way]]) for way in ("fresh", "older", "forgotten"))
    return {
        "drafting-sigma.fresh": f"{fresh} actions",
        "drafting-sigma.older": older,
        "drafting-sigma.forgotten": forgotten,
        "drafting-sigma.age": f"{told['age']}",
        "drafting-sigma.episodes": f"{told['episodes']:,}",
    }


def _remembering(words: str, found: Cell, n: int | None = None) -> list[str]:
    """Return the row of a learner's first n seeds, or of all."""
    steps, late = found.data["episode_steps"].values[:n], found.late(found.last)[:n]
    survived = f"{number(steps[:, -found.last :].mean(), 0)} of 400"
    return [words, spread(found.final[:n], 0), survived, _stays(steps), number(late.max(), 0)]


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
        cost = -times * float(np.median(greedy[greedy >= _LOST])) / 400
        lost = number(100 * (greedy < _LOST).mean(), 0)
        row = [spread(one.final, 0), f"{number(steps.mean(), 0)} of 400", f"{lost} %"]
        rows.append([words, *row, f"{number(100 * cost / STATION, 0)} %"])
    caption = (
        f"{runs(name, 'rounds')} of 400 steps, {made(name)}. Return and actions survived: means over seeds and the "
        f"last tenth of the rounds, exploration included. Greedy episodes of the last tenth, {greedy.shape[1]} a seed: "
        "how many are lost, and the median cost of the others, as a share of what holding station in the free stream "
        "costs."
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
        f"{runs(_SHORT, 'rounds')} of 25 steps, {made(_SHORT)}, and the runs above in episodes of 400; greedy episodes "
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
