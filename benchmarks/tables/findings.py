"""Findings: retention, sampling, weights, capacity and rate over all stored studies."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from benchmarks.tables.claims import judged_papers
from benchmarks.tables.stored import Cell, cells, facts, results, runs
from benchmarks.tables.text import between, captioned, difference, number, table
from replaybench.experiments.effects import SIGNIFICANT, paired
from replaybench.experiments.statistics import DEAD_LEVEL, Statistic

RETENTIONS: Final = ("FIFO", "TDE", "Expl", "Resv", "FULL")
COMPARISONS: Final = ("debruin2018-fig12", "debruin2018-fig13", "debruin2018-fig14")
"""Five retentions by two samplings: without noise, at high rates, and with noise."""
CITED: Final = (
    "debruin2018.more-noise-than-there-is",
    "novati2019.pendulum-vracer-needs-refer",
    "novati2019.magman-vracer-needs-refer",
    "sun2020.cheetah-aer-helps",
    "sun2020.cheetah-rates-alone-do-not-help",
    "sun2020.cheetah-attention-beyond-rates",
    "sun2020.hopper-aer-beats-per",
    "sun2020.cheetah-aer-helps-compressed",
    "sun2020.cheetah-rates-alone-do-not-help-compressed",
    "sun2020.cheetah-attention-beyond-rates-compressed",
)
"""Claims whose effects pages quote."""
_SYNTHETIC: Final = (
    "An effect is μ_final with a fifth of synthetic experiences minus μ_final without them, as a mean over paired "
    "seeds with its 95 % BCa interval. Bold: p < 0.05 in a sign-flip test, uncorrected."
)
"""Sentences of two captions."""


def texts() -> dict[str, str]:
    told = {f"claim.{name}": _effect(name) for name in CITED}
    return {
        **told,
        "findings.full": _full(),
        "findings.plants": _plants(),
        "findings.kept": _kept(),
        "findings.replayed": _replayed(),
        "findings.weighted": _weighted(),
        "findings.capacity": _capacity(),
        "findings.half": _half(),
        "findings.rates": _rates(),
        "findings.dead": _dead(),
        **_lost(),
        **_limited(),
        **_sooner(),
        "findings.variants": _variants(),
        "findings.furthest": number(max(_behind(of) for _, _, of in _conditions()), 3),
    }


def _effect(name: str) -> str:
    """Return the mean effect that a claim is about, with its interval."""
    paper, _, key = name.partition(".")
    (verdict,) = (verdict for verdict, _ in judged_papers()[paper][1] if verdict.claim.id == key)
    effect = replace(verdict.effect, statistic="mean")
    return between(effect.estimate, *effect.interval(), 2 if abs(effect.estimate) < 10 else 0)


def _conditions(studies: tuple[str, ...] = COMPARISONS) -> Iterator[tuple[str, str, dict[str, Cell]]]:
    """Yield a study, a condition in words, and its cells by strategy."""
    for study in studies:
        found: dict[str, dict[str, Cell]] = {}
        for one in cells(study):
            rate, noise = (float(one.data[axis]) for axis in ("frequency", "noise"))
            found.setdefault(f"{one.plant}, {rate:g} Hz, noise {noise:g}", {})[one.strategy] = one
        for condition, of in found.items():
            yield study, condition, of


def _scores(one: Cell) -> np.ndarray:
    return np.asarray(one.data["mu_final"].values, np.float64)


def _length(study: str) -> str:
    return f"{results(study).sizes['episode']:,}"


def _full() -> str:
    """Compare FULL[Uniform] with the best strategy of each condition."""
    rows = []
    for study, condition, of in _conditions():
        mine = _scores(of["FULL[Uniform]"])
        best = _best(of)
        behind = difference(mine, _scores(of[best]), 3) if best != "FULL[Uniform]" else ("–", "")
        means = [number(float(np.nanmean(scores)), 3) for scores in (mine, _scores(of[best]))]
        rows.append([condition, _length(study), means[0], best, means[1], *behind])
    caption = (
        "Scores are μ_final, as means over 50 seeds. The best of ten strategies is chosen on the seeds that are shown, "
        "which favours it. Differences are means over paired seeds with 95 % BCa intervals. *p* is from a sign-flip "
        "test, uncorrected."
    )
    headings = (
        "condition", "episodes", "FULL[Uniform]", "best of ten", "score of the best", "FULL[Uniform] minus best", "p",
    )  # fmt: skip
    return captioned(caption, table(headings, rows))


def _plants() -> str:
    """Compare FULL[Uniform] with the best and the worst of twelve strategies on the plants of the advice study."""
    told, rows = facts("advice.json"), []
    for row in told["rows"]:
        scores = row["strategies"]
        names = ("FULL[Uniform]", max(scores, key=scores.__getitem__), min(scores, key=scores.__getitem__))
        of = [f"{name} {number(scores[name], 3)}" for name in names[1:]]
        rows.append([row["plant"], f"{row['frequency']:g}", f"{row['noise']:g}", number(scores[names[0]], 3), *of])
    caption = (
        f"Scores are means over {told['seeds']} seeds × {told['episodes']} episodes. The best and the worst of twelve "
        "strategies are chosen on the seeds that are shown."
    )
    return captioned(caption, table(("plant", "Hz", "noise", "FULL[Uniform]", "best of 12", "worst of 12"), rows))


def _best(of: dict[str, Cell]) -> str:
    """Return the strategy that ends best on average."""
    return max(of, key=lambda name: float(np.nanmean(_scores(of[name]))))


def _behind(of: dict[str, Cell]) -> float:
    """Return the mean distance of FULL[Uniform] to the best strategy."""
    best, mine = (float(np.nanmean(_scores(of[name]))) for name in (_best(of), "FULL[Uniform]"))
    return best - mine


def _kept() -> str:
    """Compare retentions with FULL, sampled uniformly."""
    rows = []
    for study, condition, of in _conditions():
        whole = _scores(of["FULL[Uniform]"])
        beside = [_compare(_scores(of[f"{name}[Uniform]"]), whole) for name in RETENTIONS if name != "FULL"]
        rows.append([condition, _length(study), *beside])
    caption = (
        "Entries are μ_final minus that of FULL[Uniform], as means over 50 paired seeds with 95 % BCa intervals. The "
        "compared buffers hold 10⁴ experiences. Bold: p < 0.05 in a sign-flip test, uncorrected."
    )
    headings = ("condition", "episodes", *(f"{name}[Uniform]" for name in RETENTIONS if name != "FULL"))
    return captioned(caption, table(headings, rows))


def _replayed() -> str:
    """Compare PER with uniform sampling, by retention."""
    rows = []
    for _, condition, of in _conditions():
        pairs = [(of[f"{kept}[PER]"].data, of[f"{kept}[Uniform]"].data) for kept in RETENTIONS]
        rises = [_compare(*(one["rise_time"].values for one in pair), 0, "interquartile mean") for pair in pairs]
        ends = [_compare(*(one["mu_final"].values for one in pair)) for pair in pairs]
        rows += [[condition, "episodes to 0.8", *rises], [condition, "μ_final", *ends]]
    caption = (
        "Entries are the value with PER minus that with uniform sampling and the same retention, over 50 paired seeds "
        "with 95 % BCa intervals. For μ_final they are means. For *episodes to 0.8* they are interquartile means; a "
        "negative value means that PER is faster. Bold: p < 0.05 in a sign-flip test, uncorrected."
    )
    return captioned(caption, table(("condition", "measure", *RETENTIONS), rows))


def _weighted() -> str:
    """Compare importance weights with plain sampling, under noise."""
    rows = []
    for _, condition, of in _conditions(("debruin2018-fig15",)):
        for kept in ("FIFO", "TDE", "Resv"):
            plain, by_error = (_scores(of[f"{kept}[{sampling}]"]) for sampling in ("Uniform", "PER"))
            weighted, all_weighted = (_scores(of[f"{kept}[{sampling}]"]) for sampling in ("PER+IS", "Uniform+FIS"))
            beside = _compare(by_error, plain), _compare(weighted, plain), _compare(all_weighted, plain)
            rows.append([condition, kept, number(float(np.nanmean(plain)), 3), *beside])
    caption = (
        f"{runs('debruin2018-fig15')}. The column Uniform is the mean μ_final of uniform sampling. The other columns "
        "are μ_final minus that of uniform sampling with the same retention, as means over paired seeds with 95 % BCa "
        "intervals. Bold: p < 0.05 in a sign-flip test, uncorrected."
    )
    return captioned(caption, table(("condition", "retention", "Uniform", "PER", "PER+IS", "Uniform+FIS"), rows))


def _capacity() -> str:
    """Compare capacities of FIFO buffers, with and without synthetic experiences."""
    sizes = {"1,000": "FIFO(1000)", "10,000": "FIFO", "100,000": "FIFO(100000)"}
    rows = []
    for _, condition, of in _conditions(("debruin2018-fig5",)):
        for size, kept in sizes.items():
            plain, states, actions = (
                _scores(of[f"{synth}{kept}[Uniform]"]) for synth in ("", "Synth(state=0.2)*", "Synth(action=0.2)*")
            )
            mean = number(float(np.nanmean(plain)), 3)
            rows.append([condition, size, mean, _compare(states, plain), _compare(actions, plain)])
    caption = f"FIFO[Uniform], {runs('debruin2018-fig5')}. The column μ_final is a mean over seeds. {_SYNTHETIC}"
    headings = ("condition", "capacity", "μ_final", "effect of synthetic states", "effect of synthetic actions")
    return captioned(caption, table(headings, rows))


def _half() -> str:
    """Compare half the capacity of the 90 % rule with FULL, on magman."""
    of = {one.strategy: one for one in cells("debruin2018-fig18")}
    return difference(_scores(of["FIFO(42000)[Uniform]"]), _scores(of["FULL[Uniform]"]), 3)[0]


def _rates() -> str:
    """Compare control rates, with and without synthetic experiences."""
    rows = []
    for _, condition, of in _conditions(("debruin2018-fig9",)):
        names = [f"{synth}FIFO[Uniform]" for synth in ("", "Synth(state=0.2)*", "Synth(action=0.2)*")]
        plain, states, actions = (_scores(of[name]) for name in names)
        rows.append([condition, number(float(np.nanmean(plain)), 3), _compare(states, plain), _compare(actions, plain)])
    caption = f"FIFO[Uniform], {runs('debruin2018-fig9')}. The column μ_final is a mean over seeds. {_SYNTHETIC}"
    headings = ("condition", "μ_final", "effect of synthetic states", "effect of synthetic actions")
    return captioned(caption, table(headings, rows))


def _dead() -> str:
    """Count collapsed runs by retention and sampling."""
    rows = []
    for study, condition, of in _conditions():
        counts = [f"{of[f'{kept}[Uniform]']['dead']:.0f}, {of[f'{kept}[PER]']['dead']:.0f}" for kept in RETENTIONS]
        rows.append([condition, _length(study), *counts])
    caption = "Each entry gives the numbers of collapsed runs out of 50: first with uniform sampling, then with PER."
    return captioned(caption, table(("condition", "episodes", *RETENTIONS), rows))


def _pendulum() -> dict[str, Cell]:
    """Return the pendulum's cells without noise at 50 Hz, by strategy."""
    (found,) = (of for _, condition, of in _conditions(COMPARISONS[:1]) if condition.startswith("PendulumDCSC"))
    return found


