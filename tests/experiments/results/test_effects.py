"""Effects: intervals equal SciPy's, tests agree with intervals, and closed forms of the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta, binom, bootstrap, false_discovery_control, permutation_test, trim_mean

from replaybench.experiments.effects import (
    Effect,
    assured,
    assured_share,
    flipped,
    holm,
    improvement,
    paired,
    profile,
    profile_band,
    seeds_to_tell,
)
from replaybench.experiments.statistics import Statistic, interquartile_mean, interval

SKEWED = np.random.default_rng(3).exponential(size=40) - 0.7


@pytest.mark.parametrize(
    ("statistic", "by_scipy"),
    [("mean", np.mean), ("interquartile mean", lambda x, axis: trim_mean(x, 0.25, axis=axis))],
)
def test_intervals_are_scipys(statistic: Statistic, by_scipy: Callable[..., Any]) -> None:
    effect = Effect(SKEWED, statistic)
    found = bootstrap((SKEWED,), by_scipy, n_resamples=20_000, method="BCa", rng=np.random.default_rng(1))
    assert effect.interval() == pytest.approx(tuple(found.confidence_interval), abs=0.012)
    assert effect.estimate == pytest.approx(by_scipy(SKEWED, axis=0))


@pytest.mark.parametrize("size", [6, 12])
def test_an_interval_does_not_hang_on_rounding(size: int) -> None:
    """Resamples that hold the same seeds as the sample are ties, however their sums are rounded on a processor."""
    sample = np.random.default_rng(4).integers(100, size=size) / 10
    ends = np.array(Effect(sample).interval())
    for factor in (3.0, 0.7, 1e-3, 1.1e5):
        np.testing.assert_allclose(np.array(Effect(factor * sample).interval()) / factor, ends, rtol=1e-9)


def test_a_p_value_has_a_floor_and_nothing_sure_has_none() -> None:
    assert Effect(SKEWED + 100).chance_below(0.0) == 1 / 10_001
    assert Effect(SKEWED[:9] + 100).chance_below(0.0) == 1 / 512
    for unsure in ([], [1.0], [1.0, 1.0]):
        effect = Effect(np.array(unsure))
        assert effect.interval() == (-np.inf, np.inf)
        assert effect.chance_below(0.0) == effect.chance_above(2.0) == 1.0


def test_seeds_are_paired_and_failed_ones_left_out() -> None:
    common = np.array([0.0, 5.0, 10.0, 20.0])
    effect = paired([common + np.array([1.0, 1.1, 0.9, np.nan])], [common])
    assert effect.n == 3
    low, high = effect.interval()
    assert effect.estimate == pytest.approx(1.0)
    assert 0.9 <= low <= 1.0 <= high <= 1.1
    assert paired([common], [], level=2.0).estimate == pytest.approx(common.mean() - 2.0)
    assert paired([common, common], [common, common]).estimate == 0.0


def test_flipped_signs_are_scipys_permutations_of_pairs() -> None:
    def total(x: np.ndarray, axis: int) -> np.ndarray:
        return np.asarray(x.sum(axis=axis))

    few = SKEWED[:9]
    exact = permutation_test((few,), total, permutation_type="samples", n_resamples=np.inf)
    assert float(flipped(few)) == pytest.approx(exact.pvalue)
    drawn = permutation_test((SKEWED,), total, permutation_type="samples", n_resamples=20_000, rng=1)
    assert float(flipped(SKEWED)) == pytest.approx(drawn.pvalue, abs=0.01)
    assert float(flipped(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))) == 1 / 16
    assert float(flipped(np.empty(0))) == 1
    for sample, flips in ((few, np.inf), (SKEWED, 20_000)):
        one_sided = permutation_test(
            (sample,), total, permutation_type="samples", n_resamples=flips, alternative="greater", rng=1
        )
        assert Effect(sample).chance_below(0.0) == pytest.approx(one_sided.pvalue, abs=1e-12 if sample is few else 0.01)


def test_the_middle_of_differences_is_tested_as_scipy_does() -> None:
    def middle_half(x: np.ndarray, axis: int) -> np.ndarray:
        return np.asarray(trim_mean(x, 0.25, axis=axis))

    few = Effect(SKEWED[:8], "interquartile mean")
    exact = permutation_test((SKEWED[:8],), middle_half, permutation_type="samples", alternative="greater")
    assert few.estimate == pytest.approx(trim_mean(SKEWED[:8], 0.25))
    assert few.chance_below(0.0) == pytest.approx(exact.pvalue)
    many, found = Effect(SKEWED, "interquartile mean"), interval(SKEWED, "interquartile mean")
    assert many.interval() == (found.low, found.high)
    assert many.sd == pytest.approx(np.sqrt(40) * (found.high - found.low) / (2 * 1.96), rel=0.05)


@pytest.mark.parametrize("distance", [1.5, 1.2, 1.0, 0.8])
def test_as_many_seeds_as_are_asked_for_decide_in_four_of_five_studies(distance: float) -> None:
    """With few seeds, too: normal quantiles promised that and kept 0.47 with six seeds, 0.66 with eight."""
    seeds = seeds_to_tell(1.0, distance)
    assert seeds is not None
    studies = np.random.default_rng(8).normal(distance, 1.0, (400, seeds))
    assert np.mean([flipped(study) < 0.05 for study in studies]) > 0.74


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    many = np.random.default_rng(0).random(20) ** 3
    assert (np.array(holm(list(many))) >= false_discovery_control(many) - 1e-12).all()


@pytest.mark.parametrize("value", [500.0, 0.1, 0.0])
def test_a_middle_half_without_spread_has_an_interval(value: float) -> None:
    few = np.array([value] * 7 + [value - 3.0])
    found = interval(few, "interquartile mean")
    assert [found.mean, found.high] == pytest.approx([value, value])
    assert value - 3.0 < found.low < value
    assert interquartile_mean(np.array([0.0, 1.0, 2.0, 3.0, 9.0, np.nan])) == pytest.approx((0.75 + 2 + 2.25) / 2.5)
    assert np.isnan(interval(np.array([np.nan]), "interquartile mean").mean)
    many = np.array([value] * 40 + [value - 3.0])
    assert interval(many, "interquartile mean").degenerate
    assert Effect(many, "interquartile mean").interval() == pytest.approx((value, value))
    assert Effect(many, "interquartile mean").sd == pytest.approx(0.0, abs=1e-9)


def test_improvement_is_symmetric_and_its_interval_holds_it() -> None:
    rng = np.random.default_rng(2)
    one, other = rng.normal(0.3, 1, 30), rng.normal(0, 1, 30)
    here, there = improvement(one, other), improvement(other, one)
    assert here.mean + there.mean == pytest.approx(1)
    assert here.low == pytest.approx(1 - there.high, abs=1e-9)
    assert 0 < here.low < here.mean < here.high < 1
    better = improvement(np.array([1.0, 2.0, 5.0]), np.array([0.0, 2.0, np.nan]))
    assert better.mean == pytest.approx((1 + 0 + 1 + 0.5) / 4)
    assert improvement(np.array([1.0, 2.0]), np.array([0.0, 0.5])).degenerate
    assert np.isnan(improvement(np.array([np.nan]), np.array([1.0])).mean)


def test_how_long_a_run_that_never_rises_went_on_decides_nothing() -> None:
    """The mean of rise times depends on the length of the run; the interquartile mean does not."""
    faster = np.random.default_rng(6).normal(-50.0, 60.0, 49)
    middles = [Effect(np.append(faster, length - 300.0), "interquartile mean") for length in (1000, 3000)]
    assert middles[0].estimate == middles[1].estimate < -20
    assert max(each.chance_above(0.0) for each in middles) < 0.001


def test_profile_is_the_share_above_and_failed_runs_are_below() -> None:
    levels = np.array([-1.0, 0.0, 0.5, 2.0])
    sample = np.array([0.0, 0.4, 0.6, np.nan])
    assert profile(sample, levels) == pytest.approx([0.75, 0.5, 0.25, 0.0])
    low, high = profile_band(sample, levels)
    assert high[0] == pytest.approx(beta.ppf(0.975, 4, 1))
    assert (low[-1], low[0] > 0.1, high[-1] < 0.7) == (0.0, True, True)


def test_tolerance_bounds() -> None:
    rng = np.random.default_rng(5)
    bounds = np.array([assured(sample) for sample in rng.random((2000, 50))])
    expected: dict[int, float] = {rank: binom.sf(rank - 1, 50, 0.1) for rank in range(5)}
    rank = max(rank for rank, chance in expected.items() if chance >= 0.95 and rank)
    assert (bounds <= 0.1).mean() == pytest.approx(expected[rank], abs=0.015)
    assert assured(rng.random(20)) == -np.inf
    assert 1 - assured_share(29) ** 29 == pytest.approx(0.95)
    assert assured_share(0) == 0
