"""What the command `reproduce` does: list presets, say what one needs, or run it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from replaybench.data.atomic import atomic_folder
from replaybench.data.formats.run_folder import RunFolder
from replaybench.data.quantities import duration, gigabytes
from replaybench.experiments.calibration import estimate_seconds
from replaybench.experiments.plan import plan
from replaybench.experiments.presets.preset import Preset, Scale, presets
from replaybench.experiments.progress.plain_lines import plain_lines
from replaybench.experiments.training.study import Cell, Study

_TIMING: Final = "timing kinds of cells that are new here"


def folder_of(preset: Preset, scale: Scale) -> Path:
    """Return the run folder of a preset where none is given: figures of one paper lie beside each other."""
    return Path("runs") / f"{preset.name.replace('/', '-')}-{scale}"


def show_presets(console: Console, scale: Scale, workers: int) -> None:
    """Print all presets with their cells, and what they need here of time and memory at a scale.

    Kinds of cells that were never timed on this machine are tried first, for seconds each.
    """
    found = list(presets())
    rows: list[tuple[str, ...]] = []
    with (
        Progress(console=console, disable=not console.is_terminal, transient=True) as progress,
        plain_lines(console, lambda: f"{_TIMING}: {len(rows)} of {len(found)} presets"),
    ):
        task = progress.add_task(_TIMING)
        papers: dict[str, str] = {}
        everything: dict[str, Cell] = {}
        for number, preset in enumerate(found):
            study = preset.study(scale)
            needed = plan(study, RunFolder(folder_of(preset, scale)), workers)

            def report(done: int, due: int, number: int = number) -> None:
                progress.update(task, completed=number + done / due, total=len(found))

            seconds = estimate_seconds(needed.cells, workers, report)
            everything |= {cell.id: cell for cell in needed.cells}
            what = f"{len(needed.cells)} of {study.seeds} seeds"
            papers.setdefault(preset.name.partition("/")[0], preset.paper.title)
            time = duration(seconds)
            rows.append(
                (preset.name, preset.figure.figure, preset.figure.shows, what, time, gigabytes(needed.memory_bytes))
            )
        total = duration(estimate_seconds(list(everything.values()), workers))
    shared = f"cells that figures share are run once: {len(everything)} in all, {total}"
    table = Table(title=f"presets at scale {scale}, on {workers} worker(s) of this machine", box=box.SIMPLE_HEAD)
    table.caption = "\n".join([*(f"{name}: {title}" for name, title in papers.items()), shared])
    table.caption_justify = "left"
    for heading in ("preset", "figure", "compares", "cells", "time", "memory"):
        table.add_column(heading, overflow="fold", no_wrap=heading in ("preset", "time", "memory"))
    for row in rows:
        table.add_row(*row)
    console.print(table)


def announce(console: Console, preset: Preset, scale: Scale) -> None:
    """Say what is about to run, and what of the paper it leaves out."""
    console.print(f"[bold]{preset.name}[/]: {preset.figure.figure} of {preset.paper.title}", highlight=False)
    console.print(preset.figure.shows, markup=False, highlight=False)
    for said in preset.reductions(scale):
        console.print(f"reduced: {said}", markup=False, highlight=False)


def take_over(study: Study, folder: Path) -> int:
    """Copy those cells of a study from the run folders beside its own that are finished there; return how many.

    Cells that figures share have the same id, and equal ids mean equal numbers.
    """
    beside = [RunFolder(other) for other in sorted(folder.parent.glob("*")) if other != folder]
    taken = 0
    for cell in study.cells():
        mine = RunFolder(folder).cell(cell.id)
        finished = (other.cell(cell.id) for other in beside if (other.cell(cell.id) / "scores.h5").is_file())
        there = None if mine.exists() else next(finished, None)
        if there is None:
            continue
        with atomic_folder(mine) as temporary:
            for path in there.iterdir():
                if path.is_file() and path.name != "buffer.h5":
                    shutil.copyfile(path, temporary / path.name)
        taken += 1
    return taken
