"""Statistics of the experiences in a stored buffer, such as their ages, TD errors and visited states.

The file is read once, in pieces, without sampling. Only counts are stored, so memory does not grow with the file.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import state_range
from replaybench.exchange.recording import STATE_BINS, Dimension, around, unvisited
from replaybench.replay.storage.schema import BufferFile
from replaybench.runtime.arrays import Bools, Floats, Floats32, Integers
from replaybench.runtime.errors import UserError

PIECE: Final = 1 << 19
"""Largest amount of numbers of the widest column that is read at once, but at least one row is read."""

_FIELDS: Final = ("observation", "reward", "exploration")


@dataclass(frozen=True)
class Piece:
    """A range of successive slots in the buffer of one member, which is one of several independent runs.

    A slot is an index in the buffer. A slot holds one experience or, if the buffer stores segments, several steps.

    Attributes:
        m: Index of the member.
        rows: Range of the slots.
        own: Mask of the steps that each of the n slots holds; bool, shape `[n, steps]`. The other steps are padding.
    """

    file: BufferFile
    m: int
    rows: slice
    own: Bools

    def of_slots(self, name: str) -> np.ndarray:
        """Read the part of a stored array that belongs to the slots (buffer indices) of this piece."""
        return self.file.record.read(name, self.m, self.rows)

    def of_steps(self, name: str) -> np.ndarray:
        """Read a field of the experiences in this piece of a buffer, with one row for each step and without padding."""
        return self.of_slots(name).reshape(*self.own.shape, -1)[self.own]

    def ages(self) -> Integers:
        """Return the age of each experience, the number of experiences that its member has collected since then."""
        collected = self.file.collected[self.m]
        serial = self.of_slots("serial").astype(np.int64)[:, None] + np.arange(self.own.shape[1])
        ages: Integers = (collected - serial)[self.own]
        if ages.size and (ages.min() < 0 or ages.max() >= collected):
            raise UserError(f"{self.file.path}: member {self.m} has impossible serial numbers")
        return ages


def pieces(file: BufferFile, m: int) -> Iterator[Piece]:
    """Yield the stored experiences of the member with index `m` in pieces of limited size."""
    widest = max((int(np.prod(file.shapes[name][2:])) for name in _FIELDS if name in file.shapes), default=1)
    high, stored = max(1, PIECE // max(1, widest)), int(file.count[m])
    for start in range(0, stored, high):
        rows = slice(start, min(start + high, stored))
        yield Piece(file, m, rows, np.arange(file.steps) < _lengths(file, m, rows)[:, None])


def stored_steps(file: BufferFile, m: int) -> int:
    """Return the number of stored experiences of the member with index `m` in a buffer file."""
    return int(np.clip(_lengths(file, m, slice(0, int(file.count[m]))), 0, file.steps).sum(dtype=np.int64))


def _lengths(file: BufferFile, m: int, rows: slice) -> np.ndarray:
    return file.record.read("length", m, rows) if file.steps > 1 else np.ones(rows.stop - rows.start, np.uint16)


def choose(file: BufferFile, member: int | None) -> list[int]:
    """Return `[member]`, or the indices of all members in a buffer file if `member` is None."""
    count = len(file.count)
    if member is not None and not 0 <= member < count:
        raise UserError(f"--member must be 0 … {count - 1}, not {member}: {file.path} holds {count} members")
    return list(range(count)) if member is None else [member]


_KEPT: Final = np.uint32(~0xFFF & 0xFFFFFFFF)


class FloatHistogram:
    """A histogram of numbers in narrow bins of equal relative width.

    Attributes:
        numbers: The edge closer to 0 of each filled bin; float32, ascending.
        counts: Number of values in each bin of `numbers`; int64.
        infinite: Number of infinite values, which are in no bin.
        undefined: Number of NaN, which are in no bin.
    """

    def __init__(self) -> None:
        self.numbers, self.counts = np.zeros(0, np.float32), np.zeros(0, np.int64)
        self.infinite = self.undefined = 0

    def add(self, values: np.ndarray) -> None:
        """Add numbers in an array of any shape to the histogram."""
        with np.errstate(over="ignore"):
            numbers = np.asarray(values, np.float32).reshape(-1)
        finite, undefined = numbers[np.isfinite(numbers)], int(np.isnan(numbers).sum())
        self.undefined += undefined
        self.infinite += numbers.size - finite.size - undefined
        near = (finite.view(np.uint32) & _KEPT).view(np.float32)
        self.numbers, place = np.unique(np.concatenate([self.numbers, near]), return_inverse=True)
        weights = np.concatenate([self.counts, np.ones(len(near), np.int64)])
        self.counts = np.bincount(place, weights, len(self.numbers)).astype(np.int64)

    def quantiles(self, shares: Sequence[float]) -> Floats:
        """Return quantiles of the finite numbers at given shares from 0 to 1, or NaN if there are no finite numbers."""
        if not self.numbers.size:
            return np.full(len(shares), np.nan)
        upto = np.cumsum(self.counts)
        rank = np.maximum(np.ceil(np.array(shares) * upto[-1]), 1)
        quantiles: Floats = self.numbers[np.searchsorted(upto, rank)].astype(np.float64)
        return quantiles


FINE: Final = 3
BINS: Final = FINE * STATE_BINS
MOST_PLANES: Final = 6


@dataclass(frozen=True)
class Axis:
    """One state of a plant, with its range and the normalisation of its values.

    Attributes:
        low: Lower end of the range, in `unit`.
        high: Upper end of the range, in `unit`.
        center: Value that is normalised to 0.
        scale: Distance from `center` that is normalised to 1.
        periodic: Whether the state is an angle.
    """

    name: str
    unit: str
    low: float = -1.0
    high: float = 1.0
    center: float = 0.0
    scale: float = 1.0
    periodic: bool = False

    @property
    def label(self) -> str:
        """Name of the state, with its unit if there is one."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name


