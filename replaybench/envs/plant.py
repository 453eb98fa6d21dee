"""What a plant is: physical parameters, bounds, and the few functions that say how it moves and what it costs.

A plant knows nothing of members, noise, sampling or learners: those belong to `replaybench.envs.population`.
The functions are scalar code for one state; they are compiled with Numba and run over whole populations by
the kernels of `replaybench.envs.rk4`.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numba import njit
from numba.core.dispatcher import Dispatcher
from numpy.typing import ArrayLike, NDArray

from replaybench.data.errors import UserError
from replaybench.data.kernel import kernel
from replaybench.envs.fingerprint import content_hash

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Vector = NDArray[np.float64]
"""A short float64 array `[S]` or `[A]` in physical units."""

Params = tuple[float, ...]
"""The values of a plant's fields, in their order."""

FUNCTIONS: Final = ("rhs", "reward", "project", "terminated")

_PER_STATE: Final = (
    *("state_units", "state_center", "state_scale", "initial_state", "reference_state", "periodic"),
    *("observation_limit", "grid_nodes", "grid_low", "grid_high"),
)
_PER_ACTION: Final = ("action_units", "action_low", "action_high", "zero_action", "action_levels")
_SCALARS: Final = ("episode_seconds", "max_substep", "reward_scale")


