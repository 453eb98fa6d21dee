"""Returns along stored episodes against the recursion from scratch, worked examples and n-step returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replaybench.controllers.losses.refer import Q_RET, REWARD, RHO, TRUNCATED, VALUE, ReFER, StoredReturns
from replaybench.replay.buffer import Replay
from replaybench.replay.strategies.notation import parse

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


def test_with_all_weights_at_least_1_it_is_the_n_step_return() -> None:
    replay, rule = make()
    reward, value = np.arange(1.0, 9.0), np.linspace(-3, 3, 8)
    for t in range(8):
        add(replay, reward[t], value[t], "truncated" if t == 7 else "", 7.0)
    renew(replay, rule, range(8), value, np.linspace(1, 2, 8), 7.0)
    for t in range(8):
        discounts = GAMMA ** np.arange(8 - t)
        expected = discounts @ (SCALE * reward[t:]) + GAMMA ** (8 - t) * 7.0
        assert replay.traces is not None
        assert replay.traces.view("q_ret")[0, t] == pytest.approx(expected, rel=1e-6)


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
