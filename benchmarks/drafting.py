"""What drafting saves: python benchmarks/drafting.py [GENERATIONS]

Two controllers hold an ellipse in place, both in the equations of the vortex-wake plant. One stands in the free stream
and pushes against its own drag; the other is a linear policy on the 14 observations, found in the cylinder's wake by
an evolution strategy over whole populations. The result, with the policy, goes to `benchmarks/results/flow/`.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg

from replaybench.envs.flow_body import SKIN_FRICTION, move
from replaybench.envs.flow_table import wake_table
from replaybench.envs.population import PopulationEnv

RESULTS = Path(__file__).parent / "results" / "flow"
STEPS = 400
CANDIDATES, EPISODES = 32, 32
EVALUATED = 1024


def rollout(env: PopulationEnv, weights: np.ndarray, steps: int = STEPS) -> tuple[np.ndarray, np.ndarray]:
    """Run an episode per member under linear policies `[K, 3, 15]` or one `[3, 15]`, the last column a constant.

    Each of K policies runs `M / K` members, from the same starts as every other.

    Returns:
        The actuation summed over the episode and the number of actions before leaving, each `[M]`.
    """
    observation, _ = env.reset()
    policies, episodes = len(weights) if weights.ndim == 3 else 1, env.num_envs
    if policies > 1:
        episodes //= policies
        shared = {name: np.concatenate([a[:episodes]] * policies) for name, a in env.get_state().items()}
        env.set_state(shared)
        observation = shared["observation"]
    gains = weights.reshape(policies, 3, -1).swapaxes(1, 2).astype(np.float32)
    cost, lived = np.zeros(env.num_envs), np.zeros(env.num_envs)
    alive = np.ones(env.num_envs, np.bool_)
    for _ in range(steps):
        action = observation.reshape(policies, episodes, -1) @ gains[:, :-1] + gains[:, -1:]
        observation, _, terminated, _, info = env.step(action.reshape(-1, 3))
        cost += np.where(alive, info["actuation"], 0.0)
        alive &= ~terminated
        lived += alive
        if not alive.any():
            break
    return cost, lived


def uniform() -> np.ndarray:
    """Return a table like the wake's that holds nothing but the stream."""
    table = np.zeros_like(wake_table()).reshape(-1, 4)
    table[:, 0] = 1.0
    return table.ravel()


def station_keeper(env: PopulationEnv) -> np.ndarray:
    """Return the linear-quadratic regulator to (2, 0), edge-on, of the sampled motion in the free stream, `[3, 15]`."""
    plant, table = env.plant, uniform()
    units = np.array(plant.forces)  # type: ignore[attr-defined]
    drag = np.array([-SKIN_FRICTION, 0.0, 0.0])
    rest = np.array([2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0])

    def after(state: np.ndarray, action: np.ndarray) -> np.ndarray:
        state = np.concatenate([state, rest[6:]])[None]
        move(state, 0, *(units * action + drag), (-9.0, 9.0, 9.0), 1.0, 20, table)
        return state[0, :6]

    h, still = 1e-5, np.zeros(3)
    columns = [(after(rest[:6] + h * e, still) - after(rest[:6] - h * e, still)) / (2 * h) for e in np.eye(6)]
    inputs = [(after(rest[:6], h * e) - after(rest[:6], -h * e)) / (2 * h) for e in np.eye(3)]
    A, B = np.array(columns).T, np.array(inputs).T
    P = scipy.linalg.solve_discrete_are(A, B, 0.01 * np.eye(6), np.eye(3))
    gains = np.linalg.solve(np.eye(3) + B.T @ P @ B, B.T @ P @ A)
    half, scale, center = plant.action_range()[1], np.array(plant.state_scale), np.array(plant.state_center)
    policy = np.zeros((3, 15))
    policy[:, :6] = -gains * scale[:6] / half[:, None]
    policy[:, -1] = (drag / units + gains @ (rest[:6] - center[:6])) / half
    return policy


def free_stream(env: PopulationEnv) -> dict[str, Any]:
    """Hold station where there is no wake: the same engine, its table filled with the uniform stream."""
    engine: Any = env._engine
    engine._table = uniform()
    found = told(*rollout(env, station_keeper(env)))
    engine._table = wake_table()
    return {**found, "closed form": (SKIN_FRICTION / env.plant.forces[0]) ** 2}  # type: ignore[attr-defined]


def told(cost: np.ndarray, lived: np.ndarray) -> dict[str, Any]:
    whole = lived == STEPS
    return {
        "cost per step": float(cost.sum() / np.maximum(lived, 1).sum()),
        "cost per step of whole episodes": float(cost[whole].mean() / STEPS) if whole.any() else None,
        "whole episodes": f"{int(whole.sum())} of {len(lived)}",
        "median length": float(np.median(lived)),
    }


