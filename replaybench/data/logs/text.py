"""Logs as text: a header row of names, then numbers, with `,`, `;` or tab between them."""

from __future__ import annotations

import csv
import math
from array import array
from pathlib import Path

import numpy as np

from replaybench.data.errors import UserError
from replaybench.data.logs.table import Table, refuse_doubles


def read_text(path: Path) -> Table:
    """Read a text log; a cell that is no number makes its column unusable.

    Raises:
        UserError: there is no header row, or a row has more or fewer cells than it; says in which line.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = next((line for line in file if line.strip()), "")
        file.seek(0)
        rows = csv.reader(file, delimiter=max(",;\t", key=header.count), skipinitialspace=True)
        names = [name.strip() for name in next((row for row in rows if any(row)), [])]
        if names:
            names[0] = names[0].lstrip("# ")  # np.savetxt's header
        first_line = rows.line_num
        if all(_is_number(name) for name in names if name):
            found = f"line {first_line} holds numbers" if any(names) else "the file is empty"
            raise UserError(f"{path} has no header row ({found}); write the column names into the first line")
        refuse_doubles(path, names)
        columns, lines = [array("d") for _ in names], array("q")
        unusable: dict[str, str] = {}
        for row in rows:
            if not row:
                continue
            if len(row) != len(names):
                raise UserError(
                    f"{path}, line {rows.line_num} has {len(row)} values, but the header in line {first_line} "
                    f"has {len(names)} names"
                )
            lines.append(rows.line_num)
            for name, column, cell in zip(names, columns, row, strict=True):
                try:
                    column.append(float(cell))
                except ValueError:
                    column.append(math.nan)
                    if cell.strip():
                        mend = "; write a decimal point" if _is_number(cell.replace(",", ".", 1)) else ""
                        unusable.setdefault(name, f"line {rows.line_num} holds {cell!r}, which is not a number{mend}")
    named = {name: np.array(column) for name, column in zip(names, columns, strict=True) if name not in unusable}
    named.pop("", None)
    return Table(named, unusable, np.array(lines))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
