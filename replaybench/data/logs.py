"""Recorded trajectories from elsewhere: columns of numbers over time, read from CSV or NPZ.

Logs are files from strangers: nothing in them is executed or unpickled, and no declared size is believed before it
is checked. This file knows columns, sample times and gaps; what a column means to a plant it must not know.
"""

from __future__ import annotations

import csv
import itertools
import lzma
import math
import zipfile
import zlib
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.data.errors import UserError, unknown

GAP: Final = 1.5
"""Sample periods between two rows from which on samples are missing between them."""
RATE_TOLERANCE: Final = 0.01
"""Relative difference allowed between the stated rate and that of the time column."""
MAX_BYTES: Final = 1 << 30
"""Numbers that an NPZ log may hold after decompression."""

Floats = NDArray[np.float64]
_TIME_UNITS: Final = {"ms": 1e3, "µs": 1e6, "ns": 1e9}
_DAMAGE: Final = (
    *(OSError, EOFError, ValueError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError),
)


@dataclass(frozen=True, eq=False)
class Log:
    """A recording of T rows.

    Attributes:
        path: the file it came from.
        columns: named float64 `[T]`; an empty cell is NaN.
        unusable: why a column of the file is not among `columns`; it does no harm unless it is asked for.
        time: float64 `[T]` [s], finite, or None where nothing was recorded.
        lines: int64 `[T]`, line of each row in a text file; None for NPZ.
    """

    path: Path
    columns: Mapping[str, Floats]
    unusable: Mapping[str, str]
    time: Floats | None
    lines: NDArray[np.int64] | None

    def where(self, row: int) -> str:
        """Return the place of a row in the file, in words."""
        return f"index {row}" if self.lines is None else f"line {self.lines[row]}"

    def column(self, name: str, used: NDArray[np.bool_] | None = None) -> Floats:
        """Return one column, checked to be finite in the rows `used` (bool `[T]`; all of them if not given).

        Raises:
            UserError: there is no such column, it is not numeric, or a number is missing; says where.
        """
        if name in self.unusable:
            raise UserError(f"{self.path}: column {name!r} cannot be used: {self.unusable[name]}")
        if name not in self.columns:
            raise unknown("column", name, self.columns)
        column = self.columns[name]
        missing = ~np.isfinite(column) if used is None else ~np.isfinite(column) & used
        if missing.any():
            row = int(missing.argmax())
            raise UserError(
                f"{self.path}: column {name!r} is {column[row]} at {self.where(row)} ({missing.sum()} such rows); "
                "mend them, or leave them out: a gap in time splits the episode"
            )
        return column


def read_log(path: Path, time: str | None = None) -> Log:
    """Read a log: text with a header row (`,`, `;` or tab between cells), or NPZ with one 1-D array per column.

    Args:
        path: the file; `.npz`, or `.csv`, `.tsv` or `.txt`.
        time: name of the column of sample times [s]; if not given, the one called `time` or `t`, if any.

    Raises:
        UserError: the file is missing, damaged, too large or not of this form; says in which line or column.
    """
    if not path.is_file():
        raise UserError(f"no such file: {path}")
    suffix = path.suffix.lower()
    if suffix not in (".npz", ".csv", ".tsv", ".txt"):
        raise UserError(f"{path}: a log is a .csv (also .tsv, .txt) or .npz file, not {suffix or 'without suffix'!r}")
    try:
        log = _read_npz(path) if suffix == ".npz" else _read_text(path)
    except UserError:
        raise
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text; save the log as UTF-8 CSV") from error
    except (csv.Error, *_DAMAGE) as error:
        raise UserError(f"{path} cannot be read: {' '.join(str(error).split()) or type(error).__name__}") from error
    if time is None:
        time = next((name for name in log.columns if name.casefold() in ("time", "t")), None)
    return log if time is None else Log(log.path, log.columns, log.unusable, log.column(time), log.lines)


def sampling_rate(time: Floats) -> float:
    """Return the rate of a time column `[T]` [s] in Hz, gaps left out.

    It is the mean, not the median, of the sample times: a clock that counts milliseconds makes 60 Hz out of steps
    of 16 and 17 ms, of which neither is the period. The median only tells which steps are gaps.

    Raises:
        UserError: fewer than two rows, or time does not increase.
    """
    if len(time) < 2:
        raise UserError(f"the log has {len(time)} rows of data; a step takes two")
    steps = np.diff(time)
    if not (steps > 0).all():
        row = int((steps <= 0).argmax()) + 1
        raise UserError(
            f"time does not increase at row {row + 1} of the data ({time[row - 1]:.6g} s, then {time[row]:.6g} s); "
            "is --time the right column? Recordings put together need increasing times, with a gap between them"
        )
    return 1 / float(steps[steps < 1.75 * np.median(steps)].mean())


