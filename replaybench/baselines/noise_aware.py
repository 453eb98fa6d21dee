"""Dynamic-programming controllers that account for sensor noise.

The greedy controller of μ_r = 1 takes observations for states, so that under noise it is no upper bound (de Bruin et
al. 2018, appendix C). These two use the same solution.
"""

from __future__ import annotations

import dataclasses
from typing import Final

import numpy as np
from numpy.typing import NDArray

from replaybench.baselines.solution import Solution
from replaybench.envs.interface.angles import wrap
from replaybench.envs.ode import rk4

Float32Array = NDArray[np.float32]
Float64Array = NDArray[np.float64]

OBSERVER_GAIN: Final = 0.2
"""Share of the difference between observation and prediction that the observer follows at each sample."""
_QUADRATURE: Final = 7  # nodes of Gauss and Hermite on each axis


def averaged_over_noise(solution: Solution, noise: float) -> Solution:
    """Return a solution with action values averaged over the states behind an observation, equally likely a priori.

    `Q̄(z, a) = E[Q(z − ε, a)]` with `ε ~ N(0, σ²)` on each normalised state; `noise` is σ.
    """
    grid, points = solution.grid, solution.grid.points()
    places, weights = np.polynomial.hermite_e.hermegauss(_QUADRATURE)
    theta = solution.theta
    for axis, scale in enumerate(solution.plant.state_scale):
        averaged = np.zeros_like(theta)
        for place, weight in zip(places, weights / weights.sum(), strict=True):
            moved = points.copy()
            moved[:, axis] += place * noise * scale
            averaged += weight * grid.interpolate(theta, moved)
        theta = averaged
    return dataclasses.replace(solution, theta=theta)


class ObserverController:
    """Greedy on a model observer of the state, `x̂ = f(x̂, u) + L (z − f(x̂, u))`, from the first observation on.

    f is the plant without noise, u the commanded action, L `OBSERVER_GAIN`. It holds the estimates of one episode of a
    population.
    """

    def __init__(self, solution: Solution) -> None:
        self._solution = solution
        self._predicted: Float64Array | None = None

    def act(self, observation: Float32Array) -> Float32Array:
        """Return actions `[M, A]`."""
        plant = self._solution.plant
        seen = plant.denormalise_state(observation)
        state = seen
        if self._predicted is not None:
            error = seen - self._predicted
            state = self._predicted + OBSERVER_GAIN * np.where(plant.periodic, wrap(error), error)
        action = self._solution.greedy(plant.normalise_state(state))
        applied = plant.denormalise_action(action)
        self._predicted, _, _ = rk4.simulate(plant, state, applied, 1.0 / self._solution.frequency)
        return action
