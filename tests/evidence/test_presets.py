"""Presets: each can be run at each scale, says what it leaves out, and is found by its name."""

import dataclasses
import io
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from rich.console import Console

from replaybench.cli.plan import show_presets
from replaybench.data.run_folder import RunFolder
from replaybench.evidence import preset as reproduce
from replaybench.evidence.preset import Preset, Scale, preset_names, read_preset
from replaybench.experiments import calibration
from replaybench.experiments import progress as plain_lines
from replaybench.experiments.plan import plan_warnings
from replaybench.experiments.study import Cell
from replaybench.experiments.study_record import resolved, write_toml
from tests.helpers.commands import Patch
from tests.helpers.refusals import refuses
from tests.helpers.tiers import slow

SOME = ("debruin2018/fig3", "debruin2018/fig12")


@pytest.mark.parametrize("name", slow(preset_names(), only=["when/map"]))
def test_is_a_study_at_every_scale(name: str) -> None:
    preset = read_preset(name)
    if preset.missing:
        pytest.skip(preset.missing)
    cells = {scale: preset.study(scale).cells() for scale in get_args(Scale)}
    assert not [line for planned in cells.values() for line in plan_warnings(planned) if "learns nothing" in line]
    points = {scale: {cell.grid_point for cell in cells[scale]} for scale in get_args(Scale)}
    assert points["quick"] <= points["standard"] <= points["paper"]
    fewer = points["quick"] < points["paper"]
    assert not fewer or any("at scale quick" in said for said in preset.figure.reduced)


@pytest.mark.parametrize(
    ("name", "scale", "word", "said"),
    [
        ("debruin2018/fig12", "quick", "instead", ["8 seeds instead of 50", "300 episodes instead of 3000"]),
        ("debruin2018/fig12", "paper", "instead", []),
        ("wang2019/table1", "standard", "sched", ["schedules take 3,000,000 steps, of which a run has 100,000"]),
        ("wang2019/table1compressed", "standard", "sched", ["schedules are compressed into the shorter run"]),
        ("debruin2018/fig15", "quick", "sched", ["schedules are compressed into the shorter run"]),
        ("wang2019/table1", "paper", "sched", []),
        ("wang2019/fig5", "standard", "sched", []),
    ],
)
def test_a_smaller_scale_says_what_it_leaves_out(name: str, scale: Scale, word: str, said: list[str]) -> None:
    assert [line for line in read_preset(name).reductions(scale) if word in line][:2] == said


def test_more_seeds_continue_what_a_folder_holds(tmp_path: Path) -> None:
    study = dataclasses.replace(read_preset("debruin2018/fig3").study("quick"), block=50)
    run = RunFolder(tmp_path)
    first, more = (reproduce.continued(study, tmp_path, seeds) for seeds in (8, 20))
    assert (first.block, more.block) == (50, 50)
    run.study.write_text(write_toml(resolved(first, first.cells())), encoding="utf-8")
    run.results.touch()
    refuses(r"not their cells; .*--seeds 12 --set first_seed=8", reproduce.continued, study, tmp_path, 20)
    (tmp_path / "cells").mkdir()
    cells = reproduce.continued(study, tmp_path, 20).cells()
    assert {cell.id for cell in first.cells()} < {cell.id for cell in cells}
    assert sorted({cell.first_member for cell in cells}) == [0, 8, 16]
    refuses("has 8 seeds already", reproduce.continued, study, tmp_path, 5)


def test_a_preset_that_is_like_another_differs_in_what_it_says() -> None:
    table, humanoid = (read_preset(f"wang2019/{name}").study("paper") for name in ("table1", "table1humanoid"))
    assert humanoid.learner["SAC"] == {**table.learner["SAC"], "temperature": 0.05}
    assert (humanoid.strategies, humanoid.episodes) == (table.strategies, 10_000)


@pytest.mark.parametrize(("name", "of", "own"), [("fig12", "paper", 50), ("fig16", "figure", 5)])
def test_fewer_seeds_than_the_paper_or_the_figure_ran_are_reported(name: str, of: str, own: int) -> None:
    preset = read_preset(f"debruin2018/{name}")
    parts = {"paper": preset.paper, "figure": preset.figure}
    parts[of] = dataclasses.replace(parts[of], seeds=own + 1)  # type: ignore[type-var]
    more = Preset(preset.name, **parts)  # type: ignore[arg-type]
    assert f"{own} seeds at paper scale, where the paper has {own + 1}" in more.reductions("paper")


