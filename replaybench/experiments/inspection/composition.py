"""What a stored buffer is composed of: how old, how surprising, how exploratory its experiences are, and where.

The file is read once, in pieces, and only counts are kept: memory does not grow with the file, members are pooled by
adding, and nothing is sampled. How it is shown, this file must not know.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from replaybench.experiments.inspection.buffer_pieces import BufferPieces, Integers, Piece
from replaybench.experiments.inspection.float_histogram import FloatHistogram
from replaybench.experiments.inspection.state_visits import Axis, Visits, nameless_axes
from replaybench.replay.files.buffer_schema import BufferFile

MOST_AGE_BINS: Final = 60
_OF_STEPS: Final = ("exploration", "reward")
_OF_SLOTS: Final = ("td_error", "priority", "replays")


class Ages:
    """How many experiences of each age are stored, and how many were collected.

    An experience's age is the number of experiences that its member has collected since.

    Attributes:
        width: experiences in a bin; bin k holds the ages from k · width.
        stored, collected: int64 `[bins]`.
    """

    def __init__(self, collected: Integers) -> None:
        longest = max(1, int(collected.max(initial=1)))
        self.width = round_up(-(-longest // MOST_AGE_BINS))
        starts = np.arange(-(-longest // self.width)) * self.width
        self.stored, self.collected = np.zeros_like(starts), np.zeros_like(starts)
        for total in collected:
            self.collected += np.clip(total - starts, 0, self.width)

    def add(self, ages: Integers) -> None:
        """Count stored experiences of these ages."""
        self.stored += np.bincount(ages // self.width, minlength=len(self.stored))


def round_up(least: int) -> int:
    """Return the first of 1, 2, 4, 5 and 8 times a power of ten that is not below `least`."""
    power = int(10 ** (len(str(least)) - 1))
    return next(power * digit for digit in (1, 2, 4, 5, 8, 10) if power * digit >= least)


@dataclass
class Composition:
    """Counts over the chosen members, pooled.

    Attributes:
        members: their places in the file.
        unit_steps: most steps that a slot holds; 1 where experiences are stored one by one.
        collected, offers, slots: int64 `[m]`: experiences collected, slots' worth offered to retention, slots filled.
        ages: histogram of ages.
        stored: experiences in all those slots; young: those that a FIFO of as many would hold too.
        synthetic: slots whose experience `Synth` altered; None where the file does not say.
        quantities: age, exploration and reward of each experience, and the annotations of each slot, as far as there.
        visits: observed states; None where the file holds none.
    """

    members: list[int]
    unit_steps: int
    collected: Integers
    offers: Integers
    slots: Integers
    ages: Ages
    stored: int = 0
    young: int = 0
    synthetic: int | None = None
    quantities: dict[str, FloatHistogram] = field(default_factory=dict)
    visits: Visits | None = None


def measure(file: BufferFile, member: int | None = None, axes: list[Axis] | None = None) -> Composition:
    """Count what a buffer holds.

    Args:
        file: an open buffer file.
        member: place of the only member to look at; None for all of them, pooled.
        axes: the states; None where the plant is not known.

    Raises:
        UserError: there is no such member; the file is damaged, or contradicts itself.
    """
    buffer = BufferPieces(file)
    members = buffer.choose(member)
    collected = buffer.collected[members]
    found = Composition(members, buffer.steps, collected, file.offers[members], buffer.count[members], Ages(collected))
    shapes = buffer.shapes
    found.quantities = {
        name: FloatHistogram() for name in ("age", *_OF_SLOTS, *_OF_STEPS) if name == "age" or name in shapes
    }
    if "synthetic" in shapes:
        found.synthetic = 0
    if "observation" in shapes:
        found.visits = Visits(axes or nameless_axes(shapes["observation"][-1]))
    for m in members:
        size = buffer.stored(m)
        for piece in buffer.pieces(m):
            _count(found, piece, size)
    return found


def _count(found: Composition, piece: Piece, size: int) -> None:
    """Add a piece of a member that stores `size` experiences."""
    ages = piece.ages()
    found.ages.add(ages)
    found.stored += ages.size
    found.young += int((ages < size).sum())
    for name, counted in found.quantities.items():
        counted.add(ages if name == "age" else piece.of_steps(name) if name in _OF_STEPS else piece.of_slots(name))
    if found.synthetic is not None:
        found.synthetic += int((piece.of_slots("synthetic") != 0).sum())
    if found.visits is not None:
        found.visits.add(piece.of_steps("observation"))
