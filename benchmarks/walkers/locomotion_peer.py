"""Stable-Baselines3's SAC and TD3 on Gymnasium's locomotion tasks, for the curves that stand beside ours.

    python benchmarks/walkers/locomotion_peer.py Hopper-v5 --output benchmarks/results/locomotion/sb3-Hopper.csv
    python benchmarks/walkers/locomotion_peer.py Hopper-v5 --learner td3 --seeds 6 --steps 300_000 --output FILE.csv

SAC's settings are those of `benchmarks/studies/locomotion/locomotion.toml`, TD3's those of
`benchmarks/studies/locomotion/locomotion-long.toml`. Both have torch's fused Adam, which is faster and rounds
otherwise; SAC's stored curves were made without. A row is one finished training episode (`greedy` 0), or one of the
ten greedy episodes after each seed's last step (`greedy` 1). Seeds that the file already holds are not run again.
"""

import argparse
import csv
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.noise import NormalActionNoise

COLUMNS = ("seed", "greedy", "step", "length", "return")
GREEDY = 10


class Episodes(BaseCallback):
    """Collects (step, length, return) of every finished episode."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int, int, float]] = []

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                self.rows.append((self.num_timesteps, int(info["episode"]["l"]), float(info["episode"]["r"])))
        return True


def off_policy(learner: type[SAC | TD3], task: str, seed: int, steps: int, **own: Any) -> tuple[BaseAlgorithm, Monitor]:
    """Return an untrained learner and the task to evaluate it on, with what is of its `own`."""
    model = learner(
        "MlpPolicy",
        Monitor(gymnasium.make(task)),
        learning_rate=1e-3,
        buffer_size=steps,
        learning_starts=1000,
        batch_size=64,
        tau=0.005,
        gamma=0.99,
        policy_kwargs={"net_arch": [64, 64], "optimizer_kwargs": {"fused": True}},
        seed=seed,
        device="cpu",
        **own,
    )
    return model, Monitor(gymnasium.make(task))


def sac(task: str, seed: int, steps: int) -> tuple[BaseAlgorithm, Monitor]:
    """Return SAC with an entropy coefficient that is learned."""
    return off_policy(SAC, task, seed, steps, ent_coef="auto")


def td3(task: str, seed: int, steps: int) -> tuple[BaseAlgorithm, Monitor]:
    """Return TD3 with Gaussian noise of 0.1 in each action."""
    shape = gymnasium.make(task).action_space.shape
    noise = NormalActionNoise(np.zeros(shape), np.full(shape, 0.1))
    return off_policy(TD3, task, seed, steps, action_noise=noise)


LEARNERS = {"sac": sac, "td3": td3}


def train(learner: str, task: str, seed: int, steps: int) -> list[tuple[int, int, int, int, float]]:
    """Run one seed and return its rows."""
    model, evaluated = LEARNERS[learner](task, seed, steps)
    episodes = Episodes()
    model.learn(steps, callback=episodes)
    returns, lengths = evaluate_policy(model, evaluated, GREEDY, return_episode_rewards=True)
    rows = [(seed, 0, *row) for row in episodes.rows]
    return rows + [(seed, 1, steps, length, value) for length, value in zip(lengths, returns, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task")
    parser.add_argument("--learner", choices=LEARNERS, default="sac")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--output", type=Path, required=True)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    known: set[int] = set()
    if chosen.output.is_file():
        with chosen.output.open(newline="") as file:
            known = {int(row["seed"]) for row in csv.DictReader(file)}
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    for seed in sorted(set(range(chosen.first, chosen.first + chosen.seeds)) - known):
        rows = train(chosen.learner, chosen.task, seed, chosen.steps)
        with chosen.output.open("a", newline="") as file:
            writer = csv.writer(file)
            if file.tell() == 0:
                writer.writerow(COLUMNS)
            writer.writerows(rows)


if __name__ == "__main__":
    main()
