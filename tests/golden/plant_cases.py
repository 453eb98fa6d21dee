"""Golden runs of plants: all that are registered, the examples of users' own, and one of every further form.

Two members move under random actions and noise. What is measured is each step's rewards, and the observations and true
states of each step as sums in which every entry has a factor of its own. Where others' packages move a plant, their
versions are stored: numbers of one version are not those of another.
"""

import contextlib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import make_plant, missing, plant_names
from tests.golden.golden_store import WITH, Measured

EXAMPLES = Path(__file__).parents[2] / "replaybench" / "examples"
MEMBERS, STEPS = 2, 12
ENGINES = {
    "MujocoPlant": ("mujoco",),
    "SuitePlant": ("mujoco", "dm_control"),
    "BulletPlant": ("pybullet",),
    "GymnasiumPlant": ("gymnasium",),
}
"""The packages that move plants, by the classes that stand for them."""

CASES: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in plant_names()}
"""Plant and its parameters, by case."""
CASES |= {
    "CartPole": (f"{EXAMPLES / 'cart_pole.py'}:CartPole", {}),
    "Segway": (f"{EXAMPLES / 'segway.py'}:Segway", {}),
    "TwoTank, a Python function": (f"{EXAMPLES / 'two_tank.py'}:TwoTank", {}),
    "Gymnasium": ("gymnasium:Pendulum-v1", {}),
    "Gymnasium, choices": ("gymnasium:CartPole-v1", {}),
    "Drafting, free wake": (
        "Drafting",
        {"fidelity": "free-wake", "load_spread": 0.2, "phase_noise": 0.03, "reading_noise": 0.2},
    ),
    "Drafting, Navier-Stokes": ("Drafting", {"fidelity": "navier-stokes", "cells": 8}),
}


def lacking(case: str) -> str:
    """Return what must be installed before a case can be run; empty if nothing."""
    name = CASES[case][0]
    return missing(name) if name in plant_names() else ""


def told(values: Any) -> list[float]:
    """Return a sum per step of what each `[M, S]` of the steps holds, every entry with a factor of its own."""
    flat = np.array(values, np.float64).reshape(len(values), -1)
    return list(flat @ (1 + np.arange(flat.shape[1]) / flat.shape[1]))


def measure(case: str) -> Measured:
    """Run a case."""
    name, parameters = CASES[case]
    plant = make_plant(name, **parameters)
    engines = [engine for kind in type(plant).__mro__ for engine in ENGINES.get(kind.__name__, ())]
    rng = np.random.Generator(np.random.PCG64(7))
    with contextlib.closing(PopulationEnv(plant, MEMBERS, sensor_noise=0.02, actuator_noise=0.05)) as env:
        observation, info = env.reset()
        observations, states, rewards = [observation], [info["true_state"]], []
        for _ in range(STEPS):
            action = rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)
            observation, reward, _, _, info = env.step(action)
            observations.append(observation)
            states.append(info["true_state"])
            rewards.append(reward)
    return {
        **{f"{WITH}{engine} {version(engine)}": [] for engine in engines},
        "observation": told(observations),
        "state": told(states),
        "reward": np.ravel(rewards),
    }
