"""Reading of buffer files for `Mix`, offline replay, export and advice, with a check that the file fits its plant."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from replaybench.controllers.interface.agent import Task
from replaybench.controllers.registry import algorithm_of
from replaybench.data.logs.log import SUFFIXES
from replaybench.envs.interface.declarations import seen_states
from replaybench.envs.interface.plant import Plant
from replaybench.envs.registry import make_plant
from replaybench.experiments.schedule import make_task
from replaybench.replay.buffer import step_fields
from replaybench.replay.storage.schema import BufferFacts, BufferFile, open_buffer
from replaybench.replay.strategies.mixed import FixedExperiences, Mix
from replaybench.runtime.arrays import Floats, Floats32, Integers
from replaybench.runtime.errors import UserError, shown
from replaybench.runtime.user_file import called, imports_only, located

Arrays = dict[str, np.ndarray]


def as_steps(arrays: Mapping[str, np.ndarray], fields: Mapping[str, int]) -> Arrays:
    """Convert the arrays of a buffer of trajectory segments to those of a buffer of single steps.

    A segment is a range of successive steps. Each of the `fields` `[M, N, steps, width]`, with N segments of each of M
    independent runs, becomes an array `[M, n, width]`. Here n is the largest number of steps of a run. Values of whole
    segments, such as priorities, are left out.
    """
    members, slots = arrays["serial"].shape
    used = np.arange(slots) < arrays["count"][:, None]
    length = np.where(used, arrays["length"], 0).astype(np.int64)
    steps = arrays[next(iter(fields))].shape[2]
    own = np.arange(steps) < length[:, :, None]
    count = length.sum(axis=1)
    result: Arrays = {"count": count}
    place = np.arange(steps, dtype=np.uint32)
    by_step = {name: arrays[name] for name in fields}
    by_step |= {name: arrays[name][:, :, None] + place for name in ("serial", "step") if name in arrays}
    if "episode" in arrays:
        by_step["episode"] = np.repeat(arrays["episode"][:, :, None], steps, axis=2)
    for name, array in by_step.items():
        flat = np.zeros((members, int(count.max(initial=0)), *array.shape[3:]), array.dtype)
        for m in range(members):
            flat[m, : count[m]] = array[m][own[m]]
        result[name] = flat
    kept = ("collected", "episode_starts", "episode_begins")
    return result | {name: arrays[name] for name in kept if name in arrays}


_PART_ROWS: Final = 1 << 16


@dataclass(frozen=True)
class Recording:
    """A checked buffer file with the recorded experiences of one or several learners, and the plant.

    Attributes:
        frequency: Control rate in Hz.
        noise: Standard deviation of the normalised sensor and actuator noise; 0 if it is not known.
        arrays: Arrays of the file by name; empty if batches are to be read from the file during training.
        members: Indices of the learners whose experiences are finite. Other learners are not used.
        orders: Buffer indices of each learner in `members`, in the order of collection; empty if `arrays` is empty.
        failed: Number of requested learners that are not used.
        changed: Whether the definition of the plant has changed since the file was written.
        checksum: Checksum of the file's content.
    """

    path: Path
    facts: BufferFacts
    shapes: Mapping[str, tuple[int, ...]]
    plant: Plant
    frequency: float
    noise: float
    arrays: dict[str, np.ndarray]
    members: list[int]
    orders: list[Integers]
    failed: int
    changed: bool
    checksum: str

    @property
    def warnings(self) -> list[str]:
        """Warnings about recordings that are not used and about the plant, one line each."""
        lines = [f"{self.plant.name} has changed since this buffer was filled"] if self.changed else []
        left_out = f"{self.failed} recording(s) hold NaN or infinity and are left out"
        return [*lines, left_out] if self.failed else lines

    def sources(self, learners: int) -> list[int]:
        """Return the index in the file of the recorded run that each new learner replays.

        If there are more learners than recorded runs, the runs repeat in order.
        """
        return [self.members[m % len(self.members)] for m in range(learners)]

    def turns(self, learners: int) -> tuple[list[int], list[Integers]]:
        """Return the recorded run that each new learner replays, and the order of its experiences.

        The first list has indices of runs in the file. The second list has buffer indices in the order of collection.
        """
        return self.sources(learners), [self.orders[m % len(self.orders)] for m in range(learners)]

    def observation(self, learners: int, share: float) -> Floats32:
        """Return a recorded observation for each new learner, of shape `[learners, S]`.

        The observation stands at the fraction `share` < 1 of the run that the learner replays.
        """
        sources, orders = self.turns(learners)
        result: Floats32 = self.arrays["observation"][sources, [o[int(share * len(o))] for o in orders]]
        return result

    def task(self) -> Task:
        """Return the control task for which the buffer was recorded, with sizes, discount and reward scale."""
        cell = self.facts.cell
        return make_task(self.plant, self.frequency, cell.discount if cell else "fixed", self.facts.observe)

    def settings(self, learner: str) -> dict[str, Any]:
        """Return the settings with which the named learner filled the buffer, or {} if another learner filled it."""
        cell = self.facts.cell
        own, other = (algorithm_of(name) for name in (learner, cell.learner if cell else ""))
        return dict(cell.settings) if cell and own == other else {}

    def fixed(self) -> FixedExperiences:
        """Return the experiences in the order of collection, from which `Mix` draws."""
        count = np.array([len(order) for order in self.orders])
        shape = len(count), int(count.max())
        fields = {name: np.zeros((*shape, width), np.float32) for name, width in self.facts.fields.items()}
        following = np.full(shape, -1, np.int32)
        for r, (m, order) in enumerate(zip(self.members, self.orders, strict=True)):
            for name, values in fields.items():
                values[r, : len(order)] = self.arrays[name][m, order]
            if "episode" in self.arrays:
                steps = (self.arrays[name][m, order].astype(np.int64) for name in ("episode", "serial"))
                same, next_one = (np.diff(each) == due for each, due in zip(steps, (0, 1), strict=True))
                following[r, : len(order) - 1] = np.where(same & next_one, np.arange(1, len(order)), -1)
        return FixedExperiences(fields, count, following)

    def check_fields(self, learner: str, fields: Mapping[str, int]) -> None:
        """Raise `UserError` if the file lacks extra fields that the named learner replays.

        `fields` is the width of each field by name.
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
                f"{self.path} was filled by another type of policy, whose {', '.join(others)} {learner} does not use; "
                f"use a buffer that {learner} filled, or another learner"
            )


