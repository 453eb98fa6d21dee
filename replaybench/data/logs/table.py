"""Tables of named columns that the readers of logs return, limits on their size, and units of columns."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from replaybench.runtime.arrays import Floats, Integers
from replaybench.runtime.errors import UserError
from replaybench.runtime.provenance import available_memory

MAX_BYTES: Final = 1 << 30
"""Maximum size in bytes of the numbers in a log as float64."""
MAX_VARIABLES: Final = 10_000
"""Maximum number of variables in a log."""


@dataclass(frozen=True, eq=False)
class Table:
    """The content of a log of T rows.

    Attributes:
        columns: Numeric columns by name; float64, shape `[T]`. An empty cell is NaN.
        unusable: Reason why a further variable of the file is not a column, by name of the variable.
        lines: Line number of each row in a text file; int64, shape `[T]`. None for other files.
        dates: Names of the columns of dates, whose values are seconds since the first date.
        units: Units that the file states elsewhere than in the titles of columns, by name of the column.
        blocks: Number of the block of each row, where empty lines or repeated titles separate blocks; int64, shape
            `[T]`. None if there is one block.
        unpadded: Reason why a column of increasing numbers or dates cannot be times, by name of the column.
        notes: Descriptions of how ambiguous content was read.
        problems: Faults that prevent the use of the file unless they are corrected.
    """

    columns: dict[str, Floats]
    unusable: dict[str, str]
    lines: Integers | None = None
    dates: frozenset[str] = frozenset()
    units: Mapping[str, str] = field(default_factory=dict)
    blocks: Integers | None = None
    unpadded: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: Iterable[tuple[str, Floats | str]], dates: Iterable[str] = ()) -> Table:
        """Create a table from pairs of a name and either a column or the reason why the column is unusable."""
        named = dict(values)
        columns = {name: value for name, value in named.items() if not isinstance(value, str)}
        unusable = {name: value for name, value in named.items() if isinstance(value, str)}
        return cls(columns, unusable, dates=frozenset(dates))


class Budget:
    """A limit on the bytes and variables that one file may declare, which is checked before memory is reserved.

    `left` is the number of bytes that the file may still declare.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # Libraries hold several copies of a column while they unpack it.
        self._most = self.left = min(MAX_BYTES, available_memory() // 4)
        self._variables = MAX_VARIABLES

    def take(self, size: int) -> None:
        """Subtract `size` bytes from the remaining budget of a file, or raise `UserError` if too few bytes remain."""
        self.left -= size
        if self.left < 0:
            raise UserError(f"{self.path} holds more than {self._most / 2**30:.3g} GiB of numbers; split it into logs")

    def take_dataset(self, dataset: Any) -> None:
        """Subtract the size of an HDF5 dataset from the remaining budget of its file.

        `UserError` is raised if too few bytes remain. HDF5 decompresses whole chunks, and a chunk in a malicious file
        may be far larger than the dataset.
        """
        chunk = math.prod(dataset.chunks or (0,)) * dataset.dtype.itemsize
        self.take(chunk)
        self.left += chunk
        self.take(8 * int(dataset.size))

    def name(self) -> None:
        """Count one more variable of the file, or raise `UserError` if the file has too many."""
        self._variables -= 1
        if self._variables < 0:
            raise UserError(f"{self.path} holds more than {MAX_VARIABLES} variables; save only what the log needs")


def refuse_doubles(path: Path, names: Iterable[str]) -> None:
    """Raise `UserError` if two columns have the same name. Empty names may occur repeatedly."""
    seen = set[str]()
    for name in names:
        if name and name in seen:
            raise UserError(f"{path} has two columns named {name!r}; rename one")
        seen.add(name)


def refuse_unequal(path: Path, columns: dict[str, Floats]) -> None:
    """Raise `UserError` if two columns have different lengths."""
    lengths = {len(column): name for name, column in reversed(columns.items())}
    if len(lengths) > 1:
        (a, first), (b, second) = sorted(lengths.items(), reverse=True)[:2]
        raise UserError(f"{path}: all columns need one length, but {first!r} has {a} values and {second!r} has {b}")


TIMES: Final = ("time", "x_value", "t")
"""Names of columns of sample times, in lower case."""


def is_time(name: str) -> bool:
    """Return whether a name, without a unit and the names of structs around it, is one of `TIMES`."""
    return split_title(name)[0].rpartition(".")[2].casefold() in TIMES


def printable(name: str) -> str:
    """Return a name from a file with `?` in place of each unprintable character."""
    return "".join(mark if mark.isprintable() else "?" for mark in name)


WIDEST: Final = 100
"""Largest number of columns that one matrix may give. A wider matrix is an image or another type of table."""


def aligned(path: Path, values: Sequence[tuple[str, Floats | str]]) -> Table:
    """Create a table from matrices `[rows, columns]`, or the reasons why there are none, by name of the variable.

    Vectors, and columns or rows of matrices, become columns of the table. Matrices of other lengths than that of the
    log are unusable, and the notes of the table list them.

    Raises:
        UserError: If two columns have the same name.
    """
    refuse_doubles(path, [name for name, _ in values])
    rows = _rows({name: value for name, value in values if not isinstance(value, str)})
    named: list[tuple[str, Floats | str]] = []
    for name, value in values:
        named += [(name, value)] if isinstance(value, str) else _columns(name, value, rows)
    refuse_doubles(path, [name for name, _ in named])
    table = Table.of(named)
    other = [
        name
        for name, value in values
        if not isinstance(value, str) and rows not in value.shape and max(value.shape) > 1
    ]
    return replace(
        table, notes=(f"left out, as they have other lengths than {rows}: {', '.join(other)}",) if other else ()
    )


def _rows(values: dict[str, Floats]) -> int:
    """Return the number of rows of the log.

    It is the length of the vectors of times, if they have one length. Otherwise it is the length of several vectors, or
    else of any vector, that hold the most numbers in total. If there are no vectors, matrices count.
    """
    vectors, matrices = dict[int, list[str]](), Counter[int]()
    for name, value in values.items():
        if 1 not in value.shape:
            matrices[max(value.shape)] += value.size
        elif value.size > 1:
            vectors.setdefault(value.size, []).append(name)
    timed = [size for size, names in vectors.items() if any(map(is_time, names))]
    if len(timed) == 1:
        return timed[0]
    counted = Counter({size: size * len(names) for size, names in vectors.items() if len(names) > 1})
    counted = counted or Counter({size: size for size in vectors}) or matrices
    return max(counted, key=lambda length: (counted[length], length)) if counted else 1


def _columns(name: str, value: Floats, rows: int) -> list[tuple[str, Floats | str]]:
    height, width = value.shape
    if height * width == rows:
        return [(name, value.reshape(-1))]
    if height == 1 or width == 1:
        return [(name, f"it has length {value.size}, but the log has {rows} row{'' if rows == 1 else 's'}")]
    if rows not in value.shape:
        return [(name, f"it is {height}×{width}, but the log has {rows} row{'' if rows == 1 else 's'}")]
    if (width if height == rows else height) > WIDEST:
        return [(name, f"it is a matrix of {height}×{width}; save its columns as vectors")]
    if height == rows:
        return [(f"{name}(:,{i + 1})", value[:, i].copy()) for i in range(width)]
    return [(f"{name}({i + 1},:)", value[i].copy()) for i in range(height)]


_STATED: Final = re.compile(r"\s*[\[({<]([^\[\](){}<>:,]*)[\])}>]|\s/\s+([^\[\](){}<>:,]+)$")
"""A part of a title that states a unit, which is in brackets or after a slash between spaces."""
_AT: Final = re.compile(r"\s*[_,./\s-]\s*|(?<=[a-z])(?=[A-Z])")
"""Places in a title at which a unit may begin that is not in brackets."""
_LONGEST_UNIT: Final = 24
_NO_UNITS: Final = frozenset(("min", "max", "ref", "dot"))
"""Ends of names that are not read as units: minimum, maximum, reference, derivative."""
_SAME: Final = {
    "°C": ("degc", "deg c", "celsius", "ºc", "℃"),
    "°F": ("degf", "fahrenheit"),
    "°": ("deg", "degree", "º"),
    "°/s": ("dps", "degps"),
    "m/s": ("mps",),
    "rad/s": ("radps",),
    "s": ("sec", "second"),
    "rad": ("radian",),
    "V": ("volt",),
    "A": ("amp", "ampere"),
    "m": ("meter", "metre"),
    "N": ("newton",),
    "Pa": ("pascal",),
    "Hz": ("hertz",),
    "K": ("kelvin",),
    "W": ("watt",),
    "%": ("percent",),
    "": ("-", "–", "—", "1", "none", "n/a", "na", "unitless", "dimensionless"),
}
_SPELLINGS: Final = {f"{word}{end}": unit for unit, words in _SAME.items() for word in words for end in ("", "s")}
_PART: Final = re.compile(r"([^\d^+-]+)\^?([+-]?\d+)?")
_PREFIXES: Final = "pnuμmcdhkMGT"
_BASES: Final = (
    *("s", "m", "g", "A", "K", "V", "W", "N", "J", "Nm", "Hz", "Pa", "Ω", "Ohm", "F", "H", "T", "L", "l", "bar"),
    *("mol", "C", "Wb", "VA"),
)
_WITHOUT_PREFIX: Final = (
    "°",
    "°C",
    "°F",
    "%",
    "‰",
    "ppm",
    "min",
    "h",
    "d",
    "rpm",
    "U",
    "psi",
    "rev",
    "gon",
    "rad",
    "mrad",
)
_UNITS: Final = frozenset((*_WITHOUT_PREFIX, *(f"{prefix}{base}" for prefix in ("", *_PREFIXES) for base in _BASES)))
_FOLDED: Final = Counter(unit.casefold() for unit in _UNITS)
_OF_FOLDED: Final = {unit.casefold(): unit for unit in _UNITS}
_SHARES: Final = frozenset("%‰")


def split_title(title: str) -> tuple[str, str | None]:
    """Split a column title, such as `speed [m/s]`, `speed / rpm` or `speed_rpm`, into the name and the unit.

    The unit is None if the title has none. Text in brackets at the end is a unit, even if it is not known, unless it is
    an index as in `x[0]`. After `_`, a space or the like, only a known unit of several characters is one.
    """
    title = title.strip()
    stated = [part for part in _STATED.finditer(title) if not (part[1] or "").strip().isdigit()]
    known = [part for part in stated if known_unit(bare_unit(part[0].strip(" /")))]
    if part := next(iter(known), stated[-1] if stated and stated[-1].end() == len(title) else None):
        return (title[: part.start()] + title[part.end() :]).strip(), bare_unit(part[0].strip(" /"))
    for place in _AT.finditer(title):
        unit = title[place.end() :].removeprefix("in ")
        if place.start() and 1 < len(unit) <= _LONGEST_UNIT and unit not in _NO_UNITS:
            first, *others = re.split(r"_per_|_", unit)
            for spelled in (unit, "/".join((first, *others))):
                if known_unit(spelled) and (len(first) > 2 or first in _UNITS):
                    return title[: place.start()], spelled
    return title, None


def bare_unit(text: str) -> str:
    """Return the text of a unit without the brackets around it."""
    text = text.strip()
    inner = re.fullmatch(r"[\[({<](.*)[\])}>]", text)
    return (inner[1] if inner else text).strip().removeprefix("in ")


def known_unit(unit: str) -> bool:
    """Return whether all factors of a unit are known, and at least one is not a number."""
    return bool(powers := _powers(unit)) and powers.keys() <= _UNITS


def contradicts(unit: str, wanted: str) -> bool:
    """Return whether a stated unit differs from the wanted unit, or is not known.

    The result is False if one of the units has no dimension, unless the stated one is a percentage.
    """
    own, other = _powers(unit), _powers(wanted)
    return own != other and bool(own) and (bool(other) or own.keys() <= _SHARES)


def agrees(unit: str | None, wanted: str) -> bool:
    """Return whether a unit equals the wanted unit, even if the spelling is different."""
    return unit is not None and _powers(unit) == _powers(wanted)


def _powers(unit: str) -> dict[str, int]:
    """Return the power of each factor of a unit, such as `{"m": 1, "s": -2}` for m/s²."""
    powers = Counter[str]()
    unit = _spelled(unit.strip())
    unit = re.sub(r"\s+per\s+", "/", unit, flags=re.IGNORECASE).replace("Nm", "N m")
    unit = unit.replace("µ", "μ").replace("−", "-").translate(str.maketrans("²³⁻¹", "23-1"))
    for factor in re.split(r"[\s·⋅*.]+", unit):
        for place, part in enumerate(factor.split("/")):
            match = _PART.fullmatch(part)
            name, power = (match[1], int(match[2] or 1)) if match else (part, 1)
            powers[_spelled(name)] += -power if place else power
    return {name: power for name, power in powers.items() if name and power}


def _spelled(unit: str) -> str:
    """Return a unit in its usual spelling, whatever its case, if only one unit is meant."""
    folded = unit.casefold()
    if unit in _UNITS:
        return unit
    return _OF_FOLDED[folded] if _FOLDED[folded] == 1 else _SPELLINGS.get(folded, unit)
