"""Text, tables and squares of a report, against numbers that are known."""

import json
import re
import shutil
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
import xarray as xr

from replaybench.data.record import write_record
from replaybench.experiments.dataset import AXES, add_scores
from replaybench.experiments.results_file import read_results, write_results
from replaybench.experiments.statistics import Interval
from replaybench.reports.page import report as assembly
from replaybench.reports.page.report import LARGEST, make_report, write_report
from replaybench.reports.page.report_data import Point, read_report_data
from replaybench.reports.page.scores import responses_section, scores_section, strategies_section
from replaybench.reports.page.summary import summarise
from replaybench.runtime.errors import UserError
from tests.helpers.commands import Patch
from tests.helpers.made_results import HOSTILE, made_results
from tests.helpers.made_snapshots import ROUNDS, add_snapshots
from tests.helpers.tiers import slow


def study(folder: Path, *ends: float, seeds: int = 8, plants: int = 1) -> Path:
    """Write results of a strategy for each end, at 50 and 100 Hz."""
    names = ["FIFO[Uniform]", "FULL[PER]", "Resv[Uniform]", "FIFO[PER]"][: len(ends)]
    data = made_results(
        ["PendulumDCSC", "Magman"][:plants], ["DDPG"], names, [0.0], [50.0, 100.0],
        seeds=seeds, episodes=60, ends=lambda plant, learner, strategy, noise, rate: ends[strategy],
    )  # fmt: skip
    folder.mkdir(exist_ok=True)
    write_results(folder / "results.nc", data)
    return folder / "results.nc"


def changed(path: Path, change: Callable[[xr.Dataset], Any], name: str = "changed.nc") -> Path:
    data = read_results(path)
    data["episode_steps"] = xr.full_like(data["reward"], 200.0)
    data = found if isinstance(found := change(data), xr.Dataset) else data
    add_scores(data)
    write_results(path.with_name(name), data)
    return path.with_name(name)


def with_snapshots(folder: Path, data: xr.Dataset) -> None:
    add_snapshots(folder, data)
    write_results(folder / "results.nc", data)


def conclusion(path: Path) -> tuple[str, str]:
    found = summarise(read_report_data(path)).conclusions[0]
    return found.headline, " ".join(found.sentences)


BETTER = [
    "Highest score by condition: FULL[PER] in 2 (of 2).",
    "Significant differences from FIFO[Uniform]: FULL[PER] at noise 0, ",
]


@pytest.mark.parametrize(
    ("ends", "seeds", "headline", "words"),
    [
        (
            (0.6, 0.9, 0.7),
            8,
            "FULL[PER] and Resv[Uniform] end significantly higher than FIFO[Uniform] in 2 of 2",
            BETTER,
        ),
        ((0.8, 0.8), 8, "No significant difference from FIFO[Uniform] (smallest p: ", []),
        ((0.3, 0.9), 3, "No significant difference from FIFO[Uniform] (smallest p: ", []),
    ],
)
def test_the_headline(ends: tuple[float, ...], seeds: int, headline: str, words: list[str], tmp_path: Path) -> None:
    found, text = conclusion(study(tmp_path, *ends, seeds=seeds))
    assert found.startswith(headline)
    for each in words:
        assert each in text
    assert ("3 seeds cannot decide this, 6 or more can" in found) == (seeds == 3)


@pytest.mark.slow
def test_equal_scores_are_called_equal(tmp_path: Path) -> None:
    """As those of buffers that never fill."""

    def alike(data: xr.Dataset) -> None:
        data["reward"].values[:, :, 1] = data["reward"].values[:, :, 0]

    path = changed(study(tmp_path, 0.8, 0.8, 0.3), alike)
    headline, _ = conclusion(path)
    assert headline == "Resv[Uniform] ends significantly lower than FIFO[Uniform] in 2 of 2 conditions"
    (table,) = scores_section(read_report_data(path)).tables
    assert {row.cells[-2] for row in table.rows if row.cells[2] == "FULL[PER]"} == {"same scores"}
    headline, _ = conclusion(changed(path, lambda data: data.isel(strategy=[0, 1]), "all.nc"))
    assert headline.startswith("No significant difference from FIFO[Uniform]: equal rewards in all episodes")


