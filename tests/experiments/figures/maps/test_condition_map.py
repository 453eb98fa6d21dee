"""Every strategy under every condition: what is drawn is the paired difference, bold where it is sure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import xarray as xr
from made_results import made_results

from replaybench.experiments.figures.maps.condition_map import condition_map

STRATEGIES = ("FULL[Uniform]", "FULL[PER]", "FIFO(500)[Uniform]", "Resv(500)[Uniform]")
GAINS = {"FULL[PER]": 0.2, "Resv(500)[Uniform]": -0.3}
"""At the second rate only."""


def made(
    strategies: Sequence[str] = STRATEGIES, noise: Sequence[float] = (0.0, 0.02), rates: Sequence[float] = (50, 100)
) -> xr.Dataset:
    def ends(plant: int, learner: int, strategy: int, noise: int, rate: int) -> float:
        return 0.6 + GAINS.get(strategies[strategy], 0.0) * (rate == 1)

    names = ["P"], ["DDPG"], list(strategies), list(noise), [float(rate) for rate in rates]
    return made_results(*names, seeds=12, episodes=40, ends=ends).sel(plant="P")


def test_differences_stand_where_they_belong_and_are_bold_where_sure() -> None:
    data = made()
    figure = condition_map(data)
    assert figure is not None
    axes = figure.axes[0]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["FULL[PER]", "FIFO[Uniform]", "Resv[Uniform]"]  # by their means; all of one capacity
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0\n50", "0\n100", "0.02\n50", "0.02\n100"]
    means = data["mu_final"].squeeze("learner").mean("seed")
    found = {
        text.get_position(): (float(text.get_text().replace("−", "-")), text.get_fontweight()) for text in axes.texts
    }
    assert len(found) == 3 * 4
    assert "hold 500" in " ".join(text.get_text() for text in figure.texts).replace("\n", " ").replace("\u00a0", " ")
    for (x, y), (size, weight) in found.items():
        place = {"noise": (0.0, 0.02)[int(x) // 2], "frequency": (50.0, 100.0)[int(x) % 2]}
        named = ("FULL[PER]", "FIFO(500)[Uniform]", "Resv(500)[Uniform]")[int(y)]
        here = means.sel(place)
        difference = float(here.sel(strategy=named) - here.sel(strategy="FULL[Uniform]"))
        assert size == pytest.approx(difference, abs=0.0051)
        assert np.asarray(axes.images[0].get_array())[int(y), int(x)] == pytest.approx(difference)
        assert (weight == "bold") == (named in GAINS and place["frequency"] == 100.0)


def test_one_axis_alone_is_named_alone_and_capacities_that_differ_are_told() -> None:
    strategies = ("FULL[Uniform]", "FIFO(500)[Uniform]", "FIFO(900)[Uniform]")
    figure = condition_map(made(strategies, noise=(0.0,), rates=(25, 50, 100)))
    assert figure is not None
    axes = figure.axes[0]
    assert (axes.get_xlabel(), [label.get_text() for label in axes.get_xticklabels()]) == ("Hz", ["25", "50", "100"])
    assert {label.get_text() for label in axes.get_yticklabels()} == set(strategies[1:])


def test_learners_have_panels_failed_runs_no_pair_and_gaps_in_a_grid_do_no_harm() -> None:
    data = made_results(
        ["P"], ["DDPG", "TD3"], list(STRATEGIES), [0.0, 0.02], [50.0, 100.0], seeds=12, episodes=40,
        ends=lambda *place: 0.5 + 0.1 * place[1] * place[2],
    ).sel(plant="P")  # fmt: skip
    gone = {"noise": 0.02, "frequency": 100.0}
    for name in ("reward", "reward_greedy", "mu_final", "reference_random", "reference_dp"):
        data[name].loc[gone] = np.nan
    data["mu_final"].loc[{"learner": "TD3", "strategy": "FULL[PER]", "noise": 0.0, "frequency": 50.0, "seed": 3}] = (
        np.nan
    )
    figure = condition_map(data)
    assert figure is not None
    assert [axes.get_title() for axes in figure.axes[:2]] == ["DDPG", "TD3"]
    assert [len(axes.texts) for axes in figure.axes[:2]] == [9, 9]
    sizes = np.asarray(figure.axes[1].images[0].get_array())
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert sizes[names.index("FULL[PER]"), 0] == pytest.approx(0.1, abs=0.02)
    assert "n = 11 to 12 pairs" in " ".join(text.get_text() for text in figure.texts).replace("\n", " ").replace(
        "\u00a0", " "
    )


@pytest.mark.parametrize("few", [{"noise": (0.0,)}, {"strategies": STRATEGIES[:2]}, {"strategies": STRATEGIES[:1]}])
def test_little_to_compare_is_left_to_other_figures(few: dict[str, Sequence[str]]) -> None:
    assert condition_map(made(**few)) is None  # type: ignore[arg-type]
