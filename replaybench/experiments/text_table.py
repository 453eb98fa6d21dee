"""Tables for terminals, which can also be written as JSON, CSV, Markdown and HTML."""

import contextlib
import html
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from replaybench.data.documents import rows_text

_GAP = "  "


def plain_table(
    headings: Sequence[str], right: Sequence[str] = (), title: str | None = None, no_wrap: bool = False,
    edge: bool = True,
) -> Table:  # fmt: skip
    """Return an empty table for the terminal, in which the columns named in `right` are aligned to the right.

    Without `edge`, there are no empty lines above and below the table.
    """
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=edge)
    for heading in headings:
        table.add_column(Text(heading), justify="right" if heading in right else "left", no_wrap=no_wrap)
    return table


@dataclass(frozen=True)
class FittedTable:
    """A table that adapts to the width of the terminal.

    The table becomes narrower in three steps. First, a column with equal values in all rows is written once above the
    table. Second, names are written on a separate line above the numbers of each row. Third, unimportant columns are
    left out and listed below the table. A name is broken only if it is wider than the terminal.

    Attributes:
        names: Headings of the columns that contain names.
        right: Headings of the columns that are aligned to the right.
        droppable: Headings of the columns that may be left out, the most important first.
        edge: Whether there are empty lines above and below the table.
    """

    headings: Sequence[str]
    names: Sequence[str]
    right: Sequence[str] = ()
    droppable: Sequence[str] = ()
    rows: list[tuple[Text, ...]] = field(default_factory=list)
    title: str = ""
    caption: str = ""
    edge: bool = True

    def add(self, *cells: str | Text) -> None:
        """Append a row with one entry for each column."""
        self.rows.append(tuple(Text(cell) if isinstance(cell, str) else cell for cell in cells))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:
            yield Text(self.title, style="italic", overflow="fold")
        shown = self._shown(options.max_width)
        shared = {heading: str(self._column(heading)[0]) for heading in self.headings if heading not in shown}
        if values := ", ".join(f"{heading} {value}" for heading, value in shared.items() if value):
            yield Text(f"all: {values}", overflow="fold")
        if self._width(shown) <= options.max_width:
            table = plain_table(shown, self.right, no_wrap=True, edge=self.edge)
            for row in zip(*map(self._column, shown), strict=True):
                table.add_row(*row)
            yield table
        else:
            yield from self._on_two_lines(shown, options.max_width)
        if self.caption:
            yield Text(self.caption, style="italic", overflow="fold")

    def lines_a_row(self, width: int) -> int:
        """Return the number of terminal lines that the longest row takes, if no name is wider than the terminal."""
        shown = self._shown(width)
        if self._width(shown) <= width:
            return 1
        names = [heading for heading in shown if heading in self.names]
        return 1 + max((len(_lines([row[heading] for heading in names], width)) for row in self._cells()), default=1)

    def _shown(self, width: int) -> list[str]:
        """Return the headings of the columns that are printed in the table, not once above the table."""
        if self._width(self.headings) <= width or len(self.rows) < 2:
            return list(self.headings)
        return [heading for heading in self.headings if len(set(map(str, self._column(heading)))) > 1]

    def _column(self, heading: str) -> list[Text]:
        place = self.headings.index(heading)
        return [row[place] for row in self.rows]

    def _size(self, heading: str) -> int:
        return max(*map(cell_len, heading.splitlines()), *(cell.cell_len for cell in self._column(heading)), 0)

    def _width(self, headings: Sequence[str]) -> int:
        return sum(self._size(heading) + 3 for heading in headings) + 1  # with the gaps of `box.SIMPLE_HEAD`

    def _on_two_lines(self, headings: Sequence[str], width: int) -> Iterator[Text]:
        names = [heading for heading in headings if heading in self.names]
        numbers = [heading for heading in headings if heading not in names]
        left_out: list[str] = []
        for heading in reversed(self.droppable):
            if sum(self._size(each) + len(_GAP) for each in numbers) > width and heading in numbers:
                numbers.remove(heading)
                left_out.append(heading)
        for row in ({heading: Text(heading, "bold") for heading in headings}, *self._cells()):
            yield from _lines([row[heading] for heading in names if row[heading]], width)
            if numbers:
                yield from _lines([Text(), *(self._padded(heading, row[heading]) for heading in numbers)], width)
        if left_out:
            yield Text(f"no room for {', '.join(left_out)}", style="italic", overflow="fold")

    def _padded(self, heading: str, cell: Text) -> Text:
        blank = Text(" " * (self._size(heading) - cell.cell_len))
        return blank + cell if heading in self.right else cell + blank

    def _cells(self) -> list[dict[str, Text]]:
        return [dict(zip(self.headings, row, strict=True)) for row in self.rows]


def _lines(parts: Sequence[Text], width: int) -> list[Text]:
    """Join texts into lines of at most `width` characters, which are broken between texts only."""
    lines: list[Text] = []
    for part in parts:
        if lines and lines[-1].cell_len + len(_GAP) + part.cell_len <= width:
            lines[-1] = lines[-1] + _GAP + part
        else:
            lines.append(part.copy())
    for line in lines:
        line.overflow = "fold"
    return lines


