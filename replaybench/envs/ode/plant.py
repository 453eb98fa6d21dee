"""The base class of plants that are given by ordinary differential equations, with the choice of the integration step.

Numba compiles the functions of a plant. The kernels of `replaybench.envs.ode.rk4` call them for whole populations.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple, Self

import numpy as np
from numba import njit
from numba.core.dispatcher import Dispatcher
from numpy.typing import NDArray

from replaybench.envs.interface.declarations import NUMBER, check_range, check_scalar, check_tuple
from replaybench.envs.interface.engine import Engine
from replaybench.envs.interface.plant import Params, Plant, Vector, with_attribute
from replaybench.envs.interface.signals import wrap_angle as wrap_angle
from replaybench.envs.ode import rk4
from replaybench.envs.ode.courses import Course
from replaybench.envs.ode.rk4 import FUNCTIONS
from replaybench.runtime.errors import UserError, shown, unknown
from replaybench.runtime.function_hash import content_hash
from replaybench.runtime.streams import Stream

_PER_STATE: Final = ("initial_state", "reference_state")
_GRID: Final = ("grid_nodes", "grid_low", "grid_high")


@dataclass(frozen=True, kw_only=True)
class OdePlant(Plant):
    """The base class of plants that are given by ordinary differential equations.

    A subclass is a frozen dataclass of physical parameters and defines the static methods `rhs` and `reward`. The
    fields are floats. The methods get the values of the fields as a tuple `p`, in the order of the fields, as in `J, M,
    g = p`. They also get float64 vectors in physical units: the states `x` and `x_next` `[S]` and the action `u` `[A]`.
    Plain functions are compiled when the class is defined. Functions with the decorator `@njit` are used as they are.
    """

    initial_state: ClassVar[tuple[float, ...]]
    reference_state: ClassVar[tuple[float, ...]]

    start_spread: ClassVar[tuple[float, ...]] = ()
    """Half-width of the range of each state at the start of an episode, around `initial_state`. Starts are uniform in
    this range. Every episode begins at `initial_state` if the tuple is empty."""
    exogenous: ClassVar[Mapping[str, Course]] = MappingProxyType({})
    """Random courses of states, such as set points, that have no equation. These states come last in `state_names`.
    `rhs` returns the derivatives of the other states. `reward` gets the value that held during the control step."""
    regulated: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Names of the states that a PID controller regulates, each with the name of its action."""
    set_points: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Names of regulated states, each with the name of the exogenous state that is its set point. The set point of
    other regulated states is the value in `reference_state`."""

    saturates: ClassVar[bool] = False
    splits_steps = True

    grid_nodes: ClassVar[tuple[int, ...]] = ()
    """Number of grid nodes per state for dynamic programming, from `grid_low` to `grid_high`. The last node of an angle
    is one spacing below `grid_high`. If the tuple is empty, dynamic programming is not computed."""
    grid_low: ClassVar[tuple[float, ...]] = ()
    grid_high: ClassVar[tuple[float, ...]] = ()
    action_levels: ClassVar[tuple[int, ...]] = ()
    """Number of evenly spaced values of each action among which dynamic programming chooses."""
    refine_grid: ClassVar[bool] = False
    """Whether dynamic programming refines the grid until its solution converges. Studies can override this value."""

    @property
    def max_substep(self) -> float:
        """The longest Runge-Kutta step [s]. If a plant does not declare the step, `step_choice` selects it."""
        return step_choice(self).step

    @property
    def equations(self) -> int:
        """Number of states with an equation, which come first in `state_names`."""
        return len(self.state_names) - len(self.exogenous)

    @property
    def noisy(self) -> tuple[bool, ...]:
        """Whether each state is measured. Set points and other exogenous states are known without noise."""
        return tuple(name not in self.exogenous for name in self.state_names)

    @property
    def random_episodes(self) -> bool:
        """Whether the starts, the set points or the parameters of episodes are random."""
        return bool(self.exogenous or self.spread) or any(self.start_spread)

    def episodes_differ(self, noise: float) -> bool:
        """Return whether episodes of a deterministic controller differ, at a standard deviation `noise` of noise."""
        channel = self.channel
        random = noise, channel.jitter, channel.disturbance, *channel.noise.values(), self.random_episodes
        return any(map(bool, random))

    @property
    def chooses_step(self) -> bool:
        """Whether the plant does not declare `max_substep`, so that `step_choice` selects the Runge-Kutta step."""
        return type(self).max_substep is OdePlant.max_substep

    @staticmethod
    def rhs(x: Vector, u: Vector, p: Params) -> tuple[float, ...]:
        """Return the time derivative of each state for the state `x`, the applied action `u` and the parameters `p`.

        Exogenous states have no derivative.
        """
        raise NotImplementedError

    @staticmethod
    def reward(x: Vector, u: Vector, x_next: Vector, event: int, p: Params) -> float:
        """Return the reward of one control step from `x` to `x_next` under the applied action `u`."""
        raise NotImplementedError

    @staticmethod
    def project(x: Vector, p: Params) -> int:
        """Project the state `x` in place onto the valid states after every Runge-Kutta step.

        For example, a plant may wrap an angle or stop at a wall.

        Returns:
            A bool, or an int whose bits are events. The results of all Runge-Kutta steps in a control step are combined
                by OR. `reward` and `terminated` get the combination as the argument `event`.
        """
        return 0

    @staticmethod
    def terminated(x_next: Vector, event: int, p: Params) -> bool:
        """Return whether `x_next` is a terminal state, after which no reward follows."""
        return False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _compile_functions(cls)

    def params(self) -> Params:
        """Return the values of the parameters in the order of the fields, the argument `p` of the plant's methods."""
        return tuple(getattr(self, field.name) for field in fields(self))

    @classmethod
    def with_spread(cls, spread: Mapping[str, float]) -> type[Self]:
        names = [field.name for field in fields(cls)]
        if not isinstance(spread, Mapping):
            raise UserError(f"spread of {cls.name} must be a table, as in {{ {names[0]} = 0.2 }}, not {shown(spread)}")
        for name, share in spread.items():
            if name not in names:
                raise unknown(f"parameter of {cls.name} in spread:", name, names)
            if not (NUMBER.fits(share) and 0 < share < 1):
                raise UserError(
                    f"spread of {name} of {cls.name} must be between 0 and 1, as in 0.2 for ± 20 %, not {shown(share)}"
                )
        if spread and cls.engine is not OdePlant.engine:
            raise UserError(f"{cls.name} has an engine of its own, which does not draw parameters; leave spread out")
        chosen = tuple(sorted((name, float(share)) for name, share in spread.items()))
        same: Any = cls  # for mypy, a `type[Self]` is not hashable
        return cls if chosen == cls.spread else with_attribute(same, "spread", chosen)

    def engine(self, num_envs: int, frequency: float) -> Engine:
        return RungeKutta(self, num_envs, frequency)

    def positions_of(self, velocities: Sequence[str]) -> dict[str, str]:
        """Return the name of the state whose time derivative is the velocity, for each of `velocities`.

        Raises:
            UserError: A name is unknown, or the equations have no such state.
        """
        if not velocities:
            return {}  # a call from Python would compile `rhs`, also where its kernel is in the cache
        low, high = state_range(self)
        points = [low + share * (high - low) for share in (0.21, 0.62, 0.87)]
        u, p, found = np.array(self.action_range()[0]), self.params(), {}
        slopes = [self.rhs(x, u, p) for x in points]
        for velocity in velocities:
            if velocity not in self.state_names:
                raise unknown(f"state of {self.name} in differentiate:", velocity, self.state_names)
            own = self.state_names.index(velocity)
            for i, name in enumerate(self.state_names[: self.equations]):
                if i != own and all(slope[i] == x[own] for slope, x in zip(slopes, points, strict=True)):
                    found[velocity] = name
            if velocity not in found:
                raise UserError(
                    f"no state of {self.name} has {velocity} as its time derivative; leave it out of differentiate"
                )
        return found

    def trial_warning(self) -> str:
        """Return a warning if the lowest or the highest action drives a state beyond the `observation_limit`."""
        inputs = np.array([self.action_low, self.action_high], np.float64)
        state = np.tile(np.array(self.initial_state, np.float64), (2, 1))
        furthest, running = np.zeros(len(self.state_names)), np.ones(2, np.bool_)
        for _ in range(min(self.steps_per_episode(self.frequency), _LONGEST)):
            state, _, terminated = rk4.simulate(self, state, inputs, 1.0 / self.frequency)
            away = np.nan_to_num(np.abs(self.normalise_state(state[running])), nan=np.inf)
            furthest = np.maximum(furthest, away.max(axis=0, initial=0.0))
            running &= ~terminated
        limit = np.array(self.observation_limit) * (1 + 1e-5)
        if not (furthest > limit).any():
            return ""
        i = int(np.argmax(furthest / limit))
        return (
            f"{self.name}: full action drives {self.state_names[i]} to {furthest[i]:.3g} times its scale, beyond its "
            f"observation_limit of {self.observation_limit[i]:g}; let project stop it as an end stop does, let "
            "terminated end the episode, or declare observation_limit and set normalise.observations of the learner"
        )

    def made_of(self) -> str:
        return content_hash(getattr(self, name) for name in FUNCTIONS)

    @classmethod
    def _declared(cls) -> tuple[str, ...]:
        # The grid is left out: only dynamic programming depends on it, and learned policies stay valid when it changes.
        # Declarations that older plants lack enter only where they are used, so that older fingerprints stay valid.
        used = [name for name in ("start_spread", "exogenous") if getattr(cls, name)]
        return (*super()._declared(), *_PER_STATE, "max_substep", *used)

    def _check_declarations(self) -> None:
        super()._check_declarations()
        plant = type(self).__name__
        if hasattr(self, "start"):
            raise UserError(
                f"plant {plant}: equations have no method start; declare start_spread, the half-width of the range of "
                "each state around initial_state"
            )
        if not self.chooses_step:  # `step_choice` would call functions that may be wrong
            check_scalar(self, "max_substep")
        for name in (*_PER_STATE, *(_GRID if self.grid_nodes else ()), *["start_spread"] * bool(self.start_spread)):
            check_tuple(self, name, "state_names")
        self._check_courses(f"plant {plant}")
        for name, _ in self.spread:
            if not NUMBER.fits(value := getattr(self, name)) or value == 0:
                raise UserError(f"spread does not change {name} of {plant}, which is {shown(value)}; leave it out")
        if self.grid_nodes:
            check_range(self, "grid_low", "grid_high")
            for name, angle, low, high in zip(
                self.state_names, self.periodic, self.grid_low, self.grid_high, strict=True
            ):
                if angle and not math.isclose(high - low, 2 * math.pi, rel_tol=1e-3):
                    raise UserError(
                        f"plant {plant}: the grid of {name}, which is periodic, goes from {low:g} to {high:g}, which "
                        "is not a whole turn; let it, or declare the state not periodic"
                    )
        if self.action_levels or self.grid_nodes:
            check_tuple(self, "action_levels", "action_names")
            if self.action_choices and self.action_levels != self.action_choices:
                raise UserError(f"plant {plant}: action_levels must equal action_choices, {self.action_choices}")
        if self.grid_nodes and not 0.0 < self.discount < 1.0:
            raise UserError(
                f"plant {plant}: dynamic programming needs a discount between 0 and 1, not {self.discount}; "
                "change it, or leave grid_nodes out"
            )
        for name in ("rhs", "reward"):
            if getattr(self, name) is getattr(OdePlant, name):
                raise UserError(f"plant {plant} does not define the static method {name}")

    def _check_courses(self, plant: str) -> None:
        exogenous, dynamic = self.state_names[self.equations :], self.state_names[: self.equations]
        for name, course in self.exogenous.items():
            if not isinstance(course, Course):
                raise UserError(f"{plant}: the course of {name} must be Steps, Ramps or Sines, not {course!r}")
        if set(exogenous) != set(self.exogenous):
            raise UserError(
                f"{plant}: exogenous states must be the last of state_names, not {', '.join(self.exogenous)}"
            )
        for what, names, values, known in (
            ("regulated", dynamic, self.action_names, "action"),
            ("set_points", tuple(self.regulated), exogenous, "exogenous state"),
        ):
            for state, other in getattr(self, what).items():
                if state not in names:
                    raise unknown(f"state in {what} of {plant}:", state, names)
                if other not in values:
                    raise unknown(f"{known} in {what} of {plant}:", other, values)


