"""Tables of a sweep: what the scores mean is said, and where they mean nothing there is a dash and a reason."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from rich.console import Console

from replaybench.baselines import references
from replaybench.baselines.references import Reference
from replaybench.data.errors import UserError
from replaybench.data.provenance import Stopwatch, stint_facts
from replaybench.data.records.record import write_record
from replaybench.envs.registry import make_plant
from replaybench.experiments import rescoring
from replaybench.experiments.commands import reference_table
from replaybench.experiments.rescoring import rescore
from replaybench.experiments.results.dataset import add_scores, assemble
from replaybench.experiments.results.references import NONE_BEATS_RANDOM, beats_random, no_learning
from replaybench.experiments.results.results_file import read_results, write_results
from replaybench.experiments.results.tables import score_tables
from replaybench.experiments.training.study import Study

ORIGIN = stint_facts(Stopwatch().stints())
GOOD = Reference(
    "PendulumDCSC", 50.0, 0.0, -160.0, 3.0, -157.0, -140.0, -20.0, -20.0, -21.0, 0.95, (280, 211), 15, 90,
    "converged", 0.0031,
)  # fmt: skip
HOPELESS = dataclasses.replace(GOOD, dp=-157.0, dp_mean=-157.0, change=np.nan)
NO_GRID = dataclasses.replace(GOOD, dp=np.nan, dp_mean=np.nan, nodes=(), rule="", change=np.nan)


def finished(path: Path, reference: Reference) -> xr.Dataset:
    """A study with made-up rewards, measured against one reference."""
    cells = Study(name="t", plants=("PendulumDCSC",), strategies=("FIFO[Uniform]",), seeds=3, episodes=30).cells()
    rng = np.random.Generator(np.random.PCG64(7))
    for cell in cells:
        reward = np.linspace(-160.0, -30.0, 30) + rng.normal(0.0, 5.0, (3, 30))
        arrays = {"reward": reward, "reward_greedy": reward[:, 9::10], "episode_steps": np.full_like(reward, 200)}
        write_record(path / cell.id / "scores.h5", "scores", ORIGIN, arrays)
    references = {(cell.plant, cell.frequency, cell.noise): reference for cell in cells}
    return assemble(cells, references, {cell.id: path / cell.id for cell in cells})


def shown(data: xr.Dataset) -> str:
    printed = io.StringIO()
    console = Console(width=200, file=printed)
    for table in score_tables(data):
        console.print(table)
    return printed.getvalue()


def test_the_grid_behind_a_score_is_shown_and_stored(tmp_path: Path) -> None:
    write_results(tmp_path / "results.nc", finished(tmp_path, GOOD))
    data = read_results(tmp_path / "results.nc")
    told = shown(data)
    assert "0 = random, 1 = dynamic programming" in told
    assert "dynamic programming at 50 Hz: 280 × 211 nodes, 15 actions, converged (last change 0.31 %)" in told
    assert data["reference_rule"].item() == "converged"
    assert data["reference_change"].item() == 0.0031
    assert data["reference_grid"].item() == GOOD.grid


def test_references_that_know_the_noise_are_rows(tmp_path: Path) -> None:
    """Of every noise level that has them, with their μ_r, which may pass 1; without noise there are none."""
    told = shown(finished(tmp_path, dataclasses.replace(GOOD, dp_mean=-34.0, dp_averaged=-13.0, dp_observer=-6.0)))
    (mean,) = [line for line in told.splitlines() if "DP, mean episode" in line]
    assert mean.split()[-2:] == ["-34.00", "0.90"]
    (averaged,) = [line for line in told.splitlines() if "DP, values averaged over the noise" in line]
    (observer,) = [line for line in told.splitlines() if "DP, on a model observer" in line]
    assert averaged.split()[-2:] == ["-13.00", "1.05"]
    assert observer.split()[-2:] == ["-6.00", "1.10"]
    assert "averaged" not in shown(finished(tmp_path, GOOD))
    printed = io.StringIO()
    console = Console(width=200, file=printed)
    console.print(reference_table(make_plant("PendulumDCSC"), 50.0, 0.02, dataclasses.replace(GOOD, dp_averaged=-13.0)))
    assert "DP, greedy in values averaged over the noise" in console.file.getvalue()  # type: ignore[attr-defined]


def test_no_score_is_a_dash_and_says_why(tmp_path: Path) -> None:
    told = shown(finished(tmp_path, HOPELESS))
    assert "50 Hz, noise 0: no μ_r, because dynamic programming (-157) is hardly better than random" in told
    assert "not converged" in told
    assert "nan" not in told
    assert told.count("–") >= 3


def test_a_plant_without_dynamic_programming_is_not_said_to_have_it(tmp_path: Path) -> None:
    told = shown(finished(tmp_path, NO_GRID))
    assert "1 = dynamic programming" not in told
    assert "no μ_r" in told
    assert "nan" not in told


@pytest.mark.parametrize(("reference", "dashes"), [(GOOD, 0), (HOPELESS, 5), (NO_GRID, 4)])
def test_the_baseline_table_has_no_nan(reference: Reference, dashes: int) -> None:
    printed = io.StringIO()
    console = Console(width=200, file=printed)
    console.print(reference_table(make_plant("PendulumDCSC"), 50.0, 0.0, reference))
    told = console.file.getvalue()  # type: ignore[attr-defined]
    assert "nan" not in told
    assert told.count("–") == dashes
    assert ("μ_r = 1" in told) == ("μ_r = 0" in told) == reference.usable
    assert "linear-quadratic (linearised at the reference)" in told


def test_stored_results_are_scored_against_the_references_of_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rewards stay to the bit, and the scores are those that a sweep of today would give; older files, too."""
    asked, better = [], dataclasses.replace(GOOD, dp=-15.0, random=-165.0, change=0.001)

    def today(*arguments: object) -> Reference:
        asked.append(arguments[1:])
        return better

    monkeypatch.setattr(rescoring, "reference", today)
    old = finished(tmp_path, GOOD)
    new = rescore(old.drop_vars(["reference_rule", "reference_grid", "reference_change"]), rule="converged")
    assert asked == [(50.0, 0.0, "converged")]
    xr.testing.assert_identical(new, finished(tmp_path, better))
    assert old["reference_dp"].item() == GOOD.dp
    expected = references.normalise(old["reward"].values.mean(axis=-1), better)
    np.testing.assert_allclose(new["mu_final"].values, expected)


