"""How strategies compare in tables and figures: pairs of seeds, failed runs counted, nothing compared with nothing."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from rich.console import Console

from replaybench.baselines.references import Reference
from replaybench.data.errors import UserError
from replaybench.data.provenance import Stopwatch, stint_facts
from replaybench.data.records.record import write_record
from replaybench.experiments.figures.paired_differences import paired_differences
from replaybench.experiments.figures.performance_profiles import performance_profiles
from replaybench.experiments.results.comparison_tables import Axis, compared, comparison_tables
from replaybench.experiments.results.dataset import assemble
from replaybench.experiments.training.study import Study

SCALED = Reference("PendulumDCSC", 50.0, 0.0, -100.0, 3.0, -90.0, np.nan, 0.0, 0.0, 0.0, 0.95, (3, 3), 3, 9, "paper")
RAW = dataclasses.replace(SCALED, dp=np.nan, dp_mean=np.nan, nodes=(), rule="")
STRATEGIES = ("FIFO[Uniform]", "FULL[PER]", "Resv[Uniform]")


def results(path: Path, reference: Reference, strategies: tuple[str, ...] = STRATEGIES) -> xr.Dataset:
    """Six seeds whose luck is shared and large: FULL[PER] is 5 better, its last seed failed; Resv is no better."""
    study = Study(name="t", plants=("PendulumDCSC",), strategies=strategies, seeds=6, episodes=20)
    luck = np.array([-80.0, -60.0, -40.0, -30.0, -20.0, -10.0])[:, None]
    rng = np.random.Generator(np.random.PCG64(7))
    for cell in study.cells():
        reward = luck + rng.normal(0.0, 0.3, (6, 20)) + 5.0 * (cell.strategy == "FULL[PER]")
        if cell.strategy == "FULL[PER]":
            reward[5, 3:] = np.inf
        arrays = {"reward": reward, "reward_greedy": reward[:, 9::10], "episode_steps": np.full_like(reward, 200)}
        write_record(path / cell.id / "scores.h5", "scores", stint_facts(Stopwatch().stints()), arrays)
    references = {(cell.plant, cell.frequency, cell.noise): reference for cell in study.cells()}
    return assemble(study.cells(), references, {cell.id: path / cell.id for cell in study.cells()})


@pytest.mark.parametrize(("reference", "unit"), [(SCALED, 0.05), (RAW, 5.0)])
def test_what_seeds_share_cancels_and_failed_runs_are_counted(
    tmp_path: Path, reference: Reference, unit: float
) -> None:
    rows = {
        row.strategy: row for row in compared(results(tmp_path, reference).sel(plant="PendulumDCSC"), STRATEGIES[0])
    }
    per, resv = rows["FULL[PER]"], rows["Resv[Uniform]"]
    assert rows["FIFO[Uniform]"].effect is None
    assert per.effect is not None
    assert resv.effect is not None
    assert (per.failed, per.effect.n, resv.failed, resv.effect.n) == (1, 5, 0, 6)
    assert per.effect.estimate == pytest.approx(unit, rel=0.1)
    low, high = per.effect.interval()
    assert 0 < low < unit < high  # though the runs themselves lie seventy apart
    assert per.chance == pytest.approx(2 / 16)  # five pairs, two comparisons: no test could say more
    assert abs(resv.effect.estimate) < 0.1 * unit
    assert per.better is not None
    assert 0.5 < per.better.mean < 0.7


def test_tables_name_the_baseline_and_say_what_the_test_is(tmp_path: Path) -> None:
    data = results(tmp_path, SCALED)
    told = shown(data, None)
    assert "compared with FIFO[Uniform]" in told
    assert "by flipped signs" in told
    assert re.search(r" 0\.125 +6 ", told), "five pairs cannot be sure, one more would be"
    assert "(61 %)" in told  # what the worst of six runs is good for
    assert "− Resv[Uniform] [95 %]" in shown(data, "resv[uniform]")
    with pytest.raises(UserError, match="FULL\\[Uniform\\]"):
        comparison_tables(data, "FULL[Uniform]")


def test_points_that_were_not_run_are_no_measure(tmp_path: Path) -> None:
    """A study of several grids leaves points of its axes empty: no reference is known there, and nothing was scored."""
    data = results(tmp_path, SCALED)
    data = data.reindex(noise=[0.0, 0.02], frequency=[50.0, 100.0])
    told = shown(data, None)
    assert "PendulumDCSC: μ_final of all 20 episodes" in told
    assert "PendulumDCSC: mean reward of all 20 episodes" in shown(results(tmp_path, RAW), None)


def test_the_footnote_fills_its_lines(tmp_path: Path) -> None:
    """Lines that are broken in the text would be broken again by a terminal of 80 columns, after a word or two."""
    stream = io.StringIO()
    console = Console(file=stream, width=80)
    for table in comparison_tables(results(tmp_path, SCALED), None):
        console.print(table)
    _, _, note = stream.getvalue().partition("differences are of")
    *whole, _ = note.strip().splitlines()
    assert len(whole) > 4
    assert min(len(line.strip()) for line in whole[1:]) > 60


def test_a_single_strategy_is_compared_with_nothing(tmp_path: Path) -> None:
    data = results(tmp_path, SCALED, STRATEGIES[:1])
    assert comparison_tables(data) == []
    assert paired_differences(data.sel(plant="PendulumDCSC")) is None
    with pytest.raises(UserError, match="nothing was run beside"):
        comparison_tables(data, STRATEGIES[0])


def test_figures_show_the_pairs_and_the_share_of_all_runs(tmp_path: Path) -> None:
    data = results(tmp_path, SCALED).sel(plant="PendulumDCSC")
    figure = paired_differences(data)
    assert figure is not None
    (axes,) = figure.axes
    assert axes.get_title() == "noise 0, 50 Hz, n = 5 to 6"
    assert [label.get_text() for label in axes.get_yticklabels()] == list(STRATEGIES[1:])
    figure = performance_profiles(data)
    assert figure is not None
    heights = [np.asarray(line.get_ydata())[0] for line in figure.axes[0].lines]
    assert heights == pytest.approx([1.0, 5 / 6, 1.0])  # a failed run is above nothing


def joined(one: xr.Dataset, other: xr.Dataset, axis: str) -> xr.Dataset:
    return xr.concat([one, other], axis, data_vars="minimal", coords="minimal", compat="override")


def shown(data: xr.Dataset, baseline: str | None) -> str:
    printed = io.StringIO()
    for table in comparison_tables(data, baseline):
        Console(width=200, file=printed).print(table)
    return printed.getvalue()


def test_a_plant_without_the_studys_first_strategy_is_compared_by_its_own(tmp_path: Path) -> None:
    data = results(tmp_path, SCALED)
    for name in ("reward", "episode_steps", "mu_final"):
        data[name].loc[{"strategy": STRATEGIES[0]}] = np.nan
    (table,) = comparison_tables(data)
    assert str(table.title).endswith(f"compared with {STRATEGIES[1]}")
    with pytest.raises(UserError, match="nothing was run beside"):
        comparison_tables(data, STRATEGIES[0])


def test_a_run_that_failed_before_any_reward_is_there(tmp_path: Path) -> None:
    data = results(tmp_path, SCALED)
    for name in ("reward", "mu_final"):
        data[name].loc[{"strategy": "FULL[PER]", "seed": 4}] = np.nan
    rows = {row.strategy: row for row in compared(data.sel(plant="PendulumDCSC"), STRATEGIES[0])}
    assert (rows["FULL[PER]"].failed, len(rows["FULL[PER]"].scores)) == (2, 6)


def test_learners_are_compared_where_strategies_do_not_vary(tmp_path: Path) -> None:
    data = results(tmp_path, SCALED)
    data = data.rename(learner="strategy", strategy="learner").assign_coords(strategy=["FIFO[PER]"])
    told = shown(data, None)
    assert "compared with FIFO[Uniform]" in told  # the name of a learner here
    assert re.search(r"FULL\[PER\] .* \+0\.05.* 0\.125 ", told)
    figure = paired_differences(data.sel(plant="PendulumDCSC"))
    assert figure is not None
    assert len(figure.axes[0].get_yticklabels()) == 2
    assert "compared with Resv[Uniform]" in shown(data, "Resv[Uniform]")


@pytest.mark.parametrize(
    ("axis", "values"), [("noise", [0.0, 0.1]), ("frequency", [50.0, 100.0]), ("plant", ["a", "b"])]
)
@pytest.mark.parametrize("reference", [SCALED, RAW])
def test_conditions_are_compared_as_far_as_scores_have_one_scale(
    tmp_path: Path, axis: Axis, values: list[float], reference: Reference
) -> None:
    one = results(tmp_path, reference, STRATEGIES[:1])
    other = one.copy(deep=True)
    for name in ("reward", "mu_final"):
        other[name] = other[name] + (1.0 if reference is RAW or name == "reward" else 0.01)
    data = joined(one.assign_coords({axis: values[:1]}), other.assign_coords({axis: values[1:]}), axis)
    if reference is RAW and axis != "noise":
        with pytest.raises(UserError, match="what varies there"):
            comparison_tables(data, axis=axis)
        return
    (table,) = comparison_tables(data) if axis != "plant" else comparison_tables(data, axis=axis)
    told = dict(zip(table.headings, map(str, table.rows[1]), strict=True))
    (difference,) = [text for heading, text in told.items() if heading.startswith("−")]
    assert difference.startswith("+1.000" if reference is RAW else "+0.010")
    assert told["p"] == "0.031"


def test_the_same_runs_are_no_difference(tmp_path: Path) -> None:
    """Nor a test: the others' p values are as if they were not there. What is blank has a note."""
    data = results(tmp_path, SCALED)
    rows = {row.strategy: row for row in compared(data.sel(plant="PendulumDCSC"), STRATEGIES[0])}
    for name in ("reward", "mu_final"):
        data[name].loc[{"strategy": "Resv[Uniform]"}] = data[name].sel(strategy="FIFO[Uniform]")
    same = {row.strategy: row for row in compared(data.sel(plant="PendulumDCSC"), STRATEGIES[0])}
    assert (rows["FULL[PER]"].chance, same["FULL[PER]"].chance) == (2 / 16, 1 / 16)
    assert [same[name].same for name in STRATEGIES] == [False, False, True]
    told = shown(data, None)
    assert re.search(r"Resv\[Uniform\] .* same runs ", told)
    assert "as of buffers that never fill" in told
    assert "blank" not in told
    data["shared_from"].loc[{"strategy": "Resv[Uniform]"}] = "another"
    assert "their buffers never filled" in shown(data, None)
    figure = paired_differences(data.sel(plant="PendulumDCSC"))
    assert figure is not None
    assert [text.get_text() for text in figure.axes[0].texts] == [" same runs"]


def test_what_has_nothing_to_compare_with_has_a_note(tmp_path: Path) -> None:
    data = results(tmp_path, SCALED)
    other = data.copy(deep=True).assign_coords(learner=["SAC"])
    for name in ("reward", "episode_steps", "mu_final"):
        other[name].loc[{"strategy": STRATEGIES[0]}] = np.nan
    told = shown(joined(data, other, "learner"), None)
    assert "blank: FIFO[Uniform] was not run with SAC" in told
    assert "other comparisons: --compare learner" in told
