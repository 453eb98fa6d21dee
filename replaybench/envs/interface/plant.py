"""The base classes of plants, and figures that show a plant.

A plant declares its states and actions with units and ranges, the length of an episode and the reward scale. An engine
(`replaybench.envs.interface.engine`) simulates copies of a plant, and `replaybench.envs.population` adds noise and time
limits. Plants with differential equations derive from the base class in `replaybench.envs.ode.plant`.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replaybench.envs.interface.channel import Channel
from replaybench.envs.interface.declarations import (
    SHARE,
    check_range,
    check_scalar,
    check_tuple,
    seen_states,
    whole_steps,
    whole_substeps,
)
from replaybench.envs.interface.engine import Engine
from replaybench.runtime.errors import UserError, shown, unknown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Vector = NDArray[np.float64]
"""A float64 array `[S]` or `[A]`: a state or an action, in physical units unless stated otherwise."""

Params = tuple[float, ...]
"""The values of a plant's parameters, in the order of its dataclass fields."""

Parameter = float | str
"""The value of one parameter of a plant."""

EpisodeMetric = Literal["mean reward", "return"]
"""The score of an episode: the mean or the sum of the rewards of its steps."""

NAMES: Final = ("name", "state_names", "action_names")
PER_STATE: Final = ("state_units", "state_center", "state_scale", "periodic", "observation_limit")
PER_ACTION: Final = ("action_units", "action_low", "action_high", "zero_action")
_NO_UNIT: Final = ("", "1", "–")
SCALARS: Final = ("episode_seconds", "reward_scale", "frequency", "discount", "update_every", "episode_metric")


def quantity(name: str, value: float, unit: str) -> str:
    """Format a quantity with three digits, as in "angle = +1.57 rad", without a unit if it has none."""
    return f"{name} = {with_unit(f'{value:+.3g}', unit)}"


def with_unit(value: str, unit: str) -> str:
    """Append a unit to a formatted value, unless the unit is "", "1" or "–"."""
    return value if unit in _NO_UNIT else f"{value} {unit}"


