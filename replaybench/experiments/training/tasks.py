"""What is to be done, whoever does it: tasks, and how a cell is run as one.

`workers.py` runs tasks in processes of this machine, `cluster.py` on those of a Dask cluster. A local worker writes
its cell's files itself; a worker on a cluster sends them back, and the coordinator writes them: one function does both.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from replaybench.data.atomic import atomic_path
from replaybench.data.user_code.user_file import faults_told, names_from
from replaybench.experiments.progress.round import Report, Round
from replaybench.experiments.training.study import Buffers, Cell

Watch = Callable[[str, Round], None]
"""Called with a cell's id and what it tells of a round."""

Finish = Callable[[str, Any], None]
"""Called with a task's key and its result, in the coordinator, as soon as it is there."""


class Job(NamedTuple):
    """A function to call in a worker with these arguments and a `Report`.

    Attributes:
        key: its name in reports.
        function: can be pickled, as its arguments and what it returns.
        arguments: all but the `Report`.
        stops: whether it heeds the report's answer; what does not is ended at once when a sweep is interrupted.
    """

    key: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    stops: bool = False


class Run(Protocol):
    """Runs tasks to their end."""

    def __call__(self, tasks: Sequence[Job], watch: Watch, finish: Finish, /) -> None:
        """Raise `Interrupted` on Ctrl-C or SIGTERM, after local cells have written their checkpoints."""


def run_cell_task(
    cell: Cell, folder: Path | None, buffers: Buffers, checkpoint_seconds: float, report: Report
) -> dict[str, bytes] | None:
    """Run a cell in a worker.

    Returns:
        The content of its files by name, of those that it did not write into `folder` itself; None where it stopped
        before its end.

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
    """Do a task where the study is that names its files."""
    with names_from(folder):
        return task(*arguments)


def store_files(folder: Path, files: dict[str, bytes]) -> None:
    """Write a cell's files as a worker on a cluster sent them; `scores.h5` last, because it marks completion."""
    for name in sorted(files, key=lambda name: name == "scores.h5"):
        with atomic_path(folder / name) as temporary:
            temporary.write_bytes(files[name])
