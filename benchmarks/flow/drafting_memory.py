"""Does a policy with a memory draft as well with an older one? python -m benchmarks.flow.drafting_memory RUN

RUN is what `replaybench sweep benchmarks/studies/drafting/drafting-sigma.toml` has left. The greedy policies begin
episodes with nothing remembered, as in training; with what they remember after some actions of another episode; and
forget before each action. Writes `benchmarks/results/drafting-sigma/memory.json`: by learner and way, actions
survived, means over episodes, one number a seed.
"""

import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.flow.drafting_sigma import SEEDS
from replaybench import load_policy
from replaybench.controllers.policies.policy import Policy
from replaybench.envs.population import PopulationEnv
from replaybench.experiments.results_file import read_results

RESULT = Path(__file__).parents[1] / "results" / "drafting-sigma" / "memory.json"
EPISODES, AGE = 1000, 6
SEED = 11


def remembered(policy: Policy) -> NDArray[np.float32] | None:
    """Return what is remembered after `AGE` actions of other episodes `[EPISODES, width]`; None without memory."""
    env = PopulationEnv("Drafting", EPISODES, seed=SEED + 1)
    observation, _ = env.reset()
    state = None
    for _ in range(AGE):
        action, state = policy.predict(observation, state)
        observation, *_ = env.step(action)
    return state


def survived(policy: Policy, state: NDArray[np.float32] | None = None, forgets: bool = False) -> float:
    """Return how many actions the greedy policy survives, the mean over episodes that begin with this memory."""
    env = PopulationEnv("Drafting", EPISODES, seed=SEED)
    observation, _ = env.reset()
    inside, actions = np.ones(EPISODES, np.bool_), np.zeros(EPISODES)
    while inside.any():
        action, state = policy.predict(observation, None if forgets else state)
        observation, _, terminated, truncated, _ = env.step(action)
        actions += inside
        inside &= ~(terminated | truncated)
    return float(actions.mean())


def main(run: Path) -> None:
    cells = read_results(run / "results.nc")["cell"].squeeze(drop=True)
    found: dict[str, dict[str, list[float]]] = {}
    for learner in cells["learner"].values:
        path = run / "cells" / str(cells.sel(learner=learner).item()) / "policy.safetensors"
        policies = [load_policy(path, member) for member in range(SEEDS)]
        found[str(learner)] = {
            "fresh": [survived(policy) for policy in policies],
            "older": [survived(policy, remembered(policy)) for policy in policies],
            "forgotten": [survived(policy, forgets=True) for policy in policies],
        }
    told = {"episodes": EPISODES, "age": AGE, "survived": found}
    RESULT.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(RESULT.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