@pytest.mark.slow
def test_learners_that_do_not_beat_random_control_are_the_headline(tmp_path: Path) -> None:
    """If only one condition is so, the conclusion about the other stands."""

    def vain(data: xr.Dataset) -> None:
        data["discount"] = ("plant", "learner", "frequency"), np.full((1, 1, 2), 0.8)
        data["reference_lqr"] = data["reference_random"] + 0.5

    path = changed(study(tmp_path, -0.5, -0.8), vain)
    headline, text = conclusion(path)
    assert headline == "No learner beats random control"
    assert "learners end at −2.68 to −2.43; random control −2.00, linear-quadratic regulator −1.50 and dynamic" in text
    assert "highest" not in text
    assert 0 < text.index("the discount") < text.index("the length of the run") < text.index("exploration")
    page = unescape(make_report(path))
    assert "(not above random control)<" in page
    assert re.search("random control</td>.*>0.00<", page)
    partly = changed(path, lambda data: data["reward"].loc[{"frequency": 50.0}].__iadd__(1.0), "partly.nc")
    headline, text = conclusion(partly)
    assert not headline.startswith("No learner")
    assert "No learner beats random control at noise 0, 100 Hz." in text


@pytest.mark.slow
def test_small_rewards_and_references_are_not_written_as_0(tmp_path: Path) -> None:
    def tiny(data: xr.Dataset) -> xr.Dataset:
        data["reference_dp"][:] = np.nan
        for name in ("reward", "reference_random"):
            data[name] *= 1e-4
        data["reference_lqr"] = data["reference_random"] / 1000
        return data.isel(frequency=[0])

    page = unescape(make_report(changed(study(tmp_path, 0.8, 0.3), tiny)))
    assert not re.search(r"−0\.0+(?!\d)", page[page.index("<main") :])


def test_delays_are_an_axis_of_the_maps_of_responses(tmp_path: Path) -> None:
    data = made_results(
        ["Magman", "Magman:delay=0.01"], ["DDPG"], ["FIFO[Uniform]", "FULL[PER]"], [0.0], [50.0], seeds=3, episodes=60,
        ends=lambda plant, learner, strategy, noise, rate: 0.8 - 0.5 * plant - 0.1 * strategy,
    )  # fmt: skip
    write_results(tmp_path / "results.nc", data)
    section = responses_section(read_report_data(tmp_path / "results.nc"))
    assert [panel.title for panel in section.panels] == ["Magman, 50 Hz, FIFO[Uniform]", "Magman, 50 Hz, FULL[PER]"]
    figure = section.panels[0].figure
    assert figure["layout"]["xaxis"]["ticktext"] == ["0", "10"]
    scores = {one["x0"]: one["z"][0][0] for one in figure["data"]}
    assert scores[0] > scores[1] + 0.3
    assert "Magman, delay 10 ms, noise 0, 50 Hz: 0.2" in section.panels[0].words


@pytest.mark.slow
def test_runs_that_failed_at_once_are_counted(tmp_path: Path) -> None:
    """They have steps and no reward: all of one strategy, and only at 100 Hz."""

    def fail(data: xr.Dataset) -> None:
        data["reward"].values[:, :, 1, :, 0] = data["reward"].values[..., 1, :, :] = np.nan
        data["episode_steps"].values[:, :, 0, :, 1] = np.nan

    text = unescape(make_report(changed(study(tmp_path, 0.8, 0.3), fail)))
    assert "16 runs failed (a reward that is not finite): 16 of FULL[PER]" in text
    assert "at noise 0 and at 50 and 100 Hz, though not in every combination of these: 3 cells of 8 seeds" in text


