"""To what does a drafting policy answer, what it sees or what it has seen? python -m benchmarks.flow.drafting_lag [RUN]

RUN is what `replaybench sweep benchmarks/studies/drafting/drafting-forget.toml` has left. Its greedy policies are asked
how their action changes with each of the observations that led to it, and when they leave the wake. Writes
`benchmarks/results/drafting-forget/lag.json`, by learner one entry a seed, and draws `lag.png`, for which a RUN need
not be named once that is there.
"""

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axis import Axis
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray

from benchmarks.flow.drafting_sigma import SEEDS, WINDOW, moving
from benchmarks.tables.stored import RESULTS, cell
from replaybench import load_policy
from replaybench.controllers.policies.policy import Policy
from replaybench.envs.population import PopulationEnv
from replaybench.experiments.results_file import read_results
from replaybench.reports.figures.style import PALETTE, new_figure, save, style

STUDY = "drafting-forget"
NETWORKS = {
    "V-RACER:64-64": "64-64, no memory",
    "V-RACER:lstm-64-64": "LSTM, gates begin open",
    "V-RACER:lstm-64-64-forgets": "LSTM, gates begin closed",
}
"""The study's learners, in words."""
EPISODES, SEED = 1000, 11
AGE = 8
"""Actions after which policies are asked: few enough that most episodes are still there."""
AGES = (0, 3, 6, 10, 20, 40, 100)
"""Between which leaving is counted."""
_STEP = 0.02  # of differences, in normalised units


def played(policy: Policy) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the first observations `[AGE + 1, EPISODES, S]` of greedy episodes, and how many actions each has."""
    env = PopulationEnv("Drafting", EPISODES, seed=SEED)
    observation, _ = env.reset()
    seen, inside, length, state = [observation], np.ones(EPISODES, np.bool_), np.zeros(EPISODES, np.int64), None
    while inside.any() and length.max() < AGES[-1]:
        action, state = policy.predict(observation, state)
        observation, _, terminated, truncated, _ = env.step(action)
        seen.append(observation)
        length += inside
        inside &= ~(terminated | truncated)
    return np.array(seen[: AGE + 1]), length + inside  # who is still there has not left with the last one


def responses(policy: Policy, seen: NDArray[np.float32]) -> list[float]:
    """Return by lag, 0 to `AGE`, the norm of the action's derivative by that observation, RMS over episodes."""

    def acted(lag: int, signal: int, step: float) -> NDArray[np.float64]:
        state = None
        for age, observation in enumerate(seen):
            given = observation.copy()
            given[:, signal] += step * (age == AGE - lag)
            action, state = policy.predict(given, state)
        return action.astype(np.float64)

    norms = []
    for lag in range(AGE + 1):
        slopes = [acted(lag, s, _STEP) - acted(lag, s, -_STEP) for s in range(seen.shape[2])]
        norms.append(float(np.sqrt(np.square(np.array(slopes) / (2 * _STEP)).sum(axis=(0, 2)).mean())))
    return norms


def leaving(length: NDArray[np.int64]) -> list[float]:
    """Return how many of those inside leave with an action, in %, between the ages `AGES`."""
    rates = []
    for first, last in itertools.pairwise(AGES):
        lived = np.clip(length - first, 0, last - first).sum()
        left = ((length > first) & (length <= last)).sum()
        rates.append(float(100 * left / lived) if lived else np.nan)
    return rates


def measure(run: Path) -> dict[str, Any]:
    """Ask all policies of a run."""
    ids = read_results(run / "results.nc")["cell"].squeeze(drop=True)
    found: dict[str, Any] = {}
    for learner in NETWORKS:
        asked: dict[str, list[Any]] = {"responses": [], "leaving": []}
        for name in ids.sel(learner=learner).values.tolist():
            for member in range(SEEDS):  # a block's
                policy = load_policy(run / "cells" / name / "policy.safetensors", member)
                seen, length = played(policy)
                asked["responses"].append(responses(policy, seen[:, length > AGE]))
                asked["leaving"].append(leaving(length))
        found[learner] = asked
    return {"episodes": EPISODES, "age": AGE, "ages": list(AGES), "found": found}


def draw(told: dict[str, Any]) -> Path:
    """Draw learning, leaving by age and responses by lag, side by side."""
    caption = (
        f"Left: training, geometric mean over six seeds of means over {WINDOW} rounds of 400 steps. Middle and "
        f"right: greedy policies at the end, {told['episodes']:,} episodes a seed, means over seeds; the norm of the "
        f"derivative of action {told['age']} by each of the observations up to it."
    )
    with style():
        figure = new_figure(11.0, 3.9, "Drafting: a memory that does not fade delays what a policy answers to", caption)
        left, middle, right = figure.subplots(1, 3)
        for (learner, words), color in zip(NETWORKS.items(), PALETTE, strict=False):
            means = moving(cell(STUDY, learner=learner).data["episode_steps"].values)
            curve = np.exp(np.log(means).mean(axis=0))
            left.plot(np.arange(means.shape[1]) + WINDOW, curve, color=color, label=words)
            asked = told["found"][learner]
            middle_ages = np.sqrt(np.maximum(AGES[:-1], 1) * np.array(AGES[1:]))
            middle.plot(middle_ages, np.nanmean(asked["leaving"], axis=0), "o-", color=color, clip_on=False)
            right.plot(range(AGE + 1), np.mean(asked["responses"], axis=0), "o-", color=color, clip_on=False)
        left.set(yscale="log", xlabel="round of training", ylabel="actions survived", ylim=(4, 700))
        _ticks(left.yaxis, (5, 10, 20, 50, 100, 200))
        middle.set(xscale="log", xlabel="age of the episode [actions]", ylabel="leave with an action [%]")
        middle.set_ylim(bottom=0)
        _ticks(middle.xaxis, (2, 5, 10, 20, 50))
        right.set(xlabel="observation so many actions ago", ylabel="change of the action by it")
        right.set_ylim(bottom=0)
        left.legend(loc="upper left")
        return save(figure, RESULTS / STUDY, "lag")


def _ticks(axis: Axis, places: tuple[int, ...]) -> None:
    axis.set_ticks(places, labels=[str(place) for place in places])
    axis.set_minor_locator(NullLocator())


def main(words: list[str]) -> Path:
    result = RESULTS / STUDY / "lag.json"
    if words:
        result.write_text(json.dumps(measure(Path(words[0])), indent=1) + "\n", encoding="utf-8")
    return draw(json.loads(result.read_text(encoding="utf-8")))


if __name__ == "__main__":
    print(main(sys.argv[1:]))
