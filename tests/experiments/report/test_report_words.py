"""What a report says, against numbers that are known."""

from __future__ import annotations

import json
import re
import shutil
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
import xarray as xr
from made_results import HOSTILE, made_results
from made_snapshots import add_snapshots

from replaybench.data.errors import UserError
from replaybench.experiments.cli import main
from replaybench.experiments.report import assembly
from replaybench.experiments.report.assembly import make_report
from replaybench.experiments.report.command import show_report
from replaybench.experiments.report.comparison import at_point, lead, over_points
from replaybench.experiments.report.look import number
from replaybench.experiments.report.material import Point, read_material
from replaybench.experiments.report.page import LARGEST
from replaybench.experiments.report.sections.responses import responses_section
from replaybench.experiments.report.sections.scores import scores_section
from replaybench.experiments.report.sections.strategies import strategies_section
from replaybench.experiments.report.summary import some, summarise
from replaybench.experiments.results.dataset import AXES, add_scores
from replaybench.experiments.results.results_file import read_results, write_results
from replaybench.experiments.results.statistics import Interval


def study(folder: Path, *ends: float, seeds: int = 8, plants: int = 1) -> Path:
    names = ["FIFO[Uniform]", "FULL[PER]", "Resv[Uniform]", "FIFO[PER]"][: len(ends)]
    data = made_results(
        ["PendulumDCSC", "Magman"][:plants], ["DDPG"], names, [0.0], [50.0, 100.0],
        seeds=seeds, episodes=60, ends=lambda plant, learner, strategy, noise, rate: ends[strategy],
    )  # fmt: skip
    path = folder / "results.nc"
    write_results(path, data)
    return path


def conclusion(path: Path) -> tuple[str, str]:
    material = read_material(path)
    found = summarise(material, {point: at_point(material, point) for point in material.points()}).conclusions[0]
    return found.headline, " ".join(found.sentences)


def test_differences_are_taken_seed_by_seed() -> None:
    """What a seed gives to both cancels: 100 times more luck than difference, and the difference is seen."""
    rng = np.random.Generator(np.random.PCG64(0))
    luck = rng.standard_normal(10)
    found = lead(luck + 0.01, luck + 0.001 * rng.standard_normal(10))
    assert found.sure
    assert (found.pairs, found.ahead) == (10, 10)
    assert found.difference.mean == pytest.approx(0.01, abs=0.001)
    assert not lead(luck + 0.01, rng.permutation(luck)).sure


def test_a_seed_that_failed_under_either_is_no_pair() -> None:
    one, other = np.array([1.0, np.nan, 3.0, 4.0, 5.0, 6.0]), np.array([0.0, 0.0, np.nan, 3.0, 4.0, 5.0])
    found = lead(one, other)
    assert (found.pairs, found.ahead, found.difference.mean) == (4, 4, 1.0)
    assert not found.sure, "four pairs are too few"


def test_a_clear_winner_is_named(tmp_path: Path) -> None:
    headline, text = conclusion(study(tmp_path, 0.6, 0.9, 0.7))
    assert headline == "FULL[PER] came first"
    assert "ahead of the next best, Resv[Uniform]" in text
    assert "in 8 of 8 seeds (p = 0.008): more than chance." in text
    assert "Surely behind it: FIFO[Uniform] by 0.2" in text
    assert "FULL[PER] in 2 (of 2); in 2 of them" in text


def test_a_tie_is_called_a_tie(tmp_path: Path) -> None:
    headline, text = conclusion(study(tmp_path, 0.8, 0.8))
    assert headline.startswith("No clear winner: ")
    assert "these runs do not tell the two apart (p = " in text
    assert re.search(r"\. If the difference is what it was here, (about [\d,]+|more) seeds ", text)


