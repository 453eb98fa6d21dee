"""ReF-ER, and returns that the buffer stores."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from replaybench.controllers.algorithms.ddpg import DDPG, DDPGConfig
from replaybench.controllers.algorithms.naf import NAF, NAFConfig
from replaybench.controllers.interface.agent import LearnerSetting, Task
from replaybench.controllers.interface.noise import GaussianNoise
from replaybench.controllers.losses.refer import (
    FAR,
    Q_RET,
    RECOUNT,
    REWARD,
    RHO,
    TRUNCATED,
    VALUE,
    FarCount,
    ReFER,
    StoredReturns,
    near_policy,
)
from replaybench.data.record import write_record
from replaybench.replay.buffer import Replay, step_fields
from replaybench.replay.buffer_file import load_replay, replay_arrays, replay_facts
from replaybench.replay.strategies.notation import parse
from replaybench.replay.strategies.strategy import ReFER as Both
from replaybench.replay.strategies.strategy import ReFER1, ReFER2
from replaybench.runtime.errors import UserError

S, A, B = 3, 2, 8
TASK = Task(observation_size=S, action_size=A, discount=0.9, reward_scale=0.5)


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


def test_betas_step_is_the_annealed_learning_rate_unless_given() -> None:
    refer = ReFER(Both(anneal=0.5), 1, 0.1)
    refer.move_beta(np.ones(1), 2)
    assert refer.beta[0] == pytest.approx(1 - 0.1 / 2)
    constant = ReFER(Both(anneal=0.5, beta_rate=0.1), 1, 0.3)
    constant.move_beta(np.ones(1), 2)
    assert constant.beta[0] == pytest.approx(0.9)


def test_near_policy_is_an_open_interval_without_nan() -> None:
    found = [near_policy(rho, 4.0) for rho in (0.25, 0.26, 1.0, 3.9, 4.0, np.nan)]
    assert found == [False, True, True, True, False, False]


def test_n_far_is_kept_exactly_and_judged_anew_as_c_max_shrinks() -> None:
    rng = np.random.Generator(np.random.PCG64(2))
    refer, steps = ReFER(Both(c=4.0, anneal=0.01), 2, 1e-3), np.zeros(1, np.int64)
    rule, values = FarCount(refer, steps, 2), np.zeros((2, 20, 2), np.float32)
    links = np.full((2, 20), -1, np.int32)
    for update in range(1, RECOUNT + 1):
        steps[0] = update
        slots = np.full(2, (update - 1) % 20)
        if update > 20:
            rule.evicting(values, links, links, slots)
        rule.stored(values, links, links, slots, np.ones(2, np.bool_))
        idx = rng.integers(0, min(update, 20), (2, 4))
        idx[0, 0] = -1
        rho = np.exp(rng.normal(size=(2, 4)))
        for m in range(2):
            _, first = np.unique(idx[m], return_index=True)
            rho[m] = [rho[m, first[list(idx[m][first]).index(slot)]] for slot in idx[m]]
        rule.annotated(values, links, links, idx, {"rho": rho})
        np.testing.assert_array_equal(rule.far, values[:, :, FAR].sum(axis=1))
        np.testing.assert_array_equal(rule.stored_steps, min(update, 20))
    c_max = refer.c_max(RECOUNT)
    far = (values[:, :, RHO] >= c_max) | (values[:, :, RHO] <= 1 / c_max)
    np.testing.assert_array_equal(rule.far, far.sum(axis=1))
    np.testing.assert_array_equal(rule.fraction, far.mean(axis=1))


LEARNERS: Any = [
    (DDPG, DDPGConfig(batch_size=B, exploration=GaussianNoise(sigma=0.3))),
    (NAF, NAFConfig(batch_size=B, exploration=GaussianNoise(sigma=0.3), bounded=False)),
]


def batch(seed: int, dtype: type = np.float64) -> Any:
    rng = np.random.Generator(np.random.PCG64(seed))
    mean = rng.normal(0, 0.3, (2, B, A))
    columns = {"behaviour_mean": mean, "behaviour_log_sigma": np.full((2, B, A), np.log(0.3))}
    return SimpleNamespace(
        observation=rng.normal(size=(2, B, S)).astype(dtype), next_observation=rng.normal(size=(2, B, S)).astype(dtype),
        action=(mean + 0.3 * rng.normal(size=mean.shape)).astype(dtype),
        reward=rng.normal(size=(2, B, 1)).astype(dtype),
        terminated=np.zeros((2, B, 1), dtype), weight=np.ones((2, B), dtype), actor_weight=np.ones((2, B), dtype),
        rate_factor=np.ones(2, dtype), columns={name: column.astype(dtype) for name, column in columns.items()},
    )  # fmt: skip


@pytest.mark.parametrize(("kind", "config"), LEARNERS)
def test_without_bound_and_with_beta_1_it_is_plain_replay_bit_for_bit(kind: Any, config: Any) -> None:
    agents = [
        kind(config, LearnerSetting(TASK, 0, range(2), refer=refer))
        for refer in (None, Both(c=1e30, anneal=0.0), Both())
    ]
    for update in range(5):
        for agent in agents:
            agent.update(batch(update, np.float32))
    plain, unbounded, bounded = (np.concatenate([n.parameters for n in a.networks.values()], axis=1) for a in agents)
    np.testing.assert_array_equal(plain, unbounded)
    assert not np.array_equal(plain, bounded)


@pytest.mark.parametrize(("kind", "config"), LEARNERS)
def test_far_policy_samples_have_no_influence_under_rule_1(kind: Any, config: Any) -> None:
    found = []
    for reward in (0.0, 1e3):
        agent, drawn = kind(config, LearnerSetting(TASK, 0, range(2), dtype=np.float64, refer=ReFER1(c=1.0))), batch(0)
        rho = kind(config, LearnerSetting(TASK, 0, range(2), dtype=np.float64)).update(batch(0))["rho"]
        far = (rho >= 2) | (rho <= 0.5)
        assert far.any()
        assert not far.all()
        drawn.reward[far] = reward
        agent.update(drawn)
        found.append(agent.networks["critic" if kind is DDPG else "network"].parameters)
    np.testing.assert_array_equal(*found)


def outputs_of(weights: dict[str, torch.Tensor], x: torch.Tensor, action: torch.Tensor | None = None) -> torch.Tensor:
    """Evaluate one member's MLP of DDPG's default shape; the action enters the critic's second layer."""
    last = len(weights) // 2 - 1
    for layer in range(last + 1):
        if layer == 1 and action is not None:
            x = torch.cat([x, action], dim=1)
        x = x @ weights[f"n.{layer}.weight"] + weights[f"n.{layer}.bias"]
        x = torch.relu(x) if layer < last else x
    return torch.tanh(x) if action is None else x[:, 0]