def plant_axes(plant: Plant) -> list[Axis] | None:
    """Return name, range and normalisation of each observed value of a plant, or None if its parameters are invalid.

    The range of a state is that of the plant's grid for dynamic programming. If the plant has no grid, the range is −1
    to 1 in normalised units.
    """
    center, scale = np.array(plant.state_center, np.float64), np.array(plant.state_scale, np.float64)
    with np.errstate(all="ignore"):  # parameters from a file may be invalid
        limits = state_range(plant)
    if not (np.isfinite([*limits, center, scale]).all() and (limits[0] < limits[1]).all()):
        return None
    columns = (plant.state_names, plant.state_units, *(part.tolist() for part in (*limits, center, scale)))
    middle, half = plant.action_range()
    ends = plant.action_low, plant.action_high, middle, half
    actions = list(zip(plant.action_names, plant.action_units, *ends, strict=True))
    past = [
        Axis(f"{name}, {ago} step{'s' * (ago > 1)} before", unit, low, high, float(center), float(scale), False)
        for ago in range(1, plant.channel.history + 1)
        for name, unit, low, high, center, scale in actions
    ]
    return [*(Axis(*column) for column in zip(*columns, plant.periodic, strict=True)), *past]


def nameless_axes(states: int) -> list[Axis]:
    """Return range and normalisation of each state of an unknown plant, whose states are normalised already."""
    return [Axis(f"state {number}", "normalised") for number in range(states)]


class Visits:
    """Counts of visited states along each state and over pairs of states.

    Attributes:
        axes: The S states.
        planes: Indices of the two states of each of P pairs. If there are more than six pairs of states, only the first
            pairs of successive states are counted.
        along: Number of visits in each of BINS bins of each state; int64, shape `[S, BINS]`.
        plane: Number of visits in each bin of each pair of states; int64, shape `[P, BINS, BINS]`.
        outside: Number of visits beyond the range of each state; int64, shape `[S]`.
        least: Smallest finite value of each state in physical units, or inf if there is none; float64, shape `[S]`.
        most: Largest finite value of each state in physical units, or −inf if there is none; float64, shape `[S]`.
        total: Number of counted states.
    """

    def __init__(self, axes: list[Axis]) -> None:
        self.axes, states = axes, len(axes)
        pairs = list(itertools.combinations(range(states), 2))
        self.planes = pairs if len(pairs) <= MOST_PLANES else [(s, s + 1) for s in range(states - 1)][:MOST_PLANES]
        self.along, self.outside = np.zeros((states, BINS), np.int64), np.zeros(states, np.int64)
        self.plane = np.zeros((len(self.planes), BINS, BINS), np.int64)
        self.least, self.most = np.full(states, np.inf), np.full(states, -np.inf)
        self.total = 0

    def add(self, observation: Floats32) -> None:
        """Count normalised states, given as an array of shape `[n, S]`."""
        states = []
        for s, axis in enumerate(self.axes):
            x = axis.center + axis.scale * observation[:, s].astype(np.float64)
            x = np.where(np.isfinite(x), x, np.nan)
            states.append(around(x, axis.low) if axis.periodic else x)
            finite = states[-1][np.isfinite(x)]
            self.least[s], self.most[s] = finite.min(initial=self.least[s]), finite.max(initial=self.most[s])
            self.along[s] += np.histogram(finite, BINS, (axis.low, axis.high))[0]
            self.outside[s] += ((finite < axis.low) | (finite > axis.high)).sum()
        for counts, (a, b) in zip(self.plane, self.planes, strict=True):
            ranges = [(self.axes[s].low, self.axes[s].high) for s in (a, b)]
            counts += np.histogram2d(states[a], states[b], BINS, ranges)[0].astype(np.int64)
        self.total += len(observation)

    def dimensions(self) -> list[Dimension]:
        """Return the visited range and the share of visited bins of each state, in physical units."""
        dimensions = []
        for s, axis in enumerate(self.axes):
            edges = np.linspace(axis.low, axis.high, STATE_BINS + 1)
            counts = self.along[s].reshape(STATE_BINS, FINE).sum(axis=1)
            extent = float(self.least[s]), float(self.most[s])
            visited = float((counts > 0).mean())
            dimensions.append(Dimension(axis.name, axis.unit, *extent, visited, unvisited(counts, edges)))
        return dimensions

    def plane_coverage(self) -> float | None:
        """Return the share of visited bins in the plane of two states, or None for another number of states."""
        if len(self.axes) != 2:
            return None
        coarse = self.plane[0].reshape(STATE_BINS, FINE, STATE_BINS, FINE).sum(axis=(1, 3))
        return float((coarse > 0).mean())


