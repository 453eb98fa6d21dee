"""Scores, intervals, effects and advantages."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta, binom, binomtest, bootstrap, false_discovery_control, permutation_test, trim_mean

from benchmarks.evidence.interval_coverage import CONTRASTS, SCORES, simulate, verdicts
from replaybench.evidence.preset import read_preset
from replaybench.experiments import effects
from replaybench.experiments.advantage import advantage, advantages, by_capacity
from replaybench.experiments.effects import (
    Effect,
    finely_surpassed,
    flipped,
    holm,
    improvement,
    least_p,
    paired,
    surpassed_without_each,
)
from replaybench.experiments.statistics import Statistic, interquartile_mean, interval, score
from replaybench.experiments.study import Cell
from replaybench.reports.figures.maps import advantage_map
from tests.helpers.cells import small_study
from tests.helpers.drawn_studies import USABLE, stored
from tests.helpers.tiers import slow


def test_scores_of_hand_made_curves() -> None:
    rising = np.r_[np.linspace(0, 0.9, 10), np.full(190, 1.0)]
    flat = np.full(200, 0.1)
    broken = rising.copy()
    broken[50] = np.nan
    unknown = np.full(200, np.nan)  # without a usable reference it is neither dead nor failed
    scores = score(np.stack([rising, flat, broken, unknown]), failed=np.array([False, False, True, False]))
    np.testing.assert_allclose(scores.final, [1.0, 0.1, np.nan, np.nan])
    np.testing.assert_allclose(scores.best, [1.0, 0.1, np.nan, np.nan])
    np.testing.assert_array_equal(scores.rise, [9.0, 200.0, np.nan, np.nan])
    assert scores.dead.tolist() == scores.censored.tolist() == [False, True, False, False]


def test_the_final_score_is_the_mean_of_the_last_episodes() -> None:
    stepped = np.r_[np.full(100, 0.0), np.full(50, 0.4), np.full(50, 1.0)][None]
    assert score(stepped, failed=np.array([False])).final == [0.7]
    assert score(stepped, np.array([False]), final=25).final == [1.0]


def test_intervals_are_scipys() -> None:
    sample = np.append(np.random.Generator(np.random.PCG64(1)).exponential(size=30), np.nan)
    rng = np.random.Generator(np.random.PCG64(0))
    expected = bootstrap((sample[:30],), np.mean, n_resamples=10_000, method="BCa", rng=rng).confidence_interval
    found = interval(sample)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-9)
    assert not found.degenerate
    assert str(found) == f"{sample[:30].mean():.2f} [{found.low:.2f}, {found.high:.2f}]"


def test_samples_without_spread_are_labelled() -> None:
    for sample, text in (([1.0], "no spread"), ([0.3] * 5, "no spread"), ([1.0, np.nan], "no spread"), ([np.nan], "–")):
        found = interval(np.array(sample))
        assert found.degenerate
        np.testing.assert_array_equal([found.low, found.high], found.mean)
        assert text in str(found)
    assert not interval(np.array([1.0, 2.0])).degenerate


SKEWED = np.random.default_rng(3).exponential(size=40) - 0.7
FEW = SKEWED[:8]
pairs_flipped = functools.partial(permutation_test, permutation_type="samples", rng=1)


@pytest.mark.parametrize(
    ("statistic", "by_scipy"),
    [("mean", np.mean), ("interquartile mean", lambda x, axis: trim_mean(x, 0.25, axis=axis))],
)
def test_effects_are_scipys(statistic: Statistic, by_scipy: Callable[..., Any]) -> None:
    effect, few = Effect(SKEWED, statistic), Effect(FEW, statistic)
    found = bootstrap((SKEWED,), by_scipy, n_resamples=20_000, method="BCa", rng=np.random.default_rng(1))
    low, high = effect.interval()
    assert (low, high) == (interval(SKEWED, statistic).low, interval(SKEWED, statistic).high)
    assert (low, high) == pytest.approx(tuple(found.confidence_interval), abs=0.012)
    assert effect.estimate == pytest.approx(by_scipy(SKEWED, axis=0))
    assert effect.sd == pytest.approx(np.sqrt(40) * (high - low) / (2 * 1.96), rel=0.05)
    exact = pairs_flipped((FEW,), by_scipy, n_resamples=np.inf, alternative="greater")
    assert few.chance_below(0.0) == pytest.approx(exact.pvalue, abs=1e-12)
    drawn = pairs_flipped((SKEWED,), by_scipy, n_resamples=20_000, alternative="greater")
    assert effect.chance_below(0.0) == pytest.approx(drawn.pvalue, abs=0.01)


@pytest.mark.parametrize("size", [6, 12])
def test_an_interval_does_not_hang_on_rounding(size: int) -> None:
    """Resamples that hold the same seeds as the sample are ties, however their sums are rounded on a processor."""
    sample = np.random.default_rng(4).integers(100, size=size) / 10
    ends = np.array(Effect(sample).interval())
    for factor in (3.0, 0.7, 1e-3, 1.1e5):
        np.testing.assert_allclose(np.array(Effect(factor * sample).interval()) / factor, ends, rtol=1e-9)


def test_p_values_of_few_seeds_have_a_floor_and_nothing_sure_has_none() -> None:
    assert Effect(SKEWED + 100).chance_below(0.0) == pytest.approx(2.0**-40)
    assert Effect(SKEWED + 100, "interquartile mean").chance_below(0.0) == least_p(40, "interquartile mean")
    assert least_p(40, "interquartile mean") == 1 / 100_001
    assert Effect(FEW + 100, "interquartile mean").chance_below(0.0) == least_p(8, "interquartile mean") == 4 / 256
    assert Effect(FEW + 100).chance_below(0.0) == least_p(8, "mean") == 1 / 256
    for unsure in ([], [1.0], [1.0, 1.0]):
        effect = Effect(np.array(unsure))
        assert effect.interval() == (-np.inf, np.inf)
        assert effect.chance_below(0.0) == effect.chance_above(2.0) == 1.0


@pytest.mark.parametrize("mean", [0.1, 0.5, 0.9])
def test_small_p_values_are_those_of_all_sign_patterns(mean: float) -> None:
    """With collapsed runs, too. Of 2¹⁶ patterns, the fewest that count here are 3."""
    rng = np.random.default_rng(3)
    sample = np.append(rng.normal(mean, 0.5, 14), [2.0, 2.1])
    patterns = 1.0 - 2 * (np.arange(2**16)[:, None] >> np.arange(16) & 1)
    expected = (patterns @ sample >= sample.sum() - 1e-9).mean()
    assert finely_surpassed(sample) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("seeds", [10, 14, 15, 40])
def test_tests_without_each_seed_are_those_of_the_rest(seeds: int) -> None:
    sample = np.append(np.random.default_rng(3).normal(0.3, 0.5, seeds - 2), [2.0, 2.0])
    rest = [finely_surpassed(np.delete(sample, at)) for at in range(seeds)]
    np.testing.assert_allclose(surpassed_without_each(sample), rest, rtol=0.03)


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
    assert float(flipped(FEW)) == pytest.approx(pairs_flipped((FEW,), np.sum, n_resamples=np.inf).pvalue)
    drawn = pairs_flipped((SKEWED,), np.sum, n_resamples=20_000)
    assert float(flipped(SKEWED)) == pytest.approx(drawn.pvalue, abs=0.01)
    assert float(flipped(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))) == 1 / 16
    assert float(flipped(np.empty(0))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("distance", [1.5, 1.2, 1.0, 0.8])
def test_as_many_seeds_as_are_asked_for_decide_in_four_of_five_studies(distance: float) -> None:
    """With few seeds, too: normal quantiles promised that and kept 0.47 with six seeds, 0.66 with eight."""
    seeds = effects.seeds_to_tell(1.0, distance)
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
    assert effects.profile(sample, levels) == pytest.approx([0.75, 0.5, 0.25, 0.0])
    low, high = effects.profile_band(sample, levels)
    assert high[0] == pytest.approx(beta.ppf(0.975, 4, 1))
    assert (low[-1], low[0] > 0.1, high[-1] < 0.7) == (0.0, True, True)


def test_tolerance_bounds() -> None:
    rng = np.random.default_rng(5)
    bounds = np.array([effects.assured(sample) for sample in rng.random((2000, 50))])
    expected: dict[int, float] = {rank: binom.sf(rank - 1, 50, 0.1) for rank in range(5)}
    rank = max(rank for rank, chance in expected.items() if chance >= 0.95 and rank)
    assert (bounds <= 0.1).mean() == pytest.approx(expected[rank], abs=0.015)
    assert effects.assured(rng.random(20)) == -np.inf
    assert 1 - effects.assured_share(29) ** 29 == pytest.approx(0.95)
    assert effects.assured_share(0) == 0


NAMES = ["FIFO[Uniform]", "FULL[Uniform]", *(f"Resv[PER(0.{i})]" for i in range(1, 10)), "FULL[PER]"]


def test_the_best_of_twelve_equal_strategies_is_not_better() -> None:
    rng = np.random.Generator(np.random.PCG64(4))
    found = [advantage({name: rng.normal(0.8, 0.1, 10) for name in NAMES}, NAMES[0]) for _ in range(200)]
    sizes = np.mean([(each.size, each.loss) for each in found if each], axis=0)
    assert sizes == pytest.approx([0.0, 0.0], abs=0.01)  # the naive maximum would be 0.07 ahead
    assert sum(each.certain + each.harmful for each in found if each) <= 8


def test_significant_differences_are_found() -> None:
    rng = np.random.Generator(np.random.PCG64(4))
    scores = {name: rng.normal(0.6, 0.02, 12) for name in NAMES}
    scores["FULL[PER]"] += 0.2
    scores["Resv[PER(0.3)]"] -= 0.3
    found = advantage(scores, NAMES[0])
    assert found is not None
    assert (found.best, found.worst, found.certain, found.harmful) == ("FULL[PER]", "Resv[PER(0.3)]", True, True)
    assert (found.size, found.loss) == pytest.approx((0.2, -0.3), abs=0.03)
    small = advantage(scores | {"FULL[PER]": scores["FULL[PER]"] - 0.17}, NAMES[0])
    assert small is not None
    assert (small.certain, small.harmful) == (False, True), "0.03 is below the smallest effect of interest"
    assert advantage({name: sample[:3] for name, sample in scores.items()}, NAMES[0]) is None


def test_strategies_are_grouped_by_capacity() -> None:
    groups = by_capacity(["FULL[PER]", "FIFO(500)[Uniform]", "FIFO(9000)[Uniform]", "TDE(capacity=500)[PER]"])
    assert groups == {
        500: {"FULL[PER]": "FULL[PER]", "FIFO[Uniform]": "FIFO(500)[Uniform]", "TDE[PER]": "TDE(capacity=500)[PER]"},
        9000: {"FULL[PER]": "FULL[PER]", "FIFO[Uniform]": "FIFO(9000)[Uniform]"},
    }
    unknown = ["FIFO[Uniform]", "FIFO[Elsewhere]", "FIFO[evil.py:Foo]"]
    assert by_capacity(unknown) == {None: {"FIFO[Uniform]": "FIFO[Uniform]"}}


@pytest.mark.parametrize("scale", ["quick", *slow(["standard", "paper"])])
def test_the_map_has_twelve_strategies_everywhere(scale: str) -> None:
    preset = read_preset("when/map")
    study = preset.study(scale)  # type: ignore[arg-type]
    groups = by_capacity([*study.strategies])
    assert all(len(named) == 12 for named in groups.values())
    assert len(groups) >= 2
    assert {cell.settings["replays_per_experience"] for cell in study.cells()} >= {8.0}


def test_the_map_frames_significant_advantages(tmp_path: Path) -> None:
    strategies = ("FULL[Uniform]", "FULL[PER]", "FIFO(500)[Uniform]", "Resv(500)[Uniform]")
    study = small_study(strategies=strategies, seeds=12, episodes=20, frequency=(50, 100), noise=(0.0, 0.02))
    rng = np.random.Generator(np.random.PCG64(7))

    def rewards(cell: Cell) -> np.ndarray:
        return rng.normal(-50.0, 1.0, (12, 20)) + 20.0 * (cell.strategy == "FULL[PER]" and cell.frequency == 100)

    reference = dataclasses.replace(USABLE, random=-100.0, zero=-90.0, dp=0.0, dp_mean=0.0)
    data = stored(tmp_path, study, rewards, reference).sel(plant="PendulumDCSC")
    found = advantages(data, "FIFO[Uniform]")
    certain = {place[2:]: one.certain for place, one in found.items()}
    assert certain == {(noise, rate): rate == 100 for noise in (0.0, 0.02) for rate in (50.0, 100.0)}
    figure = advantage_map(data)
    assert figure is not None
    first = figure.axes[0]
    assert (first.get_title(), len(first.patches)) == ("C = 500", 2)
    assert sum(text.get_text().endswith("FULL[PER]") for text in first.texts) >= 2
    assert advantage_map(data.sel(noise=[0.0])) is None
    data["reference_dp"].loc[{"frequency": 100}] = np.nan
    assert {place[3] for place in advantages(data, "FIFO[Uniform]")} == {50.0}, "rewards are no μ_r"


@pytest.mark.slow
@pytest.mark.parametrize(("scores", "least"), [("normal", 0.90), ("skewed", 0.80), ("dead seeds", 0.83)])
def test_intervals_of_25_runs_hold_the_truth_about_as_often_as_they_say(scores: str, least: float) -> None:
    found = simulate(SCORES[scores], 25, 500, seed=3)
    for name in ("mean", "interquartile mean", "paired difference"):
        assert least <= found[name] <= 0.985, name
    assert 0.93 <= found["worst run"] <= 0.975
    assert 0.03 <= found["flipped signs, wrongly"] <= 0.07
    assert found["apart, wrongly"] < 0.04  # two intervals apart are a far stricter test than it seems
    assert found["apart, rightly"] < found["flipped signs, rightly"] - 0.2


@pytest.mark.slow
def test_verdicts_by_interquartile_means_are_seldom_wrong_where_runs_rarely_collapse() -> None:
    """A learner that collapses in 2 % of its runs was called better than it is, by means, in a third of studies."""
    found = verdicts(*CONTRASTS["2 % collapse − none"], 16, 300)
    wrong = {
        way: max(found[f"{way}: {side}, wrongly"] for side in ("more", "less"))
        for way in ("mean", "interquartile mean")
    }
    assert wrong["interquartile mean"] < 0.06
    assert wrong["mean"] > 0.2
    assert found["interquartile mean: decided"] > 0.6


def test_five_runs_with_dead_seeds_are_too_few() -> None:
    found = simulate(SCORES["dead seeds"], 5, 250, seed=3)
    assert found["mean"] < 0.7
    assert "90 % reach" not in found


def test_the_exact_test_of_whole_numbers_is_mcnemars_and_counts_all_signs() -> None:
    for fewer, more in ((1, 14), (3, 3), (0, 5)):
        differences = np.repeat([-1.0, 1.0, 0.0], [fewer, more, 30])
        expected = binomtest(fewer, fewer + more).pvalue
        assert effects.exactly_flipped(differences) == pytest.approx(expected)
    whole = np.array([2.0, -1.0, 1.0, 2.0, 0.0, 1.0])
    assert effects.exactly_flipped(whole) == pytest.approx(float(effects.flipped(whole)))
    assert effects.exactly_flipped(np.empty(0)) == 1.0