def test_equal_scores_are_called_equal(tmp_path: Path) -> None:
    """As of buffers that never fill, which forget nothing."""
    data = read_results(study(tmp_path, 0.8, 0.8, 0.3))
    data["reward"].values[:, :, 1] = data["reward"].values[:, :, 0]
    add_scores(data)
    write_results(tmp_path / "same.nc", data)
    headline, text = conclusion(tmp_path / "same.nc")
    assert headline == "No clear winner: FIFO[Uniform] and FULL[PER] came to the same scores"
    assert "FULL[PER] came to the very same scores, seed by seed: equal rewards in all episodes" in text
    write_results(tmp_path / "all.nc", data.isel(strategy=[0, 1]))
    headline, text = conclusion(tmp_path / "all.nc")
    assert headline == "Nothing to compare: FIFO[Uniform] and FULL[PER] came to the same scores"
    assert "highest" not in text
    material = read_material(tmp_path / "same.nc")
    (table,) = scores_section(material, {point: at_point(material, point) for point in material.points()}).tables
    assert [row.cells[-2] for row in table.rows][:3] == ["best", "same scores", table.rows[2].cells[-2]]


def test_where_no_learner_beats_random_control_that_is_the_headline(tmp_path: Path) -> None:
    """Nobody scored highest then. Of two conditions one may be so; what is said of the other stands."""
    data = read_results(study(tmp_path, -0.5, -0.8))
    data["discount"] = ("plant", "learner", "frequency"), np.full((1, 1, 2), 0.8)
    data["reference_lqr"] = data["reference_random"] + 0.5
    write_results(tmp_path / "vain.nc", data)
    headline, text = conclusion(tmp_path / "vain.nc")
    assert headline == "No learner beats random control"
    assert "learners end at −2.68 to −2.43; random control −2.00, linear-quadratic regulator −1.50 and dynamic" in text
    assert "highest" not in text
    assert 0 < text.index("the discount") < text.index("the length of the run") < text.index("exploration")
    page = unescape(make_report(tmp_path / "vain.nc"))
    assert ">not above random control<" in page
    assert ">best<" not in page
    assert re.search("random control</td>.*>0.00<", page)
    data["reward"].loc[{"frequency": 50.0}] += 1.0
    add_scores(data)
    write_results(tmp_path / "partly.nc", data)
    headline, text = conclusion(tmp_path / "partly.nc")
    assert not headline.startswith("No learner")
    assert "No learner beats random control at noise 0, 100 Hz." in text


def test_small_rewards_and_references_are_not_written_as_0(tmp_path: Path) -> None:
    data = read_results(study(tmp_path, 0.8, 0.3))
    data["reference_dp"][:] = np.nan
    for name in ("reward", "reference_random"):
        data[name] *= 1e-4
    data["reference_lqr"] = data["reference_random"] / 1000
    add_scores(data)
    write_results(tmp_path / "small.nc", data.isel(frequency=[0]))
    page = unescape(make_report(tmp_path / "small.nc"))
    assert not re.search(r"−0\.0+(?!\d)", page[page.index("<main") :])
    assert (number(-0.0004), number(-0.4)) == ("−4.0e−04", "−0.40")


def test_runs_that_failed_at_once_are_counted(tmp_path: Path) -> None:
    """They have steps and no reward: all of one strategy, which alone was run at 100 Hz."""
    data = read_results(study(tmp_path, 0.8, 0.3))
    data["episode_steps"] = xr.full_like(data["reward"], 200.0)
    data["reward"].values[:, :, 1, :, 0] = data["reward"].values[..., 1, :, :] = np.nan
    data["episode_steps"].values[:, :, 0, :, 1] = np.nan
    add_scores(data)
    write_results(tmp_path / "failed.nc", data)
    text = unescape(make_report(tmp_path / "failed.nc"))
    assert "16 runs failed (a reward that is not finite): 16 of FULL[PER]" in text
    assert "at noise 0 and at 50 and 100 Hz, though not in every combination of these: 3 cells of 8 seeds" in text


def test_a_condition_in_which_every_run_failed_leaves_the_scale_of_the_others(tmp_path: Path) -> None:
    data = read_results(study(tmp_path, 0.8, 0.3))
    data["episode_steps"] = xr.full_like(data["reward"], 200.0)
    data["reward"].values[:, :, :, :, 0] = np.nan
    add_scores(data)
    write_results(tmp_path / "failed.nc", data)
    section = responses_section(read_material(tmp_path / "failed.nc"))
    assert section.notes == []
    assert "No strategy has a score in every condition" in conclusion(tmp_path / "failed.nc")[1]


