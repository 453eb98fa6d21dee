"""How figures are laid out, and that captions speak of what is drawn and of nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_studies import results, told

from replaybench.experiments.figures.episode_lengths import length_curves
from replaybench.experiments.figures.maps.difference_squares import contrast, ink
from replaybench.experiments.figures.paired_differences import paired_differences
from replaybench.experiments.figures.performance_profiles import performance_profiles
from replaybench.experiments.figures.responses import response
from replaybench.experiments.figures.score_bars import score_bars
from replaybench.experiments.figures.style import PAPER, all_series, caption_of, new_figure, panels_across, style


def shape(figure: Any) -> tuple[int, int]:
    """Rows and columns of a figure's panels."""
    found: tuple[int, int] = figure.axes[0].get_subplotspec().get_gridspec().get_geometry()
    return found


def test_four_panels_stand_in_a_square_and_share_their_view(tmp_path: Path) -> None:
    assert [panels_across(count) for count in range(1, 8)] == [1, 2, 3, 2, 3, 3, 3]
    data, _, _ = results(tmp_path, noise=(0.0, 0.05), frequency=(50.0, 100.0), seeds=6)
    for draw in (paired_differences, performance_profiles):
        figure = draw(data.sel(plant="PendulumDCSC"))
        assert figure is not None
        assert shape(figure) == (2, 2)
        assert len({axes.get_xlim() for axes in figure.axes}) == 1, "a difference is as long in one panel as in another"
        assert "dots" not in told(figure), "marks of many shapes"


def test_no_line_of_a_caption_is_broken_before_a_sign() -> None:
    caption = "Means with 95 % intervals of n = 50 seeds, filled where p < 0.05. " * 9
    for width in range(30, 90):
        _, text = new_figure(width / 10, 2.0, "t", caption).texts
        for line in text.get_text().splitlines():
            assert line[0] not in "%=<"
            assert line[-1] not in "=<"


def test_captions_of_bars_tell_of_what_there_is(tmp_path: Path) -> None:
    def caption(name: str, **changes: object) -> str:
        data, _, _ = results(tmp_path / name, **changes)  # type: ignore[arg-type]
        return told(score_bars(data.sel(plant="PendulumDCSC")))

    whole = caption("whole")
    assert "Bars: means over runs" in whole
    assert "Numbers above" not in whole
    assert "×" in caption("failing", failing=(1,))
    assert "†" not in caption("failing", failing=(1,))
    single = caption("single", seeds=1)
    assert "dots" not in single
    assert "Bars: single runs" in single


def test_counts_over_narrow_bars_stand_upright(tmp_path: Path) -> None:
    strategies = tuple(f"FIFO[PER({index / 40})]" for index in range(1, 31))
    data, _, _ = results(tmp_path, strategies=strategies, noise=(0.0, 0.05), frequency=(50.0, 100.0), seeds=2,
                         failing=tuple(range(120)))  # fmt: skip
    counts = [text for text in score_bars(data.sel(plant="PendulumDCSC")).axes[0].texts if "×" in text.get_text()]
    assert len(counts) == 120
    assert {text.get_rotation() for text in counts} == {90.0}


def test_captions_for_print_are_plain_text(tmp_path: Path) -> None:
    data, _, _ = results(tmp_path)
    data["dead"][:] = 1
    with style(PAPER):
        caption = caption_of(score_bars(data.sel(plant="PendulumDCSC")))
    assert "(final μ_r < 0.2)" in caption
    assert "$" not in caption


@pytest.mark.parametrize("otherwise", ["0.1", "0.3"])
def test_numbers_can_be_read_on_every_square(otherwise: str) -> None:
    """The contrast that WCAG asks of text is 4.5."""
    for size in np.linspace(-0.6, 0.6, 121).tolist():
        assert contrast(size, ink(size, otherwise)) >= 4.5
    assert contrast(0.0, "black") == pytest.approx(19.1, abs=1.0), "nearly white"
    assert ink(0.0, otherwise) == otherwise


def test_series_of_one_colour_and_marker_are_told_apart(tmp_path: Path) -> None:
    strategies = tuple(f"FIFO[PER({index / 40})]" for index in range(1, 11))
    data, _, _ = results(tmp_path, strategies=strategies, noise=(0.0, 0.05), seeds=2)
    here = data.sel(plant="PendulumDCSC")
    series = all_series(here)
    assert (series[0].color, series[0].marker) == (series[8].color, series[8].marker)
    figure = response(here, "noise")
    assert figure is not None
    (legend,) = figure.legends
    faces = [line.get_markerfacecolor() for line in legend.get_lines()]
    assert (faces[0], faces[8]) == (series[0].color, "white")


def test_lengths_stand_as_learning_curves_do_noise_down_and_rates_across(tmp_path: Path) -> None:
    data, _, _ = results(tmp_path, noise=(0.0, 0.05), frequency=(50.0, 100.0), missing=(0, 4), episodes=3)
    here = data.sel(plant="PendulumDCSC")
    here["episode_steps"] = here["episode_steps"] - here["episode"]
    figure = length_curves(here)
    assert figure is not None
    assert shape(figure) == (2, 2)
    empty, *others = figure.axes
    assert [text.get_text() for text in empty.texts] == ["no results"]
    assert all(axes.lines for axes in others)
    assert list(others[0].get_xticks()) == [0, 1, 2, 3]
