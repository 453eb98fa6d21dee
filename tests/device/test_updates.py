"""Updates of the device's source, compiled for the host, against the compiled learners."""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from replaybench.controllers.algorithms.ddpg import DDPG, DDPGConfig
from replaybench.controllers.algorithms.dqn import DQN, DQNConfig
from replaybench.controllers.algorithms.sac import SAC, SACConfig
from replaybench.controllers.algorithms.td3 import TD3, TD3BC, TD3BCConfig, TD3Config
from replaybench.controllers.interface.agent import LearnerSetting, Task
from replaybench.controllers.learner import Learner
from replaybench.data.batch import SQUARED
from replaybench.device.build import device_code, host_library
from replaybench.device.learners import DeviceLearner
from replaybench.device.learners import check as check_learner
from replaybench.runtime.arrays import aligned_zeros
from replaybench.runtime.errors import UserError
from replaybench.runtime.streams import Stream

pytestmark = pytest.mark.slow  # each test compiles C++
M = 2
ENTRY = """
template <class L> void explore_with(const float* output, const float* noise, float random, float* action) {
    if constexpr (L::NOISE > 0) L::explore(output, noise, random, action);
}
extern "C" {
int sizes(int which) {
    const int all[] = {Learner::HOT, Learner::COLD, Learner::SCRATCH, Learner::Samples::STRIDE, Learner::SMOOTH,
                       (int)sizeof(Learner::Samples), (int)sizeof(LearnerSettings)};
    return all[which];
}
void update(float* hot, float* cold, Learner::Samples* batch, const LearnerSettings* settings, int step,
            float* scratch) {
    Learner::update(hot, cold, *batch, *settings, step, scratch);
}
void act(const float* hot, const float* observation, float* action, float* scratch) {
    float output[Learner::OUTPUTS];
    Learner::act(hot, observation, output, scratch);
    Learner::greedy(output, action);
}
void explore(const float* hot, const float* observation, const float* noise, float random, float* action,
             float* scratch) {
    float output[Learner::OUTPUTS];
    Learner::act(hot, observation, output, scratch);
    explore_with<Learner>(output, noise, random, action);
}
}
"""


def batch(seed: int, learner: Learner) -> Any:
    rng = np.random.Generator(np.random.PCG64(seed))
    size, s, a = learner.schedule.batch_size, learner.task.observation_size, learner.task.action_size

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=(M, size, *shape)).astype(np.float32)

    def uniform(*shape: int) -> np.ndarray:
        return rng.random((M, size, *shape)).astype(np.float32)

    return SimpleNamespace(
        observation=normal(s), action=np.tanh(normal(a)), reward=100 * normal(1), next_observation=normal(s),
        terminated=np.float32(uniform(1) < 0.2), weight=uniform(), actor_weight=uniform(),
        rate_factor=np.ones(M, np.float32), columns={}, critic_loss=SQUARED, steps=None,
    )  # fmt: skip


