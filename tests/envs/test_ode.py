"""Plants by ordinary differential equations, and their integration."""

import math
import re
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from replaybench.envs.interface.channel import Channel
from replaybench.envs.interface.plant import Params, Vector
from replaybench.envs.ode import rk4
from replaybench.envs.ode.courses import Ramps, Steps
from replaybench.envs.ode.magman import TRACK_HIGH, TRACK_LOW, Magman
from replaybench.envs.ode.pendulum import Pendulum, PendulumDCSC
from replaybench.envs.ode.plant import HALVINGS, OdePlant, describe_steps, step_choice, try_functions, wrap_angle
from replaybench.envs.ode.servo import Servo
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import make_plant
from replaybench.runtime.errors import UserError
from tests.helpers.declared import declared
from tests.helpers.refusals import refuses


def test_parameters_are_the_printed_ones() -> None:
    assert Pendulum().params() == (9.41e-4, 5.5e-2, 9.81, 4.2e-2, 3e-6, 5.36e-2, 9.5)
    assert PendulumDCSC().params() == (1.91e-4, *Pendulum().params()[1:])
    assert Magman().params() == (3.2e-2, 1.613e-2, 5.52e-10, 1.75e-4, 0.025)


def test_right_hand_sides_by_hand() -> None:
    x, u = np.array([math.pi / 2, 2.0]), np.array([3.0])
    expected = (-0.055 * 9.81 * 0.042 - (3e-6 + 0.0536**2 / 9.5) * 2 + 0.0536 / 9.5 * 3) / 9.41e-4
    assert Pendulum.rhs(x, u, Pendulum().params()) == pytest.approx((2.0, expected), rel=1e-12)
    x, u = np.array([0.035, 0.1]), np.array([0.6, 0.0, 0.0, 0.0])
    force = -5.52e-10 * 0.01 / (0.01**2 + 1.75e-4) ** 3 * 0.6
    assert Magman.rhs(x, u, Magman().params()) == pytest.approx((0.1, (force - 1.613e-3) / 0.032), rel=1e-12)


def test_rewards_by_hand() -> None:
    x = np.zeros(2)
    reward = Pendulum.reward(x, np.array([-2.0]), np.array([-3.0, -4.0]), 0, Pendulum().params())
    assert reward == pytest.approx(-(50 * (math.pi - 3) + 4 + 20), rel=1e-12)
    for event, extra in ((0, 0.0), (1, 1.0)):
        reward = Magman.reward(x, np.ones(4), np.array([0.105, -0.01]), event, Magman().params())
        assert reward == pytest.approx(-(100 * 0.07 + 5 * 0.01 + extra), rel=1e-12)


def test_equations_with_a_method_start_are_refused() -> None:
    with pytest.raises(UserError, match="no method start; declare start_spread"):
        type("Mine", (Pendulum,), {"start": lambda self, uniform: uniform})()


def test_angles_are_wrapped_into_their_half_open_range() -> None:
    for angle in (0.0, 3.0, -math.pi, math.pi, 3.2, -3.2, 7.0, -100.0, 1e9, math.nextafter(-math.pi, -4)):
        wrapped = wrap_angle(angle)
        assert -math.pi <= wrapped < math.pi
        assert math.cos(wrapped - angle) == pytest.approx(1.0, abs=1e-12)
    assert math.isnan(wrap_angle(math.nan))
    after, _, _ = rk4.simulate(Pendulum(), [3.1, 10.0], [0.0], 0.02)
    assert -math.pi < after[0] < -2.9


@pytest.mark.parametrize(("start", "end"), [((-0.0349, -0.3), (-0.035, 0.01)), ((0.1049, 0.3), (0.105, -0.01))])
def test_a_wall_stops_the_ball_and_costs_one(start: tuple[float, float], end: tuple[float, float]) -> None:
    plant = Magman()
    after, reward, _ = rk4.simulate(plant, start, np.zeros(4), 0.01)  # one substep
    np.testing.assert_array_equal(after, end)
    assert reward == pytest.approx(-(100 * 0.07 + 5 * 0.01 + 1), rel=1e-12)
    # A collision in the first of two substeps still counts, though the ball has left the wall since.
    after, reward, _ = rk4.simulate(plant, start, np.zeros(4), 0.02)
    assert abs(after[0] - end[0]) == pytest.approx(0.01 * 0.01, rel=0.01)
    free = -(100 * abs(after[0] - 0.035) + 5 * abs(after[1]))
    assert reward == pytest.approx(free - 1, rel=1e-12)


