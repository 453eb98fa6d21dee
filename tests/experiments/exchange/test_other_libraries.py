"""What others write is read here, and what is written here others read: Minari's own collector, d3rlpy, TorchRL.

d3rlpy, TorchRL and JAX (which Minari's collector needs) are no dependencies; where one is missing its test is skipped.
"""

from __future__ import annotations

import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

import gymnasium
import minari
import numpy as np
import pytest
from recorded import buffer, collect

from replaybench.baselines.references import Reference
from replaybench.envs.ode.pendulum import Pendulum
from replaybench.envs.registry import make_plant
from replaybench.exchange.minari_export import export_buffer
from replaybench.exchange.minari_import import convert_dataset
from replaybench.runtime.errors import UserError

NAME = "replaybench/pendulum/full-v0"
STEPS = 200  # of an episode at 50 Hz


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    one = Reference("Pendulum", 50.0, 0.0, -200.0, 1.0, -150.0, -100.0, -50.0, -50.0, -60.0, 0.95, (3, 3), 3, 9)
    monkeypatch.setattr("replaybench.exchange.minari_export.reference", lambda *_: one)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    return tmp_path / "datasets"


@pytest.mark.filterwarnings("ignore:Implicitly cleaning up:ResourceWarning")  # Minari leaves a folder behind
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("task", ["Pendulum-v1", "InvertedPendulum-v5", "CartPole-v1"])
def test_a_dataset_of_minaris_own_collector_is_read_in_the_tasks_units(task: str) -> None:
    pytest.importorskip("jax", reason="Minari's DataCollector needs JAX")
    env: Any = minari.DataCollector(gymnasium.make(task, max_episode_steps=30))
    env.action_space.seed(3)
    for seed in range(3):
        env.reset(seed=seed)
        over = False
        while not over:
            *_, terminated, truncated, _ = env.step(env.action_space.sample())
            over = terminated or truncated
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # who wrote it, and where its code is, is not said
        theirs = env.create_dataset("theirs/random-v0")
    env.close()
    plant = make_plant(f"gymnasium:{task}")
    arrays, facts, summary = convert_dataset("theirs/random-v0", plant)
    assert facts["frequency"] == plant.frequency
    given = list(theirs)
    for name, expected in (
        ("observation", [each.observations[:-1] for each in given]),
        ("next_observation", [each.observations[1:] for each in given]),
    ):
        physical = plant.denormalise_state(arrays[name][0])
        np.testing.assert_allclose(physical, np.concatenate(expected), rtol=1e-6, atol=1e-6)
    assert np.abs(arrays["action"]).max() <= 1.0
    actions = np.concatenate([each.actions.reshape(len(each.actions), -1) for each in given])
    np.testing.assert_allclose(plant.denormalise_action(arrays["action"][0]), actions, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(arrays["reward"][0, :, 0], np.concatenate([each.rewards for each in given]), rtol=1e-6)
    ends = np.concatenate([each.terminations for each in given])
    np.testing.assert_array_equal(arrays["terminated"][0, :, 0], ends)
    assert any("taken as Gymnasium's task's own" in line for line in summary.warnings)
    with pytest.raises(UserError, match="no other rate, not at 7 Hz"):
        convert_dataset("theirs/random-v0", plant, frequency=7.0)


@pytest.mark.parametrize("name", ["gymnasium:Pendulum-v1", "MujocoHalfCheetah"])
def test_a_plant_without_equations_leaves_and_comes_back_bit_for_bit(name: str, tmp_path: Path) -> None:
    plant = make_plant(name)
    arrays = collect(plant, episodes=1, noise=0.0, frequency=plant.frequency)
    stored = buffer(tmp_path / "b.h5", arrays, plant, frequency=plant.frequency, noise=0.0)
    export_buffer(stored, NAME, member=1)
    back, facts, _ = convert_dataset(NAME, plant)
    for field in ("observation", "action", "reward", "next_observation", "terminated", "episode", "step"):
        np.testing.assert_array_equal(back[field][0], arrays[field][1], err_msg=field)
    assert facts["frequency"] == plant.frequency


def test_d3rlpy_reads_an_export(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Gym, which d3rlpy imports
        datasets = pytest.importorskip("d3rlpy.datasets", reason="d3rlpy is not installed")
    arrays = collect(Pendulum(), episodes=2)
    export_buffer(buffer(tmp_path / "b.h5", arrays), NAME)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset, env = datasets.get_minari(NAME)
    assert (dataset.size(), dataset.transition_count) == (4, 4 * (STEPS - 1)), "it passes over steps to a time limit"
    first = dataset.episodes[0]
    np.testing.assert_array_equal(first.observations, arrays["observation"][0, :STEPS])
    np.testing.assert_array_equal(first.actions, arrays["action"][0, :STEPS])
    np.testing.assert_array_equal(first.rewards, arrays["reward"][0, :STEPS])
    assert not first.terminated
    assert env.observation_space.shape == (2,)


def test_torchrl_reads_an_export(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        datasets = pytest.importorskip("torchrl.data.datasets", reason="TorchRL is not installed")
    if tuple(int(part) for part in metadata.version("torchrl").split(".")[:2]) >= (0, 11):
        pytest.skip("TorchRL from 0.11 leaves zeros in its copy of any Minari dataset, Minari's own included")
    arrays = collect(Pendulum(), episodes=2)
    export_buffer(buffer(tmp_path / "b.h5", arrays), NAME)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = datasets.MinariExperienceReplay(
            NAME, batch_size=16, root=tmp_path / "torchrl", load_from_local_minari=True
        )
        everything = data[:]
    assert len(data) == 4 * STEPS
    for ours, theirs in (("observation", "observation"), ("action", "action")):
        np.testing.assert_array_equal(everything[theirs].numpy(), np.concatenate(arrays[ours]))
    np.testing.assert_array_equal(everything["next", "observation"].numpy(), np.concatenate(arrays["next_observation"]))
    np.testing.assert_array_equal(everything["next", "reward"].numpy().ravel(), arrays["reward"].ravel())
    assert not everything["next", "terminated"].any()
    assert data.sample()["action"].shape == (16, 1)
