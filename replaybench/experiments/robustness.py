"""Evaluation of the stored policies of a run, and of its reference controllers, on plants that differ from the run's.

A parameter of the plant, the delay of commands or the noise is changed. Learners are not trained again. Reference
controllers are those of the run's plant: their models, gains and solutions are not adapted. Scores of all changed
plants have the scale of the run's plant, on which random control has the score 0 and dynamic programming the score 1.
"""

import contextlib
import csv
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from replaybench.baselines.controllers import run_episode
from replaybench.baselines.grid_choice import Rule, check_effort
from replaybench.baselines.references import Reference, normalise, reference, scores_on
from replaybench.baselines.rivals import Rivals, scored_on
from replaybench.controllers.policies.policy import stored_learner
from replaybench.data.policy_file import failed_members, members_in, read_policy
from replaybench.data.run_folder import RunFolder
from replaybench.envs.interface.channel_of_plant import check_channel
from replaybench.envs.interface.declarations import NUMBER
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.population import PopulationEnv
from replaybench.experiments.cell_lookup import cells_of, fitting_cells, stored_file
from replaybench.experiments.comparison import RIVAL, reference_label
from replaybench.experiments.statistics import interval
from replaybench.experiments.study import Cell, reference_cells
from replaybench.runtime.arrays import Floats
from replaybench.runtime.configuration import NOISE
from replaybench.runtime.errors import UserError, unknown
from replaybench.runtime.user_file import shortened

FOLDER: Final = "robustness"
"""Folder in a run folder with a table and a figure for each changed parameter."""
FACTORS: Final = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
"""Factors by which a parameter is changed, unless others are given."""
EPISODES: Final = 10
"""Number of episodes of each policy on each changed plant, if episodes differ."""
DELAY: Final = "delay"
NOISE_LEVEL: Final = "noise"
_OF_ALL_PLANTS: Final = (DELAY, NOISE_LEVEL)


class Row(NamedTuple):
    """The score of one controller on one changed plant.

    Attributes:
        plant: Name of the run's plant.
        frequency: Control rate [Hz].
        noise: Noise of the training.
        parameter: Name of the changed parameter, `delay` or `noise`.
        trained: Value of the parameter in the training.
        value: Changed value.
        learner: Name of the learner; empty for reference controllers.
        strategy: Strategy of the learner; empty for reference controllers.
        controller: Label of the learner with its strategy, or of the reference controller.
        seeds: Number of policies without failure; 0 for reference controllers.
        reward: Mean score of the episodes, over seeds, with its 95 % interval over seeds.
        score: The same as μ_r, which is 0 for random control and 1 for dynamic programming on the unchanged plant, or
            NaN if μ_r is not defined.
    """

    plant: str
    frequency: float
    noise: float
    parameter: str
    trained: float
    value: float
    learner: str
    strategy: str
    controller: str
    seeds: int
    reward: float
    reward_low: float
    reward_high: float
    score: float
    score_low: float
    score_high: float


@dataclass(frozen=True)
class Policies:
    """The stored policies of a learner with a strategy, in one file for each block of seeds."""

    learner: str
    strategy: str
    files: Sequence[tuple[Cell, Path]]


@dataclass(frozen=True)
class Condition:
    """A plant, control rate and noise of a run, with the plants on which its controllers are evaluated.

    Attributes:
        plant: The plant of the training, with the discount of reference controllers.
        parameter: Name of the changed parameter.
        trained: Value of the parameter in the training.
        changed: Changed values, each with the plant and the noise of the evaluation.
    """

    name: str
    plant: Plant
    frequency: float
    noise: float
    parameter: str
    trained: float
    changed: Mapping[float, tuple[Plant, float]]
    policies: Sequence[Policies]

    @property
    def steps(self) -> int:
        """The number of changed plants on which learners and reference controllers are evaluated."""
        return len(self.changed) * (1 + len(self.policies))


def conditions(
    run: Path, parameter: str, factors: Sequence[float], values: Sequence[float], chosen: Mapping[str, Any]
) -> tuple[list[Condition], int]:
    """Return the conditions of a run with the plants to evaluate, and the number of cells without policies.

    Args:
        run: Run folder.
        parameter: Name of a parameter of the plants, `delay` or `noise`.
        factors: Factors by which the value in the training is multiplied; `FACTORS` if empty.
        values: New values, in place of factors.
        chosen: Values that select cells by axis, such as `{"learner": "DDPG"}`.

    Raises:
        UserError: No cell fits or has policies, or a plant cannot be changed as given.
    """
    folder = RunFolder(run)
    every = cells_of(folder)
    found, missing = dict[tuple[str, float, float], dict[tuple[str, str], list[tuple[Cell, Path]]]](), 0
    for cell in fitting_cells(run, every, chosen):
        if (file := stored_file(folder, every, cell, "policy")) is None:
            missing += 1
            continue
        here = found.setdefault((cell.plant, cell.frequency, cell.noise), {})
        here.setdefault((cell.learner, cell.strategy), []).append((cell, file))
    if not found:
        raise UserError(f"{run} has no stored policies of these cells yet; run its sweep first")
    references = reference_cells(every)
    made = []
    for (name, frequency, noise), parts in found.items():
        plant = references[name, frequency, noise].make_plant()
        check_effort(plant, frequency, noise)
        trained = _trained(plant, noise, parameter)
        policies = [Policies(*names, files) for names, files in parts.items()]
        changed = {
            value: _changed(plant, frequency, noise, parameter, value)
            for value in _values(plant, parameter, trained, factors, values)
        }
        made.append(Condition(name, plant, frequency, noise, parameter, trained, changed, policies))
    return made, missing


