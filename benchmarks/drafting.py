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
CANDIDATES, EPISODES = 64, 32
EVALUATED = 1024


def rollout(env: PopulationEnv, weights: np.ndarray, steps: int = STEPS) -> tuple[np.ndarray, np.ndarray]:
    """Run an episode per member under linear policies `[M, 3, 15]` or one `[3, 15]`, the last column a constant.

    Returns:
        The actuation summed over the episode and the number of actions before leaving, each `[M]`.
    """
    observation, _ = env.reset()
    cost, lived = np.zeros(env.num_envs), np.zeros(env.num_envs)
    alive = np.ones(env.num_envs, np.bool_)
    for _ in range(steps):
        action = np.clip((weights[..., :-1] @ observation[..., None])[..., 0] + weights[..., -1], -1.0, 1.0)
        observation, _, terminated, _, info = env.step(action.astype(np.float32))
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


def evolve(generations: int, seed: int = 0) -> np.ndarray:
    """Return the mean of a covariance-matrix adaptation (Hansen 2016, algorithm of its tutorial) after `generations`."""
    env = PopulationEnv("Drafting", CANDIDATES * EPISODES, seed=seed)
    rng = np.random.Generator(np.random.PCG64(seed))
    mean = (START * station_keeper(env)).ravel()
    n, parents = mean.size, CANDIDATES // 2
    shares = np.log(parents + 0.5) - np.log(np.arange(1, parents + 1))
    shares /= shares.sum()
    effective = 1.0 / (shares**2).sum()
    c_step, c_path = (effective + 2) / (n + effective + 5), (4 + effective / n) / (n + 4 + 2 * effective / n)
    c_one = 2 / ((n + 1.3) ** 2 + effective)
    c_many = min(1 - c_one, 2 * (effective - 2 + 1 / effective) / ((n + 2) ** 2 + effective))
    damping = 1 + 2 * max(0.0, math.sqrt((effective - 1) / (n + 1)) - 1) + c_step
    expected = math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n))
    sigma, covariance, path_step, path = SIG, np.eye(n), np.zeros(n), np.zeros(n)
    began = time.perf_counter()
    for generation in range(generations):
        values, basis = np.linalg.eigh(covariance)
        spread = basis * np.sqrt(np.maximum(values, 1e-20))
        drawn = rng.standard_normal((CANDIDATES, n)) @ spread.T
        tried = (mean + sigma * drawn).reshape(CANDIDATES, 3, 15)
        cost, lived = rollout(env, np.repeat(tried, EPISODES, axis=0))
        # What a whole episode in the free stream would cost is what each action of a life is worth.
        worth = (LIFE * lived - cost).reshape(CANDIDATES, EPISODES).mean(axis=1)
        best = np.argsort(-worth)[:parents]
        move = shares @ drawn[best]
        mean = mean + sigma * move
        whitened = basis @ ((basis.T @ move) / np.sqrt(np.maximum(values, 1e-20)))
        path_step = (1 - c_step) * path_step + math.sqrt(c_step * (2 - c_step) * effective) * whitened
        length = np.linalg.norm(path_step) / expected
        path = (1 - c_path) * path + math.sqrt(c_path * (2 - c_path) * effective) * move * (length < 1.5)
        many = (shares[:, None] * drawn[best]).T @ drawn[best]
        covariance = (1 - c_one - c_many) * covariance + c_one * np.outer(path, path) + c_many * many
        sigma *= math.exp(c_step / damping * (length - 1))
        if generation % 10 == 0:
            lives, costs = lived.reshape(CANDIDATES, -1)[best].mean(), cost.reshape(CANDIDATES, -1)[best].sum()
            costs /= max(lived.reshape(CANDIDATES, -1)[best].sum(), 1)
            print(
                f"{generation:4d}: lives {lives:5.1f} cost {costs:.4f} σ {sigma:.3f} {time.perf_counter() - began:.0f} s",
                flush=True,
            )
    return mean.reshape(3, 15)


def main() -> None:
    generations = int(sys.argv[1]) if len(sys.argv) > 1 else 300
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
