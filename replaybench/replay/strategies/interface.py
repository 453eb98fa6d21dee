"""Interfaces of retention, sampling and weighting.

A frozen dataclass describes a part of a strategy. Its `start` returns the running form, which has the state for the
buffers of a population.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.replay.orders.rank_order import RankOrder
from replaybench.replay.storage.columns import Columns, Indices, State
from replaybench.replay.storage.traces import EpisodeStarts, Traces
from replaybench.runtime.arrays import Floats, Floats32
from replaybench.runtime.errors import UserError
from replaybench.runtime.streams import Stream
from replaybench.runtime.user_file import name_in_file


class BufferView(NamedTuple):
    """The parts of a buffer that running forms may read.

    Attributes:
        root, members: seed of the study and member numbers `[M]`.
        capacity: slots of each member.
        bounded: whether the buffer has a fixed size; a FULL buffer has the size that its run needs.
        in_turn: whether slots are filled and overwritten in turn, so that slot order is age order.
        columns: the stored experiences; strategies only read them.
        orders: rank orders by metric; strategies only draw from them.
        episodes: starts of episodes; strategies only read them.
        traces: the learner's numbers along episodes, None if it has none; strategies only read them.
    """

    root: int
    members: Sequence[int]
    capacity: int
    bounded: bool
    in_turn: bool
    columns: Columns
    orders: Mapping[str, RankOrder]
    episodes: EpisodeStarts
    traces: Traces | None

    def stream(self, purpose: str) -> Stream:
        """Return the members' random streams for a purpose."""
        return Stream(self.root, self.members, purpose)


class Context(NamedTuple):
    """The inputs of sampling and weighting in addition to the stored experiences.

    Attributes:
        update, updates_in_phase: index of the update in its phase, from 0, and number of updates in the phase.
        progress: 0 at the first episode of the run, 1 at its end.
        state: an observation `[M, S]` of each agent, to compare stored states with; None unless `Sampling.needs_state`.
        updates_before: number of updates in the run before this one; `Replay` sets it.
    """

    update: int = 0
    updates_in_phase: int = 1
    progress: float = 0.0
    state: Floats32 | None = None
    updates_before: int = 0


class Running:
    """Base class of running forms; by default without state."""

    def stored(self, slots: Indices) -> None:
        """Called after an experience was stored in `slots[m]` of each member (−1: none)."""

    def state_dict(self, stored: int) -> State:
        """Return the arrays that a resumed run needs, those per slot cut to the `stored` slots in use."""
        return {}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Restore a `state_dict`, with identical results from then on."""


class Drawing(Running):
    """A running form that draws random numbers, from one stream per member, named by its purpose."""

    def __init__(self, view: BufferView, purpose: str) -> None:
        self.stream = view.stream(purpose)
        self._key = f"{purpose}_stream"

    def state_dict(self, stored: int) -> State:
        return {self._key: self.stream.state}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        self.stream.state[:] = state[self._key]


@dataclass(frozen=True)
class Term:
    """Base class of the terms of the notation."""

    name: ClassVar[str] = ""
    """Its name in the notation; the class's own name if empty."""
    second: ClassVar[str] = ""
    """The field whose value, another term, is written after a plus; its name there is the second part of `name`."""
    always_written: ClassVar[bool] = False
    """Whether values are written even if they are the default."""
    keywords: ClassVar[bool] = False
    """Whether values are written with parameter names, because a value alone is ambiguous."""
    no_parameters: ClassVar[str] = ""
    """The error message if parameters are written for a term that has none; empty otherwise."""

    @classmethod
    def written_name(cls) -> str:
        """Return its name in the notation; for a class in a user's file, the file and the class name."""
        return name_in_file(cls) or cls.name or cls.__name__

    @classmethod
    def parameters(cls) -> dict[str, dataclasses.Field[Any]]:
        """Return the fields that are written in its brackets, by name; keyword-only ones come last."""
        fields = sorted(dataclasses.fields(cls), key=lambda field: field.kw_only is True)
        return {field.name: field for field in fields if field.name != cls.second}

    @classmethod
    def kinds(cls, parameter: str) -> tuple[Any, ...]:
        """Return the types that a parameter may have: the parts of its union, or its only type."""
        hint = typing.get_type_hints(cls)[parameter]
        return typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)

    def __str__(self) -> str:
        first, _, second = self.written_name().partition("+")
        behind = f"+{second}{getattr(self, self.second).in_brackets()}" if self.second else ""
        return f"{first}{self.in_brackets()}{behind}"

    def in_brackets(self) -> str:
        """Return those parameters in brackets that differ from their defaults."""
        fields = self.parameters()
        changed = {
            name: self._plain(name)
            for name, field in fields.items()
            if self.always_written or getattr(self, name) != field.default
        }
        if not changed:
            return ""
        if list(changed) == list(fields)[:1] and not self.keywords:
            return f"({next(iter(changed.values()))})"
        return "(" + ", ".join(f"{name}={value}" for name, value in changed.items()) + ")"

    def _plain(self, parameter: str) -> str:
        value = getattr(self, parameter)
        if value is None or isinstance(value, bool | str):
            return str(value).lower()
        number = int(value) if int in self.kinds(parameter) else float(value)
        return repr(number).replace("e+", "e")  # a plus would start a modifier


class Draws(NamedTuple):
    """The arrays that a sampling writes.

    Attributes:
        idx: slots int64 `[M, B]`.
        probability: chance of each draw, float64 `[M, B]`; NaN where it is not known.
        rate_factor: factor on each member's learning rate, float32 `[M]`.
    """

    idx: Indices
    probability: Floats
    rate_factor: Floats32