MOST_AGE_BINS: Final = 60
_OF_STEPS: Final = ("exploration", "reward")
_OF_SLOTS: Final = ("td_error", "priority", "replays")


class Ages:
    """Counts of stored and of collected experiences by age.

    The age of an experience is the number of experiences that the same run has collected after it.

    Attributes:
        width: Width of a bin. Bin k begins at age k · width.
        stored: Number of stored experiences in each bin; int64.
        collected: Number of collected experiences, stored or not, in each bin; int64.
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
    """Statistics of the experiences in the buffers of one or several members.

    A member is one of several independent runs in the file. A slot is an index in a buffer. A slot holds one experience
    or, if the buffer stores segments, several successive steps.

    Attributes:
        members: Indices of the m members in the file.
        unit_steps: Largest number of steps in a slot; 1 if experiences are stored one by one.
        collected: Number of experiences that each member collected; int64, shape `[m]`.
        offers: Number of experiences (or segments) of each member that reached the retention rule; int64, shape `[m]`.
        slots: Number of slots that each member has filled; int64, shape `[m]`.
        ages: Histogram of the ages of experiences.
        stored: Number of experiences in all slots.
        young: Number of stored experiences that a FIFO buffer of the same size would hold, too.
        synthetic: Number of slots with a synthetic experience; None if the file does not store it.
        quantities: Histograms by name. Age, exploration and reward are counted for experiences, and TD error, priority
            and number of replays for slots.
        visits: Counts of observed states; None if observations are not stored.
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
    """Count the contents of the buffer of one member, or of the buffers of all members if `member` is None.

    A member is one of the independent runs in the file. `axes` describes the observed states. If `axes` is None, states
    have no names and are normalised.
    """
    members, shapes = choose(file, member), file.shapes
    collected = file.collected[members]
    contents = Composition(members, file.steps, collected, file.offers[members], file.count[members], Ages(collected))
    names = [name for name in (*_OF_SLOTS, *_OF_STEPS) if name in shapes]
    contents.quantities = {name: FloatHistogram() for name in ("age", *names)}
    if "synthetic" in shapes:
        contents.synthetic = 0
    if "observation" in shapes:
        contents.visits = Visits(axes or nameless_axes(shapes["observation"][-1]))
    for m in members:
        size = stored_steps(file, m)
        for piece in pieces(file, m):
            ages = piece.ages()
            contents.ages.stored += np.bincount(ages // contents.ages.width, minlength=len(contents.ages.stored))
            contents.stored += ages.size
            contents.young += int((ages < size).sum())
            contents.quantities["age"].add(ages)
            for name in names:
                contents.quantities[name].add(piece.of_steps(name) if name in _OF_STEPS else piece.of_slots(name))
            if contents.synthetic is not None:
                contents.synthetic += int((piece.of_slots("synthetic") != 0).sum())
            if contents.visits is not None:
                contents.visits.add(piece.of_steps("observation"))
    return contents
