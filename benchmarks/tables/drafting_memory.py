"""Drafting with an LSTM: compared with none, with a fixed σ, and with gates that begin closed."""

import numpy as np
from scipy.stats import permutation_test

from benchmarks.flow.drafting_lag import NETWORKS
from benchmarks.flow.drafting_sigma import SEEDS, VARIANTS
from benchmarks.tables.drafting import INSIDE, LOST, stays
from benchmarks.tables.stored import Cell, cell, cells, facts, runs
from benchmarks.tables.text import captioned, difference, listed, number, spread, table
from replaybench.experiments.effects import p_text


def texts() -> dict[str, str]:
    return {**_recurrent(), **_longer(), **_sigma(), **_forgetting(), **_forgetting_longer(), **_masked()}


_MEMORY = {
    "V-RACER:lstm": "V-RACER, LSTM 2 × 32",
    "V-RACER:lstm-64-64": "V-RACER, LSTM 2 × 32, then 64-64",
    "V-RACER:slow": "V-RACER, 64-64, from above",
    "DDPG:lstm": "DDPG, LSTM 2 × 32, critic then 64",
    "DDPG": "DDPG, 64-64, from above",
}
"""Labels of the learners of drafting-recurrent.toml, and of those of drafting-vracer.toml for comparison."""


_ROW = ("learner", "return, training [95 %]", "actions survived", "inside from iteration", "best greedy")


def _recurrent() -> dict[str, str]:
    name = "drafting-recurrent"
    stored = [*cells("drafting-vracer"), *cells(name)]
    known = {one.learner: one for one in stored if one.strategy == "FIFO(20000)[Uniform+ReFER]"}
    n = len(known["V-RACER:lstm"].final)
    rows = [_remembering(words, known[learner], n) for learner, words in _MEMORY.items()]
    caption = (
        f"{runs(name, 'iterations')} of 400 steps, N = 20,000, ReF-ER; the same seeds of the studies above. "
        "Means over seeds and the last tenth of the iterations, exploration included; inside as above; the best greedy "
        "episode."
    )
    return {"drafting-recurrent": captioned(caption, table(_ROW, rows))}


def _longer() -> dict[str, str]:
    name, learner = "drafting-recurrent-million", "V-RACER:lstm-64-64"
    with_memory, without = cell(name), cell("novati2019-fig6", learner="V-RACER")
    rows = [
        _remembering(_MEMORY[learner], with_memory),
        _remembering("V-RACER, 64-64, of figure 6", without),
    ]
    caption = (
        f"{runs(name, 'iterations')} of 400 steps; without LSTM {len(without.final)} other seeds. All else as above."
    )
    seeds = listed([number(actions, 0) for actions in _survived(with_memory)])
    return {name: captioned(caption, table(_ROW, rows)), f"{name}.seeds": seeds}


_ON_THE_WAY = 10
"""Actions that are survived when a policy has left its first state behind and has not found the wake."""


def _sigma() -> dict[str, str]:
    name, rows = "drafting-sigma", []
    for variant in VARIANTS:
        found = variant.stored()
        steps = found.data["episode_steps"].values[:SEEDS]
        sigma = _sigma_on_the_way(found, SEEDS)
        iterations = f"{steps.shape[1]}"
        survived = f"{number(steps[:, -found.last :].mean(), 0)} of 400"
        found_at = stays(steps, _ON_THE_WAY), stays(steps)
        rows.append([variant.networks, variant.sigma, sigma, iterations, *found_at, survived])
    caption = (
        f"V-RACER, {SEEDS} seeds, the same for all; σ at iteration 300; iterations of 400 steps; "
        f"from which of them {_ON_THE_WAY} actions are survived, and from which {INSIDE}, medians over seeds as "
        "above; the last tenth of the iterations."
    )
    headings = (
        "networks",
        "σ",
        "σ, iteration 300",
        "iterations",
        f"{_ON_THE_WAY} actions from",
        "inside from",
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
    found = {learner: cell(name, learner=learner) for learner in NETWORKS}
    opened, closed = (found[f"V-RACER:lstm-64-64{end}"] for end in ("", "-forgets"))
    rows = []
    for learner, words in NETWORKS.items():
        sigma = _sigma_on_the_way(found[learner])
        row = _remembering(words, found[learner])
        rows.append([*row[:1], sigma, stays(found[learner].data["episode_steps"].values, _ON_THE_WAY), *row[1:]])
    caption = (
        f"V-RACER, {runs(name, 'iterations')} of 400 steps, N = 20,000, ReF-ER, σ learned; LSTMs of 2 × 32, "
        f"then 64-64. σ at iteration 300; iteration from which {_ON_THE_WAY} actions are survived, and {INSIDE} "
        "(inside), medians over seeds as above; means over seeds and the last tenth of the iterations, exploration "
        "included; the best greedy episode."
    )
    headings = ("networks", "σ, iteration 300", f"{_ON_THE_WAY} actions from", *_ROW[1:])
    told, p = difference(_survived(closed), _survived(opened), 0)
    asked = facts(f"{name}/lag.json")["found"]
    values = {f"{name}.difference": told, f"{name}.p": p}
    for learner, short in list(zip(NETWORKS, ("none", "open", "closed"), strict=True))[1:]:
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
        _remembering(NETWORKS["V-RACER:lstm-64-64-forgets"], closed),
        _remembering("LSTM, gates begin open, from above", opened),
        _remembering("64-64, no LSTM, of figure 6", without),
    ]
    caption = (
        f"V-RACER, {runs(name, 'iterations')} of 400 steps; with open gates {len(opened.final)} other "
        f"seeds, without LSTM {len(without.final)} others. All else as above."
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
