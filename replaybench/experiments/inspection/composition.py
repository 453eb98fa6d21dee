"""Composition of a stored buffer: age, annotations and states of its experiences.

The file is read once, in pieces, and only counts are kept: memory does not grow with the file and nothing is sampled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from replaybench.experiments.inspection.buffer_pieces import Integers, choose, pieces, stored_steps
from replaybench.experiments.inspection.float_histogram import FloatHistogram
from replaybench.experiments.inspection.state_visits import Axis, Visits, nameless_axes
from replaybench.replay.files.buffer_schema import BufferFile

MOST_AGE_BINS: Final = 60
_OF_STEPS: Final = ("exploration", "reward")
_OF_SLOTS: Final = ("td_error", "priority", "replays")


class Ages:
    """Counts of stored and of collected experiences by age: the number that their member has collected since.

    Attributes:
        width: ages in a bin; bin k begins at k · width.
        stored, collected: int64 `[bins]`.
    """

    def __init__(self, collected: Integers) -> None:
        longest = max(1, int(collected.max(initial=1)))
        least = -(-longest // MOST_AGE_BINS)
        power = int(10 ** (len(str(least)) - 1))
        self.width = next(power * digit for digit in (1, 2, 4, 5, 8, 10) if power * digit >= least)
        starts = np.arange(-(-longest // self.width)) * self.width
        self.stored = np.zeros_like(starts)
        self.collected: Integers = np.clip(collected[:, None] - starts, 0, self.width).sum(axis=0)


@dataclass
class Composition:
    """Counts over the chosen members, pooled.

    Attributes:
        members: their places in the file.
        unit_steps: most steps of a slot; 1 if experiences are stored one by one.
        collected, offers, slots: int64 `[m]`: experiences collected, units offered to retention, slots filled.
        ages: histogram of ages.
        stored: experiences in all slots; young: those that a FIFO buffer of the same size would hold too.
        synthetic: slots whose experience `Synth` changed; None if the file does not hold this.
        quantities: age, exploration and reward of each experience, and the annotations of each slot, if stored.
        visits: observed states; None if not stored.
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
    """Count the contents of a buffer.

    Args:
        file: an open buffer file.
        member: place of a single member; None for all, pooled.
        axes: the states; None if the plant is not known.

    Raises:
        UserError: there is no such member; the file is damaged, or contradicts itself.
    """
    members, shapes = choose(file, member), file.shapes
    collected = file.collected[members]
    found = Composition(members, file.steps, collected, file.offers[members], file.count[members], Ages(collected))
    names = [name for name in (*_OF_SLOTS, *_OF_STEPS) if name in shapes]
    found.quantities = {name: FloatHistogram() for name in ("age", *names)}
    if "synthetic" in shapes:
        found.synthetic = 0
    if "observation" in shapes:
        found.visits = Visits(axes or nameless_axes(shapes["observation"][-1]))
    for m in members:
        size = stored_steps(file, m)
        for piece in pieces(file, m):
            ages = piece.ages()
            found.ages.stored += np.bincount(ages // found.ages.width, minlength=len(found.ages.stored))
            found.stored += ages.size
            found.young += int((ages < size).sum())
            found.quantities["age"].add(ages)
            for name in names:
                found.quantities[name].add(piece.of_steps(name) if name in _OF_STEPS else piece.of_slots(name))
            if found.synthetic is not None:
                found.synthetic += int((piece.of_slots("synthetic") != 0).sum())
            if found.visits is not None:
                found.visits.add(piece.of_steps("observation"))
    return found