def _lost() -> dict[str, str]:
    """Count collapsed learners with the newest and with all experiences, and those of the former that had learned."""
    newest, everything = (_ends_and_rises(kept) for kept in ("FIFO", "FULL"))
    learned = newest[1][newest[0] < DEAD_LEVEL] < results(COMPARISONS[0]).sizes["episode"]
    return {
        "findings.lost.newest": f"{(newest[0] < DEAD_LEVEL).sum()} of {newest[0].size}",
        "findings.learned.newest": f"{learned.sum()}",
        "findings.lost.all": f"{(everything[0] < DEAD_LEVEL).sum()} of {everything[0].size}",
    }


def _ends_and_rises(kept: str) -> tuple[np.ndarray, np.ndarray]:
    """Return final scores and rise times of a retention's runs with both samplings. [runs]"""
    both = [_pendulum()[f"{kept}[{sampling}]"].data for sampling in ("Uniform", "PER")]
    ends, rises = (np.concatenate([one[name].values for one in both]) for name in ("mu_final", "rise_time"))
    return ends, rises


def _limited() -> dict[str, str]:
    """Measure the share of the state space in which collapsed learners, and others, put the action at its limit."""
    told = facts("dead_learners.json")
    collapsed: list[tuple[float, float]] = []
    living: list[float] = []
    for row in told["strategies"].values():
        of = list(zip(row["score"], row["limited"], row["side"], strict=True))
        collapsed += [(limited, side) for score, limited, side in of if score < told["dead_below"]]
        living.append(float(np.mean([limited for score, limited, _ in of if score >= told["dead_below"]])))
    limited, side = np.mean(collapsed, axis=0)
    return {
        "findings.limited": f"{100 * limited:.0f} %",
        "findings.one-side": f"{100 * side:.0f} %",
        "findings.others-limited": f"{100 * min(living):.0f} to {100 * max(living):.0f} %",
    }


