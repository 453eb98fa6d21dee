"""Cells on a device, whose source runs on this processor here."""

import ctypes
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console

from replaybench.baselines.controllers import run_episode
from replaybench.data.record import read_header, read_record, write_record
from replaybench.device import gpu
from replaybench.device.program import Host, Program
from replaybench.envs.ode.pendulum import PendulumDCSC
from replaybench.envs.population import PopulationEnv
from replaybench.experiments import cell as cell_module
from replaybench.experiments import device_cell, snapshots, sweep
from replaybench.experiments.cell import CellRun, run_cell
from replaybench.experiments.cell_lookup import load_policy
from replaybench.experiments.study import Cell, Study
from replaybench.replay.buffer_file import load_replay
from replaybench.runtime.errors import UserError
from tests.helpers.cells import DRIFTING, advanced, assert_equal_files, run_here, small_study, until
from tests.helpers.commands import Capsys, Patch, call, printed, refused

pytestmark = pytest.mark.slow  # each test compiles C++
PENDULUM_V1 = Path(__file__).parents[2] / "benchmarks/speed/peers/pendulum_v1.py"
SMALL = {"DDPG": {"actor_hidden": [8, 8], "critic_hidden": [8, 8, 4]}, "DQN": {"hidden": [8, 8]}}
SMALL |= {name: {"actor_hidden": [8, 8], "critic_hidden": [8, 8]} for name in ("TD3", "SAC")}


def study_of(*strategies: str, **changes: Any) -> Study:
    usual = {"seeds": 3, "episodes": 6, "capacity": 500, "greedy_every": 2, "noise": (0.01,)}
    own = {name: SMALL[name] for name in changes.get("learners", ("DDPG",))}
    return small_study(**{"device": "cuda", "strategies": strategies, "learner": own} | usual | changes)


def cell_of(strategy: str = "FIFO[Uniform]", **changes: Any) -> Cell:
    return study_of(strategy, **changes).cells()[0]


@pytest.fixture(autouse=True)
def host(monkeypatch: Patch) -> None:
    monkeypatch.setattr(device_cell, "LAUNCH_SECONDS", 1e9)
    monkeypatch.setattr(device_cell, "GPU", lambda program, number: Host(program))


