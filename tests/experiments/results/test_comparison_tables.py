"""Comparisons of strategies, learners and conditions: paired seeds, failed runs counted, notes on blanks."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from drawn_studies import USABLE, stored
from rich.console import Console

from replaybench.baselines.references import Reference
from replaybench.experiments.comparison import Axis, Comparison, compared, comparison_tables
from replaybench.experiments.study import Cell, Study
from replaybench.reports.figures.distributions import paired_differences, performance_profiles
from replaybench.runtime.errors import UserError

SCALED = dataclasses.replace(USABLE, random=-100.0, zero=-90.0, dp=0.0, dp_mean=0.0)
RAW = dataclasses.replace(SCALED, dp=np.nan, dp_mean=np.nan, nodes=(), rule="")
STRATEGIES = ("FIFO[Uniform]", "FULL[PER]", "Resv[Uniform]")


def results(path: Path, reference: Reference = SCALED, strategies: tuple[str, ...] = STRATEGIES) -> xr.Dataset:
    """Six seeds with large shared differences: FULL[PER] is 5 better, its last seed failed; Resv is no better."""
    study = Study(name="t", plants=("PendulumDCSC",), strategies=strategies, seeds=6, episodes=20)
    luck = np.array([-80.0, -60.0, -40.0, -30.0, -20.0, -10.0])[:, None]
    rng = np.random.Generator(np.random.PCG64(7))

    def rewards(cell: Cell) -> np.ndarray:
        reward = luck + rng.normal(0.0, 0.3, (6, 20)) + 5.0 * (cell.strategy == "FULL[PER]")
        if cell.strategy == "FULL[PER]":
            reward[5, 3:] = np.inf
        return reward

    return stored(path, study, rewards, reference)


def rows_of(data: xr.Dataset) -> dict[str, Comparison]:
    return {row.strategy: row for row in compared(data.sel(plant="PendulumDCSC"), STRATEGIES[0])}


def shown(data: xr.Dataset, baseline: str | None = None, width: int = 200) -> str:
    printed = io.StringIO()
    for table in comparison_tables(data, baseline):
        Console(width=width, file=printed).print(table)
    return printed.getvalue()


def joined(one: xr.Dataset, other: xr.Dataset, axis: str) -> xr.Dataset:
    return xr.concat([one, other], axis, data_vars="minimal", coords="minimal", compat="override")


def without(data: xr.Dataset, **place: object) -> xr.Dataset:
    """Remove the runs at a place."""
    for name in ("reward", "mu_final", *(["episode_steps"] if "seed" not in place else [])):
        data[name].loc[place] = np.nan
    return data


@pytest.mark.parametrize(("reference", "unit"), [(SCALED, 0.05), (RAW, 5.0)])
def test_shared_differences_cancel_and_failed_runs_are_counted(
    tmp_path: Path, reference: Reference, unit: float
) -> None:
    rows = rows_of(results(tmp_path, reference))
    per, resv = rows["FULL[PER]"], rows["Resv[Uniform]"]
    assert rows["FIFO[Uniform]"].effect is None
    assert per.effect is not None
    assert resv.effect is not None
    assert (per.failed, per.effect.n, resv.failed, resv.effect.n) == (1, 5, 0, 6)
    assert per.effect.estimate == pytest.approx(unit, rel=0.1)
    low, high = per.effect.interval()
    assert 0 < low < unit < high  # the runs themselves differ by up to seventy
    assert per.chance == pytest.approx(2 / 16)  # the least p value of five pairs and two tests
    assert abs(resv.effect.estimate) < 0.1 * unit
    assert per.better is not None
    assert 0.5 < per.better.mean < 0.7


def test_tables_name_the_baseline_and_the_test(tmp_path: Path) -> None:
    data = results(tmp_path)
    text = shown(data)
    assert "compared with FIFO[Uniform]" in text
    assert "sign-flip test" in text
    assert re.search(r" 0\.125 +6 ", text), "with one more pair the difference would be significant"
    assert "(61 %)" in text  # share of further runs above the worst of six
    assert "− Resv[Uniform] [95 %]" in shown(data, "resv[uniform]")
    with pytest.raises(UserError, match="FULL\\[Uniform\\]"):
        comparison_tables(data, "FULL[Uniform]")
    _, _, note = shown(data, width=80).partition("differences are of")
    *whole, _ = note.strip().splitlines()
    assert min(len(line.strip()) for line in whole[1:]) > 60, "the footnote fills its lines"


def test_points_that_were_not_run_do_not_decide_the_measure(tmp_path: Path) -> None:
    data = results(tmp_path).reindex(noise=[0.0, 0.02], frequency=[50.0, 100.0])
    assert "PendulumDCSC: μ_final of all 20 episodes" in shown(data)
    assert "PendulumDCSC: mean reward of all 20 episodes" in shown(results(tmp_path, RAW))


def test_a_single_strategy_has_no_comparison(tmp_path: Path) -> None:
    data = results(tmp_path, strategies=STRATEGIES[:1])
    assert comparison_tables(data) == []
    assert paired_differences(data.sel(plant="PendulumDCSC")) is None
    with pytest.raises(UserError, match="no other .* was run with which"):
        comparison_tables(data, STRATEGIES[0])


def test_figures_show_pairs_and_shares_of_all_runs(tmp_path: Path) -> None:
    data = results(tmp_path).sel(plant="PendulumDCSC")
    figure = paired_differences(data)
    assert figure is not None
    (axes,) = figure.axes
    assert axes.get_title() == "noise 0, 50 Hz, n = 5 to 6"
    assert [label.get_text() for label in axes.get_yticklabels()] == list(STRATEGIES[1:])
    figure = performance_profiles(data)
    assert figure is not None
    heights = [np.asarray(line.get_ydata())[0] for line in figure.axes[0].lines]
    assert heights == pytest.approx([1.0, 5 / 6, 1.0])  # a failed run is above nothing


def test_a_plant_without_the_studys_first_strategy_has_its_own_baseline(tmp_path: Path) -> None:
    data = without(results(tmp_path), strategy=STRATEGIES[0])
    (table,) = comparison_tables(data)
    assert str(table.title).endswith(f"compared with {STRATEGIES[1]}")
    with pytest.raises(UserError, match="no other .* was run with which"):
        comparison_tables(data, STRATEGIES[0])


def test_a_run_that_failed_before_any_reward_counts_as_failed(tmp_path: Path) -> None:
    row = rows_of(without(results(tmp_path), strategy="FULL[PER]", seed=4))["FULL[PER]"]
    assert (row.failed, len(row.scores)) == (2, 6)


def test_learners_are_compared_where_strategies_do_not_vary(tmp_path: Path) -> None:
    data = results(tmp_path)
    data = data.rename(learner="strategy", strategy="learner").assign_coords(strategy=["FIFO[PER]"])
    text = shown(data)
    assert "compared with FIFO[Uniform]" in text  # the name of a learner here
    assert re.search(r"FULL\[PER\] .* \+0\.05.* 0\.125 ", text)
    figure = paired_differences(data.sel(plant="PendulumDCSC"))
    assert figure is not None
    assert len(figure.axes[0].get_yticklabels()) == 2
    assert "compared with Resv[Uniform]" in shown(data, "Resv[Uniform]")


@pytest.mark.parametrize(
    ("axis", "values"), [("noise", [0.0, 0.1]), ("frequency", [50.0, 100.0]), ("plant", ["a", "b"])]
)
@pytest.mark.parametrize("reference", [SCALED, RAW])
def test_conditions_are_compared_if_scores_have_one_scale(
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
    row = dict(zip(table.headings, map(str, table.rows[1]), strict=True))
    (difference,) = [text for heading, text in row.items() if heading.startswith("−")]
    assert difference.startswith("+1.000" if reference is RAW else "+0.010")
    assert row["p"] == "0.031"


def test_equal_runs_are_not_tested(tmp_path: Path) -> None:
    data = results(tmp_path)
    rows = rows_of(data)
    for name in ("reward", "mu_final"):
        data[name].loc[{"strategy": "Resv[Uniform]"}] = data[name].sel(strategy="FIFO[Uniform]")
    same = rows_of(data)
    assert (rows["FULL[PER]"].chance, same["FULL[PER]"].chance) == (2 / 16, 1 / 16)
    assert [same[name].same for name in STRATEGIES] == [False, False, True]
    text = shown(data)
    assert re.search(r"Resv\[Uniform\] .* same runs ", text)
    assert "as of buffers that never fill" in text
    assert "blank" not in text
    data["shared_from"].loc[{"strategy": "Resv[Uniform]"}] = "another"
    assert "their buffers never filled" in shown(data)
    figure = paired_differences(data.sel(plant="PendulumDCSC"))
    assert figure is not None
    assert [text.get_text() for text in figure.axes[0].texts] == [" same runs"]


def test_blanks_have_a_note(tmp_path: Path) -> None:
    data = results(tmp_path)
    other = without(data.copy(deep=True).assign_coords(learner=["SAC"]), strategy=STRATEGIES[0])
    text = shown(joined(data, other, "learner"))
    assert "blank: FIFO[Uniform] was not run with SAC" in text
    assert "other comparisons: --compare learner" in text
