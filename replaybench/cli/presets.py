"""Printing of presets (studies that reproduce figures) with the time and memory that they need."""

from collections.abc import Sequence
from typing import Final

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, track
from rich.table import Table

from replaybench.baselines.grid_choice import Rule
from replaybench.data.run_folder import RunFolder
from replaybench.evidence.preset import Preset, Scale, folder_of, presets
from replaybench.experiments.calibration import estimate, untried
from replaybench.experiments.plan import plan
from replaybench.experiments.progress import plain_lines
from replaybench.experiments.study import Cell
from replaybench.runtime.quantities import duration, gigabytes

_TIMING: Final = "timing types of cells that are new here"
_UNTIMED: Final = (
    "time ?: never timed on this machine; reproduce NAME --dry-run times one, --list --time all (it takes some minutes)"
)


def show_presets(console: Console, scale: Scale, workers: int, time: bool) -> None:
    """Print a table of all presets (studies that reproduce figures), with cells, memory and estimated duration.

    A duration is printed only if the speed of the preset's runs has been measured on this machine. If `time` is True,
    unknown speeds are measured first, which takes a few seconds per learner and plant.
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
        points = {cell.grid_point for cell in needed.cells}  # blocks of seeds are not counted separately
        size = f"{len(points)} of {study.seeds} seeds"
        takes = _duration(needed.cells, workers, study.reference)
        table.add_row(preset.name, figure.figure, figure.shows, size, takes or "?", gigabytes(needed.memory_bytes))
    papers = {preset.name.partition("/")[0]: preset.paper.title for preset, _ in plans}
    total = _duration(list(cells.values()), workers, None)
    count = len({cell.id for cell in cells.values() if not cell.first_member})
    shared = f"cells that figures share are run once: {count} in all" + (f", {total}" if total else "")
    lines = [*(f"{name}: {title}" for name, title in papers.items()), shared, *[_UNTIMED] * (not total)]
    table.caption = "\n".join(lines)
    table.caption_justify = "left"
    console.print(table)


def _time(console: Console, cells: list[Cell], workers: int) -> None:
    tried = 0, 1

    def report(done: int, due: int) -> None:
        nonlocal tried
        tried = done, due
        progress.update(task, completed=done, total=due)

    with (
        Progress(console=console, disable=not console.is_terminal, transient=True) as progress,
        plain_lines(console, lambda: f"{_TIMING}: {tried[0]} of {tried[1]}"),
    ):
        task = progress.add_task(_TIMING)
        estimate(cells, (), None, workers, compiles=True, progress=report)


def _duration(cells: Sequence[Cell], workers: int, rule: Rule | None) -> str | None:
    return None if untried(cells) else duration(estimate(cells, cells, rule, workers, measure=False).seconds)


def announce(console: Console, preset: Preset, scale: Scale) -> None:
    """Print the name of a preset (study that reproduces a figure), its content, and differences from the paper."""
    console.print(f"[bold]{preset.name}[/]: {preset.figure.figure} of {preset.paper.title}", highlight=False)
    console.print(preset.figure.shows, markup=False, highlight=False)
    for reduction in preset.reductions(scale):
        console.print(f"reduced: {reduction}", markup=False, highlight=False)
