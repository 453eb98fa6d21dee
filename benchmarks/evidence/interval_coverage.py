"""Do intervals and tests of few runs hold what they say? Drawn scores of which the truth is known, many thousand times.

`python benchmarks/evidence/interval_coverage.py` stores `results/coverage.json`, from which the tables on the page of
statistics are made; it takes five minutes of a core.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
from scipy.special import ndtr, ndtri

from replaybench.experiments.effects import assured, assured_share, flipped, improvements, surpassed
from replaybench.experiments.statistics import Statistic, bootstrap, weights
from replaybench.runtime.provenance import this_code

STORED: Final = Path(__file__).resolve().parents[1] / "results" / "coverage.json"
SIZES: Final = (5, 10, 25, 50)
JUDGED: Final = (8, 16, 50)
REPETITIONS: Final = 1000
_CHUNK: Final = 250
_SHARED: Final = 0.5
"""Correlation, of what lies behind two strategies' scores, that comes of sharing seeds."""

Floats = np.ndarray
Quantile = Callable[[Floats], Floats]


def _dead_seeds(chance: Floats) -> Floats:
    """15 % of runs end near 0, the others near 0.9."""
    dead = chance < 0.15
    return np.where(dead, 0.05 * ndtri(np.clip(chance / 0.15, 1e-9, 1 - 1e-9)), 0.0) + np.where(
        dead, 0.0, 0.9 + 0.04 * ndtri(np.clip((chance - 0.15) / 0.85, 1e-9, 1 - 1e-9))
    )


def _skewed(chance: Floats) -> Floats:
    """A tail towards bad runs: 1 minus a lognormal variate."""
    return 1.0 - np.exp(-2.0 + 0.9 * ndtri(1.0 - chance))


def _bounded(chance: Floats) -> Floats:
    """Most runs near the best possible, 1: Kumaraswamy's distribution with 6 and 0.8."""
    return (1.0 - (1.0 - chance) ** (1 / 0.8)) ** (1 / 6)


def _normal(chance: Floats) -> Floats:
    """What textbooks have in mind."""
    return 0.8 + 0.1 * ndtri(chance)


SCORES: Final[dict[str, Quantile]] = {
    "normal": _normal,
    "skewed": _skewed,
    "bounded": _bounded,
    "dead seeds": _dead_seeds,
}
"""What scores of learners look like, by their quantile functions."""


def chunks(size: int, repetitions: int, seed: int) -> Iterator[tuple[Floats, Floats]]:
    """Yield pairs of samples of chances `[R, size]`, correlated as strategies are that share their seeds."""
    rng = np.random.Generator(np.random.PCG64([seed, size]))
    for begin in range(0, repetitions, _CHUNK):
        shape = min(_CHUNK, repetitions - begin), size
        shared, one, other = (rng.standard_normal(shape) for _ in range(3))
        yield (
            ndtr(np.sqrt(_SHARED) * shared + np.sqrt(1 - _SHARED) * one),
            ndtr(np.sqrt(_SHARED) * shared + np.sqrt(1 - _SHARED) * other),
        )


def truth(quantile: Quantile, statistic: Statistic) -> float:
    """Return the statistic of the whole distribution."""
    low, high = (0.25, 0.75) if statistic == "interquartile mean" else (0.0, 1.0)
    return float(quantile(low + (high - low) * (np.arange(2_000_000) + 0.5) / 2_000_000).mean())


def covered(samples: Floats, true: float, statistic: Statistic) -> Floats:
    """Return which 95 % intervals hold the truth; a sample without spread has an interval of one point."""
    spread = np.ptp(samples, axis=-1) > 0
    low, high = bootstrap(samples[spread], statistic).interval()
    return np.concatenate([(low <= true) & (true <= high), np.zeros(int((~spread).sum()), bool)])