@pytest.mark.parametrize(("name", "inertia", "l2"), [("fig12", 1, 1), ("fig16", 0, 0), ("fig18", 0, 1)])
def test_reductions_are_those_of_the_figure_that_is_run(name: str, inertia: int, l2: int) -> None:
    text = " ".join(read_preset(f"debruin2018/{name}").reductions("paper"))
    assert (text.count("inertia"), text.count("no L2"), text.count("seeds at")) == (inertia, l2, 0)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("debruin2018/fig6", "no preset 'debruin2018/fig6'; debruin2018/fig5 shows it (Figures 5 and 6)"),
        ("debruin2018/Figure26", "debruin2018/fig16 shows it (Figures 16, 17, 25 and 26)"),
        ("wang2019/fig3", "wang2019/table1 shows it (Tables 1 and 4, Figure 3)"),
        ("fig21", "no preset 'fig21'; name its paper, too: debruin2018/fig21"),
        ("Panahi2024", "Panahi2024 is a paper; name one of its presets: panahi2024/variants"),
        ("debruin2018/table5", "unknown preset 'debruin2018/table5'; did you mean debruin2018/table6"),
        ("debruin2018/fig112", "debruin2018/fig12"),
        ("novati2019/fig9", "unknown preset 'novati2019/fig9'; did you mean novati2019/fig"),
    ],
)
def test_a_figure_that_another_preset_shows_leads_there(name: str, said: str) -> None:
    assert read_preset("deBruin2018/Fig12").name == "debruin2018/fig12"
    refuses(re.escape(said), read_preset, name)


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: Patch) -> Callable[..., str]:
    """Prints a list of some presets."""
    monkeypatch.setenv("REPLAYBENCH_CACHE", str(tmp_path))

    def show(timed: bool = False, scale: Scale = "quick", names: tuple[str, ...] = SOME) -> str:
        console = Console(file=io.StringIO(), width=200)
        monkeypatch.setattr("replaybench.cli.plan.presets", lambda: map(read_preset, names))
        show_presets(console, scale, 2, timed)
        return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]

    return show


def test_the_list_counts_grid_points_not_blocks_of_seeds(listed: Callable[..., str]) -> None:
    out = listed(scale="standard", names=("debruin2018/table6",))
    assert "5 of 50 seeds" in out
    assert "run once: 5 in all" in out


def test_a_preset_of_missing_plants_is_listed_with_its_needs(listed: Callable[..., str], monkeypatch: Patch) -> None:
    needed = 'pip install "replaybench[dm]"'
    monkeypatch.setattr(f"{Preset.__module__}.missing", lambda plant: needed if "Acer" in plant else "")
    out = listed(names=("wang2017/fig3tasks", "debruin2018/fig3"))
    assert re.search(r"fig3tasks.*needs pip install", out)
    assert "run once: 4 in all" in out


def test_the_list_times_nothing_unless_asked(listed: Callable[..., str], monkeypatch: Patch) -> None:
    out = listed()
    assert all(name in out for name in SOME)
    assert "--list --time" in out
    monkeypatch.setattr(calibration, "_time_cell", lambda cell: calibration.Speed(1e-6))
    timed = listed(timed=True)
    assert "--list --time" not in timed
    assert listed() == timed


def test_the_list_shows_progress_while_it_times(listed: Callable[..., str], monkeypatch: Patch) -> None:
    shown = threading.Event()

    def elapsed(seconds: float) -> str:
        shown.set()
        return "1 s"

    def tried(cell: Cell) -> calibration.Speed:
        assert shown.wait(60)
        return calibration.Speed(1.0)

    monkeypatch.setattr(plain_lines, "LINE_SECONDS", 0.01)
    monkeypatch.setattr(plain_lines, "duration", elapsed)
    monkeypatch.setattr(calibration, "_time_cell", tried)
    out = listed(timed=True)
    assert re.search(r"^after .*: timing types of cells that are new here: \d+ of \d+$", out, re.MULTILINE)
