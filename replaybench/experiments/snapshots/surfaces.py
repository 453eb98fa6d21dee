"""Policies over the state space and in an episode, for plants of two states (de Bruin et al. 2018, Figure 4).

They are stored in physical units with their axes, so that showing them needs neither plant nor learner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.learner import Learner
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.population import PopulationEnv
from replaybench.experiments.snapshots.times import snapshot_rounds

PIXELS: Final = 41
MOST_MEMBERS: Final = 50
"""Members of a cell whose policies are recorded; the median one is stored at the end."""

Floats = NDArray[np.float64]


class Paths(NamedTuple):
    """Episodes without noise, one of each member.

    Attributes:
        states: physical, float64 `[M, T + 1, S]`; after its end a member's last state is repeated.
        reward: mean per step, float64 `[M]`.
    """

    states: Floats
    reward: Floats


def has_surfaces(plant: Plant) -> bool:
    """Return whether a plant's policies can be shown as surfaces: two states, a grid, and a mean reward as score."""
    grid = isinstance(plant, OdePlant) and bool(plant.grid_nodes)
    return grid and len(plant.state_names) == 2 and plant.episode_metric == "mean reward"


def pixel_states(plant: OdePlant, pixels: int) -> Floats:
    """Return the normalised state at the centre of each pixel of a plant's grid, `[X, Y, 2]`."""
    shares = (np.arange(pixels) + 0.5) / pixels
    along = [low + shares * (high - low) for low, high in zip(plant.grid_low, plant.grid_high, strict=True)]
    return plant.normalise_state(np.stack(np.meshgrid(*along, indexing="ij"), axis=-1))


def follow(
    plant: OdePlant, frequency: float, members: int, policy: Callable[[NDArray[np.float32]], NDArray[Any]]
) -> Paths:
    """Follow a policy (observations `[M, S]` → actions `[M, A]`) through one episode without noise."""
    env = PopulationEnv(plant, members, frequency=frequency, nan_actions="fail")
    observation, infos = env.reset()
    states, total = [infos["true_state"].copy()], np.zeros(members)
    steps, running = np.zeros(members), np.ones(members, np.bool_)
    while running.any():
        observation, reward, terminated, truncated, infos = env.step(policy(observation))
        states.append(np.where(running[:, None], infos["true_state"], states[-1]))
        total += np.where(running, reward, 0.0)
        steps += running
        running = running & ~(terminated | truncated)
    return Paths(plant.denormalise_state(np.stack(states, axis=1)), total / np.maximum(steps, 1))


class Surfaces:
    """The history of a population's policies; K snapshots, `PIXELS` along both states, the first members only.

    Attributes:
        value: float32 `[m, K, X, Y]`, (1 − γ) times the value: discounted mean reward per step, unscaled.
        action: float32 `[m, K, X, Y, A]`, physical.
        path: float32 `[m, K, T + 1, 2]`, physical, NaN behind the end.
        greedy: float64 `[m, K]`, mean reward per step of these episodes.
    """

    def __init__(self, plant: OdePlant, frequency: float, members: int, rounds: int) -> None:
        self._plant, self._frequency, self._members = plant, frequency, members
        self._rounds, kept = snapshot_rounds(rounds), min(members, MOST_MEMBERS)
        self._states = pixel_states(plant, PIXELS).reshape(1, -1, 2).astype(np.float32)
        shape, steps = (kept, len(self._rounds)), plant.steps_per_episode(frequency)
        self.value = np.full((*shape, PIXELS, PIXELS), np.nan, np.float32)
        self.action = np.full((*shape, PIXELS, PIXELS, len(plant.action_names)), np.nan, np.float32)
        self.path = np.full((*shape, steps + 1, 2), np.nan, np.float32)
        self.greedy = np.full(shape, np.nan)

    def look(self, done: int, agent: Learner) -> None:
        """Record the policies after `done` rounds, if a snapshot is due."""
        if done not in self._rounds:
            return
        place, kept = self._rounds.index(done), len(self.value)
        states = np.repeat(self._states, self._members, axis=0)
        value = (1 - agent.task.discount) / agent.task.reward_scale * agent.value(states)[:kept]
        self.value[:, place] = value.reshape(kept, PIXELS, PIXELS)
        action = self._plant.denormalise_action(np.clip(agent.policy(states)[:kept], -1, 1))
        self.action[:, place] = action.reshape(kept, PIXELS, PIXELS, -1)
        paths = follow(self._plant, self._frequency, self._members, agent.act)
        self.path[:, place, : paths.states.shape[1]] = paths.states[:kept]
        self.greedy[:, place] = paths.reward[:kept]

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return all arrays by name."""
        return {"value": self.value, "action": self.action, "path": self.path, "greedy": self.greedy}


def axes_facts(plant: OdePlant) -> dict[str, Any]:
    """Return the axes of surfaces as plain values."""
    states = zip(
        plant.state_names, plant.state_units, plant.grid_low, plant.grid_high,
        plant.periodic, plant.initial_state, plant.reference_state, strict=True,
    )  # fmt: skip
    actions = zip(plant.action_names, plant.action_units, plant.action_low, plant.action_high, strict=True)
    return {
        "states": [
            {
                "name": name, "unit": unit, "low": float(low), "high": float(high),
                "periodic": bool(around), "initial": float(first), "reference": float(goal),
            }
            for name, unit, low, high, around, first, goal in states
        ],
        "actions": [
            {"name": name, "unit": unit, "low": float(low), "high": float(high)} for name, unit, low, high in actions
        ],
    }  # fmt: skip
