"""A table of cells that fits the terminal it is printed on: names stay whole, and what gives way does so in order.

First all columns stand side by side. Where they do not fit, columns in which all rows agree are said once above the
table; if that is not enough, the names get a line of their own above the numbers of each row; and if even the numbers
are too wide, columns are left out, the last of `droppable` first, and named below. Only a name that is wider than the
terminal by itself goes on in the next line. Nothing is ever replaced by an ellipsis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

_GAP = "  "


@dataclass(frozen=True)
class FittedTable:
    """Rows of texts under headings.

    Attributes:
        headings: of the columns.
        names: those of them that hold names.
        right: those that are set against the right edge.
        droppable: those that may be left out where there is no room, the least needed last.
        rows: a text for each heading.
        title: above it, empty for none.
        caption: below it, empty for none.
    """

    headings: Sequence[str]
    names: Sequence[str]
    right: Sequence[str] = ()
    droppable: Sequence[str] = ()
    rows: list[tuple[Text, ...]] = field(default_factory=list)
    title: str = ""
    caption: str = ""

    def add(self, *cells: str | Text) -> None:
        """Append a row."""
        self.rows.append(tuple(Text(cell) if isinstance(cell, str) else cell for cell in cells))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:
            yield Text(self.title, style="italic", overflow="fold")
        shown = self._shown(options.max_width)
        shared = {heading: str(self._column(heading)[0]) for heading in self.headings if heading not in shown}
        if said := ", ".join(f"{heading} {value}" for heading, value in shared.items() if value):
            yield Text(f"all: {said}", overflow="fold")
        if self._width(shown) <= options.max_width:
            yield self._side_by_side(shown)
        else:
            yield from self._on_two_lines(shown, options.max_width)
        if self.caption:
            yield Text(self.caption, style="italic", overflow="fold")

    def lines_a_row(self, width: int) -> int:
        """Return the lines that the longest row takes in a terminal of this width, if no name is wider than that."""
        shown = self._shown(width)
        if self._width(shown) <= width:
            return 1
        names = [heading for heading in shown if heading in self.names]
        named = ([row[heading] for heading in names] for row in self._cells())
        return 1 + max((len(list(_lines(parts, width))) for parts in named), default=1)

    def _shown(self, width: int) -> list[str]:
        """Return the headings of the columns that are not said above the table."""
        if self._width(self.headings) <= width or len(self.rows) < 2:
            return list(self.headings)
        return [heading for heading in self.headings if len(set(map(str, self._column(heading)))) > 1]

    def _column(self, heading: str) -> list[Text]:
        place = self.headings.index(heading)
        return [row[place] for row in self.rows]

    def _size(self, heading: str) -> int:
        return max(cell_len(heading), *(cell.cell_len for cell in self._column(heading)), 0)

    def _width(self, headings: Sequence[str]) -> int:
        """Return the width of these columns side by side, with what `box.SIMPLE_HEAD` puts between and around them."""
        return sum(self._size(heading) + 3 for heading in headings) + 1

    def _side_by_side(self, headings: Sequence[str]) -> Table:
        table = Table(box=box.SIMPLE_HEAD)
        for heading in headings:
            table.add_column(heading, justify="right" if heading in self.right else "left", no_wrap=True)
        for row in zip(*map(self._column, headings), strict=True):
            table.add_row(*row)
        return table

    def _on_two_lines(self, headings: Sequence[str], width: int) -> RenderResult:
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

    def _cells(self) -> Iterator[dict[str, Text]]:
        """Yield the texts of each row by heading."""
        return (dict(zip(self.headings, row, strict=True)) for row in self.rows)

    def _padded(self, heading: str, cell: Text) -> Text:
        blank = Text(" " * (self._size(heading) - cell.cell_len))
        return blank + cell if heading in self.right else cell + blank


def _lines(parts: Sequence[Text], width: int) -> Iterator[Text]:
    """Join texts, going on in a new line between two of them."""
    line: list[Text] = []
    for part in parts:
        if line and sum(each.cell_len + len(_GAP) for each in line) + part.cell_len > width:
            yield _joined(line)
            line = []
        line.append(part)
    if line:
        yield _joined(line)


def _joined(parts: Sequence[Text]) -> Text:
    line = Text(_GAP).join(parts)
    line.overflow = "fold"
    return line
