"""Logs as MATLAB files: which variables of a workspace are the log, and what its columns are called.

A vector (1×T or T×1) is a column. A matrix with T rows or T columns is one column for each of the others, named as
MATLAB indexes it: `x(:,2)` or `x(2,:)`. The fields of a struct are `name.field`, or only `field` where the file has
no other struct and no variable of that name. T is the length that holds the most numbers of vectors, so that a
workspace's parameters may stay in the file; they are listed as unusable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from replaybench.data.errors import UserError
from replaybench.data.logs.matlab_v5 import MAT5_MARKS, read_mat5
from replaybench.data.logs.matlab_v73 import HDF5_MARK, read_mat73
from replaybench.data.logs.matlab_variables import Value
from replaybench.data.logs.table import Budget, Floats, Table, refuse_doubles

WIDEST: Final = 100
"""Columns that one matrix may give; a wider one is an image or a table of something else."""


def read_mat(path: Path) -> Table:
    """Read a MATLAB file of version 5, 6, 7 or 7.3; what cannot be a column is unusable, with the reason.

    Raises:
        UserError: it is no such file, or holds too much.
    """
    with path.open("rb") as file:
        start = file.read(520)
    budget = Budget(path)
    if HDF5_MARK in (start[:8], start[512:520]):
        variables = read_mat73(path, budget)
    elif start[124:128] in MAT5_MARKS:
        variables = read_mat5(path, budget)
    else:
        raise UserError(
            f"{path} is not a MATLAB file of version 5, 7 or 7.3, or its start is damaged; "
            "in MATLAB, write one with save('log.mat', '-v7')"
        )
    structs = [value for value in variables.values() if isinstance(value, dict)]
    bare = len(structs) == 1 and not structs[0].keys() & variables.keys()
    return _table(path, [named for name, value in variables.items() for named in _flat(name, value, bare)])


def _flat(name: str, value: Value, bare: bool = False) -> Iterator[tuple[str, Floats | str]]:
    """Yield what is in a variable, the fields of structs under their dotted names."""
    if not isinstance(value, dict):
        yield name, value
        return
    for field, inner in value.items():
        yield from _flat(field if bare else f"{name}.{field}", inner)


def _table(path: Path, values: list[tuple[str, Floats | str]]) -> Table:
    refuse_doubles(path, [name for name, _ in values])
    rows = _rows([value for _, value in values if not isinstance(value, str)])
    named: list[tuple[str, Floats | str]] = []
    for name, value in values:
        named += [(name, value)] if isinstance(value, str) else _columns(name, value, rows)
    refuse_doubles(path, [name for name, _ in named])
    return Table.of(named)


def _rows(values: list[Floats]) -> int:
    """Return T; matrices decide only where there are no vectors."""
    vectors, matrices = Counter[int](), Counter[int]()
    for value in values:
        (vectors if 1 in value.shape else matrices)[max(value.shape)] += value.size
    del vectors[1]
    counted = vectors or matrices
    return max(counted, key=lambda length: (counted[length], length)) if counted else 1


def _columns(name: str, value: Floats, rows: int) -> list[tuple[str, Floats | str]]:
    height, width = value.shape
    if height * width == rows:
        return [(name, value.reshape(-1))]
    if rows not in value.shape:
        return [(name, f"it is {height}×{width}, but the log has {rows} row{'' if rows == 1 else 's'}")]
    if (width if height == rows else height) > WIDEST:
        return [(name, f"it is a matrix of {height}×{width}; save its columns as vectors")]
    if height == rows:
        return [(f"{name}(:,{i + 1})", value[:, i].copy()) for i in range(width)]
    return [(f"{name}({i + 1},:)", value[i].copy()) for i in range(height)]
