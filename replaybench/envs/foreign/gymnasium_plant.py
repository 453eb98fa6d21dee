"""Tasks of Gymnasium as plants, with names such as `gymnasium:HalfCheetah-v5`.

Observations must be flat vectors of numbers. Actions must be bounded vectors or discrete choices. The time limit of the
task is the length of the plant's episodes.
"""

import contextlib
import io
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space
from numpy.typing import NDArray

from replaybench.envs.foreign.engine import Step, StepwiseEngine
from replaybench.envs.interface.engine import Engine
from replaybench.envs.interface.plant import Plant, Vector
from replaybench.envs.mujoco.plant import quiet
from replaybench.runtime.errors import UserError, nearest, unknown
from replaybench.runtime.source_hash import made_of
from replaybench.runtime.user_file import FAILURES, import_file, import_module, located

Environment = gymnasium.Env[Any, Any]
_NUMBER: Final = int | float | np.integer | np.floating


_NO_BOUND: Final = 1e38
"""Absolute value from which the bound of an action or observation counts as infinite, as for the largest float32."""

TO_BOUND: Final = (
    "register it with bounds, as in additional_wrappers=(TransformAction.wrapper_spec("
    "func=lambda action: action, action_space=Box(-1, 1, (1,))),) for one action"
)
"""Advice on how to bound actions. Gymnasium's ClipAction and RescaleAction cannot bound them."""

LARGEST_SEEN: Final = 1e6
"""Bound to which unbounded observations are clipped, so that the observation space is finite."""

_MOST_CLIPPED: Final = 0.01
"""Largest share of observations that may be clipped. It is checked whenever an environment has shown `_TRIED` more."""
_TRIED: Final = 1000
_TRIAL_SECONDS: Final = 2.0

Floats = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class GymnasiumPlant(Plant):
    """The base class of plants that are tasks of Gymnasium.

    `plant_of` makes a subclass for each task. Actions, and observations with finite bounds, are normalised by their
    bounds to [-1, 1]. Discrete actions are evenly spaced in [-1, 1]. The control rate follows from the task's time
    step. If the task has no time step, its frame rate is used, and without a frame rate, the control rate is 1 Hz.
    """

    spec: ClassVar[EnvSpec]
    origins: ClassVar[tuple[Callable[..., Any], ...]]
    """The function that makes an environment, and the classes of the environment and of its wrappers."""
    steps: ClassVar[int]

    discount = 0.99
    update_every = 1
    episode_metric = "return"
    reference_episodes = 10

    def steps_per_episode(self, frequency: float) -> int:
        if not abs(frequency - self.frequency) <= 1e-9 * self.frequency:
            raise UserError(f"{self.name} runs at {self.frequency:.12g} Hz and no other rate, not at {frequency:g} Hz")
        return self.steps

    def engine(self, num_envs: int, frequency: float) -> Engine:
        states = len(self.state_names)
        members = [_Member(_make(self.name, self.spec), self) for _ in range(num_envs)]
        return StepwiseEngine(members, states, len(self.action_names), self.steps, frequency)

    def trial_warning(self) -> str:
        """Return a warning about clipped observations in a trial of 1,000 steps (at most 2 s) with random actions.

        Raises:
            UserError: More than 1 % of the observations are clipped.
        """
        return _trial_warning(self)

    def made_of(self) -> str:
        wrappers = [(wrapper.name, _settings(wrapper.kwargs)) for wrapper in self.spec.additional_wrappers]
        about = (self.spec.id, _as_text(self.spec.entry_point), _settings(self.spec.kwargs), wrappers, self.steps)
        return f"gymnasium {gymnasium.__version__}; {about}; {made_of(*self.origins)}"


def plant_of(name: str) -> type[GymnasiumPlant]:
    """Return the plant class of a task of Gymnasium.

    Equal names give the same class, unless the named file has changed.

    Args:
        name: `gymnasium:Name-v0`, or `gymnasium:space/Name-v0` for a task in a namespace. In `gymnasium:module:Name-v0`
            and `gymnasium:path/to/file.py:Name-v0`, the module or file registers the task.

    Raises:
        UserError: There is no such task, the task cannot be made, or its spaces are not supported.
    """
    path = located(Path(name.partition(":")[2].rpartition(":")[0]))
    return _plant_of(name, path.read_bytes() if path.suffix == ".py" and path.is_file() else b"")


