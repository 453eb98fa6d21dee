"""Layout and captions of figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_studies import caption, plant_results

from replaybench.reports.figures.distributions import paired_differences, performance_profiles
from replaybench.reports.figures.learning_curves import length_curves
from replaybench.reports.figures.maps import contrast, ink
from replaybench.reports.figures.scores import response, score_bars
from replaybench.reports.figures.style import PAPER, all_series, caption_of, new_figure, panels_across, style

GRID: dict[str, Any] = {"noise": (0.0, 0.05), "frequency": (50.0, 100.0)}


def shape(figure: Any) -> tuple[int, int]:
    """Return the rows and columns of a figure's panels."""
    found: tuple[int, int] = figure.axes[0].get_subplotspec().get_gridspec().get_geometry()
    return found


def test_four_panels_stand_in_a_square_and_share_their_range(tmp_path: Path) -> None:
    assert [panels_across(count) for count in range(1, 8)] == [1, 2, 3, 2, 3, 3, 3]
    data = plant_results(tmp_path, seeds=6, **GRID)
    for draw in (paired_differences, performance_profiles):
        figure = draw(data)
        assert figure is not None
        assert shape(figure) == (2, 2)
        assert len({axes.get_xlim() for axes in figure.axes}) == 1


def test_no_line_of_a_caption_is_broken_before_a_sign() -> None:
    text = "Means with 95 % intervals of n = 50 seeds, filled where p < 0.05. " * 9
    for width in range(30, 90):
        for line in new_figure(width / 10, 2.0, "t", text).texts[1].get_text().splitlines():
            assert line[0] not in "%=<"
            assert line[-1] not in "=<"


def test_captions_of_bars_describe_what_is_drawn(tmp_path: Path) -> None:
    cases: list[dict[str, Any]] = [{}, {"failing": (1,)}, {"seeds": 1}]
    whole, failing, single = (
        caption(score_bars(plant_results(tmp_path / str(place), **changes))) for place, changes in enumerate(cases)
    )
    assert "means over runs" in whole
    assert "Numbers above" not in whole
    assert "×" in failing
    assert "†" not in failing
    assert "single runs" in single
    assert "dots" not in single


def test_counts_over_narrow_bars_are_upright(tmp_path: Path) -> None:
    strategies = tuple(f"FIFO[PER({index / 40})]" for index in range(1, 31))
    data = plant_results(tmp_path, strategies=strategies, seeds=2, failing=tuple(range(120)), **GRID)
    counts = [text for text in score_bars(data).axes[0].texts if "×" in text.get_text()]
    assert len(counts) == 120
    assert {text.get_rotation() for text in counts} == {90.0}


def test_captions_for_print_are_plain_text(tmp_path: Path) -> None:
    data = plant_results(tmp_path)
    data["dead"][:] = 1
    with style(PAPER):
        text = caption_of(score_bars(data))
    assert "(final μ_r < 0.2)" in text
    assert "$" not in text


@pytest.mark.parametrize("otherwise", ["0.1", "0.3"])
def test_numbers_are_readable_on_every_square(otherwise: str) -> None:
    """The least contrast of text is 4.5 (WCAG)."""
    for size in np.linspace(-0.6, 0.6, 121).tolist():
        assert contrast(size, ink(size, otherwise)) >= 4.5
    assert contrast(0.0, "black") == pytest.approx(19.1, abs=1.0), "nearly white"
    assert ink(0.0, otherwise) == otherwise


def test_series_of_one_colour_and_marker_differ_in_their_faces(tmp_path: Path) -> None:
    strategies = tuple(f"FIFO[PER({index / 40})]" for index in range(1, 11))
    data = plant_results(tmp_path, strategies=strategies, noise=(0.0, 0.05), seeds=2)
    series = all_series(data)
    assert (series[0].color, series[0].marker) == (series[8].color, series[8].marker)
    figure = response(data, "noise")
    assert figure is not None
    faces = [line.get_markerfacecolor() for line in figure.legends[0].get_lines()]
    assert (faces[0], faces[8]) == (series[0].color, "white")


def test_lengths_are_drawn_with_noise_down_and_rates_across(tmp_path: Path) -> None:
    data = plant_results(tmp_path, missing=(0, 4), episodes=3, **GRID)
    data["episode_steps"] = data["episode_steps"] - data["episode"]
    figure = length_curves(data)
    assert figure is not None
    assert shape(figure) == (2, 2)
    empty, *others = figure.axes
    assert [text.get_text() for text in empty.texts] == ["no results"]
    assert all(axes.lines for axes in others)
    assert list(others[0].get_xticks()) == [0, 1, 2, 3]