def test_rescoring_runs_no_python_file_that_was_not_named(tmp_path: Path) -> None:
    """Results may come from strangers, and a plant in a Python file is code."""
    own, marker = tmp_path / "own.py", tmp_path / "ran"
    own.write_text(f"from pathlib import Path\nPath({str(marker)!r}).touch()\n")
    results = finished(tmp_path, GOOD).assign_coords(plant=[f"{own}:Mine"])
    with pytest.raises(UserError, match=r"own\.py:Mine.* would run a Python file"):
        rescore(results)
    assert not marker.exists()
    with pytest.raises(UserError, match="unknown plant in"):
        rescore(results, {f"{own}:Mine": {}})
    assert marker.exists()


def test_rewards_of_failed_runs_are_in_no_mean(tmp_path: Path) -> None:
    data = finished(tmp_path, GOOD)
    reward = data["reward"].values.reshape(3, 30)
    data["reward"].values.reshape(3, 30)[1, 20:] = np.nan
    data["reward_greedy"].values.reshape(3, 3)[1, 2] = np.nan
    (table,) = score_tables(data)
    cells = dict(zip(table.headings, table.rows[0], strict=True))
    assert str(cells["reward"]) == f"{reward[[0, 2]].mean():.2f}"
    assert str(cells["greedy"]) == f"{data['reward_greedy'].values.reshape(3, 3)[[0, 2]].mean():.2f}"
    data["reward"].values[:] = np.nan
    assert len(score_tables(data)) == 1


def test_small_rewards_are_told_apart(tmp_path: Path) -> None:
    """Of a plant that squares centimetres in m, all were 0.00."""
    data = finished(tmp_path, NO_GRID)
    for name in ("reward", "reward_greedy", "reference_random", "reference_zero", "reference_lqr"):
        data[name][:] = data[name] * 1e-5
    add_scores(data)
    mean = float(data["reward"].mean())
    assert -0.002 < mean < -0.0005
    assert f" {mean:.5f} " in shown(data)
    assert " -0.00157 " in shown(data)


def test_references_have_decimals_enough(tmp_path: Path) -> None:
    """Those of learners hid that dynamic programming loses anything."""
    assert " -0.003 " in shown(finished(tmp_path, dataclasses.replace(GOOD, dp=-0.0034, dp_mean=-0.0034)))


def test_every_reference_is_a_row(tmp_path: Path) -> None:
    lines = shown(finished(tmp_path, GOOD)).splitlines()
    told = {
        name: next(line for line in lines if name in line).split()[-2:]
        for name in ("random control", "nothing", "linear")
    }
    assert told == {
        "random control": ["-160.00", "0.00"],
        "nothing": ["-157.00", "0.02"],
        "linear": ["-140.00", "0.14"],
    }
    assert "dynamic programming" not in "".join(line for line in shown(finished(tmp_path, NO_GRID)).splitlines()[3:-1])


def test_a_table_is_headed_by_that_no_learner_beats_random_control(tmp_path: Path) -> None:
    """With likely causes in order, the first of which is how far the discount looks."""
    data = finished(tmp_path, GOOD)
    assert "beats random" not in shown(data)
    data["reference_random"][:] = -20.0
    data["discount"] = ("plant", "learner", "frequency"), np.full((1, 1, 1), 0.99)
    headline, causes = no_learning(data.isel(plant=0))
    assert headline == NONE_BEATS_RANDOM
    assert shown(data).split("\n")[0].count(headline)
    assert [cause.split(":")[0] for cause in causes] == ["the discount", "the length of the run", "exploration"]
    assert "looks 2.0 s ahead, an episode takes 4.0 s: plausible" in causes[0]
    for gamma, verdict in ((0.8, "not far enough"), (0.999, "too far"), (1.0, "to its end and beyond")):
        data["discount"][:] = gamma
        assert verdict in no_learning(data.isel(plant=0))[1][0]
    assert "below random control" in causes[2]
    data["reward_greedy"][:] = -10.0
    assert "10.00 above random control, explore less" in no_learning(data.isel(plant=0))[1][2]
    data["episode_steps"][:] = np.nan
    assert not any("discount" in cause for cause in no_learning(data.isel(plant=0))[1]), "length of episodes unknown"
    data["reference_random"][:] = np.nan
    assert no_learning(data.isel(plant=0)) == ("", [])


def test_runs_that_failed_are_no_learners_that_random_control_beats() -> None:
    failed = np.full(3, np.nan)
    assert not beats_random(failed, -1.0)
    assert beats_random(np.array([0.0, np.nan]), -1.0)
    assert not beats_random(np.array([-1.0, -1.0]), -1.0)
