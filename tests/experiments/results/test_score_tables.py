"""Tables of scores and references; a dash and a reason where μ_r is undefined; rescoring."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from drawn_studies import USABLE, stored
from rich.console import Console

from replaybench.baselines import references
from replaybench.baselines.references import Reference
from replaybench.cli.commands import reference_table
from replaybench.envs.registry import make_plant
from replaybench.experiments import results_file as rescoring
from replaybench.experiments.comparison import NONE_BEATS_RANDOM, beats_random, no_learning
from replaybench.experiments.dataset import add_scores
from replaybench.experiments.results_file import read_results, rescore, write_results
from replaybench.experiments.study import Study
from replaybench.experiments.tables import score_tables
from replaybench.runtime.errors import UserError

GOOD = dataclasses.replace(
    USABLE, lqr=-140.0, interpolated=-21.0, nodes=(280, 211), actions=15, sweeps=90, rule="converged", change=0.0031
)
HOPELESS = dataclasses.replace(GOOD, dp=-157.0, dp_mean=-157.0, change=np.nan)
NO_GRID = dataclasses.replace(GOOD, dp=np.nan, dp_mean=np.nan, nodes=(), rule="", change=np.nan)


def finished(path: Path, reference: Reference = GOOD) -> xr.Dataset:
    study = Study(name="t", plants=("PendulumDCSC",), strategies=("FIFO[Uniform]",), seeds=3, episodes=30)
    rng = np.random.Generator(np.random.PCG64(7))
    reward = np.linspace(-160.0, -30.0, 30) + rng.normal(0.0, 5.0, (3, 30))
    return stored(path, study, lambda cell: reward, reference)


def shown(data: xr.Dataset) -> str:
    printed = io.StringIO()
    for table in score_tables(data):
        Console(width=200, file=printed).print(table)
    return printed.getvalue()


def baseline_table(noise: float, reference: Reference) -> str:
    printed = io.StringIO()
    Console(width=200, file=printed).print(reference_table(make_plant("PendulumDCSC"), 50.0, noise, reference))
    return printed.getvalue()


def ends(text: str, *names: str) -> list[list[str]]:
    """Return reward and μ_r of the rows with these names."""
    return [next(line for line in text.splitlines() if name in line).split()[-2:] for name in names]


def test_the_grid_behind_a_score_is_shown_and_stored(tmp_path: Path) -> None:
    write_results(tmp_path / "results.nc", finished(tmp_path))
    data = read_results(tmp_path / "results.nc")
    text = shown(data)
    assert "0 = random, 1 = dynamic programming" in text
    assert "dynamic programming at 50 Hz: 280 × 211 nodes, 15 actions, converged (last change 0.31 %)" in text
    stored_as = [data[f"reference_{name}"].item() for name in ("rule", "change", "grid")]
    assert stored_as == ["converged", 0.0031, GOOD.grid]


def test_every_reference_is_a_row(tmp_path: Path) -> None:
    """Those that know the noise too; their μ_r may exceed 1."""
    text = shown(finished(tmp_path))
    assert ends(text, "random control", "nothing", "linear") == [["-160.00", "0.00"], ["-157.00", "0.02"],
                                                                 ["-140.00", "0.14"]]  # fmt: skip
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
    """Rewards stay equal, and scores are those of a new sweep; also for older files."""
    asked, better = [], dataclasses.replace(GOOD, dp=-15.0, random=-165.0, change=0.001)

    def new(*arguments: object) -> Reference:
        asked.append(arguments[1:])
        return better

    monkeypatch.setattr(rescoring, "reference", new)
    old = finished(tmp_path)
    found = rescore(old.drop_vars(["reference_rule", "reference_grid", "reference_change"]), rule="converged")
    assert asked == [(50.0, 0.0, "converged")]
    xr.testing.assert_identical(found, finished(tmp_path, better))
    assert old["reference_dp"].item() == GOOD.dp
    expected = references.normalise(old["reward"].values.mean(axis=-1), better)
    np.testing.assert_allclose(found["mu_final"].values, expected)


def test_rescoring_runs_no_python_file_that_was_not_named(tmp_path: Path) -> None:
    own, marker = tmp_path / "own.py", tmp_path / "ran"
    own.write_text(f"from pathlib import Path\nPath({str(marker)!r}).touch()\n")
    results = finished(tmp_path).assign_coords(plant=[f"{own}:Mine"])
    with pytest.raises(UserError, match=r"own\.py:Mine.* would run a Python file"):
        rescore(results)
    assert not marker.exists()
    with pytest.raises(UserError, match="unknown plant in"):
        rescore(results, {f"{own}:Mine": {}})
    assert marker.exists()


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
    assert headline == NONE_BEATS_RANDOM
    assert headline in shown(data).split("\n")[0]
    assert [cause.split(":")[0] for cause in causes] == ["the discount", "the length of the run", "exploration"]
    assert "looks 2.0 s ahead, an episode takes 4.0 s: plausible" in causes[0]
    assert "below random control" in causes[2]
    for gamma, verdict in ((0.8, "not far enough"), (0.999, "too far"), (1.0, "to its end and beyond")):
        data["discount"][:] = gamma
        assert verdict in no_learning(data.isel(plant=0))[1][0]
    data["reward_greedy"][:] = -10.0
    assert "10.00 above random control, explore less" in no_learning(data.isel(plant=0))[1][2]
    data["episode_steps"][:] = np.nan
    assert not any("discount" in cause for cause in no_learning(data.isel(plant=0))[1]), "length of episodes unknown"
    data["reference_random"][:] = np.nan
    assert no_learning(data.isel(plant=0)) == ("", [])
    assert not beats_random(np.full(3, np.nan), -1.0), "failed runs"
    assert beats_random(np.array([0.0, np.nan]), -1.0)
    assert not beats_random(np.array([-1.0, -1.0]), -1.0)
