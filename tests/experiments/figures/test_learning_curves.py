"""Learning curves: they are the means of the runs, and captions, views and legends say what is drawn."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_studies import DP, RANDOM, USABLE, line, results, told

from replaybench.experiments.figures.curves import learning_curve, moving_mean, smoothing_window
from replaybench.experiments.figures.learning_curves import learning_curves


def test_references_that_know_the_noise_are_lines_in_view(tmp_path: Path) -> None:
    better = dataclasses.replace(USABLE, dp_averaged=-30.0, dp_observer=-25.0)
    data, _, _ = results(tmp_path, reference=better)
    (axes,) = learning_curves(data.sel(plant="PendulumDCSC")).axes
    levels = [float(np.asarray(line.get_ydata())[0]) for line in axes.lines if len(np.asarray(line.get_xdata())) == 2]
    span = DP - RANDOM
    assert {round((reward - RANDOM) / span, 6) for reward in (-30.0, -25.0)} <= {round(level, 6) for level in levels}
    older = data.drop_vars(["reference_dp_averaged", "reference_dp_observer"])
    assert len(learning_curves(older.sel(plant="PendulumDCSC")).axes[0].lines) == len(axes.lines) - 2


def test_references_of_the_legend_are_in_view_or_told(tmp_path: Path) -> None:
    """Panels share a view; what one shows and the other cannot is written into the other."""
    data, _, _ = results(tmp_path, reference=dataclasses.replace(USABLE, dp_averaged=-5.0), noise=(0.0, 0.05))
    here = data.sel(plant="PendulumDCSC")
    here["reference_dp_averaged"].loc[{"noise": 0.05}] = 10.0
    near = learning_curves(here)
    for axes, level in zip(near.axes, (1 + 15 / 140, 1 + 30 / 140), strict=True):
        assert axes.get_ylim()[1] > level, "the axis holds the line"
        assert level in [pytest.approx(float(np.asarray(line.get_ydata())[0])) for line in axes.lines]
    for name, level in (("zero", -5.0), ("lqr", -6.0)):
        here[f"reference_{name}"].loc[{"noise": 0.0}] = RANDOM
        here[f"reference_{name}"].loc[{"noise": 0.05}] = RANDOM + level * (DP - RANDOM)
    left, right = learning_curves(here).axes
    assert not left.texts
    told = "below: linear-quadratic regulator: −6\ndoing nothing: −5"
    assert [text.get_text() for text in right.texts] == [told]


def test_points_that_were_not_run_have_no_axes(tmp_path: Path) -> None:
    data, _, _ = results(tmp_path, noise=(0.0, 0.05), frequency=(50.0, 100.0), missing=(0, 3, 4, 7))
    assert data["reward"].notnull().any(["strategy", "seed", "episode"]).values.sum() == 2
    panels = learning_curves(data.sel(plant="PendulumDCSC")).axes
    empty = [axes for axes in panels if not axes.lines]
    assert [[text.get_text() for text in axes.texts] for axes in empty] == [["no results"]] * 2
    assert not any(axes.axison for axes in empty)
    assert all(axes.get_xlabel() and axes.get_ylabel() for axes in panels if axes.lines)


def test_the_caption_tells_which_greedy_episodes_are_drawn(tmp_path: Path) -> None:
    data, _, _ = results(tmp_path, episodes=300, greedy_every=5)
    figure = learning_curves(data.sel(plant="PendulumDCSC"))
    (axes,) = figure.axes
    episodes = [line(axes, f"greedy {name}")[0] for name in ("FIFO[Uniform]", "FULL[PER]")]
    assert [len(each) for each in episodes] == [20, 20]
    assert not set(episodes[0]) & set(episodes[1])
    assert "greedy episodes, one in 3 of each series, in turns, mean over runs" in told(figure)
    data, _, _ = results(tmp_path / "few", episodes=100, greedy_every=5)
    assert told(learning_curves(data.sel(plant="PendulumDCSC"))).endswith("greedy episodes, mean over runs.")


def test_many_series_have_intervals_beside_their_curves_instead_of_bands(tmp_path: Path) -> None:
    strategies = tuple(f"FIFO[PER({index / 10})]" for index in range(1, 7))
    data, _, _ = results(tmp_path, strategies=strategies, episodes=240, noise=(0.0, 0.05))
    here = data.sel(plant="PendulumDCSC")
    figure = learning_curves(here)
    assert "band" not in told(figure)
    assert "circles" not in told(figure)
    assert "the last 5 episodes, with 95 % bootstrap intervals over runs" in told(figure)
    for axes in figure.axes:
        assert not axes.collections, "no bands"
        places = [line(axes, f"end {name}") for name in strategies]
        x = np.array([place[0, 0] for place in places])
        assert (np.diff(x) > 0).all(), "in the order of the legend"
        assert 240 < x[0] < x[-1] < axes.get_xlim()[1]
        assert max(axes.get_xticks()) <= 240, "no episode is told where there was none"
        for name, (_, mean) in zip(strategies, places, strict=True):
            curve, ends = line(axes, name)[1], line(axes, f"interval {name}")[1]
            assert mean[0] == pytest.approx(curve[-1])
            assert ends[0] < mean[0] < ends[1]
    few = learning_curves(here.isel(strategy=slice(5)))
    assert "band" in told(few)
    assert few.axes[0].collections


def test_very_many_series_leave_room_for_their_curves(tmp_path: Path) -> None:
    strategies = tuple(f"FIFO[PER({index / 40})]" for index in range(1, 28))
    data, _, _ = results(tmp_path, strategies=strategies, seeds=2, episodes=100)
    (axes,) = learning_curves(data.sel(plant="PendulumDCSC")).axes
    assert 100 < max(line(axes, f"end {name}")[0, 0] for name in strategies) < axes.get_xlim()[1] < 130


def test_episodes_are_counted_in_whole_numbers(tmp_path: Path) -> None:
    data, _, _ = results(tmp_path, episodes=3, greedy_every=1)
    (axes,) = learning_curves(data.sel(plant="PendulumDCSC")).axes
    assert list(axes.get_xticks()) == [0, 1, 2, 3]


def test_curves_are_the_means_of_the_runs(tmp_path: Path) -> None:
    data, _, _ = results(tmp_path, episodes=240, greedy_every=20, failing=(1,), noise=(0.0, 0.05))
    figure = learning_curves(data.sel(plant="PendulumDCSC"))
    assert [axes.get_title() for axes in figure.axes] == ["noise 0, 50 Hz", "noise 0.05, 50 Hz"]
    window = 5
    assert smoothing_window(240) == window
    caption = figure.texts[1].get_text().replace("\n", " ")
    assert caption.startswith("Training episodes, exploration included")
    assert f"moving average over {window} episodes" in caption
    for axes, noise in zip(figure.axes, (0.0, 0.05), strict=True):
        for strategy in ("FIFO[Uniform]", "FULL[PER]"):
            runs = data.sel(plant="PendulumDCSC", learner="DDPG", strategy=strategy, noise=noise, frequency=50.0)
            rewards = (runs["reward"].values - RANDOM) / (DP - RANDOM)
            rewards = rewards[np.isfinite(rewards).all(axis=1)]
            assert len(rewards) == (2 if (noise, strategy) == (0.05, "FIFO[Uniform]") else 4)
            windows = np.lib.stride_tricks.sliding_window_view(rewards.mean(axis=0), window)
            episode, mean = line(axes, strategy)
            np.testing.assert_array_equal(episode, np.arange(3, 239))
            np.testing.assert_allclose(mean, windows.mean(axis=1), rtol=1e-12)
            episode, greedy = line(axes, f"greedy {strategy}")
            np.testing.assert_array_equal(episode, data["greedy_episode"].values)
            expected = (runs["reward_greedy"].values - RANDOM) / (DP - RANDOM)
            np.testing.assert_allclose(greedy, expected[np.isfinite(expected).all(axis=1)].mean(axis=0), rtol=1e-12)


def note(axes: Any) -> Any:
    """The text in a panel that counts failed runs."""
    return axes.get_legend().get_title()


def test_failed_runs_are_counted_in_the_panel(tmp_path: Path) -> None:
    data, _, _ = results(tmp_path, failing=(1,))
    (axes,) = learning_curves(data.sel(plant="PendulumDCSC")).axes
    assert "2 of 4 FULL[PER]" in note(axes).get_text()


def test_the_count_of_failed_runs_covers_no_curve(tmp_path: Path) -> None:
    """Also where learners get worse, and curves end in the corner below."""
    data, _, _ = results(tmp_path, failing=(1,))
    data["reward"][:] = data["reward"].values[..., ::-1]
    figure = learning_curves(data.sel(plant="PendulumDCSC"))
    figure.draw_without_rendering()
    (axes,) = figure.axes
    box = note(axes).get_window_extent()
    points = axes.transData.transform(line(axes, "FIFO[Uniform]").T)
    assert not any(box.contains(*point) for point in points)


def test_band_covers_the_true_mean_as_often_as_it_says() -> None:
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


def test_moving_means_are_of_whole_windows() -> None:
    np.testing.assert_allclose(moving_mean(np.array([[1.0, 2.0, 6.0, 1.0]]), 3), [[3.0, 3.0]])


def test_what_lies_below_the_view_is_told(tmp_path: Path) -> None:
    data, _, _ = results(tmp_path)
    shown = data.sel(plant="PendulumDCSC")
    assert not any("down to" in text.get_text() for text in learning_curves(shown).axes[0].texts)
    shown["reward"][..., 8:12] -= 300.0
    (axes,) = learning_curves(shown).axes
    (cut,) = [text.get_text() for text in axes.texts if "down to" in text.get_text()]
    drawn = [np.asarray(one.get_ydata(), np.float64) for one in axes.lines]
    lowest = min(values.min() for values in drawn if len(values) > 5)
    assert cut == f"↓ down to −{-lowest:.1f}"


def test_a_huge_reward_does_not_hide_the_later_ones() -> None:
    assert moving_mean(np.array([-1e18, -1.0, -3.0, -5.0]), 2)[1:].tolist() == [-2.0, -4.0]
