"""From files written by hand to the dataset: every number in its place, and nothing where there is none."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

from replaybench.baselines.references import Reference
from replaybench.data.record import write_record
from replaybench.experiments import dataset, results_file
from replaybench.experiments.study import Cell, Study
from replaybench.runtime.errors import UserError
from replaybench.runtime.provenance import Code, ComputeSession, session_facts

EPISODES = 20
CODES = [
    Code(commit, dirty, {}, "one", "here", "os") for commit, dirty in (("abc", True), ("abc", False), (None, None))
]
ENDS = {"PendulumDCSC": (-10.0, -5.0), "Magman": (-10.0, -8.001)}
"""Rewards of random control and of dynamic programming; Magman's are too close."""


def cells(**changes: Any) -> list[Cell]:
    study: dict[str, Any] = {
        "name": "t", "plants": ("PendulumDCSC", "Magman"), "strategies": ("FIFO[Uniform]", "FULL[PER]"),
        "noise": (0.0, 0.02), "seeds": 3, "episodes": EPISODES, "block": 2, "capacity": 100,
    }  # fmt: skip
    return Study(**{**study, **changes}).cells()


def arrays(cell: Cell) -> dict[str, np.ndarray]:
    """Return what a cell tells: rewards between the ends, lower by its noise; seed 1 fails, seed 2 learns nothing."""
    members, quality = np.array(cell.seeds), np.linspace(-0.5, 0.95, cell.episodes)
    mu = np.where(members[:, None] == 2, 0.1, quality - 5 * cell.noise)
    reward = -10.0 + 5.0 * mu
    reward[members == 1, 7] = np.inf
    looks = reward[:, 9::10]
    steps = np.full(reward.shape, 200.0)
    return {"reward": reward, "reward_greedy": looks + 1, "episode_steps": steps, "metric_width": looks + 2}


@pytest.fixture
def made(tmp_path: Path) -> tuple[xr.Dataset, list[Cell]]:
    """A dataset of which the last cell is not there yet."""
    everything = cells()
    for number, cell in enumerate(everything[:-1]):
        stints = [
            ComputeSession(code, f"2026-01-0{1 + k}T00:00:00Z", 10.0 * number + k) for k, code in enumerate(CODES)
        ]
        write_record(tmp_path / cell.id / "scores.h5", "scores", session_facts(stints), arrays(cell))
    references = {
        (plant, 50.0, noise): Reference(
            plant, 50.0, noise, ends[0], 1.0, -9.0, -7.0, ends[1], ends[1], ends[1], 0.95, (3, 4), 3, 9, "paper"
        )
        for plant, ends in ENDS.items()
        for noise in (0.0, 0.02)
    }
    return dataset.assemble(everything, references, {cell.id: tmp_path / cell.id for cell in everything}), everything


STINTS: list[Any] = [5, [], [5], [{}], [{"code": {"commit": 5}, "started": "", "seconds": 1.0}]]
FORGED: list[Any] = [None, {"seconds": 1.0}, *({"stints": value} for value in STINTS)]


@pytest.mark.parametrize("facts", FORGED)
def test_a_cell_that_cannot_be_read_is_named_with_the_remedy(tmp_path: Path, facts: dict[str, Any] | None) -> None:
    cell = cells()[0]
    path = tmp_path / "scores.h5"
    if facts is None:
        path.write_bytes(b"no HDF5")
    else:
        write_record(path, "scores", facts, arrays(cell))
    with pytest.raises(UserError, match="scores.h5.*: remove .* and run the sweep again"):
        dataset.assemble([cell], {}, {cell.id: tmp_path})


def place(cell: Cell) -> dict[str, Any]:
    return {axis: getattr(cell, axis) for axis in dataset.AXES}


def test_every_number_is_in_its_place(made: tuple[xr.Dataset, list[Cell]]) -> None:
    data, everything = made
    assert data["seed"].values.tolist() == [0, 1, 2]
    assert data["block"].values.tolist() == [0, 2]
    assert data["episode"].values.tolist() == list(range(1, EPISODES + 1))
    assert data["greedy_episode"].values.tolist() == [10, 20]
    assert data["episode_metric"].values.tolist() == ["mean reward"] * 2
    assert (data["update_every"].values == 0).all()
    assert (data["seconds"].attrs["units"], data["memory"].attrs["units"]) == ("s", "B")
    here = data.sel(plant="PendulumDCSC", noise=0.0, frequency=50.0)
    np.testing.assert_array_equal(dataset.steps_done(here), 200.0 * np.arange(EPISODES + 1))
    for cell in everything[:-1]:
        for name, array in arrays(cell).items():
            np.testing.assert_array_equal(data[name].sel(**place(cell), seed=list(cell.seeds)).values, array)
    last = everything[-1]
    for name in ("reward", "reward_greedy", "episode_steps", "metric_width", "mu_final"):
        assert np.isnan(data[name].sel(**place(last), seed=list(last.seeds)).values).all()


def test_each_cell_says_who_computed_it(made: tuple[xr.Dataset, list[Cell]]) -> None:
    data, everything = made
    for number, cell in enumerate(everything[:-1]):
        told = data["seconds"].sel(**place(cell), block=cell.first_member)
        assert told.item() == 30.0 * number + 3
        assert told["commit"].item() == "abc-dirty, abc, unknown"
        assert told["started"].item() == "2026-01-01T00:00:00Z"
        assert (told["processor"].item(), told["target"].item()) == ("one", "here")
    missing = data["seconds"].sel(**place(everything[-1]), block=2)
    assert np.isnan(missing.item())
    assert missing["commit"].item() == ""


