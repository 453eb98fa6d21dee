"""The ellipse against equations written out once more, against SciPy, energy, and forces of the Navier–Stokes twin."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from replaybench.envs.flow.plant import SENSORS
from replaybench.envs.flow.vortex_engine import accelerations, move, observe, settled_coupling
from replaybench.envs.flow.wake import FREE, HELD, PERIOD, Laws, flow, look_up, records, street, wake_table

EVERYWHERE = (-9.0, 9.0, 9.0)
BOTH = pytest.mark.parametrize("laws", [HELD, FREE], ids=["held", "free"])


def law(laws: Laws = HELD) -> Any:
    """Return laws as kernels take them."""
    return records(laws, 1)[0]


def states(count: int) -> np.ndarray:
    """Return ellipses as they move in the wake, `[count, 8]`."""
    rng = np.random.Generator(np.random.PCG64(5))
    low, high = (1.2, -0.8, -1.5, -0.6, -0.6, -1.5, 0.15, 0.0), (3.8, 0.8, 1.5, 0.6, 0.6, 1.5, 0.7, 1.0)
    return rng.uniform(low, high, (count, 8))


def stream() -> np.ndarray:
    table = np.zeros_like(wake_table()).reshape(-1, 4)
    table[:, 0] = 1.0
    return table.ravel()


def rates(state: np.ndarray, push: np.ndarray, table: np.ndarray, laws: Laws = HELD) -> np.ndarray:
    """Return dx/dt of a state, with the equations in matrix form."""
    x, y, theta, _, _, omega, coupling, phase = state
    axis, normal = np.array([math.cos(theta), math.sin(theta)]), np.array([-math.sin(theta), math.cos(theta)])
    weaken = np.array([1.0, coupling, 1.0, coupling])
    ends = [(x, y) + s * 0.2887 * axis for s in (-1, 1)]
    rear, front = (
        np.array(look_up(table, end[0], end[1], phase % 1.0, 1 / laws.period - 1 / PERIOD)) * weaken for end in ends
    )
    water, carried = (rear + front)[:2] / 2, laws.carried * (rear + front)[2:] / 2
    spin = omega - (front - rear)[:2] @ normal / (2 * 0.2887)
    slip = state[3:5] - water
    w = np.array([slip @ axis, slip @ normal])
    effective = np.array([w[0], w[1] - laws.turning_lift * spin * w[0] / np.hypot(*w)])
    size = np.hypot(*effective)
    c, s = effective / size
    pressure = 0.5 * size**2 * s * (laws.normal_linear + laws.normal_cubic * s**2)
    force = np.array([-laws.skin_friction * math.sqrt(size) * w[0], -pressure - laws.cross_drag * effective[1]])
    inertia = np.array([laws.inertia_along, laws.inertia_across])
    force += omega * (inertia[1] - inertia[0]) * w[::-1] + np.array([push[:2] @ axis, push[:2] @ normal])
    own = force / inertia
    munk = (laws.munk_bluff + laws.munk_slender * c**8) * 0.754
    torque = -munk * w[0] * w[1] - laws.turning_drag * spin + push[2]
    near = (1 - math.tanh((x - 2.25) / 0.08)) * math.exp(-((y / 0.7) ** 4)) * abs(axis[0])
    settled = 1 - laws.always_weaker - laws.near_weaker * near
    motion = carried + own[0] * axis + own[1] * normal
    relaxing = (settled - coupling) / laws.period
    return np.array([*state[3:6], *motion, torque / laws.inertia_turning, relaxing, 1 / laws.period])


def moved(state: np.ndarray, push: np.ndarray, laws: Laws = HELD) -> tuple[float, ...]:
    x, y, theta, v, w, omega, coupling, phase = state
    pose = x, y, math.cos(theta), math.sin(theta)
    return accelerations(law(laws), *pose, v, w, omega, coupling, phase, push[0], push[1], push[2], wake_table())


@BOTH
def test_the_rates_are_those_of_the_equations(laws: Laws) -> None:
    rng = np.random.Generator(np.random.PCG64(1))
    for state in states(200):
        push = rng.uniform(-0.3, 0.3, 3)
        exact = rates(state, push, wake_table(), laws)
        np.testing.assert_allclose(moved(state, push, laws), exact[3:6], rtol=1e-9, atol=1e-10)
        settled = settled_coupling(law(laws), state[0], state[1], math.cos(state[2]))
        assert (settled - state[6]) / laws.period == pytest.approx(exact[6], abs=1e-12)


@pytest.mark.parametrize("period", [HELD.period, FREE.period, 0.8 * FREE.period])
def test_accelerations_of_the_water_match_any_period(period: float) -> None:
    """An ellipse without forces takes over the acceleration of the water that passes the two points of its chord."""
    laws = HELD._replace(**dict.fromkeys(HELD._fields[3:11], 0.0), period=period)
    step, error = 1e-4, []
    for state in states(400):
        if abs(2 * state[7] - round(2 * state[7])) < step:  # where the oldest vortex is dropped there is no derivative
            continue
        state[[3, 4, 5]], state[6] = 0.0, 1.0
        ends = [state[:2] + side * 0.2887 * np.array([math.cos(state[2]), math.sin(state[2])]) for side in (-1, 1)]
        exact = np.zeros(2)
        for x, y in ends:
            u, v = flow(x, y, street(state[7]))[:2]
            for side in (-1, 1):
                ahead = side * step
                there = flow(x + ahead * u, y + ahead * v, street((state[7] + ahead / period) % 1.0))
                exact += side * np.array(there[:2]) / (2 * step) / 2
        error.append(moved(state, np.zeros(3), laws)[:2] - exact)
    assert np.sqrt(np.square(error).mean()) < 0.02


def after(state: np.ndarray, table: np.ndarray, substeps: int, laws: Laws = HELD) -> np.ndarray:
    rows = state[None].copy()
    assert not move(rows, 0, 0.05, -0.02, 0.01, EVERYWHERE, 1.0, substeps, law(laws), table)
    return np.asarray(rows[0])


def oracle(state: np.ndarray, table: np.ndarray, laws: Laws = HELD) -> np.ndarray:
    push = np.array([0.05, -0.02, 0.01])
    found = solve_ivp(lambda _, x: rates(x, push, table, laws), (0, 1), state, rtol=1e-8, atol=1e-9, max_step=0.1)
    return np.asarray(found.y[:, -1])


@BOTH
def test_a_step_of_an_action_is_accurate_against_scipy(laws: Laws) -> None:
    error = []
    for state in states(24):
        exact, ours = oracle(state, wake_table(), laws), after(state, wake_table(), 20, laws)
        error.append(abs(ours - exact)[:6].max())
        assert ours[7] == pytest.approx(exact[7] % 1.0, abs=1e-9)
    assert np.median(error) < 3e-3
    assert np.quantile(error, 0.9) < 1e-2


def test_steps_converge_with_the_second_order() -> None:
    """In the free stream, which has no kinks between nodes."""
    table, found = stream(), []
    for state in states(12):
        exact = after(state, table, 2560)
        np.testing.assert_allclose(exact[:7], oracle(state, table)[:7], rtol=0, atol=2e-5)
        found.append([abs(after(state, table, n) - exact)[:7].max() for n in (40, 80, 160)])
    error = np.median(found, axis=0)
    np.testing.assert_allclose(error[:-1] / error[1:], 4.0, rtol=0.15)


def test_an_ellipse_stops_where_it_leaves_the_box() -> None:
    state = np.array([[1.02, 0.0, 0.0, -0.5, 0.0, 0.0, 0.15, 0.0]])
    assert move(state, 0, -0.5, 0.0, 0.0, (1.0, 4.0, 1.0), 1.0, 20, law(), wake_table())
    assert 0.95 < state[0, 0] < 1.0


@BOTH
def test_sensors_show_the_flow_relative_to_the_body(laws: Laws) -> None:
    """Those of the free wake tell a share of it, which differs along and across the chord."""
    for state in states(20):
        observed = np.zeros(14)
        observe(state, law(laws), wake_table(), observed)
        x, y, theta, u, v, omega, coupling, phase = state
        turn = np.array([[math.cos(theta), -math.sin(theta)], [math.sin(theta), math.cos(theta)]])
        np.testing.assert_allclose(observed[:6], state[:6])
        for n, place in enumerate(SENSORS):
            arm = turn @ place
            water = np.array(look_up(wake_table(), x + arm[0], y + arm[1], phase, 0.0)[:2]) * (1.0, coupling)
            body = np.array([u, v]) + omega * np.array([-arm[1], arm[0]])
            shares = laws[-4:-2] if n < 2 else laws[-2:]
            shown = turn @ (np.array(shares) * (turn.T @ (water - body)))
            np.testing.assert_allclose(observed[6 + 2 * n : 8 + 2 * n], shown, atol=1e-12)