def read_recording(
    path: Path, plant_name: str | None = None, whole: bool = True, member: int | None = None
) -> Recording:
    """Read a buffer file, and check that the file fits its plant.

    Args:
        plant_name: Name of the plant. It is needed if the plant is defined in a user's Python file, because opening a
            buffer file never executes code that it names.
        whole: Whether to read the arrays into memory.
        member: Index of the only learner whose experiences are used; all learners by default.
    """
    if path.suffix.lower() in SUFFIXES:
        raise UserError(
            f"{path} is a log; make a buffer of it first: replaybench import {shlex.quote(str(path))} --plant …"
        )
    with open_buffer(path) as file:
        return _read(file, plant_name, whole, member)


def _read(file: BufferFile, plant_name: str | None, whole: bool, member: int | None) -> Recording:
    path, facts = file.path, file.facts
    named, frequency = file.fact("plant"), file.fact("frequency")
    if plant_name is not None and called(plant_name) != called(named):
        raise UserError(
            f"{path} was recorded on {shown(named)}, not on {plant_name}; name its own plant, or another file"
        )
    try:
        with imports_only(plant_name):
            plant = make_plant(plant_name or named, **facts.parameters)
        seen_states(plant.name, plant.state_names, facts.observe)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    fields = step_fields(plant.observation_size(facts.observe), len(plant.action_names))
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
    chosen_members = range(len(count)) if member is None else [member]
    if not 0 <= chosen_members[0] < len(count):
        raise UserError(f"{path} holds recordings 0 to {len(count) - 1}, not {member}")
    valid = [
        m
        for m in chosen_members
        if all(np.isfinite(record.read(name, m, rows)).all() for rows in parts(int(count[m])) for name in fields)
    ]
    if not valid:
        raise UserError(f"{path}: every requested recording holds NaN or infinity; its runs failed")
    arrays = {name: record.read(name) for name in file.shapes} if whole else {}
    if arrays and file.steps > 1:
        arrays = as_steps(arrays, facts.fields)
        count = arrays["count"]
    for member in valid if plant.action_choices else ():
        for rows in parts(int(count[member])):
            action = arrays["action"][member, rows] if arrays else record.read("action", member, rows)
            if not (chosen := plant.is_choice(action)).all():
                row, column = np.argwhere(~chosen)[0]
                where = f"{path}, recording {member}, experience {rows.start + row}"
                value = f"{plant.action_names[column]} is {action[row, column]:.4g}, normalised"
                raise UserError(
                    f"{where}: {value}, none of its choices ({plant.choices(column)} from −1 to 1); "
                    "store the choices that acted"
                )
    orders = [np.argsort(arrays["serial"][m, : count[m]], kind="stable") for m in valid] if whole else []
    failed = len(chosen_members) - len(valid)
    changed = facts.plant_fingerprint not in (None, plant.fingerprint())
    noise, checksum = facts.noise or 0.0, record.sealed.checksum
    return Recording(
        path, facts, file.shapes, plant, frequency, noise, arrays, valid, orders, failed, changed, checksum
    )


