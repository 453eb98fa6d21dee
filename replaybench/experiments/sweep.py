"""The sweep of a study, which computes all its cells and reference controllers, and writes results and figures.

Cells are computed by worker processes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from replaybench.baselines.grid_choice import Rule
from replaybench.baselines.references import Reference, kept_reference, reference
from replaybench.baselines.rivals import Rivals
from replaybench.data.documents import read_json
from replaybench.data.policy_file import read_policy, write_policy
from replaybench.data.record import read_record, write_record
from replaybench.data.run_folder import RunFolder, refuse_foreign
from replaybench.device.gpu import check_gpu
from replaybench.experiments.cell import run_cell
from replaybench.experiments.device_cell import DEVICE_CELLS
from replaybench.experiments.display import Display, ProgressForm
from replaybench.experiments.interruption import Interrupted
from replaybench.experiments.plan import Plan, check_room, for_each, plan, plan_warnings
from replaybench.experiments.progress import Report
from replaybench.experiments.snapshots import Solved, solved_surfaces, write_solved
from replaybench.experiments.study import Buffers, Cell, Study, reference_cells
from replaybench.experiments.study_record import check_written, replaced, resolved, write_provenance, write_toml
from replaybench.experiments.workers import Job, check_cluster, run_locally, run_on_cluster
from replaybench.runtime.atomic import Held, atomic_path, check_place, holding, write_text
from replaybench.runtime.errors import ReplaybenchWarning, UserError
from replaybench.runtime.user_file import names_from, one_line_errors

if TYPE_CHECKING:
    import xarray as xr

Conditions = tuple[str, float, float]
"""A plant, a control rate and a noise. Scores under these conditions have the same reference controllers."""


class Outcome(NamedTuple):
    """The outcome of a sweep.

    Attributes:
        data: Results of the finished cells.
        figures: Paths of the figures.
        status: Exit status, which is 0 without interruption, 130 after Ctrl-C, or 143 after SIGTERM.
    """

    data: xr.Dataset
    figures: list[Path]
    status: int


class Figures(NamedTuple):
    """A function that draws figures into a run folder, and one that yields the paths of all figures of some plants."""

    draw: Callable[[xr.Dataset, RunFolder, Sequence[Cell]], list[Path]]
    paths: Callable[[Path, Sequence[str]], Iterator[Path]]


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_sweep(
    study: Study,
    output: Path,
    workers: int,
    cluster: str | None,
    *,
    checkpoint_seconds: float,
    console: Console,
    figures: Figures | None = None,
    progress: ProgressForm | None = None,
    tensorboard: bool = False,
    rivals: bool = True,
) -> Outcome:
    """Run a study into a folder, or continue an interrupted run, in worker processes.

    Args:
        cluster: Address of a Dask scheduler, whose workers are used instead of local workers; or None.
        checkpoint_seconds: Interval between checkpoints of each running cell in seconds.
        figures: Functions for figures. By default, no figures are drawn.
        rivals: Whether missing scores of rivals, such as a tuned PID controller, are computed.
    """
    folder = RunFolder(output.absolute())  # code of the user may change the working folder
    planned = plan(study, folder, workers)
    if study.device != "cpu" and cluster is None and planned.open:
        check_gpu(study.device)
    if short := check_room(planned, folder, local=cluster is None):
        warnings.warn(short, ReplaybenchWarning, stacklevel=3)
    if cluster is not None:
        check_cluster(cluster)
    with names_from(study.folder), folder.locked() as held:
        folder.remove_partial_files()
        todo = planned.refreshed(folder)  # another sweep may have held the lock
        _record_study(study, todo.cells, folder, console, figures)
        conditions = reference_cells(todo.cells)
        jobs = _jobs(study, conditions, todo.open, held if cluster is None else None, checkpoint_seconds, rivals)
        computed = [cell for cell in todo.cells if cell.id not in todo.shared]
        board = folder.path / "tensorboard" if tensorboard else None
        with Display(folder, study.name, computed, todo.open, workers, console, progress, board) as display:
            store = _Store(folder, todo, conditions, display)
            count = workers if study.device == "cpu" else min(workers, DEVICE_CELLS)
            status, fault = _compute(jobs, count, cluster, display, store)
            display.end(status)
        done = sum(folder.finished(cell.id) for cell in todo.cells)
        if fault is not None:
            with contextlib.suppress(Exception):  # e.g. a full disk; the fault is reported
                _write_results(folder, study, conditions, todo.cells, store.references, complete=False)
                if done:
                    note = f"{done} of {len(todo.cells)} cells are finished; their scores are in {folder.results}"
                    console.print(note, markup=False, highlight=False, soft_wrap=True)
            raise fault
        data = _write_results(folder, study, conditions, todo.cells, store.references, complete=not status)
        try:
            drawn = figures.draw(data, folder, todo.cells) if figures and done else []
        except KeyboardInterrupt as stop:
            note = f"stopped while drawing; scores are in {folder.results}, run the same command again to draw"
            raise type(stop)(note) from stop
    return Outcome(data, [output / path.relative_to(folder.path) for path in drawn], status)


def _record_study(
    study: Study, cells: Sequence[Cell], folder: RunFolder, console: Console, figures: Figures | None
) -> None:
    """Write the study and the list of its cells, and remove the results of another study that was run in the folder."""
    plants = list(dict.fromkeys(cell.plant for cell in cells))
    _check_replaceable(folder, figures.paths(folder.figures, plants) if figures else ())
    if notice := replaced(folder, study, cells):
        console.print(notice, markup=False, highlight=False)
        _remove_results(folder, figures)
    for warning in plan_warnings(cells):
        warnings.warn(warning, ReplaybenchWarning, stacklevel=4)  # at the caller of `replaybench.sweep`
    write_text(folder.study, write_toml(resolved(study, cells, folder.path)))
    write_provenance(folder, study.name, cells, complete=False)


def _check_replaceable(folder: RunFolder, figures: Iterable[Path]) -> None:
    """Raise `UserError` if a file that a sweep replaces is damaged, edited or another program's."""
    from replaybench.experiments.results_file import read_results

    readers: dict[Path, Callable[[Path], object]] = {
        folder.study: check_written,
        folder.results: read_results,
        folder.provenance: read_json,
        **dict.fromkeys(figures, refuse_foreign),
    }
    for path, read in readers.items():
        check_place(path)
        try:
            if path.exists():
                read(path)
        except UserError as error:
            raise UserError(
                f"{error}; the sweep would replace this file: move it, or choose another --output"
            ) from None


