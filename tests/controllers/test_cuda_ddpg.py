"""DDPG's update in PyTorch against the compiled one, on PyTorch's CPU device; and what needs a CUDA device."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from replaybench.controllers.algorithms.ddpg import DDPG, DDPGConfig
from replaybench.controllers.cuda import AT_ONCE, DeviceDDPG
from replaybench.controllers.interface.agent import LearnerSetting, NormaliseConfig, Task
from replaybench.controllers.interface.exploration import ParameterNoise
from replaybench.controllers.learner import check_device
from replaybench.experiments.cell import CellRun, run_cell
from replaybench.experiments.study import Study
from replaybench.runtime.errors import UserError

S, A, M = 3, 2, 4
TASK = Task(observation_size=S, action_size=A, discount=0.95, reward_scale=0.01)
CUDA = torch.cuda.is_available()
needs_cuda = pytest.mark.skipif(not CUDA, reason="no CUDA device")


def batch(seed: int, size: int, dtype: Any = np.float64) -> Any:
    """Return a batch of every kind of sample; one member's learning rate is 0."""
    rng = np.random.Generator(np.random.PCG64(seed))

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=(M, size, *shape)).astype(dtype)

    return SimpleNamespace(
        observation=normal(S), action=np.tanh(normal(A)), reward=100 * normal(1), next_observation=normal(S),
        terminated=(rng.random((M, size, 1)) < 0.2).astype(dtype), weight=rng.random((M, size)).astype(dtype),
        actor_weight=rng.random((M, size)).astype(dtype), rate_factor=np.linspace(0, 1.5, M).astype(dtype),
    )  # fmt: skip


def pair(config: DDPGConfig, dtype: Any = np.float64, device: str = "cpu", graphs: bool = True) -> tuple[DDPG, DDPG]:
    """Return the same learner twice; the second is updated by PyTorch."""
    ours, theirs = (DDPG(config, LearnerSetting(TASK, 0, range(M), dtype=dtype)) for _ in range(2))
    for agent in (ours, theirs):
        agent.normaliser.observations.update(batch(0, 50).observation, np.ones(M, np.bool_))
        agent.normaliser.rewards.update(batch(0, 50).reward, np.ones(M, np.bool_))
    theirs.on_device = DeviceDDPG(theirs, device, graphs)
    return ours, theirs


def difference(ours: DDPG, theirs: DDPG) -> float:
    """Return the largest difference in networks, targets, moments; moments are small, and are compared in size."""
    ours.fetch()
    theirs.fetch()
    pairs = zip(ours.trained().values(), theirs.trained().values(), strict=True)
    return max(float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-3)) for a, b in pairs)


CONFIGS = [
    DDPGConfig(),
    DDPGConfig(l2=0.1, action_layer=0, batch_size=5, actor_rate=1e-2),
    DDPGConfig(l2=0.1, l2_form="decoupled", clip=1e-2, action_layer=3, tau=0.3),
    DDPGConfig(critic_hidden=(7,), actor_hidden=(), betas=(0.5, 0.8), clip=0.1),
    DDPGConfig(critic_hidden=(), action_layer=0, normalise=NormaliseConfig(observations=True, clip=1.0, rewards=True)),
]


@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_updates_are_those_of_the_compiled_learner(config: DDPGConfig) -> None:
    """In float64, to 1e-9 after 1 update and to 1e-7 after 50."""
    ours, theirs = pair(config)
    for update in range(1, 51):
        drawn = batch(update, config.batch_size)
        expected, returned = ours.update(drawn)["td_error"], theirs.update(drawn)["td_error"]
        tolerance = 1e-9 if update == 1 else 1e-7
        np.testing.assert_allclose(returned, expected, rtol=tolerance, atol=tolerance)
        if update in (1, 50):
            assert difference(ours, theirs) < tolerance
    start = DDPG(config, LearnerSetting(TASK, 0, range(M), dtype=np.float64))
    assert difference(start, theirs) > 1e-3
    assert int(theirs.steps[0]) == 50


@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_an_update_can_be_captured(config: DDPGConfig) -> None:
    """It asks for no value and takes nothing from the host: neither is possible on `meta`, without data."""
    learner = pair(config)[1]
    on_meta = DeviceDDPG(learner, "meta")
    on_meta.update_all([batch(1, config.batch_size)])
    assert on_meta.td_error.shape == (M, config.batch_size)
    assert int(learner.steps[0]) == 1


