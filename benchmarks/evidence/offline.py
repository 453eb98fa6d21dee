"""Learning from a recording alone: what there must be in it, and which learner makes something of it.

`python benchmarks/evidence/offline.py` records a pendulum's swing-up three ways, eight times each, lets every learner
replay the recordings without the plant, and stores `results/offline.json`, from which a table on the page of results
is made. Interrupted, it continues where it stopped. It takes about five minutes of a core.
"""

import json
import os
from pathlib import Path
from typing import Any, Final

import numpy as np

from replaybench.baselines.controllers import Controller, RandomController
from replaybench.baselines.grid_choice import reference_solution
from replaybench.baselines.references import normalise, reference
from replaybench.data.record import write_record
from replaybench.envs.ode.pendulum import PendulumDCSC
from replaybench.envs.population import PopulationEnv
from replaybench.exchange.offline import Changes, replay_offline
from replaybench.exchange.offline_scores import extrapolation
from replaybench.exchange.recording import member_arrays, recording_facts
from replaybench.experiments.recorded_buffer import Recording, read_recording
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.atomic import write_text
from replaybench.runtime.provenance import this_code
from replaybench.runtime.streams import Stream

ROOT: Final = Path(__file__).resolve().parents[2]
STORED: Final = ROOT / "benchmarks" / "results" / "offline.json"
RUNS: Final = Path("runs") / "offline"
PLANT: Final = PendulumDCSC()
FREQUENCY: Final = 50.0
NOISE: Final = 0.02
SEEDS: Final = 8
ROOT_SEED: Final = 8
"""Of recordings and learners; rates were chosen on others."""
EPISODES: Final = 100
UPDATES: Final = 20_000
LEARNERS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "DDPG": ("DDPG", {}),
    "TD3": ("TD3", {}),
    "TD3+BC": ("TD3+BC", {}),
    "TD3+BC, alpha = 10": ("TD3+BC", {"alpha": 10.0}),
}


class Held:
    """A controller whose actions are held for some samples, as a rig's operator steps its input."""

    def __init__(self, controller: Controller, samples: int) -> None:
        self._controller, self._samples, self._step = controller, samples, 0
        self._action = np.zeros((SEEDS, 1), np.float32)

    def act(self, observation: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, np.dtype[np.float32]]:
        if self._step % self._samples == 0:
            self._action = self._controller(observation)
        self._step += 1
        return self._action


class Excited:
    """A controller in a share of whose samples the action is random instead."""

    def __init__(self, controller: Controller, share: float) -> None:
        self._controller, self._share = controller, share
        self._random = RandomController(PLANT, range(SEEDS), ROOT_SEED)
        self._stream = Stream(ROOT_SEED + 1, range(SEEDS), "random controller")

    def act(self, observation: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, np.dtype[np.float32]]:
        other = self._random.act(observation)
        return np.where(self._stream.uniform(1) < self._share, other, self._controller(observation))


def controllers() -> dict[str, Controller]:
    """Return who is recorded."""
    solution = reference_solution(PLANT, FREQUENCY).solution
    return {
        "stepped inputs": Held(RandomController(PLANT, range(SEEDS), ROOT_SEED).act, 10).act,
        "a controller": Excited(solution.greedy, 0.05).act,
        "a controller, excited": Excited(solution.greedy, 0.5).act,
    }


def recorded(name: str, controller: Controller) -> Path:
    """Record it for `EPISODES` on `SEEDS` rigs, each with noise of its own."""
    path = RUNS / f"{name.replace(',', '').replace(' ', '-')}.h5"
    if path.is_file():
        return path
    env = PopulationEnv(
        PLANT, SEEDS, frequency=FREQUENCY, sensor_noise=NOISE, actuator_noise=NOISE, seed=ROOT_SEED, role="evaluation"
    )
    steps = PLANT.steps_per_episode(FREQUENCY)
    kept: dict[str, list[Any]] = {"observation": [], "action": [], "reward": [], "next_observation": []}
    for _ in range(EPISODES):
        observation, _ = env.reset()
        for _ in range(steps):
            action = controller(observation)
            following, reward, *_ = env.step(action)
            for field, value in zip(kept, (observation, action, reward, following), strict=True):
                kept[field].append(np.array(value, np.float32).reshape(SEEDS, -1))
            observation = following
    values = {field: np.stack(parts, axis=1) for field, parts in kept.items()}
    values["terminated"] = values["exploration"] = np.zeros((SEEDS, EPISODES * steps, 1), np.float32)
    episode = np.repeat(np.arange(EPISODES), steps)
    members = [member_arrays(PLANT, {field: of[m] for field, of in values.items()}, episode) for m in range(SEEDS)]
    arrays = {field: np.concatenate([member[field] for member in members]) for field in members[0]}
    write_record(path, "buffer", recording_facts(PLANT, None, FREQUENCY, NOISE, {"recorded": name}), arrays)
    return path


def learned(recording: Recording, learner: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the scores of all learners at the end, their mean along the way, and what they believe too much."""
    outcome = replay_offline(
        recording, parse("FULL[Uniform]"), updates=UPDATES, learner=learner, learners=SEEDS, capacity=None,
        root_seed=ROOT_SEED, progress=lambda done: None, changes=Changes(settings=settings),
    )  # fmt: skip
    scores = normalise(outcome.reward, reference(PLANT, FREQUENCY, NOISE))
    beyond = extrapolation(recording, outcome.agent, SEEDS, UPDATES)
    return {
        "final": scores[:, -1].tolist(),
        "curve": scores.mean(axis=0).tolist(),
        "beyond": None if beyond is None else beyond.words(learner, False),
    }


def main() -> None:
    os.chdir(ROOT)
    RUNS.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, controller in controllers().items():
        recording = read_recording(recorded(name, controller))
        rewards = recording.arrays["reward"].astype(np.float64).mean(axis=(1, 2))
        shown = normalise(rewards, reference(PLANT, FREQUENCY, NOISE)).tolist()
        for label, (learner, settings) in LEARNERS.items():
            part = RUNS / f"{name.replace(',', '').replace(' ', '-')}-{label.replace(',', '').replace(' ', '-')}.json"
            if not part.is_file():
                write_text(part, json.dumps(learned(recording, learner, settings)))
            rows.append({"recording": name, "shown": shown, "learner": label, **json.loads(part.read_text())})
            print(name, label, np.round(np.mean(rows[-1]["final"]), 3), flush=True)
    told = {
        "command": "python benchmarks/evidence/offline.py",
        "commit": this_code().commit,
        "seeds": SEEDS, "episodes": EPISODES, "updates": UPDATES, "noise": NOISE, "rows": rows,
    }  # fmt: skip
    write_text(STORED, json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    print(STORED)


if __name__ == "__main__":
    main()