@cache
def _plant_of(name: str, _content: bytes) -> type[GymnasiumPlant]:
    """Make the plant class of a task, with the content of the user's file as a further key of the cache."""
    spec = _spec(name)
    env = _make(name, spec)
    with _named(name, "close"), contextlib.closing(env), _named(name, "reading its spaces and its rate"):
        actions = action_range(name, env.action_space)
        center, scale, limit = normalisation(name, env.observation_space)
        frequency = _frequency(env)
        maker: Any = spec.entry_point
        layers = [env]
        while isinstance(layers[-1], gymnasium.Wrapper):
            layers.append(layers[-1].env)
        origins = load_env_creator(maker) if isinstance(maker, str) else maker, *map(type, layers)
    if spec.max_episode_steps is None:
        raise UserError(f"{name} has no time limit; register it with max_episode_steps")
    states, count = range(len(center)), len(actions.low)
    namespace = {
        "__doc__": f"The task {spec.id} of Gymnasium.", "__module__": __name__, "name": name, "spec": spec,
        "origins": origins, "steps": spec.max_episode_steps, "state_names": tuple(f"observation {i}" for i in states),
        "state_units": ("–",) * len(states), "action_names": tuple(f"action {i}" for i in range(count)),
        "action_units": ("–",) * count, "state_center": center, "state_scale": scale, "observation_limit": limit,
        "action_low": actions.low, "action_high": actions.high, "action_choices": actions.choices,
        "zero_action": actions.nothing(), "frequency": frequency, "episode_seconds": spec.max_episode_steps / frequency,
    }  # fmt: skip
    return dataclass(frozen=True, kw_only=True)(type("GymnasiumTask", (GymnasiumPlant,), namespace))


@cache
def _trial_warning(plant: GymnasiumPlant) -> str:
    draws, began, over = np.random.Generator(np.random.PCG64(0)), time.monotonic(), True
    silent = contextlib.redirect_stdout(io.StringIO())
    with silent, contextlib.closing(_Member(_make(plant.name, plant.spec), plant)) as task:
        for count in range(_TRIED):
            if over:
                task.restart(count)
            step = task.advance(plant.denormalise_action(draws.uniform(-1, 1, len(plant.action_names))))
            over = step.terminated or step.truncated
            if time.monotonic() - began > _TRIAL_SECONDS:
                break
        return task.clipping()


class _Member:
    """The Gymnasium environment of one copy of a plant."""

    def __init__(self, env: Environment, plant: GymnasiumPlant) -> None:
        self._env, self._command = env, handed_over(env.action_space)
        self._plant, self._task, self._lost = plant, plant.name, False
        self._seen, self._clipped = 0, 0

    def restart(self, seed: int) -> Vector:
        with _named(self._task, "reset"):
            observation, _ = self._env.reset(seed=seed)
            seen = np.asarray(observation, np.float64).reshape(-1)
        self._lost = False
        return self._checked("reset", seen, False)

    def advance(self, action: Vector) -> Step:
        with _named(self._task, "step"):
            observation, reward, terminated, truncated, _ = self._env.step(self._command(action))
            seen = np.asarray(observation, np.float64).reshape(-1)
            step = Step(self._checked("step", seen, terminated), float(reward), bool(terminated), bool(truncated))
        return step._replace(reward=float("nan")) if self._lost else step

    def close(self) -> None:
        with _named(self._task, "close"):
            self._env.close()

    def _checked(self, method: str, seen: Vector, terminated: bool) -> Vector:
        """Check an observation, and set all later rewards to NaN if the observation contains NaN."""
        if seen.size != len(self._plant.state_names):
            declared = f"its observation_space declares {len(self._plant.state_names)}"
            raise UserError(f"{self._task}: {method} returns an observation of size {seen.size}; {declared}")
        self._lost |= bool(np.isnan(seen).any())
        self._seen += 1
        # Tasks often terminate in the first state beyond a bound, whose value does not matter.
        self._clipped += not terminated and bool(self._plant.beyond_limit(seen).any())
        if self._seen % _TRIED == 0:
            self.clipping()
        return seen

    def clipping(self) -> str:
        """Return which share of the observations so far was clipped as text, or an empty text if none was.

        Raises:
            UserError: More than 1 % of the observations were clipped.
        """
        share = self._clipped / max(1, self._seen)
        words = f"{self._task}: {share:.1%} of its observations"
        words += " lie outside the bounds of its observation_space, or beyond ±1e6 without bounds, and are clipped"
        if share > _MOST_CLIPPED:
            raise UserError(f"{words}; declare bounds that hold, or scale the observations")
        return words if share else ""


