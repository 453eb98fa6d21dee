"""List presets, announce one, and reuse finished cells of other run folders."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, track
from rich.table import Table

from replaybench.baselines.grid_choice import Rule
from replaybench.data.atomic import atomic_folder
from replaybench.data.formats.run_folder import RunFolder
from replaybench.data.quantities import duration, gigabytes
from replaybench.experiments.calibration import estimate_seconds, kept_seconds
from replaybench.experiments.plan import plan
from replaybench.experiments.presets.preset import Preset, Scale, presets
from replaybench.experiments.progress.plain_lines import plain_lines
from replaybench.experiments.training.study import Cell, Study

_TIMING: Final = "timing kinds of cells that are new here"
_UNTIMED: Final = (
    "time ?: never timed on this machine; reproduce NAME --dry-run times one, --list --time all (it takes some minutes)"
)


def folder_of(preset: Preset, scale: Scale) -> Path:
    """Return the default run folder of a preset."""
    return Path("runs") / f"{preset.name.replace('/', '-')}-{scale}"


def show_presets(console: Console, scale: Scale, workers: int, time: bool) -> None:
    """Print all presets with their cells, memory and, where known on this machine, time.

    Args:
        time: time kinds of cells that are new on this machine first, for seconds each.
    """
    plans = [(preset, preset.study(scale)) for preset in presets()]
    watched = track(plans, "planning", console=console, transient=True, disable=not console.is_terminal)
    needs = [
        None if preset.missing else plan(study, RunFolder(folder_of(preset, scale)), workers)
        for preset, study in watched
    ]
    cells = {cell.id: cell for needed in needs if needed for cell in needed.cells}
    if time:
        _time(console, list(cells.values()), workers)
    table = Table(title=f"presets at scale {scale}, on {workers} worker(s) of this machine", box=box.SIMPLE_HEAD)
    for heading in ("preset", "figure", "compares", "cells", "time", "memory"):
        table.add_column(heading, overflow="fold", no_wrap=heading in ("preset", "time", "memory"))
    for (preset, study), needed in zip(plans, needs, strict=True):
        figure = preset.figure
        if needed is None:
            table.add_row(preset.name, figure.figure, figure.shows, f"needs {escape(preset.missing)}", "?", "?")
            continue
        points = {cell.kind[:-1] for cell in needed.cells}  # blocks of seeds are no cells of their own here
        what = f"{len(points)} of {study.seeds} seeds"
        takes = _duration(needed.cells, workers, study.reference)
        table.add_row(preset.name, figure.figure, figure.shows, what, takes or "?", gigabytes(needed.memory_bytes))
    papers = {preset.name.partition("/")[0]: preset.paper.title for preset, _ in plans}
    total = _duration(list(cells.values()), workers, None)
    kinds = len({cell.id for cell in cells.values() if not cell.first_member})
    shared = f"cells that figures share are run once: {kinds} in all" + (f", {total}" if total else "")
    lines = [*(f"{name}: {title}" for name, title in papers.items()), shared, *[_UNTIMED] * (not total)]
    table.caption = "\n".join(lines)
    table.caption_justify = "left"
    console.print(table)


def _time(console: Console, cells: list[Cell], workers: int) -> None:
    tried = [0, 1]

    def report(done: int, due: int) -> None:
        tried[:] = done, due
        progress.update(task, completed=done, total=due)

    with (
        Progress(console=console, disable=not console.is_terminal, transient=True) as progress,
        plain_lines(console, lambda: f"{_TIMING}: {tried[0]} of {tried[1]}"),
    ):
        task = progress.add_task(_TIMING)
        estimate_seconds(cells, workers, report)


def _duration(cells: Sequence[Cell], workers: int, rule: Rule | None) -> str | None:
    seconds = kept_seconds(cells, workers, rule)
    return None if seconds is None else duration(seconds)


def announce(console: Console, preset: Preset, scale: Scale) -> None:
    """Print what is about to run, and its reductions."""
    console.print(f"[bold]{preset.name}[/]: {preset.figure.figure} of {preset.paper.title}", highlight=False)
    console.print(preset.figure.shows, markup=False, highlight=False)
    for said in preset.reductions(scale):
        console.print(f"reduced: {said}", markup=False, highlight=False)


def take_over(study: Study, folder: Path) -> int:
    """Copy finished cells of a study, by their ids, from run folders next to its own; return how many."""
    beside = [RunFolder(other) for other in sorted(folder.parent.glob("*")) if other != folder]
    taken = 0
    for cell in study.cells():
        mine = RunFolder(folder).cell(cell.id)
        finished = (other.cell(cell.id) for other in beside if _finished(other, cell))
        there = None if mine.exists() else next(finished, None)
        if there is None:
            continue
        with atomic_folder(mine) as temporary:
            for path in there.iterdir():
                if path.is_file() and path.name != "buffer.h5":
                    shutil.copyfile(path, temporary / path.name)
        taken += 1
    return taken


def _finished(other: RunFolder, cell: Cell) -> bool:
    with contextlib.suppress(OSError):  # a folder that is somebody else's
        return (other.cell(cell.id) / "scores.h5").is_file()
    return False