def test_scores_are_over_the_runs_that_are_there(made: tuple[xr.Dataset, list[Cell]]) -> None:
    data, everything = made
    quality = np.linspace(-0.5, 0.95, EPISODES)
    point = data.sel(**place(everything[0]))
    np.testing.assert_allclose(point["mu_final"].values, [quality.mean(), np.nan, 0.1])
    np.testing.assert_allclose(point["mu_max"].values, [0.95, np.nan, 0.1])
    np.testing.assert_array_equal(point["rise_time"].values, [1 + np.argmax(quality >= 0.8), np.nan, EPISODES])
    assert point["mu_final_mean"].item() == pytest.approx((quality.mean() + 0.1) / 2)
    assert point["mu_final_low"] < point["mu_final_mean"] < point["mu_final_high"]
    assert [int(point[name]) for name in ("failed", "dead", "censored")] == [1, 1, 1]
    noisy = data.sel(**{**place(everything[0]), "noise": 0.02})
    assert noisy["mu_final"].values[0] == pytest.approx(quality.mean() - 0.1)
    last = data.sel(**place(everything[-1]))  # of three runs two are there
    assert np.isnan(last["mu_final"].values[2])
    assert int(last["failed"]) == 1


def test_references_stand_beside_and_close_ends_give_no_score(made: tuple[xr.Dataset, list[Cell]]) -> None:
    data, _ = made
    for plant, (random, dp) in ENDS.items():
        own = data.sel(plant=plant)
        assert (own["reference_random"] == random).all()
        assert (own["reference_dp"] == dp).all()
        assert (own["reference_zero"] == -9.0).all()
        assert (own["reference_lqr"] == -7.0).all()
        assert own["reference_grid"].values.tolist() == ["3 × 4 nodes, 3 actions, as declared"]
        assert dataset.rule_of(own) == "paper"
    assert np.isnan(data["mu_final"].sel(plant="Magman").values).all()
    assert data["dead"].sel(plant="Magman", strategy="FIFO[Uniform]", noise=0.0).item() == 0
    edge = xr.Dataset({"reference_dp": -8.0, "reference_random": -10.0})
    assert dataset.mu_r(edge, xr.DataArray(-9.0)).item() == 0.5


def test_rounds_are_told_from_episodes() -> None:
    for every, word, last in ((0, "episodes", EPISODES), (1, "rounds", 2), (200, "rounds", 2)):
        some = cells(update_every=every, plants=("Magman",))
        data = dataset.assemble(some, {}, {cell.id: Path("none") for cell in some}).isel(plant=0)
        assert (dataset.counted_in(data), dataset.in_rounds(data)) == (word, every > 0)
        assert dataset.the_last(data.isel(episode=slice(10)), "training") == (
            "the last training round" if every else "all 10 training episodes"
        )
        assert dataset.last_of(data) == last
        assert dataset.the_last(data) == ("the last 2 rounds" if every else "all 20 episodes")
    bare = data.drop_vars(["episode_metric", "update_every", "reference_rule"])
    assert (dataset.episode_metric(bare), dataset.rule_of(bare)) == ("mean reward", None)
    assert not dataset.in_rounds(bare)
    steps = np.full((2, 3, 4), 100.0)
    steps[1] = 200.0
    lengths = xr.Dataset({"episode_steps": (("frequency", "seed", "episode"), steps)})
    assert not dataset.lengths_vary(lengths), "they differ between rates only"
    steps[1, 2, 3] = 199.0
    assert dataset.lengths_vary(lengths)
    assert not dataset.lengths_vary(xr.Dataset())


def test_failed_runs_exist(made: tuple[xr.Dataset, list[Cell]]) -> None:
    failed = made[0].copy(deep=True)
    failed["reward"][:] = np.nan
    bare = failed.drop_vars("episode_steps")
    xr.testing.assert_equal(dataset.runs_there(failed), dataset.runs_there(made[0]))
    assert not dataset.runs_there(bare).any()
    for data, words in ((failed, "failed before its first reward"), (bare, "no finished cell")):
        assert words in str(dataset.without_rewards(Path("r.nc"), data, "figures need"))


def test_a_file_reads_back_and_damage_is_one_line(tmp_path: Path, made: tuple[xr.Dataset, list[Cell]]) -> None:
    path = tmp_path / "results.nc"
    results_file.write_results(path, made[0])
    xr.testing.assert_identical(
        results_file.read_results(path).drop_vars(dataset.ORIGINS), made[0].drop_vars(dataset.ORIGINS)
    )
    content = path.read_bytes()
    with h5py.File(io.BytesIO(content[:-32])) as file:
        packed = {name: file[name].compression for name in ("reward", "reward_greedy", "mu_final_mean", "reference_dp")}
        for axis, names in {"plant": "plants", "learner": "learners", "strategy": "strategies"}.items():
            assert file.attrs.get_id(names).dtype.kind == "S"  # of fixed length: Octave reads no other
            assert file.attrs[names].decode().split("\n") == made[0][axis].values.tolist()
    assert packed == {"reward": "gzip", "reward_greedy": "gzip", "mu_final_mean": None, "reference_dp": None}
    for damaged in (content[:-1], b"x" + content[1:], content[:100], content[:-1] + bytes([content[-1] ^ 1])):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="its checksum does not match"):
            results_file.read_results(path)
    with pytest.raises(UserError, match="no such file"):
        results_file.read_results(tmp_path / "none.nc")


def test_what_a_dataset_holds_is_said_in_short() -> None:
    data = xr.Dataset({"b": ("seed", np.zeros(20)), "a": ("episode", np.zeros(21))}, {"seed": np.arange(20)})
    said = dataset.describe(data)
    assert said.splitlines()[1] == '  "axes": {'
    assert json.loads(said) == {"axes": {"seed": list(range(20)), "episode": "21 values"}, "variables": ["a", "b"]}
