"""Plants given by ordinary differential equations.

Numba compiles their functions, and the kernels of `replaybench.envs.ode.rk4` call them for whole populations.
"""

import functools
import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from numba import njit
from numba.core.dispatcher import Dispatcher
from numpy.typing import NDArray

from replaybench.envs.interface.declarations import check_range, check_scalar, check_tuple
from replaybench.envs.interface.engine import Engine
from replaybench.envs.interface.plant import Params, Plant, Vector
from replaybench.envs.interface.signals import wrap_angle as wrap_angle
from replaybench.envs.ode import rk4
from replaybench.envs.ode.rk4 import FUNCTIONS
from replaybench.runtime.errors import UserError
from replaybench.runtime.function_hash import content_hash
from replaybench.runtime.streams import Stream

_PER_STATE: Final = ("initial_state", "reference_state")
_GRID: Final = ("grid_nodes", "grid_low", "grid_high")


@dataclass(frozen=True, kw_only=True)
class OdePlant(Plant):
    """Base class of plants with `rhs` and `reward`; a subclass is a frozen dataclass of physical parameters.

    The fields are floats and reach the functions as one tuple in their order, as in `J, M, g = p`. The functions are
    static methods on float64 vectors `x`, `x_next` `[S]` and `u` `[A]` in physical units. Plain functions are compiled
    when the class is defined; `@njit` functions are used as they are.
    """

    initial_state: ClassVar[tuple[float, ...]]
    reference_state: ClassVar[tuple[float, ...]]

    saturates: ClassVar[bool] = False

    grid_nodes: ClassVar[tuple[int, ...]] = ()
    """Nodes per state of the dynamic-programming grid from `grid_low` to `grid_high`; the last node of a periodic axis
    is one spacing below `grid_high`. Empty: dynamic programming is not computed."""
    grid_low: ClassVar[tuple[float, ...]] = ()
    grid_high: ClassVar[tuple[float, ...]] = ()
    action_levels: ClassVar[tuple[int, ...]] = ()
    """Number of equidistant levels of each action that dynamic programming chooses from."""
    refine_grid: ClassVar[bool] = False
    """Whether references refine this grid until the solution converges, unless a study selects otherwise."""

    @property
    def max_substep(self) -> float:
        """Longest Runge-Kutta step [s]; a sample is cut into equal substeps. By default `step_choice` chooses it."""
        return step_choice(self).step

    @property
    def chooses_step(self) -> bool:
        """Whether step doubling chooses `max_substep`."""
        return type(self).max_substep is OdePlant.max_substep

    @staticmethod
    def rhs(x: Vector, u: Vector, p: Params) -> tuple[float, ...]:
        """Return the time derivative of each state."""
        raise NotImplementedError

    @staticmethod
    def reward(x: Vector, u: Vector, x_next: Vector, event: int, p: Params) -> float:
        """Return the reward of one step from `x` to `x_next` under the applied action `u`."""
        raise NotImplementedError

    @staticmethod
    def project(x: Vector, p: Params) -> int:
        """Project `x` in place onto the valid states after every substep: wrap an angle, stop at a wall.

        Returns:
            A bool, or events as bits; `event` combines those of all substeps by OR.
        """
        return 0

    @staticmethod
    def terminated(x_next: Vector, event: int, p: Params) -> bool:
        """Return whether `x_next` is terminal, so that no reward follows it."""
        return False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _compile_functions(cls)

    def params(self) -> Params:
        """Return the parameter values in the order of the fields: the functions' argument `p`."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def engine(self, num_envs: int, frequency: float) -> Engine:
        return RungeKutta(self, num_envs, frequency)

    def made_of(self) -> str:
        return content_hash(getattr(self, name) for name in FUNCTIONS)

    @classmethod
    def _declared(cls) -> tuple[str, ...]:
        # Without the grid: only references depend on it, and learned policies stay valid when it changes.
        return (*super()._declared(), *_PER_STATE, "max_substep")

    def _check_declarations(self) -> None:
        super()._check_declarations()
        plant = type(self).__name__
        if not self.chooses_step:  # `step_choice` would call functions that may be wrong
            check_scalar(self, "max_substep")
        for name in (*_PER_STATE, *(_GRID if self.grid_nodes else ())):
            check_tuple(self, name, "state_names")
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


class RungeKutta(Engine):
    """The engine of plants with equations; their whole state is observable."""

    def __init__(self, plant: OdePlant, num_envs: int, frequency: float) -> None:
        super().__init__(num_envs, len(plant.state_names), frequency)
        self.plant, self._kernel = plant, rk4.kernel(plant)
        substeps = rk4.substeps(plant, 1.0 / frequency)
        self._steps = 1.0 / frequency / substeps, substeps, plant.params()

    def restart(self, chosen: NDArray[np.bool_], draws: Stream) -> None:
        self.observed[chosen] = self.plant.initial_state

    def advance(self, action: NDArray[np.float64], running: NDArray[np.bool_]) -> None:
        self._kernel(self.observed, action, running, *self._steps, self.reward, self.terminated, self.event)


def try_functions(plant: OdePlant) -> str:
    """Call a plant's functions once, uncompiled, with the middle action; return a fault as text, or "".

    Exceptions of the functions are raised unchanged, because they show the user's line.
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
    if len(rates) != len(x):
        return f"rhs returns {len(rates)} derivatives for {len(x)} states"
    if not np.isfinite([*rates, reward]).all():
        return "rhs or reward is not finite at the initial state"
    for name, value in (("project", project(x.copy(), p)), ("terminated", terminated(x.copy(), 0, p))):
        if not isinstance(value, int | np.integer | np.bool_):
            return f"{name} returns {value!r} at the initial state, neither a bool nor a whole number"
    return ""