def simulate(quantile: Quantile, size: int, repetitions: int, seed: int = 14) -> dict[str, float]:
    """Return in which share of samples of `size` runs each interval, bound or test is right or, named so, wrong."""
    mean, middle = (truth(quantile, statistic) for statistic in ("mean", "interquartile mean"))
    step = 0.5 * float(np.std(quantile((np.arange(200_000) + 0.5) / 200_000)))
    found: dict[str, list[Floats]] = {}
    for chances, others in chunks(size, repetitions, seed):
        one, other = quantile(chances), quantile(others)
        better = (np.sign(one[:, :, None] - other[:, None, :]) + 1) / 2
        bounds = np.array([assured(sample) for sample in one])
        here = {
            "mean": covered(one, mean, "mean"),
            "interquartile mean": covered(one, middle, "interquartile mean"),
            "paired difference": covered(one - other, 0.0, "mean"),
            "improvement": _improvement(better[: _CHUNK // 5]),
            "worst run": _share_above(quantile, one.min(axis=1)) >= assured_share(size),
            "interquartile mean holds the mean": covered(one, mean, "interquartile mean"),
            "flipped signs, wrongly": flipped(one - other) < 0.05,
            "flipped signs, rightly": flipped(one + step - other) < 0.05,
        }
        beyond = one - _normal(others) - (mean - truth(_normal, "mean"))
        here["surpassed, wrongly"], here["fallen short of, wrongly"] = (
            surpassed(beyond) < 0.05,
            surpassed(-beyond) < 0.05,
        )
        if np.isfinite(bounds).all():
            here["90 % reach"] = _share_above(quantile, bounds) >= 0.9
        (low, high), (other_low, other_high) = bootstrap(one).interval(), bootstrap(other).interval()
        for shift, name in ((0.0, "apart, wrongly"), (step, "apart, rightly")):
            here[name] = (low + shift > other_high) | (other_low > high + shift)
        for name, values in here.items():
            found.setdefault(name, []).append(values)
    return {name: float(np.concatenate(values).mean()) for name, values in found.items()}


def _improvement(better: Floats) -> Floats:
    low, high = np.quantile(improvements(better), [0.025, 0.975], axis=-1)
    return (low <= 0.5) & (high >= 0.5)


def _share_above(quantile: Quantile, levels: Floats) -> Floats:
    """Return which share of all runs end above each level."""
    grid = (np.arange(200_000) + 0.5) / 200_000
    return 1.0 - np.searchsorted(quantile(grid), levels) / grid.size


def _rarely_collapsed(chance: Floats) -> Floats:
    """2 % of runs end near 0, the others near 0.9."""
    collapsed = chance < 0.02
    typical = _steady(np.where(collapsed, 0.5, (chance - 0.02) / 0.98))
    return np.where(collapsed, 0.05 * ndtri(np.clip(chance / 0.02, 1e-9, 1 - 1e-9)), typical)


def _steady(chance: Floats) -> Floats:
    """Runs that end near 0.9."""
    return 0.9 + 0.04 * ndtri(np.clip(chance, 1e-9, 1 - 1e-9))


CONTRASTS: Final[dict[str, tuple[Quantile, Quantile]]] = {
    "normal − normal": (_normal, _normal),
    "skewed − normal": (_skewed, _normal),
    "skewed − skewed": (_skewed, _skewed),
    "2 % collapse − none": (_rarely_collapsed, _steady),
    "2 % collapse − 2 % collapse": (_rarely_collapsed, _rarely_collapsed),
}
"""Two strategies' scores of which differences are judged."""


def verdicts(one: Quantile, other: Quantile, size: int, repetitions: int, seed: int = 40) -> dict[str, float]:
    """Return how often a claim's test and interval are wrong together about so many seeds, and how often they decide.

    Wrong is to call an effect more, or less, than it truly is: every false verdict calls an effect more than zero, or
    less than the smallest effect of interest, where it is just that. Decided are claims of more whose true effect is
    one standard deviation of a typical difference, and twice the smallest effect of interest.
    """
    ((many, others),) = chunks(1_000_000, 1, seed)
    population = (one(many) - other(others))[0]
    quarters = np.quantile(population, [0.25, 0.75])
    middle = population[(population >= quarters[0]) & (population <= quarters[1])].mean()
    true: dict[Statistic, float] = {"interquartile mean": float(middle), "mean": float(population.mean())}
    step = float(np.ptp(quarters)) / 1.349
    found: dict[str, list[Floats]] = {}
    for chances, other_chances in chunks(size, repetitions, seed):
        differences = one(chances) - other(other_chances)
        for statistic, truth_of in true.items():
            beyond = differences - truth_of
            low, high = bootstrap(beyond, statistic).interval()
            found.setdefault(f"{statistic}: more, wrongly", []).append((_each(beyond, statistic) < 0.05) & (low > 0))
            found.setdefault(f"{statistic}: less, wrongly", []).append((_each(-beyond, statistic) < 0.05) & (high < 0))
            decided = (_each(beyond + step, statistic) < 0.05) & (low + step > 0)
            for each in ("mean", statistic):
                decided &= _estimates(beyond + step, each) >= step / 2
            found.setdefault(f"{statistic}: decided", []).append(decided)
    return {name: float(np.concatenate(values).mean()) for name, values in found.items()}


def _each(differences: Floats, statistic: Statistic) -> Floats:
    """Return the p value of each sample `[R, n]`: all flips of all samples would take gigabytes."""
    return np.array([float(surpassed(sample, statistic)) for sample in differences])


def _estimates(samples: Floats, statistic: Statistic) -> Floats:
    estimates: Floats = np.sort(samples, axis=-1) @ weights(samples.shape[-1], statistic)
    return estimates


def main() -> None:
    began = time.process_time()
    judged = [
        {"scores": name, "runs": size, **verdicts(*both, size, REPETITIONS // 2)}
        for name, both in CONTRASTS.items()
        for size in JUDGED
    ]
    rows = [
        {"scores": name, "runs": size, **simulate(quantile, size, REPETITIONS)}
        for name, quantile in SCORES.items()
        for size in SIZES
    ]
    code = this_code()
    told = {
        "command": "python benchmarks/evidence/interval_coverage.py",
        "commit": code.commit,
        "repetitions": REPETITIONS,
        "shared": _SHARED,
        "core_seconds": round(time.process_time() - began, 1),
        "rows": rows,
        "verdicts": judged,
    }
    STORED.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(f"{STORED}: {told['core_seconds']} s")


if __name__ == "__main__":
    main()