class PlainTable(NamedTuple):
    """A table whose entries are plain strings."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""


class Collector(Console):
    """A console that stores strings and tables in `found` instead of printing them."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.found: list[str | PlainTable] = []

    def print(self, *objects: Any, **options: Any) -> None:
        """Store strings and tables instead of printing them."""
        for each in objects:
            table = isinstance(each, Table | FittedTable)
            self.found.append(_plain_table(each) if table else _plain(each, options.get("markup", True)))

    def text(self, form: str) -> str:
        """Return the stored tables as Markdown (`md`) or `latex`, or the rows of all tables as `json` or `csv`.

        In the latter formats, a mean with its interval is three numbers.
        """
        tables = [each for each in self.found if isinstance(each, PlainTable)]
        rows = [[dict(zip(each.headings, row, strict=True)) for row in each.rows] for each in tables]
        if form in ("md", "latex"):
            note = "" if form == "md" else "% "
            parts = [
                (note + each.title, rows_text(row, form), "\n".join(note + line for line in each.caption.splitlines()))
                for each, row in zip(tables, rows, strict=True)
            ]
            return "\n".join(f"{part.rstrip()}\n" for each in parts for part in each if part.strip("% "))
        named: list[dict[str, Any]] = [{"table": each.title} if len(tables) > 1 else {} for each in tables]
        values = [
            name | {key: value for cell in row.items() for key, value in _values(*cell)}
            for name, part in zip(named, rows, strict=True)
            for row in part
        ]
        return rows_text(values, form)

    def html(self) -> str:
        """Return all stored strings and tables as HTML.

        A column with equal values in all rows is written once above the table, and a wide table can be scrolled.
        """
        parts = []
        for part in self.found:
            if isinstance(part, str):
                parts.append(f"<p>{_escaped(part)}</p>")
                continue
            columns = dict(zip(part.headings, zip(*part.rows, strict=True), strict=True)) if part.rows else {}
            same = {heading: cells[0] for heading, cells in columns.items() if len(cells) > 1 and len({*cells}) == 1}
            shown = [place for place, heading in enumerate(part.headings) if heading not in same]
            lines = [[f"<th>{_escaped(part.headings[place])}</th>" for place in shown]]
            lines += [[f"<td>{_escaped(row[place])}</td>" for place in shown] for row in part.rows]
            rows = "".join(f"<tr>{''.join(line)}</tr>" for line in lines)
            common = ", ".join(f"{heading} {value}" for heading, value in same.items() if value)
            above = f"<p><b>{_escaped(part.title)}</b>{f'<br>all: {_escaped(common)}' if common else ''}</p>"
            below = f"<p><small>{_escaped(part.caption)}</small></p>"
            parts.append(f'{above}<div style="overflow-x: auto"><table>{rows}</table></div>{below}')
        return "\n".join(parts)


def _plain(printed: Any, markup: bool = True) -> str:
    if isinstance(printed, str) and markup:
        printed = Text.from_markup(printed)
    return printed.plain if isinstance(printed, Text) else str(printed or "")


def _plain_table(table: Table | FittedTable) -> PlainTable:
    """Convert a table to plain texts, and fill a blank cell in the first column with the text of the cell above."""
    if isinstance(table, FittedTable):  # without markup: names may contain brackets
        rows = [[str(cell) for cell in row] for row in table.rows]
        return PlainTable(table.title, table.headings, rows, table.caption)
    title, caption = _plain(table.title), _plain(table.caption)
    headings = [_plain(each.header) or ("key", "value")[min(i, 1)] for i, each in enumerate(table.columns)]
    rows = [[_plain(cell) for cell in row] for row in zip(*(each.cells for each in table.columns), strict=True)]
    for above, row in itertools.pairwise(rows):
        row[0] = row[0] or above[0]
    return PlainTable(title, headings, rows, caption)


_NUMBER: Final = r"[+−-]?[\d.]+"
_INTERVAL: Final = re.compile(rf"({_NUMBER})(?: \[({_NUMBER}), ({_NUMBER})\]| \((?:no spread|one pair)\))?")
_BOUNDS: Final = " [95 %]"


def _values(heading: str, cell: str) -> Iterator[tuple[str, str | int | float | None]]:
    """Yield the names and values of one cell, which are three for a mean with its interval."""
    if not heading.endswith(_BOUNDS):
        yield heading, _value(cell)
        return
    name, match = heading.removesuffix(_BOUNDS), _INTERVAL.fullmatch(cell)
    mean, *ends = match.groups() if match else (cell, None, None)
    yield name, _value(mean)
    for end, value in zip(("low", "high"), ends, strict=True):
        yield f"{name} {end}", None if value is None else _value(value)


def _value(cell: str) -> str | int | float | None:
    for number in (int, float):
        with contextlib.suppress(ValueError):
            value = number(cell.replace("−", "-").replace(",", ""))
            return value if math.isfinite(value) else cell
    return cell or None


def _escaped(text: str) -> str:
    return html.escape(text).replace("\n", "<br>")
