"""The main job: run the references and cells of a study, write results and figures."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from replaybench.baselines.grid_choice import Rule
from replaybench.baselines.references import Reference, kept_reference, reference
from replaybench.controllers.device import check_device
from replaybench.data.atomic import write_text
from replaybench.data.errors import UserError
from replaybench.data.formats.run_folder import RunFolder
from replaybench.experiments.interruption import Interrupted
from replaybench.experiments.plan import check_room, for_each, plan
from replaybench.experiments.plan_warnings import plan_warnings
from replaybench.experiments.progress.display import Display
from replaybench.experiments.progress.listeners import ProgressForm
from replaybench.experiments.progress.round import Report
from replaybench.experiments.provenance import write_provenance
from replaybench.experiments.snapshots.solved import Solved, solved_surfaces, write_solved
from replaybench.experiments.study_changes import replaced
from replaybench.experiments.study_text import resolved, write_toml
from replaybench.experiments.training.cluster import check_cluster, run_on_cluster
from replaybench.experiments.training.shared_cells import share
from replaybench.experiments.training.study import Cell, Study
from replaybench.experiments.training.tasks import Job, Run, run_cell_task, store_files
from replaybench.experiments.training.workers import leave_if_imported, run_locally

if TYPE_CHECKING:
    import xarray as xr


def reference_task(cell: Cell, rule: Rule | None, shown: bool, report: Report) -> tuple[Reference, Solved | None]:
    """Compute, or fetch from the cache, what a cell's scores are measured against, and what is `shown` of it."""
    plant = cell.make_plant()
    found = reference(plant, cell.frequency, cell.noise, rule)
    return found, solved_surfaces(plant, cell.frequency, rule) if shown else None


Point = tuple[str, float, float]
"""A plant, a rate and a noise, which have their references."""


class Outcome(NamedTuple):
    """What a sweep comes to.

    Attributes:
        data: the results, of what is finished.
        figures: where they were drawn; nowhere before a cell is finished.
        status: 0 at the end, 130 or 143 where Ctrl-C or SIGTERM came.
    """

    data: xr.Dataset
    figures: list[Path]
    status: int


def sweep(study: Study, output: Path | str, *, workers: int | None = None, cluster: str | None = None) -> xr.Dataset:
    """Run a study into a folder, or continue there; return its results as `open_results` reads them.

    Scripts that call this need `if __name__ == "__main__":` around it: worker processes import them.

    Args:
        workers: local worker processes, one per core if not given.
        cluster: address of a Dask scheduler, used in their place.

    Raises:
        UserError: the sweep cannot run here, does not fit, or its folder is in use.
        KeyboardInterrupt: Ctrl-C, after checkpoints were written; called again, it continues.
    """
    from replaybench.experiments.figures.all_figures import draw_figures

    leave_if_imported()
    outcome = run_sweep(
        study, Path(output), workers or cores(), cluster, checkpoint_seconds=60.0, console=Console(quiet=True),
        figures=draw_figures,
    )  # fmt: skip
    if outcome.status:
        raise KeyboardInterrupt
    return outcome.data


