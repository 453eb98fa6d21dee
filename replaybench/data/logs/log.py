"""Recorded trajectories from elsewhere: columns of numbers over time, read from text, NPZ, MATLAB or Parquet files.

Logs are files from strangers: nothing in them is executed or unpickled, and no declared size is believed before it
is checked. This file knows columns, sample times and gaps; what a column means to a plant it must not know, and how
each kind of file is read stands in a file of its own.
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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from replaybench.data.errors import UserError, no_such_file, unknown
from replaybench.data.logs.matlab import read_mat
from replaybench.data.logs.npz import read_npz
from replaybench.data.logs.parquet import read_parquet
from replaybench.data.logs.table import Floats, Table
from replaybench.data.logs.text import read_text
from replaybench.data.quantities import shown_number

GAP: Final = 1.5
"""Sample periods between two rows from which on samples are missing between them."""
ROUNDING: Final = 0.002
"""Relative difference up to which a measured rate may be rounded."""

_DAMAGE: Final = (
    *(OSError, EOFError, ValueError, RuntimeError, MemoryError, LookupError, TypeError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, tokenize.TokenError),
)
_READERS: Final[dict[str, Callable[[Path], Table]]] = {
    ".csv": read_text,
    ".tsv": read_text,
    ".txt": read_text,
    ".npz": read_npz,
    ".mat": read_mat,
    ".parquet": read_parquet,
}
SUFFIXES: Final = tuple(_READERS)
"""Of files that may be logs."""


@dataclass(frozen=True, eq=False)
class Log:
    """A recording of T rows.

    Attributes:
        path: the file it came from.
        columns: named float64 `[T]`; an empty cell is NaN.
        unusable: why a column of the file is not among `columns`; it does no harm unless it is asked for.
        time: float64 `[T]` [s], finite, or None where nothing was recorded.
        lines: int64 `[T]`, line of each row in a text file; None for binary files.
        comma: a number in it with a decimal comma, and where it stands; None where there is none.
        kept: which rows of the file these are, bool; None where they are all.
    """

    path: Path
    columns: Mapping[str, Floats]
    unusable: Mapping[str, str]
    time: Floats | None
    lines: NDArray[np.int64] | None
    comma: str | None = None
    kept: NDArray[np.bool_] | None = None

    def where(self, row: int) -> str:
        """Return the place of a row in the file, in words."""
        if self.lines is not None:
            return f"line {self.lines[row]}"
        return f"index {row if self.kept is None else np.flatnonzero(self.kept)[row]}"

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
                f"{self.path}: column {name!r} is {shown_number(column[row])} at {self.where(row)} "
                f"({such_rows(int(missing.sum()))}); mend, or leave out, what is so "
                "(a gap in time splits the episode), or --missing drop or interpolate"
            )
        return column


def such_rows(count: int) -> str:
    """Return how many rows are so."""
    return "1 such row" if count == 1 else f"{count} such rows"


def read_log(path: Path, time: str | None = None, timed_only: bool = False) -> Log:
    """Read a log: text with a header row (`,`, `;` or tab between cells), NPZ, MATLAB or Parquet.

    Args:
        path: the file; `.csv`, `.tsv` or `.txt`, `.npz`, `.mat` (version 5 or later), or `.parquet`.
        time: name of the column of sample times [s]; if not given, the one called `time` or `t`, if any, or the only
            field of a struct that is called so.
        timed_only: leave out rows without a time instead of refusing them.

    Raises:
        UserError: the file is missing, damaged, too large or not of this form; says in which line or column.
    """
    if not path.is_file():
        raise no_such_file(path)
    suffix = path.suffix.lower()
    if suffix not in _READERS:
        valid = ".csv (also .tsv, .txt), .npz, .mat or .parquet"
        raise UserError(f"{path}: a log is a {valid} file, not {suffix or 'without suffix'!r}")
    table = _read(path, _READERS[suffix])
    if not table.columns:
        reasons = [f"; column {name!r} cannot be used: {reason}" for name, reason in table.unusable.items()]
        raise UserError(f"{path} holds no column of numbers{''.join(reasons[:1])}")
    log = Log(path, table.columns, table.unusable, None, table.lines, table.comma)
    time = time_column(table.columns) if time is None else time
    if time is None:
        return log
    if timed_only and time in log.columns:
        log = _timed(log, np.isfinite(log.columns[time]))
    return replace(log, time=log.column(time))


def _timed(log: Log, timed: NDArray[np.bool_]) -> Log:
    """Return the log with only the rows that are `timed`, bool `[T]`."""
    columns = {name: column[timed] for name, column in log.columns.items()}
    return replace(log, columns=columns, lines=None if log.lines is None else log.lines[timed], kept=timed)


def _read(path: Path, reader: Callable[[Path], Table]) -> Table:
    try:
        return reader(path)
    except UserError:
        raise
    except UnicodeDecodeError as error:
        if reader is read_text:
            raise UserError(f"{path} is not UTF-8 text; save the log as UTF-8 CSV") from error
        raise UserError(f"{path} cannot be read: it is damaged") from error
    except (csv.Error, *_DAMAGE) as error:
        raise UserError(f"{path} cannot be read: {' '.join(str(error).split()) or type(error).__name__}") from error


def time_column(names: Iterable[str]) -> str | None:
    """Return which column is called `time`, else `t`, in any case; else the only field of a struct that is; or None."""
    names = list(names)
    called = [name for name in names if name.casefold() in ("time", "t")]
    if called:
        return min(called, key=lambda name: (name.casefold() == "t", not name.islower()))
    fields = [name for name in names if name.rpartition(".")[2].casefold() in ("time", "t")]
    return fields[0] if len(fields) == 1 else None


def sampling_rate(time: Floats) -> float:
    """Return the rate of a time column `[T]` [s] in Hz, gaps left out.

    It is the mean, not the median, of the sample times: a clock that counts milliseconds makes 60 Hz out of steps
    of 16 and 17 ms, of which neither is the period. The median only tells which steps are gaps.

    Args:
        time: sample times `[T]` [s], two at least.

    Raises:
        UserError: time does not increase, or gives no rate.
    """
    with np.errstate(over="ignore"):
        steps = np.diff(time)
    if not (steps > 0).all():
        row = int((steps <= 0).argmax()) + 1
        raise UserError(
            f"time does not increase at row {row + 1} of the data ({time[row - 1]:.6g} s, then {time[row]:.6g} s); "
            "is --time the right column? Recordings put together need increasing times, with a gap between them"
        )
    with np.errstate(over="ignore", divide="ignore"):
        rate = float(1 / steps[steps < 1.75 * np.median(steps)].mean()) if np.isfinite(steps).all() else 0.0
    if not 0 < rate < math.inf:
        raise UserError(f"time goes from {time[0]:.6g} s to {time[-1]:.6g} s: is --time the right column?")
    return rate


def round_rate(rate: float) -> float:
    """Return the roundest rate within `ROUNDING` of a measured one [Hz]: few digits in either Hz or seconds."""
    rounded = (
        candidate
        for digits in range(1, 5)
        for candidate in (float(f"{rate:.{digits}g}"), 1 / float(f"{1 / rate:.{digits}g}"))
        if abs(candidate / rate - 1) <= ROUNDING
    )
    return next(rounded, rate)


def segments(time: Floats, frequency: float) -> list[slice]:
    """Cut a recording where samples are missing: steps of more than 1.5 sample periods.

    Args:
        time: increasing sample times `[T]` [s].
        frequency: sampling frequency [Hz].

    Returns:
        Slices that together cover all T rows, in order.
    """
    cuts = [0, *(np.flatnonzero(np.diff(time) * frequency > GAP) + 1).tolist(), len(time)]
    return [slice(first, last) for first, last in itertools.pairwise(cuts)]