def test_a_phase_is_its_updates_one_after_the_other() -> None:
    """Over more than two transfers; each batch overwrites the one before, as those of a buffer do."""
    one, other = (pair(DDPGConfig())[1] for _ in range(2))
    updates = 2 * AT_ONCE + 3
    room = batch(0, 16)

    def drawn() -> Iterator[Any]:
        for update in range(updates):
            for name, array in vars(batch(update, 16)).items():
                getattr(room, name)[...] = array
            yield room

    one.update_all(drawn())
    for update in range(updates):
        other.update(batch(update, 16))
    assert difference(one, other) == 0
    assert int(one.steps[0]) == updates


def test_a_failed_member_fails_alone() -> None:
    healthy, ill = (pair(DDPGConfig(clip=1.0))[1] for _ in range(2))
    for update in range(5):
        drawn = batch(update, 16)
        healthy.update(drawn)
        drawn.reward[2] = np.nan
        ill.update(drawn)
    healthy.fetch()
    ill.fetch()
    others = np.arange(M) != 2
    assert np.isnan(ill.critic.parameters[2]).all()
    np.testing.assert_array_equal(healthy.critic.parameters[others], ill.critic.parameters[others])
    np.testing.assert_array_equal(healthy.actor.parameters[others], ill.actor.parameters[others])


def test_acting_follows_the_device() -> None:
    ours, theirs = pair(DDPGConfig())
    observation, everyone = np.ones((M, S)), np.ones(M, np.bool_)
    for update in range(3):
        ours.start_episode(update, everyone)
        theirs.start_episode(update, everyone)
        for agent in (ours, theirs):
            agent.update_all([batch(update, 16)])
        for seen in ("act", "explore"):
            arguments = (observation,) if seen == "act" else (observation, everyone)
            mine, other = (getattr(agent, seen)(*arguments) for agent in (ours, theirs))
            np.testing.assert_allclose(np.asarray(mine[0]), np.asarray(other[0]), rtol=1e-7)
        rows = observation[:, None]
        np.testing.assert_allclose(ours.value(rows), theirs.value(rows), rtol=1e-7)


def test_state_moves_between_cpu_and_device_bit_for_bit() -> None:
    ours, theirs = pair(DDPGConfig())
    for update in range(3):
        ours.update(batch(update, 16))
    theirs.update(batch(9, 16))
    theirs.load_state_dict(ours.state_dict())
    for name, array in theirs.state_dict().items():
        np.testing.assert_array_equal(array, ours.state_dict()[name], err_msg=name)
    for agent in (ours, theirs):
        agent.update(batch(3, 16))
    assert difference(ours, theirs) < 1e-7
    other = pair(DDPGConfig())[1]
    other.load_weights(theirs.weights())
    other.update_all([])
    for name, array in other.weights().items():
        np.testing.assert_array_equal(array, theirs.weights()[name], err_msg=name)
    assert isinstance(other.on_device, DeviceDDPG)
    np.testing.assert_array_equal(other.on_device.tensors["actor_target"].numpy(), theirs.actor.parameters)


def study(**changes: Any) -> Study:
    settings: dict[str, Any] = {
        "name": "t", "plants": ("PendulumDCSC",), "strategies": ("FIFO[Uniform]",), "seeds": 2, "episodes": 3,
        "capacity": 700, "greedy_every": 2, **changes,
    }  # fmt: skip
    return Study(**settings)


@pytest.mark.parametrize("strategy", ["FIFO[ERE]", "FULL[PER]"])
def test_cells_learn_as_on_the_cpu(strategy: str) -> None:
    """With and without what learners return; rounding differs, and has not grown yet."""
    gaussian = {"DDPG": {"exploration": {"form": "gaussian"}}}
    runs = [CellRun(study(strategies=(strategy,), learner=gaussian).cells()[0]) for _ in range(2)]
    ours, theirs = (run.agent for run in runs)
    assert isinstance(ours, DDPG)
    assert isinstance(theirs, DDPG)
    theirs.on_device = DeviceDDPG(theirs, "cpu")
    for run in runs:
        for _ in range(2):
            run.advance()
    np.testing.assert_allclose(runs[0].reward, runs[1].reward, rtol=1e-2)
    np.testing.assert_allclose(ours.actor.parameters, theirs.actor.parameters, atol=1e-2)
    assert runs[0].replay.uses_feedback == (strategy == "FULL[PER]")