def with_equations(plant: Plant, purpose: str) -> OdePlant:
    """Return the plant; raise `UserError` if it has no equations, which a purpose needs."""
    if not isinstance(plant, OdePlant):
        raise UserError(
            f"{plant.name} is not given by equations, which {purpose} needs; Pendulum, PendulumDCSC, Magman and plants "
            "of your own that derive from OdePlant are"
        )
    return plant


def state_range(plant: Plant) -> tuple[Vector, Vector]:
    """Return the lowest and highest physical states `[S]`: those of the grid, else those that normalise to ±1."""
    if isinstance(plant, OdePlant) and plant.grid_low:
        return np.array(plant.grid_low, np.float64), np.array(plant.grid_high, np.float64)
    center, scale = np.array(plant.state_center, np.float64), np.array(plant.state_scale, np.float64)
    return center - scale, center + scale


TOLERANCE: Final = 1e-6
"""Largest change of 95 % of typical states in a sample by halving the step, as a fraction of a state's scale."""
WORST: Final = 1e-2
"""The same for all typical states: it is larger because, for example, friction may change its sign in a sample."""
HALVINGS: Final = 6
_TYPICAL: Final = 256  # number of compared states, in addition to the initial and the reference state
_LONGEST_PROJECTED: Final = 0.01  # longest step [s] of plants with `project`, which acts at the end of a step


class StepChoice(NamedTuple):
    """An integration step that step doubling chose."""

    step: float  # [s]
    change: float  # by halving the step, as a fraction of a state's scale, of 95 % of typical states
    met: bool  # whether `change` is within the tolerance; else the step is the shortest that was tried


@functools.cache
def step_choice(plant: OdePlant) -> StepChoice:
    """Return the longest step that integrates a sample dt at the plant's rate within the tolerance.

    Step doubling halves the step at fixed states and actions, spread evenly over the `state_range` and the actions.
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
        usual = float(np.quantile(change, 0.95, method="higher"))
        if usual <= TOLERANCE and change.max() <= WORST:
            return StepChoice(dt / count, usual, met=True)
        count, coarse = 2 * count, fine
    return StepChoice(2 * dt / count, usual, met=False)


def describe_steps(plant: Plant, frequency: float) -> str:
    """Describe the number and accuracy of steps per sample that step doubling chose; "" if the plant declares it."""
    if not isinstance(plant, OdePlant) or not plant.chooses_step:
        return ""
    choice, count = step_choice(plant), rk4.substeps(plant, 1.0 / frequency)
    text = f"{count} Runge-Kutta step{'s' * (count != 1)} a sample, chosen by step doubling: steps of "
    text += f"{choice.step:.4g} s, half of which changes a state by {choice.change:.1g} of its scale"
    short = f", which is more than {TOLERANCE:g}: declare max_substep if the plant jumps, as at a stop"
    return text + short * (not choice.met)


def _compile_functions(plant: type[OdePlant]) -> None:
    """Compile the plain functions that a class defines."""
    for name in FUNCTIONS:
        function = vars(plant).get(name)
        if isinstance(function, staticmethod):
            function = function.__func__
        if function is not None:
            setattr(plant, name, staticmethod(function if isinstance(function, Dispatcher) else njit(function)))


_compile_functions(OdePlant)
