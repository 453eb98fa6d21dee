"""Reading of logs, which are recorded trajectories in text, NPZ, MATLAB or Parquet files.

Nothing in a log is executed or unpickled, and declared sizes are checked before memory is reserved. This module handles
columns, sample times and gaps. Each file format has its own reader.
"""

from __future__ import annotations

import csv
import itertools
import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from replaybench.data.logs.binary_tables import read_npz, read_parquet
from replaybench.data.logs.matlab import read_mat
from replaybench.data.logs.table import TIMES, Table, agrees, contradicts, known_unit, refuse_unequal, split_title
from replaybench.data.logs.text import TextOptions, plain_number, read_text
from replaybench.runtime.arrays import Bools, Floats, Integers
from replaybench.runtime.errors import Problems, UserError, no_such_file, unknown
from replaybench.runtime.quantities import shown_number

GAP: Final = 1.5
"""Largest time between successive rows, in sample periods, without missing samples between them."""
ROUNDING: Final = 0.002
"""Largest relative difference between a measured sampling rate and the rounded rate."""

_OF_TIME: Final = ("s", "ms", "µs", "us", "ns", "min", "h", "d")
_DAMAGE: Final = (
    *(OSError, EOFError, ValueError, RuntimeError, MemoryError, LookupError, TypeError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, tokenize.TokenError),
)
_TEXT: Final = (".csv", ".tsv", ".txt", ".lvm")
_READERS: Final[dict[str, Callable[[Path], Table]]] = {".npz": read_npz, ".mat": read_mat, ".parquet": read_parquet}
SUFFIXES: Final = (*_TEXT, ".gz", *_READERS)
"""Suffixes that the file of a log may have."""


@dataclass(frozen=True, eq=False)
class Log:
    """A recorded trajectory of T rows with named columns.

    Attributes:
        path: Path of the file.
        columns: Numeric columns by name; float64, shape `[T]`. An empty cell is NaN.
        unusable: Reason why a further column of the file cannot be used, by name of the column.
        time: Sample times in seconds; float64, shape `[T]`, finite. An episode begins where the time decreases. None if
            the file has no usable sample times.
        lines: Line number of each row in a text file; int64, shape `[T]`. None for other files.
        kept: Which rows of the file the log contains; bool, one per row of the file. None if it contains all rows.
        blocks: Number of the block of each row, int64, shape `[T]`; an episode begins with a block. None if there is
            one block.
        units: Units that the file states elsewhere than in the titles of columns, by name of the column.
        time_from: Name of the column of times. None if there is no such column.
        notes: Descriptions of how ambiguous content of the file was read.
        problems: Faults that must be corrected before the log can be used, one line each.
    """

    path: Path
    columns: Mapping[str, Floats]
    unusable: Mapping[str, str]
    time: Floats | None
    lines: Integers | None
    kept: Bools | None = None
    blocks: Integers | None = None
    units: Mapping[str, str] = field(default_factory=dict)
    time_from: str | None = None
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values())))

    def where(self, row: int) -> str:
        """Return the position of a row in the file as text: `line 12` in a text file (from 1), else `index 12`."""
        if self.lines is not None:
            return f"line {self.lines[row]}"
        return f"index {row if self.kept is None else np.flatnonzero(self.kept)[row]}"

    def only(self, rows: Bools, why: str) -> Log:
        """Return a log with only the rows that `rows` `[T]` marks, and with a note why the other rows are left out."""
        if rows.all():
            return self
        columns = {name: column[rows] for name, column in self.columns.items()}
        kept = np.ones(len(rows), np.bool_) if self.kept is None else self.kept.copy()
        kept[kept] = rows
        return replace(
            self,
            columns=columns,
            time=None if self.time is None else self.time[rows],
            lines=None if self.lines is None else self.lines[rows],
            blocks=None if self.blocks is None else self.blocks[rows],
            kept=kept,
            notes=(*self.notes, f"{int((~rows).sum())} rows {why}: left out"),
        )

    def unit(self, name: str) -> str | None:
        """Return the unit of a column, or None if the file does not state one."""
        return self.units.get(name, split_title(name)[1])

    def other_unit(self, name: str, wanted: str, named: bool = False) -> str | None:
        """Return how the file states another unit of a column than `wanted`, or one that is not known; None if not.

        `named` is whether the title is the name of the signal, so that no part of the title is a unit.
        """
        for unit in (self.units.get(name), None if named else split_title(name)[1]):
            if unit is not None and contradicts(unit, wanted):
                return f"is in {unit}" if known_unit(unit) else f"has the unit {unit!r}, which is not known"
        return None

    def column(self, name: str, used: Bools | None = None) -> Floats:
        """Return a column after a check for missing numbers in the rows that `used` marks, or in all rows if None.

        Raises:
            UserError: If the column does not exist, is not numeric, or has a value that is not finite.
        """
        if name in self.unusable:
            raise UserError(f"column {name!r} cannot be used: {self.unusable[name]}")
        if name not in self.columns:
            raise unknown("column", name, self.columns)
        column = self.columns[name]
        missing = ~np.isfinite(column) if used is None else ~np.isfinite(column) & used
        if missing.any():
            row = int(missing.argmax())
            raise UserError(
                f"column {name!r} is {shown_number(column[row])} at {self.where(row)} "
                f"({such_rows(int(missing.sum()))}); correct or leave out such rows "
                "(a gap in time splits the episode), or give --missing drop or interpolate"
            )
        return column