def test_a_fingerprint_follows_content_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the grid of dynamic programming: learners never see it, and what they learned stays valid."""
    before = Pendulum().fingerprint()
    assert Pendulum(inertia=9.41e-4).fingerprint() == before
    others = PendulumDCSC(), Pendulum(inertia=1.91e-4), Magman(), Magman(first_magnet_at=0)
    assert len({before, *(plant.fingerprint() for plant in others)}) == 5
    grid = {"grid_nodes": (30, 31), "grid_low": (-math.pi, -9.0), "grid_high": (math.pi, 9.0), "action_levels": (7,)}
    for name, value in grid.items():
        monkeypatch.setattr(Pendulum, name, value)
        assert Pendulum().fingerprint() == before


@pytest.mark.parametrize(
    ("function", "returned", "told"),
    [
        ("reward", None, "reward returns None at the initial state where a number must be"),
        ("reward", np.zeros(2), "reward returns array([0., 0.]) at the initial state where a number must be"),
        ("rhs", None, "rhs returns None at the initial state, not a tuple of derivatives"),
        ("rhs", (0.0, "fast"), "rhs returns 'fast' at the initial state where a number must be"),
        ("rhs", (0.0,), "rhs returns 1 derivatives for 2 states"),
    ],
)
def test_wrong_return_values_are_named(function: str, returned: Any, told: str) -> None:
    plant: Any = PendulumDCSC()
    functions = {name: SimpleNamespace(py_func=getattr(plant, name).py_func) for name in rk4.FUNCTIONS}
    functions[function] = SimpleNamespace(py_func=lambda *_: returned)
    shared = {name: getattr(plant, name) for name in ("initial_state", "action_range", "params", "equations")}
    assert try_functions(cast(Any, SimpleNamespace(**functions, **shared))) == told


def oracle(plant: OdePlant, state: np.ndarray, u: np.ndarray, dt: float) -> np.ndarray:
    """Integrate one state by SciPy, walls and wrapping left out."""
    compiled: Any = plant.rhs
    p, rhs = plant.params(), compiled.py_func
    return np.asarray(solve_ivp(lambda _, x: rhs(x, u, p), (0, dt), state, rtol=1e-10, atol=1e-12).y[:, -1])


def random_states(plant: OdePlant, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.Generator(np.random.PCG64(1))
    state = plant.denormalise_state(rng.uniform(-1, 1, (count, len(plant.state_names))))
    return state, plant.denormalise_action(rng.uniform(-1, 1, (count, len(plant.action_names))))


def integrate(plant: OdePlant, state: np.ndarray, u: np.ndarray, seconds: float, count: int) -> np.ndarray:
    """Integrate with `count` equal Runge-Kutta steps."""
    after, rows = state.copy(), len(state)
    written = np.empty(rows), np.empty(rows, np.bool_), np.empty(rows, np.int64)
    everyone = np.ones(rows, np.bool_)
    rk4.kernel(plant)(after, u, everyone, seconds / count, count, plant.params(), *written)
    return after


@pytest.mark.parametrize(("plant", "tolerance"), [(Pendulum(), 1e-6), (PendulumDCSC(), 1e-6), (Magman(), 1e-4)])
def test_a_step_is_accurate_to_a_small_part_of_the_range(plant: OdePlant, tolerance: float) -> None:
    """Magman's away from its walls."""
    state, u = random_states(plant, 60)
    after, _, _ = rk4.simulate(plant, state, u, 0.02)
    exact = np.array([oracle(plant, *row, 0.02) for row in zip(state, u, strict=True)])
    error, ends = after - exact, np.stack([state[:, 0], exact[:, 0]])
    if plant.periodic[0]:
        error[:, 0] = (error[:, 0] + math.pi) % (2 * math.pi) - math.pi
    else:
        free = ((ends > TRACK_LOW + 2e-3) & (ends < TRACK_HIGH - 2e-3)).all(axis=0)
        assert free.sum() > 40
        error = error[free]
    assert (abs(error) < tolerance * 2 * np.array(plant.state_scale)).all()


