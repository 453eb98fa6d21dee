"""What a policy of the vortex wake is worth in the flow itself: python benchmarks/flow_gap.py [EPISODES]

The linear policy that `benchmarks/drafting.py` found on the vortex wake, and doing nothing, are tried in both
fidelities of the drafting task, from the same places, in 64 episodes each. What comes out goes to
`benchmarks/results/flow/gap.json` and `gap.md`.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", NUMBA_NUM_THREADS="1")

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from replaybench.envs.flow.plant import Drafting
from replaybench.envs.population import PopulationEnv

RESULTS = Path(__file__).parent / "results" / "flow"
STEPS = 400


def linear_policy() -> np.ndarray:
    """Return the stored policy `[3, 15]`: normalised observation to normalised action, the last column a constant."""
    stored = json.loads((RESULTS / "drafting_policy.json").read_text(encoding="utf-8"))
    return np.column_stack([np.array(stored["weights"]), np.array(stored["bias"])])


def tried(plant: Drafting, policy: np.ndarray, episodes: int) -> dict[str, Any]:
    """Return how long a policy survives, and what its actions cost, over an episode of each of that many members."""
    env = PopulationEnv(plant, episodes, seed=7, role="evaluation")
    observation, _ = env.reset()
    survived, cost, count = np.zeros(episodes), np.zeros(episodes), np.zeros(episodes)
    alive = np.ones(episodes, np.bool_)
    for _ in range(STEPS):
        action = np.clip(observation @ policy[:, :-1].T + policy[:, -1], -1.0, 1.0)
        observation, _, terminated, _, infos = env.step(action.astype(np.float32))
        cost += np.where(alive, infos["actuation"], 0.0)
        count += alive
        alive &= ~terminated
        survived += alive
        if not alive.any():
            break
    return {
        "survived actions, mean": float(survived.mean()),
        "survived actions, median": float(np.median(survived)),
        "whole episodes": f"{int(alive.sum())} of {episodes}",
        "cost per action": float(cost.sum() / count.sum()),
    }


def main(episodes: int) -> None:
    """Try both policies in both fidelities and write what came out."""
    policies = {"drafting policy": linear_policy(), "no action": np.zeros((3, 15))}
    fidelities = {"vortex wake": Drafting(), "Navier–Stokes": Drafting(fidelity="navier-stokes")}
    found = {
        f"{policy}, {fidelity}": tried(plant, weights, episodes)
        for policy, weights in policies.items()
        for fidelity, plant in fidelities.items()
    }
    columns = list(next(iter(found.values())))
    lines = [
        "# What a policy of the vortex wake is worth in the flow itself",
        "",
        f"Made by `python benchmarks/flow_gap.py {episodes}`; 16 cells per D, 12 × 10 D, costs in default units.",
        "",
        f"| policy, fidelity | {' | '.join(columns)} |",
        "| --- |" + " --- |" * len(columns),
    ]
    for name, row in found.items():
        values = (f"{value:.3g}" if isinstance(value, float) else value for value in row.values())
        lines.append(f"| {name} | {' | '.join(values)} |")
    (RESULTS / "gap.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (RESULTS / "gap.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 64)