@pytest.mark.slow
def test_a_condition_in_which_every_run_failed_does_not_change_the_scale_of_others(tmp_path: Path) -> None:
    path = changed(study(tmp_path, 0.8, 0.3), lambda data: data["reward"].values[:, :, :, :, 0].fill(np.nan))
    assert responses_section(read_report_data(path)).notes == []
    assert "FULL[PER] ends significantly lower than FIFO[Uniform]" in conclusion(path)[0]
    no_scale = changed(path, lambda data: data["reference_dp"].values.fill(np.nan), "no_scale.nc")
    assert "FULL[PER] ends significantly lower than FIFO[Uniform]" in conclusion(no_scale)[0], "rewards of one rate"
    nothing = changed(path, lambda data: data["reward"].values.fill(np.nan), "nothing.nc")
    with pytest.raises(UserError, match="every run of .* failed before its first reward was a number"):
        read_report_data(nothing)


def test_rise_times_count_runs_that_never_rose(tmp_path: Path) -> None:
    (table,) = scores_section(read_report_data(study(tmp_path, 0.5, 0.3))).tables
    assert {row.cells[-1] for row in table.rows} == {"60 (8 never)", ""}, "references have no rise"


@pytest.mark.slow
def test_an_interrupted_sweep_is_called_incomplete(tmp_path: Path) -> None:
    def interrupt(data: xr.Dataset) -> None:
        data["reward"].values[..., 1, :, :] = data["episode_steps"].values[..., 1, :, :] = np.nan
        blocks = (*AXES, "block")  # cells have an id before they have an end
        data.coords["cell"] = blocks, np.array([*"abcd"], object).reshape(1, 1, 2, 1, 2, 1)
        data.coords["started"] = blocks, np.array(["2026", "", "2026", ""], object).reshape(1, 1, 2, 1, 2, 1)

    changed(study(tmp_path, 0.8, 0.3), interrupt, "results.nc")
    facts = {"study": "t", "complete": False, "cells": {key: {} for key in "abcd"}}
    (tmp_path / "provenance.json").write_text(json.dumps(facts))
    text = unescape(make_report(tmp_path))
    assert "at noise 0 and at 50 Hz: 2 cells of 8 seeds, 16 runs in all, of 60 episodes each." in text
    assert "The sweep is not complete: 2 of its 4 cells had finished." in text


@pytest.mark.slow
def test_plants_without_a_reference_are_scored_by_their_own_metric(tmp_path: Path) -> None:
    """Here by returns of a tenth of the iterations; the other plant's scores are of episodes."""

    def mix(data: xr.Dataset) -> xr.Dataset:
        data["reference_dp"].values[1] = np.nan
        data.coords["episode_metric"] = "plant", ["mean reward", "return"]
        data.coords["update_every"] = "plant", [0, 50]
        return data.isel(frequency=[0])

    path = changed(study(tmp_path, 0.8, 0.3, plants=2), mix)
    text = unescape(make_report(path))
    assert "FIFO[Uniform] has the highest score: −1." in text
    assert "The mean of all 60 training episodes or the last 6 training iterations of each run" in text
    assert "on the scale μᵣ the first and the last are 0 and 1." in text
    assert "on the scale μᵣ" not in make_report(changed(path, lambda data: data.isel(plant=[1]), "alone.nc"))


def test_each_name_of_a_filter_looks_as_its_curves_and_as_no_other(tmp_path: Path) -> None:
    """There are eight colours; a ninth strategy has the first one's colour with other dashes."""
    names = [f"Resv({100 * number})[Uniform]" for number in range(1, 11)]
    data = made_results(["Magman"], ["DDPG"], names, [0.0], [50.0], seeds=2, episodes=10, ends=lambda *_: 0.5)
    write_results(tmp_path / "results.nc", data)
    [only] = assembly.filters(read_report_data(tmp_path))
    looks = [(option.color, option.line) for option in only.options]
    assert len(set(looks)) == 10
    assert (looks[0][1], looks[0][0]) == ("none", looks[8][0])