@pytest.mark.parametrize(
    ("plant", "state", "u", "seconds"),
    [(Pendulum(), [[1.0, 2.0]], [[1.5]], 0.1), (Magman(), [[0.03, 0.1]], [[0.1, 0.3, 0.2, 0.4]], 0.04)],
)
def test_the_error_falls_with_the_fourth_power_of_the_step(plant: OdePlant, state: Any, u: Any, seconds: float) -> None:
    start, action = np.array(state), np.array(u)
    exact = oracle(plant, start[0], action[0], seconds)
    errors = [np.linalg.norm(integrate(plant, start, action, seconds, count)[0] - exact) for count in (8, 16, 32)]
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert (abs(orders - 4) < 0.2).all(), orders


@pytest.mark.parametrize(("dt", "count"), [(0.005, 1), (0.01, 1), (0.02, 2), (0.025, 3), (0.1, 10)])
def test_substeps_are_at_most_ten_milliseconds(dt: float, count: int) -> None:
    assert rk4.substeps(Pendulum(), dt) == count


def test_simulate_broadcasts_and_leaves_its_arguments_alone() -> None:
    plant = Magman()
    state, u = np.full((3, 1, 2), 0.01), np.zeros((5, 4))
    state.setflags(write=False)
    after, reward, terminated = rk4.simulate(plant, state, u, 0.02)
    assert (after.shape, reward.shape, terminated.shape) == ((3, 5, 2), (3, 5), (3, 5))
    alone, _, _ = rk4.simulate(plant, [0.01, 0.01], np.zeros(4), 0.02)
    assert alone.shape == (2,)
    np.testing.assert_array_equal(after, np.broadcast_to(alone, after.shape))


@pytest.mark.parametrize("plant", [Pendulum(), Magman()], ids=lambda plant: plant.name)
def test_results_do_not_depend_on_other_members_of_a_block(plant: OdePlant) -> None:
    """Vectors, what is left of a block behind the last whole vector, a second block, and members that rest."""
    state, u = random_states(plant, 2 * rk4.BLOCK + 3)
    after, reward, _ = rk4.simulate(plant, state, u, 0.02)
    for count in (1, 2, 3, 5, 7, 50, rk4.BLOCK, rk4.BLOCK + 1):
        some, rewards, _ = rk4.simulate(plant, state[-count:], u[-count:], 0.02)
        np.testing.assert_array_equal(some, after[-count:])
        np.testing.assert_array_equal(rewards, reward[-count:])
    running = np.arange(len(state)) % 3 != 0
    moved, said = state.copy(), (np.full(len(state), 7.0), np.ones(len(state), np.bool_), np.full(len(state), 9))
    rk4.kernel(plant)(moved, u, running, 0.01, 2, plant.params(), *said)
    np.testing.assert_array_equal(moved, np.where(running[:, None], after, state))
    np.testing.assert_array_equal(said[0], np.where(running, reward, 7.0))
    assert said[1][~running].all()
    assert not said[1][running].any()
    assert (said[2][~running] == 9).all()


@dataclass(frozen=True, kw_only=True)
class Lag(OdePlant):
    """A first-order lag, whose samples are known."""

    tau: float = 100.0

    name = "Lag"
    state_names, state_units, state_center, state_scale = ("x",), ("1",), (0.0,), (1.0,)
    action_names, action_units, action_low, action_high = ("u",), ("1",), (-1.0,), (1.0,)
    initial_state, reference_state = (0.5,), (0.0,)
    frequency, episode_seconds = 0.1, 100.0

    @staticmethod
    def rhs(x: Vector, u: Vector, p: Params) -> tuple[float, ...]:
        (tau,) = p
        return ((u[0] - x[0]) / tau,)

    @staticmethod
    def reward(x: Vector, u: Vector, x_next: Vector, event: int, p: Params) -> float:
        return -abs(float(x_next[0]))


@dataclass(frozen=True, kw_only=True)
class Sticking(Lag):
    """A lag that goes towards its action at a constant speed, so that it jumps about it."""

    @staticmethod
    def rhs(x: Vector, u: Vector, p: Params) -> tuple[float, ...]:
        (tau,) = p
        return ((1.0 if u[0] > x[0] else -1.0) / tau,)


