"""Any task that is registered with Gymnasium, as a plant: `gymnasium:HalfCheetah-v5`.

What can be controlled here has a flat vector of numbers as observation and a bounded one as action; everything else is
refused with the reason. The task's own time limit is the plant's episode.
"""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Discrete, Space
from numpy.typing import NDArray

from replaybench.data.errors import UserError, unknown
from replaybench.envs.engine import Engine
from replaybench.envs.plant import Plant, Vector
from replaybench.envs.registry import GYMNASIUM, import_file
from replaybench.envs.replayed import Moved, Replayed
from replaybench.envs.sources import made_of

LARGEST_BOUND: Final = 1e6
"""Observations whose bounds are wider are as good as unbounded: they are taken as they are."""

LARGEST_SEEN: Final = 1e6
"""Beyond this an unbounded observation is shown at this value, so that the observation space is finite."""

Environment = gymnasium.Env[Any, Any]


@dataclass(frozen=True, kw_only=True)
class GymnasiumPlant(Plant):
    """A task of Gymnasium; `plant_of` makes a subclass for each id.

    Observations with finite bounds and actions are normalised to [-1, 1] by their bounds. Rewards are the task's own.
    The control rate is the task's own, too: from its time step, else from its frame rate, else 1 Hz, so that seconds
    count steps.
    """

    spec: ClassVar[EnvSpec]
    kinds: ClassVar[tuple[type, ...]]
    steps: ClassVar[int]

    discount = 0.99
    update_every = 1
    told_by = "return"
    reference_episodes = 10

    @property
    def observation_limit(self) -> tuple[float, ...]:
        """Bound on |normalised observation|: 1 where the task bounds it."""
        return self._limit

    _limit: ClassVar[tuple[float, ...]]

    def steps_per_episode(self, frequency: float) -> int:
        """Return the task's time limit; its rate cannot be changed."""
        if not abs(frequency - self.frequency) <= 1e-9 * self.frequency:
            raise UserError(f"{self.name} runs at {self.frequency:.12g} Hz and no other rate, not at {frequency:g} Hz")
        return self.steps

    def engine(self, num_envs: int, frequency: float) -> Engine:
        """Return what moves `num_envs` members, each an environment of its own."""
        members = [_Member(_make(self.name, self.spec)) for _ in range(num_envs)]
        return Replayed(members, len(self.state_names), len(self.action_names), self.steps, frequency)

    def made_of(self) -> str:
        """Name Gymnasium's version, how the task is registered, and what its code is made of."""
        about = (self.spec.id, str(self.spec.entry_point), sorted(self.spec.kwargs.items()), self.steps)
        return f"gymnasium {gymnasium.__version__}; {about}; {made_of(*self.kinds)}"


@cache
def plant_of(name: str) -> type[GymnasiumPlant]:
    """Return the plant class of a task.

    Args:
        name: `gymnasium:Name-v0`, with a namespace `gymnasium:space/Name-v0` where it has one, or
            `gymnasium:module:Name-v0` and `gymnasium:path/to/file.py:Name-v0` to import what registers it first.

    Raises:
        UserError: there is no such task, it cannot be made, or it cannot be controlled as a plant.
    """
    spec = _spec(name)
    env = _make(name, spec)
    try:
        low, high = _bounded_action(name, env.action_space)
        center, scale, limit = _normalisation(_vector(name, "observation", env.observation_space))
        frequency = _frequency(env)
        kinds = _kinds(env)
    finally:
        env.close()
    if spec.max_episode_steps is None:
        raise UserError(f"{name} has no time limit; register it with max_episode_steps")
    namespace = {
        "__doc__": f"The task {spec.id} of Gymnasium.",
        "__module__": __name__,
        "name": name,
        "spec": spec,
        "kinds": kinds,
        "steps": spec.max_episode_steps,
        "state_names": tuple(f"observation {i}" for i in range(len(center))),
        "state_units": ("–",) * len(center),
        "action_names": tuple(f"action {i}" for i in range(len(low))),
        "action_units": ("–",) * len(low),
        "state_center": center,
        "state_scale": scale,
        "action_low": low,
        "action_high": high,
        "zero_action": tuple(min(max(0.0, a), b) for a, b in zip(low, high, strict=True)),
        "_limit": limit,
        "frequency": frequency,
        "episode_seconds": spec.max_episode_steps / frequency,
    }
    return dataclass(frozen=True, kw_only=True)(type("GymnasiumTask", (GymnasiumPlant,), namespace))


