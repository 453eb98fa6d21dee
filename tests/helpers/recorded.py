"""Recordings as tests need them: what random control meets on a plant, and buffer files that hold it."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.baselines.controllers import RandomController
from replaybench.data.record import write_record
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.pendulum import Pendulum
from replaybench.envs.population import PopulationEnv

Arrays = dict[str, NDArray[Any]]


def collect(plant: Plant, episodes: int, members: int = 2, noise: float = 0.01, frequency: float = 50.0) -> Arrays:
    """Return everything that random control meets, as `sweep` stores it in a FULL buffer."""
    numbers = range(members)
    env = PopulationEnv(plant, members, frequency=frequency, sensor_noise=noise, actuator_noise=noise, members=numbers)
    controller = RandomController(plant, numbers)
    rows: dict[str, list[Any]] = {
        name: [] for name in ("observation", "action", "reward", "next_observation", "terminated", "episode", "step")
    }
    for episode in range(episodes):
        observation, _ = env.reset()
        for step in range(env.steps_per_episode):
            action = controller.act(observation)
            follows, reward, terminated, _, _ = env.step(action)
            kept = (observation, action, reward[:, None], follows, terminated[:, None])
            for name, value in zip(rows, (*kept, np.full(members, episode), np.full(members, step)), strict=True):
                rows[name].append(value)
            observation = follows
    total = len(rows["step"])
    arrays = {name: np.stack(values, axis=1) for name, values in rows.items()}
    fields = {name: a.astype(np.uint32 if name in ("episode", "step") else np.float32) for name, a in arrays.items()}
    return {
        **fields,
        "serial": np.tile(np.arange(1, total + 1, dtype=np.uint32), (members, 1)),
        "exploration": np.full((members, total, 1), 0.25, np.float32),
        **{name: np.full(members, total) for name in ("count", "offers", "collected")},
    }


def buffer(path: Path, arrays: Arrays, plant: Plant | None = None, **facts: Any) -> Path:
    plant = plant or Pendulum()
    about = {
        "source": "sweep",
        "plant": plant.name,
        "parameters": dataclasses.asdict(plant),
        "plant_fingerprint": plant.fingerprint(),
        "frequency": 50.0,
        "noise": 0.01,
        "strategy": "FULL[PER]",
        "fields": {name: array.shape[-1] for name, array in arrays.items() if array.ndim == 3},
        "cell": {"learner": "DDPG", "settings": {}},
    }
    write_record(path, "buffer", {**about, **facts}, arrays)
    return path
