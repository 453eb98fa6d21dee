"""Model for synthetic experiences: the plant's equations and the policies that are learning."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.exploration.process_noise import Explored
from replaybench.controllers.learner import Learner
from replaybench.envs.ode import rk4
from replaybench.envs.ode.plant import with_equations
from replaybench.envs.population import PopulationEnv

Floats = NDArray[np.float32]


class PlantModel:
    """The noise-free model of a population's plant, and its agents' policies."""

    def __init__(self, env: PopulationEnv, agent: Learner) -> None:
        self.env, self.agent = env, agent

    def possible(self, action: Floats) -> Floats:
        """Map uniform actions `[M, A]` to the learner's levels, all as likely; without levels return them unchanged.

        Rounding to the nearest level would make both ends half as likely.
        """
        # Only discrete learners need a policy form.
        table = self.agent.policy_form().table if self.agent.discrete else None
        if table is None:
            return action
        chosen = np.empty_like(action)
        for a, levels in enumerate(map(np.unique, table.T)):
            place = ((action[:, a] + 1) / 2 * len(levels)).astype(np.int64)
            chosen[:, a] = levels[np.clip(place, 0, len(levels) - 1)]
        return chosen

    def simulate(
        self, observation: Floats, action: Floats
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
        """Return next observation `[M, S]`, unscaled reward `[M]` and terminated `[M]`, without noise.

        Actions are clipped, as in the environment.
        """
        plant = with_equations(self.env.plant, "Synth")
        state, u = plant.denormalise_state(observation), plant.denormalise_action(np.clip(action, -1.0, 1.0))
        after, reward, terminated = rk4.simulate(plant, state, u, self.env.dt)
        return plant.normalise_state(after), reward, terminated

    def explore(self, observation: Floats) -> Explored:
        """Return the action with the exploration of the current step, ‖a − π‖₁, and extra fields to store."""
        return self.agent.re_explore(observation)

    def deviation(self, observation: Floats, action: Floats) -> Floats:
        """Return ‖a − π(s)‖₁ `[M]`."""
        return np.asarray(np.abs(action - self.agent.act(observation)).sum(axis=1), np.float32)
