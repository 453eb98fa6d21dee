"""Interfaces of retention, sampling and weighting rules.

A frozen dataclass describes each part of a strategy. Its `start` method returns the object that executes the part
during a run. This object holds the state of the part for all members.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.data.batch import SQUARED, CriticLoss
from replaybench.replay.orders.rank_order import RankOrder
from replaybench.replay.storage.columns import Columns, Indices, State
from replaybench.replay.storage.traces import EpisodeStarts, Traces
from replaybench.runtime.arrays import Floats, Floats32
from replaybench.runtime.errors import UserError
from replaybench.runtime.streams import Stream
from replaybench.runtime.user_file import name_in_file


class BufferView(NamedTuple):
    """The parts of a buffer that a strategy may read during a run.

    Attributes:
        root: Root seed of the study.
        members: Numbers of the M members.
        capacity: Number of buffer slots of each member.
        bounded: Whether the buffer has a fixed size. With `FULL` retention, it has space for all steps of the run.
        in_turn: Whether slots are filled and overwritten in turn, as a ring in order of age.
        columns: The stored experiences.
        orders: The rank order of each member's slots by a metric such as `td_error`, by name of the metric.
        episodes: The first experience of each episode.
        traces: Values that the learner maintains for each stored step, or None.
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
        """Return a random stream of each member for a purpose, such as `sampling`."""
        return Stream(self.root, self.members, purpose)


class Context(NamedTuple):
    """The progress of the training and the agents' states, on which sampling and weighting can depend.

    Attributes:
        update: Index of the update in its update phase, from 0. A phase consists of the updates after an episode or
            rollout.
        updates_in_phase: Number of updates in the phase.
        progress: Progress of the run, from 0 at the first episode to 1 at the end.
        state: Recent observation of each agent, shape `[M, S]`, or None if the sampling does not need it.
        updates_before: Number of earlier updates in the run. `Replay` sets it.
    """

    update: int = 0
    updates_in_phase: int = 1
    progress: float = 0.0
    state: Floats32 | None = None
    updates_before: int = 0


class Running:
    """Base class of the objects that execute a part of a strategy during a run, such as retention or sampling."""

    def stored(self, slots: Indices) -> None:
        """Update the state after new experiences were stored, one per member in buffer slot `slots[m]`.

        An entry −1 means that the member stored no experience.
        """

    def state_dict(self, stored: int) -> State:
        """Return the arrays that a resumed run needs. Arrays with an entry per slot are cut to `stored` slots."""
        return {}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Restore the arrays that `state_dict` returned, so that a resumed run has the same results."""


class Drawing(Running):
    """Base class of the objects that execute a part of a strategy during a run and draw random numbers."""

    def __init__(self, view: BufferView, purpose: str) -> None:
        self.stream = view.stream(purpose)
        self._key = f"{purpose}_stream"

    def state_dict(self, stored: int) -> State:
        return {self._key: self.stream.state}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        self.stream.state[:] = state[self._key]


@dataclass(frozen=True)
class Term:
    """Base class of the terms of the strategy notation, such as `FIFO` or `PER(0.6)`."""

    name: ClassVar[str] = ""
    """Name of the term in the strategy notation. If it is empty, the name of the class is used."""
    second: ClassVar[str] = ""
    """Name of the field that holds a second term, as PER in `ERE+PER`, or empty if there is no second term."""
    always_written: ClassVar[bool] = False
    """Whether the notation writes the values of parameters even if these are the defaults."""
    keywords: ClassVar[bool] = False
    """Whether the notation always writes `parameter=value`, because a value alone is ambiguous."""
    largest_bare: ClassVar[float] = math.inf
    """Largest value of the first parameter for which the notation accepts and writes the value alone."""
    no_parameters: ClassVar[str] = ""
    """Error message if a user gives parameters to a term that has none, or empty for the usual message."""

    @classmethod
    def written_name(cls) -> str:
        """Return the name of the term in the strategy notation. For a class in a user's file, it includes the file."""
        return name_in_file(cls) or cls.name or cls.__name__

    @classmethod
    def parameters(cls) -> dict[str, dataclasses.Field[object]]:
        """Return the fields that the strategy notation writes in brackets, by name. Keyword-only fields are last."""
        fields = sorted(dataclasses.fields(cls), key=lambda field: field.kw_only is True)
        return {field.name: field for field in fields if field.name != cls.second}

    @classmethod
    def kinds(cls, parameter: str) -> tuple[object, ...]:
        """Return the types that the value of a parameter of the term can have."""
        hint = typing.get_type_hints(cls)[parameter]
        return typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)

    @classmethod
    def clear(cls, value: object) -> bool:
        """Return whether a value without a name is clearly that of the first parameter."""
        return not (isinstance(value, int | float) and cls.largest_bare < value < math.inf)

    def __str__(self) -> str:
        first, _, second = self.written_name().partition("+")
        behind = f"+{second}{getattr(self, self.second).in_brackets()}" if self.second else ""
        return f"{first}{self.in_brackets()}{behind}"

    def in_brackets(self) -> str:
        """Return the parameters of the term that differ from their defaults, as text in brackets or an empty string."""
        fields = self.parameters()
        changed = {
            name: self._plain(name)
            for name, field in fields.items()
            if self.always_written or getattr(self, name) != field.default
        }
        if not changed:
            return ""
        if list(changed) == list(fields)[:1] and not self.keywords and self.clear(getattr(self, next(iter(fields)))):
            return f"({next(iter(changed.values()))})"
        return "(" + ", ".join(f"{name}={value}" for name, value in changed.items()) + ")"

    def _plain(self, parameter: str) -> str:
        value = getattr(self, parameter)
        if isinstance(value, Path):
            return str(value)
        if value is None or isinstance(value, bool | str):
            return str(value).lower()
        number = int(value) if int in self.kinds(parameter) else float(value)
        return repr(number).replace("e+", "e")  # a plus would start a modifier


