"""Tasks of a sweep, and how a cell is run as one.

`workers.py` runs tasks in processes of this machine, `cluster.py` on a Dask cluster. A local worker writes the files of
its cell; a worker on a cluster returns them, and the coordinator writes them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from replaybench.data.atomic import atomic_path
from replaybench.data.user_code.user_file import faults_told, names_from
from replaybench.experiments.progress.round import Report, Round
from replaybench.experiments.training.study import Buffers, Cell

Watch = Callable[[str, Round], None]
"""Called with a cell's id after each of its rounds."""

Finish = Callable[[str, Any], None]
"""Called in the coordinator with a task's key and its result."""


class Job(NamedTuple):
    """A function to call in a worker with these arguments and a `Report`.

    Attributes:
        key: its name in reports.
        function: can be pickled, like its arguments and its result.
        arguments: all but the `Report`.
        stops: whether it supports a request to stop; other jobs are killed when a sweep is interrupted.
    """

    key: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    stops: bool = False


def run_cell_task(
    cell: Cell, folder: Path | None, buffers: Buffers, checkpoint_seconds: float, report: Report
) -> dict[str, bytes] | None:
    """Run a cell in a worker.

    Returns:
        The contents by name of the files that were not written into `folder`; None if the cell stopped early.

    Raises:
        UserError: the cell cannot run, or a user's class raised an error.
    """
    from replaybench.experiments.training.cell import run_cell

    with faults_told(cell.label):
        if folder is not None:
            return {} if run_cell(cell, folder, buffers, checkpoint_seconds, report) else None
        with tempfile.TemporaryDirectory() as scratch:
            run_cell(cell, Path(scratch), buffers, checkpoint_seconds=float("inf"))
            return {path.name: path.read_bytes() for path in Path(scratch).iterdir()}


def in_folder(folder: str, task: Callable[..., Any], *arguments: Any) -> Any:
    """Run a task that finds users' files from `folder`."""
    with names_from(folder):
        return task(*arguments)


def store_files(folder: Path, files: dict[str, bytes]) -> None:
    """Write the files of a cell from a cluster; `scores.h5` last, because it marks a complete cell."""
    for name in sorted(files, key=lambda name: name == "scores.h5"):
        with atomic_path(folder / name) as temporary:
            temporary.write_bytes(files[name])
