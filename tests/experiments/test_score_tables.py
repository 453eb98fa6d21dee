"""Tables of scores and comparisons in terminals of all widths."""

import csv
import dataclasses
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import ANY, Mock

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure
from rich.console import Console

from benchmarks.evidence.rescore import rescored
from replaybench.baselines import references
from replaybench.baselines.references import Reference
from replaybench.cli.baseline import reference_table
from replaybench.envs.measures import MEASURES
from replaybench.envs.registry import make_plant
from replaybench.experiments import comparison
from replaybench.experiments.comparison import (
    Axis,
    against_rivals,
    beats_random,
    compared,
    comparison_tables,
    first_comparison,
    headline,
    no_learning,
    verdict,
)
from replaybench.experiments.dataset import add_scores
from replaybench.experiments.overview import screen
from replaybench.experiments.results_file import read_results, write_results
from replaybench.experiments.study import Cell
from replaybench.experiments.tables import measure_tables, score_tables
from replaybench.experiments.text_table import Collector, FittedTable
from replaybench.reports.figures.distributions import paired_differences, performance_profiles
from replaybench.reports.figures.style import style
from replaybench.runtime.errors import UserError
from replaybench.runtime.version import NUMERICS_VERSION
from tests.helpers.cells import small_study
from tests.helpers.drawn_studies import USABLE, stored

GOOD = dataclasses.replace(
    USABLE, lqr=-140.0, interpolated=-21.0, nodes=(280, 211), actions=15, sweeps=90, rule="converged", change=0.0031
)
HOPELESS = dataclasses.replace(GOOD, dp=-157.0, dp_mean=-157.0, change=np.nan)
NO_GRID = dataclasses.replace(GOOD, dp=np.nan, dp_mean=np.nan, nodes=(), rule="", change=np.nan)


def test_intervals_are_three_numbers_in_json_and_text_in_latex() -> None:
    table = FittedTable(("strategy", "score [95 %]", "seeds"), ["strategy"], title="all_plants")
    table.add("A_1", "-0.25 [−0.50, +0.10]", "1,200")
    table.add("B & C", "0.5 (no spread)", "")
    table.add("D", "same runs", "nan")
    found = Collector()
    found.print(table)
    first, second, third = json.loads(found.text("json"))
    assert first == {"strategy": "A_1", "score": -0.25, "score low": -0.5, "score high": 0.1, "seeds": 1200}
    assert second == {"strategy": "B & C", "score": 0.5, "score low": None, "score high": None, "seeds": None}
    assert (third["score"], third["seeds"]) == ("same runs", "nan")
    assert found.text("csv").splitlines()[2] == "B & C,0.5,,,"
    title, _, *lines = found.text("latex").splitlines()
    assert title == "% all_plants"
    assert lines[0] == r"\begin{tabular}{lll}"
    assert lines[4] == r"A\_1 & $-$0.25 [$-$0.50, +0.10] & 1,200 \\"
    assert lines[5].startswith(r"B \& C & 0.5")


def test_names_are_literal_and_no_markup_of_pages() -> None:
    found, name = Collector(), "[bold]FULL[PER] <b>&"
    table = FittedTable([name, "μ"], [name])
    table.add(name, "1")
    found.print(name, markup=False)
    found.print(table)
    assert found.found[0] == name
    assert found.text("csv").splitlines()[1].startswith(name)
    html = found.html()
    assert html.count("[bold]FULL[PER] &lt;b&gt;&amp;") == 3
    assert "<b>&" not in html


def test_equal_columns_of_a_table_are_once_above_it_in_html() -> None:
    table = FittedTable(("Hz", "strategy", "note"), ["strategy"], title="scores")
    table.add("50", "A<b>", "")
    table.add("50", "B", "")
    found = Collector()
    found.print(table)
    html = found.html()
    assert "<b>scores</b><br>all: Hz 50</p>" in html
    assert "<table><tr><th>strategy</th></tr><tr><td>A&lt;b&gt;</td></tr><tr><td>B</td></tr></table>" in html


