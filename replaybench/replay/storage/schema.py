"""Checks of the metadata, shapes and types in buffer files before use.

Checksums detect damage, not forgery. All functions that read buffer files open them with `open_buffer`. They rely on
the checked types, shapes and counts. Values are not checked, because that needs a pass over the file.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np

from replaybench.data.record import Record, open_record
from replaybench.replay.storage.slots import STEP, Unit
from replaybench.runtime.configuration import (
    Count,
    Discount,
    Hertz,
    Name,
    Noise,
    NonNegativeInt,
    RootSeed,
    Within,
    build,
)
from replaybench.runtime.errors import UserError

Width = Annotated[int, Within(1, 1_000_000)]

_PER_MEMBER: Final = {"count": "i8", "collected": "i8", "offers": "i8", "updates": "i8", "episode_begins": "u1"}
_PER_SLOT: Final = {
    "serial": "u4",
    "episode": "u4",
    "step": "u4",
    "length": "u2",
    "td_error": "f4",
    "priority": "f4",
    "replays": "u2",
    "synthetic": "u1",
}
KINDS: Final = _PER_MEMBER | _PER_SLOT
"""Data types of the arrays in buffer files, by array name."""
_COLUMNS: Final = (
    *("observation", "next_observation", "action", "reward", "terminated"),
    *("exploration", "sensor_noise", "actuator_noise"),
)
_NEEDED: Final = ("serial", "count", "collected", "offers")


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The learner of the run that filled a buffer, its settings, and the study's rule for the discount factor."""

    learner: Name
    settings: dict[str, Any]
    discount: Literal["fixed", "horizon"] = "fixed"


@dataclass(frozen=True, kw_only=True)
class BufferFacts:
    """The metadata of a buffer file, as in docs/reference/buffer-format.md. Only `fields` is required."""

    fields: dict[str, Width]
    order: tuple[str, ...] = ()
    source: str | None = None
    plant: Name | None = None
    parameters: dict[str, float | str | dict[str, Any]] = field(default_factory=dict)
    plant_fingerprint: str | None = None
    frequency: Hertz | None = None
    noise: Noise | None = None
    observe: tuple[Name, ...] = ()
    strategy: Name | None = None
    unit: Unit = STEP
    capacity: Count | None = None
    batch_size: Width | None = None
    root_seed: RootSeed | None = None
    members: tuple[NonNegativeInt, ...] = ()
    traces: tuple[str, ...] = ()
    window: Width = 1
    n_step: Width = 1
    n_step_discount: Discount = 1.0
    cell: Origin | None = None
    reward_final: tuple[float, ...] = ()
    reward_greedy: tuple[float, ...] = ()
    version: str | None = None


