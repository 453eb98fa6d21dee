"""Learn from a stored buffer without touching a plant, then see on the plant what was learned.

Stored experiences are offered in their original order, through the strategy's own retention, to a fresh population;
then training starts. Learner i replays recording i of the file, in turn where there are more learners than recordings.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.agent import Agent, Task
from replaybench.controllers.registry import load_learner
from replaybench.data.errors import UserError
from replaybench.data.hdf5 import Header, read_record
from replaybench.data.settings import build
from replaybench.envs.plant import Plant
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import make_plant, plant_names
from replaybench.experiments.cell import BASE_DISCOUNT
from replaybench.experiments.loop import greedy_episode, update_phase
from replaybench.replay.buffer import Replay, step_fields
from replaybench.replay.notation import Strategy

EVALUATIONS = 20


@dataclass(frozen=True)
class Recording:
    """A buffer file, checked: the plant it names and the experiences of each recording in the order of their offer."""

    path: Path
    header: Header
    plant: Plant
    frequency: float
    noise: float
    arrays: dict[str, NDArray[Any]]
    orders: list[NDArray[np.int64]]


@dataclass(frozen=True)
class Outcome:
    """What offline replay gave: the greedy reward `[learners]` after each evaluated number of updates."""

    updates: NDArray[np.int64]
    reward: NDArray[np.float64]
    agent: Agent


def read_recording(path: Path, plant_name: str | None = None) -> Recording:
    """Read a buffer file.

    A file's word is not enough to run a Python file: a plant that lives in one is named by the user.

    Args:
        path: the file.
        plant_name: the plant, in place of the one that the file names.

    Raises:
        UserError: the file is damaged, is no buffer, or does not fit its plant.
    """
    header, arrays = read_record(path, "buffer")
    facts = header.facts
    try:
        named = str(facts["plant"])
        if plant_name is None and named not in plant_names():
            raise UserError(f"{path} names the plant {named!r}; if you trust that file, say so with --plant {named}")
        plant = make_plant(plant_name or named, **facts["parameters"])
        frequency, noise = float(facts["frequency"]), float(facts["noise"] or 0.0)
        serial, count = arrays["serial"], arrays["count"]
        fields = step_fields(len(plant.state_names), len(plant.action_names))
        shapes = {name: arrays[name].shape for name in fields}
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} lacks what a buffer file needs: {error}") from None
    if count.shape != serial.shape[:1] or not count.size or count.min() < 1 or count.max() > serial.shape[1]:
        raise UserError(f"{path} holds no experiences, or its counts do not fit its arrays")
    for name, width in fields.items():
        if shapes[name] != (*serial.shape, width):
            raise UserError(
                f"{path}: {name} has shape {shapes[name]}, {plant.name} needs {(*serial.shape, width)}; "
                "the buffer belongs to another plant"
            )
        for m, stored in enumerate(count):
            if not np.isfinite(arrays[name][m, :stored]).all():
                raise UserError(f"{path}: {name} of recording {m} holds NaN or infinity; its run failed")
    orders = [np.argsort(serial[m, : count[m]], kind="stable") for m in range(len(count))]
    return Recording(path, header, plant, frequency, noise, arrays, orders)


def replay_offline(
    recording: Recording,
    strategy: Strategy,
    *,
    updates: int,
    learner: str,
    settings: dict[str, Any],
    learners: int,
    capacity: int | None,
    root_seed: int,
    progress: Callable[[int], None],
) -> Outcome:
    """Train a fresh population from a recording and evaluate it on the plant.

    Args:
        capacity: slots of each buffer; None keeps every stored experience.
        progress: called with the number of updates done.

    Raises:
        UserError: the strategy needs a metric that the file lacks.
    """
    retention = strategy.retention
    missing = [name for name in retention.metrics if name not in recording.arrays]
    if missing:
        raise UserError(
            f"{strategy} retains by {', '.join(missing)}, which {recording.path} does not hold; use FIFO, FULL or Resv"
        )
    plant = recording.plant
    kind, config = load_learner(learner)
    sizes = len(plant.state_names), len(plant.action_names)
    task = Task(*sizes, BASE_DISCOUNT, plant.reward_scale)
    members = range(learners)
    agent: Agent = kind(
        build(config, settings, f"settings of {learner}"), task, root_seed, members, recording.frequency
    )
    longest = max(len(order) for order in recording.orders)
    replay = Replay(strategy, step_fields(*sizes), capacity or longest, root_seed, members, agent.batch_size)
    offer(recording, replay, learners)
    env = PopulationEnv(
        plant,
        learners,
        frequency=recording.frequency,
        sensor_noise=recording.noise,
        actuator_noise=recording.noise,
        seed=root_seed,
        role="evaluation",
    )
    marks = np.unique(np.linspace(0, updates, EVALUATIONS + 1).astype(np.int64))
    rewards = [greedy_episode(env, agent)]
    for before, after in itertools.pairwise(marks):
        update_phase(agent, replay, int(after - before), progress=float(before) / max(1, updates))
        rewards.append(greedy_episode(env, agent))
        progress(int(after))
    return Outcome(marks, np.array(rewards).T, agent)


def offer(recording: Recording, replay: Replay, learners: int) -> None:
    """Offer the recordings' experiences in their original order; a shorter recording ends earlier."""
    sources = [m % len(recording.orders) for m in range(learners)]
    lengths = np.array([len(recording.orders[source]) for source in sources])
    for place in range(int(lengths.max())):
        active = place < lengths
        slots = [
            recording.orders[source][min(place, length - 1)] for source, length in zip(sources, lengths, strict=True)
        ]
        replay.add({name: recording.arrays[name][sources, slots] for name in replay.columns.fields}, active)
