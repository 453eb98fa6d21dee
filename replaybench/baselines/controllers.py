"""Reference controllers: linear-quadratic, dynamic programming, random and zero control.

Normalised scores μ_r are 0 for random control and 1 for greedy control by dynamic programming. The greedy controller
treats observations as states, so μ_r can exceed 1 under noise (de Bruin et al., 2018, appendix C).
`averaged_over_noise` and `PredictingController` use the same solution and take noise and delays into account.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.linalg import solve_discrete_are
from scipy.optimize import lsq_linear

from replaybench.baselines.fuzzy_q_iteration import Solution
from replaybench.envs.interface.plant import Plant
from replaybench.envs.interface.signals import short_way, wrap
from replaybench.envs.ode import rk4
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.population import PopulationEnv
from replaybench.runtime.arrays import Floats, Floats32
from replaybench.runtime.configuration import HERTZ
from replaybench.runtime.errors import UserError
from replaybench.runtime.streams import Stream

_HELD = 1e-6
"""Largest drift of the normalised state in one control period at which a plant counts as held at its reference."""
_NEWTON_STEPS = 10
_DIFFERENCE = 1e-4
"""Step of numerical differentiation, in normalised units."""
_KINK = 0.01
"""Largest relative difference of one-sided derivatives at which the plant counts as smooth."""


@dataclass(frozen=True, eq=False)
class LinearQuadraticRegulator:
    """A linear-quadratic regulator that holds a plant at its reference state z₀.

    It applies a = a₀ − K (z − z₀), clipped to [−1, 1]. The state z and the action a are normalised. Differences of
    angles are wrapped. The weights of the quadratic cost are identity matrices.

    Attributes:
        plant: The plant.
        A: Derivative of z after one control period with respect to z, shape `[S, S]` for S states.
        B: Derivative of z after one control period with respect to a, shape `[S, A]` for A actions.
        gain: Feedback gain K, shape `[A, S]`.
        reference: Reference state z₀, shape `[S]`.
        equilibrium: Action a₀ that holds the plant at z₀, shape `[A]`.
    """

    plant: OdePlant
    A: Floats
    B: Floats
    gain: Floats
    reference: Floats
    equilibrium: Floats

    def act(self, observation: Floats | Floats32) -> Floats32:
        """Return the actions, float32 `[M, A]`, for M normalised observations `[M, S]` of all states."""
        error = short_way(
            np.asarray(observation, np.float64) - self.reference, self.plant.periodic, self.plant.state_scale
        )
        action = np.clip(self.equilibrium - error @ self.gain.T, -1.0, 1.0)
        return action.astype(np.float32)


def linear_quadratic_regulator(plant: OdePlant, frequency: float = 50.0) -> LinearQuadraticRegulator:
    """Design the linear-quadratic regulator of a plant at a control rate in Hz.

    Raises:
        UserError: The plant has discrete actions, or cannot be linearised, held or stabilised at its reference state.
    """
    A, B, equilibrium = linearised(plant, frequency)
    return LinearQuadraticRegulator(
        plant, A, B, quadratic_gain(plant, A, B), plant.normalise_state(plant.reference_state), equilibrium
    )


def linearised(plant: OdePlant, frequency: float) -> tuple[Floats, Floats, Floats]:
    """Return the matrices A and B of `LinearQuadraticRegulator`, and the action a₀ that holds the reference state.

    Raises:
        UserError: The plant has discrete actions, or cannot be linearised or held at its reference state.
    """
    if plant.action_choices:
        raise UserError(f"{plant.name} takes choices, between which there is nothing to linearise")
    HERTZ.check(frequency, "frequency")
    reference = plant.normalise_state(plant.reference_state)

    def drift(state: Floats, action: Floats) -> Floats:
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
    return A, B, equilibrium


def quadratic_gain(plant: OdePlant, A: Floats, B: Floats) -> Floats:
    """Return the stabilising feedback gain `[A, S]` for identity weights, or raise `UserError` if there is none."""
    Q, R = np.eye(len(A)), np.eye(B.shape[1])
    try:
        P = solve_discrete_are(A, B, Q, R)
        gain = np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
    except np.linalg.LinAlgError:
        gain = np.full(B.T.shape, np.nan)
    if not np.isfinite(gain).all() or max(abs(np.linalg.eigvals(A - B @ gain))) >= 1.0:
        raise UserError(f"{plant.name} cannot be stabilised at its reference; it has no linear-quadratic regulator")
    return gain


def _equilibrium(plant: OdePlant) -> Floats:
    """Return the normalised action, as near as possible to 0, that balances a plant at its reference state."""
    x, scale = np.array(plant.reference_state, np.float64), np.array(plant.state_scale)[: plant.equations]

    def slope(action: Floats) -> Floats:
        inputs = np.atleast_2d(plant.denormalise_action(action))
        slopes: Floats = np.array([plant.rhs(x, u, plant.params()) for u in inputs]) / scale
        return slopes.reshape(*action.shape[:-1], -1)

    action = np.zeros(len(plant.action_names))
    for _ in range(_NEWTON_STEPS):
        steps = _DIFFERENCE * np.eye(len(action))
        slopes = (slope(action + steps) - slope(action - steps)).T / (2.0 * _DIFFERENCE)
        if not np.isfinite(slopes).all():
            break
        # A least-squares Newton step that stays within the bounds.
        action = action + lsq_linear(slopes, -slope(action), (-1.0 - action - 1e-12, 1.0 - action + 1e-12)).x
    return np.clip(action, -1.0, 1.0)


def _jacobian(plant: OdePlant, drift: Callable[[Floats], Floats], inputs: int) -> Floats:
    """Return the numerical derivative of the function `drift` at 0, shape `[S, inputs]`."""
    steps = _DIFFERENCE * np.eye(inputs)
    middle, ahead, behind = drift(np.zeros(inputs)), drift(steps), drift(-steps)
    kink = np.abs(ahead + behind - 2.0 * middle).max()
    if not kink <= _KINK * np.abs(ahead - behind).max():
        raise UserError(
            f"{plant.name} is not smooth at its reference, such as against a wall; it has no linear-quadratic regulator"
        )
    jacobian: Floats = ((ahead - behind) / (2.0 * _DIFFERENCE)).T
    return jacobian


Controller = Callable[[Floats32], Floats32]
"""A function that returns actions `[M, A]` in [−1, 1] for normalised observations `[M, S]`. Both are float32."""


Policy = Callable[[Floats | Floats32], Floats32]
"""A function that returns actions `[M, A]` for normalised states `[M, S]`, which need not be float32."""


class RandomController:
    """A controller with uniformly random actions. Its mean score defines the normalised score μ_r = 0."""

    def __init__(self, plant: Plant, members: Sequence[int], seed: int = 0) -> None:
        self._stream = Stream(seed, members, "random controller")
        self._actions = len(plant.action_names)
        self._choices = np.array(plant.action_choices, np.int64)

    def act(self, observation: Floats32) -> Floats32:
        """Return a random action for each of M members, float32 `[M, A]`."""
        share = self._stream.uniform(self._actions)
        if self._choices.size:  # rounding would give the first and the last choice half the probability of the others
            share = np.floor(share * self._choices) / (self._choices - 1)
        return (2.0 * share - 1.0).astype(np.float32)


def zero_control(plant: Plant) -> Controller:
    """Return a controller that always applies the plant's `zero_action`."""
    zero = plant.normalise_action(plant.zero_action).astype(np.float32)
    return lambda observation: np.tile(zero, (len(observation), 1))


