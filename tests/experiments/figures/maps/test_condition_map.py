"""The map of all strategies and conditions: paired differences, bold if significant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import xarray as xr
from made_results import made_results

from replaybench.reports.figures.maps import condition_map

STRATEGIES = ("FULL[Uniform]", "FULL[PER]", "FIFO(500)[Uniform]", "Resv(500)[Uniform]")
GAINS = {"FULL[PER]": 0.2, "Resv(500)[Uniform]": -0.3}
"""At the second rate only."""


def made(
    strategies: Sequence[str] = STRATEGIES,
    noise: Sequence[float] = (0.0, 0.02),
    rates: Sequence[float] = (50.0, 100.0),
    learners: Sequence[str] = ("DDPG",),
) -> xr.Dataset:
    def ends(plant: int, learner: int, strategy: int, noise: int, rate: int) -> float:
        return 0.6 + 0.1 * learner * strategy + GAINS.get(strategies[strategy], 0.0) * (rate == 1) * (learner == 0)

    names = ["P"], list(learners), list(strategies), list(noise), list(rates)
    return made_results(*names, seeds=12, episodes=40, ends=ends).sel(plant="P")


def words(figure: Any) -> str:
    return " ".join(text.get_text() for text in figure.texts).replace("\n", " ").replace("\u00a0", " ")


def test_differences_stand_in_their_squares_and_are_bold_if_significant() -> None:
    data = made()
    figure = condition_map(data)
    assert figure is not None
    axes = figure.axes[0]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["FULL[PER]", "FIFO[Uniform]", "Resv[Uniform]"]  # by their means; all of one capacity
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0\n50", "0\n100", "0.02\n50", "0.02\n100"]
    assert ": 500." in words(figure)
    means = data["mu_final"].squeeze("learner").mean("seed")
    assert len(axes.texts) == 3 * 4
    for text in axes.texts:
        x, y = map(int, text.get_position())
        here = means.sel(noise=(0.0, 0.02)[x // 2], frequency=(50.0, 100.0)[x % 2])
        named = ("FULL[PER]", "FIFO(500)[Uniform]", "Resv(500)[Uniform]")[y]
        difference = float(here.sel(strategy=named) - here.sel(strategy="FULL[Uniform]"))
        assert float(text.get_text().replace("−", "-")) == pytest.approx(difference, abs=0.0051)
        assert np.asarray(axes.images[0].get_array())[y, x] == pytest.approx(difference)
        assert (text.get_fontweight() == "bold") == (named in GAINS and x % 2 == 1)


def test_one_axis_alone_and_different_capacities_are_named() -> None:
    strategies = ("FULL[Uniform]", "FIFO(500)[Uniform]", "FIFO(900)[Uniform]")
    figure = condition_map(made(strategies, noise=(0.0,), rates=(25.0, 50.0, 100.0)))
    assert figure is not None
    axes = figure.axes[0]
    assert (axes.get_xlabel(), [label.get_text() for label in axes.get_xticklabels()]) == ("Hz", ["25", "50", "100"])
    assert {label.get_text() for label in axes.get_yticklabels()} == set(strategies[1:])


def test_learners_have_panels_and_gaps_and_failed_runs_are_left_out() -> None:
    data = made(learners=("DDPG", "TD3"))
    for name in ("reward", "reward_greedy", "mu_final", "reference_random", "reference_dp"):
        data[name].loc[{"noise": 0.02, "frequency": 100.0}] = np.nan
    failed = {"learner": "TD3", "strategy": "FULL[PER]", "noise": 0.0, "frequency": 50.0, "seed": 3}
    data["mu_final"].loc[failed] = np.nan
    figure = condition_map(data)
    assert figure is not None
    assert [axes.get_title() for axes in figure.axes[:2]] == ["DDPG", "TD3"]
    assert [len(axes.texts) for axes in figure.axes[:2]] == [9, 9]
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    sizes = np.asarray(figure.axes[1].images[0].get_array())
    assert sizes[names.index("FULL[PER]"), 0] == pytest.approx(0.1, abs=0.02)
    assert "n = 11 to 12 pairs" in words(figure)


@pytest.mark.parametrize("few", [{"noise": (0.0,)}, {"strategies": STRATEGIES[:2]}, {"strategies": STRATEGIES[:1]}])
def test_few_comparisons_have_no_map(few: dict[str, Any]) -> None:
    assert condition_map(made(**few)) is None