@pytest.mark.parametrize("refer", [ReFER1(c=1.0), Both(c=1.0, beta=0.3), ReFER2(beta=0.3)])
@pytest.mark.parametrize("far_samples", [0, B // 2, B])
def test_ddpg_descends_equation_10_by_automatic_differentiation(refer: Any, far_samples: int) -> None:
    """The critic's gradient and the actor's, with none, half and all of a batch far-policy."""
    config = DDPGConfig(batch_size=B, exploration=GaussianNoise(sigma=0.3))
    agent, whole = DDPG(config, LearnerSetting(TASK, 0, range(1), dtype=np.float64, refer=refer)), batch(3)
    drawn: Any = SimpleNamespace(**{
        name: {field: column[:1] for field, column in value.items()} if name == "columns" else value[:1]
        for name, value in vars(whole).items()
    })  # fmt: skip
    drawn.columns["behaviour_mean"][:] = agent.policy(drawn.observation) + 1e-2
    drawn.columns["behaviour_mean"][0, :far_samples] += 1.0
    drawn.action[:] = drawn.columns["behaviour_mean"]

    def leaves(network: Any) -> dict[str, torch.Tensor]:
        named = network.named_weights("n").items()
        return {name: torch.tensor(array[0].copy(), requires_grad=True) for name, array in named}

    arrays = drawn.observation, drawn.action, drawn.next_observation, drawn.reward, drawn.columns["behaviour_mean"]
    x, action, x_next, reward, mu = (torch.tensor(array[0]) for array in arrays)
    actor, critic = leaves(agent.actor), leaves(agent.critic)
    near = torch.arange(B) >= far_samples if 1 in refer.rules else torch.ones(B, dtype=torch.bool)
    beta = agent.refer.beta[0]
    with torch.no_grad():  # target networks begin as copies
        q_next = outputs_of(critic, x_next, outputs_of(actor, x_next))
    delta = TASK.reward_scale * reward[:, 0] + TASK.discount * q_next - outputs_of(critic, x, action)
    (near * delta**2).mean().backward()
    rho = agent.update(drawn)["rho"][0]
    assert ((rho >= 2) | (rho <= 0.5)).sum() == far_samples
    pi, updated = outputs_of(actor, x), leaves(agent.critic)
    penalty = ((pi - mu) ** 2).sum(dim=1) / (2 * 0.3**2) if 2 in refer.rules else torch.zeros(B, dtype=x.dtype)
    (-beta * near * outputs_of(updated, x, pi) + (1 - beta) * penalty).mean().backward()
    for network, leaf in ((agent.critic, critic), (agent.actor, actor)):
        expected = torch.cat([torch.ravel(leaf[name].grad) for name in network.named_weights("n")])  # type: ignore[arg-type]
        np.testing.assert_allclose(network.gradient[0], expected, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize(("kind", "config"), LEARNERS)
def test_with_beta_0_only_the_divergence_is_descended(kind: Any, config: Any) -> None:
    """Gradients equal finite differences of the mean divergence in the policy's weights; NAF's of all its weights."""
    agent, drawn = kind(config, LearnerSetting(TASK, 0, range(2), dtype=np.float64, refer=Both(beta=0.0))), batch(1)
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


@pytest.mark.parametrize(("kind", "config"), LEARNERS)
def test_metrics_measure_the_divergence_from_what_is_stored(kind: Any, config: Any) -> None:
    agent, drawn = kind(config, LearnerSetting(TASK, 0, range(2), refer=Both())), batch(1, np.float32)
    stored = {"observation": drawn.observation, **drawn.columns}
    mean = agent.policy(drawn.observation) if kind is DDPG else agent.mean(drawn.observation)
    expected = (((mean - drawn.columns["behaviour_mean"]) / 0.3) ** 2).sum(axis=2).mean(axis=1) / 2
    found = agent.metrics(stored)
    assert tuple(found) == agent.metric_names == ("kl", "far", "beta")
    np.testing.assert_allclose(found["kl"], expected, rtol=1e-4)
    assert tuple(kind(config, LearnerSetting(TASK, 0, range(2))).metrics(stored)) == ("kl",)


def test_exploration_without_density_is_refused() -> None:
    with pytest.raises(UserError, match=r"DDPG: ReF-ER needs a behaviour density; .* \[learner.DDPG\] with"):
        DDPG(DDPGConfig(), LearnerSetting(TASK, 0, range(1), refer=Both()))
    with pytest.raises(UserError, match="NAF: ReF-ER needs a behaviour density"):
        NAF(NAFConfig(exploration=GaussianNoise(clip=True)), LearnerSetting(TASK, 0, range(1), refer=Both()))


def test_a_loaded_buffer_is_counted(tmp_path: Path) -> None:
    """Else n_far/N begins at 0, is more than 1 later, and β follows it."""
    steps, strategy = np.zeros(1, np.int64), parse("FIFO[Uniform+ReFER]")
    rules = [FarCount(ReFER(Both(), 2, 1e-3), steps, 2) for _ in range(2)]
    replay = Replay(strategy, step_fields(2, 1), 50, 0, range(2), 8, traces=rules[0])
    rng = np.random.Generator(np.random.PCG64(3))
    for step in range(60):
        row = {name: rng.random((2, width), np.float32) for name, width in step_fields(2, 1).items()}
        replay.add(row, np.ones(2, np.bool_), np.full(2, step % 10 == 9))
        if step >= 40:
            steps += 1
            drawn = replay.sample()
            replay.annotate(drawn, {"td_error": drawn.weight, "rho": np.where(drawn.idx % 3, 9.0, 1.0)})
    write_record(tmp_path / "buffer.h5", "buffer", replay_facts(replay), replay_arrays(replay))
    load_replay(tmp_path / "buffer.h5", traces=rules[1])
    assert (rules[0].fraction > 0.3).all()
    np.testing.assert_array_equal(rules[1].fraction, rules[0].fraction)
    np.testing.assert_array_equal(rules[1].stored_steps, 50)


GAMMA, SCALE = 0.9, 0.5
FIELDS = {"reward": 1, "terminated": 1, "exploration": 1}


def make(strategy: str = "FIFO[Uniform]", members: int = 1, capacity: int = 12) -> tuple[Replay, StoredReturns]:
    refer = ReFER(parse("FIFO[Uniform+ReFER]").refer, members, 1e-3)
    rule = StoredReturns(refer, np.zeros(1, np.int64), members, GAMMA, np.full(members, SCALE))
    return Replay(parse(strategy), FIELDS, capacity, 0, range(members), 4, traces=rule), rule


def add(replay: Replay, reward: Any, value: Any, end: str = "", bootstrap: float = 0.0) -> None:
    """Offer a step of every member; `end` is "terminated", "truncated" or nothing."""
    members = len(replay.count)
    given: dict[str, Any] = {
        "reward": reward, "value": value, "terminated": end == "terminated", "exploration": 0.0,
        "q_ret": SCALE * np.float64(reward) + GAMMA * bootstrap * (end == "truncated"), "truncated": end == "truncated",
    }  # fmt: skip
    experience = {name: np.broadcast_to(np.float32(x), (members,))[:, None] for name, x in given.items()}
    replay.add(experience, np.ones(members, np.bool_), np.full(members, end != ""))


def renew(replay: Replay, rule: StoredReturns, slots: Any, value: Any, rho: Any, bootstrap: Any = 0.0) -> None:
    """Have the learner annotate the steps in `slots` `[B]` of every member."""
    rule.steps += 1
    idx = np.broadcast_to(np.asarray(slots, np.int64), (len(replay.count), len(slots))).copy()
    given = {"value": value, "rho": rho, "bootstrap": bootstrap}
    assert replay.traces is not None
    replay.traces.annotate(idx, {k: np.broadcast_to(np.float32(x), idx.shape).copy() for k, x in given.items()})


def from_scratch(replay: Replay) -> np.ndarray:
    """Q_ret `[M, N]` of every stored step by the recursion, from the end of each chain; float32 like the traces."""
    traces = replay.traces
    assert traces is not None
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
    replay, rule = make()
    add(replay, 2, 3)
    add(replay, 4, 5, "truncated", 10)
    assert replay.traces is not None
    np.testing.assert_allclose(replay.traces.view("q_ret")[0, :2], [10.9, 11], rtol=1e-6)
    renew(replay, rule, [1], 6, 0.5, 20)
    np.testing.assert_allclose(replay.traces.view("q_ret")[0, :2], [12.7, 20], rtol=1e-6)


def test_after_termination_nothing_follows() -> None:
    replay, rule = make()
    add(replay, 2, 3, "terminated")
    renew(replay, rule, [0], 8, 1.0, 100)
    assert replay.traces is not None
    assert replay.traces.view("q_ret")[0, 0] == 1


def test_a_latest_step_has_no_advantage_and_then_bootstraps_from_its_successor() -> None:
    replay, _ = make()
    add(replay, 2, 3)
    assert replay.traces is not None
    assert replay.traces.view("q_ret")[0, 0] == 3
    add(replay, 4, 5)
    assert replay.traces.view("q_ret")[0, 0] == pytest.approx(1 + 0.9 * 5)


@given(st.integers(0, 2**32 - 1), st.sampled_from(["FIFO[Uniform]", "Resv[Uniform]", "Drop(0.5)*FIFO[Uniform]"]))
@settings(max_examples=25, deadline=None)
def test_what_is_stored_is_always_the_recursion_from_scratch(seed: int, strategy: str) -> None:
    """Random episodes, evictions, discards and updates; exactly, bit for bit, whenever no episode is under way."""
    rng = np.random.Generator(np.random.PCG64(seed))
    replay, rule = make(strategy, members=3, capacity=12)
    assert replay.traces is not None
    for _ in range(6):
        steps = int(rng.integers(1, 8))
        for t in range(steps):
            end = "" if t < steps - 1 else str(rng.choice(["terminated", "truncated"]))
            add(replay, rng.normal(size=3), rng.normal(size=3), end, float(rng.normal()))
        for _ in range(3):
            slots = rng.integers(0, max(1, replay.count.min()), 6)
            value, rho = rng.normal(size=12)[slots], np.exp(rng.normal(size=12))[slots]
            if replay.count.min() > 0:
                renew(replay, rule, slots, value, rho, float(rng.normal()))
        np.testing.assert_array_equal(replay.traces.view("q_ret"), from_scratch(replay))
        far = (replay.traces.values[:, :, RHO] >= 5) | (replay.traces.values[:, :, RHO] <= 1 / 5)
        far &= np.arange(12) < replay.count[:, None]
        np.testing.assert_array_equal(rule.far, (replay.traces.view("far") > 0).sum(axis=1))
        np.testing.assert_array_equal(rule.far, far.sum(axis=1))
        np.testing.assert_array_equal(rule.stored_steps, replay.count)


@pytest.mark.parametrize("samples", [1, 3, 12, 50])
def test_sweeps_go_all_the_way_along_long_episodes(samples: int) -> None:
    """Far longer than a lane's turn, fewer sweeps than lanes and many more; the ring's oldest episode is cut into."""
    rng = np.random.Generator(np.random.PCG64(samples))
    replay, rule = make(members=2, capacity=390)
    for t in range(440):
        add(replay, rng.normal(size=2), rng.normal(size=2), "truncated" if t % 40 == 39 else "", float(rng.normal()))
    assert replay.traces is not None
    before = replay.traces.view("q_ret").copy()
    for _ in range(4):
        slots = rng.integers(0, 390, samples)
        renew(replay, rule, slots, rng.normal(size=390)[slots], np.exp(0.1 * rng.normal(size=390))[slots], 1.0)
        np.testing.assert_array_equal(replay.traces.view("q_ret"), from_scratch(replay))
    assert (before != replay.traces.view("q_ret")).any()


def test_an_evicted_successor_leaves_its_value() -> None:
    """Reservoir sampling overwrites in the midst of episodes: what follows stays as it was, and is not renewed."""
    replay, rule = make("Resv[Uniform]", capacity=4)
    for t in range(4):
        add(replay, t, t, "truncated" if t == 3 else "", 5.0)
    renew(replay, rule, range(4), [1, 2, 3, 4], 0.5, 6.0)
    assert replay.traces is not None
    before = replay.traces.view("q_ret")[0].copy()
    while (replay.columns.serial[0] < 5).all():
        add(replay, 50, 50, "terminated")
    gone = int(np.flatnonzero(replay.columns.serial[0] > 4)[0])
    kept = [slot for slot in range(4) if slot != gone]
    np.testing.assert_array_equal(replay.traces.view("q_ret")[0, kept], before[kept])
    if gone > 0:
        assert replay.traces.values[0, gone - 1, TRUNCATED] == 0
        renew(replay, rule, [gone - 1], 9, 1.0, 1000.0)
        assert replay.traces.view("q_ret")[0, gone - 1] == before[gone - 1]


def test_nan_spreads_to_what_depends_on_it_only() -> None:
    replay, rule = make(members=2)
    for t in range(4):
        add(replay, t, [np.nan if t == 2 else t, t], "terminated" if t == 3 else "")
    renew(replay, rule, [2], np.array([[np.nan], [1.0]]), 0.5)
    assert replay.traces is not None
    assert (np.isnan(replay.traces.view("q_ret")[:, :4]) == [[True, True, False, False], [False] * 4]).all()
