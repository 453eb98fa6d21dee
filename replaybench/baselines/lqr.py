"""The linear-quadratic regulator about a plant's reference state.

The plant is linearised over one sample by differences of its own simulation, at the equilibrium action, and regulated
by the solution of the discrete algebraic Riccati equation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_discrete_are
from scipy.optimize import lsq_linear

from replaybench.data.bounds import HERTZ
from replaybench.data.errors import UserError
from replaybench.envs.interface.angles import short_way
from replaybench.envs.ode import rk4
from replaybench.envs.ode.plant import OdePlant

Float64Array = NDArray[np.float64]
Float32Array = NDArray[np.float32]

_HELD = 1e-6
"""Largest drift from the reference over one sample that counts as held, normalised."""
_NEWTON_STEPS = 10
_DIFFERENCE = 1e-4
"""Step of the numeric differences, normalised."""
_KINK = 0.01
"""Largest relative disagreement of the one-sided differences that counts as smooth."""


@dataclass(frozen=True, eq=False)
class LinearQuadraticRegulator:
    """`a = a₀ − K (z − z₀)`, clipped to [-1, 1]; z and a are normalised, differences of angles are wrapped.

    The weights are the identity on normalised states and actions.
    """

    plant: OdePlant
    A: Float64Array  # ∂z′/∂z over one sample `[S, S]`
    B: Float64Array  # ∂z′/∂a over one sample `[S, A]`
    gain: Float64Array  # K `[A, S]`
    reference: Float64Array  # z₀ `[S]`
    equilibrium: Float64Array  # a₀ `[A]`, which holds the plant at z₀

    def act(self, observation: Float32Array) -> Float32Array:
        """Return actions float32 `[M, A]` for observations float32 `[M, S]`, both normalised."""
        error = short_way(
            np.asarray(observation, np.float64) - self.reference, self.plant.periodic, self.plant.state_scale
        )
        action = np.clip(self.equilibrium - error @ self.gain.T, -1.0, 1.0)
        return action.astype(np.float32)


def linear_quadratic_regulator(plant: OdePlant, frequency: float = 50.0) -> LinearQuadraticRegulator:
    """Design the regulator of a plant at a control rate [Hz].

    Raises:
        UserError: no action in range holds the plant at its reference, or the plant is not smooth there, or
            it cannot be stabilised there.
    """
    if plant.action_choices:
        raise UserError(f"{plant.name} takes choices, between which there is nothing to linearise")
    HERTZ.check(frequency, "frequency")
    reference = plant.normalise_state(plant.reference_state)

    def drift(state: Float64Array, action: Float64Array) -> Float64Array:
        """Return z′ − z₀ `[..., S]` after one sample."""
        x, u = plant.denormalise_state(state), plant.denormalise_action(action)
        after, _, _ = rk4.simulate(plant, x, u, 1.0 / frequency)
        return short_way(plant.normalise_state(after) - reference, plant.periodic, plant.state_scale)

    equilibrium = _equilibrium(plant)
    away = float(np.abs(drift(reference, equilibrium)).max())
    if not away <= _HELD:
        raise UserError(
            f"no action holds {plant.name} at its reference, so it has no linear-quadratic regulator "
            f"(it drifts by {away:.2g} of the state's scale in one sample)"
        )
    A = _jacobian(plant, lambda step: drift(reference + step, equilibrium), len(reference))
    B = _jacobian(plant, lambda step: drift(reference, equilibrium + step), len(equilibrium))
    Q, R = np.eye(len(A)), np.eye(B.shape[1])
    try:
        P = solve_discrete_are(A, B, Q, R)
        gain = np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
    except np.linalg.LinAlgError:
        gain = np.full(B.T.shape, np.nan)
    if not np.isfinite(gain).all() or max(abs(np.linalg.eigvals(A - B @ gain))) >= 1.0:
        raise UserError(f"{plant.name} cannot be stabilised at its reference; it has no linear-quadratic regulator")
    return LinearQuadraticRegulator(plant, A, B, gain, reference, equilibrium)


def _equilibrium(plant: OdePlant) -> Float64Array:
    """Return the normalised action `[A]` nearest to mid-range that balances the plant at its reference state."""
    x, scale = np.array(plant.reference_state, np.float64), np.array(plant.state_scale)

    def slope(action: Float64Array) -> Float64Array:
        """Return the time derivative of the normalised state, `[..., S]`."""
        inputs = np.atleast_2d(plant.denormalise_action(action))
        slopes: Float64Array = np.array([plant.rhs(x, u, plant.params()) for u in inputs]) / scale
        return slopes.reshape(*action.shape[:-1], -1)

    action = np.zeros(len(plant.action_names))
    for _ in range(_NEWTON_STEPS):
        steps = _DIFFERENCE * np.eye(len(action))
        slopes = (slope(action + steps) - slope(action - steps)).T / (2.0 * _DIFFERENCE)
        if not np.isfinite(slopes).all():
            break
        # The smallest step that does it, as long as that step stays within the bounds.
        action = action + lsq_linear(slopes, -slope(action), (-1.0 - action - 1e-12, 1.0 - action + 1e-12)).x
    return np.clip(action, -1.0, 1.0)


def _jacobian(plant: OdePlant, drift: Callable[[Float64Array], Float64Array], inputs: int) -> Float64Array:
    """Return the derivative `[S, inputs]` of the drift after its step, all steps taken at once."""
    steps = _DIFFERENCE * np.eye(inputs)
    middle, ahead, behind = drift(np.zeros(inputs)), drift(steps), drift(-steps)
    kink = np.abs(ahead + behind - 2.0 * middle).max()
    if not kink <= _KINK * np.abs(ahead - behind).max():
        raise UserError(
            f"{plant.name} is not smooth at its reference, such as against a wall; it has no linear-quadratic regulator"
        )
    jacobian: Float64Array = ((ahead - behind) / (2.0 * _DIFFERENCE)).T
    return jacobian