@pytest.mark.parametrize(("tau", "count"), [(1e4, 1), (100.0, 1), (5.0, 16), (2.0, 32)])
def test_steps_are_as_long_as_the_plants_time_constant_allows(tau: float, count: int) -> None:
    plant = Lag(tau=tau)
    assert rk4.substeps(plant, 10.0) == count
    assert step_choice(plant).met
    states = np.linspace(-1, 1, 50)[:, None]
    after, _, _ = rk4.simulate(plant, states, [1.0], 10.0)
    np.testing.assert_allclose(after, 1 + (states - 1) * math.exp(-10.0 / tau), atol=2e-6)


def test_a_step_that_misses_the_tolerance_is_reported() -> None:
    choice = step_choice(Sticking(tau=1.0))
    assert not choice.met
    assert choice.step <= 10.0 / 2**HALVINGS
    assert "declare max_substep" in describe_steps(Sticking(tau=1.0), 0.1)


@dataclass(frozen=True, kw_only=True)
class Walled(Lag):
    """A mass between stiff walls, which are outside the scale of its position."""

    stiffness: float = 4e4
    name = "Walled"
    state_names, state_units = ("x", "v"), ("m", "m/s")  # type: ignore[assignment]  # Lag has one state
    state_center, state_scale = (0.0, 0.0), (1.0, 1.0)  # type: ignore[assignment]
    initial_state, reference_state = (0.0, 0.0), (0.0, 0.0)  # type: ignore[assignment]
    frequency, episode_seconds = 50.0, 10.0

    @staticmethod
    def rhs(x: Vector, u: Vector, p: Params) -> tuple[float, ...]:
        beyond = max(x[0] - 1.2, 0.0) + min(x[0] + 1.2, 0.0)
        return x[1], u[0] - p[1] * beyond * (1.0 + 1e4 * beyond * beyond)


def test_the_step_is_chosen_for_the_states_that_control_reaches() -> None:
    """Walls just outside the scale of a state once gave one step per sample, and states that are not finite."""
    plant = Walled()
    choice = step_choice(plant)
    assert choice.met
    assert choice.step < 0.005
    env, actions = PopulationEnv(plant, 2, nan_actions="fail"), np.array([[-1.0], [1.0]])
    env.reset()
    assert all(np.abs(env.step(actions)[4]["true_state"]).max() < 5 for _ in range(500))


def test_a_state_that_is_not_finite_is_an_error_that_names_it() -> None:
    plant = declared(Walled, max_substep=0.02)()
    env, actions = PopulationEnv(plant, 2, nan_actions="fail"), np.array([[0.0], [1.0]])
    env.reset()
    with pytest.raises(
        UserError, match=r"the state [xv] becomes .*1 Runge-Kutta step of 0\.02 s; declare a shorter max_sub"
    ):
        for _ in range(500):
            env.step(actions)


def test_a_step_choice_names_the_tolerance_that_it_misses() -> None:
    choice = step_choice(Walled(stiffness=1e12))
    assert not choice.met
    assert choice.change > choice.limit
    assert f"more than {choice.limit:g}" in describe_steps(Walled(stiffness=1e12), 50.0)


def test_a_declared_step_replaces_the_chosen_one() -> None:
    plant = declared(Lag, max_substep=2.5)()
    assert plant.max_substep == 2.5
    assert describe_steps(plant, 0.1) == ""
    assert "1 Runge-Kutta step a sample" in describe_steps(Lag(), 0.1)
    assert plant.fingerprint() != Lag().fingerprint()
    assert [type(plant)().max_substep for plant in (Pendulum(), PendulumDCSC(), Magman())] == [0.01] * 3


@dataclass(frozen=True, kw_only=True)
class Followed(OdePlant):
    """A place that moves at the speed of the action, and two courses that it might follow."""

    name = "Followed"
    state_names, state_units = ("place", "goal", "slope"), ("m", "m", "m")
    action_names, action_units = ("speed",), ("m/s",)
    state_center, state_scale = (0.0,) * 3, (1.0,) * 3
    action_low, action_high = (-1.0,), (1.0,)
    initial_state, reference_state = (0.5, 0.0, 0.0), (0.0,) * 3
    start_spread = (0.25, 0.0, 0.0)
    exogenous = {"goal": Steps(2.0, 4.0, 0.3), "slope": Ramps(-1.0, 1.0, 0.5)}  # noqa: RUF012
    regulated, set_points = {"place": "speed"}, {"place": "goal"}
    frequency, max_substep = 10.0, 0.1

    @staticmethod
    def rhs(x: Vector, u: Vector, p: Params) -> tuple[float, ...]:
        return (u[0],)

    @staticmethod
    def reward(x: Vector, u: Vector, x_next: Vector, event: int, p: Params) -> float:
        return x_next[1]  # type: ignore[no-any-return]


