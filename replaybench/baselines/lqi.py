"""Linear-quadratic control with integral action (LQI), for plants with set points.

Source: Young and Willems, An approach to the linear multivariable servomechanism problem, 1972. The plant is linearised
at its reference state, and the integrals of the errors of its set points are further states.
"""

import numpy as np

from replaybench.baselines.controllers import linearised, quadratic_gain
from replaybench.baselines.pid import control_errors, set_point_columns
from replaybench.envs.ode.plant import OdePlant
from replaybench.runtime.arrays import Floats, Floats32
from replaybench.runtime.errors import UserError


def lqi_gains(plant: OdePlant, frequency: float) -> tuple[Floats, Floats]:
    """Return the gains of states, `[A, D]`, and of integrals, `[A, L]`, for D states with equations and L set points.

    States, actions and integrals of errors, in seconds, are normalised. Their weights are identity matrices.

    Raises:
        UserError: The plant has no set points, or cannot be linearised, held or stabilised at its reference state.
    """
    if plant.regulated.keys() != plant.set_points.keys() or not plant.set_points:
        raise UserError(f"{plant.name} has no set points, so it has no linear-quadratic control with integral action")
    A, B, _ = linearised(plant, frequency)
    A, B = A[: plant.equations, : plant.equations], B[: plant.equations]
    states, _ = set_point_columns(plant)
    C = np.eye(plant.equations)[states]
    loops = len(states)
    A = np.block([[A, np.zeros((plant.equations, loops))], [-C / frequency, np.eye(loops)]])
    B = np.vstack([B, np.zeros((loops, B.shape[1]))])
    gain = quadratic_gain(plant, A, B)
    return gain[:, : plant.equations], gain[:, plant.equations :]


class Lqi:
    """The LQI controllers of M copies of a plant, for one episode.

    The action is a₀ − K (z − z_r) − K_i ∫e dt. In z_r, regulated states are set points, and other states are those of
    the reference state. The integral of an error stops while an action is saturated.
    """

    def __init__(self, plant: OdePlant, frequency: float) -> None:
        self._plant, self._period = plant, 1.0 / frequency
        self._states, _ = set_point_columns(plant)
        self._gain, self._integral_gain = lqi_gains(plant, frequency)
        _, _, self._rest = linearised(plant, frequency)
        self._reference = plant.normalise_state(plant.reference_state)[: plant.equations]
        self._integral: Floats = np.zeros((1, len(self._states)))

    def act(self, observation: Floats32) -> Floats32:
        """Return the actions, float32 `[M, A]`, for the next normalised observations `[M, S]`."""
        plant = self._plant
        seen = np.asarray(observation, np.float64)[:, : len(plant.state_names)]
        error = control_errors(plant, seen)
        deviation = seen[:, : plant.equations] - self._reference
        deviation[:, self._states] = -error
        wanted = self._rest - deviation @ self._gain.T - self._integral @ self._integral_gain.T
        saturated = (np.abs(wanted) > 1.0).any(axis=1, keepdims=True)
        self._integral = self._integral + np.where(saturated, 0.0, error * self._period)
        action: Floats32 = np.clip(wanted, -1.0, 1.0).astype(np.float32)
        return action
