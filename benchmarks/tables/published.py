"""Figures of de Bruin et al. (2018): strategies, compared with one of them; settings of ACER; and recencies."""

from typing import Final

import numpy as np

from benchmarks.evidence import acer_settings
from benchmarks.tables.stored import Cell, cell, cells, results, runs
from benchmarks.tables.text import between, captioned, listed, number, table
from replaybench.experiments.comparison import Comparison, compared
from replaybench.experiments.effects import p_text

FIGURES: Final = {
    "figure7": ("debruin2018-fig7", "FIFO[Uniform]"),
    "figure12": ("debruin2018-fig12", "FIFO[Uniform]"),
    "figure13": ("debruin2018-fig13", "FIFO[Uniform]"),
    "figure14": ("debruin2018-fig14", "FIFO[Uniform]"),
    "figure18": ("debruin2018-fig18", "FULL[Uniform]"),
}
"""Study of each figure, and the strategy that the others are compared with."""
EQUAL_RECENCY: Final = {
    "geometric": "FIFO[TruncGeo(0.1)]",
    "newest-fifth": "FIFO[ERE(eta=1e-06, c_min=2000, last=1e-06)]",
}
"""Strategies with a mean age of a tenth of a full buffer."""


def texts() -> dict[str, str]:
    told: dict[str, str] = {}
    for name, (study, baseline) in FIGURES.items():
        told[name] = _table(study, baseline)
    dqn, naf = _readings("dqn-diversity", "synthetic states, half"), _readings("naf-refer", "ReF-ER")
    return {
        **told,
        "dqn": dqn,
        "naf": naf,
        "emphasis": _emphasis(),
        "attention": _readings("td3-attention", "with AER"),
        "naf.by-hundred": _by_hundred("naf-refer", "NAF", "FIFO[Uniform+ReFER]"),
        "figure20.alpha": _by_alpha("PendulumDCSC"),
        "figure21": _by_emphasis("debruin2018-fig21"),
        "figure8.states": _by_age("debruin2018-fig8", "Magman", "state"),
        "figure8.actions": _by_age("debruin2018-fig8", "Magman", "action"),
        "fedus.magman": _by_memory("fedus2020-capacity", "Magman"),
        "figure14.noise": _by_noise("when-map", "FULL[PER]", "FULL[Uniform]"),
        "acer.risen": _risen("wang2017-fig1"),
        "acer.settings": _tuned(),
        "acer.no-trust": _without_trust(),
        **_recencies("korniak2026-volume", filled=50),
    }


def _recencies(study: str, filled: int) -> dict[str, str]:
    """Return recency and entropy of strategies with 2 replays for each experience, in a run and with full buffers.

    They are means over the evaluations of all seeds, as the range over plants and learners. Buffers are full from
    episode `filled` on.
    """
    told = {}
    for name, strategy in EQUAL_RECENCY.items():
        of = [one.data for one in cells(study) if (one.strategy, one.learner[-2:]) == (strategy, "=2")]
        full = [data.sel(greedy_episode=slice(filled, None)) for data in of]
        for key, parts, measure in (("recency", of, "recency"), ("entropy", of, "entropy"), ("full", full, "recency")):
            means = sorted(float(data[measure].mean()) for data in parts)
            ends = (number(mean, 3) for mean in (means[0], means[-1]))
            told[f"korniak.{key}-{name}"] = " to ".join(dict.fromkeys(ends))
    return told


def _tuned() -> str:
    """List the best setting of each variant of ACER by plant, with its score and that of the default setting."""
    rows = []
    for plant, label, setting, best, default in acer_settings.stored():
        bound = f"{setting['delta']:g}" if acer_settings.variants()[label].get("trust_region", True) else "–"
        rates = [f"{setting[key]:.5f}" for key in ("policy_rate", "critic_rate")]
        rows.append([label, plant, *rates, bound, number(best, 3), number(default, 3)])
    counts = " and ".join(f"{count} on {plant}" for plant, count in acer_settings.COUNTS.items())
    caption = (
        f"Settings with the highest mean score of three seeds, among {counts}. These seeds are not those of the "
        "results. The last two columns are mean μ_final of the best setting and of the learner's default setting."
    )
    headings = ("learner", "plant", "learning rate of the policy", "of the critic", "δ", "μ_final", "μ_final, default")
    return captioned(caption, table(headings, rows))


