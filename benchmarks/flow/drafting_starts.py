"""Which starts of the drafting task learned policies lose, and whether they must.

    python benchmarks/flow/drafting_starts.py RUN...

Each policy of the runs' cells plays whole greedy episodes of 400 actions, from starts that all of them share. How many
starts could be kept tells a search over the first actions (the cross-entropy method), after which the policy goes on
that keeps most by itself.
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import replaybench
from replaybench.data.policy_file import read_policy
from replaybench.envs.flow.plant import Drafting
from replaybench.envs.population import PopulationEnv

RESULTS = Path(__file__).parents[1] / "results" / "flow" / "starts.json"
STEPS, STARTS, SEED = 400, 1024, 77
EARLY = 10  # actions after which an episode counts as lost at its start
SEARCHED, CANDIDATES, KEPT, FIRST, ROUNDS, INSIDE = 96, 128, 12, 8, 12, 60


class Played(NamedTuple):
    """What became of episodes `[M]`: actions survived, and ‖a‖² over them."""

    survived: np.ndarray
    spent: np.ndarray


def play(env: PopulationEnv, policy: Any, start: dict[str, Any], steps: int, push: np.ndarray | None = None) -> Played:
    """Play greedy episodes from a state of the population; `push` `[M, n, 3]` is added to the first n actions."""
    env.set_state(start)
    observation = start["observation"]
    alive, played = np.ones(env.num_envs, np.bool_), Played(np.zeros(env.num_envs), np.zeros(env.num_envs))
    for step in range(steps):
        action = np.asarray(policy.predict(observation)[0], np.float64)
        if push is not None and step < push.shape[1]:
            action = np.clip(action + push[:, step], -1.0, 1.0)
        observation, _, left, _, info = env.step(action.astype(np.float32))
        alive &= ~left
        played.survived[:] += alive
        played.spent[:] += np.where(alive, info["actuation"], 0.0)
        if not alive.any():
            break
    return played


def fresh(members: int) -> tuple[PopulationEnv, dict[str, Any]]:
    """Return a population and where its members start."""
    env = PopulationEnv(Drafting(), members, seed=SEED)
    env.reset()
    return env, env.get_state()


def policies(run: Path) -> Iterator[tuple[str, list[replaybench.Policy]]]:
    """Yield learner and strategy of a run's cells, with the policies of those members that did not diverge."""
    for path in sorted(run.glob("cells/*/policy.safetensors")):
        facts, weights = read_policy(path)
        name = f"{facts['cell']['learner']}, {facts['cell']['strategy']}"
        sound = [~np.isnan(array.reshape(len(array), -1)).any(axis=1) for array in weights.values()]
        yield name, [replaybench.load_policy(path, member) for member in np.flatnonzero(np.all(sound, axis=0))]


def told(episodes: Played) -> dict[str, float]:
    whole = episodes.survived == STEPS
    return {
        "whole": float(whole.mean()),
        "lost early": float((episodes.survived < EARLY).mean()),
        "cost per action of whole episodes": float(episodes.spent[whole].mean() / STEPS) if whole.any() else np.nan,
    }


def could_be_kept(policy: replaybench.Policy) -> dict[str, float]:
    """Search first actions that keep a policy inside for the actions after them, too, from each of some starts."""
    env, start = fresh(SEARCHED)
    survived = play(env, policy, start, INSIDE).survived
    crowd, _ = fresh(SEARCHED * CANDIDATES)
    starts = {name: np.repeat(array, CANDIDATES, axis=0) for name, array in start.items()}
    draws, best = np.random.Generator(np.random.PCG64(SEED)), survived
    mean, spread = np.zeros((SEARCHED, FIRST, 3)), np.full((SEARCHED, FIRST, 3), 0.5)
    for _ in range(ROUNDS):
        push = mean[:, None] + spread[:, None] * draws.standard_normal((SEARCHED, CANDIDATES, FIRST, 3))
        push[:, 0] = mean
        found = play(crowd, policy, starts, INSIDE, push.reshape(-1, FIRST, 3))
        survived_all = found.survived.reshape(SEARCHED, CANDIDATES)
        best = np.maximum(best, survived_all.max(axis=1))
        order = np.argsort(found.spent.reshape(SEARCHED, CANDIDATES) / 2 - survived_all, axis=1)[:, :KEPT]
        elite = np.take_along_axis(push, order[:, :, None, None], axis=1)
        mean, spread = elite.mean(axis=1), np.maximum(elite.std(axis=1), 0.03)
    return {"by the policy": float((survived == INSIDE).mean()), "by the search": float((best == INSIDE).mean())}


def main(runs: list[Path]) -> None:
    stored: dict[str, Any] = {"starts": STARTS}
    env, start = fresh(STARTS)
    for run in runs:
        for name, members in policies(run):
            found = [told(play(env, policy, start, STEPS)) for policy in members]
            stored.setdefault("runs", {}).setdefault(run.name, {})[name] = found
            best = members[int(np.argmax([each["whole"] for each in found]))]
            kept = could_be_kept(best)
            stored.setdefault("kept", {}).setdefault(run.name, {})[name] = kept
            print(run.name, name, *(f"{each['whole']:.3f}" for each in found), kept, flush=True)
    RESULTS.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
