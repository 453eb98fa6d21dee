"""Reader of text logs, which have a header row of names above rows of numbers or dates.

Cells are separated by `,`, `;`, tab, `|` or spaces. The reader detects the encoding, separator, decimal mark and
header. Ambiguous content is noted or refused.
"""

import codecs
import contextlib
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
from typing import Final, Literal, NamedTuple

import numpy as np

from replaybench.data.logs import table
from replaybench.data.logs.table import Budget, Table, bare_unit, known_unit, refuse_doubles
from replaybench.runtime.arrays import Floats
from replaybench.runtime.errors import UserError

_EMPTY: Final = frozenset(("", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", "nil", "missing", "bad input"))
"""Texts that mean a missing number, in lower case."""
_NO_NUMBER: Final = re.compile(r"[-–—]+|[-+]?nan\(.*\)|[-+]?1\.#(ind|qnan|snan|inf)0*|#(value|num|ref|div/0)!")
"""Further texts that mean a missing number: dashes, and what C libraries and spreadsheets print."""
_TRUTH: Final = {"true": 1.0, "false": 0.0}
_DOTTED: Final = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(.*)")
"""A date with dots, which are used only in the order day, month and year."""
_OTHER_DATES: Final = re.compile(
    r"\d{1,4}([./-])\d{1,2}\1\d{1,4}([ T].*)?|\d{1,2}:\d{2}(:\d{2}([.,:]\d+)?)?( ?[ap]\.?m\.?)?", re.IGNORECASE
)
"""Dates in other forms, in which day and month cannot be distinguished, and times of day."""

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
                forms = "%d/%m/%Y, %H:%M:%S.%f or %I:%M:%S %p"
                remedy = f"; write dates as 2024-03-31T23:59:59, or give their --date-format, as in {forms}"
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
        number = plain_number(plain)
        if number is None and self.comma and plain.count(",") == 1 and "." not in plain:
            number = plain_number(plain.replace(",", "."))
        if number is not None and line is not None:
            for mark in ",.":
                if mark in plain and mark not in self._examples:
                    self._examples[mark] = f"{word!r} in line {line}"
        return number

    def _date(self, word: str) -> datetime | None:
        """Return the date and time in a word, or None. A date without a time zone is in UTC."""
        if plain_number(word) is not None:  # 20240101 too
            return None
        if self._format is None and (dotted := _DOTTED.fullmatch(word)):
            word = f"{dotted[3]}-{dotted[2]:0>2}-{dotted[1]:0>2}{dotted[4]}"
        try:
            date = datetime.strptime(word, self._format) if self._format else datetime.fromisoformat(word)
        except ValueError:
            return None
        return date if date.tzinfo else date.replace(tzinfo=UTC)


def plain_number(word: str) -> float | None:
    """Return the number in a word with a decimal point, 1 for `true`, 0 for `false`, or None."""
    if "_" in word:
        return None  # a typing error, which Python would read as 10
    try:
        return float(word)
    except ValueError:
        return _TRUTH.get(word.casefold())


_HEAD: Final = 1000
"""Number of first lines that are searched for the header."""
_TALLEST: Final = 10
"""Largest number of lines of a row in the head with line breaks in its cells, and of last rows that are looked at."""
_TITLE_ROWS: Final = 4
"""Largest number of successive rows of text in the head, such as names, descriptions and units."""
_LISTED: Final = 3
"""Maximum number of faulty lines that a message lists."""
_COMMENTS: Final = ("#", "%", "//")
_COMMENT: Final = re.compile(r"^[#%;/ ]*(units?\s*[:=]\s*)?", re.IGNORECASE)
"""What comments begin with."""
_FRACTION: Final = re.compile(r"(.*[.,])(\d{1,9})(\D.*)?")
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
    head = _head(path, lines, delimiter, rows, cells)
    names = [" ".join(name.split()) for name in head.names]
    refuse_doubles(path, names)
    units = {name: bare_unit(unit) for name, unit in zip(names, head.units, strict=False) if name and unit.strip()}
    if units:
        listed = ", ".join(f"{name} in {unit}" for name, unit in units.items())
        notes += (f"units were read from the head: {listed}",)
    title = head.line + 1
    if unread := [i + 1 for i in rows if i < head.data and i not in head.used]:
        unread = [line for line in unread if not _is_comment(lines[line - 1], rows[line - 1], len(names))]
    if unread:
        notes += (f"the header is line {title}; other lines above the numbers, such as line {unread[0]}, are not read",)
    stream.seek(0)
    reader = csv.reader(itertools.islice(stream, head.data, None), delimiter=delimiter, skipinitialspace=True)
    budget, columns, places = Budget(path), [array("d") for _ in names], array("q")
    faults, unlisted, parted, starts = list[str](), 0, False, list[int]()
    for row in reader:
        line = head.data + reader.line_num
        if not any(map(str.strip, row)) or row in head.titles:
            parted = bool(places)
            continue
        if len(row) == len(names) - 1 and names[-1] == "Comment":  # LabVIEW omits it
            row.append("")
        if delimiter == " " and len(row) == len(names) + 1 and not row[-1]:  # a space at the end
            del row[-1]
        if len(row) != len(names):
            if len(faults) < _LISTED:
                values = f"line {line} has {len(row)} values"
                faults.append(f"{values}, but the header in line {title} has {len(names)} names; mend the line")
            else:
                unlisted += 1
            continue
        budget.take(8 * len(row))
        if parted:
            starts.append(len(places))
            parted = False
        places.append(line)
        for name, column, cell in zip(names, columns, row, strict=True):
            column.append(cells.value(name, cell, line))
    if unlisted:
        faults.append(f"{unlisted} more lines have another number of values than the header")
    unusable = cells.unusable()
    named = {name: np.array(column) for name, column in zip(names, columns, strict=True)}
    named = {name: column for name, column in named.items() if name and name not in unusable}
    blocks = None
    if 0 < 2 * len(starts) < len(places):  # else the text is double-spaced
        blocks = np.isin(np.arange(len(places)), starts).cumsum()
    return Table(
        named,
        unusable,
        np.array(places),
        frozenset(name for name, start in cells.starts.items() if start and name in named),
        units,
        blocks,
        _unpadded(text, delimiter, names, named, places),
        (*notes, *cells.notes()),
        (*faults, *cells.problems()),
    )


def _unpadded(
    text: str, delimiter: str, names: Sequence[str], columns: Mapping[str, Floats], places: Sequence[int]
) -> dict[str, str]:
    """Return the columns whose fractions of a second lack leading zeros, as in 58.80 and then 58.100, with the reason.

    Such a column increases, but for these steps, in which the fraction becomes longer and, as a whole number, larger.
    """
    steps = {name: np.diff(column) for name, column in columns.items()}
    back = {
        name: np.flatnonzero(each < 0).tolist()
        for name, each in steps.items()
        if 0 < 3 * int((each < 0).sum()) <= 2 * int((each > 0).sum())
    }
    wanted = {places[row + more] for rows in back.values() for row in rows for more in (0, 1)}
    lines = {n: line for n, line in enumerate(io.StringIO(text, newline=""), 1) if n in wanted} if wanted else {}
    reasons: dict[str, str] = {}
    for name, rows in back.items():
        for row in rows:
            words = [dict(zip(names, _split(lines[places[at]], delimiter), strict=False)) for at in (row, row + 1)]
            before, after = (_FRACTION.fullmatch(word.get(name, "").strip()) for word in words)
            if not before or not after or (before[1], before[3]) != (after[1], after[3]):
                break
            if len(before[2]) >= len(after[2]) or int(before[2]) >= int(after[2]):
                break
            reasons.setdefault(
                name,
                f"its fractions lack leading zeros: {before[0]!r} in line {places[row]}, then {after[0]!r}; write "
                f"{before[1]}{before[2]:0>{len(after[2])}}{before[3] or ''}",
            )
        else:
            continue
        reasons.pop(name, None)
    return reasons


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
    """Return the separator, and the cells of each row by the index of its last line.

    Blank lines and LabVIEW's header are left out.
    """
    if lines and (stated := re.fullmatch(r'"?sep=(.)"?', lines[0].rstrip("\r\n"))):
        return stated[1], _records(lines, 1, stated[1])
    start = 0
    if lines and lines[0].startswith("LabVIEW Measurement"):
        start = 1 + max((i for i, line in enumerate(lines) if line.startswith("***End_of_Header***")), default=-1)
    rows = {mark: _records(lines, start, mark) for mark in ",;\t|"}
    delimiter = max(rows, key=lambda mark: _usual_width(rows[mark].values())[1])
    tail = [*rows[delimiter].values()][-_TALLEST:]  # numbers, where the first lines may be prose
    if 2 * _usual_width(tail)[1] < len(tail):
        spaced = _records(lines, start, " ")
        if 2 * _usual_width([*spaced.values()][-_TALLEST:])[1] > len(tail):
            return " ", spaced
    return delimiter, rows[delimiter]


def _records(lines: Sequence[str], start: int, delimiter: str) -> dict[int, list[str]]:
    """Return the cells of each row that is not blank, from the line `start` on, by the index of the row's last line."""
    records, i = dict[int, list[str]](), start
    while i < len(lines):
        last, row = i, _split(lines[i], delimiter)
        if lines[i].count('"') % 2 and not lines[i].lstrip().startswith(_COMMENTS):
            reader = csv.reader(lines[i : i + _TALLEST], delimiter=delimiter, skipinitialspace=True, strict=True)
            with contextlib.suppress(csv.Error):  # the quote is not closed
                row = next(reader)
                last = i + reader.line_num - 1
        if lines[i].strip():
            records[last] = row[:-1] if delimiter == " " and len(row) > 1 and not row[-1] else row
        i = last + 1
    return records


class _Head(NamedTuple):
    """The head of a text log.

    Attributes:
        names: Titles of the columns.
        units: Units of the columns, or no units.
        line: Index of the last line of the row of titles.
        data: Index of the first line below the head.
        used: Indices of the lines of titles and units.
        titles: Rows of the head that a file may repeat between blocks of numbers.
    """

    names: Sequence[str]
    units: Sequence[str]
    line: int
    data: int
    used: frozenset[int]
    titles: Sequence[Sequence[str]] = ()


def _head(path: Path, lines: Sequence[str], delimiter: str, rows: Mapping[int, list[str]], cells: Cells) -> _Head:
    """Return the head of a log.

    The names are in the first row of text that has the usual number of cells, as far as its last cell with content,
    and is not a comment. The rows of text below may contain descriptions and units. Units may also be in the row above.
    If comments stand directly above numbers, the names may be in a comment.
    """
    width = _usual_width(rows.values(), by_cells=True)[0]
    labels = {row[0].strip().casefold(): i for i, row in rows.items() if len(row) == width}
    named = next((labels[label] for label in _LABELS if label in labels), None)
    if "trace_values" in labels and named is not None:  # from dSPACE; the first column has the type of each row
        given = rows[labels["unit"]][1:] if "unit" in labels else []
        return _Head(["", *rows[named][1:]], ["", *given], named, labels["trace_values"], frozenset((named,)))
    marked = {i for i, row in rows.items() if _is_comment(lines[i], row, width)}
    wide = dict[int, Sequence[str]]()
    for i, row in rows.items():
        forms = (_split(_COMMENT.sub("", lines[i]), delimiter), row) if i in marked else (row,)
        if fitting := [form for form in forms if len(form) == width]:
            wide[i] = fitting[0]
    kinds = {i: {cells.kind(cell) for cell in row} for i, row in wide.items()}
    plain = [i for i in wide if i not in marked]
    if not plain:
        raise UserError(f"{path} has no header row (the file is empty); write the column names into the first line")
    usual = Counter(_filled(wide[i]) for i in plain[-_TALLEST:]).most_common(1)[0][0]
    full = [i for i in plain if _filled(wide[i]) >= usual]
    first = next((i for i in full if "number" not in kinds[i] and kinds[i] != {"empty"}), None)
    if first is None or any(kinds[i] <= {"number", "empty"} for i in full if i < first):
        first = full[0] if kinds[full[0]] <= {"number", "empty"} else plain[0]
        block = [i for i in wide if i < first and i in marked and "number" not in kinds[i]][-_TITLE_ROWS:]
        if kinds[first] <= {"number", "empty"} or ("number" in kinds[first] and block):
            above = max((i for i in rows if i < first), default=first)
            if not block and above not in marked and above != first:  # of another width; its lines are faults
                wide[above], block = rows[above], [above]
            if not block:
                reason = f"line {first + 1} holds numbers"
                raise UserError(f"{path} has no header row ({reason}); write the column names into the first line")
            is_unit = {i: _are_units(wide[i]) for i in block}
            line = max((i for i in block if not is_unit[i]), default=block[0])
        else:
            block, is_unit, line = [first], {first: False}, first
    else:
        text = itertools.takewhile(
            lambda i: "text" in kinds[i] and kinds[i] <= {"text", "empty"}, (i for i in wide if i > first)
        )
        below = list(itertools.islice(text, _TITLE_ROWS))
        block = [first, *below] if len(below) < _TITLE_ROWS else [first]
        is_unit = {i: _are_units(wide[i]) for i in block}
        above = max((i for i in wide if i < first), default=first)
        if above != first and _are_units(wide[above]):
            block, is_unit[above] = [above, *block], True
        if is_unit[first] and len(block) > 1 and not all(is_unit.values()):  # units are above names
            line = next(i for i in block if not is_unit[i])
        else:
            line, is_unit[first] = first, False
    row_of_units = next((i for i in block if is_unit[i] and i != line), None)
    units = [] if row_of_units is None else wide[row_of_units]
    for each in lines[: block[-1] + 1]:
        if each.startswith("Y_Unit_Label"):  # of LabVIEW; the last one counts
            units = ["", *_split(each, delimiter)[1:]]
    used = frozenset((line, line if row_of_units is None else row_of_units))
    return _Head(wide[line], units, line, block[-1] + 1, used, [rows[i] for i in block])


def _filled(row: Sequence[str]) -> int:
    """Return the number of cells up to the last one with content."""
    return max((i for i, cell in enumerate(row, 1) if cell.strip()), default=0)


def _is_unit(word: str) -> bool:
    return bare_unit(word) != word or (known_unit(word) and (len(word) > 1 or word in "smVANKWJ°%"))


def _are_units(row: Sequence[str]) -> bool:
    """Return whether at least half of the cells with content are known units, or in brackets."""
    words = [cell.strip() for cell in row if cell.strip()]
    return 0 < len(words) <= 2 * sum(_is_unit(word) for word in words)


def _is_comment(line: str, row: Sequence[str], width: int) -> bool:
    """Return whether a line above the header is a comment, as shown by a comment mark or a single quoted text."""
    text = line.lstrip()
    return text.startswith(_COMMENTS) or (len(row) != width and (text[0] == ";" or (text[0] == '"' and len(row) == 1)))


def _split(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])


def _usual_width(rows: Iterable[Sequence[str]], by_cells: bool = False) -> tuple[int, int]:
    """Return the most frequent number of cells among rows with several cells, and the number of these rows.

    With `by_cells`, a row counts as often as it has cells, because rows above the header are often many but short.
    """
    counts = Counter(len(row) for row in rows if len(row) > 1)
    return max(counts.items(), key=lambda item: item[1] * (item[0] if by_cells else 1), default=(1, 0))
