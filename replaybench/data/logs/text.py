"""Reader of text logs, which have a header row of names above rows of numbers or dates.

Cells are separated by `,`, `;` or tab. The reader detects the encoding, separator, decimal mark and header. Ambiguous
content is noted or refused.
"""

import codecs
import csv
import gzip
import io
import itertools
import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import numpy as np

from replaybench.data.logs import table
from replaybench.data.logs.table import Budget, Table, refuse_doubles
from replaybench.runtime.errors import UserError

_EMPTY: Final = frozenset(("", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", "nil", "missing", "bad input"))
"""Texts that mean a missing number, in lower case."""
_NO_NUMBER: Final = re.compile(r"[-–—]+|[-+]?nan\(.*\)|[-+]?1\.#(ind|qnan|snan|inf)0*|#(value|num|ref|div/0)!")
"""Further texts that mean a missing number: dashes, and what C libraries and spreadsheets print."""
_TRUTH: Final = {"true": 1.0, "false": 0.0}
_DOTTED: Final = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(.*)")
"""A date with dots, which are used only in the order day, month and year."""
_OTHER_DATES: Final = re.compile(r"\d{1,4}([./-])\d{1,2}\1\d{1,4}([ T].*)?")
"""Dates in other forms, in which day and month cannot be distinguished."""

Kind = Literal["number", "empty", "text", "other"]


class Cells:
    """A converter from the cells of a text log to numbers, which records ambiguous and faulty cells.

    The constructor detects the mark between thousands in the text, and raises `UserError` for an invalid date format.

    Attributes:
        starts: First date of each column of dates, by name of the column; None for other columns.
        comma: Whether a comma may be a decimal mark, because another character separates the cells.
        thousands: Mark between thousands. It is empty if the log has none.
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
        self._examples = dict[str, str]()  # a number of the log with each decimal mark
        self._bad = dict[str, tuple[int, str]]()
        edge = re.escape(delimiter)
        for thousands, decimal in (".,", ",.") if self.comma else ():
            both = rf"[-+]?\d{{1,3}}(\{thousands}\d{{3}})+\{decimal}\d+"  # shows which mark is which
            if re.search(rf'(^|{edge})[ "]*{both}[ "]*($|{edge}|\r)', text, re.MULTILINE):
                self.thousands = thousands
                self._grouped = re.compile(rf"[-+]?[1-9]\d{{0,2}}(\{thousands}\d{{3}})+(\{decimal}\d*)?")

    def value(self, name: str, cell: str, line: int) -> float:
        """Return the number in a cell of the column `name`, or NaN if the cell is empty or faulty.

        A date becomes the number of seconds since the first date of its column.
        """
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
        """Return the category of a cell.

        Numbers and dates are "number". Text with two adjacent digits, such as a date in an unknown form, is "other".
        """
        word = cell.strip()
        if self._is_empty(word):
            return "empty"
        if self._number(word) is not None or self._date(word):
            return "number"
        return "other" if re.search(r"\d\d", word) else "text"

    def unusable(self) -> dict[str, str]:
        """Return the reason why each faulty column is not numeric, by name of the column."""
        return {
            name: f"{reason} ({count} such cells)" if count > 1 else reason
            for name, (count, reason) in self._bad.items()
        }

    def notes(self) -> tuple[str, ...]:
        """Return notes about how ambiguous numbers were read."""
        comma = self._examples.get(",")
        return (f"commas were taken for decimal marks ({comma}), not for thousands",) if comma else ()

    def problems(self) -> tuple[str, ...]:
        """Return one error message if the log contains both decimal commas and decimal points, else none."""
        if len(self._examples) < 2:
            return ()
        commas, points = self._examples[","], self._examples["."]
        return (f"the log has decimal commas ({commas}) and points ({points}); write one of them",)

    def _is_empty(self, word: str) -> bool:
        folded = word.casefold()
        return folded in self._empty or bool(_NO_NUMBER.fullmatch(folded))

    def _number(self, word: str, line: int | None = None) -> float | None:
        """Return the number in a word, or None, and record its decimal mark if the number of a line is given."""
        plain = word
        if self.thousands and self._grouped.fullmatch(word):
            plain = word.replace(self.thousands, "")
        number = _plain(plain)
        if number is None and self.comma and plain.count(",") == 1 and "." not in plain:
            number = _plain(plain.replace(",", "."))
        if number is not None and line is not None:
            for mark in ",.":
                if mark in plain and mark not in self._examples:
                    self._examples[mark] = f"{word!r} in line {line}"
        return number

    def _date(self, word: str) -> datetime | None:
        """Return the date and time in a word, or None. A date without a time zone is in UTC."""
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
    """Return the number in a word with a decimal point, 1 for `true`, 0 for `false`, or None."""
    if "_" in word:
        return None  # a typing error, which Python would read as 10
    try:
        return float(word)
    except ValueError:
        return _TRUTH.get(word.casefold())


_HEAD: Final = 200
"""Number of first lines that are searched for the header."""
_LISTED: Final = 3
"""Maximum number of faulty lines that a message lists."""
_LABELS: Final = ("name", "variable", "path")
"""Labels that dSPACE gives to the row of names."""


@dataclass(frozen=True)
class TextOptions:
    """Options for reading a text log.

    Attributes:
        encoding: Python's name of the encoding. If None, the encoding is detected.
        date_format: Format of dates as in `datetime.strptime`. If None, dates are read as in ISO 8601 or as 31.12.2024.
        empty: Further texts that mean an empty cell.
    """

    encoding: str | None = None
    date_format: str | None = None
    empty: tuple[str, ...] = ()


def read_text(path: Path, options: TextOptions) -> Table:
    """Read a text log as a table of numeric columns.

    Dates become seconds since the first date of their column. A column is unusable if one of its entries is
    neither empty, nor a number, nor a date.

    Raises:
        UserError: If the log is too large, has no known encoding, or has no header row.
    """
    text, notes = _text(path, options.encoding)
    stream = io.StringIO(text, newline="")
    lines = list(itertools.islice(stream, _HEAD))
    delimiter, rows = _rows(lines)
    cells = Cells(text, delimiter, options.empty, options.date_format)
    titles, given, header, data = _head(path, lines, delimiter, rows, cells)
    names = [name.strip() for name in titles]
    refuse_doubles(path, names)
    units = {name: unit.strip() for name, unit in zip(names, given, strict=False) if name and unit.strip()}
    if units:
        listed = ", ".join(f"{name} in {unit}" for name, unit in units.items())
        notes += (f"units were read from the head: {listed}",)
    if unread := [i + 1 for i, row in rows.items() if i < header and not _is_comment(lines[i], row, len(names))]:
        notes += (f"the header is line {header + 1}; lines above it, such as line {unread[0]}, are not read",)
    stream.seek(0)
    reader = csv.reader(itertools.islice(stream, data, None), delimiter=delimiter, skipinitialspace=True)
    budget, columns, places = Budget(path), [array("d") for _ in names], array("q")
    faults, unlisted = list[str](), 0
    for row in reader:
        line = data + reader.line_num
        if len(row) == len(names) - 1 and names[-1] == "Comment":  # LabVIEW omits it
            row.append("")
        if len(row) != len(names):
            if row and len(faults) < _LISTED:
                values = f"line {line} has {len(row)} values"
                faults.append(f"{values}, but the header in line {header + 1} has {len(names)} names; mend the line")
            elif row:
                unlisted += 1
            continue
        budget.take(8 * len(row))
        places.append(line)
        for name, column, cell in zip(names, columns, row, strict=True):
            column.append(cells.value(name, cell, line))
    if unlisted:
        faults.append(f"{unlisted} more lines have another number of values than the header")
    unusable = cells.unusable()
    named = {name: np.array(column) for name, column in zip(names, columns, strict=True)}
    named = {name: column for name, column in named.items() if name and name not in unusable}
    dates = frozenset(name for name, start in cells.starts.items() if start and name in named)
    problems = (*faults, *cells.problems())
    return Table(named, unusable, np.array(places), dates, units, (*notes, *cells.notes()), problems)


def _text(path: Path, encoding: str | None) -> tuple[str, tuple[str, ...]]:
    """Return the decompressed text of a file, and a note if the encoding was guessed."""
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        data = file.read(table.MAX_BYTES + 1)
    if len(data) > table.MAX_BYTES:
        raise UserError(f"{path} holds more than {table.MAX_BYTES / 2**30:.3g} GiB of text; split it into logs")
    if encoding is None and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif encoding is None and len(data) > 1 and 0 in data[:2]:
        encoding = "utf-16-le" if data[0] else "utf-16-be"
    try:
        return data.decode(encoding or "utf-8").removeprefix("\ufeff"), ()
    except LookupError:
        raise UserError(f"unknown encoding {encoding!r}; give another --encoding, as in cp1251 or shift_jis") from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        if encoding is not None:
            raise UserError(f"{path}, line {line} is not {encoding} text; give another --encoding") from None
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:
        raise UserError(f"{path}, line {line} is neither UTF-8 nor cp1252 text; give its --encoding") from None
    return text, (f"line {line} is not UTF-8: the log was read as cp1252; if letters are wrong, give its --encoding",)


def _rows(lines: Sequence[str]) -> tuple[str, dict[int, list[str]]]:
    """Return the separator, and the cells of each line by line index, without blank lines and LabVIEW's header."""
    if lines and (stated := re.fullmatch(r'"?sep=(.)"?', lines[0].rstrip("\r\n"))):
        return stated[1], {i: _split(line, stated[1]) for i, line in enumerate(lines) if i and line.strip()}
    start = 0
    if lines and lines[0].startswith("LabVIEW Measurement"):
        start = 1 + max((i for i, line in enumerate(lines) if line.startswith("***End_of_Header***")), default=-1)
    rows = {
        mark: {i: _split(line, mark) for i, line in enumerate(lines) if i >= start and line.strip()} for mark in ",;\t"
    }
    delimiter = max(rows, key=lambda mark: _usual_width(rows[mark].values())[1])
    return delimiter, rows[delimiter]


def _head(
    path: Path, lines: Sequence[str], delimiter: str, rows: Mapping[int, list[str]], cells: Cells
) -> tuple[Sequence[str], Sequence[str], int, int]:
    """Return the names and units of columns, and the indices of the line of names and of the first line of data.

    The names are in the first line with the usual number of cells that is not a comment. If a comment stands directly
    above numbers, the names may be in the comment.
    """
    width = _usual_width(rows.values())[0]
    labels = {row[0].strip().casefold(): i for i, row in rows.items() if len(row) == width}
    named = next((labels[label] for label in _LABELS if label in labels), None)
    if "trace_values" in labels and named is not None:  # from dSPACE; the first column has the type of each row
        given = rows[labels["unit"]][1:] if "unit" in labels else []
        return ["", *rows[named][1:]], ["", *given], named, labels["trace_values"]
    plain = [i for i, row in rows.items() if not _is_comment(lines[i], row, width)]
    header = next((i for i in plain if len(rows[i]) == width), None)
    if header is None:
        raise UserError(f"{path} has no header row (the file is empty); write the column names into the first line")
    names, data = rows[header], header + 1
    kinds = {cells.kind(cell) for cell in names}
    if "number" in kinds:
        above = max((i for i in rows if i < header), default=header)
        bare = (_split(lines[above].lstrip("#%;/ "), delimiter), rows[above])
        if above not in plain and (as_wide := [row for row in bare if len(row) == width]):  # as numpy.savetxt writes it
            names, data, header = as_wide[0], header, above
        elif kinds <= {"number", "empty"} and above == header:
            reason = f"line {header + 1} holds numbers"
            raise UserError(f"{path} has no header row ({reason}); write the column names into the first line")
        elif kinds <= {"number", "empty"}:
            names, data, header = rows[above], header, above
    units: Sequence[str] = ()
    first = next((i for i in plain if i >= data), None)
    if first is not None and len(rows[first]) == len(names):
        kinds = {cells.kind(cell) for cell in rows[first]}
        if "text" in kinds and kinds <= {"text", "empty"}:
            units, data = rows[first], first + 1
    for line in lines[:header]:
        if line.startswith("Y_Unit_Label"):  # of LabVIEW; the last one counts
            units = ["", *_split(line, delimiter)[1:]]
    return names, units, header, data


def _is_comment(line: str, row: Sequence[str], width: int) -> bool:
    """Return whether a line above the header is a comment, as shown by a comment mark or a single quoted text."""
    text = line.lstrip()
    return text.startswith(("#", "%", "//")) or (
        len(row) != width and (text[0] == ";" or (text[0] == '"' and len(row) == 1))
    )


def _split(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])


def _usual_width(rows: Iterable[Sequence[str]]) -> tuple[int, int]:
    """Return the most frequent number of cells among rows with several cells, and the number of these rows."""
    counts = Counter(len(row) for row in rows if len(row) > 1)
    return max(counts.items(), key=lambda item: item[1], default=(1, 0))