def _remove_results(folder: RunFolder, figures: Figures | None) -> None:
    """Remove the results of another study and their figures, but no figure that this package did not write."""
    from replaybench.experiments.results_file import read_results

    if figures and folder.results.is_file():
        plants = [str(plant) for plant in read_results(folder.results)["plant"].values]
        for place in (folder.figures, folder.figures / "paper"):
            for path in figures.paths(place, plants):
                with contextlib.suppress(UserError):
                    check_place(path)
                    refuse_foreign(path)
                    path.unlink(missing_ok=True)
    folder.results.unlink(missing_ok=True)


def _compute(
    jobs: list[Job], workers: int, cluster: str | None, display: Display, store: _Store
) -> tuple[int, Exception | None]:
    """Run the jobs, and return the exit status and the error that stopped the jobs, or None without error.

    The error is not raised, so that results of finished cells can be written.
    """
    try:
        store.share_finished()
        if cluster is None:
            run_locally(workers, jobs, display.advance, store)
        else:
            run_on_cluster(cluster, jobs, display.advance, store)
    except Interrupted as interruption:
        return interruption.status, None
    except Exception as error:
        return 2 if isinstance(error, UserError) else 1, error
    return 0, None


class _Store:
    """A callback that stores the result of each job: scores of reference controllers, or the files of a cell."""

    def __init__(self, folder: RunFolder, todo: Plan, conditions: Mapping[Conditions, Cell], display: Display) -> None:
        self._folder, self._display, self._open = folder, display, {cell.id for cell in todo.open}
        self._conditions = {f"{at}": cell for at, cell in conditions.items()}
        # By id of a computed cell: pairs of it and a cell with the same runs.
        self._copies: dict[str, list[tuple[Cell, Cell]]] = {}
        for cell in todo.cells:
            if source := todo.shared.get(cell.id):
                self._copies.setdefault(source.id, []).append((source, cell))
        self.references: dict[str, Reference] = {}

    def __call__(self, key: str, result: Any) -> None:
        if key not in self._conditions:  # a cell, whose result is {} if a worker has written its files
            _store_files(self._folder.cell(key), result)
            self._display.complete(key)
            self._share(key)
            return
        cell = self._conditions[key]
        self.references[key], solved = result
        self._display.reference(cell, self.references[key])
        if solved is not None:
            write_solved(self._folder, cell.fingerprint, cell.frequency, solved)

    def share_finished(self) -> None:
        """Copy the results of finished cells of an earlier sweep to unfinished cells with equal runs."""
        for key in self._copies.keys() - self._open:
            self._share(key)

    def _share(self, key: str) -> None:
        for source, cell in self._copies.get(key, ()):
            share(source, cell, self._folder)
            self._display.complete(cell.id)


