"""Solutions of dynamic programming: action values on a grid, with two policies for whole populations.

The greedy policy takes the action of the highest interpolated value, the interpolated policy the mean of the corner
nodes' best actions weighted by membership (Buşoniu et al. 2010).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replaybench.baselines.grid import Float64Array, Grid, Int32Array
from replaybench.data.kernel import kernel
from replaybench.envs.ode.plant import OdePlant


@dataclass(frozen=True, eq=False)
class Solution:
    """A solved plant; N nodes, U actions."""

    plant: OdePlant
    frequency: float  # control rate [Hz]
    discount: float  # γ of one sample
    variant: str  # "modified", "synchronous" or "asynchronous"
    grid: Grid
    actions: Float64Array  # normalised `[U, A]`
    theta: Float64Array  # action values of the unscaled reward `[N, U]`
    convergence: Float64Array  # ‖Δθ‖∞ of each sweep

    @property
    def sweeps(self) -> int:
        """Number of sweeps until the values converged."""
        return len(self.convergence)

    @functools.cached_property
    def best(self) -> Int32Array:
        """The best action of each node, int32 `[N]`."""
        best: Int32Array = self.theta.argmax(axis=1).astype(np.int32)
        return best

    def greedy(self, observation: ArrayLike) -> NDArray[np.float32]:
        """Return the greedy actions, float32 `[..., A]` normalised, at normalised states `[..., S]`."""
        choice, _ = self._maximum(observation)
        lead = np.shape(observation)[:-1]
        return self.actions[choice].astype(np.float32).reshape(*lead, -1)

    def interpolated(self, observation: ArrayLike) -> NDArray[np.float32]:
        """Return the interpolated actions, float32 `[..., A]` normalised, at normalised states `[..., S]`."""
        mixed = self.grid.interpolate(self.actions[self.best], self._points(observation))
        return mixed.astype(np.float32).reshape(*np.shape(observation)[:-1], -1)

    def value(self, observation: ArrayLike) -> Float64Array:
        """Return the value of the greedy action, float64 `[...]`, at normalised states `[..., S]`."""
        _, value = self._maximum(observation)
        return value.reshape(np.shape(observation)[:-1])

    def value_surface(self) -> Float64Array:
        """Return the values at the nodes, float64, one axis per state."""
        surface: Float64Array = self.theta.max(axis=1).reshape(self.grid.nodes)
        return surface

    def policy_surface(self) -> Float64Array:
        """Return the best physical actions at the nodes, float64, one axis per state and then `[A]`."""
        return self.plant.denormalise_action(self.actions[self.best]).reshape(*self.grid.nodes, -1)

    def _points(self, observation: ArrayLike) -> Float64Array:
        states = np.asarray(observation)
        return self.plant.denormalise_state(states).reshape(-1, states.shape[-1])

    def _maximum(self, observation: ArrayLike) -> tuple[NDArray[np.int64], Float64Array]:
        cell, weight = self.grid.memberships(self._points(observation))
        choice, value = np.empty(len(cell), np.int64), np.empty(len(cell))
        _greedy(self.theta, self.best, self.grid.corners, cell, weight, choice, value)
        return choice, value


@kernel
def _greedy(
    theta: Float64Array, best: Int32Array, corners: Int32Array, cell: Int32Array, weight: Float64Array,
    choice: NDArray[np.int64], value: Float64Array,
) -> None:  # fmt: skip
    mixed = np.empty(theta.shape[1])
    for p in range(cell.shape[0]):
        corner = corners[cell[p]]
        leader = best[corner[0]]
        agree = True
        total = 0.0
        for k in range(corners.shape[1]):
            agree &= best[corner[k]] == leader
            total += weight[p, k] * theta[corner[k], leader]
        if agree:
            choice[p], value[p] = leader, total
            continue
        mixed[:] = 0.0
        for k in range(corners.shape[1]):
            share = weight[p, k]
            i = corner[k]
            for a in range(theta.shape[1]):
                mixed[a] += share * theta[i, a]
        choice[p] = np.argmax(mixed)
        value[p] = mixed[choice[p]]