@contextlib.contextmanager
def _named(task: str, method: str) -> Iterator[None]:
    """Convert any error that a method of a task raises to a `UserError` of one line, inside the `with` block."""
    try:
        yield
    except UserError:
        raise
    except FAILURES as error:
        raise UserError(f"{task}: {method} fails: {type(error).__name__}: {_first_line(error)}") from error


def _spec(name: str) -> EnvSpec:
    """Return the registered specification of a task, after importing the module or file in front of its id."""
    module, _, identifier = name.partition(":")[2].rpartition(":")
    if module.endswith(".py"):
        import_file(Path(module), "plant", name)
    elif module:
        import_module(module, "plant", name)
    if identifier in gymnasium.registry:
        return gymnasium.registry[identifier]
    # The error suggests other versions of that task, or else the nearest ids, or else how to find an id.
    known = {other.casefold(): other for other in gymnasium.registry if not other.startswith("replaybench/")}
    wanted = identifier.casefold()
    versions = [other for folded, other in known.items() if folded.rpartition("-v")[0] == wanted.rpartition("-v")[0]]
    versions += [other for folded, other in known.items() if folded.rpartition("-v")[0] == wanted]
    if versions or nearest(wanted, known):
        raise unknown("Gymnasium task", identifier, versions or known.values())
    raise UserError(
        f"unknown Gymnasium task {identifier!r}; gymnasium.pprint_registry() lists them, and "
        f"gymnasium:MODULE:{identifier} imports the module that registers it"
    )


def _make(name: str, spec: EnvSpec) -> Environment:
    """Make one environment without Gymnasium's checker.

    It has Gymnasium's time limit, on which some tasks and wrappers depend.
    """
    try:
        with quiet():
            return gymnasium.make(spec, disable_env_checker=True)
    except FAILURES as error:
        # A task's constructor may raise any error, usually because a simulator is missing.
        reason = f"{type(error).__name__}: {_first_line(error)}{_needed(spec, error)}"
        raise UserError(f"{name} cannot be made: {reason}") from error


def _needed(spec: EnvSpec, error: BaseException) -> str:
    """Return advice on unbounded actions or on a missing extra of Gymnasium, or an empty text."""
    if isinstance(error, ValueError | AssertionError) and "RescaleAction" in [w.name for w in spec.additional_wrappers]:
        return f"; RescaleAction takes bounded actions: {TO_BOUND}"
    module = str(spec.entry_point).partition(":")[0].split(".")
    if not isinstance(error, ImportError) or module[:2] != ["gymnasium", "envs"]:
        return ""
    return f"; pip install 'gymnasium[{module[2].replace('_', '-')}]'"


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "no message")