class Usage(NamedTuple):
    """How a buffer has been used so far.

    Attributes:
        updates: number of batches drawn, including the current one; phase_end: that number at the end of the phase.
        offers, stored: numbers of offered experiences and of those stored now, `[M]`.
    """

    updates: int
    phase_end: int
    offers: Indices
    stored: Indices


class RunningWeighting(Running, ABC):
    """The running form of a weighting."""

    @abstractmethod
    def weigh(self, context: Context, usage: Usage, draws: Draws, weight: Floats32) -> None:
        """Fill weight `[M, B]`."""


@dataclass(frozen=True)
class Weighting(Term, ABC):
    """A weight for each replayed experience."""

    by_probability: ClassVar[bool] = False
    """Whether weights are computed from the probabilities of the draws."""
    slot_bytes: ClassVar[int] = 0
    """The approximate bytes per slot that it needs."""

    all_networks = False
    """Whether the losses of all networks are weighted; otherwise only the critic's."""

    @property
    def steady(self) -> bool:
        """Whether weights do not depend on the progress of the run."""
        return False

    @abstractmethod
    def start(self, view: BufferView) -> RunningWeighting:
        """Return the object that computes the weights during a run."""


_MOST: Final = 1_000_000_000
"""Largest capacity; studies have the same limit."""


class RunningRetention(Running, ABC):
    """The running form of a retention: it chooses the slots to overwrite when buffers are full."""

    @abstractmethod
    def slots(self, offers: Indices, capacity: int, slots: Indices) -> None:
        """Fill `slots[m]` for every member whose entry is −2 (its buffer is full): a slot, or −1 for 'discard'.

        `offers` `[M]` counts each member's offers, including the current one.
        """


@dataclass(frozen=True)
class Retention(Term, ABC):
    """A retention strategy.

    Attributes:
        capacity: maximum number of experiences of a bounded retention; None for the study's.
    """

    capacity: int | None = field(default=None, kw_only=True)

    bounded: ClassVar[bool] = True
    """False if nothing is ever discarded: the buffer then grows to the number of experiences offered."""
    in_turn: ClassVar[bool] = False
    """Whether slots are filled and overwritten in turn, so that slot order is age order."""
    orders: ClassVar[tuple[str, ...]] = ()
    """Metrics by which slots must be kept in rank order."""
    traces: ClassVar[tuple[str, ...]] = ()
    """Traces that the learner must keep."""
    slot_bytes: ClassVar[int] = 0
    """The approximate bytes per slot that it needs in addition to rank orders."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.in_turn = vars(cls).get("in_turn", False)  # a subclass may choose other slots

    def __post_init__(self) -> None:
        if self.capacity is not None and not (self.bounded and 1 <= self.capacity <= _MOST):
            allowed = f"a whole number from 1 to {_MOST}" if self.bounded else "left out: it keeps everything"
            raise UserError(f"{self.written_name()}: capacity must be {allowed}, not {self.capacity}")

    @classmethod
    def parameters(cls) -> dict[str, dataclasses.Field[Any]]:
        """Return the fields that are written in its brackets, by name; without `capacity` if it has none."""
        return {name: found for name, found in super().parameters().items() if cls.bounded or name != "capacity"}

    @abstractmethod
    def start(self, view: BufferView) -> RunningRetention:
        """Return the running form."""


FEEDBACK: Final = ("td_error", "rate", "phase")
"""The possible entries of `Sampling.feedback`."""


class RunningSampling(Drawing, ABC):
    """The running form of a sampling."""

    def __init__(self, view: BufferView) -> None:
        super().__init__(view, "sampling")

    @abstractmethod
    def draw(self, context: Context, count: Indices, offers: Indices, draws: Draws) -> None:
        """Fill `draws`, given the numbers `[M]` of stored and offered experiences; each member stores at least one."""

    def annotate(self, idx: Indices, td_error: Floats32) -> None:
        """Use |δ| `[M, B]` of the experiences in slots idx `[M, B]`; skip an idx below 0."""


@dataclass(frozen=True)
class Sampling(Term, ABC):
    """A sampling strategy."""

    orders: ClassVar[tuple[str, ...]] = ()
    """Metrics by which slots must be kept in rank order."""
    needs_state: ClassVar[bool] = False
    """Whether draws compare stored states with a state of the agent, `Context.state`."""
    feedback: ClassVar[tuple[str, ...]] = ()
    """Its needs during training. `td_error`: annotations of that name. `rate`: a learner that multiplies learning rates
    by `rate_factor`. `phase`: the numbers of updates in `Context`."""
    independent: ClassVar[bool] = False
    """Whether draws depend neither on each other nor on the update, so that batches can be drawn ahead."""
    steady: ClassVar[bool] = False
    """Whether draws do not depend on the progress of the run."""
    by_place: ClassVar[bool] = False
    """Whether draws depend on the buffer's capacity, or on the slots of experiences, even if only by rounding."""
    importance_undefined: ClassVar[str] = ""
    """Why importance weights of these draws make no sense; empty if they do."""

    weighting: ClassVar[Weighting | None] = None
    """Its default weighting, used unless the strategy names another."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for flag in ("independent", "steady"):  # not inherited, because a subclass may draw in another way
            setattr(cls, flag, vars(cls).get(flag, False))

    @property
    def needs_phase(self) -> bool:
        """Whether draws depend on the index of an update in a phase whose length the schedule decides."""
        return False

    def in_phases(self, updates: int) -> Sampling:
        """Return this sampling with phases of `updates` updates; called only if `needs_phase`."""
        raise NotImplementedError

    def slot_bytes(self, in_turn: bool) -> int:
        """Return its approximate bytes per slot in addition to rank orders; `in_turn` as in `BufferView`."""
        return 0

    @abstractmethod
    def start(self, view: BufferView) -> RunningSampling:
        """Return the running form."""