class Host:
    """The device's form of a learner, run by the host."""

    def __init__(self, learner: Learner, threads: int = 256, reverse: bool = False) -> None:
        self.learner, self.form = learner, DeviceLearner(learner)
        self.library = host_library(self.form.source + ENTRY, threads, reverse)
        hot, cold, scratch, self.stride, self.smooth, samples, settings = map(self.library.sizes, range(7))
        assert (hot, cold) == (self.form.hot_size, self.form.cold_size)
        self.settings = self.form.settings()
        assert len(self.settings) == settings
        self.hot, self.cold = self.form.arrays()
        self.scratch, self.samples = aligned_zeros((scratch,), np.float32), aligned_zeros((samples // 4,), np.float32)
        self.scratch[:] = np.nan  # nothing of it may survive a call

    def update(self, drawn: Any, step: int, noise: np.ndarray | None = None) -> np.ndarray:
        """Update every member; return the TD errors `[M, B]`. noise: `[M, B, SMOOTH]`."""
        learner, size = self.learner, self.learner.schedule.batch_size
        s, a = learner.task.observation_size, learner.task.action_size
        rows, deltas = self.samples.reshape(-1, self.stride), []
        for m in range(len(self.hot)):
            reward = np.float32(learner.normaliser.rewards.factor[m]) * drawn.reward[m]
            discount = np.float32(learner.task.discount) * (1 - drawn.terminated[m])
            columns = [drawn.observation[m], drawn.action[m], drawn.next_observation[m], reward, discount]
            columns += [drawn.weight[m][:, None], drawn.actor_weight[m][:, None]]
            if noise is not None and self.smooth:
                columns.append(noise[m])
            rows[: 2 * s + a + 4 + self.smooth, :size] = np.concatenate(columns, axis=1).T
            hot, cold = (aligned_zeros(array.shape[1:], np.float32) for array in (self.hot, self.cold))
            hot[:], cold[:] = self.hot[m], self.cold[m]
            rows_of = map(pointer, (hot, cold, self.samples))
            self.library.update(*rows_of, self.settings, step, pointer(self.scratch))
            self.scratch[:] = np.nan
            self.hot[m], self.cold[m] = hot, cold
            deltas.append(rows[2 * s + a + 4 + max(self.smooth, 1), :size].copy())
        return np.array(deltas)

    def act(self, observation: np.ndarray) -> np.ndarray:
        action = np.zeros((len(self.hot), self.learner.task.action_size), np.float32)
        for m in range(len(action)):
            rows = (self.hot[m], np.ascontiguousarray(observation[m], np.float32), action[m], self.scratch)
            self.library.act(*map(pointer, rows))
        return action

    def explore(self, observation: np.ndarray, noise: np.ndarray, random: float = 0.0) -> np.ndarray:
        """Return the tried actions `[M, A]` for random numbers `[M, NOISE]`."""
        action = np.zeros((len(self.hot), self.learner.task.action_size), np.float32)
        for m in range(len(action)):
            rows = (self.hot[m], *(np.ascontiguousarray(array[m], np.float32) for array in (observation, noise)))
            outputs = (pointer(action[m]), pointer(self.scratch))
            self.library.explore(*map(pointer, rows), ctypes.c_float(random), *outputs)
        return action


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


def compare(learner: Learner, host: Host, scale: float = 1.0) -> None:
    """Compare all arrays; moments are small, and are compared in size."""
    expected = {name: array.copy() for name, array in learner.networks.trained().items()}
    host.form.load(host.hot, host.cold)
    for name, array in learner.networks.trained().items():
        size = max(float(np.abs(expected[name]).max()), 1e-12)
        worst = float(np.abs(array - expected[name]).max()) / size
        assert worst < 2e-5 * scale, f"{name}: {worst:.1e}"
        array[...] = expected[name]


def setting(s: int, a: int) -> LearnerSetting:
    return LearnerSetting(Task(observation_size=s, action_size=a, discount=0.95, reward_scale=0.01), 0, range(M))


KINDS: dict[type, Any] = {DDPGConfig: DDPG, TD3Config: TD3, SACConfig: SAC, DQNConfig: DQN}
CASES: dict[str, tuple[int, int, Any, int]] = {
    "paper": (3, 1, DDPGConfig(), 256),
    "two actions": (5, 2, DDPGConfig(actor_hidden=(9, 6), critic_hidden=(7, 11), batch_size=6), 96),
    "one layer": (1, 1, DDPGConfig(actor_hidden=(5,), critic_hidden=(8,), batch_size=1, action_layer=0), 64),
    "l2, joins first": (4, 3, DDPGConfig(l2=0.1, action_layer=0, batch_size=5, actor_rate=1e-2), 256),
    "decoupled, clip, joins last": (3, 1, DDPGConfig(l2=0.1, l2_form="decoupled", clip=1e-2, action_layer=3), 128),
    "weights, clip, deep": (
        2, 1, DDPGConfig(l2=0.1, l2_form="weights", clip=0.1, actor_hidden=(6, 5, 4), critic_hidden=(4, 5, 6, 7),
                         action_layer=2, betas=(0.5, 0.8), tau=0.3), 32),
    "joins after the actor": (
        3, 1, DDPGConfig(actor_hidden=(5,), critic_hidden=(4, 5, 6, 7), action_layer=3, batch_size=4), 64),
    "large batch": (6, 2, DDPGConfig(batch_size=50, actor_hidden=(33, 20), critic_hidden=(31, 18)), 160),
    "TD3": (3, 1, TD3Config(batch_size=10, actor_hidden=(6, 8), critic_hidden=(7, 9)), 64),
    "TD3, delayed": (
        4, 2, TD3Config(batch_size=50, actor_hidden=(5,), critic_hidden=(8,), policy_delay=3, smoothing=0.6), 256),
    "TD3, deep": (
        2, 1, TD3Config(batch_size=7, actor_hidden=(5, 6, 7), critic_hidden=(8, 4, 5), policy_delay=1, tau=0.3), 96),
    "SAC": (3, 1, SACConfig(batch_size=10, actor_hidden=(6, 8), critic_hidden=(7, 9)), 64),
    "SAC, fixed": (4, 2, SACConfig(batch_size=50, actor_hidden=(5,), critic_hidden=(8,), temperature=0.3), 256),
    "SAC, deep": (
        2, 3, SACConfig(batch_size=7, actor_hidden=(5, 6, 7), critic_hidden=(8, 4, 5), first_temperature=0.2), 96),
    "DQN": (3, 1, DQNConfig(batch_size=10, hidden=(6, 8), copy_every=2, huber=0.3), 64),
    "DQN, double": (4, 2, DQNConfig(batch_size=50, hidden=(20,), levels=3, double=True, copy_every=3), 256),
    "DQN, deep": (2, 1, DQNConfig(batch_size=7, hidden=(5, 6, 7), levels=2), 32),
}  # fmt: skip


def noise(learner: Learner) -> np.ndarray | None:
    """Return the normals that the compiled learner draws next, `[M, B, draws · A]`: as many arrays `[B, A]` in turn."""
    draws, (size, a) = {TD3: 1, SAC: 2}.get(type(learner), 0), (learner.schedule.batch_size, learner.task.action_size)
    if not draws:
        return None
    stream: Stream = getattr(learner, "update_stream", None) or vars(learner)["smoothing_stream"]
    state = stream.state.copy()
    drawn = stream.normal(draws * size * a).reshape(M, draws, size, a)
    stream.state[:] = state
    return np.concatenate([drawn[:, i] for i in range(draws)], axis=2).astype(np.float32)


@pytest.mark.parametrize("case", CASES)
def test_updates_and_greedy_actions_are_those_of_the_compiled_learner(case: str) -> None:
    s, a, config, threads = CASES[case]
    learner = KINDS[type(config)](config, setting(s, a))
    host, observation = Host(learner, threads), np.random.Generator(np.random.PCG64(1)).normal(size=(M, s))
    start = host.hot.copy()
    for step in range(1, 7):
        drawn, normals = batch(step, learner), noise(learner)
        expected, delta = learner.update(drawn)["td_error"], host.update(drawn, step, normals)
        np.testing.assert_allclose(delta, expected, rtol=2e-5, atol=2e-5)
        compare(learner, host, step)
        np.testing.assert_allclose(host.act(observation), learner.act(observation), rtol=1e-5, atol=1e-5)
    moved = np.abs(host.hot - start).max(axis=0)
    assert (moved > 0).sum() > 0.5 * sum(map(len, map(set, host.form._places.values())))


def test_spreads_beyond_their_bounds_have_no_gradient() -> None:
    learner = SAC(SACConfig(batch_size=10, actor_hidden=(6,), critic_hidden=(7,)), setting(3, 1))
    learner.actor.parameters *= 6
    drawn, normals = batch(1, learner), noise(learner)
    assert 0.1 < (learner.actor(drawn.observation)[..., 1] > 2).mean() < 0.9
    host = Host(learner)
    learner.update(drawn)
    host.update(drawn, 1, normals)
    compare(learner, host, 200)  # saturated actions amplify rounding errors


def drawn_learner(seed: int) -> Any:
    rng = np.random.Generator(np.random.PCG64(seed))

    def number(low: int, high: int) -> int:
        return int(rng.integers(low, high + 1))

    def widths() -> tuple[int, ...]:
        return tuple(number(1, 70) for _ in range(number(1, 3)))

    kind, (s, a) = [*KINDS][seed % 4], (number(1, 9), number(1, 3))
    size = number(1, 70)
    own: dict[str, Any] = {"actor_hidden": widths(), "critic_hidden": widths()}
    if kind is DDPGConfig:
        own |= {"action_layer": number(0, len(own["critic_hidden"])), "l2": 0.01 * number(0, 1)}
    elif kind is DQNConfig:
        own = {"hidden": widths(), "levels": number(2, 4), "double": bool(number(0, 1))}
    return KINDS[kind](kind(batch_size=size, **own), setting(s, a))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_random_shapes_and_any_order_of_threads(seed: int) -> None:
    learner = drawn_learner(seed)
    hosts = [Host(learner, 256), Host(learner, 256, reverse=True), Host(learner, 32)]
    for step in range(1, 4):
        drawn, normals = batch(step, learner), noise(learner)
        expected = learner.update(drawn)["td_error"]
        deltas = [host.update(drawn, step, normals) for host in hosts]
        np.testing.assert_allclose(deltas[0], expected, rtol=3e-5, atol=3e-5)
        compare(learner, hosts[0], step)
        for host, delta in zip(hosts[1:], deltas[1:], strict=True):
            np.testing.assert_array_equal(delta, deltas[0])
            np.testing.assert_array_equal(host.hot, hosts[0].hot)
            np.testing.assert_array_equal(host.cold, hosts[0].cold)


def test_stochastic_policies_explore_as_the_compiled_learners() -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    observation, everyone = rng.normal(size=(M, 3)), np.ones(M, np.bool_)
    sac = SAC(SACConfig(batch_size=4, actor_hidden=(5,), critic_hidden=(5,)), setting(3, 2))
    expected = sac.explore(observation, everyone).action
    np.testing.assert_allclose(Host(sac).explore(observation, sac.exploration.drawn), expected, rtol=1e-5, atol=1e-6)

    dqn = DQN(DQNConfig(batch_size=4, hidden=(5,), levels=4), setting(3, 2))
    host, tried = Host(dqn), set()
    for _ in range(30):
        dqn.random[:] = 0.5
        expected = dqn.explore(observation, everyone).action
        returned = host.explore(observation, dqn.exploration.drawn, 0.5)
        np.testing.assert_allclose(returned, expected, atol=1e-7)
        tried.add(returned.tobytes())
    assert len(tried) > 3
    host.hot[1, 0] = np.nan
    assert np.isfinite(host.act(observation)[0]).all()
    assert np.isnan(host.act(observation)[1]).all()


def test_a_failed_member_is_not_a_number_everywhere() -> None:
    learner = DDPG(DDPGConfig(batch_size=5, actor_hidden=(6,), critic_hidden=(7,), clip=1.0), setting(3, 1))
    host, drawn = Host(learner), batch(1, learner)
    drawn.reward[1] = np.nan
    host.update(drawn, 1)
    host.form.load(host.hot, host.cold)
    assert np.isnan(learner.critic.parameters[1]).all()
    assert np.isnan(learner.actor.parameters[1]).all()
    assert np.isfinite(learner.critic.parameters[0]).all()


def test_arrays_return_as_they_were() -> None:
    """Every parameter has its own place; padding is zero."""
    learner, other = (SAC(SACConfig(batch_size=4, actor_hidden=(6, 4)), setting(3, 2)) for _ in range(2))
    learner.update(batch(1, learner))
    hot, cold = DeviceLearner(learner).arrays()
    trained = {**learner.networks.trained(), "log_temperature": learner.log_temperature.parameters}
    weights = [array for name, array in trained.items() if not name.endswith(("_first", "_second"))]
    assert np.count_nonzero(hot) == sum(map(np.count_nonzero, weights))
    DeviceLearner(other).load(hot, cold)
    for name, array in other.networks.trained().items():
        np.testing.assert_array_equal(array, learner.networks.trained()[name], err_msg=name)
    np.testing.assert_array_equal(other.log_temperature.parameters, learner.log_temperature.parameters)


def test_delayed_updates_alternate_after_2_to_the_24_updates() -> None:
    """Single precision cannot distinguish the numbers of successive updates from there on."""
    learner = TD3(TD3Config(batch_size=10, actor_hidden=(6,), critic_hidden=(7,), actor_rate=0.1), setting(3, 1))
    host, moved, observation = Host(learner, 64), [], np.ones((M, 3))
    for step in range(2**24, 2**24 + 4):
        before = host.act(observation)
        host.update(batch(1, learner), step, noise(learner))
        moved.append(bool((host.act(observation) != before).any()))
    assert moved == [True, False, True, False]


def test_what_runs_on_the_cpu_only_is_refused() -> None:
    with pytest.raises(UserError, match="TD3BC runs on the CPU only.*DDPG, TD3, SAC, DQN"):
        check_learner(TD3BC, TD3BCConfig())
    with pytest.raises(UserError, match='SAC with version = "first"'):
        check_learner(SAC, SACConfig(version="first", temperature=0.2))
    with pytest.raises(UserError, match="DDPG with ReF-ER and layer normalisation and networks without hidden layers"):
        check_learner(DDPG, DDPGConfig(layer_norm=True, actor_hidden=()), refer=True)
    with pytest.raises(UserError, match="TD3 with a batch_size above 512 runs on the CPU only"):
        check_learner(TD3, TD3Config(batch_size=513))
    check_learner(DQN, DQNConfig(batch_size=512))


@pytest.mark.parametrize("seed", range(4))
def test_sources_compile_for_a_gpu(seed: int) -> None:
    pytest.importorskip("cuda.core", reason="needs cuda-core")
    kernel = """
    extern "C" __global__ void train(float* hot, float* cold, Learner::Samples* batch, LearnerSettings settings) {
        extern __shared__ float4 scratch[];
        Learner::update(hot, cold, *batch, settings, 1.0f, (float*)scratch);
        Learner::act(hot, hot, hot, (float*)scratch);
    }
    """
    assert device_code(DeviceLearner(drawn_learner(seed)).source + kernel, "sm_90")