class BufferFile:
    """An open buffer file whose metadata and arrays have been checked.

    Attributes:
        record: The open file.
        facts: The metadata.
        shapes: Shapes of the arrays, by name.
        steps: Largest number of steps in a slot. It is 1 if experiences are stored one by one.
        slots: Number of slots N of each of M members.
        count: Number of filled slots of each member; int64, shape `[M]`.
        collected: Number of experiences that each member has collected; int64, shape `[M]`.
        offers: Number of steps (or segments, or episodes) of each member so far, without those that `Drop` discarded;
            int64, shape `[M]`.

    Raises:
        UserError: The metadata or arrays are not those of a buffer, or are inconsistent.
    """

    def __init__(self, record: Record) -> None:
        self.record, self.path = record, record.path
        self.facts = build(BufferFacts, record.header.facts, f"the facts of {self.path}", others=True)
        # With a refresh of 1, `Synth` does not use `synthetic` and stores it without slots.
        unused = {name for name, shape in record.header.shapes.items() if name == "synthetic" and shape[1:] == (0,)}
        self.shapes = {name: shape for name, shape in record.header.shapes.items() if name not in unused}
        if self.facts.order and sorted(self.facts.order) != sorted(self.facts.fields):
            raise UserError(f"the facts of {self.path}: order must name each of the fields once")
        for name, value in self.facts.parameters.items():
            if isinstance(value, dict) != (name in ("channel", "spread")):
                raise UserError(f"the facts of {self.path}: the parameter {name} is of the wrong type")
        self._check_shapes()
        self.count, self.collected, self.offers = (record.read(name) for name in ("count", "collected", "offers"))
        for m, (stored, offers, collected) in enumerate(zip(self.count, self.offers, self.collected, strict=True)):
            if not 0 <= stored <= min(offers, self.slots) or offers > collected:
                raise UserError(
                    f"{self.path}: member {m} stores {stored} of {offers} offers of {collected} experiences in "
                    f"{self.slots} slots"
                )
        if (numbers := len(set(self.facts.members))) not in (0, self.members):
            raise UserError(f"{self.path} names {numbers} different members and holds {self.members}")

    @property
    def members(self) -> int:
        """Number M of members whose experiences the file contains."""
        return len(self.count)

    def fact(self, name: str) -> Any:
        """Return an entry of the metadata, or raise `UserError` if the file does not contain the entry."""
        value = getattr(self.facts, name)
        if value is None:
            raise UserError(f"the facts of {self.path}: {name!r} is missing")
        return value

    def check_recordings(self, numbers: Sequence[int]) -> None:
        """Raise `UserError` unless the file contains experiences and has members with the given indices."""
        if not self.count.any():
            raise UserError(f"{self.path} holds no experiences")
        for number in numbers:
            if not 0 <= number < self.members:
                raise UserError(f"{self.path} holds recordings 0 to {self.members - 1}, not {number}")

    def _check_shapes(self) -> None:
        for name in (*_NEEDED, *self.facts.fields):
            if name not in self.shapes:
                raise UserError(f"{self.path} lacks {name}, which a buffer file needs")
        for name in _COLUMNS:
            if name in self.shapes and name not in self.facts.fields:
                raise UserError(f"{self.path} holds {name}, but does not name it among its fields")
        serial = self.shapes["serial"]
        columns = {len(self.shapes[name]): self.shapes[name] for name in self.facts.fields}
        if len(serial) != 2 or not serial[0] or not columns or set(columns) - {3, 4} or len(columns) > 1:
            raise UserError(f"{self.path} lacks what a buffer file needs: members, slots, and columns of one form")
        self.slots, shape = serial[1], next(iter(columns.values()))
        self.steps = shape[2] if len(shape) == 4 else 1
        if self.steps > 1 and "length" not in self.shapes:
            raise UserError(f"{self.path} lacks the lengths of its units of {self.steps} steps")
        for name, actual in self.shapes.items():
            due = self._due(name, shape[2:-1])
            dtype = np.dtype(self.record.header.dtypes[name])
            if due is not None and (actual, dtype) != due:
                raise UserError(f"{self.path}: {name} is {dtype} of shape {actual}, not {due[1]} of shape {due[0]}")

    def _due(self, name: str, steps: tuple[int, ...]) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
        """Return the required shape and dtype of an array, or None if these depend on the strategy or the learner."""
        members, slots = self.shapes["serial"]
        if name in self.facts.fields:
            return (members, slots, *steps, self.facts.fields[name]), np.dtype("f4")
        if name in _PER_SLOT:
            return (members, slots), np.dtype(_PER_SLOT[name])
        if name in _PER_MEMBER:
            return (members,), np.dtype(_PER_MEMBER[name])
        if name == "episode_starts":
            found = self.shapes[name]
            return (members, found[1] if len(found) > 1 else 0), np.dtype("u4")
        return None


@contextmanager
def open_buffer(path: Path) -> Iterator[BufferFile]:
    """Open and check a buffer file as a context manager, with the errors of `open_record` and `BufferFile`."""
    with open_record(path, "buffer") as record:
        yield BufferFile(record)