def finished(path: Path, reference: Reference = GOOD) -> xr.Dataset:
    study = small_study(seeds=3, episodes=30)
    rng = np.random.Generator(np.random.PCG64(7))
    reward = np.linspace(-160.0, -30.0, 30) + rng.normal(0.0, 5.0, (3, 30))
    return stored(path, study, lambda cell: reward, reference)


def text_of(*tables: object, width: int = 200) -> str:
    written = io.StringIO()
    for table in tables:
        Console(width=width, file=written).print(table)
    return written.getvalue()


def shown(data: xr.Dataset) -> str:
    return text_of(*score_tables(data))


def baseline_table(noise: float, reference: Reference) -> str:
    return text_of(reference_table(make_plant("PendulumDCSC"), 50.0, noise, reference))


def ends(text: str, *names: str) -> list[list[str]]:
    """Return reward and μ_r of the rows with these names."""
    return [next(line for line in text.splitlines() if name in line).split()[-2:] for name in names]


def test_the_grid_behind_a_score_is_shown_and_stored(tmp_path: Path) -> None:
    write_results(tmp_path / "results.nc", finished(tmp_path))
    data = read_results(tmp_path / "results.nc")
    text = shown(data)
    assert "0 = random, 1 = dynamic programming" in text
    assert "dynamic programming at 50 Hz: 280 × 211 nodes, 15 actions, converged (last change 0.31 %)" in text
    for name, value in (("rule", "converged"), ("change", 0.0031), ("grid", GOOD.grid)):
        assert data[f"reference_{name}"].item() == value


def test_tables_state_where_the_prediction_of_dynamic_programming_starts(tmp_path: Path) -> None:
    data = finished(tmp_path, dataclasses.replace(GOOD, dp_from="observer"))
    assert "dynamic programming at 50 Hz, noise 0: predicts from the observer" in shown(data)
    assert "predicts" not in shown(data.drop_vars("reference_dp_from"))


def test_every_reference_is_a_row(tmp_path: Path) -> None:
    """Those that know the noise too; their μ_r may exceed 1."""
    text = shown(finished(tmp_path))
    known = [["-160.00", "0.00"], ["-157.00", "0.02"], ["-140.00", "0.14"]]
    assert ends(text, "random control", "nothing", "linear") == known
    assert "averaged" not in text
    text = shown(finished(tmp_path, dataclasses.replace(GOOD, dp_mean=-34.0, dp_averaged=-13.0, dp_observer=-6.0)))
    names = "DP, mean episode", "DP, values averaged over the noise", "DP, on a model observer"
    assert ends(text, *names) == [["-34.00", "0.90"], ["-13.00", "1.05"], ["-6.00", "1.10"]]
    assert "dynamic programming" not in "".join(shown(finished(tmp_path, NO_GRID)).splitlines()[3:-1])
    assert "averaged over the noise" in baseline_table(0.02, dataclasses.replace(GOOD, dp_averaged=-13.0))


@pytest.mark.parametrize(
    ("reference", "reason"),
    [(HOPELESS, "50 Hz, noise 0: no μ_r, because dynamic programming (-157) is hardly better"), (NO_GRID, "no μ_r")],
)
def test_an_undefined_score_is_a_dash_with_a_reason(tmp_path: Path, reference: Reference, reason: str) -> None:
    text = shown(finished(tmp_path, reference))
    assert reason in text
    assert "nan" not in text
    assert text.count("–") >= 3
    assert ("1 = dynamic programming" in text) == (reference is HOPELESS)


@pytest.mark.parametrize(("reference", "dashes"), [(GOOD, 0), (HOPELESS, 5), (NO_GRID, 4)])
def test_the_baseline_table_has_no_nan(reference: Reference, dashes: int) -> None:
    text = baseline_table(0.0, reference)
    assert "nan" not in text
    assert text.count("–") == dashes
    assert ("μ_r = 1" in text) == ("μ_r = 0" in text) == reference.usable
    assert "linear-quadratic (linearised at the reference)" in text


