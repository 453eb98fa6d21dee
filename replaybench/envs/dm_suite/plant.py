"""Tasks of dm_control's suite as plants, with ACER's episodes of 500 steps and discount 0.99 (Wang et al. 2017, E.1).

dm_control is imported when members are made.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, ClassVar, Final

import numpy as np

from replaybench.envs.foreign.engine import Step, StepwiseEngine
from replaybench.envs.interface.engine import Engine
from replaybench.envs.interface.plant import FixedStepPlant, Vector
from replaybench.envs.mujoco.model import quiet

STEPS: Final = 500
"""Samples in an episode (E.1)."""


@dataclass(frozen=True, kw_only=True)
class SuitePlant(FixedStepPlant):
    """Base class of the tasks; a subclass names one of dm_control's suite and what it observes, in its order.

    The rate decides how long an action is held, not how long the episode lasts.
    """

    task: ClassVar[tuple[str, str]]
    """Domain and task in the suite."""

    update_every = 50  # the length of ACER's segments

    def __init_subclass__(cls, **kwargs: Any) -> None:
        cls.episode_steps = STEPS * cls.frame_skip
        super().__init_subclass__(**kwargs)

    def engine(self, num_envs: int, frequency: float) -> Engine:
        members = [SuiteMember(self, self.physics_steps(frequency)) for _ in range(num_envs)]
        return StepwiseEngine(members, len(self.state_names), len(self.action_names), self.episode_steps, frequency)

    def made_of(self) -> str:
        return f"{self.task}; dm_control {version('dm_control')}; mujoco {version('mujoco')}"


class SuiteMember:
    """A task of dm_control with its physics, which holds each action for `substeps` physics steps.

    Its `Environment`, of fixed time limit and rate, is not used.
    """

    def __init__(self, plant: SuitePlant, substeps: int = 1) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it looks for a display, which nothing here needs
            from dm_control import suite
            from dm_control.rl import control
        self._invalid: type[Exception] = control.PhysicsError
        with quiet():
            made = suite.load(*plant.task, task_kwargs={"random": 0})
        self._physics, self._task, self._substeps = made.physics, made.task, substeps

    def restart(self, seed: int) -> Vector:
        self._task.random.seed(seed)
        with self._physics.reset_context():
            self._task.initialize_episode(self._physics)
        self._observed = _flat(self._task.get_observation(self._physics))
        return self._observed

    def advance(self, action: Vector) -> Step:
        """Advance by one sample; a simulation that has blown up ends the episode in its last state, with reward 0."""
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
        self._physics.free()


def _flat(observation: Any) -> Vector:
    return np.concatenate([np.ravel(part) for part in observation.values()]).astype(np.float64)