def check_exponent(term: Term, alpha: float) -> None:
    """Raise `UserError` if α, the exponent of priorities or ranks, is negative or not finite."""
    if not 0 <= alpha < math.inf:
        raise UserError(f"{type(term).__name__}({alpha:g}): α must be a finite number ≥ 0")


class Draws(NamedTuple):
    """The output arrays of a sampling rule, which draws B samples from the buffer of each of M members.

    Attributes:
        idx: Buffer slot of each sample; int64, shape `[M, B]`.
        probability: Probability of each draw, or NaN if the probability is unknown; float64, shape `[M, B]`.
        rate_factor: Factor on each member's learning rate; float32, shape `[M]`. If a rule is `independent`, the B
            samples may be those of U updates. The shape is then `[M·U]`.
    """

    idx: Indices
    probability: Floats
    rate_factor: Floats32


class Usage(NamedTuple):
    """The numbers of batches and experiences so far, from which weights of samples can be computed.

    Attributes:
        updates: Number of batches drawn for each member, including the current one.
        phase_end: Number of batches at the end of the current update phase. A phase consists of the updates after an
            episode or rollout.
        offers: Number of experiences of each member so far, without those that `Drop` discarded, shape `[M]`.
        stored: Number of experiences in the buffer of each member, shape `[M]`.
    """

    updates: int
    phase_end: int
    offers: Indices
    stored: Indices


class RunningWeighting(Running, ABC):
    """Base class of the objects that compute the weights of samples during a run."""

    @abstractmethod
    def weigh(self, context: Context, usage: Usage, draws: Draws, weight: Floats32) -> None:
        """Write the loss weight of each sample to `weight`, shape `[M, B]` for B samples per member."""


@dataclass(frozen=True)
class Weighting(Term, ABC):
    """Base class of weighting rules, which give each sample a weight in the loss."""

    by_probability: ClassVar[bool] = False
    """Whether weights depend on the probabilities with which samples are drawn."""
    slot_bytes: ClassVar[int] = 0
    """Approximate memory per buffer slot in bytes."""

    all_networks = False
    """Whether the weights apply to the losses of all networks, or only to the critic's loss."""

    @property
    def steady(self) -> bool:
        """Whether weights are independent of the progress of the run."""
        return False

    @abstractmethod
    def start(self, view: BufferView) -> RunningWeighting:
        """Return the object that computes the weights during a run."""


_MOST: Final = 1_000_000_000
"""Largest capacity of a buffer, in experiences per member. Study files have the same limit."""


class RunningRetention(Running, ABC):
    """Base class of the objects that choose the slots to overwrite during a run."""

    @abstractmethod
    def slots(self, offers: Indices, capacity: int, slots: Indices) -> None:
        """Choose the slot to overwrite for each member whose buffer is full.

        Args:
            offers: Number of new experiences of each member so far, including the current one; int64, shape `[M]`.
                Experiences that `Drop` discarded are not counted.
            capacity: Number of buffer slots of each member.
            slots: Input and output, int64, shape `[M]`. An entry −2 means that the buffer is full. Implementations
                replace −2 by a slot, or by −1 to discard the new experience. They leave other entries unchanged.
        """