def test_without_a_common_scale_that_is_said_and_rise_times_say_who_never_rose(tmp_path: Path) -> None:
    data = read_results(study(tmp_path, 0.5, 0.3))
    material = read_material(tmp_path)
    rises = [
        row.cells[-1]
        for row in scores_section(material, {p: at_point(material, p) for p in material.points()}).tables[0].rows
    ]
    assert set(rises) == {"60 (8 never)", ""}, "references have no rise"
    data["reference_dp"][:] = np.nan
    add_scores(data)
    write_results(tmp_path / "raw.nc", data)
    assert "conditions have no common scale" in conclusion(tmp_path / "raw.nc")[1]


def test_a_mean_that_is_the_highest_for_the_seeds_that_failed_is_no_lead(tmp_path: Path) -> None:
    data = read_results(study(tmp_path, 0.5, 0.55))
    data["reward"].values[..., :4, :] -= 20.0
    data["reward"].values[:, :, 0, ..., :4, 30:] = np.nan
    add_scores(data)
    write_results(tmp_path / "results.nc", data)
    headline, text = conclusion(tmp_path / "results.nc")
    assert headline.startswith("FIFO[Uniform] scored highest, but there are too few seeds")
    assert "On the 4 seeds that both finished it is behind the next best, FULL[PER] (" in text
    assert "the higher one for seeds that only one of them finished." in text
    assert "ahead of" not in text


def test_where_every_run_failed_at_once_that_is_said(tmp_path: Path) -> None:
    data = read_results(study(tmp_path, 0.8, 0.3))
    data["episode_steps"] = xr.full_like(data["reward"], 200.0)
    data["reward"].values[:] = np.nan
    add_scores(data)
    write_results(tmp_path / "results.nc", data)
    with pytest.raises(UserError, match="every run of .* failed before its first reward was a number"):
        read_material(tmp_path)


def test_an_interrupted_sweep_is_called_incomplete(tmp_path: Path) -> None:
    data = read_results(study(tmp_path, 0.8, 0.3))
    data["reward"].values[..., 1, :, :] = np.nan
    blocks = (*AXES, "block")  # cells have an id before they have an end
    data.coords["cell"] = blocks, np.array([*"abcd"], object).reshape(1, 1, 2, 1, 2, 1)
    data.coords["started"] = blocks, np.array(["2026", "", "2026", ""], object).reshape(1, 1, 2, 1, 2, 1)
    add_scores(data)
    write_results(tmp_path / "results.nc", data)
    facts = {"study": "t", "complete": False, "cells": {key: {} for key in "abcd"}}
    (tmp_path / "provenance.json").write_text(json.dumps(facts))
    text = unescape(make_report(tmp_path))
    assert "at noise 0 and at 50 Hz: 2 cells of 8 seeds, 16 runs in all, of 60 episodes each." in text
    assert "The sweep is not complete: 2 of its 4 cells had finished." in text


def test_plants_without_a_reference_are_scored_by_what_they_tell(tmp_path: Path) -> None:
    """Their scores are returns, of a tenth of the rounds; the other plant's are of episodes."""
    data = read_results(study(tmp_path, 0.8, 0.3, plants=2))
    data["reference_dp"].values[1] = np.nan
    data.coords["episode_metric"] = "plant", ["mean reward", "return"]
    data.coords["update_every"] = "plant", [0, 50]
    add_scores(data)
    write_results(tmp_path / "mixed.nc", data.isel(frequency=[0]))
    text = unescape(make_report(tmp_path / "mixed.nc"))
    assert "FIFO[Uniform] scored highest: return −1." in text
    assert "The mean of all 60 training episodes or the last 6 training rounds of each run" in text
    assert "on the scale μᵣ the first and the last are 0 and 1." in text
    write_results(tmp_path / "alone.nc", data.isel(plant=[1], frequency=[0]))
    assert "on the scale μᵣ" not in make_report(tmp_path / "alone.nc")


def test_few_seeds_are_too_few(tmp_path: Path) -> None:
    headline, text = conclusion(study(tmp_path, 0.3, 0.9, seeds=3))
    assert headline == "FULL[PER] scored highest, but there are too few seeds to be sure"
    assert "3 seeds are too few for a claim" in text


