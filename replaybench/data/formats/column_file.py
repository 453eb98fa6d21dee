"""Columns as a file for other programs: CSV or Parquet, by the suffix."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from replaybench.data.atomic import atomic_path, write_text
from replaybench.data.errors import UserError

COLUMN_SUFFIXES: Final = (".csv", ".parquet")


def check_columns_file(path: Path) -> None:
    """Refuse a file that could not be written, before anything is computed.

    Raises:
        UserError: it exists, has another suffix, or what Parquet needs is not installed.
    """
    if path.suffix.lower() not in COLUMN_SUFFIXES:
        raise UserError(f"{path} must end in .csv or .parquet")
    if path.exists():
        raise UserError(f"{path} exists already; remove it or choose another name")
    if path.suffix.lower() == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise UserError(f"{path} is Parquet, which needs the extra: pip install 'replaybench[parquet]'") from None


def write_columns(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write columns of equal length atomically."""
    if path.suffix.lower() == ".parquet":
        import pyarrow
        import pyarrow.parquet

        with atomic_path(path) as temporary:
            pyarrow.parquet.write_table(pyarrow.table(dict(columns)), temporary)
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    write_text(path, text.getvalue())
