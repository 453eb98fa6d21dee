"""ReF-ER, and returns that the buffer stores."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from replaybench.controllers.algorithms.ddpg import DDPG, DDPGConfig
from replaybench.controllers.algorithms.naf import NAF, NAFConfig
from replaybench.controllers.algorithms.vracer import VRACER, VRACERConfig
from replaybench.controllers.interface.agent import LearnerSetting
from replaybench.controllers.interface.noise import GaussianNoise
from replaybench.controllers.losses import refer as losses
from replaybench.controllers.losses.refer import Q_RET, RECOUNT, REWARD, RHO, TRUNCATED, VALUE, FarCount, ReFER
from replaybench.data.record import write_record
from replaybench.replay.buffer import Replay, step_fields
from replaybench.replay.buffer_file import load_replay, replay_arrays, replay_facts
from replaybench.replay.storage.traces import Traces
from replaybench.replay.strategies.notation import parse
from replaybench.replay.strategies.strategy import ReFER as Both
from replaybench.replay.strategies.strategy import ReFER1, ReFER2
from replaybench.runtime.errors import UserError
from tests.helpers.peers import TASK, B, off_policy_batch
from tests.helpers.torch_nets import TorchNet


def test_c_max_and_rates_are_annealed() -> None:
    refer = ReFER(Both(c=4.0, anneal=0.5), 1, 1e-3)
    assert [refer.c_max(t) for t in (0, 2, 6)] == [5, 3, 2]
    assert [refer.annealed(t) for t in (0, 2, 6)] == [1, 0.5, 0.25]


def test_beta_falls_and_rises_by_equation_12_and_stays_at_its_fixed_points() -> None:
    refer = ReFER(Both(far=0.1, beta=0.5, beta_rate=0.2), 4, 1e-3)
    refer.beta[2:] = 0, 1
    refer.move_beta(np.array([0.11, 0.1, 0.5, 0.0]), 1)
    np.testing.assert_allclose(refer.beta, [0.4, 0.6, 0, 1], rtol=1e-15)
    assert (refer.beta[2:] == [0, 1]).all()
    for _ in range(1000):
        refer.move_beta(np.array([1.0, 0.0, 1.0, 0.0]), 1)
    np.testing.assert_allclose(refer.beta, [0, 1, 0, 1], atol=1e-12)


@pytest.mark.parametrize(("rate", "beta"), [(None, 1 - 0.1 / 2), (0.1, 0.9)])
def test_betas_step_is_the_annealed_learning_rate_unless_given(rate: float | None, beta: float) -> None:
    refer = ReFER(Both(anneal=0.5, beta_rate=rate), 1, 0.1)
    refer.move_beta(np.ones(1), 2)
    assert refer.beta[0] == pytest.approx(beta)


def test_near_policy_is_an_open_interval_without_nan() -> None:
    found = [losses.near_policy(rho, 4.0) for rho in (0.25, 0.26, 1.0, 3.9, 4.0, np.nan)]
    assert found == [False, True, True, True, False, False]


def test_n_far_is_kept_exactly_judged_anew_as_c_max_shrinks_and_counted_in_a_loaded_buffer(tmp_path: Path) -> None:
    """Else n_far/N of a loaded buffer begins at 0, is more than 1 later, and β follows it."""
    rng, steps = np.random.Generator(np.random.PCG64(2)), np.zeros(1, np.int64)
    refer = ReFER(Both(anneal=0.01), 2, 1e-3)
    rule, loaded = FarCount(refer, steps, 2), FarCount(refer, steps, 2)
    replay = Replay(parse("FIFO[Uniform+ReFER]"), step_fields(2, 1), 20, 0, range(2), 8, traces=rule)
    assert replay.traces is not None
    row = {name: np.zeros((2, width), np.float32) for name, width in step_fields(2, 1).items()}
    for update in range(1, RECOUNT + 1):
        steps[0] = update
        replay.add(row, np.ones(2, np.bool_), np.full(2, update % 10 == 9))
        idx = rng.integers(0, replay.count[0], (2, 4))
        idx[0, 0] = -1
        replay.traces.annotate(idx, {"rho": np.exp(rng.normal(size=20))[idx]})
        np.testing.assert_array_equal(rule.far, replay.traces.view("far").sum(axis=1))
        np.testing.assert_array_equal(rule.stored_steps, replay.count)
    c_max, rho = refer.c_max(RECOUNT), replay.traces.view("rho")
    np.testing.assert_array_equal(rule.far, ((rho >= c_max) | (rho <= 1 / c_max)).sum(axis=1))
    np.testing.assert_array_equal(rule.fraction, rule.far / 20)
    write_record(tmp_path / "buffer.h5", "buffer", replay_facts(replay), replay_arrays(replay))
    load_replay(tmp_path / "buffer.h5", traces=loaded)
    assert (rule.far > 0).all()
    np.testing.assert_array_equal(loaded.far, rule.far)
    np.testing.assert_array_equal(loaded.stored_steps, 20)


LEARNERS: Any = [
    (DDPG, DDPGConfig(batch_size=B, exploration=GaussianNoise(sigma=0.3))),
    (NAF, NAFConfig(batch_size=B, exploration=GaussianNoise(sigma=0.3), bounded=False)),
]


each_learner = pytest.mark.parametrize(("kind", "config"), LEARNERS)


@pytest.mark.parametrize(("kind", "config"), [*LEARNERS, (VRACER, VRACERConfig(batch_size=B))])
def test_without_bound_and_with_beta_1_it_is_plain_replay_bit_for_bit(kind: Any, config: Any) -> None:
    agents = [
        kind(config, LearnerSetting(TASK, 0, range(2), refer=refer))
        for refer in (None, Both(c=1e30, anneal=0.0), Both(anneal=0.0))
    ]
    for update in range(5):
        for agent in agents:
            agent.update(off_policy_batch(2, update))
    plain, unbounded, bounded = (np.concatenate([n.parameters for n in a.networks.values()], axis=1) for a in agents)
    np.testing.assert_array_equal(plain, unbounded)
    assert not np.array_equal(plain, bounded)


@pytest.mark.slow
def test_far_policy_samples_have_no_influence_under_rule_1() -> None:
    kind, config = LEARNERS[1]
    found, drawn = [], off_policy_batch(2, 0, np.float64)
    rho = kind(config, LearnerSetting(TASK, 0, range(2), dtype=np.float64)).update(drawn)["rho"]
    far = (rho >= 2) | (rho <= 0.5)
    assert 0 < far.sum() < far.size
    for reward in (0.0, 1e3):
        agent = kind(config, LearnerSetting(TASK, 0, range(2), dtype=np.float64, refer=ReFER1(c=1.0)))
        drawn.reward[far] = reward
        agent.update(drawn)
        found.append(agent.network.parameters)
    np.testing.assert_array_equal(*found)


@pytest.mark.slow
@pytest.mark.parametrize("refer", [ReFER1(c=1.0), Both(c=1.0, beta=0.3), ReFER2(beta=0.3)])
@pytest.mark.parametrize("far_samples", [0, B // 2, B])
def test_ddpg_descends_equation_10_by_automatic_differentiation(refer: Any, far_samples: int) -> None:
    """The critic's gradient and the actor's, with none, half and all of a batch far-policy."""
    config = DDPGConfig(batch_size=B, exploration=GaussianNoise(sigma=0.3))
    agent = DDPG(config, LearnerSetting(TASK, 0, range(1), dtype=np.float64, refer=refer))
    drawn = off_policy_batch(1, 3, np.float64)
    drawn.columns["behaviour_mean"][:] = agent.policy(drawn.observation) + 1e-2
    drawn.columns["behaviour_mean"][0, :far_samples] += 1.0
    drawn.action[:] = drawn.columns["behaviour_mean"]
    x, action, x_next, reward, done, w, w_actor = (
        torch.tensor(getattr(drawn, name)[0])
        for name in ("observation", "action", "next_observation", "reward", "terminated", "weight", "actor_weight")
    )
    actor, critic = TorchNet(agent.actor), TorchNet(agent.critic)
    near = torch.arange(B) >= far_samples if 1 in refer.rules else torch.ones(B, dtype=torch.bool)
    beta = agent.density.refer.beta[0]
    with torch.no_grad():  # target networks begin as copies
        q_next = critic(x_next, actor(x_next))
    delta = TASK.reward_scale * reward + TASK.discount * (1 - done) * q_next - critic(x, action)
    (near * w * delta[:, 0] ** 2).mean().backward()
    rho = agent.update(drawn)["rho"][0]
    assert ((rho >= 2) | (rho <= 0.5)).sum() == far_samples
    pi, updated = actor(x), TorchNet(agent.critic)
    penalty = ((pi - action) ** 2).sum(dim=1) / (2 * 0.3**2) if 2 in refer.rules else torch.zeros(B, dtype=x.dtype)
    (-beta * near * w_actor * updated(x, pi)[:, 0] + (1 - beta) * penalty).mean().backward()
    for ours, theirs in ((agent.critic, critic), (agent.actor, actor)):
        np.testing.assert_allclose(ours.gradient[0], theirs.gradient(), rtol=1e-7, atol=1e-10)


@pytest.mark.slow
@each_learner
def test_with_beta_0_only_the_divergence_is_descended(kind: Any, config: Any) -> None:
    """Gradients equal finite differences of the mean divergence in the policy's weights; NAF's of all its weights."""
    agent = kind(config, LearnerSetting(TASK, 0, range(2), dtype=np.float64, refer=Both(beta=0.0)))
    drawn = off_policy_batch(2, 1, np.float64)
    network = agent.networks["actor" if kind is DDPG else "network"]

    def divergence() -> np.ndarray:
        mean = agent.policy(drawn.observation) if kind is DDPG else agent.mean(drawn.observation)
        apart: np.ndarray = (mean - drawn.columns["behaviour_mean"]) / 0.3
        return np.asarray((apart**2).sum(axis=2).mean(axis=1) / 2)

    rng = np.random.Generator(np.random.PCG64(5))
    checked = rng.integers(0, network.parameters.shape[1], 30)
    expected = []
    for p in checked:
        sides = []
        for step in (1e-6, -1e-6):
            network.parameters[:, p] += step
            sides.append(divergence())
            network.parameters[:, p] -= step
        expected.append((sides[0] - sides[1]) / 2e-6)
    agent.update(drawn)
    np.testing.assert_allclose(network.gradient[:, checked], np.transpose(expected), rtol=1e-5, atol=1e-8)


@each_learner
def test_metrics_measure_the_divergence_from_what_is_stored(kind: Any, config: Any) -> None:
    agent, drawn = kind(config, LearnerSetting(TASK, 0, range(2), refer=Both())), off_policy_batch(2, 1)
    stored = {"observation": drawn.observation, **drawn.columns}
    mean = agent.policy(drawn.observation) if kind is DDPG else agent.mean(drawn.observation)
    expected = (((mean - drawn.columns["behaviour_mean"]) / 0.3) ** 2).sum(axis=2).mean(axis=1) / 2
    found = agent.metrics(stored)
    assert tuple(found) == agent.metric_names == ("kl", "far", "beta")
    np.testing.assert_allclose(found["kl"], expected, rtol=1e-4)
    assert tuple(kind(config, LearnerSetting(TASK, 0, range(2))).metrics(stored)) == ("kl",)


def test_exploration_without_density_is_refused() -> None:
    with pytest.raises(UserError, match="NAF: ReF-ER needs a behaviour density"):
        NAF(NAFConfig(exploration=GaussianNoise(clip=True)), LearnerSetting(TASK, 0, range(1), refer=Both()))


GAMMA, SCALE = 0.9, 0.5
FIELDS = {"reward": 1, "terminated": 1, "exploration": 1}


def make(strategy: str = "FIFO[Uniform]", members: int = 1, capacity: int = 12) -> tuple[Replay, Traces]:
    refer = ReFER(parse("FIFO[Uniform+ReFER]").refer, members, 1e-3)
    steps, scale = np.ones(1, np.int64), np.full(members, SCALE)  # at step 0 all are recounted
    rule = losses.StoredReturns(refer, steps, members, GAMMA, scale)
    replay = Replay(parse(strategy), FIELDS, capacity, 0, range(members), 4, traces=rule)
    assert replay.traces is not None
    return replay, replay.traces


def add(replay: Replay, reward: Any, value: Any, end: str = "", bootstrap: float = 0.0) -> None:
    """Offer a step of every member; `end` is "terminated", "truncated" or nothing."""
    members = len(replay.count)
    given: dict[str, Any] = {
        "reward": reward, "value": value, "terminated": end == "terminated", "exploration": 0.0,
        "q_ret": SCALE * np.float64(reward) + GAMMA * bootstrap * (end == "truncated"), "truncated": end == "truncated",
    }  # fmt: skip
    experience = {name: np.broadcast_to(np.float32(x), (members,))[:, None] for name, x in given.items()}
    replay.add(experience, np.ones(members, np.bool_), np.full(members, end != ""))


def renew(traces: Traces, slots: Any, value: Any, rho: Any, bootstrap: Any = 0.0) -> None:
    """Have the learner annotate the steps in `slots` `[B]` of every member."""
    idx = np.broadcast_to(np.asarray(slots, np.int64), (len(traces.values), len(slots))).copy()
    given = {"value": value, "rho": rho, "bootstrap": bootstrap}
    traces.annotate(idx, {k: np.broadcast_to(np.float32(x), idx.shape).copy() for k, x in given.items()})


def from_scratch(replay: Replay, traces: Traces) -> np.ndarray:
    """Q_ret `[M, N]` of every stored step by the recursion, from the end of each chain; float32 like the traces."""
    out = np.zeros(traces.values.shape[:2], np.float32)
    gamma, scale, one = np.float32(GAMMA), np.float32(SCALE), np.float32(1)
    for m in range(len(out)):
        for slot in np.flatnonzero((traces.next[m] < 0) & (np.arange(out.shape[1]) < replay.count[m])):
            out[m, slot] = traces.values[m, slot, Q_RET]
            while (before := traces.previous[m, slot]) >= 0:
                step, kept = traces.values[m, slot], gamma * min(one, traces.values[m, slot, RHO])
                reward = scale * traces.values[m, before, REWARD]
                out[m, before] = (reward + (gamma - kept) * step[VALUE]) + kept * out[m, slot]
                slot = before
    return out


def test_golden_two_steps() -> None:
    """Rewards 2 and 4 (scaled 1 and 2), values 3 and 5, cut off at V(s_2) = 10; γ 0.9.

    At first ρ = 1: Q_1 = 2 + 0.9 · 10 = 11 and Q_0 = 1 + 0.9 · 11 = 10.9. Then step 1 is replayed with V = 6,
    ρ = 1/2 and V(s_2) = 20: Q_1 = 2 + 18 = 20, V_tbc = 6 + (20 − 6)/2 = 13, Q_0 = 1 + 11.7 = 12.7.
    """
    replay, traces = make()
    add(replay, 2, 3)
    add(replay, 4, 5, "truncated", 10)
    np.testing.assert_allclose(traces.view("q_ret")[0, :2], [10.9, 11], rtol=1e-6)
    renew(traces, [1], 6, 0.5, 20)
    np.testing.assert_allclose(traces.view("q_ret")[0, :2], [12.7, 20], rtol=1e-6)


def test_ends_of_what_is_stored() -> None:
    """A latest step has no advantage and then bootstraps from its successor; after termination nothing follows."""
    replay, traces = make()
    add(replay, 2, 3)
    assert traces.view("q_ret")[0, 0] == 3
    add(replay, 4, 5, "terminated")
    renew(traces, [1], 5, 1.0, 100)
    np.testing.assert_allclose(traces.view("q_ret")[0, :2], [1 + 0.9 * 2, 2], rtol=1e-6)


@given(st.integers(0, 2**32 - 1), st.sampled_from(["FIFO[Uniform]", "Resv[Uniform]", "Drop(0.5)*FIFO[Uniform]"]))
@settings(max_examples=25, deadline=None)
def test_what_is_stored_is_always_the_recursion_from_scratch(seed: int, strategy: str) -> None:
    """Random episodes, evictions, discards and updates; exactly, bit for bit, whenever no episode is under way."""
    rng = np.random.Generator(np.random.PCG64(seed))
    replay, traces = make(strategy, members=3, capacity=12)
    rule: Any = traces.rule
    for _ in range(6):
        steps = int(rng.integers(1, 8))
        for t in range(steps):
            end = "" if t < steps - 1 else str(rng.choice(["terminated", "truncated"]))
            add(replay, rng.normal(size=3), rng.normal(size=3), end, float(rng.normal()))
        for _ in range(3):
            slots = rng.integers(0, max(1, replay.count.min()), 6)
            value, rho = rng.normal(size=12)[slots], np.exp(rng.normal(size=12))[slots]
            if replay.count.min() > 0:
                renew(traces, slots, value, rho, float(rng.normal()))
        np.testing.assert_array_equal(traces.view("q_ret"), from_scratch(replay, traces))
        far = (traces.values[:, :, RHO] >= 5) | (traces.values[:, :, RHO] <= 1 / 5)
        far &= np.arange(12) < replay.count[:, None]
        np.testing.assert_array_equal(rule.far, (traces.view("far") > 0).sum(axis=1))
        np.testing.assert_array_equal(rule.far, far.sum(axis=1))
        np.testing.assert_array_equal(rule.stored_steps, replay.count)


@pytest.mark.parametrize("samples", [1, 3, 12, 50])
def test_sweeps_go_all_the_way_along_long_episodes(samples: int) -> None:
    """Far longer than a lane's turn, fewer sweeps than lanes and many more; the ring's oldest episode is cut into."""
    rng = np.random.Generator(np.random.PCG64(samples))
    replay, traces = make(members=2, capacity=390)
    for t in range(440):
        add(replay, rng.normal(size=2), rng.normal(size=2), "truncated" if t % 40 == 39 else "", float(rng.normal()))
    before = traces.view("q_ret").copy()
    for _ in range(4):
        slots = rng.integers(0, 390, samples)
        renew(traces, slots, rng.normal(size=390)[slots], np.exp(0.1 * rng.normal(size=390))[slots], 1.0)
        np.testing.assert_array_equal(traces.view("q_ret"), from_scratch(replay, traces))
    assert (before != traces.view("q_ret")).any()


def test_an_evicted_successor_leaves_its_value() -> None:
    """Reservoir sampling overwrites in the midst of episodes: what follows stays as it was, and is not renewed."""
    replay, traces = make("Resv[Uniform]", capacity=4)
    for t in range(4):
        add(replay, t, t, "truncated" if t == 3 else "", 5.0)
    renew(traces, range(4), [1, 2, 3, 4], 0.5, 6.0)
    before = traces.view("q_ret")[0].copy()
    while (replay.columns.serial[0] < 5).all():
        add(replay, 50, 50, "terminated")
    gone = int(np.flatnonzero(replay.columns.serial[0] > 4)[0])
    kept = [slot for slot in range(4) if slot != gone]
    np.testing.assert_array_equal(traces.view("q_ret")[0, kept], before[kept])
    if gone > 0:
        assert traces.values[0, gone - 1, TRUNCATED] == 0
        renew(traces, [gone - 1], 9, 1.0, 1000.0)
        assert traces.view("q_ret")[0, gone - 1] == before[gone - 1]


def test_nan_spreads_to_what_depends_on_it_only() -> None:
    replay, traces = make(members=2)
    for t in range(4):
        add(replay, t, [np.nan if t == 2 else t, t], "terminated" if t == 3 else "")
    renew(traces, [2], np.array([[np.nan], [1.0]]), 0.5)
    assert (np.isnan(traces.view("q_ret")[:, :4]) == [[True, True, False, False], [False] * 4]).all()