class RungeKutta(Engine):
    """A simulator that integrates the differential equations of M copies of a plant by Runge-Kutta steps."""

    def __init__(self, plant: OdePlant, num_envs: int, frequency: float) -> None:
        super().__init__(num_envs, len(plant.state_names), frequency)
        self._drawn = np.zeros((num_envs, len(plant.exogenous), 2))  # the last and the next random value of each course
        self._elapsed = np.zeros(num_envs, np.int64)  # control steps in the episode
        self._courses = [plant.exogenous[name] for name in plant.state_names[plant.equations :]]
        self.plant, self._kernel = plant, rk4.kernel(plant, own=bool(plant.spread))
        self._extremes = plant.extremes()
        substeps = self._substeps(1.0 / frequency)
        names, shares = [field.name for field in fields(plant)], dict(plant.spread)
        self._half = np.array(plant.params()) * [shares.get(name, 0.0) for name in names]
        self._own = np.tile(plant.params(), (num_envs, 1))  # parameters of each copy in the running episode
        self._steps = 1.0 / frequency / substeps, substeps
        self._params = self._own if plant.spread else plant.params()
        self._in_pieces: tuple[Callable[..., None], NDArray[np.int64]] | None = None

    def _substeps(self, seconds: float) -> int:
        return max(rk4.substeps(plant, seconds) for plant in self._extremes)

    def restart(self, chosen: NDArray[np.bool_], draws: Stream) -> None:
        self.observed[chosen] = self.plant.initial_state
        if self.plant.spread:
            share = np.zeros((int(chosen.sum()), len(self._half)))
            share[:, self._half != 0.0] = self.parameters.uniform(len(self.plant.spread), chosen)
            self._own[chosen] = np.array(self.plant.params()) + (2.0 * share - 1.0) * self._half
        if self.plant.start_spread:
            share = draws.uniform(self.observed.shape[1], chosen)
            self.observed[chosen] += (2.0 * share - 1.0) * self.plant.start_spread
        if self._courses:
            self._elapsed[chosen] = 0
            self._drawn[chosen] = self.courses.uniform(2 * len(self._courses), chosen).reshape(
                -1, len(self._courses), 2
            )
            self._follow(chosen)

    def changing(self) -> dict[str, NDArray[Any]]:
        found: dict[str, NDArray[Any]] = {}
        if self._courses:
            found |= {"course_drawn": self._drawn, "course_elapsed": self._elapsed, "course_stream": self.courses.state}
        if self.plant.spread:
            found |= {"parameters": self._own, "parameter_stream": self.parameters.state}
        return found

    def infos(self) -> dict[str, NDArray[Any]]:
        return {"parameters": self._own.copy()} if self.plant.spread else {}

    def _follow(self, chosen: NDArray[np.bool_]) -> None:
        """Write the present values of the exogenous states of the members marked in `chosen` `[M]`."""
        for i, course in enumerate(self._courses, self.plant.equations):
            held = self._elapsed / (self.frequency * course.hold) + 1e-9  # rounding must not delay a step of the course
            last, following = self._drawn[:, i - self.plant.equations].T
            self.observed[chosen, i] = course.at(last, following, held % 1.0)[chosen]

    def _draw_next(self, running: NDArray[np.bool_]) -> None:
        """Count a control step of the members marked in `running` `[M]`, and draw the next values of courses."""
        before, self._elapsed[running] = self._elapsed.copy(), self._elapsed[running] + 1
        for i, course in enumerate(self._courses):
            held, earlier = (steps / (self.frequency * course.hold) + 1e-9 for steps in (self._elapsed, before))
            new = running & (np.floor(held) > np.floor(earlier))
            if new.any():
                self._drawn[new, i, 0] = self._drawn[new, i, 1]
                self._drawn[new, i, 1] = self.courses.uniform(1, new)[:, 0]

    def advance(self, action: NDArray[np.float64], running: NDArray[np.bool_]) -> None:
        self._kernel(
            self.observed, action, running, *self._steps, self._params, self.reward, self.terminated, self.event
        )
        self._end_step(running)

    def advance_pieces(
        self, action: NDArray[np.float64], pieces: NDArray[np.float64], seconds: NDArray[np.float64],
        longest: Sequence[float], running: NDArray[np.bool_],
    ) -> None:  # fmt: skip
        if self._in_pieces is None:
            counts = np.array([self._substeps(length) for length in longest])
            self._in_pieces = rk4.kernel(self.plant, pieces=True, own=bool(self.plant.spread)), counts
        advance, counts = self._in_pieces
        advance(
            self.observed, action, pieces, seconds, counts, running, self._params, self.reward, self.terminated,
            self.event,
        )  # fmt: skip
        self._end_step(running)

    def _end_step(self, running: NDArray[np.bool_]) -> None:
        if self._courses:
            self._draw_next(running)
            self._follow(running)
        finite = np.isfinite(self.observed)
        if not self.plant.saturates and not finite.all():
            member, state = np.argwhere(~finite)[0]
            step, count = self._steps
            raise UserError(
                f"{self.plant.name}: the state {self.plant.state_names[state]} becomes {self.observed[member, state]} "
                f"in a control step of {count} Runge-Kutta step{'s' * (count > 1)} of {step:.4g} s; declare a shorter "
                "max_substep, let project stop the state as an end stop does, or let terminated end the episode before"
            )


