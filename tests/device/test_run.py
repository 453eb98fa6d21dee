"""The loop of one member a thread block, run on the host."""

import ctypes
import dataclasses
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pytest
from scipy import stats

from replaybench.baselines.controllers import run_episode
from replaybench.controllers.algorithms.ddpg import DDPG, DDPGConfig
from replaybench.controllers.algorithms.dqn import DQN, DQNConfig
from replaybench.controllers.algorithms.sac import SAC, SACConfig
from replaybench.controllers.algorithms.td3 import TD3, TD3Config
from replaybench.controllers.interface.agent import LearnerSetting, NormaliseConfig
from replaybench.controllers.interface.noise import GaussianNoise, ProcessNoise
from replaybench.data.batch import SQUARED
from replaybench.device.buffers import DeviceBuffers
from replaybench.device.build import host_library
from replaybench.device.plants import DevicePlant
from replaybench.device.program import Host, Program, Schedule
from replaybench.envs.interface.plant import Params, Vector
from replaybench.envs.ode.magman import Magman
from replaybench.envs.ode.pendulum import PendulumDCSC
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.population import PopulationEnv
from replaybench.examples.cart_pole import CartPole
from replaybench.experiments.cell import stored_fields
from replaybench.experiments.schedule import make_task, updates_after
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.errors import UserError
from tests.helpers.declared import declared

SMALL: Final = DDPGConfig(actor_hidden=(8, 8), critic_hidden=(8, 8, 4))
NETS: Final[Any] = {"actor_hidden": (8,), "critic_hidden": (8,), "batch_size": 8, "replays_per_experience": 2.0}
SLOW_NOISE: Final = ProcessNoise(diffusion=0.05, first_amplitude=1.0, last_amplitude=0.5, decay_episodes=3)
OTHERS: Final = (
    TD3Config(**NETS, warmup_episodes=1, exploration=SLOW_NOISE),
    SACConfig(**NETS),
    DQNConfig(hidden=(8,), batch_size=8, replays_per_experience=2.0, levels=4, copy_every=30),
)
SEED: Final = 5
PENDULUM: Final = PendulumDCSC()
LEARNERS: Final[Any] = {DDPGConfig: DDPG, TD3Config: TD3, SACConfig: SAC, DQNConfig: DQN}


RANDOM: Final = """
#include "random.cuh"
extern "C" {
void normals(unsigned long long seed, unsigned member, unsigned purpose, unsigned sub, int count, float* out) {
    for (int i = 0; i < count; ++i) out[i] = Random{seed, member}.normal(Purpose(purpose), i, sub);
}
unsigned below(unsigned count, unsigned long long seed, unsigned member, unsigned purpose, unsigned i, unsigned sub) {
    return Random{seed, member}.below(count, Purpose(purpose), i, sub);
}
}
"""
SAMPLING, EXPLORATION, SENSOR, ACTUATOR = 2, 4, 5, 6  # of the enumeration Purpose