def round_rate(rate: float) -> float:
    """Return the roundest rate within 0.2 % of a measured one [Hz]: few digits in either Hz or seconds."""
    rounded = (
        candidate
        for digits in range(1, 5)
        for candidate in (float(f"{rate:.{digits}g}"), 1 / float(f"{1 / rate:.{digits}g}"))
        if abs(candidate / rate - 1) <= 0.002
    )
    return next(rounded, rate)


def segments(time: Floats, frequency: float) -> list[slice]:
    """Cut a recording where samples are missing: steps of more than 1.5 sample periods.

    Args:
        time: increasing sample times `[T]` [s].
        frequency: stated sampling frequency [Hz].

    Returns:
        Slices that together cover all T rows, in order.

    Raises:
        UserError: time does not increase, or its rate is more than 1 % from `frequency`.
    """
    if not (math.isfinite(frequency) and frequency > 0):
        raise UserError(f"--frequency must be a positive number of Hz, not {frequency}")
    rate = sampling_rate(time)
    if abs(rate / frequency - 1) > RATE_TOLERANCE:
        units = [unit for unit, factor in _TIME_UNITS.items() if abs(rate * factor / frequency - 1) <= RATE_TOLERANCE]
        remedy = f"give time in s, not {units[0]}" if units else f"use --frequency {round_rate(rate):g}"
        raise UserError(f"the time column is sampled at {rate:.5g} Hz, not at {frequency:g} Hz: {remedy}")
    cuts = [0, *(np.flatnonzero(np.diff(time) * frequency > GAP) + 1).tolist(), len(time)]
    return [slice(first, last) for first, last in itertools.pairwise(cuts)]


def _read_text(path: Path) -> Log:
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = next((line for line in file if line.strip()), "")
        file.seek(0)
        rows = csv.reader(file, delimiter=max(",;\t", key=header.count), skipinitialspace=True)
        names = [name.strip() for name in next((row for row in rows if any(row)), [])]
        if names:
            names[0] = names[0].lstrip("# ")  # np.savetxt's header
        first_line = rows.line_num
        if all(_is_number(name) for name in names if name):
            found = f"line {first_line} holds numbers" if any(names) else "the file is empty"
            raise UserError(f"{path} has no header row ({found}); write the column names into the first line")
        _refuse_doubles(path, names)
        columns, lines = [array("d") for _ in names], array("q")
        unusable: dict[str, str] = {}
        for row in rows:
            if not row:
                continue
            if len(row) != len(names):
                raise UserError(
                    f"{path}, line {rows.line_num} has {len(row)} values, but the header in line {first_line} "
                    f"has {len(names)} names"
                )
            lines.append(rows.line_num)
            for name, column, cell in zip(names, columns, row, strict=True):
                try:
                    column.append(float(cell))
                except ValueError:
                    column.append(math.nan)
                    if cell.strip():
                        unusable.setdefault(name, f"line {rows.line_num} holds {cell!r}, which is not a number")
    named = {name: np.array(column) for name, column in zip(names, columns, strict=True) if name not in unusable}
    named.pop("", None)
    return Log(path, named, unusable, None, np.array(lines))


def _read_npz(path: Path) -> Log:
    columns: dict[str, Floats] = {}
    unusable: dict[str, str] = {}
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        size = sum(member.file_size for member in members)
        if size > MAX_BYTES:
            raise UserError(f"{path} unpacks to {size / 2**30:.3g} GiB; split it into logs of at most 1 GiB")
        _refuse_doubles(path, [member.filename for member in members])
        for member in members:
            name = member.filename.removesuffix(".npy")
            with archive.open(member) as file:
                content = _read_npy(file, member.file_size)
            if isinstance(content, str):
                unusable[name] = content
            else:
                columns[name] = content
    lengths = {len(column): name for name, column in reversed(columns.items())}
    if len(lengths) > 1:
        (a, first), (b, second) = sorted(lengths.items(), reverse=True)[:2]
        raise UserError(f"{path}: all columns need one length, but {first!r} has {a} values and {second!r} has {b}")
    return Log(path, columns, unusable, None, None)


def _read_npy(file: IO[bytes], size: int) -> Floats | str:
    """Read one array of an archive, or say why it cannot be a column; never allocates more than `size` bytes."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        return f"it is stored in .npy version {version[0]}.{version[1]}, which only structured arrays need"
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject:
        return "it holds pickled Python objects, which are never loaded; save it as plain numbers"
    if dtype.kind not in "biuf" or len(shape) != 1:
        return f"it is an array {list(shape)} of {dtype}; save one 1-D array of numbers per column"
    if shape[0] * dtype.itemsize != size - file.tell():
        return "it is damaged: it does not hold as many values as it declares"
    return np.frombuffer(file.read(), dtype).astype(np.float64)


def _refuse_doubles(path: Path, names: list[str]) -> None:
    seen = set[str]()
    for name in names:
        if name and name in seen:
            raise UserError(f"{path} has two columns named {name!r}; rename one")
        seen.add(name)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
