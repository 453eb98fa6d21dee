"""Tasks of dm_control's suite as plants, in the form of ACER's experiments: episodes of 500 steps, discount 0.99.

The source of both is Wang et al. (2017, appendix E.1). dm_control is imported where members are made, and not before.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from replaybench.envs.foreign.engine import Step, StepwiseEngine
from replaybench.envs.interface.checks import whole_substeps
from replaybench.envs.interface.plant import Plant, Vector
from replaybench.envs.mujoco.model import quiet

if TYPE_CHECKING:
    from replaybench.envs.interface.engine import Engine

LIMIT: Final = 1e4
"""Bound on what is observed, in m, rad and per second: orders beyond what these bodies can do."""

STEPS: Final = 500
"""Samples in an episode (E.1)."""

Signals = tuple[tuple[str, str], ...]
"""Names with their units."""


@dataclass(frozen=True, kw_only=True)
class SuitePlant(Plant):
    """Base class of the tasks; a subclass names one of dm_control's suite and what it shows, in its order.

    States are in raw units, centre 0 and scale 1. A sample is any whole number of physics steps that cuts the episode
    into whole samples; the rate decides how long the action is held, not how long the episode lasts.
    """

    task: ClassVar[tuple[str, str]]
    """Domain and task in the suite."""
    physics_step: ClassVar[float]
    """Time step of the task's model. [s]"""
    shows: ClassVar[Signals]
    """Names and units of what is observed."""
    actuators: ClassVar[tuple[str, ...]]

    episode_metric = "return"
    discount = 0.99  # E.1
    update_every = 50  # the length of ACER's segments
    reference_episodes = 10

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.state_names, cls.state_units = (tuple(column) for column in zip(*cls.shows, strict=True))
        cls.state_center, cls.state_scale = (0.0,) * len(cls.shows), (1.0,) * len(cls.shows)
        cls.action_names, cls.action_units = cls.actuators, ("1",) * len(cls.actuators)
        cls.action_low, cls.action_high = (-1.0,) * len(cls.actuators), (1.0,) * len(cls.actuators)
        cls.episode_seconds = STEPS / cls.frequency

    @property
    def observation_limit(self) -> tuple[float, ...]:
        """The same wide bound for all."""
        return (LIMIT,) * len(self.shows)

    def substeps(self, frequency: float) -> int:
        """Return the physics steps in a sample; raise `UserError` for a rate that cannot be."""
        return whole_substeps(self.name, self.physics_step, self.physics_steps(), frequency)

    def physics_steps(self) -> int:
        """Return the physics steps in an episode."""
        return round(self.episode_seconds / self.physics_step)

    def steps_per_episode(self, frequency: float) -> int:
        """Return the samples in an episode; raise `UserError` for a rate that cannot be."""
        return self.physics_steps() // self.substeps(frequency)

    def engine(self, num_envs: int, frequency: float) -> Engine:
        """Return what moves `num_envs` members, sampled at `frequency` [Hz]."""
        return SuiteEngine(self, num_envs, frequency)

    def made_of(self) -> str:
        """Name the versions of dm_control and MuJoCo."""
        return f"{self.task}; dm_control {version('dm_control')}; mujoco {version('mujoco')}"


class SuiteEngine(StepwiseEngine):
    """Members of a task of dm_control, each with an environment of its own."""

    def __init__(self, plant: SuitePlant, num_envs: int, frequency: float) -> None:
        self._plant = plant
        self._members = [SuiteMember(plant) for _ in range(num_envs)]
        sizes = len(plant.state_names), len(plant.action_names), plant.physics_steps()
        super().__init__(self._members, *sizes, frequency)

    def set_frequency(self, frequency: float) -> None:
        """Sample at another rate [Hz]."""
        super().set_frequency(frequency)
        for member in self._members:
            member.hold(self._plant.substeps(frequency))


class SuiteMember:
    """A task of dm_control with its physics.

    Its `Environment` is not used, for it has a time limit, and a rate for good.
    """

    def __init__(self, plant: SuitePlant) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it looks for a display, which nothing here needs
            from dm_control import suite
            from dm_control.rl import control
        self._invalid: type[Exception] = control.PhysicsError
        with quiet():
            made = suite.load(*plant.task, task_kwargs={"random": 0})
        self._physics, self._task, self._substeps = made.physics, made.task, 1

    def hold(self, substeps: int) -> None:
        """Hold each action for so many physics steps."""
        self._substeps = substeps

    def restart(self, seed: int) -> Vector:
        """Begin the episode of a seed."""
        self._task.random.seed(seed)
        with self._physics.reset_context():
            self._task.initialize_episode(self._physics)
        self._observed = _flat(self._task.get_observation(self._physics))
        return self._observed

    def advance(self, action: Vector) -> Step:
        """Advance by one sample; a simulation that has blown up ends the episode where it last was, with reward 0."""
        task, physics = self._task, self._physics
        try:
            task.before_step(action, physics)
            physics.step(self._substeps)
            task.after_step(physics)
            reward, observation = task.get_reward(physics), task.get_observation(physics)
        except self._invalid:
            return Step(self._observed, 0.0, False, True)
        self._observed, discount = _flat(observation), task.get_termination(physics)
        terminated = discount == 0.0
        return Step(self._observed, float(reward), terminated, discount is not None and not terminated)

    def close(self) -> None:
        """Free the simulation."""
        self._physics.free()


def _flat(observation: Any) -> Vector:
    return np.concatenate([np.ravel(part) for part in observation.values()]).astype(np.float64)