def _reference_task(
    cell: Cell, rule: Rule | None, shown: bool, rivals: Rivals | None, report: Report
) -> tuple[Reference, Solved | None]:
    plant = cell.make_plant()
    scores = reference(plant, cell.frequency, cell.noise, rule, rivals)
    return scores, solved_surfaces(plant, cell.frequency, rule) if shown else None


def share(source: Cell, cell: Cell, folder: RunFolder) -> None:
    """Copy results of a finished cell to the folder of another cell with equal runs.

    Replay buffers are not copied.
    """
    here, there = folder.cell(source.id), folder.cell(cell.id)
    own: dict[str, Any] = {"id": cell.id, "cell": dataclasses.asdict(cell), "shared_from": source.id}
    if (here / "policy.safetensors").is_file():
        facts, weights = read_policy(here / "policy.safetensors")
        write_policy(there / "policy.safetensors", weights, facts | own)
    for kind in ("snapshots", "scores"):  # scores last: they mark a complete cell
        if (here / f"{kind}.h5").is_file():
            header, arrays = read_record(here / f"{kind}.h5", kind)
            write_record(there / f"{kind}.h5", kind, dict(header.facts) | own, arrays)
    (there / "checkpoint.h5").unlink(missing_ok=True)


def _run_cell_task(
    cell: Cell, folder: Path | None, buffers: Buffers, checkpoint_seconds: float, report: Report
) -> dict[str, bytes] | None:
    """Run a cell in a worker process, and return its files by name, or None if the run was stopped.

    If `folder` is given, the files are written there, and the dictionary of files is empty.
    """
    with one_line_errors(cell.label):
        if folder is not None:
            return {} if run_cell(cell, folder, buffers, checkpoint_seconds, report) else None
        with tempfile.TemporaryDirectory() as scratch:
            run_cell(cell, Path(scratch), buffers, checkpoint_seconds=float("inf"))
            return {path.name: path.read_bytes() for path in Path(scratch).iterdir()}


def _in_folder(folder: str, held: Held | None, task: Callable[..., Any], *arguments: Any) -> Any:
    with names_from(folder), holding(held):
        return task(*arguments)


def _store_files(folder: Path, files: dict[str, bytes]) -> None:
    for name in sorted(files, key=lambda name: name == "scores.h5"):  # last, because it marks a complete cell
        with atomic_path(folder / name) as temporary:
            temporary.write_bytes(files[name])


def _jobs(
    study: Study,
    conditions: dict[Conditions, Cell],
    cells: Sequence[Cell],
    held: Held | None,
    seconds: float,
    rivals: bool,
) -> list[Job]:
    """Return the jobs that compute reference scores and unfinished cells, in the order in which the jobs start.

    Workers write the files of cells into the run folder `held`. If `held` is None, workers return the files.
    """
    home = None if held is None else RunFolder(held.folder)
    # Dynamic programming solves without noise, so reports show one solution per plant and rate.
    shown = {(cell.plant, cell.frequency): at for at, cell in reversed(conditions.items())}.values()
    tasks = _reference_task, _run_cell_task
    compute_reference, train = (partial(_in_folder, study.folder, held, task) for task in tasks)
    references = [
        Job(f"{at}", compute_reference, (cell, study.reference, at in shown, study.rivals() if rivals else None))
        for at, cell in conditions.items()
    ]
    sizes = for_each(cells, attrgetter("total_steps"))
    longest_first = [cell for _, cell in sorted(zip(sizes, cells, strict=True), key=lambda sized: -sized[0])]
    training = [
        Job(cell.id, train, (cell, home and home.cell(cell.id), study.buffers, seconds), stops=True)
        for cell in longest_first
    ]
    # The first cell comes second: its learner is compiled while another worker compiles dynamic programming.
    return [*references[:1], *training[:1], *references[1:], *training[1:]]


def _write_results(
    folder: RunFolder,
    study: Study,
    conditions: Mapping[Conditions, Cell],
    cells: Sequence[Cell],
    references: Mapping[str, Reference],
    *,
    complete: bool,
) -> xr.Dataset:
    from replaybench.experiments.dataset import assemble
    from replaybench.experiments.results_file import write_results

    known = {}
    for at, cell in conditions.items():
        stored = references.get(f"{at}")  # if the sweep was stopped, an earlier one may have computed it
        stored = stored or kept_reference(
            cell.make_plant(), cell.frequency, cell.noise, study.reference, study.rivals()
        )
        if stored is not None:
            known[at] = stored
    data = assemble(cells, known, {cell.id: folder.cell(cell.id) for cell in cells})
    data = write_results(folder.results, data)
    write_provenance(folder, study.name, cells, complete=complete)
    return data