def test_exogenous_states_follow_their_courses_and_starts_are_spread() -> None:
    env = PopulationEnv(Followed(), 40)
    observations = [env.reset()[0]]
    rewards = []
    for _ in range(40):
        observation, reward, *_ = env.step(np.full((40, 1), 0.5))
        observations.append(observation)
        rewards.append(reward)
    place, goal, slope = np.moveaxis(np.array(observations, np.float64), 2, 0)
    np.testing.assert_allclose(place, place[0] + 0.05 * np.arange(41)[:, None], atol=1e-5)  # the equation alone
    assert 0.25 <= place[0].min() < 0.3
    assert 0.7 < place[0].max() <= 0.75
    np.testing.assert_allclose(rewards, goal[:-1], rtol=1e-6)  # the goal that held during the step
    held = goal.reshape(-1, 40)[:39].reshape(13, 3, 40)
    assert (held == held[:, :1]).all()
    assert (np.diff(held[:, 0], axis=0) != 0).all()
    assert ((held >= 2) & (held <= 4)).all()
    assert held.mean() == pytest.approx(3.0, abs=0.1)
    moves = np.diff(slope, axis=0)[:40].reshape(8, 5, 40)
    np.testing.assert_allclose(moves, moves[:, :1].repeat(5, axis=1), atol=1e-6)  # straight between corners
    assert np.abs(slope).max() <= 1.0


def test_exogenous_states_are_observed_without_noise() -> None:
    for channel in (None, Channel(dead_zone=0.1)):
        env = PopulationEnv(Followed(), 3, sensor_noise=0.1, channel=channel)
        observation, info = env.reset()
        assert (observation[:, 0] != info["true_state"][:, 0]).all()
        np.testing.assert_array_equal(observation[:, 1:], info["true_state"][:, 1:])


def test_the_channel_sets_the_noise_of_single_states() -> None:
    """In physical units, in place of the noise of all: here none on the place, and some on the goal."""
    channel = Channel(noise={"place": 0.0, "goal": 0.4})
    env = PopulationEnv(declared(Followed, state_scale=(1.0, 2.0, 1.0))(), 4000, sensor_noise=0.1, channel=channel)
    observation, info = env.reset()
    np.testing.assert_array_equal(observation[:, [0, 2]], info["true_state"][:, [0, 2]])
    error = observation[:, 1] - info["true_state"][:, 1]
    np.testing.assert_allclose(error, info["sensor_noise"][:, 1], atol=1e-6)
    assert error.std() == pytest.approx(0.4 / 2.0, rel=0.05)
    same = PopulationEnv("Pendulum", 3, sensor_noise=0.1).reset()[0]
    named = Channel(noise=dict(zip(Pendulum.state_names, 0.1 * np.array(Pendulum.state_scale), strict=True)))
    np.testing.assert_allclose(PopulationEnv("Pendulum", 3, channel=named).reset()[0], same, rtol=1e-6)
    quiet, noisy = (Pendulum().through(Channel(noise={"angle": sigma})) for sigma in (0.0, 0.1))
    assert [plant.episodes_differ(0.0) for plant in (quiet, noisy)] == [False, True]


def test_courses_depend_on_the_member_and_continue_from_a_stored_state() -> None:
    one, both = PopulationEnv(Followed(), 1, members=[3]), PopulationEnv(Followed(), 2, members=[2, 3])
    action = np.zeros((2, 1))
    for env in (one, both):
        env.reset()
    for _ in range(7):
        alone, together = one.step(action[:1])[0], both.step(action)[0]
        np.testing.assert_array_equal(alone[0], together[1])
        assert not np.array_equal(together[0], together[1])
    state = both.get_state()
    ahead = [both.step(action)[0] for _ in range(9)]
    other = PopulationEnv(Followed(), 2, members=[2, 3], seed=5)
    other.reset()
    other.set_state(state)
    np.testing.assert_array_equal(ahead, [other.step(action)[0] for _ in range(9)])


