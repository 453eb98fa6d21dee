"""Drafting with an LSTM: compared with none, with a fixed σ, and with gates that begin closed."""

import numpy as np
from scipy.stats import permutation_test

from benchmarks.flow.drafting_sigma import SEEDS, VARIANTS, WINDOW
from benchmarks.tables.drafting import BEST, INSIDE, LOST, MEANS, STAYS, stays
from benchmarks.tables.stored import Cell, cell, cells, facts, runs
from benchmarks.tables.text import captioned, difference, listed, number, spread, table
from replaybench.experiments.effects import p_text


def texts() -> dict[str, str]:
    return {**_recurrent(), **_longer(), **_sigma(), **_forgetting(), **_forgetting_longer(), **_masked()}


_MEMORY = {
    "V-RACER:lstm": "V-RACER, LSTM 2 × 32",
    "V-RACER:lstm-64-64": "V-RACER, LSTM 2 × 32, then 64-64",
    "V-RACER:slow": "V-RACER, 64-64, no LSTM",
    "DDPG:lstm": "DDPG, LSTM 2 × 32, in the critic then 64",
    "DDPG": "DDPG, 64-64, no LSTM",
}
"""Labels of the learners of drafting-recurrent.toml, and of those of drafting-vracer.toml for comparison."""


_GATES = {
    "V-RACER:64-64": "64-64, no LSTM",
    "V-RACER:lstm-64-64": "LSTM, initially open gates",
    "V-RACER:lstm-64-64-forgets": "LSTM, initially closed gates",
}
"""Labels of the learners of drafting-forget.toml."""
_ROW = ("learner", "training return [95 %]", "actions survived", "stays from iteration", "best greedy return")


def _recurrent() -> dict[str, str]:
    name = "drafting-recurrent"
    stored = [*cells("drafting-vracer"), *cells(name)]
    known = {one.learner: one for one in stored if one.strategy == "FIFO(20000)[Uniform+ReFER]"}
    n = len(known["V-RACER:lstm"].final)
    rows = [_remembering(words, known[learner], n) for learner, words in _MEMORY.items()]
    caption = (
        f"{runs(name, 'iterations')} of 400 steps, with ReF-ER and buffers of 20,000 experiences. The learners without "
        f"an LSTM are those of [drafting](drafting.md#what-does-v-racer-need), with these {n} seeds only. "
        f"{MEANS} {STAYS} {BEST}"
    )
    return {"drafting-recurrent": captioned(caption, table(_ROW, rows))}


def _longer() -> dict[str, str]:
    name, learner = "drafting-recurrent-million", "V-RACER:lstm-64-64"
    with_memory, without = cell(name), cell("novati2019-fig6", learner="V-RACER")
    rows = [
        _remembering(_MEMORY[learner], with_memory),
        _remembering("V-RACER, 64-64, no LSTM", without),
    ]
    caption = (
        f"{runs(name, 'iterations')} of 400 steps. The learner without an LSTM is that of figure 6 in "
        f"[drafting](drafting.md), with {len(without.final)} other seeds. The columns are those of the table above."
    )
    seeds = listed([number(actions, 0) for actions in _survived(with_memory)])
    return {name: captioned(caption, table(_ROW, rows)), f"{name}.seeds": seeds}


_ON_THE_WAY = 10
"""Actions survived by a policy that has improved on its initial one and does not yet stay in the wake."""
_NETWORKS = {"64-64, which see an episode's age": "64-64, with the age of the episode as an input"}
"""Labels that differ from those of the figure."""


def _sigma() -> dict[str, str]:
    name, rows = "drafting-sigma", []
    for variant in VARIANTS:
        found = variant.stored()
        steps = found.data["episode_steps"].values[:SEEDS]
        sigma = _sigma_on_the_way(found, SEEDS)
        iterations = f"{steps.shape[1]}"
        survived = f"{number(steps[:, -found.last :].mean(), 0)} of 400"
        found_at = stays(steps, _ON_THE_WAY), stays(steps)
        networks = _NETWORKS.get(variant.networks, variant.networks)
        rows.append([networks, variant.sigma, sigma, iterations, *found_at, survived])
    caption = (
        f"V-RACER with ReF-ER, iterations of 400 steps, the same {SEEDS} seeds in all rows. *σ, iteration 300* is a "
        f"mean over seeds. *{_ON_THE_WAY} actions from* is the first iteration at which the episodes of the "
        f"preceding {WINDOW} iterations have at least {_ON_THE_WAY} actions on average. *Stays from* is the same for "
        f"{INSIDE} actions. Both columns show the median over seeds, and how many seeds reach this. The last column is "
        "the mean over seeds and over the last tenth of the iterations."
    )
    headings = (
        "networks",
        "σ",
        "σ, iteration 300",
        "iterations",
        f"{_ON_THE_WAY} actions from iteration",
        "stays from iteration",
        "actions survived",
    )
    return {name: captioned(caption, table(headings, rows)), **_older_memory()}