def _sooner() -> dict[str, str]:
    """Compare the rise times of PER and uniform sampling from a buffer of everything."""
    per, uniform = (_pendulum()[f"FULL[{sampling}]"].data["rise_time"].values for sampling in ("PER", "Uniform"))
    effect = paired([per.astype(float)], [uniform.astype(float)], statistic="interquartile mean")
    low, high = effect.interval()
    return {"findings.sooner": number(-effect.estimate, 0), "findings.sooner.interval": f"{-high:.0f} to {-low:.0f}"}


def _variants() -> str:
    """Return the largest effect of a variant of prioritised replay."""
    found = [verdict for verdict, _ in judged_papers()["panahi2024"][1] if verdict.effect.n]
    return number(max(verdict.effect.estimate for verdict in found), 3)


def _compare(one: np.ndarray, other: np.ndarray, digits: int = 3, statistic: Statistic = "mean") -> str:
    """Return a difference of paired seeds with its interval, bold where it is significant."""
    effect = paired([np.asarray(one, np.float64)], [np.asarray(other, np.float64)], statistic=statistic)
    text = between(effect.estimate, *effect.interval(), digits)
    significant = 2 * min(effect.chance_below(0.0), effect.chance_above(0.0)) < SIGNIFICANT
    return f"**{text}**" if significant else text