def normals(member: int, purpose: int, count: int, sub: int = 0) -> np.ndarray:
    drawn = np.zeros(count, np.float32)
    host_library(RANDOM).normals(ctypes.c_uint64(SEED), member, purpose, sub, count, ctypes.c_void_p(drawn.ctypes.data))
    return drawn


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hurdles(CartPole):
    """Four forces, a hurdle that fast carts pass within a control step, and speeds that are limited or unknown."""

    name = "Hurdles"
    action_choices = (4,)
    saturates = True
    observation_limit = (1.0, 0.5, 1.0, 1.0)

    @staticmethod
    def rhs(x: Vector, u: Vector, p: Params) -> tuple[float, ...]:
        return x[1], 2 * u[0], x[1], math.nan if x[0] > 0 else 0.0

    @staticmethod
    def project(x: Vector, p: Params) -> int:
        return int(0.05 < abs(x[0]) < 0.06)

    @staticmethod
    def reward(x: Vector, u: Vector, x_next: Vector, event: int, p: Params) -> float:
        return float(x_next[0] + u[0] + 100 * event)

    @staticmethod
    def terminated(x_next: Vector, event: int, p: Params) -> bool:
        return event > 0 or abs(x_next[0]) > 0.3


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize(("plant", "frequency"), [(PendulumDCSC(), 50.0), (Magman(), 50.0), (Hurdles(), 5.0)])
def test_a_plant_moves_as_on_the_cpu(plant: OdePlant, frequency: float, noise: float) -> None:
    """With noise, as the CPU without noise under the disturbed actions. The last action is NaN."""
    steps, seen = 100, plant.state_names[1:]
    device = DevicePlant(plant, frequency, noise, seen)
    entries = '#include "plant.cuh"\n' + device.source + _SIMULATE
    library, compiled = host_library(entries), device.host_functions()
    library.set_plant(*(ctypes.c_void_p(function.address) for function in compiled))
    env = PopulationEnv(plant, 1, frequency=frequency, observe=seen, nan_actions="fail")
    actions = np.random.default_rng(0).uniform(-1.2, 1.2, (steps, len(plant.action_names))).astype(np.float32)
    rewards, ended = np.zeros(steps), np.zeros((steps, 2), np.int32)
    observations, sensed = np.zeros((2, steps, len(seen)), np.float32)
    actions[-1, -1], acted = np.nan, np.zeros_like(actions)
    arrays = (actions, rewards, observations, sensed, acted, ended)
    library.simulate(ctypes.byref(device.settings()), steps, *(ctypes.c_void_p(array.ctypes.data) for array in arrays))
    errors = [
        noise * np.stack([normals(2, purpose, 2 * steps, sub) for sub in subs], axis=1)
        for purpose, subs in ((ACTUATOR, range(len(plant.action_names))), (SENSOR, range(1, len(seen) + 1)))
    ]
    count = 0  # of readings, of which each episode has one more than steps
    for t in range(steps):
        if t == 0 or ended[t - 1].any():
            env.reset()
            count += 1
        observation, reward, *flags, _ = env.step(np.clip(actions[t : t + 1], -1, 1) + errors[0][t])
        if t < steps - 1:
            np.testing.assert_allclose(acted[t], errors[0][t], rtol=1e-6)
            np.testing.assert_allclose(sensed[t], errors[1][count], rtol=1e-6)
            count += 1
        np.testing.assert_allclose(observations[t], observation[0] + sensed[t], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(rewards[t], reward[0], rtol=1e-5 if noise else 1e-9, atol=1e-5 if noise else 1e-9)
        np.testing.assert_array_equal(ended[t], np.ravel(flags))
    assert np.isnan(rewards).tolist() == [False] * (steps - 1) + [True]
    if isinstance(plant, Hurdles):
        assert (rewards > 50).any()
        assert np.isclose(np.abs(observations - sensed), 0.5, atol=1e-6).any()


pytestmark = pytest.mark.slow  # each test compiles C++
_SIMULATE = """
extern "C" {
void set_plant(decltype(plant_rhs) rhs, decltype(plant_reward) reward, decltype(plant_project) project,
               decltype(plant_terminated) terminated) {
    plant_rhs = rhs, plant_reward = reward, plant_project = project, plant_terminated = terminated;
}
void simulate(const PlantSettings<Plant>* settings, int steps, const float* actions, double* rewards,
              float* observations, float* sensed, float* acted, int* ended) {
    Episode<Plant> episode{};
    const Simulation<Plant> plant{*settings, episode, {5, 2}, Purpose::SENSOR, Purpose::ACTUATOR};
    for (int t = 0; t < steps; ++t) {
        if (!episode.active) plant.begin();
        plant.step(actions + t * Plant::ACTIONS);
        for (int o = 0; o < Plant::OBSERVED; ++o, ++observations, ++sensed)
            *observations = episode.observation[o], *sensed = episode.sensor_noise[o];
        for (int a = 0; a < Plant::ACTIONS; ++a) acted[t * Plant::ACTIONS + a] = episode.actuator_noise[a];
        rewards[t] = episode.reward;
        ended[2 * t] = episode.terminated, ended[2 * t + 1] = episode.length == settings->steps;
    }
}
}
"""


class Run:
    """A population on the host form of the device."""

    def __init__(
        self, strategy: str = "FIFO[Uniform]", members: Sequence[int] = range(3), config: Any = SMALL,
        capacity: int = 500, episodes: int = 6, noise: float = 0.01, update_every: int = 0,
        plant: OdePlant = PENDULUM, frequency: float = 50.0, learns: bool = True,
    ) -> None:  # fmt: skip
        parsed, setting = parse(strategy), LearnerSetting(make_task(plant, frequency, "fixed"), SEED, members)
        learner = LEARNERS[type(config)](config, setting)
        steps = plant.steps_per_episode(frequency)
        apart = update_every or steps
        due = updates_after(apart, steps, parsed, learner.schedule) if learns else 0
        size = capacity if parsed.retention.bounded else steps * episodes
        self.buffers = DeviceBuffers(parsed, stored_fields(plant), size, learner.schedule.batch_size)
        schedule = Schedule(due, steps * episodes / apart, update_every, greedy_every=2)
        self.program = Program(DevicePlant(plant, frequency, noise), learner, self.buffers, schedule)
        self.host, self.updates = Host(self.program), due

    @property
    def replay(self) -> Any:
        return self.program.part("replay")


RUNS: Final = [
    *((strategy, SMALL) for strategy in ("FIFO[Uniform]", "FULL[PER+IS]", "TDE[PERprop]", "Expl[Uniform+FIS]")),
    *(("FIFO[Uniform]", config) for config in OTHERS),
]
every_run = pytest.mark.parametrize(
    ("strategy", "config"), [*RUNS[1:3], *(pytest.param(*run, marks=pytest.mark.slow) for run in (RUNS[0], *RUNS[3:]))]
)


@every_run
def test_a_members_run_does_not_depend_on_the_others(strategy: str, config: Any) -> None:
    together, alone = (Run(strategy, members, config) for members in (range(3), [2]))
    for each in (together, alone):
        assert np.isfinite(each.host.advance(3).reward).all()
    np.testing.assert_array_equal(together.program.memory[2], alone.program.memory[0])


@pytest.mark.parametrize(
    ("strategy", "config"),
    [RUNS[2], *(pytest.param(*run, marks=pytest.mark.slow) for run in (RUNS[1], RUNS[3], RUNS[5]))],
)
def test_a_run_does_not_depend_on_the_order_of_threads(strategy: str, config: Any) -> None:
    forward, backward = (Run(strategy, [1], config) for _ in range(2))
    backward.host.library = host_library(backward.program.source, reverse=True)
    backward.host.library.set_plant(*(ctypes.c_void_p(function.address) for function in backward.host._functions))
    for each in (forward, backward):
        each.host.advance(4)
    np.testing.assert_array_equal(forward.program.memory, backward.program.memory)


@every_run
def test_a_run_that_was_cut_continues_bit_for_bit(strategy: str, config: Any) -> None:
    whole, cut, resumed = (Run(strategy, config=config) for _ in range(3))
    expected = whole.host.advance(4)
    first = cut.host.advance(1)
    resumed.program.load_state(cut.program.state())
    rest = resumed.host.advance(3)
    for name in ("run", "hot", "cold"):
        np.testing.assert_array_equal(resumed.program.part(name), whole.program.part(name))
    for name in {"rows", "serial", "td_bits"} & set(whole.buffers.arrays):
        # Runs of an order differ by when they were merged; ranks do not.
        resumed_view, whole_view = (each.buffers.view(each.replay, name) for each in (resumed, whole))
        np.testing.assert_array_equal(resumed_view, whole_view)
    np.testing.assert_array_equal(np.concatenate([first.reward, rest.reward], axis=1), expected.reward)
    np.testing.assert_array_equal(rest.reward_greedy[:, -1], expected.reward_greedy[:, -1])


@pytest.mark.parametrize("config", [SMALL, *OTHERS])
def test_the_greedy_score_is_that_of_the_learned_policy(config: Any) -> None:
    own = Run(config=config, noise=0.0)
    started = {name: array.copy() for name, array in own.program.learner.weights().items()}
    measured = own.host.advance(2).reward_greedy[:, 1]
    learner = own.program.fetch()
    assert all((array != started[name]).any() for name, array in learner.weights().items())
    expected = run_episode(learner.act, PopulationEnv(PendulumDCSC(), 3, frequency=50.0))
    np.testing.assert_allclose(measured, expected, rtol=1e-3)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShortTrack(CartPole):
    name = "ShortTrack"

    @staticmethod
    def terminated(x_next: Vector, event: int, p: Params) -> bool:
        return bool(abs(x_next[0]) > 0.05)


@pytest.mark.parametrize("amplitudes", [(1.0, 0.5), (0.3, 0.3)])
def test_process_noise_by_hand(amplitudes: tuple[float, float]) -> None:
    """The noise starts at zero in each episode; it is clipped, scaled by the episode's amplitude, added and clipped."""
    first, last = amplitudes
    noise = ProcessNoise(diffusion=0.5, first_amplitude=first, last_amplitude=last, decay_episodes=3)
    config, rounds, steps = dataclasses.replace(SMALL, exploration=noise), 4, 200
    own = Run("FULL[Uniform]", [4], config, noise=0.0, learns=False)
    policy = own.program.fetch().policy
    own.host.advance(rounds)
    stored = {name: column[0, : rounds * steps] for name, column in own.buffers.columns(own.replay).items()}
    drawn = normals(4, EXPLORATION, rounds * steps)
    process = np.zeros(drawn.size)
    for t, normal in enumerate(drawn):
        process[t] = (0.7 * process[t - 1] if t % steps else 0.0) + 0.5 * normal
    assert (np.abs(process) > 1).mean() > 0.05
    amplitude = np.repeat(first + np.array([0.0, 0.5, 1.0, 1.0]) * (last - first), steps)
    greedy = policy(stored["observation"][None])[0, :, 0]
    expected = np.clip(greedy + amplitude * np.clip(process, -1, 1), -1, 1)
    np.testing.assert_allclose(stored["action"][:, 0], expected, atol=2e-6)
    np.testing.assert_allclose(stored["exploration"][:, 0], np.abs(stored["action"][:, 0] - greedy), atol=2e-6)


@pytest.mark.parametrize("plant", [PendulumDCSC(), ShortTrack()])
@pytest.mark.parametrize("config", [SMALL, OTHERS[2]])
def test_updates_are_those_of_the_cpu_with_the_same_experiences(plant: OdePlant, config: Any) -> None:
    rounds, member = 5, 4
    kwargs: Any = {"members": [member], "config": config, "noise": 0.0, "plant": plant, "frequency": 5.0}
    own, learner = Run("FULL[Uniform]", **kwargs), Run("FULL[Uniform]", **kwargs).program.learner
    lengths = own.host.advance(rounds).steps[0].astype(int)
    columns = {name: column[:1] for name, column in own.buffers.columns(own.replay).items()}
    ends = np.zeros(lengths.sum())
    ends[np.cumsum(lengths) - 1] = lengths < plant.steps_per_episode(5.0)
    np.testing.assert_array_equal(columns["terminated"][0, : len(ends), 0], ends)  # not at the end of the time
    assert ends.any() == isinstance(plant, ShortTrack)
    random, done, size = host_library(RANDOM), 0, learner.schedule.batch_size
    for phase, stored in enumerate(np.cumsum(lengths).tolist()):
        for _ in range(int((phase + 1) * own.updates) - int(phase * own.updates)):
            at = [random.below(stored, ctypes.c_uint64(SEED), member, SAMPLING, done, b) for b in range(size)]
            weight = np.ones((1, size), np.float32)
            batch = {name: np.ascontiguousarray(column[:, at]) for name, column in columns.items()}
            rest = {"weight": weight, "actor_weight": weight, "rate_factor": np.ones(1, np.float32), "columns": {}}
            drawn: Any = SimpleNamespace(**batch, **rest, critic_loss=SQUARED, steps=None)
            learner.update(drawn)
            done += 1
    assert done > 20
    expected: Any = learner.weights()
    for name, array in own.program.fetch().weights().items():
        np.testing.assert_allclose(np.asarray(array, np.float32), expected[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("every", [0, 200])
def test_weights_go_from_their_first_to_their_last_exponent_over_the_horizon(every: int) -> None:
    def networks(weights: str, config: Any, rounds: int) -> np.ndarray:
        own = Run(f"FIFO[PER+IS({weights})]", [4], config, capacity=1000, episodes=2, update_every=every)
        own.host.advance(rounds)
        return own.program.part("hot").copy()

    # The first phase has the first exponent. TD3 learns from the second phase on, where the horizon of two phases ends.
    for config, rounds, constant in ((SMALL, 1, "0.4, 0.4"), (OTHERS[0], 3, "1, 1")):
        same, rising = (networks(weights, config, rounds) for weights in (constant, "0.4, 1"))
        np.testing.assert_array_equal(rising, same)


def test_weights_multiply_the_loss_of_the_critic_and_on_request_that_of_the_actor() -> None:
    """Seen in the moments of Adam after a single update."""
    one, moments = dataclasses.replace(SMALL, replays_per_experience=16 / 200), []
    for weights in ("", "+IS(1, 1)", "+IS(1, 1, all_networks=true)"):
        own = Run(f"FIFO[PER{weights}]", [4], one)
        own.host.advance(1)
        moments.append({name: adam.first for name, adam in own.program.fetch().networks.adams.items()})
    plain, usual, all_networks = moments
    assert (plain["critic"] != usual["critic"]).any()
    np.testing.assert_array_equal(usual["critic"], all_networks["critic"])
    assert (usual["actor"] != all_networks["actor"]).any()


@pytest.mark.parametrize("metric", ["mean reward", "return"])
def test_scores_of_an_iteration_are_means_over_the_episodes_that_end_in_it(metric: str) -> None:
    rounds, steps, plant = 4, 20, declared(ShortTrack, episode_metric=metric)()
    own = Run("FULL[Uniform]", [4], plant=plant, frequency=5.0, update_every=10, learns=False)
    found = own.host.advance(rounds)
    columns = own.buffers.columns(own.replay)
    reward, terminated = (columns[name][0, : rounds * steps, 0] for name in ("reward", "terminated"))
    scores: list[list[float]] = [[] for _ in range(rounds)]
    lengths: list[list[int]] = [[] for _ in range(rounds)]
    begin = 0
    for t in range(rounds * steps):
        if terminated[t] or t + 1 - begin == steps:
            total = reward[begin : t + 1].sum(dtype=float)
            scores[t // steps].append(total if metric == "return" else total / (t + 1 - begin))
            lengths[t // steps].append(t + 1 - begin)
            begin = t + 1
    assert min(map(len, scores)) > 1
    np.testing.assert_allclose(found.reward[0], [*map(np.mean, scores)], rtol=1e-6)
    np.testing.assert_allclose(found.steps[0], [*map(np.mean, lengths)])


def test_updates_without_experiences_are_counted_as_on_the_cpu() -> None:
    own = Run("Drop(0.95)*FIFO[PER]", config=dataclasses.replace(SMALL, replays_per_experience=320.0), update_every=1)
    own.host.advance(1)
    assert (own.buffers.view(own.replay, "serial")[:, 0] > 1).any()
    assert (own.buffers.state(own.replay)["updates"] == 200).all()


def explored(config: Any, rounds: int = 1) -> tuple[Any, dict[str, Any]]:
    """Return the learner, and what it stored in the last of some rounds, before it had learned from any."""
    own = Run(members=range(12), config=config, noise=0.0)
    learner = own.program.fetch()
    own.host.advance(rounds)
    columns = own.buffers.columns(own.replay)
    return learner, {name: column[:, 200 * (rounds - 1) : 200 * rounds] for name, column in columns.items()}


def test_td3_explores_at_random_then_by_its_process() -> None:
    td3 = OTHERS[0]
    learner, stored = explored(td3)
    assert stats.kstest(stored["action"].ravel(), "uniform", (-1, 2)).pvalue > 1e-3
    greedy = learner.policy(stored["observation"])
    np.testing.assert_allclose(stored["exploration"], np.abs(stored["action"] - greedy), atol=1e-6)

    learner, stored = explored(td3, 2)  # nothing was learned in the warm-up
    noise = (stored["action"] - learner.policy(stored["observation"])) / 0.75
    assert (np.abs(stored["action"]) < 1).all()
    drawn = (noise[:, 1:] - 0.7 * noise[:, :-1]) / 0.05
    assert stats.kstest(drawn.ravel(), "norm").pvalue > 1e-3
    np.testing.assert_allclose(stored["exploration"], 0.75 * np.abs(noise), atol=1e-6)


def test_ddpg_explores_by_gaussian_noise() -> None:
    learner, stored = explored(dataclasses.replace(SMALL, exploration=GaussianNoise(sigma=0.1, clip=True)))
    noise = stored["action"] - learner.policy(stored["observation"])
    assert stats.kstest(noise[np.abs(stored["action"]) < 1] / 0.1, "norm").pvalue > 1e-3


def test_sac_explores_by_its_policy() -> None:
    learner, stored = explored(OTHERS[1])
    mean, log_std = np.split(learner.actor(stored["observation"]), 2, axis=2)
    drawn = (np.arctanh(stored["action"].astype(float)) - mean) / np.exp(log_std)
    assert stats.kstest(drawn[np.abs(stored["action"]) < 0.999], "norm").pvalue > 1e-3
    np.testing.assert_allclose(stored["exploration"], np.abs(stored["action"] - np.tanh(mean)), atol=1e-6)


def test_dqn_explores_by_random_choices() -> None:
    learner, stored = explored(OTHERS[2])
    levels = np.linspace(-1, 1, 4, dtype=np.float32)
    greedy = learner.policy(stored["observation"])
    taken, expected = ([(action == level).sum() for level in levels] for action in (stored["action"], greedy))
    assert stats.chisquare(taken, 0.3 * np.array(expected) + 0.7 * greedy.size / 4).pvalue > 1e-3
    assert stats.binomtest(int((stored["action"] != greedy).sum()), greedy.size, 0.7 * 3 / 4).pvalue > 1e-3
    np.testing.assert_allclose(stored["exploration"], np.abs(stored["action"] - greedy), atol=1e-6)


def test_steps_and_updates_are_counted_as_on_the_cpu() -> None:
    own = Run()
    assert own.host.library.settings_size() == ctypes.sizeof(own.program.settings)
    assert own.host.library.state_size() == own.program.part("run").shape[1]
    rounds = own.host.advance(3)
    state = own.buffers.state(own.replay)
    assert (rounds.steps == 200).all()
    assert [*state["collected"], *state["count"]] == [600] * 3 + [500] * 3
    assert (state["updates"] == 300).all()  # 8 replays of 200 experiences an episode, 16 an update
    assert np.isfinite(rounds.reward).all()
    assert np.isnan(rounds.reward_greedy[:, 0]).all()


@pytest.mark.parametrize(("config", "updates"), [(SMALL, 200), (OTHERS[0], 50), (OTHERS[2], 100)])
def test_updates_after_every_few_steps(config: Any, updates: int) -> None:
    own = Run(config=config, update_every=50)  # TD3 has one round of warm-up
    own.host.advance(2)
    assert (own.buffers.state(own.replay)["updates"] == updates).all()


def test_stored_experiences_are_those_of_the_plant() -> None:
    """Each stored row follows from its observation and action, noise aside."""
    own = Run(noise=0.0, strategy="FULL[Uniform]")
    own.host.advance(1)
    columns = {name: column[0, :200] for name, column in own.buffers.columns(own.replay).items()}
    after, reward = PopulationEnv(PendulumDCSC(), 1, frequency=50.0).simulate(columns["observation"], columns["action"])
    wrapped = np.abs(after - columns["next_observation"])
    np.testing.assert_allclose(np.minimum(wrapped, np.abs(wrapped - 2)) * (wrapped < 2.1), 0, atol=2e-4)
    np.testing.assert_allclose(columns["reward"][:, 0], reward, rtol=1e-2, atol=2e-2)
    assert (columns["exploration"] > 0).any()


def test_ddpg_learns_the_swing_up() -> None:
    own = Run(config=DDPGConfig(), members=range(2), capacity=10_000, episodes=60, noise=0.0)
    curve = own.host.advance(60).reward
    assert curve[:, -10:].mean() > curve[:, :5].mean() + 15


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"config": DDPGConfig(layer_norm=True)}, "layer normalisation"),
        ({"config": DDPGConfig(exploration=GaussianNoise())}, "clip = true and no truncate"),
        ({"config": TD3Config(exploration=GaussianNoise(truncate=3.0))}, "clip = true and no truncate"),
        ({"config": SACConfig(normalise=NormaliseConfig(rewards=True))}, "leave normalise out"),
    ],
)
def test_what_no_device_supports_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Run(**changed)
