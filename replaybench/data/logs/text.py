"""Logs as text: a header row of names, then numbers or dates (ISO 8601), with `,`, `;` or tab between them.

Where no comma stands between cells, one may stand in numbers: spreadsheets of half of Europe write 1,5 for 1.5. Words
that loggers write in the place of a missing number are empty cells, and true and false are 1 and 0.
"""

from __future__ import annotations

import csv
import math
import re
from array import array
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

from replaybench.data.errors import UserError
from replaybench.data.logs.table import Budget, Table, refuse_doubles

_EMPTY: Final = frozenset(("", "-", "--", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", "nil", "missing"))
"""What stands for a missing number, in lower case."""
_TRUTH: Final = {"true": 1.0, "false": 0.0}
_OTHER_DATES: Final = re.compile(r"\s*\d{1,4}([./-])\d{1,2}\1\d{1,4}([ T].*)?")
"""Dates in other forms than ISO 8601, in which day and month cannot be told apart."""


def read_text(path: Path) -> Table:
    """Read a text log, dates as seconds after the first; a cell that is no number makes its column unusable.

    Raises:
        UserError: there is no header row, a row has more or fewer cells than it, or some numbers have decimal commas
            and others points; says in which line.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = next((line for line in file if line.strip()), "")
        file.seek(0)
        delimiter = max(",;\t", key=header.count)
        rows = csv.reader(file, delimiter=delimiter, skipinitialspace=True)
        names = [name.strip() for name in next((row for row in rows if any(row)), [])]
        if names:
            names[0] = names[0].lstrip("# ")  # np.savetxt's header
        first_line = rows.line_num
        if all(_number(name) is not None for name in names if name):
            found = f"line {first_line} holds numbers" if any(names) else "the file is empty"
            raise UserError(f"{path} has no header row ({found}); write the column names into the first line")
        refuse_doubles(path, names)
        budget = Budget(path)
        columns, lines = [array("d") for _ in names], array("q")
        unusable: dict[str, str] = {}
        starts = dict[str, datetime | None]()  # of columns of dates; None of others; the first that is given tells
        written = dict[str, str]()  # a number with each of the two marks
        for row in rows:
            if not row:
                continue
            if len(row) != len(names):
                raise UserError(
                    f"{path}, line {rows.line_num} has {len(row)} values, but the header in line {first_line} "
                    f"has {len(names)} names"
                )
            budget.take(8 * len(row))
            lines.append(rows.line_num)
            for name, column, cell in zip(names, columns, row, strict=True):
                if cell.strip().casefold() in _EMPTY:
                    column.append(math.nan)
                    continue
                start = starts[name] if name in starts else starts.setdefault(name, _date(cell))
                number = _number(cell, commas=delimiter != ",") if start is None else _seconds(cell, start)
                column.append(math.nan if number is None else number)
                if number is None:
                    wanted = "a date" if start else "a number"
                    wanted += "; write dates as 2024-03-31T23:59:59" if _OTHER_DATES.fullmatch(cell) else ""
                    unusable.setdefault(name, f"line {rows.line_num} holds {cell!r}, which is not {wanted}")
                elif not start:
                    for mark in ",.":
                        if mark not in written and mark in cell:
                            written[mark] = f"{cell.strip()!r} in line {rows.line_num}"
        if len(written) == 2:
            raise UserError(
                f"{path} has decimal commas ({written[',']}) and points ({written['.']}); write one of them"
            )
    named = {name: np.array(column) for name, column in zip(names, columns, strict=True)}
    for name in (name for name, start in starts.items() if start):
        # Dates to the second tell nothing of ten rows within one; the rate can be stated.
        dated = np.flatnonzero(np.isfinite(named[name]))
        if (late := np.diff(named[name][dated]) <= 0).any():
            line = lines[dated[int(late.argmax()) + 1]]
            unusable.setdefault(name, f"the date in line {line} is no later than the one before")
    named = {name: column for name, column in named.items() if name and name not in unusable}
    return Table(named, unusable, np.array(lines), written.get(","))


def _number(text: str, commas: bool = False) -> float | None:
    """Return the number that a text is, with a decimal comma if that may be; None if it is none."""
    if "_" in text:
        return None  # a typing error: only Python takes 1_0 for 10
    if (truth := _TRUTH.get(text.strip().casefold())) is not None:
        return truth
    try:
        return float(text)
    except ValueError:
        return _number(text.replace(",", ".")) if commas and text.count(",") == 1 and "." not in text else None


def _date(text: str) -> datetime | None:
    """Return the date and time that a text is in ISO 8601, in UTC if it names no zone; None if it is none."""
    if _number(text) is not None:  # 20240101 too
        return None
    try:
        date = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def _seconds(text: str, start: datetime) -> float | None:
    """Return the seconds from a date to that which a text is; None if it is none."""
    date = _date(text)
    return None if date is None else (date - start).total_seconds()
