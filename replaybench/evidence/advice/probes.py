"""Training runs on which advice is based; finished runs are reused when the command is called again."""

import dataclasses
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import xarray as xr
from rich.console import Console

from replaybench.data.documents import read_toml
from replaybench.envs.interface.plant import Plant
from replaybench.evidence.preset import take_over
from replaybench.experiments.calibration import estimate
from replaybench.experiments.dataset import in_iterations
from replaybench.experiments.study import Study
from replaybench.experiments.study_record import toml_value
from replaybench.experiments.sweep import cores, run_sweep
from replaybench.runtime.atomic import write_text
from replaybench.runtime.configuration import build
from replaybench.runtime.errors import UserError

LEAST_EPISODES: Final = 40
MOST_EPISODES: Final = 3000
MOST_PROBES: Final = 8
_LEAST_PROBES: Final = 3
_TRIAL_EPISODES: Final = 100


@dataclass(frozen=True, kw_only=True)
class Question:
    """A request for advice: a plant, a learner, and a budget of computing time and memory.

    Attributes:
        frequency: Control rate in Hz.
        observe: Names of the states that the learner observes; None for those that the plant declares.
        noise: Standard deviation of the normalised sensor and actuator noise.
        episodes: Number of training episodes per run; 0 for as many as the budget allows.
        probes: Largest number of strategies to try in addition to FULL[Uniform] (all experiences, sampled uniformly); 0
            for as many as the budget allows.
        memory: Largest number of experiences in a buffer; 0 for no limit.
        minutes: Budget of wall-clock time in minutes.
    """

    plant: str
    learner: str
    frequency: float
    noise: float
    seeds: int
    root_seed: int
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    observe: tuple[str, ...] | None = None
    episodes: int = 0
    probes: int = 0
    memory: int = 0
    minutes: float

    def study(self, strategies: Sequence[str], episodes: int, capacity: int) -> Study:
        """Return a study that compares the given strategies in runs with a number of episodes and a buffer capacity."""
        return Study(
            name="advice", plants=(self.plant,), learners=(self.learner,), strategies=tuple(strategies),
            noise=(self.noise,), frequency=(self.frequency,), seeds=self.seeds, block=self.seeds, episodes=episodes,
            capacity=capacity, root_seed=self.root_seed, buffers="none", greedy_every=max(1, episodes // 20),
            learner={self.learner: self._settings(episodes)}, observe=self.observe or (),
        )  # fmt: skip

    def _settings(self, episodes: int) -> dict[str, Any]:
        """Return the learner's settings, with exploration that decays in the first third of the run unless set."""
        trial = Study(
            name="advice", plants=(self.plant,), learners=(self.learner,), strategies=("FULL[Uniform]",),
            seeds=1, episodes=episodes, learner={self.learner: self.settings} if self.settings else {},
        )  # fmt: skip
        exploration = trial.cells()[0].settings.get("exploration")
        if not isinstance(exploration, Mapping) or "decay_episodes" not in exploration:
            return dict(self.settings)
        asked = dict(self.settings.get("exploration", {}))
        asked.setdefault("decay_episodes", min(int(exploration["decay_episodes"]), max(1, episodes // 3)))
        return {**self.settings, "exploration": asked}


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The number of episodes of every run, and the number of strategies to compare with FULL[Uniform]."""

    episodes: int
    probes: int


def planned(question: Question, folder: Path, workers: int) -> Budget:
    """Choose the number of episodes and of strategies that fit the budget, and store the choice in `advice.toml`.

    If `folder` already contains `advice.toml`, return the stored choice. A budget that is too small raises `UserError`.
    """
    path = folder / "advice.toml"
    asked = {key: value for key, value in dataclasses.asdict(question).items() if value is not None}
    if path.is_file():
        table = read_toml(path)
        before, budget = table.get("question"), table.get("budget")
        if before != tomllib.loads(_tables(question=asked))["question"]:
            raise UserError(f"{folder} holds advice on another question; choose another --output, or remove it")
        return build(Budget, budget if isinstance(budget, dict) else {}, f"[budget] in {path}")
    study = question.study(["FULL[Uniform]"], question.episodes or _TRIAL_EPISODES, 10_000)
    parts = estimate(study.cells(), study.cells(), study.reference, 1, compiles=True).parts
    each, references = parts["cells"] / study.episodes, parts["references"]
    at_once, seconds = min(workers, cores()), 60 * question.minutes - references

    def duration(count: int, episodes: int) -> float:
        # A cell has all seeds and runs on one core: first `FULL`, then the probes, then one with half the capacity.
        return each * episodes * (1 + math.ceil(count / at_once) + (count > 1))

    episodes = question.episodes or max(0, min(MOST_EPISODES, int(seconds / duration(_LEAST_PROBES, 1))))
    counts = range(1, (question.probes or MOST_PROBES) + 1)
    probes = max((count for count in counts if duration(count, episodes) <= seconds), default=0)
    if (episodes < LEAST_EPISODES and not question.episodes) or probes < 1:
        least = duration(1, question.episodes) if question.episodes else duration(_LEAST_PROBES, LEAST_EPISODES)
        raise UserError(
            f"{question.minutes:g} minutes are too few for {question.seeds} seeds of this plant; ask for "
            f"--budget-minutes {max(1, round((least + references) / 60 + 0.5))}, or fewer --seeds"
        )
    decided = Budget(episodes=episodes, probes=probes)
    write_text(path, _tables(question=asked, budget=dataclasses.asdict(decided)))
    return decided


def _tables(**tables: Mapping[str, Any]) -> str:
    rows = ([f"[{name}]", *(f"{key} = {toml_value(value)}" for key, value in table.items())]
            for name, table in tables.items())  # fmt: skip
    return "\n\n".join(map("\n".join, rows)) + "\n"


def run(study: Study, folder: Path, workers: int, console: Console) -> xr.Dataset:
    """Run a study in a folder, after copying finished cells from neighbouring folders, and return the results."""
    take_over(study, folder)
    outcome = run_sweep(study, folder, workers, None, checkpoint_seconds=60.0, console=console, rivals=False)
    if outcome.status:
        raise KeyboardInterrupt(f"stopped; run the same command again to continue in {folder.parent}")
    return outcome.data


def condition(data: xr.Dataset, asked: Question) -> xr.Dataset:
    """Select the results for the plant, learner, noise and control rate of a request."""
    return data.sel(plant=asked.plant, learner=asked.learner, noise=asked.noise, frequency=asked.frequency)


def experiences(here: xr.Dataset, plant: Plant | None) -> xr.DataArray | None:
    """Return the number of experiences that each training episode or iteration collected, with NaN for missing runs.

    An iteration has as many steps as the plant's longest episode. If runs are counted in iterations and there is no
    plant, return None.
    """
    steps = here["episode_steps"]
    if not in_iterations(here):
        return steps
    if plant is None:
        return None
    return xr.full_like(steps, plant.steps_per_episode(float(here["frequency"]))).where(here["reward"].notnull())