@dataclass(frozen=True, kw_only=True)
class Plant:
    """The base class of all plants, the systems to control.

    A subclass is a frozen dataclass whose fields are the physical parameters. The subclass declares everything else as
    class attributes without annotations, or as properties if they depend on the parameters. All declarations are in
    physical units. A state is normalised as `(x - center) / scale`. An action is normalised linearly from `[low, high]`
    to [-1, 1]. A state consists of the observable quantities without noise. The simulator may have further, hidden
    states.
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

    observed: ClassVar[tuple[str, ...]] = ()
    """Names of the states that learners observe, unless a study names others. If it is empty, they observe all states.
    `PopulationEnv` and reference controllers observe all states."""
    depends_on_rate: ClassVar[bool] = False
    """Whether the same action, held for the same time, has another effect at another control rate. This holds for
    delays and differences that are counted in control steps."""

    action_choices: ClassVar[tuple[int, ...]] = ()
    """Number of discrete values of each action, evenly spaced from `action_low` to `action_high`. Actions are
    continuous if this tuple is empty. The plant gets the value nearest to the noisy action. If two values are equally
    near, the plant gets the lower one."""

    positive: ClassVar[tuple[str, ...]] = ()
    """Names of the parameters that must be positive."""

    episode_seconds: ClassVar[float] = 4.0
    """Time after which an episode is truncated [s]."""
    frequency: ClassVar[float] = 50.0
    """Default control rate [Hz]."""
    reward_scale: ClassVar[float] = 1.0
    """Factor by which rewards are multiplied for learners. Reports always show the unscaled reward."""
    discount: ClassVar[float] = 0.95
    """Discount factor γ of learners per control step at the default rate `frequency`."""
    channel: ClassVar[Channel] = Channel()
    """The channel between the plant and its controller, which `with_channel` sets."""
    spread: ClassVar[tuple[tuple[str, float], ...]] = ()
    """Names of parameters that are drawn for every episode and member, each with the half-width of its range as a share
    of its value. `with_spread` sets them. All other attributes and methods are those of the nominal parameters."""
    changed: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Attributes whose declared values are replaced, with the new values: `discount`, `channel` and `spread`."""
    splits_steps: ClassVar[bool] = False
    """Whether the command can change within a control step."""
    update_every: ClassVar[int] = 0
    """Default number of control steps between update phases. With 0, an update phase follows each episode."""
    episode_metric: ClassVar[EpisodeMetric] = "mean reward"
    reference_episodes: ClassVar[int] = 1000
    """Number of episodes over which the scores of reference controllers, such as random control, are averaged."""
    limits: ClassVar[Mapping[str, tuple[float, float]]] = MappingProxyType({})
    """Lowest and highest desired value of states by name. Results contain the share of steps outside."""
    saturates: ClassVar[bool] = True
    """Whether noise-free states are clipped to `observation_limit`, and NaN is replaced by 0, before noise is added.
    Plants whose simulation may diverge need True."""

    @property
    def periodic(self) -> tuple[bool, ...]:
        """Whether each state is an angle in [-π, π) rad."""
        return (False,) * len(self.state_names)

    @property
    def noisy(self) -> tuple[bool, ...]:
        """Whether each state is measured, so that sensor noise is added to it."""
        return (True,) * len(self.state_names)

    def sensor_noise(self, noise: float) -> Vector:
        """Return the standard deviation of the noise on the reading of each normalised state, `[S]`.

        The channel sets that of the states that it names. Other measured states have the standard deviation `noise`.
        """
        own = self.channel.noise
        columns = zip(self.state_names, self.state_scale, self.noisy, strict=True)
        return np.array([own[name] / scale if name in own else noise * noisy for name, scale, noisy in columns])

    @property
    def zero_action(self) -> tuple[float, ...]:
        """The action in physical units that the reference controller "zero control" always applies."""
        return (0.0,) * len(self.action_low)

    @property
    def observation_limit(self) -> tuple[float, ...]:
        """Bounds on the absolute values of the normalised states without noise.

        The observation space is wider than these bounds by the largest noise.
        """
        return (10.0,) * len(self.state_names)

    def engine(self, num_envs: int, frequency: float) -> Engine:
        """Return a simulator of `num_envs` copies of the plant at the control rate `frequency` [Hz]."""
        raise NotImplementedError

    def made_of(self) -> str:
        """Return the part of `fingerprint` that identifies the code on which the plant's behaviour depends."""
        raise NotImplementedError

    def steps_per_episode(self, frequency: float) -> int:
        """Return the number of control steps in an episode, or raise `UserError` for an unsupported `frequency`."""
        return whole_steps(self.name, self.episode_seconds, frequency)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("channel", "spread"):
                raise UserError(f"{type(self).__name__}: {field.name} is a setting of plants; rename this parameter")
            if isinstance(field.default, str):
                if not isinstance(value, str):
                    raise UserError(f"{type(self).__name__}: {field.name} must be a name, not {value!r}")
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
                raise UserError(f"{type(self).__name__}: {field.name} must be a finite number, not {shown(value)}")
            if field.name in self.positive and value <= 0:
                raise UserError(f"{type(self).__name__}: {field.name} must be positive, not {value!r}")
            object.__setattr__(self, field.name, float(value))  # 1 and 1.0 are one plant, with one fingerprint
        try:
            self._check_declarations()
        except ArithmeticError as error:
            raise UserError(f"{type(self).__name__}: these parameters make no plant: {error}") from error

    @classmethod
    def with_discount(cls, discount: float) -> type[Self]:
        """Return this class with another discount factor, or raise `UserError` if the factor is outside [0, 1]."""
        if not SHARE.fits(discount):
            raise UserError(f"plant {cls.__name__}: discount must be {SHARE.words}, not {shown(discount)}")
        same: Any = cls  # for mypy, a `type[Self]` is not hashable
        return cls if discount == cls.discount else with_attribute(same, "discount", float(discount))

    @classmethod
    def with_channel(cls, channel: Channel) -> type[Self]:
        """Return this class with another channel between the plant and its controller."""
        same: Any = cls  # for mypy, a `type[Self]` is not hashable
        return cls if channel == cls.channel else with_attribute(same, "channel", channel)

    @classmethod
    def with_spread(cls, spread: Mapping[str, float]) -> type[Self]:
        """Return this class with random parameters, given by name with the half-widths of their ranges, as in `spread`.

        Raises:
            UserError: The plant has no such parameter, a half-width is not between 0 and 1, or the plant has no
                equations.
        """
        if spread:
            raise UserError(
                f"{cls.name} is not given by equations, so its parameters cannot differ between episodes; leave spread "
                "out"
            )
        return cls

    def through(self, channel: Channel) -> Self:
        """Return this plant with another channel between the plant and its controller."""
        made = type(self).with_channel(channel)
        return self if made is type(self) else made(**self._parameters())

    def nominal(self) -> Self:
        """Return this plant without channel and spread."""
        made: Any = type(self).with_channel(Channel())
        made = with_attribute(made, "spread", ()) if made.spread else made
        return self if made is type(self) else made(**self._parameters())

    def extremes(self) -> list[Self]:
        """Return this plant, and plants with all combinations of the ends of the ranges in `spread` as parameters."""
        ends = (
            [(name, factor * getattr(self, name)) for factor in (1.0 - share, 1.0 + share)]
            for name, share in self.spread
        )
        return [self, *(dataclasses.replace(self, **dict(corner)) for corner in itertools.product(*ends) if corner)]

    def _parameters(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def positions_of(self, velocities: Sequence[str]) -> dict[str, str]:
        """Return the name of the position of each velocity, or raise `UserError` if the plant does not know it."""
        if velocities:
            raise UserError(f"{self.name} has no equations that give the position of {velocities[0]}; leave it out")
        return {}

    def observation_size(self, observe: Sequence[str] = ()) -> int:
        """Return the number of values in an observation of the states named in `observe`, or of all states."""
        return len(observe or self.state_names) + self.channel.history * len(self.action_names)

    def settings(self) -> dict[str, Any]:
        """Return the keyword arguments with which `make_plant` makes an equal plant."""
        return {**self._parameters(), **self.changed}

    def normalise_state(self, state: ArrayLike, observe: Sequence[str] = ()) -> NDArray[np.float64]:
        """Convert states `[..., S]` from physical to normalised units.

        `observe` contains the names of the observed states if the last axis has these only.
        """
        values, center, scale = self._scaling(state, observe)
        normalised: NDArray[np.float64] = (values - center) / scale
        return normalised

    def denormalise_state(self, state: ArrayLike, observe: Sequence[str] = ()) -> NDArray[np.float64]:
        """Convert states `[..., S]` from normalised to physical units.

        `observe` contains the names of the observed states if the last axis has these only.
        """
        values, center, scale = self._scaling(state, observe)
        physical: NDArray[np.float64] = values * scale + center
        return physical

    def beyond_limit(self, state: ArrayLike) -> NDArray[np.bool_]:
        """Return whether physical states `[..., S]` are beyond `observation_limit`, by more than float32 rounds."""
        limit = np.array(self.observation_limit) * (1 + 1e-5)
        return np.asarray(np.abs(self.normalise_state(state)) > limit)

    def trial_warning(self) -> str:
        """Return a warning about the observations in a short trial of the plant, or an empty text."""
        return ""

    def normalise_action(self, action: ArrayLike) -> NDArray[np.float64]:
        """Convert actions `[..., A]` from physical units to [-1, 1]."""
        middle, half = self.action_range()
        normalised: NDArray[np.float64] = (np.asarray(action, np.float64) - middle) / half
        return normalised

    def denormalise_action(self, action: ArrayLike) -> NDArray[np.float64]:
        """Convert actions `[..., A]` from [-1, 1] to physical units, and round discrete actions to their values."""
        middle, half = self.action_range()
        physical: NDArray[np.float64] = middle + half * np.asarray(action, np.float64)
        if self.action_choices:
            last = np.array(self.action_choices, np.float64) - 1
            level = np.clip(np.ceil(0.5 * (np.asarray(action, np.float64) + 1) * last - 0.5), 0, last)
            physical = (middle - half) + 2 * half * level / last
        return physical

    def is_choice(self, action: ArrayLike) -> NDArray[np.bool_]:
        """Return whether the plant applies each component of normalised actions unrounded, bool `[..., A]`."""
        rounded = self.normalise_action(self.denormalise_action(action))
        return np.isclose(rounded, action, rtol=0.0, atol=1e-6) | (not self.action_choices)

    def choices(self, action: int) -> str:
        """Return the physical values of the discrete action with index `action` as text, shortened if over 6."""
        count, low, high = self.action_choices[action], self.action_low[action], self.action_high[action]
        values = [f"{value:.6g}" for value in np.linspace(low, high, count)]
        return ", ".join(values if count <= 6 else [*values[:3], "…", values[-1]])

    def action_range(self) -> tuple[Vector, Vector]:
        """Return the centre and the half-width of the physical range of the actions, `[A]` each."""
        low, high = np.array(self.action_low, np.float64), np.array(self.action_high, np.float64)
        return (high + low) / 2, (high - low) / 2

    def described_signals(self, observe: Sequence[str] = ()) -> dict[str, list[dict[str, Any]]]:
        """Return the metadata that files store about the observed states and the actions.

        The result has the lists "states" and "actions", with one dict for each signal. The dict contains the name,
        unit, centre and scale of the signal. The physical value is `center + scale * stored value`. States also have
        the key `periodic`, and discrete actions the key `choices`. `observe` contains the names of the observed states.
        If it is empty, all states are described.
        """
        keys = ("name", "unit", "center", "scale")
        middle, half = self.action_range()
        columns = (
            (self.state_names, self.state_units, map(float, self.state_center), map(float, self.state_scale)),
            (self.action_names, self.action_units, middle.tolist(), half.tolist()),
        )
        states, actions = ([dict(zip(keys, row, strict=True)) for row in zip(*each, strict=True)] for each in columns)
        for state, periodic in zip(states, self.periodic, strict=True):
            state["periodic"] = bool(periodic)
        for action, choices in zip(actions, self.action_choices, strict=False):
            action["choices"] = choices
        return {
            "states": [states[row] for row in seen_states(self.name, self.state_names, observe)],
            "actions": actions,
        }

    def episode_score(self, total: NDArray[np.float64], steps: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the scores of M episodes by `episode_metric`, from total rewards and numbers of steps, `[M]` each."""
        return total if self.episode_metric == "return" else total / steps

    def fingerprint(self) -> str:
        """Return a hexadecimal digest of everything that determines the behaviour of this plant."""
        declared = [(name, getattr(self, name)) for name in self._declared()]
        if self.action_choices:  # only then, so that older fingerprints stay valid
            declared.append(("action_choices", self.action_choices))
        if not self.channel.is_off:
            declared.append(("channel", self.channel.settings()))
        if self.spread:
            declared.append(("spread", self.spread))
        parameters = list(self._parameters().items())
        return hashlib.sha256(repr((declared, parameters, self.made_of())).encode()).hexdigest()

    def draw(self, axes: Axes, state: Vector, action: Vector) -> None:
        """Draw a physical state `[S]` and a normalised action `[A]` on empty axes, by default as bars."""
        units = self.state_units + self.action_units
        values = [*self.normalise_state(state), *action]
        physical = [*state, *self.denormalise_action(action)]
        colors = ["#4c72b0"] * len(state) + ["#dd8452"] * len(action)
        axes.barh(range(len(values)), values, color=colors, height=0.35)
        for row, name in enumerate(self.state_names + self.action_names):
            axes.text(-1.45, row - 0.25, quantity(name, physical[row], units[row]), va="bottom", fontsize=9)
        axes.axvline(0.0, color="0.4", linewidth=0.8)
        axes.set(xlim=(-1.5, 1.5), ylim=(len(values) - 0.5, -0.8))
        axes.axis("off")

    def _scaling(self, state: ArrayLike, observe: Sequence[str]) -> tuple[NDArray[np.float64], Vector, Vector]:
        """Return states as an array, and the centre and the scale of each column."""
        values, rows = np.asarray(state, np.float64), seen_states(self.name, self.state_names, observe)
        if values.shape[-1:] != (len(rows),):
            raise UserError(
                f"{len(rows)} states of {self.name} are expected along the last axis, not an array of shape "
                f"{values.shape}; name the observed states, as in observe={self.state_names[:1]!r}"
            )
        return values, np.array(self.state_center)[rows], np.array(self.state_scale)[rows]

    @classmethod
    def _declared(cls) -> tuple[str, ...]:
        """Return the names of the attributes that a subclass must declare and that the fingerprint contains."""
        return (*NAMES, *PER_STATE, *PER_ACTION, *SCALARS)

    def _check_declarations(self) -> None:
        """Raise `UserError` if a declared attribute is missing or invalid."""
        plant = type(self).__name__
        for name in self._declared():
            if not hasattr(type(self), name):
                raise UserError(f"plant {plant} does not declare {name}")
        check_scalar(self, "name")
        for names, counted in (("state_names", PER_STATE), ("action_names", PER_ACTION)):
            check_tuple(self, names)
            for name in counted:
                check_tuple(self, name, names)
        if self.action_choices:
            check_tuple(self, "action_choices", "action_names")
        check_tuple(self, "observed")
        seen_states(plant, self.state_names, self.observed)
        check_range(self, "action_low", "action_high")
        for name, limits in self.limits.items():
            seen_states(plant, self.state_names, (name,))
            if not (isinstance(limits, tuple) and len(limits) == 2 and limits[0] < limits[1]):
                raise UserError(f"plant {plant}: limits of {name} must be (lowest, highest), not {shown(limits)}")
        for low, zero, high in zip(self.action_low, self.zero_action, self.action_high, strict=True):
            if not low <= zero <= high:
                raise UserError(
                    f"plant {plant}: zero_action, which is 0 unless declared, must lie within {low:g} … {high:g}, not "
                    f"{zero:g}; declare zero_action = (…,), what rest is"
                )
        for name in (name for name in SCALARS if name != "episode_metric"):
            check_scalar(self, name)
        check_scalar(self, "reference_episodes")
        check_scalar(self, "depends_on_rate")
        if self.episode_metric not in get_args(EpisodeMetric):
            raise unknown(f"episode_metric of plant {plant}:", str(self.episode_metric), get_args(EpisodeMetric))
        parameters = [field.name for field in fields(self)]
        if not isinstance(self.positive, tuple) or set(self.positive) - set(parameters):
            names = ", ".join(parameters)
            raise UserError(
                f"plant {plant}: positive must be a tuple of its parameters ({names}), not {self.positive!r}"
            )


MOTION_LIMIT: Final = 1e4
"""Bound on observed positions, angles and their rates [m, rad, m/s, rad/s].

Only a diverging simulation comes near this bound. MuJoCo itself rejects a state beyond 1e10."""


class Observed(NamedTuple):
    """A component of an observation, with its name, its unit and the bound to which its absolute value is clipped."""

    name: str
    unit: str
    limit: float = MOTION_LIMIT


def positions(joints: Iterable[str], slides: Sequence[str] = ()) -> tuple[Observed, ...]:
    """Describe the positions of joints as observations, in m for the joints in `slides` and otherwise in rad."""
    return tuple(Observed(joint, "m" if joint in slides else "rad") for joint in joints)


def velocities(joints: Iterable[str], slides: Sequence[str] = (), limit: float = MOTION_LIMIT) -> tuple[Observed, ...]:
    """Describe the velocities of joints as observations, in m/s for the joints in `slides` and otherwise in rad/s."""
    return tuple(Observed(f"velocity of {j}", "m/s" if j in slides else "rad/s", limit) for j in joints)


@dataclass(frozen=True, kw_only=True)
class FixedStepPlant(Plant):
    """The base class of plants in a simulator with a fixed physics step.

    A control step is a whole number of physics steps, and an episode is a whole number of control steps. A subclass may
    declare `observes`, the components of its observations. The states then have centre 0 and scale 1, and the other
    attributes that a plant must declare are computed from the attributes of this class.
    """

    physics_step: ClassVar[float]
    """Length of a physics step [s]."""
    episode_steps: ClassVar[int]
    """Number of physics steps in an episode."""
    frame_skip: ClassVar[int]
    """Number of physics steps in a control step at the default rate."""
    observes: ClassVar[tuple[Observed, ...]]
    actuated: ClassVar[tuple[str, ...]]
    """Names of the actuators, or of the joints that they drive, in the order of the simulator's model."""
    control_range: ClassVar[float] = 1.0
    """Largest absolute value of a control signal."""

    episode_metric: ClassVar[EpisodeMetric] = "return"
    discount = 0.99
    reference_episodes = 10

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "observes" in vars(cls):
            states, actions = len(cls.observes), len(cls.actuated)
            cls.state_names = tuple(entry.name for entry in cls.observes)
            cls.state_units = tuple(entry.unit for entry in cls.observes)
            cls.state_center, cls.state_scale = (0.0,) * states, (1.0,) * states
            cls.action_names, cls.action_units = cls.actuated, ("1",) * actions
            cls.action_low, cls.action_high = (-cls.control_range,) * actions, (cls.control_range,) * actions
            cls.episode_seconds = cls.physics_step * cls.episode_steps
            cls.frequency = 1.0 / (cls.physics_step * cls.frame_skip)

    @property
    def observation_limit(self) -> tuple[float, ...]:
        """Bounds on the absolute values of the observed components, as declared in `observes`."""
        return tuple(entry.limit for entry in self.observes)

    def physics_steps(self, frequency: float) -> int:
        """Return the number of physics steps in a control step, or raise `UserError` for an unsupported `frequency`."""
        return whole_substeps(self.name, self.physics_step, self.episode_steps, frequency)

    def steps_per_episode(self, frequency: float) -> int:
        """Return the number of control steps in an episode, or raise `UserError` for an unsupported `frequency`."""
        return self.episode_steps // self.physics_steps(frequency)


@functools.cache
def with_attribute(plant: type[Any], name: str, value: Any) -> type[Any]:
    """Return a class of plants with another value of `discount`, `channel` or `spread`."""
    same = {name: getattr(plant, name) for name in ("__module__", "__qualname__", "__doc__")}
    setting = value.settings() if isinstance(value, Channel) else dict(value) if name == "spread" else value
    changed = {key: each for key, each in {**plant.changed, name: setting}.items() if each != {}}
    return type(plant.__name__, (plant,), {**same, name: value, "changed": changed})


class Picture:
    """A Matplotlib figure of `width` × `height` pixels, independent of pyplot's global state."""

    def __init__(self, width: int = 480, height: int = 480) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self._figure = Figure(figsize=(width / 100, height / 100), dpi=100, facecolor="white")
        self._canvas: Any = FigureCanvasAgg(self._figure)  # its methods have no types

    def pixels(self) -> NDArray[np.uint8]:
        """Draw the figure, and return it as an image uint8 `[height, width, 3]`."""
        self._canvas.draw()
        return np.asarray(self._canvas.buffer_rgba())[..., :3].copy()


class Canvas(Picture):
    """A figure with a drawing of the plant. Below are the time, up to two states, and the action in physical units."""

    def __init__(self, plant: Plant) -> None:
        super().__init__()
        self._plant = plant
        self._picture = self._figure.add_axes((0.02, 0.2, 0.96, 0.78))
        self._caption = self._figure.text(0.5, 0.045, "", ha="center", family="monospace", fontsize=9)

    def frame(self, state: NDArray[np.float64], action: NDArray[np.float32], seconds: float) -> NDArray[np.uint8]:
        """Return an image uint8 `[480, 480, 3]` of a physical state `[S]`, a normalised action `[A]` and the time."""
        plant = self._plant
        self._picture.clear()
        plant.draw(self._picture, state, action.astype(np.float64))
        lines = [f"t = {seconds:.2f} s"]
        if len(state) <= 2:  # more would not fit
            states = zip(plant.state_names, state, plant.state_units, strict=True)
            lines.append("   ".join(quantity(name, value, unit) for name, value, unit in states))
        applied = plant.denormalise_action(action)
        if len(applied) == 1:
            lines.append(quantity(plant.action_names[0], applied[0], plant.action_units[0]))
        else:
            values = " ".join(f"{value:.2f}" for value in applied)
            lines.append(with_unit(f"actions = ({values})", plant.action_units[0]))
        self._caption.set_text("\n".join(lines))
        return self.pixels()
