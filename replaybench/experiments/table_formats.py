"""Printed tables as JSON, CSV, Markdown and HTML."""

from __future__ import annotations

import contextlib
import html
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from replaybench.data.documents import rows_text
from replaybench.experiments.text_table import FittedTable


class PlainTable(NamedTuple):
    """A table as plain text."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""


class Collector(Console):
    """A console that stores texts and tables in `found` instead of printing them."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.found: list[str | PlainTable] = []

    def print(self, *objects: Any, **options: Any) -> None:
        """Store objects."""
        for each in objects:
            table = isinstance(each, Table | FittedTable)
            self.found.append(_plain_table(each) if table else _plain(each, options.get("markup", True)))

    def text(self, form: str) -> str:
        """Return the tables as `md`; or as one table as `json` or `csv`, with a column `table` if they are several."""
        tables = [each for each in self.found if isinstance(each, PlainTable)]
        rows = [[dict(zip(each.headings, row, strict=True)) for row in each.rows] for each in tables]
        if form == "md":
            parts = [(each.title, rows_text(row, form), each.caption) for each, row in zip(tables, rows, strict=True)]
            return "\n".join(f"{part.rstrip()}\n" for each in parts for part in each if part)
        named = [{"table": each.title} if len(tables) > 1 else {} for each in tables]
        values = ({**name, **{key: _value(cell) for key, cell in row.items()}} for name, part in
                  zip(named, rows, strict=True) for row in part)  # fmt: skip
        return rows_text(list(values), form)

    def html(self) -> str:
        """Return everything as HTML."""
        return "\n".join(_html(each) for each in self.found)


def _plain(printed: Any, markup: bool = True) -> str:
    if isinstance(printed, str) and markup:
        printed = Text.from_markup(printed)
    return printed.plain if isinstance(printed, Text) else str(printed or "")


def _plain_table(table: Table | FittedTable) -> PlainTable:
    """Return a table as plain text; blank first cells get the text above them."""
    title, caption = _plain(table.title), _plain(table.caption)
    if isinstance(table, FittedTable):
        return PlainTable(title, table.headings, [[str(cell) for cell in row] for row in table.rows], caption)
    headings = [_plain(each.header) or ("key", "value")[min(i, 1)] for i, each in enumerate(table.columns)]
    rows = [[_plain(cell) for cell in row] for row in zip(*(each.cells for each in table.columns), strict=True)]
    for above, row in itertools.pairwise(rows):
        row[0] = row[0] or above[0]
    return PlainTable(title, headings, rows, caption)


def _value(cell: str) -> str | int | float:
    """Return the number that a cell shows, else its text."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            value = kind(cell.replace("−", "-"))
            return value if math.isfinite(value) else cell
    return cell


def _html(part: str | PlainTable) -> str:
    if isinstance(part, str):
        return f"<p>{_escaped(part)}</p>"
    lines = [[f"<th>{_escaped(heading)}</th>" for heading in part.headings]]
    lines += [[f"<td>{_escaped(cell)}</td>" for cell in row] for row in part.rows]
    rows = "".join(f"<tr>{''.join(line)}</tr>" for line in lines)
    return f"<p><b>{_escaped(part.title)}</b></p><table>{rows}</table><p><small>{_escaped(part.caption)}</small></p>"


def _escaped(text: str) -> str:
    return html.escape(text).replace("\n", "<br>")