def unaware(plant: Plant, policy: Policy) -> Controller:
    """Return a controller that takes readings as the state in which its command acts, without past commands."""
    return lambda observation: policy(observation[:, : len(plant.state_names)])


def run_episode(controller: Controller, env: PopulationEnv, started: Floats32 | None = None) -> Floats:
    """Run one episode of each of M members, and return the scores `[M]`, not normalised.

    `started` contains the first observations `[M, S]` if the episodes have already begun.
    """
    observation = env.reset()[0] if started is None else started
    total, steps = np.zeros(env.num_envs), np.zeros(env.num_envs, np.int64)
    running = np.ones(env.num_envs, np.bool_)
    while running.any():
        observation, reward, terminated, truncated, _ = env.step(controller(observation))
        total += reward
        steps += running
        running = ~(terminated | truncated)
    return env.plant.episode_score(total, steps)


OBSERVER_GAIN: Final = 0.2
"""Gain of the observer: the fraction of the prediction error that is added to the predicted state at each step."""
_QUADRATURE: Final = 7  # nodes of Gauss-Hermite quadrature on each axis


def averaged_over_noise(solution: Solution, noise: Floats) -> Solution:
    """Return a copy of a solution of dynamic programming with action values Q averaged over the sensor noise.

    The new values are Q̄(z, a) = E[Q(z − ε, a)]. The noise ε of each normalised state has the distribution N(0, σ²),
    with its standard deviation σ in `noise` `[S]`. A priori, all states are assumed to be equally likely.
    """
    grid, points = solution.grid, solution.grid.points()
    places, weights = np.polynomial.hermite_e.hermegauss(_QUADRATURE)
    theta = solution.theta
    for axis in np.flatnonzero(noise):
        averaged = np.zeros_like(theta)
        for place, weight in zip(places, weights / weights.sum(), strict=True):
            moved = points.copy()
            moved[:, axis] += place * noise[axis] * solution.plant.state_scale[axis]
            averaged += weight * grid.interpolate(theta, moved)
        theta = averaged
    return dataclasses.replace(solution, theta=theta)