def try_functions(plant: OdePlant) -> str:
    """Call the uncompiled functions of a plant once, and return a description of the first fault or an empty string.

    The functions get the initial state and the action in the middle of the range. Exceptions of the functions are
    raised unchanged, because they show the user's line.
    """
    x = np.array(plant.initial_state, np.float64)
    u, p = np.array(plant.action_range()[0]), plant.params()
    rhs, reward_of, project, terminated = (getattr(plant, name).py_func for name in FUNCTIONS)
    rates, reward = rhs(x.copy(), u, p), reward_of(x.copy(), u, x.copy(), 0, p)
    if not isinstance(rates, tuple | list | np.ndarray):
        return f"rhs returns {rates!r} at the initial state, not a tuple of derivatives"
    for name, numbers in (("rhs", rates), ("reward", [reward])):
        if wrong := [each for each in numbers if not isinstance(each, int | float | np.number | np.bool_)]:
            return f"{name} returns {wrong[0]!r} at the initial state where a number must be"
    if len(rates) == len(x) != plant.equations:
        return f"rhs returns an equation of {plant.state_names[-1]}, which is exogenous; leave out one of the two"
    if len(rates) != plant.equations:
        return f"rhs returns {len(rates)} derivatives for {plant.equations} states"
    if not np.isfinite([*rates, reward]).all():
        return "rhs or reward is not finite at the initial state"
    for name, value in (("project", project(x.copy(), p)), ("terminated", terminated(x.copy(), 0, p))):
        if not isinstance(value, int | np.integer | np.bool_):
            return f"{name} returns {value!r} at the initial state, neither a bool nor a whole number"
    return ""