STRATEGIES = ("TDE[PER+IS]", "FIFO[Uniform]", "Expl[PERprop]", "FULL[Uniform+FIS]")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_killed_cell_continues_bit_for_bit(strategy: str, tmp_path: Path, monkeypatch: Patch) -> None:
    """In launches of one round, what is the same in launches of up to two."""
    cell, report = cell_of(strategy, seeds=2, episodes=20), Mock(return_value=True)
    assert run_cell(cell, tmp_path / "whole", "final", report=report)
    assert [told.args[0].done for told in report.call_args_list] == [1, *range(2, 21, 2)]
    monkeypatch.setattr(device_cell, "LAUNCH_SECONDS", 0.0)
    for stop in (1, 4):
        assert not run_cell(cell, tmp_path / "parts", "final", report=until(stop))
        assert stop <= read_header(tmp_path / "parts" / "checkpoint.h5").facts["episode"] < cell.episodes
    assert run_cell(cell, tmp_path / "parts", "final")
    assert_equal_files(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("every", [0, 50])
def test_its_buffer_is_verified_and_continued(strategy: str, every: int, tmp_path: Path, capsys: Capsys) -> None:
    assert run_cell(cell_of(strategy, update_every=every), tmp_path, "final")
    path = tmp_path / "buffer.h5"
    assert "structure are sound" in printed(capsys, "inspect", path, "--verify")
    replay, state = load_replay(path), read_record(path, "buffer")[1]
    assert (replay.collected == 1200).all()
    assert replay.updates == 600
    assert np.isfinite(replay.sample().columns["reward"]).all()
    serial, begins = state["serial"], state["episode"] * 200 + state["step"] + 1
    np.testing.assert_array_equal(begins, serial)  # each of the 6 episodes has 200 steps
    if strategy.startswith("FIFO"):
        assert (np.sort(serial, axis=1) == np.arange(701, 1201)).all()
    if "td_error" in state:
        assert (state["td_error"] >= 0).all()
        assert np.isfinite(state["td_error"]).any()
    for name in {"priority", "replays"} & set(state):
        assert (state[name].max(axis=1) > state[name].min(axis=1)).all()
    origin = read_record(tmp_path / "snapshots.h5", "snapshots")[1]["origin"]
    assert (origin[:, -1].sum(axis=1) == serial.shape[1]).all()


def test_its_buffer_is_replayed_offline(tmp_path: Path, capsys: Capsys) -> None:
    assert run_cell(cell_of(), tmp_path, "final")
    words = ("replay", tmp_path / "buffer.h5", "--updates", 16, "--seeds", 1, "--output", tmp_path / "offline")
    assert "the recording itself" in printed(capsys, *words)


def test_episodes_that_end_early_are_found_in_what_is_stored(tmp_path: Path) -> None:
    """Of a user's plant, with updates after steps, only the stored experiences show where episodes begin."""
    for every in (0, 50):
        cell = cell_of("FULL[Uniform]", plants=(DRIFTING,), update_every=every)
        assert run_cell(cell, tmp_path / str(every), "final")
        state = read_record(tmp_path / str(every) / "buffer.h5", "buffer")[1]
        for m, count in enumerate(state["count"]):
            ended = state["terminated"][m, :count, 0] > 0
            assert ended.any()
            follows = state["step"][m, 1:count] > 0
            over = ended[:-1] | (state["step"][m, : count - 1] == 19)
            np.testing.assert_array_equal(follows, ~over)


@pytest.mark.parametrize("learner", SMALL)
def test_policies_act_as_on_the_device(learner: str, tmp_path: Path) -> None:
    """Weights are those that the last greedy episode had, except for rounding."""
    assert run_cell(cell_of(noise=(0.0,), episodes=20, learners=(learner,)), tmp_path, "none")
    greedy = read_record(tmp_path / "scores.h5", "scores")[1]["reward_greedy"]
    assert np.isfinite(greedy).all()

    def rewarded(member: int) -> NDArray[Any]:
        policy: Any = load_policy(tmp_path / "policy.safetensors", member)
        return run_episode(lambda now: policy.predict(now)[0], PopulationEnv(PendulumDCSC(), 1, frequency=50.0))

    assert [rewarded(member).item() for member in range(3)] == pytest.approx(greedy[:, -1], rel=1e-3)


def test_ids_differ_from_those_of_the_cpu_only() -> None:
    """All seeds are one cell; which of several GPUs runs it does not matter."""
    one, other = cell_of(seeds=60), cell_of(seeds=60, device="cuda:1")
    assert (one.members, one.id) == (60, other.id)
    assert cell_of(seeds=50).id != cell_of(seeds=50, device="cpu").id


def test_snapshots_show_the_first_members(monkeypatch: Patch) -> None:
    looks = []
    for most in (50, 2):
        for module in (cell_module, snapshots):
            monkeypatch.setattr(module, "MOST_MEMBERS", most)
        looks.append(advanced(cell_of()).snapshots)
    for name, shown in looks[1].policies.items():
        assert len(shown) == 2
        np.testing.assert_array_equal(shown, looks[0].policies[name][:2])
    for name, counted in looks[1].contents.items():
        np.testing.assert_array_equal(counted, looks[0].contents[name])


class FakeGPU(gpu.GPU):
    """A GPU whose memory holds two members at a time, and whose kernels run on this processor."""

    def __init__(self, program: Program, number: int) -> None:
        library = Host(program).library
        self.program, self.name, self.stream, self.at_once, self.shared = program, "fake", None, 2, 1
        self.kernel, self._describe = library.run_rounds, library.describe_buffers
        self._held, self._tables = {}, {}

    def _copied(self, array: np.ndarray) -> np.ndarray:
        return np.array(array, order="C")

    def _copy_back(self, buffer: np.ndarray, array: np.ndarray, start: int = 0) -> None:
        columns = buffer.reshape(len(buffer), -1).view(np.uint8)[:, start:][:, : array.nbytes // len(array)]
        array[...] = columns.copy().view(array.dtype).reshape(array.shape)


def launch_here(stream: None, config: SimpleNamespace, kernel: Any, *arguments: Any) -> None:
    own, memory, *others = (a if isinstance(a, ctypes.c_int) else ctypes.c_void_p(a.ctypes.data) for a in arguments)
    kernel(own, memory, config.grid, *others)


def test_groups_of_members_have_the_results_of_all_at_once(monkeypatch: Patch) -> None:
    monkeypatch.setattr(device_cell, "LAUNCH_SECONDS", 0.0)
    cell = cell_of("FIFO[PER]", episodes=12)
    whole = advanced(cell)
    monkeypatch.setitem(sys.modules, "cuda.core", Mock(LaunchConfig=SimpleNamespace, launch=launch_here))
    monkeypatch.setattr(device_cell, "GPU", FakeGPU)
    parts = advanced(cell)
    for name, array in (whole.history() | whole.snapshots.arrays()).items():
        np.testing.assert_array_equal((parts.history() | parts.snapshots.arrays())[name], array)
    assert whole.device is not None
    assert parts.device is not None
    np.testing.assert_array_equal(parts.device.state_dict()["memory"], whole.device.state_dict()["memory"])
    assert not parts.device._runner._held  # the memory of each group was freed for the next one


@pytest.mark.parametrize("strategy", ["FIFO[Uniform]", "FULL[Uniform]", "Resv[Uniform]"])
def test_the_device_counts_what_is_stored_by_age(strategy: str) -> None:
    """As the CPU counts it, also in groups without experiences, and before anything is stored."""
    run = CellRun(cell_of(strategy))
    assert run.device is not None
    ends = np.array([[1, 650, 650, 801, 1200], [2, 657, 657, 810, 1200], [3, 664, 664, 819, 1200]])
    for collected in (0, 1200):
        assert (run.replay.collected == collected).all()
        counted = run.device.stored_by_age(ends)
        np.testing.assert_allclose(counted, snapshots.stored_by_age(run.replay, ends), rtol=1e-12)
        assert (counted[:, :-1].sum(axis=1) == run.replay.count).all()
        while run.episode < 6:
            run.advance()


def test_a_sweep_runs_some_cells_at_once(tmp_path: Path, monkeypatch: Patch) -> None:
    here = Mock(side_effect=run_here)
    monkeypatch.setattr(sweep, "run_locally", here)
    monkeypatch.setattr(sweep, "check_gpu", lambda device: None)
    study = study_of("FIFO[Uniform]", "FIFO[PER]", block=2, episodes=4)
    console = Console(quiet=True)
    found = sweep.run_sweep(study, tmp_path / "run", 9, None, checkpoint_seconds=60.0, console=console)
    [(count, jobs, *_)] = [call.args for call in here.call_args_list]
    assert (count, [job.stops for job in jobs]) == (8, [False, True, True])
    assert found.data.sizes["seed"] == 3
    assert np.isfinite(found.data["mu_final"]).all()
    scores = tmp_path / "run" / "cells" / study.cells()[0].id / "scores.h5"
    assert read_header(scores).facts["sessions"][0]["code"]["processor"].endswith(", this processor")
    assert call("inspect", tmp_path / "run") == 0


WORDS = ("sweep", "--plant", "PendulumDCSC", "--seeds", "2", "--episodes", "4", "--dry-run")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--learner", "ACER"), "ACER runs on the CPU only.*DDPG"),
        (("--strategy", "FIFO[ERE(phase=10)]"), "FIFO, FULL, Resv, TDE and Expl with Uniform, PER or PERprop"),
        (("--plant", "MujocoReacher"), "given by equations"),
        (("--plant", f"{PENDULUM_V1}:PendulumV1"), "own engine"),
        (("--set", "device=cuda", "evaluate_every_steps=400"), "evaluate_every_steps"),
        (("--set", "device=cuda", "replayed_noise=true"), "replayed_noise"),
        (("--set", "device=cuda", "delay=[0.01]"), "delay and channel are for the CPU only"),
        (("--set", "device=cuda", "learner.DDPG.normalise.rewards=true"), "normalis"),
        (("--set", "device=cuda", "learner.DDPG.memory.units=8"), "a memory"),
        (("--set", "device=cuda", "learner.DDPG.batch_size=600"), "a batch_size above 512"),
        (("--set", "device=gpu"), '"cuda:1" for one of several'),
    ],
)
def test_what_no_device_runs_is_refused(words: tuple[str, ...], expected: str, capsys: Capsys, tmp_path: Path) -> None:
    usual = () if "--set" in words else ("--set", "device=cuda")
    strategy = () if "--strategy" in words else ("--strategy", "FIFO[Uniform]")
    error = refused(capsys, *WORDS, "--output", tmp_path / "run", *strategy, *usual, *words)
    assert re.search(expected, error), error
    assert not (tmp_path / "run").exists()


def test_without_a_gpu_there_is_a_plan_and_no_sweep(capsys: Capsys, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "numba_cuda", None)
    monkeypatch.setattr(device_cell, "GPU", gpu.GPU)
    words = (*WORDS[:-1], "--strategy", "FIFO[Uniform]", "--set", "device=cuda", "--output", tmp_path / "run")
    assert "a guess" in printed(capsys, *words, "--dry-run")
    assert 'pip install "replaybench[gpu]"' in refused(capsys, *words)
    assert not (tmp_path / "run").exists()


def test_a_forged_checkpoint_is_refused(tmp_path: Path) -> None:
    """A device does not check bounds."""
    cell, run = cell_of(), CellRun(cell_of())
    run.advance()
    assert run.device is not None
    run.device.program.buffers.state(run.device.program.part("replay"))["count"] = 501
    write_record(tmp_path / "checkpoint.h5", "checkpoint", {"id": cell.id, "episode": 1}, run.state_dict())
    with pytest.raises(UserError, match="counts do not fit buffers of 500"):
        run_cell(cell, tmp_path, "none")
