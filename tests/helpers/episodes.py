"""Episodes under controllers, apart from references."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from replaybench.baselines.controllers import Controller, run_episode
from replaybench.envs.interface.plant import Plant
from replaybench.envs.population import PopulationEnv


def episode_rewards(
    controller: Controller,
    plant: Plant,
    frequency: float,
    noise: float = 0.0,
    members: Sequence[int] = (0,),
    seed: int = 0,
) -> np.ndarray:
    """Return the scores of one episode per member `[M]`, with noise of sensors and actuators."""
    settings: dict[str, Any] = {"frequency": frequency, "sensor_noise": noise, "actuator_noise": noise, "seed": seed}
    return run_episode(controller, PopulationEnv(plant, len(members), members=members, role="evaluation", **settings))