def read_mixed(mix: Mix, name: str, plant: Plant, frequency: float, observe: Sequence[str], known: str) -> Recording:
    """Read the file of `Mix`, and check that it was recorded on the plant of a study.

    Args:
        name: Name of the plant in the study.
        observe: Names of the states that learners observe; all states if empty.
        known: Checksum that the file must have, or empty for any.

    Raises:
        UserError: `read_recording` refuses the file, or it belongs to another plant, control rate or set of states.
    """
    path = located(mix.file)
    recording = read_recording(path, name)
    if known not in ("", recording.checksum):
        raise UserError(f"{path} holds other experiences than when this run began; restore it, or begin another run")
    there, here = ({**each.settings(), "discount": None} for each in (recording.plant, plant))
    own, other = tuple(observe) or plant.state_names, recording.facts.observe or plant.state_names
    different = [
        *(f"{key} = {there[key]}, not {value}" for key, value in here.items() if there[key] != value),
        *([f"a control rate of {recording.frequency:g} Hz, not {frequency:g} Hz"] * (recording.frequency != frequency)),
        *([f"the states {', '.join(other)}, not {', '.join(own)}"] * (own != other)),
    ]
    if different:
        raise UserError(f"{path} was recorded on {plant.name} with {different[0]}; use a file of equal settings")
    return recording


def parts(stored: int) -> Iterator[slice]:
    """Split the rows of an array into slices that are small enough to be read at once."""
    return (slice(start, min(start + _PART_ROWS, stored)) for start in range(0, stored, _PART_ROWS))


def curves(recording: Recording) -> tuple[Floats, Integers]:
    """Return the scores and the numbers of steps of the first E complete episodes of every learner, `[learners, E]`.

    A score is the return or the mean reward of an episode, as the plant defines it. E is the smallest number of
    complete episodes of a learner. E is 0 if the file lacks episode numbers or some collected experiences.
    """
    arrays, episodes = recording.arrays, []
    for m, order in zip(recording.members, recording.orders, strict=True):
        if len(order) < arrays["collected"][m] or "episode" not in arrays:
            return np.empty((1, 0)), np.empty((1, 0), np.int64)
        episode = arrays["episode"][m, order].astype(np.int64)
        begins = np.flatnonzero(np.diff(episode, prepend=-1))
        lengths = np.diff(begins, append=len(order))
        sums = np.add.reduceat(arrays["reward"][m, order, 0].astype(np.float64), begins)
        whole = len(begins) - ("episode_begins" in arrays and not arrays["episode_begins"][m])
        episodes.append((recording.plant.episode_score(sums, lengths)[:whole], lengths[:whole]))
    fewest = min(len(lengths) for _, lengths in episodes)
    rewards, steps = (np.stack([curve[:fewest] for curve in each]) for each in zip(*episodes, strict=True))
    return rewards, steps


def recorded_rewards(recording: Recording) -> Floats:
    """Return the mean episode score of each learner in `recording.members`, or an empty array if it is unknown.

    If the plant scores episodes by mean reward, the result always exists. If the plant scores episodes by return, all
    collected experiences must be in memory.
    """
    whole = curves(recording)[0] if recording.arrays else np.empty((1, 0))
    if whole.size:
        return np.asarray(whole.mean(axis=1))
    if recording.plant.episode_metric == "return":
        return np.empty(0)
    with open_buffer(recording.path) as file:
        sums = [
            sum(float(file.record.read("reward", m, rows).sum(dtype=np.float64)) for rows in parts(int(file.count[m])))
            for m in recording.members
        ]
        return np.asarray(np.array(sums) / file.count[recording.members])