@pytest.mark.parametrize(
    ("declared_facts", "words"),
    [
        ({"exogenous": {"goal": 3.0}}, "course of goal must be Steps, Ramps or Sines"),
        ({"exogenous": {"place": Steps(0, 1, 1)}}, "exogenous states must be the last of state_names, not place"),
        ({"regulated": {"goal": "speed"}}, "unknown state in regulated .*'goal'"),
        ({"regulated": {"place": "sped"}}, "unknown action in regulated .*did you mean speed"),
        ({"set_points": {"place": "slop"}}, "unknown exogenous state in set_points .*did you mean slope"),
        ({"start_spread": (0.1,)}, "start_spread has 1 entries, state_names has 3"),
    ],
)
def test_courses_and_set_points_that_do_not_fit_are_refused(declared_facts: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        declared(Followed, **declared_facts)()
    with pytest.raises(UserError, match="low below high"):
        Steps(1.0, 0.0, 1.0)


def test_an_exogenous_state_with_an_equation_is_refused() -> None:
    both = declared(Followed, rhs=staticmethod(lambda x, u, p: (u[0], 0.0, 0.0)))
    assert "rhs returns an equation of slope, which is exogenous" in try_functions(both())


def test_fingerprints_of_plants_without_courses_stay() -> None:
    assert Pendulum().fingerprint()[:8] == "494f3796"


def test_the_servo_moves_as_solve_ivp_does_and_stops_short_of_small_voltages() -> None:
    plant = Servo()
    p = plant.params()
    for state, voltage in (([0.3, 0.0, 1.0], 1.7), ([-0.5, 8.0, 0.0], -2.0), ([0.0, 0.0, 1.0], 0.15)):
        exact = solve_ivp(
            lambda t, x, u: [*plant.rhs(x, np.array([u]), p), 0.0], (0, 0.02), state, "LSODA", args=(voltage,),
            rtol=1e-11, atol=1e-13,
        ).y[:, -1]  # fmt: skip
        after, _, _ = rk4.simulate(plant, state, [voltage], 0.02)
        np.testing.assert_allclose(plant.normalise_state(after), plant.normalise_state(exact), atol=2e-4)
        fine = np.array([state], np.float64)
        rk4.advance(plant, fine, np.array([[voltage]]), 0.02, 128)
        np.testing.assert_allclose(fine[0], exact, rtol=1e-5, atol=1e-9)
    still, _, _ = rk4.simulate(plant, [0.0, 0.0, 1.0], [0.15], 0.5)
    moving, _, _ = rk4.simulate(plant, [0.0, 0.0, 1.0], [0.30], 0.5)
    assert still[0] < 0.06 < 0.4 < moving[0]
    stopped, reward, _ = rk4.simulate(plant, [3.1, 30.0, 1.0], [3.0], 0.02)
    assert stopped[:2] == pytest.approx([math.pi, 0.0])
    assert reward == pytest.approx(-(10 * (math.pi - 1) + 0.3 + 10))


SPREAD = {"mass": 0.2, "damping": 0.5}


@pytest.mark.parametrize("channel", [Channel(), Channel(delay=0.007)])
def test_a_spread_plant_moves_as_plants_with_the_drawn_parameters(channel: Channel) -> None:
    env, action = PopulationEnv(make_plant("Pendulum", spread=SPREAD), 70, channel=channel), np.full((70, 1), 0.7)
    _, infos = env.reset()
    drawn = infos["parameters"]
    alone = [PopulationEnv(Pendulum(mass=row[1], damping=row[4]), 1, channel=channel) for row in drawn[::23]]
    for single in alone:
        single.reset()
    for _ in range(5):
        observation, reward, *_ = env.step(action)
        for member, single in zip(range(0, 70, 23), alone, strict=True):
            own, its_reward, *_ = single.step(action[:1])
            np.testing.assert_array_equal(observation[member], own[0])
            assert reward[member] == its_reward[0]
    nominal = np.array(Pendulum().params())
    np.testing.assert_array_equal(np.delete(drawn, [1, 4], axis=1), np.tile(np.delete(nominal, [1, 4]), (70, 1)))
    for place, share in ((1, 0.2), (4, 0.5)):
        low, high = nominal[place] * (1 - share), nominal[place] * (1 + share)
        assert low <= drawn[:, place].min() < low + 0.1 * (high - low)
        assert high - 0.1 * (high - low) < drawn[:, place].max() <= high


def test_parameters_are_drawn_for_each_episode_and_member_and_continue_from_a_stored_state() -> None:
    plant = make_plant("Pendulum", spread=SPREAD)
    one, both = PopulationEnv(plant, 1, members=[3]), PopulationEnv(plant, 2, members=[2, 3])
    evaluation = PopulationEnv(plant, 2, members=[2, 3], role="evaluation").reset()[1]["parameters"]
    alone, together = one.reset()[1]["parameters"], both.reset()[1]["parameters"]
    np.testing.assert_array_equal(alone[0], together[1])
    assert len({*together[:, 1], *evaluation[:, 1]}) == 4
    state = both.get_state()
    action = np.ones((2, 1))
    ahead = [both.step(action)[0], both.reset(options={"reset_mask": np.array([True, False])})[1]["parameters"]]
    assert (ahead[1][0] != together[0]).any()
    np.testing.assert_array_equal(ahead[1][1], together[1])
    other = PopulationEnv(plant, 2, members=[2, 3], seed=5)
    other.reset()
    other.set_state(state)
    again = [other.step(action)[0], other.reset(options={"reset_mask": np.array([True, False])})[1]["parameters"]]
    for expected, found in zip(ahead, again, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_spread_is_part_of_the_plant_but_not_of_its_nominal_plant() -> None:
    plant = make_plant("Pendulum", spread={"mass": 0.2}, channel=Channel(history=2))
    assert make_plant("Pendulum", **plant.settings()) == plant
    assert len({each.fingerprint() for each in (plant, make_plant("Pendulum", spread=SPREAD), Pendulum())}) == 3
    assert plant.nominal().fingerprint() == Pendulum().fingerprint()
    assert [each.settings()["mass"] for each in plant.extremes()] == pytest.approx([0.055, 0.044, 0.066])
    limit = PopulationEnv(plant, 1).single_observation_space.high[1]
    assert limit == np.float32(Pendulum(mass=0.055 * 1.2).observation_limit[1]) > Pendulum().observation_limit[1]


@pytest.mark.parametrize(
    ("plant", "parameters", "words"),
    [
        ("Pendulum", {"spread": {"mas": 0.2}}, "unknown parameter of Pendulum in spread: 'mas'; did you mean mass"),
        ("Pendulum", {"spread": {"mass": 1.0}}, "spread of mass of Pendulum must be between 0 and 1, .*, not 1.0"),
        ("Pendulum", {"spread": {"mass": 0}}, "must be between 0 and 1"),
        ("Pendulum", {"spread": {"mass": "a lot"}}, "must be between 0 and 1, .*, not 'a lot'"),
        ("Pendulum", {"spread": 0.2}, "spread of Pendulum must be a table, as in .*, not 0.2"),
        ("Pendulum", {"spread": {"damping": 0.2}, "damping": 0}, "does not change damping of Pendulum, which is 0.0"),
        ("MujocoHopper", {"spread": {"mass": 0.2}}, "MujocoHopper is not given by equations"),
        ("gymnasium:CartPole-v1", {"spread": {"gravity": 0.2}}, "is not given by equations"),
    ],
)
def test_spreads_that_do_not_fit_are_refused(plant: str, parameters: dict[str, Any], words: str) -> None:
    refuses(words, make_plant, plant, **parameters)


def test_a_plant_without_end_stop_whose_states_run_away_is_named() -> None:
    endless = declared(Servo, project=OdePlant.project, observation_limit=(1.0, 2.0, 1.0))
    assert Servo().trial_warning() == ""
    told = endless().trial_warning()
    assert re.search(r"full action drives angle to 8\d.* times its scale, .*limit of 1; let project stop it", told)
    ending = declared(endless, terminated=staticmethod(lambda x, event, p: abs(x[0]) > 1.5))
    assert ending().trial_warning() == ""
