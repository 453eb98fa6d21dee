"""Learn from a stored buffer without touching a plant, then see on the plant what was learned.

Stored experiences are offered in their original order, through the strategy's own retention, to a fresh population;
then training starts, in phases as long as those after an episode. Learner i replays recording i of the file, in turn
where there are more learners than recordings. A strategy that attends to the agent's state attends to the recording's
observations, from its first to its last. A recording that is larger than memory is streamed from its file instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.baselines.reference_controllers import run_episode
from replaybench.controllers.agent import Actions, Agent, Task
from replaybench.controllers.registry import algorithm_of, load_learner
from replaybench.controllers.setting import LearnerSetting
from replaybench.data.configuration import build
from replaybench.data.errors import UserError
from replaybench.data.records.record import Record
from replaybench.envs.interface.checks import seen_states
from replaybench.envs.interface.plant import Plant
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import is_installed, make_plant
from replaybench.experiments.training.cell import make_task, stored_fields
from replaybench.experiments.training.loop import update_once
from replaybench.experiments.training.offline_changes import NO_CHANGES, Changes, merged
from replaybench.experiments.training.plant_model import PlantModel
from replaybench.experiments.training.schedule import updates_after, with_phases
from replaybench.experiments.training.unit_steps import as_steps
from replaybench.replay.buffer import Replay, step_fields
from replaybench.replay.files.buffer_schema import BufferFacts, BufferFile, open_buffer
from replaybench.replay.files.buffer_stream import BufferStream
from replaybench.replay.storage.units import Unit
from replaybench.replay.strategies.strategy import Strategy
from replaybench.replay.strategies.view import Context

EVALUATIONS = 20
_PART_ROWS = 1 << 16


@dataclass(frozen=True)
class Recording:
    """A buffer file, checked: its plant, and the experiences of each recording in the order of their offer.

    `members` are the file's recordings that did not fail, `orders` their slots; `failed` counts the others. `changed`
    says that the plant is no longer what it was when the file was written. Without its `arrays` (and `orders`) it can
    only be streamed.
    """

    path: Path
    facts: BufferFacts
    shapes: Mapping[str, tuple[int, ...]]
    plant: Plant
    frequency: float
    noise: float
    arrays: dict[str, NDArray[Any]]
    members: list[int]
    orders: list[NDArray[np.int64]]
    failed: int
    changed: bool

    def sources(self, learners: int) -> list[int]:
        """Return the recording of each learner, in turn."""
        return [self.members[m % len(self.members)] for m in range(learners)]

    def turns(self, learners: int) -> tuple[list[int], list[NDArray[np.int64]]]:
        """Return the recording of each learner, and its slots in the order of their offer."""
        return self.sources(learners), [self.orders[m % len(self.orders)] for m in range(learners)]

    def observation(self, learners: int, share: float) -> NDArray[np.float32]:
        """Return what was observed `[learners, S]` when this share of each recording was over."""
        sources, orders = self.turns(learners)
        found: NDArray[np.float32] = self.arrays["observation"][sources, [o[int(share * len(o))] for o in orders]]
        return found

    def task(self) -> Task:
        """Return the control problem of those who filled the buffer, their discount and reward scale included."""
        cell = self.facts.cell
        return make_task(self.plant, self.frequency, cell.discount if cell else "fixed", self.facts.observe)

    def settings(self, learner: str) -> dict[str, Any]:
        """Return the settings with which `learner` filled the buffer; empty (defaults) for another learner or a log.

        As in studies, case does not matter and what follows a colon is a label.
        """
        cell = self.facts.cell
        mine, theirs = (algorithm_of(name) for name in (learner, cell.learner if cell else ""))
        return dict(cell.settings) if cell and mine == theirs else {}

    def check_fields(self, learner: str, fields: Mapping[str, int]) -> None:
        """Check that the file holds what a learner needs stored, `fields` by width.

        Raises:
            UserError: it does not.
        """
        for name, width in fields.items():
            if self.facts.fields.get(name) != width:
                raise UserError(
                    f"{learner} replays {name} ({width} numbers), which {self.path} does not hold; "
                    f"use a buffer that {learner} filled with these settings, or another learner"
                )
        others = [name for name in self.shapes if name.startswith("behaviour") and name not in fields]
        if fields and others:
            raise UserError(
                f"{self.path} was filled by another kind of policy, whose {', '.join(others)} {learner} does not heed; "
                f"use a buffer that {learner} filled, or another learner"
            )


@dataclass(frozen=True)
class Outcome:
    """What offline replay gave.

    `reward` `[learners, K]` is what the plant tells of a greedy episode after each evaluated number of `updates` `[K]`.
    """

    updates: NDArray[np.int64]
    reward: NDArray[np.float64]
    agent: Agent


def read_recording(
    path: Path, plant_name: str | None = None, whole: bool = True, member: int | None = None
) -> Recording:
    """Read a buffer file.

    A file's word is not enough to run a Python file: a plant that lives in one is named by the user.

    Args:
        path: the file.
        plant_name: the plant, in place of the one that the file names.
        whole: whether to keep its arrays, or only to look through them.
        member: place of the only recording to learn from; None for all.

    Raises:
        UserError: the file is damaged, is no buffer, has no such recording, or does not fit its plant.
    """
    with open_buffer(path) as file:
        return _read(file, plant_name, whole, member)


def _read(file: BufferFile, plant_name: str | None, whole: bool, member: int | None) -> Recording:
    path, facts = file.path, file.facts
    named, frequency = file.fact("plant"), file.fact("frequency")
    if plant_name is None and not is_installed(named):
        raise UserError(f"{path} names the plant {named!r}; if you trust that file, say so with --plant {named}")
    try:
        plant = make_plant(plant_name or named, **facts.parameters)
        seen_states(plant.name, plant.state_names, facts.observe)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    fields = step_fields(len(facts.observe or plant.state_names), len(plant.action_names))
    for name, width in fields.items():
        if facts.fields.get(name) != width:
            raise UserError(
                f"{path}: {name} holds {facts.fields.get(name, 0)} numbers, {plant.name} needs {width}; "
                "the buffer belongs to another plant"
            )
    if not file.count.all():
        raise UserError(f"{path} holds no experiences of recording {int(file.count.argmin())}")
    if file.steps > 1 and not whole:
        raise UserError(f"{path} holds segments of {file.steps} steps, which cannot be streamed; leave --stream out")
    record, count = file.record, file.count
    asked = range(len(count)) if member is None else [member]
    if not 0 <= asked[0] < len(count):
        raise UserError(f"{path} holds recordings 0 to {len(count) - 1}, not {member}")
    sound = [m for m in asked if _is_finite(record, m, int(count[m]), list(fields))]
    if not sound:
        raise UserError(f"{path}: every recording that was asked for holds NaN or infinity; its runs failed")
    arrays = {name: record.read(name) for name in file.shapes} if whole else {}
    if arrays and file.steps > 1:
        arrays = as_steps(arrays, facts.fields)
        count = arrays["count"]
    orders = [np.argsort(arrays["serial"][m, : count[m]], kind="stable") for m in sound] if whole else []
    failed = len(asked) - len(sound)
    changed = facts.plant_fingerprint not in (None, plant.fingerprint())
    noise = facts.noise or 0.0
    return Recording(path, facts, file.shapes, plant, frequency, noise, arrays, sound, orders, failed, changed)


def _is_finite(record: Record, member: int, stored: int, fields: list[str]) -> bool:
    """Tell whether a recording holds neither NaN nor infinity, a part of it at a time."""
    parts = (slice(start, min(start + _PART_ROWS, stored)) for start in range(0, stored, _PART_ROWS))
    return all(np.isfinite(record.read(name, member, rows)).all() for rows in parts for name in fields)


def replay_offline(
    recording: Recording,
    strategy: Strategy,
    *,
    updates: int,
    learner: str,
    learners: int,
    capacity: int | None,
    root_seed: int,
    progress: Callable[[int], None],
    changes: Changes = NO_CHANGES,
) -> Outcome:
    """Train a fresh population from a recording and evaluate it on the plant.

    Args:
        strategy: how to replay; a recording without its arrays is streamed, whatever this says.
        capacity: slots of each buffer; None keeps every stored experience.
        progress: called with the number of updates done.
        changes: what is otherwise than the recording says.

    Raises:
        UserError: the strategy needs a metric that the file lacks, or the policy that filled it.
    """
    plant, members = recording.plant, range(learners)
    kind, config = load_learner(learner)
    settings = merged(recording.settings(learner), changes.settings)
    configured = build(config, settings, f"settings of {learner} for {recording.path}")
    actions = Actions(plant.name, len(plant.action_names), plant.action_choices)
    kind.check(configured, actions, strategy.refer is not None)
    noise = recording.noise if changes.noise is None else changes.noise
    task = recording.task()
    task = task if changes.discount is None else task._replace(discount=changes.discount)
    setting = LearnerSetting(task, root_seed, members, recording.frequency, refer=strategy.refer)
    agent: Agent = kind(configured, setting)
    recording.check_fields(learner, agent.fields)
    batch = agent.batch_size * agent.segment
    if capacity is not None and capacity < batch:
        raise UserError(f"--capacity {capacity} is smaller than a batch of {batch}")
    if strategy.synth is not None and hasattr(configured, "segment"):
        raise UserError(f"{strategy}: Synth alters single experiences, and {learner} replays trajectories")
    if not recording.arrays and (max(agent.segment, agent.window) > 1 or agent.traces is not None):
        raise UserError(f"{learner} follows experiences along their episodes, which --stream tears apart; leave it out")
    if not recording.arrays and agent.normaliser.on:
        raise UserError(f"{learner} normalises by all that was collected, which --stream does not read; leave it out")
    strategy = strategy.at(recording.frequency)
    with_phases(strategy, agent, plant.steps_per_episode(recording.frequency), every=0)
    env = PopulationEnv(
        plant,
        learners,
        frequency=recording.frequency,
        sensor_noise=noise,
        actuator_noise=noise,
        seed=root_seed,
        role="evaluation",
        observe=recording.facts.observe,
        nan_actions="fail",
    )
    source: Replay | BufferStream
    if recording.arrays:
        source = _filled(recording, strategy, capacity, root_seed, members, PlantModel(env, agent))
    else:
        turns, uses = recording.sources(learners), agent.replays_per_experience
        source = BufferStream(recording.path, agent.batch_size, root_seed, members, recordings=turns, replays=uses)
    longest = env.steps_per_episode
    phase = max(1, round(updates_after(longest, longest, strategy, agent)))
    marks = np.unique(np.linspace(0, updates, EVALUATIONS + 1).astype(np.int64))
    rewards = [run_episode(agent.greedy(), env)]
    for update in range(updates):
        attended = recording.observation(learners, update / updates) if strategy.sampling.needs_state else None
        update_once(agent, source, Context(update % phase, phase, update / updates, attended))
        if update + 1 in marks:
            rewards.append(run_episode(agent.greedy(), env))
            progress(update + 1)
    return Outcome(marks, np.array(rewards).T, agent)


def _filled(
    recording: Recording,
    strategy: Strategy,
    capacity: int | None,
    root_seed: int,
    members: range,
    model: PlantModel,
) -> Replay:
    """Return buffers that were offered the recordings."""
    missing = [name for name in strategy.retention.orders if name not in recording.arrays]
    if missing:
        raise UserError(
            f"{strategy} retains by {', '.join(missing)}, which {recording.path} does not hold; use FIFO, FULL or Resv"
        )
    if strategy.synth and (strategy.synth.state or "exploration" in strategy.orders):
        raise UserError(
            f"{strategy}: Synth asks the policy that explores, and a recording has none; "
            "use Synth(action=…) before FIFO, FULL, Resv or TDE"
        )
    agent = model.agent
    known = stored_fields(recording.plant, observe=recording.facts.observe)
    fields = {name: width for name, width in known.items() if name in recording.arrays} | dict(agent.fields)
    room = strategy.room(capacity or _room(recording, agent.segment))
    unit = Unit(agent.segment)
    batch, traces = agent.batch_size, agent.traces
    replay = Replay(strategy, fields, room, root_seed, members, batch, unit, model, traces, agent.window)
    offer(recording, replay, agent)
    if (kept := int(replay.count.min())) < batch:
        what = "experiences" if agent.segment == 1 else f"segments of {agent.segment} steps"
        raise UserError(
            f"{strategy} keeps {kept} {what} of {recording.path}, and a batch has {batch}: keep more, or learn from "
            "fewer at a time (--set batch_size=…)"
        )
    return replay


def _room(recording: Recording, segment: int) -> int:
    """Return the steps that keep every experience; a segment that is short takes the room of a whole one."""
    episode, serial = recording.arrays.get("episode"), recording.arrays["serial"].astype(np.int64)
    if segment == 1 or episode is None:
        return max(math.ceil(len(order) / segment) for order in recording.orders) * segment
    most = 0
    for m, order in zip(recording.members, recording.orders, strict=True):
        # A segment ends with its episode and at each gap, as in `offer`.
        begins = (np.diff(episode[m][order]) != 0) | (np.diff(serial[m][order]) != 1)
        runs = np.diff(np.flatnonzero(np.r_[True, begins, True]))
        most = max(most, int(np.ceil(runs / segment).sum()))
    return most * segment


def offer(recording: Recording, replay: Replay, agent: Agent) -> None:
    """Offer the recordings' experiences in their original order; a shorter recording ends earlier.

    What a recording says of TD errors decides what is kept; to the learners, who have seen nothing, none is known.
    What they derive along episodes is derived afresh; where steps are missing, which retention had dropped, an episode
    is cut off.
    """
    sources, orders = recording.turns(len(replay.members))
    lengths = np.array([len(order) for order in orders])
    known = [name for name in (*replay.columns.fields, *replay.orders) if name in recording.arrays]
    episode, serial = recording.arrays.get("episode"), recording.arrays["serial"].astype(np.int64)
    for place in range(int(lengths.max())):
        slots, following = ([order[min(at, len(order) - 1)] for order in orders] for at in (place, place + 1))
        experience = {name: recording.arrays[name][sources, slots] for name in known}
        if "td_error" in experience:
            experience["td_error"] = experience["td_error"][:, None]
        active, ended = place < lengths, None
        if episode is not None:
            ended = (episode[sources, slots] != episode[sources, following]) | (place + 1 == lengths)
            # What lies beyond a gap does not follow.
            ended |= serial[sources, following] != serial[sources, slots] + 1
        unknown = np.zeros(len(active), np.bool_)
        experience |= agent.on_recorded_step(experience, unknown if ended is None else ended, active)
        replay.add(experience, active, ended)
    replay.forget_errors()