@dataclass(frozen=True)
class Retention(Term, ABC):
    """Base class of retention rules, which choose the experience that a full buffer overwrites.

    Attributes:
        capacity: Largest number of experiences in a member's buffer, or None for the capacity of the study.
    """

    capacity: int | None = field(default=None, kw_only=True)

    bounded: ClassVar[bool] = True
    """Whether the buffer has a fixed size. Otherwise the buffer holds all experiences of a run."""
    in_turn: ClassVar[bool] = False
    """Whether slots are filled and overwritten in turn, as a ring in order of age. Subclasses do not inherit it."""
    orders: ClassVar[tuple[str, ...]] = ()
    """Metrics (`td_error`, `exploration`) by which the buffer must rank the experiences."""
    traces: ClassVar[tuple[str, ...]] = ()
    """Names of the values, called traces, that the learner must maintain for each stored step."""
    needs_observation: ClassVar[bool] = False
    """Whether the choice depends on the stored observations."""
    slot_bytes: ClassVar[int] = 0
    """Approximate memory per buffer slot in bytes. The memory for ranking by `orders` is not included."""
    least_kept: ClassVar[float] = 0.25
    """Smallest fraction of the experiences stored in a full buffer that the buffer still stores after as many further
    steps as a quarter of its capacity. `replaybench check` tests it."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.in_turn = vars(cls).get("in_turn", False)  # a subclass may choose other slots

    def __post_init__(self) -> None:
        if self.capacity is not None and not (self.bounded and 1 <= self.capacity <= _MOST):
            allowed = f"a whole number from 1 to {_MOST}" if self.bounded else "left out: it keeps everything"
            raise UserError(f"{self.written_name()}: capacity must be {allowed}, not {self.capacity}")

    @classmethod
    def parameters(cls) -> dict[str, dataclasses.Field[object]]:
        return {name: found for name, found in super().parameters().items() if cls.bounded or name != "capacity"}

    @abstractmethod
    def start(self, view: BufferView) -> RunningRetention:
        """Return the object that chooses the slots to overwrite during a run."""


FEEDBACK: Final = ("td_error", "rate", "phase")
"""The names that `Sampling.feedback` can contain."""


class RunningSampling(Drawing, ABC):
    """Base class of the objects that draw samples during a run."""

    def __init__(self, view: BufferView) -> None:
        super().__init__(view, "sampling")

    @abstractmethod
    def draw(self, context: Context, count: Indices, offers: Indices, draws: Draws) -> None:
        """Draw samples for each member, and write their slots and probabilities to `draws`.

        Args:
            context: Progress of the training and recent observations of the agents.
            count: Number of experiences in the buffer of each member, at least 1; int64, shape `[M]`.
            offers: Number of experiences of each member so far, without those that `Drop` discarded; int64, shape
                `[M]`.
            draws: Output arrays.
        """

    def annotate(self, idx: Indices, td_error: Floats32) -> None:
        """Update the sampling's own priorities with absolute TD errors `[M, B]` of B samples of each member.

        `Replay.annotate` calls this method of samplings with the feedback `td_error`, after it has updated the orders
        that the sampling names in `orders`.

        `idx` contains the buffer slots of the samples. Implementations skip negative entries of `idx`.
        """


@dataclass(frozen=True)
class Sampling(Term, ABC):
    """Base class of sampling rules, which choose the experiences of each batch."""

    orders: ClassVar[tuple[str, ...]] = ()
    """Metrics (`td_error`, `exploration`) by which the buffer must rank the experiences."""
    needs_state: ClassVar[bool] = False
    """Whether draws depend on a recent observation of each agent, `Context.state`."""
    needs_episodes: ClassVar[bool] = False
    """Whether draws depend on the episode of each experience."""
    feedback: ClassVar[tuple[str, ...]] = ()
    """Names of the inputs that the rule needs from the training code.

    `td_error` means that the learner returns the TD errors of the samples after each update. `rate` means that the
    learner multiplies its learning rate by `Draws.rate_factor`. `phase` means that `Context` has the numbers of
    updates.
    """
    independent: ClassVar[bool] = False
    """Whether samples depend neither on each other nor on the update, so that batches can be drawn in advance."""
    steady: ClassVar[bool] = False
    """Whether the distribution of samples is independent of the progress of the run."""
    estimated: ClassVar[bool] = False
    """Whether all probabilities have a common factor that is estimated, so that they vary from batch to batch."""
    by_place: ClassVar[bool] = False
    """Whether samples depend on the buffer's capacity or on the slots of experiences, even if only by rounding."""
    importance_undefined: ClassVar[str] = ""
    """Reason why importance weights are undefined for this sampling rule, or empty if they are defined."""

    weighting: ClassVar[Weighting | None] = None
    """Weighting rule of strategies with this sampling that name none, or None."""

    @property
    def critic_loss(self) -> CriticLoss:
        """Loss of the TD errors of samples, which the learner must support if it is not `SQUARED`."""
        return SQUARED

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for flag in ("independent", "steady"):  # not inherited, because a subclass may draw in another way
            setattr(cls, flag, vars(cls).get(flag, False))

    @property
    def needs_phase(self) -> bool:
        """Whether samples depend on the index of the update in its update phase, whose length the rule does not set."""
        return False

    def in_phases(self, updates: int) -> Sampling:
        """Return a copy of this rule for update phases of `updates` updates. Rules with `needs_phase` implement it."""
        raise NotImplementedError

    def slot_bytes(self, in_turn: bool) -> int:
        """Return the approximate memory per slot in bytes, where `in_turn` is whether slots are overwritten in turn."""
        return 0

    @abstractmethod
    def start(self, view: BufferView) -> RunningSampling:
        """Return the object that draws samples during a run."""