def _settings(kwargs: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    return [(name, _as_text(value)) for name, value in sorted((kwargs or {}).items())]


def _as_text(value: Any) -> str:
    """Return a value as text that is equal in every process and folder, with functions and classes by name."""
    if callable(value):
        return str(getattr(value, "__qualname__", type(value).__qualname__))
    return repr(value)


def _frequency(env: Environment) -> float:
    """Return the control rate of a task [Hz]: from its time step, or else its frame rate, or else 1."""
    step = getattr(env.unwrapped, "dt", None)
    if isinstance(step, _NUMBER) and 0 < step < np.inf:
        return float(1 / step)
    rate = env.metadata.get("render_fps")
    return float(rate) if isinstance(rate, _NUMBER) and rate > 0 else 1.0


class ActionRange(NamedTuple):
    """The physical range of a task's actions, and the number of choices of each action if the actions are discrete."""

    low: Floats
    high: Floats
    choices: tuple[int, ...] = ()

    def nothing(self) -> Floats:
        """Return the action for zero control: the action nearest to 0, or the middle choice of discrete actions.

        With an even number of choices, the lower one of the two middle choices is returned.
        """
        if self.choices:
            return tuple(low + (count - 1) // 2 for low, count in zip(self.low, self.choices, strict=True))
        return tuple(min(max(0.0, low), high) for low, high in zip(self.low, self.high, strict=True))


def action_range(name: str, space: Space[Any]) -> ActionRange:
    """Return the range of the actions of the task `name`, or raise `UserError` for unsupported actions."""
    if isinstance(space, Discrete):
        return _choices(name, np.array([space.start]), np.array([space.n]))
    if isinstance(space, MultiDiscrete) and space.nvec.ndim == 1:
        return _choices(name, space.start, space.nvec)
    supported = (
        "supported are a one-dimensional Box (a flat vector of numbers), Discrete and MultiDiscrete; "
        "Gymnasium's wrapper TransformAction can turn one of these into it"
    )
    box = _vector(name, "action", space, supported)
    if not np.issubdtype(box.dtype, np.floating):
        raise UserError(f"{name}: its actions are whole numbers ({box.dtype}) in a Box; {supported}")
    if not (abs(box.low) < _NO_BOUND).all() or not (abs(box.high) < _NO_BOUND).all():
        raise UserError(f"{name}: its actions are unbounded; {TO_BOUND}")
    return ActionRange(_floats(box.low), _floats(box.high))


def _choices(name: str, start: NDArray[Any], counts: NDArray[Any]) -> ActionRange:
    if (counts < 2).any():
        raise UserError(f"{name}: its action has one choice only, so that there is nothing to control")
    return ActionRange(_floats(start), _floats(start + counts - 1), tuple(int(count) for count in counts))


def handed_over(space: Space[Any]) -> Callable[[Vector], Any]:
    """Return a function that converts a physical action `[A]` to the type and the bounds of an action space."""
    dtype: Any = space.dtype
    if isinstance(space, Discrete):
        return lambda action: dtype.type(np.rint(action[0]))
    if isinstance(space, MultiDiscrete):
        return lambda action: np.rint(action).astype(dtype)
    assert isinstance(space, Box)
    low, high = space.low, space.high
    # Rounding must not move an action out of the task's bounds.
    return lambda action: np.clip(action.astype(dtype), low, high)


def normalisation(name: str, space: Space[Any]) -> tuple[Floats, Floats, Floats]:
    """Return centre, scale and limit of each component of a task's observations, which must be vectors.

    Components with infinite bounds have the scale 1. The largest integers of 32 or 64 bits count as infinite, too.
    """
    supported = "supported is a one-dimensional Box (a flat vector of numbers)"
    if space.is_np_flattenable:
        supported += "; register it with additional_wrappers=(FlattenObservation.wrapper_spec(),)"
    box = _vector(name, "observation", space, supported)
    low, high, dtype = box.low.astype(np.float64), box.high.astype(np.float64), box.dtype
    whole = np.issubdtype(dtype, np.integer) and dtype.itemsize > 2
    least, most = (np.iinfo(dtype.name).min, np.iinfo(dtype.name).max) if whole else (-_NO_BOUND, _NO_BOUND)
    bounded = (low > least) & (high < most) & (low < high)
    center = np.where(bounded, (np.where(bounded, low, 0) + np.where(bounded, high, 0)) / 2, 0.0)
    scale = np.where(bounded, (np.where(bounded, high, 2) - np.where(bounded, low, 0)) / 2, 1.0)
    return _floats(center), _floats(scale), _floats(np.where(bounded, 1.0, LARGEST_SEEN))


def _vector(name: str, what: str, space: Space[Any], supported: str) -> Box:
    if isinstance(space, Box) and len(space.shape) == 1:
        return space
    shown = f"a Box of shape {space.shape}" if isinstance(space, Box) else f"of kind {type(space).__name__}"
    raise UserError(f"{name}: its {what} is {shown}; {supported}")


def _floats(values: NDArray[Any]) -> Floats:
    return tuple(float(value) for value in values)