def test_only_what_was_run_everywhere_is_ranked_over_all(tmp_path: Path) -> None:
    path = study(tmp_path, 0.6, 0.9, 0.7)
    material = read_material(path)
    data = material.data.copy(deep=True)
    data["reward"].loc[{"strategy": "FULL[PER]", "frequency": 100.0}] = np.nan
    add_scores(data)
    write_results(path, data)
    material = read_material(path)
    assert [one.series.strategy for one in over_points(material, 0).standings] == ["Resv[Uniform]", "FIFO[Uniform]"]
    assert at_point(material, Point(0, 0, 0))[0].series.strategy == "FULL[PER]"


def test_failed_runs_are_counted_and_left_out(report: Path) -> None:
    material = read_material(report.parent)
    text = summarise(material, {point: at_point(material, point) for point in material.points()}).counted
    assert f"1 run failed (a reward that is not finite): 1 of DDPG {HOSTILE}" in text
    point, failed = Point(0, 1, 1), material.series[3]
    assert (failed.strategy, len(material.runs(point, failed, True))) == (HOSTILE, 6)
    standing = next(one for one in at_point(material, point) if one.series == failed)
    assert standing.seeds == 5
    assert standing.behind is not None
    assert standing.behind.pairs == 5


def test_names_from_files_are_escaped_everywhere(report: Path) -> None:
    html = report.read_text(encoding="utf-8")
    assert HOSTILE not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    # Besides the two scripts that the policy names there are only scripts that hold data.
    assert len(re.findall(r"<script>", html)) == 2
    assert len(re.findall(r"script-src 'sha256-[^']+' 'sha256-[^']+';", unescape(html))) == 1


def test_a_page_is_small_and_names_nothing_outside(report: Path) -> None:
    html = report.read_text(encoding="utf-8")
    assert len(html.encode()) < LARGEST
    assert not re.findall(r"<(?:link|img|iframe|script)[^>]+(?:src|href)=", html)


def test_a_page_that_would_be_too_large_goes_without_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = study(tmp_path, 0.6, 0.9, seeds=5)
    data = read_results(path)
    add_snapshots(tmp_path, data)
    write_results(path, data)
    whole = make_report(tmp_path)
    assert 'id="policies-1"' in whole
    assert 'id="buffers-1"' in whole
    monkeypatch.setattr(assembly, "LARGEST", len(whole.encode()) - 1000)
    smaller = make_report(tmp_path)
    assert 'id="policies-1"' not in smaller
    assert 'id="buffers-1"' in smaller
    assert "Policies and values: Its pictures are left out" in smaller


def test_dynamic_programming_is_shown_where_the_run_keeps_it_and_missed_where_not(report: Path) -> None:
    said = unescape(report.read_text(encoding="utf-8"))
    assert "Dynamic programming is not shown of PendulumDCSC at 50 Hz: the run holds none" in said
    assert "PendulumDCSC, 100 Hz, dynamic programming" in said
    assert "PendulumDCSC, 50 Hz, dynamic programming" not in said


def test_without_results_there_is_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["report", str(tmp_path)])
    assert end.value.code == 2
    assert "holds no results.nc" in capsys.readouterr().err
    with pytest.raises(UserError, match="no such file"):
        make_report(tmp_path / "results.nc")


def test_a_report_is_made_anew_in_its_place_and_written_over_no_other_file(report: Path, tmp_path: Path) -> None:
    shutil.copy(report.parent / "results.nc", tmp_path)
    for _ in range(2):
        show_report(tmp_path, None)
    (tmp_path / "study.toml").write_text("mine")
    with pytest.raises(UserError, match="study.toml exists already; remove it or choose another --output"):
        show_report(tmp_path, tmp_path / "study.toml")
    assert (tmp_path / "study.toml").read_text() == "mine"