class PredictingController:
    """A controller for one episode that acts on the state in which its next command begins to act.

    Until then, the plant's equations are integrated with the commands that are under way. The settings of the channel
    are known, except for noise, jitter and disturbance. Without delay, the state is that of the last sample. A policy
    that is optimal without delay thus stays optimal for a deterministic plant and a delay of whole control periods.

    With an observer, the state of the last sample is estimated as x̂ = f(x̂, u) + L (z − f(x̂, u)), in the first step as
    z. f is the plant without noise, u the acting command, z the reading in physical units, and L the gain
    `OBSERVER_GAIN`.

    Args:
        plant: The plant with its channel.
        frequency: Control rate in Hz.
        policy: Controller of the plant without channel, a function of all normalised states.
        observer: Whether to estimate the state by an observer instead of taking the readings.
    """

    def __init__(self, plant: OdePlant, frequency: float, policy: Policy, observer: bool = False) -> None:
        self._plant, self._policy, self._observer = plant, policy, observer
        self._dt = 1.0 / frequency
        self._whole, self._rest = plant.channel.periods(self._dt)
        self._age, self._samples = plant.channel.sensor_periods(self._dt), 0
        self._sent: list[Floats] = []  # acting commands in physical units, the newest first
        self._acting = plant.normalise_action(plant.zero_action)  # the newest of them, normalised
        self._estimate: Floats | None = None

    def act(self, observation: Floats32) -> Floats32:
        """Return the actions, float32 `[M, A]`, for the next normalised observations of M episodes."""
        plant, rest, dt = self._plant, self._rest, self._dt
        state = plant.denormalise_state(observation[:, : len(plant.state_names)])
        if not self._sent:
            neutral = np.tile(np.array(plant.zero_action, np.float64), (len(state), 1))
            self._sent = [neutral] * (self._whole + self._age + 2)
        age = min(self._samples, self._age)  # the first readings are all of the initial state
        oldest = self._whole + age  # place in `_sent` of the command that acts at the time of the reading
        if self._observer and self._estimate is not None and self._samples > age:
            since = [(oldest + 1, rest), (oldest, dt - rest)] if rest else [(oldest, dt)]
            predicted = self._advanced(self._estimate, since)
            error = state - predicted
            gain = np.where(np.arange(len(plant.periodic)) < plant.equations, OBSERVER_GAIN, 1.0)  # set points jump
            state = predicted + gain * np.where(plant.periodic, wrap(error), error)
        self._estimate, self._samples = state, self._samples + 1
        under_way = [(oldest, rest)] * (rest > 0) + [(place, dt) for place in range(oldest - 1, -1, -1)]
        action = self._policy(plant.normalise_state(self._advanced(state, under_way)))
        self._send(action)
        return action

    def _advanced(self, state: Floats, commands: Sequence[tuple[int, float]]) -> Floats:
        """Return the states `[M, S]` after commands have acted, given by their places in `_sent` and times [s]."""
        for place, seconds in commands:
            state, _, _ = rk4.simulate(self._plant, state, self._sent[place], seconds)
        return state

    def _send(self, action: Floats32) -> None:
        channel, command = self._plant.channel, np.asarray(action, np.float64)
        moved = np.where(np.abs(command) <= channel.dead_zone, 0.0, command - np.copysign(channel.dead_zone, command))
        if channel.rate_limit is not None:
            most = channel.rate_limit * self._dt
            moved = np.clip(moved, self._acting - most, self._acting + most)
        self._acting = moved
        self._sent = [self._plant.denormalise_action(moved), *self._sent[:-1]]


def predicting(plant: OdePlant, frequency: float, policy: Policy, observer: bool = False) -> Controller:
    """Return a controller for one episode that acts by a policy of states, with prediction if there is a channel."""
    if plant.channel.is_off and not observer:
        return policy
    return PredictingController(plant, frequency, policy, observer).act