@dataclass(frozen=True, kw_only=True)
class Plant:
    """Base class of all plants; a subclass is a frozen dataclass whose fields are its physical parameters.

    The fields are floats and reach the functions as one tuple, to be unpacked in their order, as in
    `J, M, g = p`. Everything else is a class attribute (or a property, where it depends on the parameters),
    written without annotation so that it is no field. A state is normalised as `(x - center) / scale`, an
    action linearly from `[low, high]` to [-1, 1]; attributes are in physical units unless they say otherwise.

    The functions are static methods on float64 vectors `x`, `x_next` `[S]` and `u` `[A]`. Plain functions
    are compiled when the class is defined; `@njit` ones are taken as they are.
    """

    name: ClassVar[str]
    state_names: ClassVar[tuple[str, ...]]
    state_units: ClassVar[tuple[str, ...]]
    action_names: ClassVar[tuple[str, ...]]
    action_units: ClassVar[tuple[str, ...]]

    state_center: ClassVar[tuple[float, ...]]
    state_scale: ClassVar[tuple[float, ...]]
    action_low: ClassVar[tuple[float, ...]]
    action_high: ClassVar[tuple[float, ...]]
    initial_state: ClassVar[tuple[float, ...]]
    reference_state: ClassVar[tuple[float, ...]]

    positive: ClassVar[tuple[str, ...]] = ()
    """Parameters by which the functions divide."""

    episode_seconds: ClassVar[float] = 4.0
    """Length of an episode; then it is truncated. [s]"""
    max_substep: ClassVar[float] = 0.01
    """Longest Runge-Kutta step; a sample is cut into as many equal substeps as that takes. [s]

    De Bruin et al. (2018) name the method and not its step: 10 ms is a reading, after the authors' public
    benchmark, which takes two steps per 20 ms sample."""
    reward_scale: ClassVar[float] = 1.0
    """Factor on the reward that only a learner sees; every report uses the unscaled reward."""

    grid_nodes: ClassVar[tuple[int, ...]] = ()
    """Nodes per state of the dynamic-programming grid from `grid_low` to `grid_high`; a periodic axis has
    equal spacings all the way round, its last node one spacing below `grid_high`. Empty: no reference."""
    grid_low: ClassVar[tuple[float, ...]] = ()
    grid_high: ClassVar[tuple[float, ...]] = ()
    action_levels: ClassVar[tuple[int, ...]] = ()
    """Equidistant levels per action that dynamic programming chooses from."""

    @property
    def periodic(self) -> tuple[bool, ...]:
        """Which states are angles in [-π, π) rad."""
        return (False,) * len(self.state_names)

    @property
    def zero_action(self) -> tuple[float, ...]:
        """The action that means doing nothing."""
        return (0.0,) * len(self.action_low)

    @property
    def observation_limit(self) -> tuple[float, ...]:
        """Bound on |normalised state| that no run leaves; the observation space adds room for the noise."""
        return (10.0,) * len(self.state_names)

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
        """Bring `x` back, in place, to where states may be (a wrapped angle, a wall) after every substep.

        Returns:
            A bool or bits that say what happened; they are OR-ed over the substeps into `event`.
        """
        return 0

    @staticmethod
    def terminated(x_next: Vector, event: int, p: Params) -> bool:
        """Return whether the episode ends for good: no future reward follows."""
        return False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _compile_functions(cls)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise UserError(f"{type(self).__name__}: {field.name} must be a finite number, not {value!r}")
            if field.name in self.positive and value <= 0:
                raise UserError(f"{type(self).__name__}: {field.name} must be positive, not {value!r}")
            object.__setattr__(self, field.name, float(value))  # 1 and 1.0 are one plant, with one fingerprint
        self._check_declarations()

    def params(self) -> Params:
        """Return the parameter values in the order of the fields: the functions' argument `p`."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def normalise_state(self, state: ArrayLike) -> NDArray[np.float64]:
        """Return physical states `[..., S]` normalised."""
        center, scale = np.array(self.state_center, np.float64), np.array(self.state_scale, np.float64)
        normalised: NDArray[np.float64] = (np.asarray(state, np.float64) - center) / scale
        return normalised

    def denormalise_state(self, state: ArrayLike) -> NDArray[np.float64]:
        """Return normalised states `[..., S]` in physical units."""
        center, scale = np.array(self.state_center, np.float64), np.array(self.state_scale, np.float64)
        physical: NDArray[np.float64] = center + scale * np.asarray(state, np.float64)
        return physical

    def normalise_action(self, action: ArrayLike) -> NDArray[np.float64]:
        """Return physical actions `[..., A]` normalised to [-1, 1]."""
        middle, half = self.action_range()
        normalised: NDArray[np.float64] = (np.asarray(action, np.float64) - middle) / half
        return normalised

    def denormalise_action(self, action: ArrayLike) -> NDArray[np.float64]:
        """Return normalised actions `[..., A]` in physical units."""
        middle, half = self.action_range()
        physical: NDArray[np.float64] = middle + half * np.asarray(action, np.float64)
        return physical

    def action_range(self) -> tuple[Vector, Vector]:
        """Return the middle and the half width, each `[A]`, of the physical action range."""
        low, high = np.array(self.action_low, np.float64), np.array(self.action_high, np.float64)
        return (high + low) / 2, (high - low) / 2

    def fingerprint(self) -> str:
        """Return a hex digest of all that decides how this plant behaves.

        That is the declarations, the parameter values and the source of the functions with all that they call.
        """
        names = ("name", "state_names", "action_names", *_PER_STATE, *_PER_ACTION, *_SCALARS)
        declared = [(name, getattr(self, name)) for name in names]
        parameters = [(field.name, getattr(self, field.name)) for field in fields(self)]
        kernels = content_hash(getattr(self, name) for name in FUNCTIONS)
        return hashlib.sha256(repr((declared, parameters, kernels)).encode()).hexdigest()

    def draw(self, axes: Axes, state: Vector, action: Vector) -> None:
        """Draw one member, of physical state `[S]` and normalised action `[A]`, on empty axes: here as bars."""
        units = self.state_units + self.action_units
        values = [*self.normalise_state(state), *action]
        physical = [*state, *self.denormalise_action(action)]
        colors = ["#4c72b0"] * len(state) + ["#dd8452"] * len(action)
        axes.barh(range(len(values)), values, color=colors, height=0.35)
        for row, name in enumerate(self.state_names + self.action_names):
            axes.text(-1.45, row - 0.25, f"{name} = {physical[row]:+.3g} {units[row]}", va="bottom", fontsize=9)
        axes.axvline(0.0, color="0.4", linewidth=0.8)
        axes.set(xlim=(-1.5, 1.5), ylim=(len(values) - 0.5, -0.8))
        axes.axis("off")

    def _check_declarations(self) -> None:
        """Refuse a class that forgot something, naming it, before Numba meets it."""
        plant = type(self).__name__
        for name in ("name", "state_names", "action_names", *_PER_STATE, *_PER_ACTION, *_SCALARS):
            if not hasattr(self, name):
                raise UserError(f"plant {plant} does not declare {name}")
        for names, counted in (("state_names", _PER_STATE), ("action_names", _PER_ACTION)):
            count = len(getattr(self, names))
            for name in counted:
                size = len(getattr(self, name))
                if size != count and not (size == 0 and name.startswith(("grid", "action_levels"))):
                    raise UserError(f"plant {plant}: {name} has {size} entries, {names} has {count}")
        for name in ("rhs", "reward"):
            if getattr(self, name) is getattr(Plant, name):
                raise UserError(f"plant {plant} does not define the static method {name}")


@kernel
def wrap_angle(angle: float) -> float:
    """Return an angle [rad] brought into [−π, π)."""
    if -math.pi <= angle < math.pi:
        return angle
    turned = angle - 2 * math.pi * math.floor((angle + math.pi) / (2 * math.pi))
    return -math.pi if turned < -math.pi or turned >= math.pi else turned  # as far as rounding may lead astray


def _compile_functions(plant: type[Plant]) -> None:
    """Turn the plain functions that a class defines into Numba's."""
    for name in FUNCTIONS:
        function = vars(plant).get(name)
        if isinstance(function, staticmethod):
            function = function.__func__
        if function is not None:
            setattr(plant, name, staticmethod(function if isinstance(function, Dispatcher) else njit(function)))


_compile_functions(Plant)
