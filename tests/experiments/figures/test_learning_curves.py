"""Learning curves: means of the runs, and captions, views and legends that match what is drawn."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_studies import DP, RANDOM, USABLE, caption, line, plant_results

from replaybench.reports.figures.curves import learning_curve, moving_mean, smoothing_window
from replaybench.reports.figures.learning_curves import learning_curves

STRATEGIES = ("FIFO[Uniform]", "FULL[PER]")


def test_all_known_references_are_lines_in_view(tmp_path: Path) -> None:
    data = plant_results(tmp_path, reference=dataclasses.replace(USABLE, dp_averaged=-30.0, dp_observer=-25.0))
    (axes,) = learning_curves(data).axes
    levels = [float(np.asarray(line.get_ydata())[0]) for line in axes.lines if len(np.asarray(line.get_xdata())) == 2]
    for reward in (-30.0, -25.0):
        assert any(level == pytest.approx((reward - RANDOM) / (DP - RANDOM)) for level in levels)
    older = data.drop_vars(["reference_dp_averaged", "reference_dp_observer"])
    assert len(learning_curves(older).axes[0].lines) == len(axes.lines) - 2


def test_references_of_the_legend_are_drawn_or_written_in_every_panel(tmp_path: Path) -> None:
    """Panels share a range; a level that one shows and another cannot is written into the other."""
    data = plant_results(tmp_path, reference=dataclasses.replace(USABLE, dp_averaged=-5.0), noise=(0.0, 0.05))
    data["reference_dp_averaged"].loc[{"noise": 0.05}] = 10.0
    for axes, level in zip(learning_curves(data).axes, (1 + 15 / 140, 1 + 30 / 140), strict=True):
        assert axes.get_ylim()[1] > level
        assert level in [pytest.approx(float(np.asarray(line.get_ydata())[0])) for line in axes.lines]
    for name, level in (("zero", -5.0), ("lqr", -6.0)):
        data[f"reference_{name}"].loc[{"noise": 0.0}] = RANDOM
        data[f"reference_{name}"].loc[{"noise": 0.05}] = RANDOM + level * (DP - RANDOM)
    left, right = learning_curves(data).axes
    assert not left.texts
    assert [text.get_text() for text in right.texts] == ["below: linear-quadratic regulator: −6\ndoing nothing: −5"]


def test_points_that_were_not_run_have_no_axes(tmp_path: Path) -> None:
    data = plant_results(tmp_path, noise=(0.0, 0.05), frequency=(50.0, 100.0), missing=(0, 3, 4, 7))
    panels = learning_curves(data).axes
    empty = [axes for axes in panels if not axes.lines]
    assert [[text.get_text() for text in axes.texts] for axes in empty] == [["no results"]] * 2
    assert not any(axes.axison for axes in empty)
    assert all(axes.get_xlabel() and axes.get_ylabel() for axes in panels if axes.lines)


def test_series_take_turns_with_their_greedy_episodes(tmp_path: Path) -> None:
    figure = learning_curves(plant_results(tmp_path, episodes=300, greedy_every=5))
    episodes = [line(figure.axes[0], f"greedy {name}")[0] for name in STRATEGIES]
    assert [len(each) for each in episodes] == [20, 20]
    assert not set(episodes[0]) & set(episodes[1])
    assert "one in 3 of each series, in turns" in caption(figure)
    few = learning_curves(plant_results(tmp_path / "few", episodes=100, greedy_every=5))
    assert "one in" not in caption(few)


def test_many_series_have_intervals_right_of_the_curves_instead_of_bands(tmp_path: Path) -> None:
    strategies = tuple(f"FIFO[PER({index / 10})]" for index in range(1, 7))
    data = plant_results(tmp_path, strategies=strategies, episodes=240, noise=(0.0, 0.05))
    figure = learning_curves(data)
    assert "the last 5 episodes, with 95 % bootstrap intervals over runs" in caption(figure)
    assert not {"band", "circles"} & set(caption(figure).split())
    for axes in figure.axes:
        assert not axes.collections, "no bands"
        ends = [line(axes, f"end {name}") for name in strategies]
        x = np.array([place[0, 0] for place in ends])
        assert (np.diff(x) > 0).all(), "in the order of the legend"
        assert max(axes.get_xticks()) <= 240 < x[0] < x[-1] < axes.get_xlim()[1]
        for name, (_, mean) in zip(strategies, ends, strict=True):
            low, high = line(axes, f"interval {name}")[1]
            assert mean[0] == pytest.approx(line(axes, name)[1][-1])
            assert low < mean[0] < high
    few = learning_curves(data.isel(strategy=slice(5)))
    assert "band" in caption(few)
    assert few.axes[0].collections


def test_episodes_are_counted_in_whole_numbers(tmp_path: Path) -> None:
    (axes,) = learning_curves(plant_results(tmp_path, episodes=3, greedy_every=1)).axes
    assert list(axes.get_xticks()) == [0, 1, 2, 3]


def test_curves_are_the_means_of_the_runs(tmp_path: Path) -> None:
    data = plant_results(tmp_path, episodes=240, greedy_every=20, failing=(1,), noise=(0.0, 0.05))
    figure = learning_curves(data)
    window = smoothing_window(240)
    assert window == 5
    assert f"moving average over {window} episodes" in caption(figure)
    for axes, noise in zip(figure.axes, (0.0, 0.05), strict=True):
        assert axes.get_title() == f"noise {noise:g}, 50 Hz"
        for strategy in STRATEGIES:
            runs = data.sel(learner="DDPG", strategy=strategy, noise=noise, frequency=50.0)
            rewards, greedy = ((runs[name].values - RANDOM) / (DP - RANDOM) for name in ("reward", "reward_greedy"))
            whole = np.isfinite(rewards).all(axis=1)
            assert whole.sum() == (2 if (noise, strategy) == (0.05, "FIFO[Uniform]") else 4)
            windows = np.lib.stride_tricks.sliding_window_view(rewards[whole].mean(axis=0), window)
            episode, mean = line(axes, strategy)
            np.testing.assert_array_equal(episode, np.arange(3, 239))
            np.testing.assert_allclose(mean, windows.mean(axis=1), rtol=1e-12)
            episode, mean = line(axes, f"greedy {strategy}")
            np.testing.assert_array_equal(episode, data["greedy_episode"].values)
            np.testing.assert_allclose(mean, greedy[whole].mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize("worse", [False, True])
def test_failed_runs_are_counted_where_no_curve_is_covered(tmp_path: Path, worse: bool) -> None:
    data = plant_results(tmp_path, failing=(1,))
    if worse:  # curves end in the lower corner
        data["reward"][:] = data["reward"].values[..., ::-1]
    figure: Any = learning_curves(data)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    note = axes.get_legend().get_title()
    assert "2 of 4 FULL[PER]" in note.get_text()
    points = axes.transData.transform(line(axes, "FIFO[Uniform]").T)
    assert not any(note.get_window_extent().contains(*point) for point in points)


def test_bands_cover_the_true_mean_as_often_as_promised() -> None:
    """95 % nominal; a percentile bootstrap of 30 runs covers about 93 %. 1000 independent episodes: sd 0.8 %."""
    rng = np.random.Generator(np.random.PCG64(3))
    band = learning_curve(rng.normal(0.0, 1.0, (30, 600)), 1).band
    assert band is not None
    low, high = band
    assert 0.89 < ((low < 0) & (high > 0)).mean() < 0.97
    assert learning_curve(np.zeros((1, 5)), 1).band is None


def test_long_runs_are_drawn_with_fewer_points() -> None:
    rewards = np.random.Generator(np.random.PCG64(4)).normal(0.0, 1.0, (2, 3000))
    curve = learning_curve(rewards, smoothing_window(3000))
    assert len(curve.episode) < 1000
    for episode, mean in zip(curve.episode.astype(int), curve.mean, strict=True):
        np.testing.assert_allclose(mean, rewards[:, episode - 13 : episode + 12].mean(), atol=1e-12)


def test_moving_means_are_of_whole_windows_and_exact_after_a_huge_reward() -> None:
    np.testing.assert_allclose(moving_mean(np.array([[1.0, 2.0, 6.0, 1.0]]), 3), [[3.0, 3.0]])
    assert moving_mean(np.array([-1e18, -1.0, -3.0, -5.0]), 2)[1:].tolist() == [-2.0, -4.0]


def test_the_depth_of_a_curve_below_the_view_is_written(tmp_path: Path) -> None:
    data = plant_results(tmp_path)
    assert not any("down to" in text.get_text() for text in learning_curves(data).axes[0].texts)
    data["reward"][..., 8:12] -= 300.0
    (axes,) = learning_curves(data).axes
    (cut,) = [text.get_text() for text in axes.texts if "down to" in text.get_text()]
    drawn = [np.asarray(one.get_ydata(), np.float64) for one in axes.lines]
    assert cut == f"↓ down to −{-min(values.min() for values in drawn if len(values) > 5):.1f}"
