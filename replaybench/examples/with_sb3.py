"""Train TD3 of Stable-Baselines3 with replaybench's buffers on two pendulums. Run: python examples/with_sb3.py

By default this takes seconds. Pendulum-v1 needs about `--steps 10000`. Install `pip install "replaybench[sb3]"` first.
"""

import argparse

import gymnasium
import numpy as np
import torch
from stable_baselines3 import TD3
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.noise import NormalActionNoise

import replaybench.envs  # noqa: F401 (registers replaybench's plants with Gymnasium)
from replaybench import StrategyReplayBuffer, StrategyTD3

PLANTS = {"replaybench/PendulumDCSC-v0": (0.95, 0.01), "Pendulum-v1": (0.99, 1.0)}
"""Discount factor, and factor on the learner's reward, of each plant."""


def learn(plant: str, strategy: str, steps: int, seed: int = 1) -> float:
    """Train TD3 for `steps` steps, and return the mean return of three greedy episodes."""
    discount, scale = PLANTS[plant]
    env = gymnasium.wrappers.TransformReward(gymnasium.make(plant), lambda reward: scale * float(reward))
    common = {
        "learning_starts": min(500, steps // 2),
        "buffer_size": 5000,
        "batch_size": 64,
        "gamma": discount,
        "action_noise": NormalActionNoise(np.zeros(1), np.full(1, 0.1)),
        "policy_kwargs": {"net_arch": [64, 64]},
        "seed": seed,
        "device": "cpu",
    }
    model: TD3
    if strategy == "Resv[Uniform]":
        # Sampling does not depend on the learner, so only the class of the buffer changes.
        buffer = {"strategy": strategy, "seed": seed}
        model = TD3("MlpPolicy", env, replay_buffer_class=StrategyReplayBuffer, replay_buffer_kwargs=buffer, **common)  # type: ignore[arg-type]
    else:
        # Sampling depends on TD errors, and the loss on weights, so the class of the learner changes.
        model = StrategyTD3("MlpPolicy", env, replay_buffer_kwargs={"strategy": strategy}, **common)  # type: ignore[arg-type]
    model.learn(steps)
    return float(np.mean(evaluate_policy(model, gymnasium.make(plant), n_eval_episodes=3, warn=False)[0]))


def main(steps: int = 300) -> dict[tuple[str, str], float]:
    """Train on both plants with two strategies each, and print the returns."""
    returns = {}
    for plant in PLANTS:
        for strategy in ("Resv[Uniform]", "FIFO[PER+IS]"):
            returns[plant, strategy] = learn(plant, strategy, steps)
            print(f"{plant:28} {strategy:14} return after {steps} steps: {returns[plant, strategy]:8.0f}")
    return returns


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--steps", type=int, default=300, help="steps of each run")
    torch.set_num_threads(1)  # such small networks are slower with more threads
    main(arguments.parse_args().steps)