def test_failed_runs_are_counted_and_left_out(report: Path) -> None:
    material = read_report_data(report.parent)
    text = summarise(material).counted
    assert f"1 run failed (a reward that is not finite): 1 of DDPG {HOSTILE}" in text
    point, failed = Point(0, 1, 1), material.series[3]
    assert (failed.strategy, len(material.runs(point, failed))) == (HOSTILE, 6)
    standing: Any = next(one for one in material.standings[point] if one.series == failed)
    assert standing.seeds == standing.versus.effect.n == 5


def test_dynamic_programming_is_shown_if_the_run_keeps_it(report: Path) -> None:
    text = unescape(report.read_text(encoding="utf-8"))
    assert "Dynamic programming is not shown for PendulumDCSC at 50 Hz" in text
    assert [f"PendulumDCSC, {rate} Hz, dynamic programming" in text for rate in (50, 100)] == [False, True]


def test_a_page_is_small_escapes_names_and_names_nothing_outside(report: Path) -> None:
    """There are only the two scripts that the policy names, and scripts that hold data."""
    html = report.read_text(encoding="utf-8")
    assert HOSTILE not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert len(re.findall(r"<script>", html)) == 2
    assert len(re.findall(r"script-src 'sha256-[^']+' 'sha256-[^']+';", unescape(html))) == 1
    assert len(html.encode()) < LARGEST
    assert not re.findall(r"<(?:link|img|iframe|script)[^>]+(?:src|href)=", html)


@pytest.mark.slow
def test_a_page_that_would_be_too_large_has_no_pictures(tmp_path: Path, monkeypatch: Patch) -> None:
    with_snapshots(tmp_path, read_results(study(tmp_path, 0.6, 0.9, seeds=5)))
    whole = make_report(tmp_path)
    assert 'id="policies-1"' in whole
    assert 'id="buffers-1"' in whole
    monkeypatch.setattr(assembly, "LARGEST", len(whole.encode()) - 1000)
    smaller = make_report(tmp_path)
    assert 'id="policies-1"' not in smaller
    assert 'id="buffers-1"' in smaller
    assert "Policies and values: Its pictures are left out" in smaller


def test_a_report_replaces_itself_and_no_other_file(tmp_path: Path) -> None:
    study(tmp_path, 0.9, 0.8)
    for _ in range(2):
        write_report(tmp_path, None)
    (tmp_path / "study.toml").write_text("mine")
    with pytest.raises(UserError, match="study.toml exists already; remove it or choose another --output"):
        write_report(tmp_path, tmp_path / "study.toml")
    assert (tmp_path / "study.toml").read_text() == "mine"


