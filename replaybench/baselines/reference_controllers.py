"""Controllers of references, for whole populations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from replaybench.baselines.solution import Solution
from replaybench.data.streams import Stream
from replaybench.envs.interface.plant import Plant
from replaybench.envs.population import PopulationEnv

Float32Array = NDArray[np.float32]


class Controller(Protocol):
    """A policy for noisy normalised observations."""

    def act(self, observation: Float32Array) -> Float32Array:
        """Return actions float32 `[M, A]` in [-1, 1] for observations float32 `[M, S]`, both normalised."""
        ...


class RandomController:
    """Actions uniform over the range, or over the plant's choices, independent at every sample: μ_r = 0."""

    def __init__(self, plant: Plant, members: Sequence[int], seed: int = 0) -> None:
        self._stream = Stream(seed, members, "random controller")
        self._actions = len(plant.action_names)
        self._choices = np.array(plant.action_choices, np.int64)

    def act(self, observation: Float32Array) -> Float32Array:
        """Draw actions `[M, A]`."""
        share = self._stream.uniform(self._actions)
        if self._choices.size:  # the nearest one would give those at both ends half the probability of the others
            share = np.floor(share * self._choices) / (self._choices - 1)
        return (2.0 * share - 1.0).astype(np.float32)


@dataclass(frozen=True)
class ZeroController:
    """Applies the plant's `zero_action`."""

    plant: Plant

    def act(self, observation: Float32Array) -> Float32Array:
        """Return the zero action for every member, `[M, A]`."""
        nothing = self.plant.normalise_action(self.plant.zero_action).astype(np.float32)
        return np.tile(nothing, (len(observation), 1))


@dataclass(frozen=True)
class GreedyController:
    """The greedy policy of a dynamic-programming solution, μ_r = 1, or its interpolated policy."""

    solution: Solution
    interpolated: bool = False

    def act(self, observation: Float32Array) -> Float32Array:
        """Return actions `[M, A]`."""
        return self.solution.interpolated(observation) if self.interpolated else self.solution.greedy(observation)


def run_episode(controller: Controller, env: PopulationEnv) -> NDArray[np.float64]:
    """Run the next episode of every member; return its score `Plant.episode_score`, float64 `[M]`."""
    observation, _ = env.reset()
    total, steps = np.zeros(env.num_envs), np.zeros(env.num_envs, np.int64)
    running = np.ones(env.num_envs, np.bool_)
    while running.any():
        observation, reward, terminated, truncated, _ = env.step(controller.act(observation))
        total += reward
        steps += running
        running = ~(terminated | truncated)
    return env.plant.episode_score(total, steps)