def such_rows(count: int) -> str:
    """Format the number of faulty rows for an error message, as in `2 such rows`."""
    return "1 such row" if count == 1 else f"{count} such rows"


def read_log(
    path: Path,
    time: str | None = None,
    timed_only: bool = False,
    reserved: Iterable[str] = (),
    options: TextOptions | None = None,
) -> Log:
    """Read a recorded trajectory from a text, NPZ, MATLAB or Parquet file.

    A text file has a header row with the names of the columns. Its cells are separated by `,`, `;` or tab.

    Args:
        path: Path with the suffix `.npz`, `.mat` (version 5 or later), `.parquet`, or that of a text file. Suffixes of
            text files are `.csv`, `.tsv`, `.txt` and `.lvm`, which `.gz` may follow.
        time: Name of the column of sample times in seconds. By default, `time_column` finds this column.
        timed_only: Whether to leave out rows without a time. By default such rows are among the log's `problems`.
        reserved: Names of columns that do not contain times; see `time_column`.
        options: Options for text files. Numbers among `options.empty` mean an empty cell in all files.

    Returns:
        The log. Its `problems` list the faults of its rows and times.

    Raises:
        UserError: If the file is missing, damaged, too large or not a log.
    """
    if not path.is_file():
        raise no_such_file(path)
    packed = path.suffix.lower() == ".gz"
    suffix = (path.with_suffix("") if packed else path).suffix.lower()
    if suffix not in _TEXT and (packed or suffix not in _READERS):
        valid = ".csv (also .tsv, .txt, .lvm, and these with .gz), .npz, .mat or .parquet"
        raise UserError(f"{path}: a log is a {valid} file, not {path.suffix.lower() or 'without suffix'!r}")
    options = options or TextOptions()
    marks = [mark for mark in map(plain_number, options.empty) if mark is not None]
    if suffix not in _TEXT and (options.encoding or options.date_format or len(marks) < len(options.empty)):
        raise UserError(
            f"{path} is no text file, and --encoding, --date-format and words after --na are for text; leave them out"
        )
    reader = _READERS[suffix] if suffix not in _TEXT else lambda path: read_text(path, options)
    try:
        table = reader(path)
    except (csv.Error, *_DAMAGE) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} cannot be read: {' '.join(str(error).split()) or type(error).__name__}") from error
    refuse_unequal(path, table.columns)
    for column, mark in itertools.product(table.columns.values(), marks):
        column[np.isclose(column, mark, rtol=1e-6, atol=0)] = np.nan  # also if rounded to float32
    if not table.columns:
        reasons = [f"; column {name!r} cannot be used: {reason}" for name, reason in table.unusable.items()]
        raise UserError(f"{path} holds no column of numbers{''.join(reasons[:1])}")
    if time is None:
        time = time_column(table.columns, reserved, table.units, table.dates)
    log = Log(
        path, table.columns, table.unusable, None, table.lines, None, table.blocks, table.units, time, table.notes
    )  # fmt: skip
    problems = Problems(table.problems)
    if time is not None:
        with problems.collected():
            if time in table.unpadded:
                log = replace(log, unusable={**log.unusable, time: table.unpadded[time]})
            else:
                log = _timed(log, time, timed_only, time in table.dates)
    return replace(log, problems=tuple(problems))