def _older_memory() -> dict[str, str]:
    told = facts("drafting-sigma/memory.json")
    ways = told["survived"]["V-RACER:lstm-64-64-fixed"]
    return {f"drafting-sigma.{way}": listed([number(x, 0) for x in ways[way]]) for way in ("fresh", "older")}


def _sigma_on_the_way(found: Cell, n: int | None = None) -> str:
    """Return the mean σ of the first n seeds, or of all, at iteration 300."""
    return number(float(found.data["metric_sigma"].sel(greedy_episode=300).values[:n].mean()), 3)


def _survived(found: Cell) -> np.ndarray:
    """Return each seed's actions survived in the last tenth of the iterations. [seeds]"""
    means: np.ndarray = found.data["episode_steps"].values[:, -found.last :].mean(axis=1)
    return means


def _remembering(words: str, found: Cell, n: int | None = None) -> list[str]:
    """Return the row of a learner's first n seeds, or of all."""
    steps, late = found.data["episode_steps"].values[:n], found.late(found.last)[:n]
    survived = f"{number(_survived(found)[:n].mean(), 0)} of 400"
    return [words, spread(found.final[:n], 0), survived, stays(steps), number(late.max(), 0)]


def _forgetting() -> dict[str, str]:
    name = "drafting-forget"
    found = {learner: cell(name, learner=learner) for learner in _GATES}
    opened, closed = (found[f"V-RACER:lstm-64-64{end}"] for end in ("", "-forgets"))
    rows = []
    for learner, words in _GATES.items():
        sigma = _sigma_on_the_way(found[learner])
        row = _remembering(words, found[learner])
        rows.append([*row[:1], sigma, stays(found[learner].data["episode_steps"].values, _ON_THE_WAY), *row[1:]])
    caption = (
        f"V-RACER, {runs(name, 'iterations')} of 400 steps, with ReF-ER, learned σ and buffers of 20,000 experiences. "
        "The LSTMs have 2 × 32 units, followed by two layers of 64 units. *σ, iteration 300* is a mean over seeds. "
        f"{MEANS} {STAYS} *{_ON_THE_WAY} actions from* is the same for {_ON_THE_WAY} actions. {BEST}"
    )
    headings = ("networks", "σ, iteration 300", f"{_ON_THE_WAY} actions from iteration", *_ROW[1:])
    told, p = difference(_survived(closed), _survived(opened), 0)
    asked = facts(f"{name}/lag.json")["found"]
    values = {f"{name}.difference": told, f"{name}.p": p}
    for learner, short in list(zip(_GATES, ("none", "open", "closed"), strict=True))[1:]:
        by_lag = np.mean(asked[learner]["responses"], axis=0)
        values[f"{name}.now-{short}"] = number(float(by_lag[0]), 2)
        values[f"{name}.past-{short}"] = number(float(by_lag[-1]), 2)
        values[f"{name}.leave-{short}"] = f"{number(float(np.nanmean(asked[learner]['leaving'], axis=0)[-1]), 1)} %"
    return {name: captioned(caption, table(headings, rows)), **values}


def _lost(found: Cell) -> str:
    """Return the share of greedy episodes of the last tenth that are lost."""
    return f"{number(100 * float((found.late(found.last) < LOST).mean()), 0)} %"


def _forgetting_longer() -> dict[str, str]:
    name = "drafting-forget-million"
    closed, opened, without = cell(name), cell("drafting-recurrent-million"), cell("novati2019-fig6", learner="V-RACER")
    rows = [
        _remembering(_GATES["V-RACER:lstm-64-64-forgets"], closed),
        _remembering(_GATES["V-RACER:lstm-64-64"], opened),
        _remembering(_GATES["V-RACER:64-64"], without),
    ]
    caption = (
        f"V-RACER, {runs(name, 'iterations')} of 400 steps. The LSTM with open gates has {len(opened.final)} other "
        f"seeds. The learner without an LSTM is that of figure 6 in [drafting](drafting.md), with {len(without.final)} "
        "other seeds. The columns are those of the table above."
    )
    apart = permutation_test(
        (_survived(closed), _survived(without)), lambda one, other: one.mean() - other.mean(), n_resamples=np.inf
    )  # all of them: seeds are others, so that there are no pairs
    return {
        name: captioned(caption, table(("networks", *_ROW[1:]), rows)),
        f"{name}.seeds": listed([number(actions, 0) for actions in sorted(_survived(closed))]),
        f"{name}.p": p_text(float(apart.pvalue)).replace("<", "below"),
        f"{name}.closed.lost": _lost(closed),
        f"{name}.none.lost": _lost(without),
    }


def _masked() -> dict[str, str]:
    name = "partial-forget"
    found = {one.learner.split(":")[1]: one for one in cells(name)}
    scores = {gates: one.data["mu_final"].values for gates, one in found.items()}
    told, p = difference(scores["closed"], scores["open"], 3)
    means = {f"{name}.{gates}": spread(score) for gates, score in scores.items()}
    return {**means, f"{name}.difference": told, f"{name}.p": p}
