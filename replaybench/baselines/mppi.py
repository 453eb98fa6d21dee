"""Model predictive path integral control (MPPI), which samples sequences of actions and simulates them.

Source: Williams et al., Information Theoretic MPC for Model-Based Reinforcement Learning, ICRA 2017, algorithm 2. The
temperature is relative here, and samples have different spreads, so that one setting serves all plants.

It solves no equations and needs no grid, but it knows the plant's equations and reward. Learners do not know them.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from replaybench.baselines.fuzzy_q_iteration import reference_discount
from replaybench.envs.ode import rk4
from replaybench.envs.ode.plant import OdePlant
from replaybench.runtime import elementwise
from replaybench.runtime.arrays import Floats, Floats32
from replaybench.runtime.streams import Stream

_SEED: Final = 2018
HORIZON: Final = 0.6
"""Time for which sequences are simulated [s]."""
HOLD: Final = 0.04
"""Time for which a sampled deviation from the plan is held [s], rounded to control periods."""
SAMPLES: Final = 256
"""Number of sequences in each iteration."""
ITERATIONS: Final = 2
"""Number of iterations in each control step."""
TEMPERATURE: Final = 0.02
"""Temperature λ, as a share of the standard deviation of the returns of the samples."""
_SPREADS: Final = 1.0, 0.02
"""Largest and smallest standard deviation of sampled actions. Those of the samples are spaced geometrically between
them, so that large deviations find new plans and small ones hold a state quietly."""


class Mppi:
    """An MPPI controller of M copies of a plant, for one episode.

    In each iteration, it samples K sequences of actions around its plan, simulates them without noise from the observed
    state, and moves its plan to their mean, weighted by exp(R/λ) of their discounted returns R. Then it applies the
    first action of the plan.

    Args:
        plant: The plant, with equations and continuous actions.
        frequency: Control rate in Hz.
        members: Numbers of the M copies, which select their random streams.
        horizon: Time for which sequences are simulated [s].
        samples: Number K of sequences.
    """

    def __init__(
        self, plant: OdePlant, frequency: float, members: Sequence[int], *, horizon: float = HORIZON,
        samples: int = SAMPLES,
    ) -> None:  # fmt: skip
        self._plant, self._dt, self._discount = plant, 1.0 / frequency, reference_discount(plant, frequency)
        self._stream = Stream(_SEED, members, "sampled control")
        steps, self._hold = (max(1, round(seconds * frequency)) for seconds in (horizon, HOLD))
        self._spreads = np.geomspace(*_SPREADS, samples)[:, None, None]
        self._plan = np.tile(plant.normalise_action(plant.zero_action), (len(members), steps, 1))

    def act(self, observation: Floats32 | Floats) -> Floats32:
        """Return the actions, float32 `[M, A]`, for the next normalised observations `[M, S]`."""
        states = self._plant.denormalise_state(observation[:, : len(self._plant.state_names)])
        for _ in range(ITERATIONS):
            self._improve(states)
        action: Floats32 = self._plan[:, 0].astype(np.float32)
        self._plan = np.concatenate([self._plan[:, 1:], self._plan[:, -1:]], axis=1)
        return action

    def _improve(self, states: Floats) -> None:
        """Move the plans `[M, H, A]` towards sampled sequences with high returns from physical states `[M, S]`."""
        (members, steps, actions), samples = self._plan.shape, len(self._spreads)
        held = -(-steps // self._hold)
        noise = self._stream.normal(samples * held * actions).reshape(members, samples, held, actions)
        noise = self._spreads * np.repeat(noise, self._hold, axis=2)[:, :, :steps]
        trials = np.clip(self._plan[:, None] + noise, -1.0, 1.0)
        trials[:, 0] = self._plan  # the plan itself is one of the samples
        starts = np.repeat(states, samples, axis=0)
        returns = self._returns(starts, trials.reshape(-1, steps, actions)).reshape(members, samples)
        scale = np.maximum(TEMPERATURE * returns.std(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        weights = elementwise.exp((returns - returns.max(axis=1, keepdims=True)) / scale)
        self._plan = np.einsum("mk,mkta->mta", weights / weights.sum(axis=1, keepdims=True), trials)

    def _returns(self, states: Floats, trials: Floats) -> Floats:
        """Return the discounted returns `[N]` of N sequences of normalised actions `[N, H, A]` from states `[N, S]`."""
        total, weight = np.zeros(len(states)), np.ones(len(states))
        count = rk4.substeps(self._plant, self._dt)
        for step in range(trials.shape[1]):
            inputs = np.ascontiguousarray(self._plant.denormalise_action(trials[:, step]))
            reward, terminated = rk4.advance(self._plant, states, inputs, self._dt, count)
            total += weight * reward
            weight *= self._discount * ~terminated
        return np.nan_to_num(total, nan=-1e300)
