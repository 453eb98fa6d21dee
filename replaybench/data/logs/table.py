"""Tables of named columns that the readers of logs return, limits on their size, and units of columns."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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
        notes: Descriptions of how ambiguous content was read.
        problems: Faults that prevent the use of the file unless they are corrected.
    """

    columns: dict[str, Floats]
    unusable: dict[str, str]
    lines: Integers | None = None
    dates: frozenset[str] = frozenset()
    units: Mapping[str, str] = field(default_factory=dict)
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


def printable(name: str) -> str:
    """Return a name from a file with `?` in place of each unprintable character."""
    return "".join(mark if mark.isprintable() else "?" for mark in name)


_TITLE: Final = re.compile(r"(.*?)\s*(?:\[([^\[\]:,]*)\]|\(([^():,]*)\)|/\s*([^\[\]():,]+))")
_SPELLINGS: Final = {
    **dict.fromkeys(("degC", "degreeC", "celsius", "Celsius", "ºC", "℃"), "°C"),
    **dict.fromkeys(("deg", "degree", "degrees", "º"), "°"),
    **dict.fromkeys(("sec", "second", "seconds"), "s"),
    **dict.fromkeys(("radian", "radians"), "rad"),
    **dict.fromkeys(("volt", "volts", "Volt"), "V"),
    **dict.fromkeys(("-", "–", "—", "1", "none"), ""),
}
_PART: Final = re.compile(r"([^\d^+-]+)\^?([+-]?\d+)?")
_BASE: Final = re.compile(
    r"[pnuμmcdhkMGT]?(s|m|g|A|K|V|W|N|J|Hz|Pa|rad|Ω|Ohm|F|H|T|L|l|bar|mol|C|Wb|VA)|°|°C|°F|%|min|h|d|rpm|U|psi"
)


def split_title(title: str) -> tuple[str, str | None]:
    """Split a column title, such as `speed [m/s]` or `speed / rpm`, into the name and the unit.

    The unit is None if the title has none.
    """
    match = _TITLE.fullmatch(title.strip())
    return (match[1], next(unit for unit in match.groups()[1:] if unit is not None)) if match else (title, None)


def contradicts(unit: str | None, wanted: str) -> bool:
    """Return whether a unit differs from the wanted unit.

    The result is False if `unit` is missing or unknown.
    """
    if unit is None:
        return False
    own, other = _powers(unit), _powers(wanted)
    return bool(own and other) and own != other and all(map(_BASE.fullmatch, own))


def agrees(unit: str | None, wanted: str) -> bool:
    """Return whether a unit equals the wanted unit, even if the spelling is different."""
    return unit is not None and _powers(unit) == _powers(wanted)


def _powers(unit: str) -> dict[str, int]:
    """Return the power of each factor of a unit, such as `{"m": 1, "s": -2}` for m/s²."""
    powers = Counter[str]()
    unit = _SPELLINGS.get(unit.strip(), unit).replace("Nm", "N m").replace("µ", "μ").replace("−", "-")
    unit = unit.translate(str.maketrans("²³⁻¹", "23-1"))
    for factor in re.split(r"[\s·⋅*]+", unit):
        for place, part in enumerate(factor.split("/")):
            match = _PART.fullmatch(part)
            name, power = (match[1], int(match[2] or 1)) if match else (part, 1)
            powers[_SPELLINGS.get(name, name)] += -power if place else power
    return {name: power for name, power in powers.items() if name and power}