class Evolution:
    """Covariance-matrix adaptation, as in Hansen's tutorial (2016), of a vector of n numbers.

    Args:
        mean: where to start `[n]`.
        sigma: step size to start with.
        rng: generator of the candidates.
    """

    def __init__(self, mean: np.ndarray, sigma: float, rng: np.random.Generator) -> None:
        self.mean, self.sigma, self.rng = mean, sigma, rng
        self.n, parents = mean.size, CANDIDATES // 2
        shares = np.log(parents + 0.5) - np.log(np.arange(1, parents + 1))
        self.shares = shares / shares.sum()
        n, mass = self.n, 1.0 / (self.shares**2).sum()
        self.c_step, self.c_path = (mass + 2) / (n + mass + 5), (4 + mass / n) / (n + 4 + 2 * mass / n)
        self.c_one = 2 / ((n + 1.3) ** 2 + mass)
        self.c_many = min(1 - self.c_one, 2 * (mass - 2 + 1 / mass) / ((n + 2) ** 2 + mass))
        self.damping = 1 + 2 * max(0.0, math.sqrt((mass - 1) / (n + 1)) - 1) + self.c_step
        self.mass, self.expected = mass, math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n))
        self.covariance, self.path_step, self.path = np.eye(n), np.zeros(n), np.zeros(n)

    def ask(self) -> np.ndarray:
        """Return candidates `[CANDIDATES, n]`."""
        values, self.basis = np.linalg.eigh(self.covariance)
        self.lengths = np.sqrt(np.maximum(values, 1e-20))
        self.drawn = self.rng.standard_normal((CANDIDATES, self.n)) @ (self.basis * self.lengths).T
        return self.mean + self.sigma * self.drawn

    def tell(self, worth: np.ndarray) -> None:
        """Learn how good each of the last candidates is."""
        best = self.drawn[np.argsort(-worth)[: self.shares.size]]
        move = self.shares @ best
        self.mean = self.mean + self.sigma * move
        whitened = self.basis @ ((self.basis.T @ move) / self.lengths)
        self.path_step *= 1 - self.c_step
        self.path_step += math.sqrt(self.c_step * (2 - self.c_step) * self.mass) * whitened
        length = float(np.linalg.norm(self.path_step)) / self.expected
        self.path *= 1 - self.c_path
        self.path += (length < 1.5) * math.sqrt(self.c_path * (2 - self.c_path) * self.mass) * move
        self.covariance *= 1 - self.c_one - self.c_many
        self.covariance += self.c_one * np.outer(self.path, self.path) + self.c_many * (self.shares * best.T) @ best
        self.sigma *= math.exp(self.c_step / self.damping * (length - 1))


def evolve(generations: int, seed: int = 0) -> np.ndarray:
    """Return the mean policy `[3, 15]` after so many generations, from one that does nothing."""
    env = PopulationEnv("Drafting", CANDIDATES * EPISODES, seed=seed)
    search = Evolution(np.zeros(45), 0.2, np.random.Generator(np.random.PCG64(seed)))
    began = time.perf_counter()
    for generation in range(generations):
        steps = STEPS if generation >= generations // 2 else STEPS // 4
        cost, lived = rollout(env, search.ask().reshape(-1, 3, 15), steps)
        # Staying comes first: what an action in the wake is worth is more than what it may well cost.
        search.tell((2.0 * lived - cost).reshape(CANDIDATES, -1).mean(axis=1))
        if generation % 20 == 19:
            seconds = time.perf_counter() - began
            told = f"stays {lived.mean():5.1f} of {steps}, cost {cost.sum() / lived.sum():.4f}"
            print(f"{generation + 1:4d}: {told}, σ {search.sigma:.3f}, {seconds:.0f} s", flush=True)
            np.save("/tmp/mean.npy", search.mean)
    return search.mean.reshape(3, 15)


def main() -> None:
    generations = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    policy = evolve(generations)
    env = PopulationEnv("Drafting", EVALUATED, seed=1, role="evaluation")
    results = {
        "command": f"python benchmarks/drafting.py {generations}",
        "free stream, held by the regulator": free_stream(env),
        "wake, no action": told(*rollout(env, np.zeros((3, 15)))),
        "wake, held by the regulator": told(*rollout(env, station_keeper(env))),
        "wake, drafting": told(*rollout(env, policy)),
    }
    print(json.dumps(results, indent=1))
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "drafting.json").write_text(json.dumps(results, indent=1) + "\n")
    shown = {"weights": np.round(policy[:, :-1], 5).tolist(), "bias": np.round(policy[:, -1], 5).tolist()}
    (RESULTS / "drafting_policy.json").write_text(json.dumps(shown, indent=1) + "\n")


if __name__ == "__main__":
    main()
