"""The loop of one member a thread block, run on the host."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from replaybench.controllers.algorithms.ddpg import DDPG, DDPGConfig
from replaybench.controllers.interface.agent import LearnerSetting
from replaybench.controllers.interface.noise import GaussianNoise
from replaybench.device.buffers import DeviceBuffers
from replaybench.device.build import host_library
from replaybench.device.plants import DevicePlant
from replaybench.device.program import Host, Program, Schedule
from replaybench.envs.ode.magman import Magman
from replaybench.envs.ode.pendulum import PendulumDCSC
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.population import PopulationEnv
from replaybench.experiments.cell import stored_fields
from replaybench.experiments.schedule import make_task, updates_after
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.errors import UserError

SMALL = DDPGConfig(actor_hidden=(8, 8), critic_hidden=(8, 8, 4))


@pytest.mark.parametrize("plant", [PendulumDCSC(), Magman()])
def test_a_plant_moves_as_on_the_cpu(plant: OdePlant) -> None:
    steps = 100
    device = DevicePlant(plant, 50.0)
    entries = '#include "plant.cuh"\n' + device.source + _SIMULATE
    library, compiled = host_library(entries), device.host_functions()
    library.set_plant(*(ctypes.c_void_p(function.address) for function in compiled))
    env = PopulationEnv(plant, 1, frequency=50.0)
    actions = np.random.default_rng(0).uniform(-1.2, 1.2, (steps, len(plant.action_names))).astype(np.float32)
    states, rewards = np.zeros((steps, len(plant.state_names))), np.zeros(steps)
    observations = np.zeros((steps, len(plant.state_names)), np.float32)
    places = [ctypes.c_void_p(array.ctypes.data) for array in (actions, states, rewards, observations)]
    library.simulate(ctypes.byref(device.settings()), steps, *places)
    env.reset()
    for t in range(steps):
        observation, reward, _, _, _ = env.step(actions[t : t + 1])
        np.testing.assert_allclose(observations[t], observation[0], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(rewards[t], reward[0], rtol=1e-9, atol=1e-9)


_SIMULATE = """
extern "C" {
void set_plant(decltype(plant_rhs) rhs, decltype(plant_reward) reward, decltype(plant_project) project,
               decltype(plant_terminated) terminated) {
    plant_rhs = rhs, plant_reward = reward, plant_project = project, plant_terminated = terminated;
}
void simulate(const PlantSettings<Plant>* settings, int steps, const float* actions, double* states, double* rewards,
              float* observations) {
    Episode<Plant> episode{};
    const Simulation<Plant> plant{*settings, episode, {1, 2}, Purpose::SENSOR, Purpose::ACTUATOR};
    plant.begin();
    for (int t = 0; t < steps; ++t) {
        plant.step(actions + t * Plant::ACTIONS);
        for (int i = 0; i < Plant::STATES; ++i) states[t * Plant::STATES + i] = episode.state[i];
        for (int o = 0; o < Plant::OBSERVED; ++o) observations[t * Plant::OBSERVED + o] = episode.observation[o];
        rewards[t] = episode.reward;
    }
}
}
"""


class Run:
    """A population on the host form of the device."""

    def __init__(
        self, strategy: str = "FIFO[Uniform]", members: Sequence[int] = range(3), config: Any = SMALL,
        capacity: int = 500, episodes: int = 6, noise: float = 0.01, update_every: int = 0,
    ) -> None:  # fmt: skip
        plant = PendulumDCSC()
        parsed, setting = parse(strategy), LearnerSetting(make_task(plant, 50.0, "fixed"), 5, members)
        learner = DDPG(config, setting)
        steps = plant.steps_per_episode(50.0)
        apart = update_every or steps
        due = updates_after(apart, steps, parsed, learner)
        size = capacity if parsed.retention.bounded else steps * episodes
        self.buffers = DeviceBuffers(parsed, stored_fields(plant), size, learner.batch_size, round(steps + due * 16))
        schedule = Schedule(due, steps * episodes / apart, update_every, greedy_every=2)
        self.program = Program(DevicePlant(plant, 50.0, noise), learner, self.buffers, schedule)
        self.host = Host(self.program)

    @property
    def replay(self) -> Any:
        return self.program.part("replay")


@pytest.mark.parametrize("strategy", ["FIFO[Uniform]", "FULL[PER+IS]", "TDE[PERprop]", "Expl[Uniform+FIS]"])
def test_a_members_run_does_not_depend_on_the_others(strategy: str) -> None:
    together, alone = Run(strategy, range(3)), Run(strategy, [2])
    for each in (together, alone):
        each.host.advance(3)
    np.testing.assert_array_equal(together.program.memory[2], alone.program.memory[0])


@pytest.mark.parametrize("strategy", ["FULL[PER]", "TDE[Uniform]"])
def test_a_run_that_was_cut_continues_bit_for_bit(strategy: str) -> None:
    whole, cut = Run(strategy), Run(strategy)
    expected = whole.host.advance(4)
    first = cut.host.advance(1)
    resumed = Run(strategy)
    resumed.program.load_state(cut.program.state())
    rest = resumed.host.advance(3)
    for name in ("run", "hot", "cold"):
        np.testing.assert_array_equal(resumed.program.part(name), whole.program.part(name))
    for name in ("rows", "serial", "td_bits"):  # runs of an order differ by when they were merged, ranks do not
        views = (each.buffers.view(each.replay, name) for each in (resumed, whole))
        first_view, second_view = views
        np.testing.assert_array_equal(first_view, second_view)
    np.testing.assert_array_equal(np.concatenate([first.reward, rest.reward], axis=1), expected.reward)
    np.testing.assert_array_equal(rest.reward_greedy[:, -1], expected.reward_greedy[:, -1])


def test_structs_have_the_sizes_that_the_source_has() -> None:
    own = Run()
    assert own.host.library.settings_size() == ctypes.sizeof(own.program.settings)
    assert own.host.library.state_size() == own.program.part("run").shape[1]


def test_steps_and_updates_are_counted_as_on_the_cpu() -> None:
    own = Run(capacity=500)
    rounds = own.host.advance(3)
    state = own.buffers.state(own.replay)
    assert (rounds.steps == 200).all()
    assert [*state["collected"], *state["count"]] == [600] * 3 + [500] * 3
    assert (state["updates"] == 300).all()  # 8 replays of 200 experiences an episode, 16 an update
    assert np.isfinite(rounds.reward).all()
    assert np.isnan(rounds.reward_greedy[:, 0]).all()


def test_updates_after_every_few_steps() -> None:
    own = Run(update_every=50)
    own.host.advance(2)
    assert (own.buffers.state(own.replay)["updates"] == 200).all()


def test_stored_experiences_are_those_of_the_plant() -> None:
    """Each stored row follows from its observation and action, noise aside."""
    own = Run(noise=0.0, strategy="FULL[Uniform]")
    own.host.advance(1)
    columns = own.buffers.columns(own.replay)
    env = PopulationEnv(PendulumDCSC(), 1, frequency=50.0)
    after, reward = env.simulate(columns["observation"][0, :200], columns["action"][0, :200])
    wrapped = np.abs(after - columns["next_observation"][0, :200])
    np.testing.assert_allclose(np.minimum(wrapped, np.abs(wrapped - 2)) * (wrapped < 2.1), 0, atol=2e-4)
    np.testing.assert_allclose(columns["reward"][0, :200, 0], reward, rtol=1e-2, atol=2e-2)
    assert (columns["exploration"][0, :200] > 0).any()


@pytest.mark.slow
def test_ddpg_learns_the_swing_up() -> None:
    own = Run(config=DDPGConfig(), members=range(2), capacity=10_000, episodes=60, noise=0.0)
    curve = own.host.advance(60).reward
    assert curve[:, -10:].mean() > curve[:, :5].mean() + 15


def test_gaussian_exploration_is_that_of_its_settings() -> None:
    config = DDPGConfig(actor_hidden=(8,), critic_hidden=(8,), exploration=GaussianNoise(sigma=0.1, clip=True))
    own = Run(config=config, strategy="FULL[Uniform]")
    own.host.advance(1)
    deviation = own.buffers.columns(own.replay)["exploration"][:, :200]
    assert 0.07 < deviation.mean() / np.sqrt(2 / np.pi) < 0.13


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"strategy": "FIFO[ERE]"}, "Uniform, PER or PERprop"),
        ({"config": DDPGConfig(layer_norm=True)}, "layer normalisation"),
        ({"config": DDPGConfig(exploration=GaussianNoise())}, "clip"),
    ],
)
def test_what_no_device_supports_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Run(**changed)
