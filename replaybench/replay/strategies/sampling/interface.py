"""Which stored experiences are replayed: what every sampling strategy is.

A strategy is a frozen dataclass; `start` returns its running form for a population. A new one is a file with both, and
a line in `replaybench.replay.strategies.registry`, or a user's file. Samplers return slots and the probability of each
draw; `replaybench.replay.strategies.weighting.interface` makes weights of these.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final

from replaybench.replay.arrays import Floats, Indices
from replaybench.replay.strategies.running import Drawing
from replaybench.replay.strategies.sampling.draws import Draws as Draws
from replaybench.replay.strategies.term import Term
from replaybench.replay.strategies.view import BufferView, Context
from replaybench.replay.strategies.weighting.interface import Weighting

FEEDBACK: Final = ("td_error", "rate", "phase")
"""What a sampling may not do without; see `Sampling.feedback`."""


class RunningSampling(Drawing, ABC):
    """Draws for a population."""

    def __init__(self, view: BufferView) -> None:
        super().__init__(view, "sampling")

    @abstractmethod
    def draw(self, context: Context, count: Indices, offers: Indices, draws: Draws) -> None:
        """Fill `draws`, given the numbers of experiences stored and offered `[M]`; each stores at least one."""

    def annotate(self, idx: Indices, td_error: Floats) -> None:
        """Use |δ| `[M, B]` of the experiences in slots idx `[M, B]`; an idx below 0 is to be skipped."""


@dataclass(frozen=True)
class Sampling(Term, ABC):
    """A sampling strategy."""

    orders: ClassVar[tuple[str, ...]] = ()
    """Metrics by which slots must be kept in rank order."""
    needs_state: ClassVar[bool] = False
    """Whether draws depend on the state that the agent attends to."""
    feedback: ClassVar[tuple[str, ...]] = ()
    """What it needs while a learner trains: of `td_error`, `rate` (else `rate_factor` is ignored) and `phase`."""
    independent: ClassVar[bool] = False
    """Whether draws depend neither on each other nor on the update, so that batches can be drawn ahead."""
    steady: ClassVar[bool] = False
    """Whether draws do not depend on the progress of the run."""
    by_place: ClassVar[bool] = False
    """Whether draws depend on the buffer's capacity, or on where experiences lie in it, if only by rounding."""
    importance_undefined: ClassVar[str] = ""
    """Why importance weights of these draws make no sense; empty if they do."""

    weighting: ClassVar[Weighting | None] = None
    """The weighting that belongs to it, unless another is named."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for promise in ("independent", "steady"):  # about a class's own draws: not inherited
            setattr(cls, promise, vars(cls).get(promise, False))

    @property
    def needs_phase(self) -> bool:
        """Whether draws depend on the place of an update in a phase whose length the schedule decides."""
        return False

    def in_phases(self, updates: int) -> Sampling:
        """Return the same strategy with phases of so many updates; only where `needs_phase`."""
        raise NotImplementedError

    def slot_bytes(self, in_turn: bool) -> int:
        """Return about how many bytes a slot costs it beside rank orders; `in_turn` as in `BufferView`."""
        return 0

    @abstractmethod
    def start(self, view: BufferView) -> RunningSampling:
        """Return the running form."""