class _Member:
    """One environment, without Gymnasium's own time limit."""

    def __init__(self, env: Environment) -> None:
        space = env.action_space
        assert isinstance(space, Box)
        self._env, self._low, self._high, self._dtype = env, space.low, space.high, space.dtype

    def restart(self, seed: int) -> Vector:
        observation, _ = self._env.reset(seed=seed)
        return _float64(observation)

    def advance(self, action: Vector) -> Moved:
        # Rounding must not take an action out of the task's own bounds.
        commanded = np.clip(action.astype(self._dtype), self._low, self._high)
        observation, reward, terminated, truncated, _ = self._env.step(commanded)
        return Moved(_float64(observation), float(reward), bool(terminated), bool(truncated))

    def close(self) -> None:
        self._env.close()


def _float64(observation: Any) -> NDArray[np.float64]:
    return np.asarray(observation, np.float64)


def _spec(name: str) -> EnvSpec:
    """Find how a task is registered, after importing the module or file in front of its id."""
    module, _, identifier = name.removeprefix(GYMNASIUM).rpartition(":")
    if module.endswith(".py"):
        import_file(Path(module))
    elif module:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise UserError(f"{name}: the module {module} cannot be imported: {_first_line(error)}") from error
    if identifier not in gymnasium.registry:
        raise _no_such_task(identifier)
    return gymnasium.registry[identifier]


def _no_such_task(identifier: str) -> UserError:
    """Offer that task in its other versions, else the nearest ids, else how to find one."""
    known = {other.casefold(): other for other in gymnasium.registry if not other.startswith("replaybench/")}
    wanted = identifier.casefold()
    versions = [other for folded, other in known.items() if folded.rpartition("-v")[0] == wanted.rpartition("-v")[0]]
    versions += [other for folded, other in known.items() if folded.rpartition("-v")[0] == wanted]
    if versions or difflib.get_close_matches(wanted, known, cutoff=0.5):
        return unknown("Gymnasium task", identifier, versions or known.values())
    return UserError(
        f"unknown Gymnasium task {identifier!r}; gymnasium.pprint_registry() lists them, and "
        f"{GYMNASIUM}MODULE:{identifier} imports the module that registers it"
    )


def _make(name: str, spec: EnvSpec) -> Environment:
    """Make one environment without Gymnasium's time limit and checker."""
    try:
        return gymnasium.make(spec, max_episode_steps=-1, disable_env_checker=True)
    except Exception as error:
        # Whatever a task's constructor raises, most often for want of a simulator, is the user's to mend.
        raise UserError(f"{name} cannot be made: {type(error).__name__}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "no message")


def _vector(name: str, what: str, space: Space[Any]) -> Box:
    """Return a space if it holds flat vectors of numbers, or say what is supported."""
    if isinstance(space, Box) and len(space.shape) == 1:
        return space
    shown = f"a Box of shape {space.shape}" if isinstance(space, Box) else f"of kind {type(space).__name__}"
    raise UserError(f"{name}: its {what} is {shown}; supported is a one-dimensional Box (a flat vector of numbers)")


def _bounded_action(name: str, space: Space[Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the bounds of the actions, or say why they cannot be controlled."""
    if isinstance(space, Discrete):
        raise UserError(f"{name}: its action is one of {space.n} choices; supported are continuous actions, a Box")
    box = _vector(name, "action", space)
    if not np.issubdtype(box.dtype, np.floating):
        raise UserError(f"{name}: its actions are whole numbers ({box.dtype}); supported are continuous actions")
    if not (abs(box.low) < LARGEST_BOUND).all() or not (abs(box.high) < LARGEST_BOUND).all():
        raise UserError(f"{name}: its actions are unbounded; register it with the wrapper ClipAction or RescaleAction")
    return _floats(box.low), _floats(box.high)


def _normalisation(box: Box) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
    """Return center, scale and limit of each component: by its bounds where it has such, else as it is."""
    low, high = box.low.astype(np.float64), box.high.astype(np.float64)
    bounded = (abs(low) < LARGEST_BOUND) & (abs(high) < LARGEST_BOUND) & (low < high)
    center = np.where(bounded, (np.where(bounded, low, 0) + np.where(bounded, high, 0)) / 2, 0.0)
    scale = np.where(bounded, (np.where(bounded, high, 2) - np.where(bounded, low, 0)) / 2, 1.0)
    return _floats(center), _floats(scale), _floats(np.where(bounded, 1.0, LARGEST_SEEN))


def _floats(values: NDArray[Any]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _kinds(env: Environment) -> tuple[type, ...]:
    """Return the classes of an environment and of the wrappers around it."""
    kinds: list[type] = []
    while isinstance(env, gymnasium.Wrapper):
        kinds.append(type(env))
        env = env.env
    return (*kinds, type(env))


def _frequency(env: Environment) -> float:
    """Return the control rate [Hz] that a task tells: by its time step, its frame rate, or 1."""
    step = getattr(env.unwrapped, "dt", None)
    if isinstance(step, int | float) and 0 < step < np.inf:
        return float(1 / step)
    rate = env.metadata.get("render_fps")
    return float(rate) if isinstance(rate, int | float) and rate > 0 else 1.0
