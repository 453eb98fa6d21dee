"""What a cell of a text log is: a number, a date, an empty cell or text, in the forms that loggers write."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Final, Literal

from replaybench.data.errors import UserError

_EMPTY: Final = frozenset(("", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", "nil", "missing", "bad input"))
"""What stands for a missing number, in lower case."""
_NO_NUMBER: Final = re.compile(r"[-–—]+|[-+]?nan\(.*\)|[-+]?1\.#(ind|qnan|snan|inf)0*|#(value|num|ref|div/0)!")
"""Further forms of it: dashes, and what C libraries and spreadsheets print."""
_TRUTH: Final = {"true": 1.0, "false": 0.0}
_DOTTED: Final = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(.*)")
"""A date as day, month and year, whose order the dots show."""
_OTHER_DATES: Final = re.compile(r"\d{1,4}([./-])\d{1,2}\1\d{1,4}([ T].*)?")
"""Dates in other forms, in which day and month cannot be told apart."""

Kind = Literal["number", "empty", "text", "other"]


class Cells:
    """Turns the cells of a log into numbers, and notes what is in doubt.

    Attributes:
        starts: first date of each column of dates; None for other columns.
        comma: whether a comma may be a decimal mark, because another mark separates the cells.
        thousands: the mark between thousands, empty if there is none.

    Raises:
        UserError: the `date_format` is none.
    """

    def __init__(self, text: str, delimiter: str, empty: tuple[str, ...] = (), date_format: str | None = None) -> None:
        self.starts = dict[str, datetime | None]()
        self.comma, self.thousands = delimiter != ",", ""
        self._empty = _EMPTY.union(word.strip().casefold() for word in empty)
        self._format = date_format
        try:
            datetime.strptime(datetime.now().strftime(date_format or ""), date_format or "")
        except ValueError as error:
            raise UserError(f"--date-format {date_format!r}: {error}; write it as in %d/%m/%Y %H:%M:%S") from None
        self._written = dict[str, str]()  # a number with each of the two marks
        self._bad = dict[str, tuple[int, str]]()
        edge = re.escape(delimiter)
        for thousands, decimal in (".,", ",.") if self.comma else ():
            both = rf"[-+]?\d{{1,3}}(\{thousands}\d{{3}})+\{decimal}\d+"  # shows which mark is which
            if re.search(rf'(^|{edge})[ "]*{both}[ "]*($|{edge}|\r)', text, re.MULTILINE):
                self.thousands = thousands
                self._grouped = re.compile(rf"[-+]?[1-9]\d{{0,2}}(\{thousands}\d{{3}})+(\{decimal}\d*)?")

    def value(self, name: str, cell: str, line: int) -> float:
        """Return the number in a cell, or the seconds since the first date of its column; NaN if there is none."""
        word = cell.strip()
        if self._is_empty(word):
            return math.nan
        start = self.starts[name] if name in self.starts else self.starts.setdefault(name, self._date(word))
        if start:
            date = self._date(word)
            number = None if date is None else (date - start).total_seconds()
        else:
            number = self._number(word, line)
        if number is None:
            wanted = "a date" if start else "a number"
            remedy = f"; if it stands for a missing one, --na {word!r}"
            if start or _OTHER_DATES.fullmatch(word):
                remedy = "; write dates as 2024-03-31T23:59:59, or give their --date-format, as in %d/%m/%Y"
            count, reason = self._bad.get(name, (0, f"line {line} holds {cell!r}, which is not {wanted}{remedy}"))
            self._bad[name] = count + 1, reason
            return math.nan
        return number

    def kind(self, cell: str) -> Kind:
        """Return what a cell is; text with many digits, such as a date in an unknown form, is something else."""
        word = cell.strip()
        if self._is_empty(word):
            return "empty"
        if self._number(word) is not None or self._date(word):
            return "number"
        return "other" if re.search(r"\d\d", word) else "text"

    def unusable(self) -> dict[str, str]:
        """Return why columns are none of numbers."""
        return {
            name: f"{reason} ({count} such cells)" if count > 1 else reason
            for name, (count, reason) in self._bad.items()
        }

    def notes(self) -> tuple[str, ...]:
        """Return how numbers were read, where it could be otherwise."""
        comma = self._written.get(",")
        return (f"commas were taken for decimal marks ({comma}), not for thousands",) if comma else ()

    def problems(self) -> tuple[str, ...]:
        """Return what contradicts itself."""
        if len(self._written) < 2:
            return ()
        commas, points = self._written[","], self._written["."]
        return (f"the log has decimal commas ({commas}) and points ({points}); write one of them",)

    def _is_empty(self, word: str) -> bool:
        folded = word.casefold()
        return folded in self._empty or bool(_NO_NUMBER.fullmatch(folded))

    def _number(self, word: str, line: int | None = None) -> float | None:
        """Return the number that a word is, None if it is none; the mark in it counts where a `line` is given."""
        plain = word
        if self.thousands and self._grouped.fullmatch(word):
            plain = word.replace(self.thousands, "")
        number = _plain(plain)
        if number is None and self.comma and plain.count(",") == 1 and "." not in plain:
            number = _plain(plain.replace(",", "."))
        if number is not None and line is not None:
            for mark in ",.":
                if mark in plain and mark not in self._written:
                    self._written[mark] = f"{word!r} in line {line}"
        return number

    def _date(self, word: str) -> datetime | None:
        """Return the date and time that a word is, in UTC if it names no zone; None if it is none."""
        if _plain(word) is not None:  # 20240101 too
            return None
        if self._format is None and (dotted := _DOTTED.fullmatch(word)):
            word = f"{dotted[3]}-{dotted[2]:0>2}-{dotted[1]:0>2}{dotted[4]}"
        try:
            date = datetime.strptime(word, self._format) if self._format else datetime.fromisoformat(word)
        except ValueError:
            return None
        return date if date.tzinfo else date.replace(tzinfo=UTC)


def _plain(word: str) -> float | None:
    """Return the number that a word is with a decimal point; None if it is none."""
    if "_" in word:
        return None  # a typing error: only Python takes 1_0 for 10
    try:
        return float(word)
    except ValueError:
        return _TRUTH.get(word.casefold())
