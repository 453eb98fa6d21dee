"""Flow plants: ellipse, drafting, wakes of vortices."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import solve_ivp

from replaybench.envs.flow import wake
from replaybench.envs.flow.plant import LEFT, SENSORS, Drafting, outside
from replaybench.envs.flow.vortex_engine import accelerations, move, observe, settled_coupling
from replaybench.envs.flow.wake import FREE, HELD, PERIOD, Laws, flow, look_up, street, wake_table
from replaybench.envs.population import PopulationEnv
from tests.helpers.refusals import refuses

EVERYWHERE = (-9.0, 9.0, 9.0)
BOTH = pytest.mark.parametrize("laws", [HELD, FREE], ids=["held", "free"])


def law(laws: Laws = HELD) -> Any:
    """Return laws as kernels take them."""
    return wake.records(laws, 1)[0]


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
    rear, front = (np.array(look_up(table, a, b, phase % 1.0, 1 / laws.period - 1 / PERIOD)) * weaken for a, b in ends)
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


@pytest.mark.slow
@BOTH
def test_the_rates_are_those_of_the_equations(laws: Laws) -> None:
    rng = np.random.Generator(np.random.PCG64(1))
    for state in states(200):
        push = rng.uniform(-0.3, 0.3, 3)
        exact = rates(state, push, wake_table(), laws)
        np.testing.assert_allclose(moved(state, push, laws), exact[3:6], rtol=1e-9, atol=1e-10)
        settled = settled_coupling(law(laws), state[0], state[1], math.cos(state[2]))
        assert (settled - state[6]) / laws.period == pytest.approx(exact[6], abs=1e-12)


@pytest.mark.slow
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


@pytest.mark.slow
@BOTH
def test_a_step_of_an_action_is_accurate_against_scipy(laws: Laws) -> None:
    error = []
    for state in states(24):
        exact, ours = oracle(state, wake_table(), laws), after(state, wake_table(), 20, laws)
        error.append(abs(ours - exact)[:6].max())
        assert ours[7] == pytest.approx(exact[7] % 1.0, abs=1e-9)
    assert np.median(error) < 3e-3
    assert np.quantile(error, 0.9) < 1e-2


@pytest.mark.slow
def test_steps_converge_with_the_second_order() -> None:
    """In the free stream, which has no kinks between nodes."""
    table, found = stream(), []
    for state in states(12):
        exact = after(state, table, 2560)
        np.testing.assert_allclose(exact[:7], oracle(state, table)[:7], rtol=0, atol=2e-5)
        found.append([abs(after(state, table, n) - exact)[:7].max() for n in (40, 80, 160)])
    error = np.median(found, axis=0)
    np.testing.assert_allclose(error[:-1] / error[1:], 4.0, rtol=0.15)


@pytest.mark.slow
def test_an_ellipse_stops_where_it_leaves_the_box() -> None:
    state = np.array([[1.02, 0.0, 0.0, -0.5, 0.0, 0.0, 0.15, 0.0]])
    assert move(state, 0, -0.5, 0.0, 0.0, (1.0, 4.0, 1.0), 1.0, 20, law(), wake_table())
    assert 0.95 < state[0, 0] < 1.0


@pytest.mark.slow
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
    for env in (ours, papers):
        env.reset()
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
    ("wrong", "hint"),
    [
        ({"fidelity": "waek"}, "did you mean wake"),
        ({"action_unit": "papers"}, "did you mean paper"),
        ({"revision": "jan"}, "january"),
        ({"load_spread": 1.5}, "from 0 to 1"),
        ({"reading_noise": 2}, "from 0 to 1"),
        ({"period_spread": -0.1}, "from 0 to 1"),
        ({"cells": 7}, "whole number of 8 or more"),
        ({"cells": 12.5}, "whole number of 8 or more"),
        ({"fidelity": "navier-stokes", "load_spread": 0.1}, "load_spread varies tabulated wakes"),
    ],
)
def test_invalid_parameters_are_refused(wrong: dict[str, Any], hint: str) -> None:
    refuses(hint, Drafting, **wrong)


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


H = 1e-5


def points(count: int) -> np.ndarray:
    """Return x, y and phase of points that sensors can reach, `[count, 3]`."""
    rng = np.random.Generator(np.random.PCG64(3))
    return rng.uniform((0.5, -1.5, 0.0), (4.5, 1.5, 1.0), (count, 3))


def at(x: float, y: float, phase: float) -> np.ndarray:
    return np.array(flow(x, y, street(phase % 1.0)))


def test_the_street_sheds_at_the_strouhal_number() -> None:
    times = np.arange(0.0, 20 * PERIOD, 0.1)
    v = np.array([at(3.0, 0.0, time / PERIOD)[1] for time in times])
    spectrum = abs(np.fft.rfft(v))
    peak = np.fft.rfftfreq(times.size, 0.1)[np.argmax(spectrum)]
    assert peak == pytest.approx(0.204, abs=0.003)
    assert abs(v).max() == pytest.approx(0.53, abs=0.05)


def test_divergence_is_the_source_and_curl_is_the_vorticity() -> None:
    for x, y, phase in points(40):
        by_x = (at(x + H, y, phase) - at(x - H, y, phase)) / (2 * H)
        by_y = (at(x, y + H, phase) - at(x, y - H, phase)) / (2 * H)
        source = wake.SOURCE / math.pi * wake.SOURCE_CORE / (x * x + y * y + wake.SOURCE_CORE) ** 2
        assert by_x[0] + by_y[1] == pytest.approx(source, abs=1e-8)
        assert by_x[1] - by_y[0] == pytest.approx(wake.vorticity(np.array([x]), np.array([y]), phase)[0, 0], abs=1e-7)


def test_acceleration_is_that_of_a_particle_that_moves_along() -> None:
    for x, y, phase in points(40):
        u, v, *acceleration = at(x, y, phase)
        after = at(x + H * u, y + H * v, phase + H / PERIOD)
        before = at(x - H * u, y - H * v, phase - H / PERIOD)
        np.testing.assert_allclose((after - before)[:2] / (2 * H), acceleration, rtol=1e-6, atol=1e-6)


def test_the_flow_is_smooth_at_the_centre_of_a_vortex() -> None:
    """The series that takes over near a centre joins the formula."""
    x, y, _, core = wake.vortex(2, 0.3)[:4]
    near, nearer = (at(x + step * math.sqrt(core), y, 0.3) for step in (2e-4, 5e-5))
    np.testing.assert_allclose(near, nearer, rtol=0, atol=3e-3)
    assert np.isfinite(at(x, y, 0.3)).all()


def test_the_table_holds_the_street_at_its_nodes() -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    for i, j, p in zip(*(rng.integers(0, n, 50) for n in (wake.NODES, wake.NODES, wake.PHASES)), strict=True):
        x, y, phase = wake.LEFT_EDGE + wake.SPACING * i, wake.LOWER_EDGE + wake.SPACING * j, p / wake.PHASES
        # 1e-9 of a phase keeps the query off the boundary of two cells, where either one is right.
        np.testing.assert_allclose(look_up(wake_table(), x, y, phase + 1e-9, 0.0), at(x, y, phase), atol=2e-5)


def test_interpolation_between_the_nodes_is_accurate() -> None:
    rows = points(4000)
    error = np.array([np.subtract(look_up(wake_table(), x, y, phase, 0.0), at(x, y, phase)) for x, y, phase in rows])
    assert np.sqrt((error[:, :2] ** 2).mean()) < 0.006
    assert np.sqrt((error[:, 2:] ** 2).mean()) < 0.03


def test_points_outside_the_table_are_clipped_to_its_edge() -> None:
    table = wake_table()
    corner = look_up(table, wake.LEFT_EDGE, wake.LOWER_EDGE, 0.2, 0.0)
    np.testing.assert_array_equal(look_up(table, -math.inf, -1e300, 0.2, 0.0), corner)
    assert np.isfinite(look_up(table, math.inf, 1e300, 0.2, 0.0)).all()
    for lost in ((math.nan, 0.0, 0.2), (1.0, math.nan, 0.2), (1.0, 0.0, math.nan)):
        assert len(look_up(table, *lost, 0.0)) == 4  # whatever it says, it reads nothing outside the table