def _timed(log: Log, name: str, timed_only: bool, dates: bool) -> Log:
    """Return the log with sample times, without repeated rows and, if `timed_only`, without rows that have no time."""
    if not dates and (stated := log.other_unit(name, "s")):
        raise UserError(f"column {name!r} {stated}; give times in s, or name another column with --time")
    if timed_only and name in log.columns:
        log = log.only(np.isfinite(log.columns[name]), "have no time")
    time = log.column(name)
    again = np.diff(time, prepend=np.nan) == 0
    for column in log.columns.values():
        again[1:] &= (column[1:] == column[:-1]) | (np.isnan(column[1:]) & np.isnan(column[:-1]))
    log = log.only(~again, "repeat the row before in all columns")
    time = log.columns[name]
    steps = np.diff(time)
    if (steps == 0).any():
        row = int((steps == 0).argmax()) + 1
        if dates:  # dates without fractions of a second cannot order rows within a second; the rate can be stated
            reason = f"the date at {log.where(row)} is that of the row before; give finer times"
            return replace(log, unusable={**log.unusable, name: reason})
        raise UserError(
            f"time stands still at {log.where(row)} ({such_rows(int((steps == 0).sum()))}): it is {time[row]:.6g} s as "
            "in the row before, with other values; is --time the right column?"
        )
    if 3 * int((steps < 0).sum()) > len(time):
        row = int((steps < 0).argmax()) + 1
        raise UserError(
            f"time goes back at {log.where(row)} ({such_rows(int((steps < 0).sum()))}; {time[row - 1]:.6g} s, then "
            f"{time[row]:.6g} s): is --time the right column?"
        )
    return replace(log, time=time)


def time_column(
    names: Iterable[str],
    reserved: Iterable[str] = (),
    units: Mapping[str, str] | None = None,
    dates: Iterable[str] = (),
) -> str | None:
    """Return the name of the column of sample times, or None if no column is recognised.

    A column is recognised by the name `time`, `t` or LabVIEW's `X_Value`, in upper or lower case, also with a unit of
    time after the name. If there is no such column, the result is the only field of a struct with such a name. If there
    is no such field, the result is the only column of dates.

    Args:
        reserved: Names with another meaning, such as a signal `T`, with or without a unit after the name.
        units: Units that the file states elsewhere than in the titles of columns, by name of the column.
        dates: Names of the columns of dates.
    """
    taken = {name.casefold() for name in reserved}
    free = [name for name in names if not {name.casefold(), split_title(name)[0].casefold()} & taken]
    candidates = []
    for name in free:
        bare, unit = split_title(name)
        unit = (units or {}).get(name, unit)
        if bare.casefold() in TIMES and any(unit is None or agrees(unit, each) for each in _OF_TIME):
            candidates.append((TIMES.index(bare.casefold()), bare != name, not name.islower(), name))
    if candidates:
        return min(candidates)[-1]
    fields = [name for name in free if name.rpartition(".")[2].casefold() in TIMES] or [*set(dates) & set(free)]
    return fields[0] if len(fields) == 1 else None


def sampling_rate(time: Floats) -> float:
    """Return the sampling rate in Hz of increasing sample times in seconds.

    The rate is the inverse of the mean step, not of the median. A clock that counts milliseconds records 60 Hz as steps
    of 16 and 17 ms, and neither of these is the period. Steps of at least 1.75 times the median are gaps and do not
    count. `UserError` is raised if there is no rate.
    """
    with np.errstate(over="ignore"):
        steps = np.diff(time)
    with np.errstate(over="ignore", divide="ignore"):
        rate = float(1 / steps[steps < 1.75 * np.median(steps)].mean()) if np.isfinite(steps).all() else 0.0
    if not 0 < rate < math.inf:
        raise UserError(f"time goes from {time[0]:.6g} s to {time[-1]:.6g} s: is --time the right column?")
    return rate


def round_rate(rate: float) -> float:
    """Round a sampling rate in Hz so that the rate or its period has as few digits as possible.

    The relative change is at most `ROUNDING`.
    """
    rounded = (
        candidate
        for digits in range(1, 5)
        for candidate in (float(f"{rate:.{digits}g}"), 1 / float(f"{1 / rate:.{digits}g}"))
        if abs(candidate / rate - 1) <= ROUNDING
    )
    return next(rounded, rate)


def segments(time: Floats, frequency: float) -> list[slice]:
    """Cut increasing sample times into segments without missing samples, and return each segment's slice of rows.

    Args:
        time: Sample times in seconds; shape `[T]`. A step of more than 1.5 sample periods separates segments.
        frequency: Sampling rate in Hz.
    """
    cuts = [0, *(np.flatnonzero(np.diff(time) * frequency > GAP) + 1).tolist(), len(time)]
    return [slice(first, last) for first, last in itertools.pairwise(cuts)]