def maps(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The squares of both kinds of maps, by kind."""
    material = read_material(path)
    standings = {point: at_point(material, point) for point in material.points()}
    sections = responses_section(material), strategies_section(material, standings)
    return {one.key: [trace for panel in one.panels for trace in panel.figure["data"]] for one in sections}


def test_a_map_needs_two_ways_of_keeping_that_met_two_of_replaying(tmp_path: Path) -> None:
    (tmp_path / "three").mkdir()
    (tmp_path / "four").mkdir()
    assert not maps(study(tmp_path / "three", 0.9, 0.8, 0.7))["strategies"], "two of three fill a row by themselves"
    four = study(tmp_path / "four", 0.9, 0.8, 0.7, 0.6)
    assert not maps(four)["strategies"], "FULL has not met Uniform"
    data = read_results(four)
    names = ["FIFO[Uniform]", "FULL[PER]", "FULL[Uniform]", "FIFO[PER]"]
    write_results(tmp_path / "crossed.nc", data.assign_coords(strategy=names))
    assert len(maps(tmp_path / "crossed.nc")["strategies"]) == 4 * 2


def test_a_colour_means_the_same_in_all_maps_of_a_page(report: Path, tmp_path: Path) -> None:
    scaled = maps(report.parent)
    assert scaled["responses"]
    assert scaled["strategies"]
    assert {(one["zmin"], one["zmax"]) for kind in scaled.values() for one in kind} == {(0.0, 1.0)}
    data = read_results(report.parent / "results.nc")
    data["reference_dp"][:] = np.nan
    add_scores(data)
    write_results(tmp_path / "results.nc", data.sel(plant=["Magman"]))
    raw = maps(tmp_path / "results.nc")
    assert {one["textfont"]["color"] for one in scaled["responses"]} == {"#000000", "#ffffff"}
    inks = sorted((one["z"][0][0], one["textfont"]["color"]) for one in scaled["responses"])
    assert [color for _, color in inks] == sorted((color for _, color in inks), reverse=True), "white on the dark ones"
    words = [" ".join(responses_section(read_material(path)).lead) for path in (report.parent, tmp_path)]
    assert "dynamic programming" in words[0]
    assert "rewards of one plant" not in words[0]
    assert "dynamic programming" not in words[1]
    assert "rewards of one plant" in words[1]
    spans = {(one["zmin"], one["zmax"]) for kind in raw.values() for one in kind}
    assert len(spans) == 1
    ((low, high),) = spans
    values = [one["z"][0][0] for one in raw["responses"]]
    assert (low, high) == pytest.approx((min(values), max(values)))


def test_a_column_of_the_table_has_one_precision(tmp_path: Path) -> None:
    """Narrow intervals need more digits than wide ones; beside each other all have as many."""
    material = read_material(study(tmp_path, 0.9, 0.899, 0.3))
    standings = {point: at_point(material, point) for point in material.points()}
    spread = standings[Point(0, 0, 0)]
    wide = spread[2]._replace(score=Interval(0.3, 0.1, 0.5, False))
    narrow = spread[1]._replace(score=Interval(0.899, 0.8981, 0.8995, False))
    (table,) = scores_section(material, {Point(0, 0, 0): [spread[0], narrow, wide]}).tables
    for column in ("final [95 %]", "behind the best, seed by seed [95 %]"):
        cells = [row.cells[list(table.heads).index(column)] for row in table.rows]
        digits = {len(each) for cell in cells for each in re.findall(r"\.(\d+)", cell)}
        assert len(digits) == 1, cells


def test_scores_of_a_plant_can_be_compared_between_panels(report: Path) -> None:
    material = read_material(report.parent)
    standings = {point: at_point(material, point) for point in material.points()}
    spans: dict[int, set[tuple[float, float]]] = {}
    for panel in scores_section(material, standings).panels:
        spans.setdefault(panel.places["plant"], set()).add(tuple(panel.figure["layout"]["xaxis"]["range"]))
    assert len(spans) == 2
    for plant, (span,) in spans.items():
        finals = np.concatenate([
            material.final(point, one.series) for point, ranked in standings.items() if point.plant == plant
            for one in ranked
        ])  # fmt: skip
        assert span[0] < np.nanmin(finals)
        assert span[1] > max(1.0, np.nanmax(finals))


def test_plotly_knows_every_property_of_every_figure(report: Path) -> None:
    """Figures are written as dictionaries, which nothing checks when a report is made."""
    figures = re.findall(r'<script type="application/json">(.*?)</script>', report.read_text(), re.DOTALL)
    for figure in figures:
        go.Figure(json.loads(figure))
    assert len(figures) > 60


def test_long_lists_end_with_how_many_others_there_are() -> None:
    assert some(["a", "b", "c"], 3) == "a, b and c"
    assert some(["a", "b", "c"], 2) == "a, b and 1 other"
    assert some(["a", "b", "c"], 1) == "a and 2 others"