def _trained(plant: Plant, noise: float, parameter: str) -> float:
    numbers = [field.name for field in dataclasses.fields(plant) if NUMBER.fits(getattr(plant, field.name))]
    if parameter not in (*numbers, *_OF_ALL_PLANTS):
        raise unknown(f"parameter of {plant.name}:", parameter, [*numbers, *_OF_ALL_PLANTS])
    if parameter in numbers:
        return float(getattr(plant, parameter))
    return plant.channel.delay if parameter == DELAY else noise


def _values(
    plant: Plant, parameter: str, trained: float, factors: Sequence[float], values: Sequence[float]
) -> list[float]:
    if not values and trained == 0.0:
        example = "0 0.01 0.02" if parameter in _OF_ALL_PLANTS else "0.1 0.2"
        raise UserError(
            f"the {parameter} of {plant.name} is 0 in this run, so that factors do not change it; give values instead, "
            f"as in --values {example}"
        )
    return sorted(set(values or (factor * trained for factor in factors or FACTORS)))


def _changed(plant: Plant, frequency: float, noise: float, parameter: str, value: float) -> tuple[Plant, float]:
    """Return a changed plant and the noise on it, or raise `UserError` if the plant cannot have this value."""
    if parameter == NOISE_LEVEL:
        NOISE.check(value, parameter)
        return plant, value
    if parameter != DELAY:
        return dataclasses.replace(plant, **{parameter: value}), noise
    plant = plant.through(dataclasses.replace(plant.channel, delay=value))
    steps = plant.steps_per_episode(frequency)
    check_channel(plant, steps, plant.episode_seconds / steps)
    return plant, noise


def evaluate(
    condition: Condition, rule: Rule | None, rivals: Rivals | None, report: Callable[[str], object]
) -> Iterator[Row]:
    """Yield the scores of all controllers of a condition on the changed plants.

    Args:
        rule: Rule of the study that chooses the grid of dynamic programming.
        rivals: Rivals that are evaluated, such as a tuned PID controller, or None for none.
        report: Called with the name of the controller before each of the `steps` of the condition.
    """
    plant, frequency = condition.plant, condition.frequency
    report("reference controllers")
    known = reference(plant, frequency, condition.noise, rule, rivals)
    names = shortened([each.learner for each in condition.policies])
    names |= shortened([each.strategy for each in condition.policies])
    for value, (actual, noise) in condition.changed.items():
        for each in condition.policies:
            label = f"{names[each.learner]} {names[each.strategy]}"
            report(label)
            rewards = np.concatenate([_scores(cell, file, actual, noise) for cell, file in each.files])
            yield _row(condition, known, value, label, rewards, each)
        report("reference controllers")
        for name, score in _of_references(condition, rule, known, actual, noise):
            yield _row(condition, known, value, reference_label(name), np.array([score]))


def _of_references(
    condition: Condition, rule: Rule | None, known: Reference, actual: Plant, noise: float
) -> Iterator[tuple[str, float]]:
    plant, frequency = condition.plant, condition.frequency
    for name, score in scores_on(plant, frequency, rule, known, actual, noise):
        yield f"reference_{name}", score
    for name, rival in known.rivals.items():
        yield RIVAL + name, scored_on(plant, frequency, name, rival, actual, noise).score


def _scores(cell: Cell, path: Path, plant: Plant, noise: float) -> Floats:
    """Return the mean score of each seed's greedy policy `[M]`, with NaN for seeds that failed."""
    facts, weights = read_policy(path)
    failed = failed_members(weights)
    members = [member for member in range(members_in(path, weights)) if member not in failed]
    scores = np.full(cell.members, np.nan)
    if not members:
        return scores
    agent = stored_learner(path, facts, weights, members, cell.learner)
    env = PopulationEnv(
        plant, len(members), frequency=cell.frequency, sensor_noise=noise, actuator_noise=noise, seed=cell.root_seed,
        members=[cell.seeds[member] for member in members], role="evaluation", observe=cell.observe, nan_actions="fail",
    )  # fmt: skip
    constant = isinstance(plant, OdePlant) and not plant.episodes_differ(noise)
    with contextlib.closing(env):
        found = [run_episode(agent.greedy().act, env) for _ in range(1 if constant else EPISODES)]
    scores[members] = np.mean(found, axis=0)
    return scores


def _row(
    condition: Condition, known: Reference, value: float, label: str, rewards: Floats, of: Policies | None = None
) -> Row:
    learner, strategy, seeds = ("", "", 0) if of is None else (of.learner, of.strategy, int(np.isfinite(rewards).sum()))
    where = condition.name, condition.frequency, condition.noise, condition.parameter, condition.trained, value
    reward, score = interval(rewards), interval(normalise(rewards, known))
    bounds = reward.mean, reward.low, reward.high, score.mean, score.low, score.high
    return Row(*where, learner, strategy, label, seeds, *bounds)


def read_rows(path: Path) -> list[Row]:
    """Read the table that the command `robustness` writes, or raise `UserError` if a file is no such table."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            table = list(csv.DictReader(file))
        return [Row._make(kind(line[name]) for name, kind in Row.__annotations__.items()) for line in table]
    except (OSError, ValueError, TypeError, KeyError, csv.Error) as error:
        raise UserError(f"{path} is no table that `replaybench robustness` wrote ({type(error).__name__})") from None


def columns_of(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Return rows as columns of a table, by name."""
    return dict(zip(Row._fields, map(list, zip(*rows, strict=True)), strict=True))
