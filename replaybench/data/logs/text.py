"""Logs as text: a header row of names, then numbers or dates, with `,`, `;` or tab between them.

Encoding, separator, decimal mark and head are recognised. What is in doubt is noted or refused.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from replaybench.data.errors import UserError
from replaybench.data.logs import table
from replaybench.data.logs.cells import Cells
from replaybench.data.logs.table import Budget, Table, refuse_doubles

_HEAD: Final = 200
"""Lines among which the header is looked for."""
_LISTED: Final = 3
"""Lines of one kind of problem that are named."""
_LABELS: Final = ("name", "variable", "path")
"""What dSPACE calls the row of names."""


@dataclass(frozen=True)
class TextOptions:
    """What a user states about a text log: its encoding, the form of its dates (as of `strptime`), empty cells."""

    encoding: str | None = None
    date_format: str | None = None
    empty: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Head:
    """What stands above the data: names, units, the header's index among the lines, and that of the first data."""

    names: Sequence[str]
    units: Sequence[str]
    header: int
    data: int


def read_text(path: Path, options: TextOptions) -> Table:
    """Read a text log, dates as seconds after the first; a cell that is no number makes its column unusable.

    Raises:
        UserError: it is too large, in no known encoding, or has no header row.
    """
    text, notes = _text(path, options.encoding)
    stream = io.StringIO(text, newline="")
    lines = list(itertools.islice(stream, _HEAD))
    delimiter, rows = _rows(lines)
    cells = Cells(text, delimiter, options.empty, options.date_format)
    head = _head(path, lines, delimiter, rows, cells)
    names = [name.strip() for name in head.names]
    refuse_doubles(path, names)
    units = {name: unit.strip() for name, unit in zip(names, head.units, strict=False) if name and unit.strip()}
    if units:
        listed = ", ".join(f"{name} in {unit}" for name, unit in units.items())
        notes += (f"units were read from the head: {listed}",)
    if unread := [i + 1 for i, row in rows.items() if i < head.header and not _is_comment(lines[i], row, len(names))]:
        notes += (f"the header is line {head.header + 1}; what stands above it, as in line {unread[0]}, is not read",)
    stream.seek(0)
    reader = csv.reader(itertools.islice(stream, head.data, None), delimiter=delimiter, skipinitialspace=True)
    budget, columns, places = Budget(path), [array("d") for _ in names], array("q")
    odd, more = list[str](), 0
    for row in reader:
        line = head.data + reader.line_num
        if len(row) == len(names) - 1 and names[-1] == "Comment":  # which LabVIEW leaves out
            row.append("")
        if len(row) != len(names):
            if row and len(odd) < _LISTED:
                found = f"line {line} has {len(row)} values"
                odd.append(f"{found}, but the header in line {head.header + 1} has {len(names)} names; mend the line")
            elif row:
                more += 1
            continue
        budget.take(8 * len(row))
        places.append(line)
        for name, column, cell in zip(names, columns, row, strict=True):
            column.append(cells.value(name, cell, line))
    if more:
        odd.append(f"{more} more lines have another number of values than the header")
    unusable = cells.unusable()
    named = {name: np.array(column) for name, column in zip(names, columns, strict=True)}
    named = {name: column for name, column in named.items() if name and name not in unusable}
    dates = frozenset(name for name, start in cells.starts.items() if start and name in named)
    problems = (*odd, *cells.problems())
    return Table(named, unusable, np.array(places), dates, units, (*notes, *cells.notes()), problems)


def _text(path: Path, encoding: str | None) -> tuple[str, tuple[str, ...]]:
    """Return the text of a file, unpacked, and a note where its encoding is a guess."""
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
    """Return the delimiter, and the cells of each line that is not blank by its index; no head's of LabVIEW."""
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


def _head(path: Path, lines: Sequence[str], delimiter: str, rows: Mapping[int, list[str]], cells: Cells) -> _Head:
    """Find the header: the first line as wide as most that is no comment, or a comment just above numbers."""
    width = _usual_width(rows.values())[0]
    labels = {row[0].strip().casefold(): i for i, row in rows.items() if len(row) == width}
    named = next((labels[label] for label in _LABELS if label in labels), None)
    if "trace_values" in labels and named is not None:  # of dSPACE, whose first column says what each row is
        given = rows[labels["unit"]][1:] if "unit" in labels else []
        return _Head(["", *rows[named][1:]], ["", *given], named, labels["trace_values"])
    plain = [i for i, row in rows.items() if not _is_comment(lines[i], row, width)]
    header = next((i for i in plain if len(rows[i]) == width), None)
    if header is None:
        raise UserError(f"{path} has no header row (the file is empty); write the column names into the first line")
    names, data = rows[header], header + 1
    kinds = {cells.kind(cell) for cell in names}
    if "number" in kinds:
        above = max((i for i in rows if i < header), default=header)
        bare = (_split(lines[above].lstrip("#%;/ "), delimiter), rows[above])
        if above not in plain and (as_wide := [row for row in bare if len(row) == width]):  # as of numpy.savetxt
            names, data, header = as_wide[0], header, above
        elif kinds <= {"number", "empty"} and above == header:
            found = f"line {header + 1} holds numbers"
            raise UserError(f"{path} has no header row ({found}); write the column names into the first line")
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
    return _Head(names, units, header, data)


def _is_comment(line: str, row: Sequence[str], width: int) -> bool:
    """Return whether a line above the header is a comment: marked so, or text that is not in `width` cells."""
    text = line.lstrip()
    return text.startswith(("#", "%", "//")) or (
        len(row) != width and (text[0] == ";" or (text[0] == '"' and len(row) == 1))
    )


def _split(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])


def _usual_width(rows: Iterable[Sequence[str]]) -> tuple[int, int]:
    """Return how many cells most rows have, of those that have several, and how many do; the first of equals."""
    counts = Counter(len(row) for row in rows if len(row) > 1)
    return max(counts.items(), key=lambda item: item[1], default=(1, 0))