def cores() -> int:
    """Return how many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_sweep(
    study: Study,
    output: Path,
    workers: int,
    cluster: str | None,
    *,
    checkpoint_seconds: float,
    console: Console,
    figures: Callable[[xr.Dataset, RunFolder, Sequence[Cell]], list[Path]],
    progress: ProgressForm | None = None,
    tensorboard: bool = False,
) -> Outcome:
    """Run a study into a folder, or continue there, and say so on a console.

    Args:
        workers: local worker processes.
        cluster: address of a Dask scheduler, used in their place.
        checkpoint_seconds: least time between the checkpoints of a local cell.
        figures: draws the figures of a dataset.
        progress: how it is shown; as fits the console if not given.
        tensorboard: whether to write TensorBoard event files.

    Raises:
        UserError: the sweep cannot run here, does not fit, or its folder is in use.
    """
    from replaybench.experiments.figures.all_figures import remove_figures

    folder = RunFolder(output)
    planned = plan(study, folder, workers)
    if cluster is None and planned.open:
        check_device(study.device)
    check_room(planned, output, local=cluster is None)
    if cluster is not None:
        check_cluster(cluster)
    with folder.locked():
        folder.remove_partial_files()
        todo = plan(study, folder, workers)
        if notice := replaced(folder, study, todo.cells):
            console.print(notice, markup=False, highlight=False)
            with contextlib.suppress(UserError):  # damaged ones are replaced, too
                remove_figures(folder)
            folder.results.unlink(missing_ok=True)  # however this one ends, they are not beside its study.toml
        for warning in plan_warnings(todo.cells):
            console.print(f"warning: {warning}", markup=False, highlight=False)
        write_text(folder.study, write_toml(resolved(study, todo.cells)))
        write_provenance(folder, study.name, todo.cells, complete=False)  # so that cells can be found while they run
        points = {(cell.plant, cell.frequency, cell.noise): cell for cell in todo.cells}
        tasks = _jobs(study, points, todo.open, folder if cluster is None else None, checkpoint_seconds)
        by_name = {f"{point}": cell for point, cell in points.items()}
        references: dict[str, Reference] = {}
        twins: dict[str, list[Cell]] = {}
        for cell in todo.cells:
            if (source := todo.shared.get(cell.id)) is not None:
                twins.setdefault(source.id, []).append(cell)
        status, fault = 0, None
        run: Run = partial(run_locally, workers) if cluster is None else partial(run_on_cluster, cluster)
        events = folder.path / "tensorboard" if tensorboard else None
        computed = [cell for cell in todo.cells if cell.id not in todo.shared]
        with Display(folder, study.name, computed, todo.open, workers, console, progress, events) as display:

            def finish(key: str, result: Any) -> None:
                if key in by_name:
                    references[key], solved = result
                    display.reference(by_name[key], references[key])
                    if solved is not None:
                        write_solved(folder, by_name[key].fingerprint, by_name[key].frequency, solved)
                    return
                store_files(folder.cell(key), result)
                display.complete(key)
                share_all(key)

            def share_all(key: str) -> None:
                for twin in twins.get(key, ()):
                    share(todo.shared[twin.id], twin, folder)
                    display.complete(twin.id)

            try:
                for key in twins.keys() - {cell.id for cell in todo.open}:  # finished by an earlier sweep
                    share_all(key)
                run(tasks, display.advance, finish)
            except Interrupted as interruption:
                status = interruption.status
            except Exception as error:  # what is finished has its results all the same
                status, fault = 2 if isinstance(error, UserError) else 1, error
            display.end(status)
        done = sum((folder.cell(cell.id) / "scores.h5").is_file() for cell in todo.cells)
        if fault is not None:
            with contextlib.suppress(Exception):  # as of a full disk: what is told is the fault
                _write_results(folder, study, points, todo.cells, references, complete=False)
                if done:
                    told = f"{done} of {len(todo.cells)} cells are finished; their scores are in {folder.results}"
                    console.print(told, markup=False, highlight=False, soft_wrap=True)
            raise fault
        data = _write_results(folder, study, points, todo.cells, references, complete=not status)
        try:
            drawn = figures(data, folder, todo.cells) if done else []
        except KeyboardInterrupt as stop:
            told = f"stopped while drawing; scores are in {folder.results}, the same command again draws"
            raise type(stop)(told) from stop
    return Outcome(data, drawn, status)


def _jobs(
    study: Study, points: dict[Point, Cell], cells: Sequence[Cell], home: RunFolder | None, seconds: float
) -> list[Job]:
    """Return what is to be done, in order: the references of all points, and the cells that are still to be run.

    Args:
        home: where cells are written by those who run them, if they can.
        seconds: least time between the checkpoints of a cell.
    """
    # Dynamic programming knows of no noise: what is shown of it is the same for all.
    shown = {(cell.plant, cell.frequency): point for point, cell in reversed(points.items())}.values()
    first = [Job(f"{point}", reference_task, (cell, study.reference, point in shown)) for point, cell in points.items()]
    # The dearest cells first, so that no worker is left alone with one at the end.
    sizes = for_each(cells, attrgetter("total_steps"))
    then = []
    for _, cell in sorted(zip(sizes, cells, strict=True), key=lambda sized: -sized[0]):
        where = (home and home.cell(cell.id), study.buffers, seconds)
        then.append(Job(cell.id, run_cell_task, (cell, *where), stops=True))
    # The first cell comes second: its learner is compiled while another worker compiles dynamic programming.
    return [*first[:1], *then[:1], *first[1:], *then[1:]]


def _write_results(
    folder: RunFolder,
    study: Study,
    points: Mapping[Point, Cell],
    cells: Sequence[Cell],
    references: Mapping[str, Reference],
    *,
    complete: bool,
) -> xr.Dataset:
    """Write the results of the cells that are finished, and what they come from."""
    from replaybench.experiments.results.dataset import assemble
    from replaybench.experiments.results.results_file import write_results

    known = {
        point: found
        for point, cell in points.items()
        if (found := references.get(f"{point}") or _kept(cell, study)) is not None
    }
    data = assemble(cells, known, {cell.id: folder.cell(cell.id) for cell in cells})
    write_results(folder.results, data)
    write_provenance(folder, study.name, cells, complete=complete)
    return data


def _kept(cell: Cell, study: Study) -> Reference | None:
    """Return the reference of a cell that an earlier sweep computed: this one may be stopped before it looks."""
    return kept_reference(cell.make_plant(), cell.frequency, cell.noise, study.reference)
