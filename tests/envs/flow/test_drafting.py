"""The drafting task on the vortex wake: its start, its reward, its end, its rates and its pictures."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from replaybench.envs.flow.plant import LEFT, Drafting, outside
from replaybench.envs.flow.wake import FREE
from replaybench.envs.population import PopulationEnv
from replaybench.runtime.errors import UserError


def actions(count: int, members: int, size: float = 0.3) -> np.ndarray:
    rng = np.random.Generator(np.random.PCG64(2))
    return rng.uniform(-size, size, (count, members, 3)).astype(np.float32)


def state(env: PopulationEnv) -> np.ndarray:
    return env.get_state()["state"]


@pytest.mark.parametrize(("revision", "widest"), [("paper", math.pi / 8), ("january", math.pi / 4)])
def test_starts_are_uniform_and_at_rest(revision: str, widest: float) -> None:
    env = PopulationEnv(Drafting(revision=revision), 2000, seed=4)
    env.reset()
    found = state(env)
    ranges = {0: (1.5, 1.0), 1: (-0.5, 1.0), 2: (-widest, 2 * widest), 7: (0.0, 1.0)}
    for column, (low, width) in ranges.items():
        assert stats.kstest(found[:, column], "uniform", (low, width)).pvalue > 1e-3
    assert not found[:, 3:6].any()
    assert abs(np.corrcoef(found[:, list(ranges)].T) - np.eye(4)).max() < 0.08
    before = found[:, [0, 7]].copy()
    env.reset()
    assert (state(env)[:, [0, 7]] != before).all()


def test_reward_is_minus_actuation_until_the_box_is_left() -> None:
    env = PopulationEnv("Drafting", 256)
    env.reset()
    over = np.zeros(256, np.bool_)
    for action in actions(12, 256):
        _, reward, terminated, truncated, infos = env.step(action)
        cost = ((2.0 * action.astype(np.float64)) ** 2).sum(axis=1)
        left, running = terminated & ~over, ~terminated
        np.testing.assert_allclose(reward[running], -cost[running], rtol=1e-12)
        np.testing.assert_array_equal(reward[left], -100.0)
        np.testing.assert_array_equal(reward[over], 0.0)
        np.testing.assert_allclose(infos["actuation"][~over], cost[~over], rtol=1e-12)
        np.testing.assert_array_equal(infos["left"], terminated)
        np.testing.assert_array_equal(infos["event"][left], LEFT)
        x, y = state(env)[:, 0], state(env)[:, 1]
        np.testing.assert_array_equal(terminated, (x < 1) | (x > 4) | (abs(y) > 1))
        assert not truncated.any()
        over |= terminated
    assert 0 < over.sum() < 256
    # The box is watched all the time: nobody is found far outside, whatever an action could have done until its end.
    assert state(env)[over, 0].min() > 0.8
    assert abs(state(env)[over, 1]).max() < 1.2


def test_the_january_box_is_shorter() -> None:
    assert Drafting(revision="january").box == (1.0, 3.0, 1.0)
    assert not outside(1.0, -1.0, (1.0, 3.0, 1.0))
    for lost in ((3.1, 0.0), (0.9, 0.0), (2.0, 1.1), (2.0, -1.1), (math.nan, 0.0), (2.0, math.nan)):
        assert outside(*lost, (1.0, 3.0, 1.0))


def test_action_units_scale_force_and_torque() -> None:
    """A quarter of the paper's unit of force, and an eighth of its unit of torque, are the default's."""
    ours, papers = (PopulationEnv(Drafting(action_unit=unit), 16) for unit in ("default", "paper"))
    ours.reset()
    papers.reset()
    for action in actions(3, 16):
        first, second = ours.step(action), papers.step(action * np.array([0.25, 0.25, 0.125], np.float32))
        np.testing.assert_allclose(first[0], second[0], atol=1e-6)
    assert Drafting(action_unit="paper").fingerprint() != Drafting().fingerprint()


def test_motion_and_cost_do_not_depend_on_the_rate() -> None:
    """Neither the motion nor what a time in the wake costs depends on the rate, if the action is the same."""
    once, twice = (PopulationEnv("Drafting", 64, frequency=rate) for rate in (1.0, 2.0))
    assert (once.steps_per_episode, twice.steps_per_episode) == (400, 800)
    once.reset()
    twice.reset()
    for action in actions(3, 64):
        observation, reward = once.step(action)[:2]
        halves = [twice.step(action), twice.step(action)]
        stayed = ~halves[1][2]
        np.testing.assert_allclose(halves[1][0], observation, atol=1e-4)
        np.testing.assert_allclose((halves[0][1] + halves[1][1])[stayed], reward[stayed], rtol=1e-12)


@pytest.mark.parametrize(
    ("field", "value", "hint"),
    [
        ("fidelity", "waek", "did you mean wake"),
        ("action_unit", "papers", "did you mean paper"),
        ("revision", "jan", "january"),
        ("load_spread", 1.5, "from 0 to 1"),
        ("reading_noise", 2, "from 0 to 1"),
        ("period_spread", -0.1, "from 0 to 1"),
        ("cells", 7, "whole number of 8 or more"),
        ("cells", 12.5, "whole number of 8 or more"),
    ],
)
def test_invalid_parameters_are_refused(field: str, value: str | float, hint: str) -> None:
    with pytest.raises(UserError, match=hint):
        wrong: dict[str, Any] = {field: value}
        Drafting(**wrong)


def test_spreads_bound_the_factors_of_an_episode() -> None:
    """Each law that varies by itself, uniform in its logarithm; the others, and members that go on, stay."""
    plant = Drafting(fidelity="free-wake", period_spread=0.1, load_spread=0.3)
    env = PopulationEnv(plant, 4000, seed=5)
    env.reset()
    engine: Any = env._engine
    spreads = {name: spread for name, spread in plant.spreads.items() if spread > 0.0}
    factors = {name: np.log(engine.laws[name] / getattr(FREE, name)) for name in spreads if getattr(FREE, name)}
    assert {"period", "inertia_across", "cross_drag"} <= factors.keys()
    for name, factor in factors.items():
        spread = spreads[name]
        assert stats.kstest(factor, "uniform", (-spread, 2 * spread)).pvalue > 1e-3
    assert abs(np.corrcoef(list(factors.values())) - np.eye(len(factors))).max() < 0.07
    assert (engine.laws["strength"] == FREE.strength).all()
    before = engine.laws.copy()
    env.reset(options={"reset_mask": np.arange(4000) < 2000})
    assert (engine.laws[2000:] == before[2000:]).all()
    assert (engine.laws["period"][:2000] != before["period"][:2000]).all()


def test_the_navier_stokes_flow_refuses_spreads() -> None:
    with pytest.raises(UserError, match="load_spread varies tabulated wakes"):
        Drafting(fidelity="navier-stokes", load_spread=0.1)


def test_phase_and_reading_noise_have_the_stated_spread() -> None:
    """As strongly as asked for, whatever the rate, each reading by itself; what an ellipse shows of itself is right."""
    names: dict[str, Any] = {"phase_noise": 0.03, "reading_noise": 0.2}
    clear, noisy = (PopulationEnv(Drafting(**more), 3000, frequency=4.0, seed=6) for more in ({}, names))
    seen, noisy_seen = (env.plant.denormalise_state(env.reset()[0]) for env in (clear, noisy))
    np.testing.assert_array_equal(noisy_seen[:, :6], seen[:, :6])
    errors = (noisy_seen - seen)[:, 6:]
    assert stats.kstest(errors.ravel() / 0.2, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(errors.T) - np.eye(8)).max() < 0.08
    for env in (clear, noisy):
        env.step(np.zeros((3000, 3)))
    gain = (state(noisy)[:, 7] - state(clear)[:, 7] + 0.5) % 1.0 - 0.5
    assert stats.kstest(gain / 0.015, "norm").pvalue > 1e-3
