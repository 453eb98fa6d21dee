"""Readers of logs in NumPy archives and Parquet files."""

import contextlib
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from replaybench.data.logs import table
from replaybench.data.logs.table import Budget, Table, aligned, bare_unit, printable, refuse_doubles
from replaybench.runtime.arrays import Floats
from replaybench.runtime.errors import UserError, need

_NUMBERS: Final = ("integer", "floating", "boolean", "decimal", "timestamp", "duration")
"""Types of Parquet columns that become numbers."""


def read_npz(path: Path) -> Table:
    """Read a NumPy archive (`.npz`) as a table.

    Entries other than 1-D arrays of numbers, and arrays of another length than the log, are listed as unusable. The
    length of the log is found as in MATLAB files.

    Raises:
        UserError: If the archive unpacks to too many bytes, or two columns have the same name.
    """
    budget = Budget(path)
    values: list[tuple[str, Floats | str]] = []
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        size = sum(member.file_size for member in members)
        if size > table.MAX_BYTES:
            raise UserError(f"{path} unpacks to {size / 2**30:.3g} GiB; split it into logs of at most 1 GiB")
        refuse_doubles(path, [member.filename for member in members])
        for member in members:
            with archive.open(member) as file:
                values.append((member.filename.removesuffix(".npy"), _read_npy(file, member.file_size, budget)))
    return aligned(path, [(name, value if isinstance(value, str) else value[:, None]) for name, value in values])


def _read_npy(file: IO[bytes], size: int, budget: Budget) -> Floats | str:
    """Read one array of `size` bytes in an archive, or return the reason why the array cannot be a column."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        return f"it is stored in .npy version {version[0]}.{version[1]}, which only structured arrays need"
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject:
        return "it holds pickled Python objects, which are never loaded; save it as plain numbers"
    if dtype.kind not in "biuf" or len(shape) != 1:
        return f"it is an array {list(shape)} of {dtype}; save one 1-D array of numbers per column"
    if shape[0] * dtype.itemsize != size - file.tell():
        return "it is damaged: it does not hold as many values as it declares"
    budget.take(8 * shape[0])
    return np.frombuffer(file.read(), dtype).astype(np.float64)


def read_parquet(path: Path) -> Table:
    """Read a Parquet file as a table.

    Null becomes NaN. Dates become seconds since the first date of their column, and durations become seconds.

    Raises:
        UserError: If pyarrow is missing, or the file is damaged, too large or has two columns of the same name.
    """
    need("pyarrow", f"{path} is Parquet, which needs the extra: pip install 'replaybench[parquet]'")
    import pyarrow
    import pyarrow.compute
    import pyarrow.parquet

    budget = Budget(path)
    values: list[tuple[str, Floats | str]] = []
    dates = []
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
            rows = max(file.metadata.num_rows, sum(group.num_rows for group in groups))
            # Metadata of single columns are not read: pyarrow aborts the process if they are damaged.
            budget.take(sum(max(0, group.total_byte_size) for group in groups))
            refuse_doubles(path, schema.names)
            for field in schema:
                budget.name()
                name = printable(field.name)
                if not any(getattr(pyarrow.types, f"is_{what}")(field.type) for what in _NUMBERS):
                    values.append((name, f"it holds {field.type}, not numbers"))
                    continue
                budget.take(8 * rows)
                if pyarrow.types.is_timestamp(field.type):
                    dates.append(name)
                content = file.read([field.name], use_threads=False).column(field.name)
                values.append((name, _floats(pyarrow, content)))
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path} cannot be read as Parquet: {str(error).splitlines()[0]}") from error
    return replace(Table.of(values, dates), units=_units(schema))


def _units(schema: Any) -> dict[str, str]:
    """Return the units of columns that the metadata of a Parquet file state for the columns or, as JSON, for all."""
    about = schema.metadata or {}
    units = dict[str, str]()
    for key in (b"PANDAS_ATTRS", b"units", b"unit"):
        with contextlib.suppress(ValueError, AttributeError, RecursionError):
            found = json.loads(about.get(key, b"{}"))
            found = found.get("units", found.get("unit")) if key == b"PANDAS_ATTRS" else found
            units |= {str(name): str(unit) for name, unit in found.items()}
    for field in schema:
        for key, unit in (field.metadata or {}).items():
            if key.lower() in (b"unit", b"units"):
                units[field.name] = unit.decode(errors="replace")
    return {printable(name): bare_unit(printable(unit)) for name, unit in units.items() if unit.strip()}


def _floats(pyarrow: Any, column: Any) -> Floats:
    kind = column.type
    if pyarrow.types.is_timestamp(kind) or pyarrow.types.is_duration(kind):
        ticks = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[kind.unit]
        counts = column.cast(pyarrow.int64()).combine_chunks()
        known = counts.drop_null()
        start = known[0].as_py() if pyarrow.types.is_timestamp(kind) and len(known) else 0
        # Subtracted as integers: nanoseconds since 1970 are beyond the precision of float64.
        column = pyarrow.compute.subtract(counts, start)
    else:
        ticks, column = 1.0, column.combine_chunks()
    numbers = column.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.array(numbers, np.float64) / ticks