def test_stored_results_are_scored_against_new_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewards stay equal, and scores are those of a new sweep; with the rule that was asked for."""
    better = dataclasses.replace(GOOD, dp=-15.0, random=-165.0, change=0.001)
    new = Mock(return_value=better)
    monkeypatch.setattr("benchmarks.evidence.rescore.reference", new)
    old = finished(tmp_path)
    found = rescored(old, rule="converged")
    new.assert_called_once_with(ANY, 50.0, 0.0, "converged")
    assert str(NUMERICS_VERSION) in found.attrs.pop("rescored")
    xr.testing.assert_identical(found, finished(tmp_path, better))
    assert old["reference_dp"].item() == GOOD.dp
    expected = references.normalise(old["reward"].values.mean(axis=-1), better)
    np.testing.assert_allclose(found["mu_final"].values, expected)


def test_rescoring_runs_no_python_file(tmp_path: Path) -> None:
    own, marker = tmp_path / "own.py", tmp_path / "ran"
    own.write_text(f"from pathlib import Path\nPath({str(marker)!r}).touch()\n")
    results = finished(tmp_path).assign_coords(plant=[f"{own}:Mine"])
    with pytest.raises(UserError, match=r"own\.py:Mine.* would run a Python file"):
        rescored(results)
    assert not marker.exists()


def test_rewards_of_failed_runs_are_in_no_mean(tmp_path: Path) -> None:
    data = finished(tmp_path)
    reward, greedy = data["reward"].values.reshape(3, 30), data["reward_greedy"].values.reshape(3, 3)
    reward[1, 20:] = greedy[1, 2] = np.nan
    (table,) = score_tables(data)
    cells = dict(zip(table.headings, table.rows[0], strict=True))
    assert str(cells["reward"]) == f"{reward[[0, 2]].mean():.2f}"
    assert str(cells["greedy"]) == f"{greedy[[0, 2]].mean():.2f}"
    data["reward"].values[:] = np.nan
    assert len(score_tables(data)) == 1


def test_small_rewards_have_enough_decimals(tmp_path: Path) -> None:
    data = finished(tmp_path, NO_GRID)
    for name in ("reward", "reward_greedy", "reference_random", "reference_zero", "reference_lqr"):
        data[name][:] = data[name] * 1e-5
    add_scores(data)
    assert f" {float(data['reward'].mean()):.5f} " in shown(data)
    assert " -0.00157 " in shown(data)
    assert " -0.003 " in shown(finished(tmp_path, dataclasses.replace(GOOD, dp=-0.0034, dp_mean=-0.0034)))


def test_a_table_says_that_no_learner_beats_random_control(tmp_path: Path) -> None:
    """With likely causes in order."""
    data = finished(tmp_path)
    assert "beats random" not in shown(data)
    data["reference_random"][:] = -20.0
    data["discount"] = ("plant", "learner", "frequency"), np.full((1, 1, 1), 0.99)
    headline, causes = no_learning(data.isel(plant=0))
    assert headline == comparison.NONE_BEATS_RANDOM
    assert headline in shown(data).split("\n")[0]
    assert [cause.split(":")[0] for cause in causes] == ["the discount", "the length of the run", "exploration"]
    assert "looks 2.0 s ahead, an episode takes 4.0 s: plausible" in causes[0]
    assert "below random control" in causes[2]
    for gamma, words in ((0.8, "not far enough"), (0.999, "too far"), (1.0, "to its end and beyond")):
        data["discount"][:] = gamma
        assert words in no_learning(data.isel(plant=0))[1][0]
    data["reward"][:] = -20_000.0
    _, causes = no_learning(data.isel(plant=0))
    assert causes[0].startswith("states that run away: rewards fall to -2e+04, those of random control are -20;")
    assert "reward_scale" in causes[0]
    assert len(causes) == 4
    data["reward"][:] = -30.0
    data["reward_greedy"][:] = -10.0
    assert "10.00 above random control, explore less" in no_learning(data.isel(plant=0))[1][2]
    data["episode_steps"][:] = np.nan
    assert not any("discount" in cause for cause in no_learning(data.isel(plant=0))[1]), "length of episodes unknown"
    data["reference_random"][:] = np.nan
    assert no_learning(data.isel(plant=0)) == ("", [])
    assert not beats_random(np.full(3, np.nan), -1.0), "failed runs"
    assert beats_random(np.array([0.0, np.nan]), -1.0)
    assert not beats_random(np.array([-1.0, -1.0]), -1.0)


SCALED = dataclasses.replace(USABLE, random=-100.0, zero=-90.0, dp=0.0, dp_mean=0.0)
RAW = dataclasses.replace(SCALED, dp=np.nan, dp_mean=np.nan, nodes=(), rule="")
STRATEGIES = ("FIFO[Uniform]", "FULL[PER]", "Resv[Uniform]")


def results(path: Path, reference: Reference = SCALED, strategies: tuple[str, ...] = STRATEGIES) -> xr.Dataset:
    """Six seeds with large shared differences: FULL[PER] is 5 better, its last seed failed; Resv is no better."""
    study = small_study(strategies=strategies, seeds=6, episodes=20)
    luck = np.array([-80.0, -60.0, -40.0, -30.0, -20.0, -10.0])[:, None]
    rng = np.random.Generator(np.random.PCG64(7))

    def rewards(cell: Cell) -> np.ndarray:
        reward = luck + rng.normal(0.0, 0.3, (6, 20)) + 5.0 * (cell.strategy == "FULL[PER]")
        if cell.strategy == "FULL[PER]":
            reward[5, 3:] = np.inf
        return reward

    return stored(path, study, rewards, reference)


def axes_of(draw: Callable[[xr.Dataset], Figure | None], data: xr.Dataset) -> Any:
    """Return the first panel of a figure of the plant."""
    figure = draw(data.sel(plant="PendulumDCSC"))
    assert figure is not None
    return figure.axes[0]


def rows_of(data: xr.Dataset) -> dict[str, comparison.Comparison]:
    return {row.strategy: row for row in compared(data.sel(plant="PendulumDCSC"), STRATEGIES[0])}


def shown_comparison(data: xr.Dataset, baseline: str | None = None, width: int = 200) -> str:
    return text_of(*comparison_tables(data, baseline), width=width)


def joined(one: xr.Dataset, other: xr.Dataset, axis: str) -> xr.Dataset:
    return xr.concat([one, other], axis, data_vars="minimal", coords="minimal", compat="override")


def without(data: xr.Dataset, **place: object) -> xr.Dataset:
    """Remove the runs at a place."""
    for name in ("reward", "mu_final", *(["episode_steps"] if "seed" not in place else [])):
        data[name].loc[place] = np.nan
    return data


@pytest.mark.parametrize(("reference", "unit"), [(SCALED, 0.05), (RAW, 5.0)])
def test_shared_differences_cancel_and_failed_runs_count(tmp_path: Path, reference: Reference, unit: float) -> None:
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
    text = shown_comparison(data)
    assert "compared with FIFO[Uniform]" in text
    assert "sign-flip test" not in text
    assert re.search(r" 0\.125 +7 ", text), "two tests share Holm's correction, so that six pairs would not suffice"
    assert "(61 %)" in text  # share of further runs above the worst of six
    assert "− Resv[Uniform] [95 %]" in shown_comparison(data, "resv[uniform]")
    with pytest.raises(UserError, match="FULL\\[Uniform\\]"):
        comparison_tables(data, "FULL[Uniform]")
    explained = text_of(*comparison_tables(data, explain=True), width=80)
    assert "sign-flip test" in explained
    _, *whole, _ = explained.partition("differences are of")[2].strip().splitlines()
    assert min(len(line.strip()) for line in whole) > 60, "the footnote fills its lines"


def test_points_that_were_not_run_do_not_decide_the_measure(tmp_path: Path) -> None:
    data = results(tmp_path).reindex(noise=[0.0, 0.02], frequency=[50.0, 100.0])
    assert "PendulumDCSC: μ_final of all 20 episodes" in shown_comparison(data)
    assert "PendulumDCSC: mean reward of all 20 episodes" in shown_comparison(results(tmp_path, RAW))


def test_signals_of_rivals_stand_beside_those_of_learners(tmp_path: Path) -> None:
    data, axes = results(tmp_path), ("plant", "noise", "frequency")
    data.coords["rival"] = ["PID", "Mine"]
    data["measures"].loc[{"measure": "overshoot"}] = 0.25
    known = np.full((1, 1, 1, 2, len(MEASURES)), np.nan)
    known[..., 0, list(MEASURES).index("overshoot")], known[..., 0, 0] = 0.125, 0.5
    data["rival_measures"] = (*axes, "rival", "measure"), known
    shown = text_of(*measure_tables(data))
    assert re.search(r"tuned PID +0.125 *$", shown, re.MULTILINE), "a measure that no learner has is left out"
    assert "Mine" not in shown


def test_the_best_learner_is_compared_with_the_best_rival(tmp_path: Path) -> None:
    """The exploration of learners and rivals that know the model do not count."""
    data, axes = results(tmp_path, RAW), ("plant", "noise", "frequency", "rival")
    data.coords["rival"] = ["LQI", "PID", "MPPI"]
    data["reward_greedy"].values[:] = -30.0
    best = np.array([-20.0, -21.0, -22.0, -20.5, -21.5, -22.5])[:, None]
    data["reward_greedy"].loc[{"strategy": STRATEGIES[0]}] = best
    for score, word in ((-18.0, "worse than"), (-21.2, "as good as"), (-25.0, "better than")):
        data["rival_score"] = axes, np.array([-40.0, score, -1.0]).reshape(1, 1, 1, 3)
        [words] = against_rivals(data.sel(plant="PendulumDCSC"))
        assert re.search(rf"DDPG {re.escape(STRATEGIES[0])} \(-21\.\d.*\), is {word} tuned PID \({score}", words)
        assert " ".join(words.split()) in " ".join(shown(data).split())
    assert against_rivals(results(tmp_path / "none", RAW).sel(plant="PendulumDCSC")) == []


def test_a_single_strategy_has_no_comparison(tmp_path: Path) -> None:
    data = results(tmp_path, strategies=STRATEGIES[:1])
    assert comparison_tables(data) == []
    assert paired_differences(data.sel(plant="PendulumDCSC")) is None
    with pytest.raises(UserError, match="no other .* was run with which"):
        comparison_tables(data, STRATEGIES[0])


def test_figures_show_pairs_and_shares_of_all_runs(tmp_path: Path) -> None:
    data = results(tmp_path)
    axes = axes_of(paired_differences, data)
    assert axes.get_title() == "noise 0, 50 Hz, n = 5 to 6"
    assert [label.get_text() for label in axes.get_yticklabels()] == list(STRATEGIES[1:])
    heights = [np.asarray(line.get_ydata())[0] for line in axes_of(performance_profiles, data).lines]
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
    text = shown_comparison(data)
    assert "compared with FIFO[Uniform]" in text  # the name of a learner here
    assert re.search(r"FULL\[PER\] .* \+0\.05.* 0\.125 ", text)
    assert len(axes_of(paired_differences, data).get_yticklabels()) == 2
    assert "compared with Resv[Uniform]" in shown_comparison(data, "Resv[Uniform]")


@pytest.mark.parametrize(("axis", "values"), [("noise", [0, 0.1]), ("frequency", [50, 100]), ("plant", ["a", "b"])])
@pytest.mark.parametrize("reference", [SCALED, RAW])
def test_one_scale_compares_conditions(tmp_path: Path, axis: Axis, values: list[float], reference: Reference) -> None:
    one = results(tmp_path, reference, STRATEGIES[:1])
    other = one.copy(deep=True)
    for name in ("reward", "mu_final"):
        other[name] = other[name] + (1.0 if reference is RAW or name == "reward" else 0.01)
    data = joined(one.assign_coords({axis: values[:1]}), other.assign_coords({axis: values[1:]}), axis)
    if reference is RAW and axis != "noise":
        with pytest.raises(UserError, match=f"values of {axis} cannot be compared: without μ_r"):
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
    text = shown_comparison(data)
    assert re.search(r"Resv\[Uniform\] .* same runs ", text)
    assert "as of buffers that never fill" in text
    assert "blank" not in text
    data["shared_from"].loc[{"strategy": "Resv[Uniform]"}] = "another"
    assert "their buffers never filled" in shown_comparison(data)
    assert [text.get_text() for text in axes_of(paired_differences, data).texts] == [" same runs"]


def test_blanks_have_a_note(tmp_path: Path) -> None:
    data = results(tmp_path)
    other = without(data.copy(deep=True).assign_coords(learner=["SAC"]), strategy=STRATEGIES[0])
    text = shown_comparison(joined(data, other, "learner"))
    assert "blank: FIFO[Uniform] was not run with SAC" in text
    assert "other comparisons: --compare learner" in text


def test_a_verdict_is_one_of_each_condition(tmp_path: Path) -> None:
    """Opposite effects under two noises do not cancel; and tables, figures and the verdict agree."""
    names = STRATEGIES[:2]
    one = results(tmp_path, strategies=names).isel(seed=slice(5)).isel(plant=0)
    more = one.assign_coords(seed=one["seed"] + 5)
    data = xr.concat([one, more], "seed", data_vars="minimal", coords="minimal", compat="override")
    other = data.copy(deep=True)
    for name in ("reward", "mu_final"):
        flipped = 2 * data[name].sel(strategy=names[0]) - data[name].sel(strategy=names[1])
        other[name].loc[{"strategy": names[1]}] = flipped
    both = joined(data.assign_coords(noise=[0.0]), other.assign_coords(noise=[0.02]), "noise")
    found = first_comparison(both)
    assert found is not None
    assert [row.sign for row in found[0] if row.effect is not None] == [1, -1]
    text = verdict(both, found)
    assert text == headline(*found)
    assert "FULL[PER] ends significantly higher than FIFO[Uniform] in 1 of 2 conditions, FULL[PER] lower" in text


def test_too_few_seeds_cannot_decide(tmp_path: Path) -> None:
    data = results(tmp_path).isel(plant=0)
    text = verdict(data, first_comparison(data))
    assert "no significant difference from FIFO[Uniform] (smallest p: +0.05" in text
    assert text.endswith("5 seeds cannot decide this, 7 or more can")
    alone = data.isel(strategy=[0, 1])
    assert verdict(alone, first_comparison(alone)).endswith("5 seeds cannot decide this, 6 or more can")
    data["reward"][:] = np.nan
    assert verdict(data, None) == "every run failed, with a reward that is not finite"


def test_only_axes_that_can_be_compared_are_proposed(tmp_path: Path) -> None:
    """Without μ_r, rewards of two rates have two scales: each rate has its own verdict."""
    one = results(tmp_path, RAW)
    both = joined(one, one.assign_coords(frequency=[100.0]), "frequency")
    assert "--compare" not in shown_comparison(both)
    scaled = results(tmp_path / "scaled")
    scaled = joined(scaled, scaled.assign_coords(frequency=[100.0]), "frequency")
    assert "--compare frequency" in shown_comparison(scaled)
    text = text_of(*screen(both), width=80)
    assert re.search(r"FULL\[PER\] +-41\.\d+ 1× +-41\.\d+ 1×", text)
    assert "random control -100" in text


@pytest.mark.parametrize("spelled", ["mine.py:New[Uniform]", "New[Uniform]", "MINE.PY"])
def test_strategies_have_the_names_that_tables_print(tmp_path: Path, spelled: str) -> None:
    data = results(tmp_path).assign_coords(strategy=["FIFO[Uniform]", "FULL[PER]", "mine.py:New[Uniform]"])
    if spelled == "MINE.PY":
        with pytest.raises(UserError, match="unknown strategy of this run"):
            comparison_tables(data, spelled)
        return
    assert "compared with mine.py:New[Uniform]" in shown_comparison(data, spelled)


def test_a_screen_has_at_most_25_lines_of_80_columns(tmp_path: Path) -> None:
    names = tuple(f"FIFO({size})[PER(0.{size})]" for size in range(1000, 1012))
    one = results(tmp_path, strategies=STRATEGIES)
    wide = one.isel(strategy=[0, 1, 2] * 4).assign_coords(strategy=list(names))
    axes: dict[str, list[Any]] = {"noise": [0.0, 0.01, 0.02], "frequency": [25.0, 50.0], "plant": [*"abcdef"]}
    for axis, values in axes.items():
        for value in values[1:]:
            wide = joined(wide, wide.isel({axis: [0]}).assign_coords({axis: [value]}), axis)
        lines = text_of(*screen(wide, 24), width=80).splitlines()
        assert len(lines) <= 24, lines
        assert max(map(len, lines)) <= 80
        assert sum(line.startswith("verdict") for line in lines) >= 1
    assert any("more plants" in line for line in lines)
    assert any("more with lower scores" in line for line in lines)
    assert 20 < len(text_of(*screen(wide), width=80).splitlines()) <= 25


LONG = "Drop(0.5)*Synth(action=0.25)*FIFO(5000)[PERprop(0.65)+IS(0.45→0.95)]"


def table(*strategies: str) -> FittedTable:
    found = FittedTable(
        ("cell", "strategy", "noise", "state", "reward"), ("strategy",), ("reward",), ("state", "reward"), title="t"
    )
    for place, strategy in enumerate(strategies):
        found.add(f"{place:016x}", strategy, "0.02", f"complete {place}", f"-{place}23.45")
    return found


def printed(content: FittedTable, width: int) -> list[str]:
    return text_of(content, width=width).splitlines()


def test_columns_that_fit_stand_side_by_side() -> None:
    """So do headings without rows; and what looks like markup is printed."""
    title, _, headings, _, row, *_ = printed(table("[bold]x[/]"), 80)
    assert title == "t"
    assert headings.split() == printed(table(), 80)[2].split() == ["cell", "strategy", "noise", "state", "reward"]
    assert row.split() == ["0" * 16, "[bold]x[/]", "0.02", "complete", "0", "-023.45"]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_names_stay_in_one_piece(width: int) -> None:
    lines = printed(table(LONG, "FIFO[Uniform]"), width)
    assert any(LONG in line for line in lines)
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)


def test_values_that_all_rows_share_are_written_once() -> None:
    lines = printed(table("FIFO[Uniform]", "FULL[PER+IS(0.45→0.95)]"), 76)
    assert "all: noise 0.02" in lines
    assert not any("noise" in line for line in lines[2:])
    assert any("FULL[PER+IS(0.45→0.95)]   complete 1" in line for line in lines)


def test_names_get_lines_of_their_own_before_columns_are_left_out() -> None:
    assert table(LONG, "FIFO[Uniform]").lines_a_row(200) == 1
    assert table(LONG, "FIFO[Uniform]").lines_a_row(80) == 2
    lines = printed(table(LONG, "FIFO[Uniform]"), 80)
    assert lines[lines.index(LONG) + 1].split() == ["0" * 16, "complete", "0", "-023.45"]
    narrow = printed(table("FIFO[Uniform]", "FULL[PER]"), 30)
    assert narrow[narrow.index("FIFO[Uniform]") + 1].split() == ["0" * 16, "complete", "0"]
    assert "no room for reward" in narrow
    assert "no room for reward, state" in printed(table("FIFO[Uniform]", "FULL[PER]"), 25)


def test_names_are_written_as_they_are(tmp_path: Path) -> None:
    """Those that look like markup or HTML, and those that a spreadsheet would run."""
    data = results(tmp_path).assign_coords(strategy=["[/x]", "<b>y</b>", "=1+cmd()"])
    text = shown_comparison(data)
    assert all(name in text for name in ("− [/x] [95 %]", "<b>y</b>", "=1+cmd()"))
    collector = Collector()
    for table in comparison_tables(data):
        collector.print(table)
    assert "&lt;b&gt;y" in collector.text("md")
    cells = [cell for row in csv.reader(io.StringIO(collector.text("csv"))) for cell in row]
    assert {"[/x]", "<b>y</b>", "'=1+cmd()"} <= {*cells}
    assert not any(cell.startswith(("'+", "'-")) for cell in cells), "differences are no formulas"


def test_figures_write_dollars_as_they_are(tmp_path: Path) -> None:
    data = results(tmp_path).assign_coords(strategy=["FIFO[Uniform]", "cost $ now", "gain $\\frac x$"])
    with style():
        figure = paired_differences(data.sel(plant="PendulumDCSC"))
        assert figure is not None
        figure.savefig(io.BytesIO())
