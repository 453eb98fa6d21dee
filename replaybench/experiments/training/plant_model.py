"""What synthetic experiences are made of: the plant's own model, and the policy that is learning.

Neither the replay wing nor the learners know plants; this is handed over by the cell.
"""

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
        """Return uniform actions `[M, A]` as they are, or each part's level in their place where there are choices.

        All levels are as likely then; the nearest would be half as likely at both ends.
        """
        # Only those with choices are asked for their form: a learner of one's own need not have one to be trained.
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

        The plant gets clip(action), as it does from the environment.
        """
        plant = with_equations(self.env.plant, "Synth")
        state, u = plant.denormalise_state(observation), plant.denormalise_action(np.clip(action, -1.0, 1.0))
        after, reward, terminated = rk4.simulate(plant, state, u, self.env.dt)
        return plant.normalise_state(after), reward, terminated

    def explore(self, observation: Floats) -> Explored:
        """Return the policy's action with the exploration of the present step, ‖a − π‖₁, and what else to store."""
        return self.agent.re_explore(observation)

    def deviation(self, observation: Floats, action: Floats) -> Floats:
        """Return ‖a − π(s)‖₁ `[M]`."""
        return np.asarray(np.abs(action - self.agent.act(observation)).sum(axis=1), np.float32)
