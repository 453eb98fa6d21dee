"""Presets: each can be run at each scale, says what it leaves out, and is found by its name."""

from __future__ import annotations

import dataclasses
import io
import re
from typing import get_args

import pytest
from rich.console import Console

from replaybench.data.errors import UserError
from replaybench.experiments.presets import reproduce
from replaybench.experiments.presets.preset import Preset, Scale, preset_names, read_preset
from replaybench.experiments.progress import plain_lines


@pytest.mark.parametrize("name", preset_names())
def test_is_a_study_at_every_scale(name: str) -> None:
    preset = read_preset(name)
    points = {scale: {cell.kind[:-1] for cell in preset.study(scale).cells()} for scale in get_args(Scale)}
    assert points["quick"] <= points["standard"] <= points["paper"]
    axes = {"plants", "learners", "strategies", "noise", "frequency", "grid"}
    fewer = any(axes & set(table) for table in preset.figure.scales.values())
    assert fewer == (points["quick"] < points["paper"])
    assert not fewer or any("at scale quick" in said for said in preset.figure.reduced)


def test_a_smaller_scale_says_what_it_leaves_out() -> None:
    preset = read_preset("debruin2018/fig12")
    assert preset.reductions("quick")[:2] == ["8 seeds instead of 50", "300 episodes instead of 3000"]
    assert not [said for said in preset.reductions("paper") if "instead" in said]


def test_fewer_seeds_than_the_paper_ran_are_told_at_paper_scale_too() -> None:
    preset = read_preset("debruin2018/fig12")
    more = Preset(preset.name, dataclasses.replace(preset.paper, seeds=51), preset.figure)
    assert "50 seeds at paper scale, where the paper has 51" in more.reductions("paper")


def test_names_are_found_in_any_case_and_the_nearest_is_told() -> None:
    assert read_preset("deBruin2018/Fig12").name == "debruin2018/fig12"
    with pytest.raises(UserError, match="debruin2018/fig12"):
        read_preset("debruin2018/fig112")


def test_the_list_is_not_silent_while_it_times_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    some = ("debruin2018/fig3", "when/map")
    monkeypatch.setattr(reproduce, "estimate_seconds", lambda cells, workers, report=None: 60.0)
    monkeypatch.setattr(plain_lines, "LINE_SECONDS", 0.01)
    monkeypatch.setattr(reproduce, "presets", lambda: map(read_preset, some))
    console = Console(file=io.StringIO(), width=200)
    reproduce.show_presets(console, "quick", 2)
    told = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(r"^after .*: timing kinds of cells that are new here: \d+ of \d+ presets$", told, re.MULTILINE)
    assert all(name in told for name in some)