def maps(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the squares of response surfaces and strategy maps."""
    material = read_report_data(path)
    sections = responses_section(material), strategies_section(material)
    return {one.key: [trace for panel in one.panels for trace in panel.figure["data"]] for one in sections}


def test_a_map_needs_two_retentions_with_the_same_two_samplings(tmp_path: Path) -> None:
    assert not maps(study(tmp_path / "three", 0.9, 0.8, 0.7))["strategies"]
    four = study(tmp_path / "four", 0.9, 0.8, 0.7, 0.6)
    assert not maps(four)["strategies"], "there is no FULL[Uniform]"
    names = ["FIFO[Uniform]", "FULL[PER]", "FULL[Uniform]", "FIFO[PER]"]
    assert len(maps(changed(four, lambda data: data.assign_coords(strategy=names)))["strategies"]) == 4 * 2


@pytest.mark.slow
def test_a_colour_means_the_same_in_all_maps_of_a_page(report: Path, tmp_path: Path) -> None:
    scaled = maps(report.parent)
    assert all(scaled.values())
    assert {(one["zmin"], one["zmax"]) for squares in scaled.values() for one in squares} == {(0.0, 1.0)}
    inks = sorted((one["z"][0][0], one["textfont"]["color"]) for one in scaled["responses"])
    colors = [color for _, color in inks]
    assert set(colors) == {"#000000", "#ffffff"}
    assert colors == sorted(colors, reverse=True), "white on the dark ones"

    def no_reference(data: xr.Dataset) -> xr.Dataset:
        data["reference_dp"][:] = np.nan
        return data.sel(plant=["Magman"])

    shutil.copy(report.parent / "results.nc", tmp_path)
    path = changed(tmp_path / "results.nc", no_reference)
    raw, words = maps(path), [" ".join(responses_section(read_report_data(one)).lead) for one in (report.parent, path)]
    told = [[text in one for text in ("dynamic programming", "rewards of one plant")] for one in words]
    assert told == [[True, False], [False, True]]
    ((low, high),) = {(one["zmin"], one["zmax"]) for squares in raw.values() for one in squares}
    values = [one["z"][0][0] for one in raw["responses"]]
    assert (low, high) == pytest.approx((min(values), max(values)))


def test_a_column_of_the_table_has_one_precision(tmp_path: Path) -> None:
    material = read_report_data(study(tmp_path, 0.9, 0.899, 0.3))
    first, second, third = material.standings[Point(0, 0, 0)]
    wide = third._replace(score=Interval(0.3, 0.1, 0.5, False))
    narrow = second._replace(score=Interval(0.899, 0.8981, 0.8995, False))
    vars(material)["standings"] = {Point(0, 0, 0): [first, narrow, wide]}
    (table,) = scores_section(material).tables
    for column in ("final [95 %]", "− FIFO[Uniform], seed by seed [95 %]"):
        cells = [row.cells[list(table.heads).index(column)] for row in table.rows]
        assert len({len(each) for cell in cells for each in re.findall(r"\.(\d+)", cell)}) == 1, cells


def test_panels_of_a_plant_share_their_axis_of_scores(report: Path) -> None:
    material = read_report_data(report.parent)
    spans: dict[int, set[tuple[float, float]]] = {}
    for panel in scores_section(material).panels:
        spans.setdefault(panel.places["plant"], set()).add(tuple(panel.figure["layout"]["xaxis"]["range"]))
    for plant, (span,) in spans.items():
        ranked = [(point, one) for point, each in material.standings.items() if point.plant == plant for one in each]
        finals = np.concatenate([material.final(point, one.series) for point, one in ranked])
        assert span[0] < np.nanmin(finals)
        assert span[1] > max(1.0, np.nanmax(finals))


def test_plotly_accepts_every_property_of_every_figure(report: Path) -> None:
    figures = re.findall(r'<script type="application/json">(.*?)</script>', report.read_text(), re.DOTALL)
    for figure in figures:
        go.Figure(json.loads(figure))
    assert len(figures) > 60


CELL, SHAPE = {"plant": "none", "parameters": {}, "fingerprint": ""}, "origin is not of shape"


@pytest.mark.parametrize(
    ("cell", "origin", "words"), [(CELL, (3,), SHAPE), *slow([(CELL, (), SHAPE), (3, (1, 3, 10), "is missing")])]
)
def test_damaged_snapshots_are_one_line(cell: Any, origin: tuple[int, ...], words: str, tmp_path: Path) -> None:
    with_snapshots(tmp_path, read_results(study(tmp_path, 0.5, seeds=2)).isel(frequency=[1]))
    arrays = {"origin": np.zeros(origin, np.int64), "collected": np.zeros((1, 10)), "exploration": np.zeros((1, 3))}
    (path,) = tmp_path.glob("cells/*/snapshots.h5")
    write_record(path, "snapshots", {"cell": cell, "rounds": ROUNDS}, arrays)
    with pytest.raises(UserError, match=words):
        make_report(tmp_path)