READINGS: Final = {
    "dqn-diversity": {
        "DQN": "learning rate 1e-3, 2 × 50 units, squared errors, 8 replays of each experience",
        "DQN:rate-1e-4": "learning rate 1e-4",
        "DQN:rate-3e-4": "learning rate 3e-4",
        "DQN:rate-3e-3": "learning rate 3e-3",
        "DQN:small": "2 × 20 units",
        "DQN:huber": "Huber loss: linear for errors above 1",
        "DQN:more-replays": "32 replays of each experience",
    },
    "naf-refer": {
        "NAF": (
            "unbounded means, exploration σ = 0.2, learning rate 1e-3, factor ½ in the advantage, "
            "normalised rewards, 32 replays of each experience"
        ),
        "NAF:bounded": "means bounded by tanh",
        "NAF:wide": "exploration σ = 0.4",
        "NAF:slow": "learning rate 3e-4",
        "NAF:whole": "no factor ½ in the advantage",
        "NAF:unscaled": "rewards not normalised",
        "NAF:more-replays": "64 replays of each experience",
    },
    "sac-emphasis": {
        "SAC": "settings of the figures: learning rates 1e-3, learned temperature, 32 replays per experience",
        "SAC:fewer-replays": "8 replays per experience",
        "SAC:slow": "learning rates 3e-4",
        "SAC:first": "first version of SAC, temperature 0.2, learning rates 3e-4",
    },
    "td3-attention": {
        "TD3": "settings of the figure: learning rates 1e-3, 32 replays per experience",
        "TD3:fewer-replays": "8 replays per experience",
        "TD3:slow": "learning rates 3e-4",
    },
}
"""Labels of the readings in studies of contradicted claims."""


def _readings(study: str, other: str) -> str:
    """Compare a strategy with plain replay, by reading."""
    rows = []
    for (_, learner), (plain, changed) in _compared(study, "FIFO[Uniform]").items():
        means = (number(float(np.nanmean(row.scores)), 3) for row in (plain, changed))
        rows.append([READINGS[study][learner], *means, *_difference(changed)])
    caption = (
        f"Runs: {runs(study)} at 50 Hz without noise. The first row is the default, and each other row changes one "
        "setting of it. *μ_final* is the mean over seeds. *Difference* is the second μ_final minus the first, as a "
        "mean over paired seeds with its BCa interval. *p* is from a sign-flip test, corrected over all rows (Holm)."
    )
    headings = ("setting", "μ_final, uniform replay", f"μ_final, {other}", "difference [95 %]", "p")
    return captioned(caption, table(headings, rows))


def _emphasis() -> str:
    """Compare AER and ERE with uniform replay under SAC, by plant and reading."""
    study, rows = "sac-emphasis", []
    for (plant, learner), (plain, *others) in _compared(study, "FIFO[Uniform]").items():
        mean = number(float(np.nanmean(plain.scores)), 3)
        told = [f"{difference}, p {chance}" for difference, chance in map(_difference, others)]
        rows.append([plant, READINGS[study][learner], mean, *told])
    caption = (
        f"SAC, {runs(study)} at 50 Hz without noise. The first row of each plant has the settings of the figures; each "
        "other row names the changed setting. The third column is a mean over seeds. The last two columns show μ_final "
        "minus that of uniform replay, as a mean over paired seeds with its 95 % BCa interval, and p of a sign-flip "
        "test with Holm's correction."
    )
    return captioned(
        caption,
        table(("plant", "settings", "μ_final, uniform replay", "difference with AER", "difference with ERE"), rows),
    )


def _by_hundred(study: str, learner: str, strategy: str) -> str:
    """Return mean differences of μ_r to plain replay by hundred training episodes."""
    changed, plain = (cell(study, learner=learner, strategy=name) for name in (strategy, "FIFO[Uniform]"))
    gain = (changed.data["reward"] - plain.data["reward"]) / (plain["reference_dp"] - plain["reference_random"])
    hundreds = gain.coarsen(episode=100).mean().mean("seed").values
    return ", ".join(number(float(mean), 2) for mean in hundreds)


def _by_noise(study: str, one: str, other: str) -> str:
    """Return the mean difference of two strategies in μ_final at each noise level."""
    scores = results(study)["mu_final"].sel(plant="PendulumDCSC").squeeze("learner")
    ahead = (scores.sel(strategy=one) - scores.sel(strategy=other)).mean(["frequency", "seed"])
    return listed([f"{number(float(mean), 2)} at noise {float(mean['noise']):g}" for mean in ahead])


def _by_age(study: str, plant: str, altered: str) -> str:
    """Return the mean μ_final with fresh and with old synthetic experiences."""
    names = (f"Synth({altered}=0.2{old})*FIFO[Uniform]" for old in ("", ", refresh=0.05"))
    return " to ".join(number(cell(study, plant=plant, strategy=name)["mu_final_mean"], 2) for name in names)


def _by_memory(study: str, plant: str) -> str:
    """Return the mean μ_final by capacity."""
    kept = {"2,000": "FIFO(2000)", "10,000": "FIFO", "50,000": "FIFO(50000)", "all": "FULL"}
    found = {size: cell(study, plant=plant, strategy=f"{name}[Uniform]") for size, name in kept.items()}
    return listed([f"{number(one['mu_final_mean'], 3)} with {size}" for size, one in found.items()])


def _risen(study: str) -> str:
    """Return how many runs of discrete ACER reach μ_r = 0.8, by replays per experience."""
    told = []
    for replays in (4, 16, 64):
        rises = cell(study, learner=f"ACER-discrete:{replays}").data["rise_time"].values
        told.append(f"{(rises < results(study).sizes['episode']).sum()} of {rises.size} runs with {replays} replays")
    return listed(told)