def with_equations(plant: Plant, purpose: str) -> OdePlant:
    """Return the plant if it has differential equations, or raise a `UserError` that names the `purpose`."""
    if not isinstance(plant, OdePlant):
        raise UserError(
            f"{plant.name} is not given by equations, which {purpose} needs; Pendulum, PendulumDCSC, Magman, Servo and "
            "plants of your own that derive from OdePlant are"
        )
    return plant


def state_range(plant: Plant) -> tuple[Vector, Vector]:
    """Return the lowest and the highest physical states, `[S]` each, of the range in which a plant usually moves.

    The range is that of the plant's grid for dynamic programming. Without a grid, it is [-1, 1] in normalised units.
    """
    if isinstance(plant, OdePlant) and plant.grid_low:
        return np.array(plant.grid_low, np.float64), np.array(plant.grid_high, np.float64)
    center, scale = np.array(plant.state_center, np.float64), np.array(plant.state_scale, np.float64)
    return center - scale, center + scale


TOLERANCE: Final = 1e-6
"""Tolerance of `step_choice` for 95 % of the tested states, relative to the scale of a state. It is compared with the
change of the state after a control step if the Runge-Kutta step is halved."""
WORST: Final = 1e-2
"""Tolerance of `step_choice` for every tested state, relative to the scale of a state. It is larger than `TOLERANCE`
because, for example, friction may change its sign in a control step."""
HALVINGS: Final = 6
_TYPICAL: Final = 256  # number of tested states, in addition to the initial and the reference state
_EPISODES: Final = 16  # number of tested episodes
_LONGEST: Final = 1000  # largest number of control steps in a tested episode
_LONGEST_PROJECTED: Final = 0.01  # longest step [s] of plants with `project`, which is called after each step