def test_what_does_not_run_on_a_device_is_refused() -> None:
    gaussian, noisy = ({"DDPG": {"exploration": {"form": form}}} for form in ("gaussian", "parameter"))
    remembering = {"DDPG": {"memory": {"units": 4}}}
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"learners": ("TD3",)}, 'TD3 runs on the CPU only; set device = "cpu"'),
        ({"strategies": ("FIFO[Uniform+ReFER]",), "learner": gaussian}, "DDPG runs with ReF-ER"),
        ({"learner": noisy}, "DDPG runs with ReF-ER, parameter noise"),
        ({"learner": {"DDPG": {"layer_norm": True}}}, "layer normalisation, a memory"),
        ({"learner": remembering}, 'a memory or l2_form = "weights" on the CPU only'),
        ({"learner": {"DDPG": {"l2": 0.01, "l2_form": "weights"}}}, 'l2_form = "weights" on the CPU only'),
    ]
    for changes, told in refusals:
        with pytest.raises(UserError, match=told):
            study(device="cuda", **changes).cells()
    with pytest.raises(UserError, match="parameter noise, .* on the CPU only"):
        DDPG(DDPGConfig(exploration=ParameterNoise()), LearnerSetting(TASK, 0, range(M), device="cuda"))
    with pytest.raises(UserError, match='device must be "cpu".*gpu'):
        study(device="gpu")
    with pytest.raises(UserError, match="no .*device .*here"):
        check_device("cuda:99")
    assert check_device("cpu") == "cpu"


def test_the_device_is_part_of_a_cells_identity() -> None:
    assert study(device="cuda").cells()[0].id != study().cells()[0].id


@pytest.mark.skipif(CUDA, reason="there is a CUDA device")
def test_without_a_device_the_remedy_is_named() -> None:
    with pytest.raises(UserError, match='no CUDA device here; set device = "cpu"'):
        DDPG(DDPGConfig(), LearnerSetting(TASK, 0, range(M), device="cuda"))
    with pytest.raises(UserError, match="no CUDA device here"):
        CellRun(study(device="cuda").cells()[0])


@needs_cuda
@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_graphs_replay_what_they_captured(config: DDPGConfig) -> None:
    """Phases in graphs of several sizes equal single operations, and both the compiled learner."""
    ours, eager = pair(config, device="cuda", graphs=False)
    captured = pair(config, device="cuda")[1]
    drawn = [batch(update, config.batch_size) for update in range(AT_ONCE + 5)]
    for agent in (ours, eager, captured):
        agent.update_all(drawn)
    assert difference(eager, captured) < 1e-12
    assert difference(ours, captured) < 1e-7
    expected, returned = (agent.update(drawn[0])["td_error"] for agent in (ours, captured))
    np.testing.assert_allclose(returned, expected, rtol=1e-6, atol=1e-6)


@needs_cuda
def test_learning_curves_agree() -> None:
    """The mean reward of late episodes, over 32 members each, within the error of its difference."""
    late = []
    for device in ("cpu", "cuda"):
        run = CellRun(study(seeds=32, episodes=60, capacity=10_000, device=device).cells()[0])
        while run.episode < 60:
            run.advance()
        late.append(run.reward[:, 40:].mean(axis=1))
    error = np.sqrt(sum(found.var(ddof=1) / len(found) for found in late))
    assert abs(late[0].mean() - late[1].mean()) < 3 * error


@needs_cuda
def test_a_resumed_cell_continues_on_the_device(tmp_path: Path) -> None:
    cell = study(device="cuda").cells()[0]
    assert not run_cell(cell, tmp_path, "none", report=lambda told: told.done < 2)
    assert run_cell(cell, tmp_path, "none")
    whole = CellRun(cell)
    while whole.episode < cell.episodes:
        whole.advance()
    from replaybench.data.policy_file import read_policy

    for name, array in whole.agent.weights().items():
        np.testing.assert_array_equal(read_policy(tmp_path / "policy.safetensors")[1][name], array, err_msg=name)