def _without_trust() -> str:
    """Return the scores of ACER without a trust region on the pendulum, of the tuning and of the results."""
    tuned = {label: best for plant, label, _, best, _ in acer_settings.stored() if plant == "PendulumDCSC"}
    found = cell("wang2017-fig4", learner="ACER:no-trust")
    return (
        f"{number(tuned['ACER:no-trust'], 3)} over the three seeds of the tuning. Over the {found.data.sizes['seed']} "
        f"seeds of the results it is {number(float(found.data['mu_final'].mean()), 3)}, and "
        f"{number(found['dead'], 0)} of these runs have collapsed"
    )


def _by_alpha(plant: str) -> str:
    """Return the mean μ_final of Expl[Uniform] by its exponent α."""
    kept = {"0": "Expl(0.0)", "0.5": "Expl(0.5)", "1": "Expl", "1.5": "Expl(1.5)"}
    told = []
    for alpha, name in kept.items():
        study = "expl-zero" if alpha == "0" else "debruin2018-fig20"
        mean = cell(study, plant=plant, strategy=f"{name}[Uniform]")["mu_final_mean"]
        told.append(f"{number(mean, 3)} at α = {alpha}")
    return listed(told)


def _by_emphasis(study: str) -> str:
    """Show final scores, rise times and collapsed runs by the exponent of PER."""
    samplings = {"0, uniform": "Uniform", "0.4": "PER(0.4)", "0.7": "PER", "1": "PER(1.0)"}
    rows = []
    for plant in results(study)["plant"].values.tolist():
        for kept in ("FULL", "FIFO"):
            found = [cell(study, plant=plant, strategy=f"{kept}[{sampling}]") for sampling in samplings.values()]
            ends = [between(*(one[f"mu_final_{bound}"] for bound in ("mean", "low", "high")), 3) for one in found]
            rises = [number(float(np.median(one.data["rise_time"].values)), 0) for one in found]
            dead = [number(one["dead"], 0) for one in found]
            told = zip(ends, rises, dead, strict=True)
            rows.append([plant, kept, *(f"{end}; {rise}; {died}" for end, rise, died in told)])
    caption = (
        f"Runs: {runs(study)} at {_rates(study)} {_noise(study)}. Each entry has three values: the mean μ_final over "
        "seeds with its 95 % interval; the median over seeds of the first training episode with μ_r ≥ 0.8; the number "
        "of collapsed runs."
    )
    return captioned(caption, table(("plant", "retention", *(f"α = {alpha}" for alpha in samplings)), rows))


def _compared(study: str, baseline: str) -> dict[tuple[str, str], list[Comparison]]:
    """Return a study's comparisons by plant and learner."""
    found: dict[tuple[str, str], list[Comparison]] = {}
    for plant in results(study)["plant"].values.tolist():
        for row in compared(results(study).sel(plant=plant), baseline):
            found.setdefault((plant, row.learner), []).append(row)
    return found


def _table(study: str, baseline: str) -> str:
    several = results(study).sizes["learner"] > 1
    beside = {(*where, row.strategy): row for where, rows in _compared(study, baseline).items() for row in rows}
    rows = []
    for one in cells(study):
        where = f"{one.plant}, {one.learner}" if several else one.plant
        rows.append([where, one.strategy, *_numbers(one, beside[one.plant, one.learner, one.strategy])])
    caption = (
        f"Runs: {runs(study)} at {_rates(study)} {_noise(study)}. *Reward per step* is averaged over the last 100 "
        "training episodes, exploration included, and over seeds. The median over seeds is in brackets. *μ_final* is "
        f"the mean over seeds with its 95 % interval. *Difference* is μ_final minus that of {baseline}, as a mean over "
        "paired seeds with its BCa interval. *p* is from a sign-flip test, corrected within a plant (Holm). "
        "*Episodes to 0.8* is the median over seeds of the first training episode with μ_r ≥ 0.8. *Collapsed* is the "
        "number of seeds with μ_final below 0.2."
    )
    headings = ("plant, learner" if several else "plant", "strategy", "n", "reward per step", "μ_final [95 %]")
    return captioned(caption, table((*headings, "difference [95 %]", "p", "episodes to 0.8", "collapsed"), rows))


def _numbers(cell: Cell, row: Comparison) -> list[str]:
    digits = 1 if cell.plant.startswith("Pendulum") else 2
    return [
        str(row.scores.size),
        f"{number(cell.final.mean(), digits)} ({number(float(np.median(cell.final)), digits)})",
        between(*(cell[f"mu_final_{bound}"] for bound in ("mean", "low", "high")), 3),
        *_difference(row),
        number(float(np.median(cell.data["rise_time"].values)), 0),
        number(cell["dead"], 0),
    ]


def _difference(row: Comparison) -> tuple[str, str]:
    if row.effect is None:
        return "", ""
    return between(row.effect.estimate, *row.effect.interval(), 3), p_text(row.chance)


def _rates(study: str) -> str:
    """Return the control rate, of each plant where they differ."""
    found = {one.plant: f"{float(one.data['frequency']):g} Hz" for one in cells(study)}
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return listed([f"{rate} ({plant})" for plant, rate in found.items()])


def _noise(study: str) -> str:
    (level,) = results(study)["noise"].values.tolist()
    return f"with noise of {level:g}" if level else "without noise"