class StepChoice(NamedTuple):
    """A Runge-Kutta step, chosen by halving the step until the state after a control step hardly changes."""

    step: float  # [s]
    change: float  # change of the state if the step is halved, relative to the state's scale
    limit: float  # tolerance of `change`: `TOLERANCE` for its 95 % quantile over tested states, `WORST` for its maximum

    @property
    def met(self) -> bool:
        """Whether the change is within the tolerance. If not, `step` is the shortest step that was tried."""
        return self.change <= self.limit


@functools.cache
def step_choice(plant: OdePlant) -> StepChoice:
    """Return the longest Runge-Kutta step with which the state after a control step is accurate.

    Step doubling halves the step until the result changes by less than the tolerance. The tested states and actions are
    fixed. They are spread evenly over the `state_range` and over the range of the actions. The largest change must also
    be small in episodes of random control and of the lowest and the highest action, up to the `observation_limit`.
    """
    dt = 1.0 / plant.frequency
    low, high = state_range(plant)
    states, actions = len(low), len(plant.action_names)
    ratio = 2.0  # Roberts' sequence: powers of the root of r^(d + 1) = r + 1 fill a d-dimensional cube evenly
    for _ in range(50):
        ratio = (1.0 + ratio) ** (1.0 / (states + actions + 1))
    share = np.outer(np.arange(1, _TYPICAL + 1), ratio ** -np.arange(1.0, states + actions + 1)) % 1.0
    corners = np.repeat([plant.initial_state, plant.reference_state], 3, axis=0)
    state = np.concatenate([low + share[:, :states] * (high - low), corners])
    action = np.concatenate([share[:, states:], np.tile([[0.0], [0.5], [1.0]], (2, actions))])
    inputs = plant.denormalise_action(2.0 * action - 1.0)
    longest = dt if plant.project is OdePlant.project else _LONGEST_PROJECTED

    def after(seconds: float, count: int) -> Vector:
        reached = state.copy()
        rk4.advance(plant, reached, inputs, seconds, count)
        return reached

    def apart(one: Vector, other: Vector) -> Vector:
        with np.errstate(invalid="ignore"):
            change = one - other
            change -= np.where(plant.periodic, 2 * np.pi * np.round(change / (2 * np.pi)), 0.0)
        parts: Vector = np.nan_to_num(np.abs(change) / plant.state_scale, nan=np.inf).max(axis=1)
        return parts

    # No step is longer than the time to cross a state's scale, so that oscillations within a step are detected.
    instant = dt / 1024
    far = 1024 * float(np.quantile(apart(after(instant, 1), state), 0.95, method="higher"))
    count = math.ceil(max(1.0, dt / longest - 1e-9, min(far, 2.0**HALVINGS)))
    coarse = after(dt, count)
    for _ in range(HALVINGS + 1):
        fine = after(dt, 2 * count)
        change = apart(fine, coarse)
        choice = StepChoice(dt / count, float(np.quantile(change, 0.95, method="higher")), TOLERANCE)
        if choice.met and (worst := max(float(change.max()), _worst_in_episodes(plant, count, apart))) > WORST:
            choice = choice._replace(change=worst, limit=WORST)
        if choice.met:
            break
        count, coarse = 2 * count, fine
    return choice


def _worst_in_episodes(plant: OdePlant, count: int, apart: Callable[[Vector, Vector], Vector]) -> float:
    """Return the largest change of a state if the Runge-Kutta step is halved, in the episodes that `step_choice` tests.

    Actions are random, except for the lowest and the highest action in one episode each. An episode starts again where
    it ends or passes the `observation_limit`. `count` is the number of Runge-Kutta steps in a control step, and `apart`
    returns the changes `[N]` between states `[N, S]`.
    """
    dt, worst, draws = 1.0 / plant.frequency, 0.0, Stream(0, range(_EPISODES), "random controller")
    start = np.tile(np.array(plant.initial_state, np.float64), (_EPISODES, 1))
    state = start
    for _ in range(min(plant.steps_per_episode(plant.frequency), _LONGEST)):
        action = 2.0 * draws.uniform(len(plant.action_names)) - 1.0
        action[0], action[1] = -1.0, 1.0
        inputs, coarse, fine = plant.denormalise_action(action), state.copy(), state.copy()
        rk4.advance(plant, coarse, inputs, dt, count)
        _, terminated = rk4.advance(plant, fine, inputs, dt, 2 * count)
        worst = max(worst, float(apart(fine, coarse).max()))
        if worst > WORST:
            break
        inside = (np.abs(plant.normalise_state(fine)) <= plant.observation_limit).all(axis=1)
        state = np.where((inside & ~terminated)[:, None], fine, start)
    return worst


def describe_steps(plant: Plant, frequency: float) -> str:
    """Describe the Runge-Kutta steps that `step_choice` has selected, at a control rate in Hz.

    The result is empty if the plant declares `max_substep` or has no differential equations.
    """
    if not isinstance(plant, OdePlant) or not plant.chooses_step:
        return ""
    choice, count = step_choice(plant), rk4.substeps(plant, 1.0 / frequency)
    text = f"{count} Runge-Kutta step{'s' * (count != 1)} a sample, chosen by step doubling: steps of "
    text += f"{choice.step:.4g} s, half of which changes a state by {choice.change:.1g} of its scale"
    short = f", which is more than {choice.limit:g}: declare max_substep if the plant jumps, as at a stop"
    return text + short * (not choice.met)


def _compile_functions(plant: type[OdePlant]) -> None:
    for name in FUNCTIONS:
        function = vars(plant).get(name)
        if isinstance(function, staticmethod):
            function = function.__func__
        if function is not None:
            setattr(plant, name, staticmethod(function if isinstance(function, Dispatcher) else njit(function)))


_compile_functions(OdePlant)
