"""Printing of the plan of a sweep (option --dry-run), and of presets with the time and memory that they need."""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, track
from rich.table import Table

from replaybench.baselines.grid_choice import Rule
from replaybench.data.run_folder import RunFolder
from replaybench.envs.interface.channel_of_plant import describe_channel, describe_spread
from replaybench.envs.ode.plant import describe_steps
from replaybench.evidence.preset import Preset, Scale, folder_of, presets
from replaybench.experiments.calibration import TRIAL_SECONDS, estimate, untried
from replaybench.experiments.cell_lookup import reached
from replaybench.experiments.comparison import families
from replaybench.experiments.effects import fewest_seeds, p_text
from replaybench.experiments.plan import Plan, check_room, plan, plan_warnings
from replaybench.experiments.progress import plain_lines
from replaybench.experiments.schedule import horizon
from replaybench.experiments.study import Cell, Study
from replaybench.experiments.study_record import replaced
from replaybench.experiments.sweep import cores
from replaybench.experiments.text_table import FittedTable
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.quantities import duration, gigabytes
from replaybench.runtime.user_file import names_from, shortened

_NAMES: Final = ("plant", "learner", "strategy")
_MOST_ROWS: Final = 200
_HEADINGS: Final = ("cell", *_NAMES, "noise", "Hz", "seeds", "episodes", "updates", "state")
_RIGHT: Final = ("noise", "Hz", "seeds", "episodes")
_DROPPABLE: Final = ("updates", "cell", "state")


def show_plan(
    console: Console, study: Study, folder: Path, workers: int, cluster: str | None = None, measure: bool = True
) -> None:
    """Print what a sweep would run and replace, and the time, memory and disk space that the sweep would need.

    With a cluster, the printed needs are those of a single worker as fast as this machine. With `measure`, unknown
    speeds of cells are measured.

    Raises:
        UserError: The sweep needs more memory or disk space than is free.
    """
    with names_from(study.folder):
        _show(console, study, folder, workers, cluster, measure)


def _show(console: Console, study: Study, folder: Path, workers: int, cluster: str | None, measure: bool) -> None:
    run = RunFolder(folder)
    todo = plan(study, run, workers if cluster is None else 1)
    console.print(_plan_table(study.name, todo, run))
    for line in itertools.chain(*(each(todo.cells) for each in (_discounts, _plants, _mixed, _power))):
        console.print(line, markup=False, highlight=False)
    if short := check_room(todo, run):
        console.print(f"warning: {short}", markup=False, highlight=False)
    at_once = min(workers, cores()) if cluster is None else 1
    if measure and (new := untried(todo.open)):
        types = f"{new} type{'s' * (new != 1)} of cells"
        print(f"measuring the speed of {types}, at most {TRIAL_SECONDS:g} s each; --no-measure skips that", flush=True)
    needed = estimate(todo.open, todo.cells, study.reference, at_once, measure)
    who = f"{workers} worker(s) of this machine" if cluster is None else f"one worker; those of {cluster} share it"
    if cluster is None and at_once < workers:
        who += f", which share its {at_once} core(s)"
    print(f"time    about {duration(needed.seconds)} on {who}")
    print(f"        {needed.in_words()}")
    print(f"memory  about {gigabytes(todo.memory_bytes)}")
    print(f"disk    about {gigabytes(todo.disk_bytes)} in {folder}")
    if notice := replaced(run, study, todo.cells):
        console.print(notice, markup=False, highlight=False)
    for warning in plan_warnings(todo.cells):
        console.print(f"warning: {warning}", markup=False, highlight=False)


def _plan_table(name: str, todo: Plan, folder: RunFolder) -> FittedTable:
    title = f"{name}: {len(todo.cells)} cell{'s' * (len(todo.cells) != 1)}, {len(todo.open)} to run"
    title += f", {len(todo.shared)} of the same runs as others" if todo.shared else ""
    points: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in todo.cells:
        points.setdefault(cell.grid_point, []).append(cell)
    further = len(points) - _MOST_ROWS
    caption = f"… and {further} further grid points" if further > 0 else ""
    table = FittedTable(_HEADINGS, _NAMES, _RIGHT, _DROPPABLE, title=title, caption=caption)
    open_ids = {cell.id for cell in todo.open}
    short = {axis: shortened(getattr(cell, axis) for cell in todo.cells) for axis in _NAMES}
    for blocks in itertools.islice(points.values(), _MOST_ROWS):
        cell, count = blocks[0], len(blocks)
        missing = sum(block.id in open_ids for block in blocks)
        if 0 < missing < count:
            state = f"{missing} of {count} to run"
        elif missing:
            at = reached(folder, cell) if count == 1 else ""
            state = f"to run, {at}" if at else "to run"
        else:
            same = todo.shared.get(cell.id)
            state = f"same runs as {same.strategy}" if same else "complete"
        seeds = str(sum(block.members for block in blocks))
        every = "every step" if cell.update_every == 1 else f"every {cell.update_every} steps"
        table.add(
            cell.id if count == 1 else f"{count} blocks",
            *(short[axis][getattr(cell, axis)] for axis in _NAMES),
            *(f"{cell.noise:g}", f"{cell.frequency:g}", seeds, str(cell.episodes)),
            every if cell.update_every else "each episode",
            state,
        )
    return table


def _discounts(cells: Sequence[Cell]) -> Iterator[str]:
    lines: dict[str, set[str]] = {}
    for cell in {(cell.plant, cell.learner, cell.frequency): cell for cell in cells}.values():
        words = horizon(cell.gamma, cell.frequency)
        lines.setdefault(f"discount  {cell.plant} at {cell.frequency:g} Hz: {words}", set()).add(cell.learner)
    count = len({cell.learner for cell in cells})
    for line, learners in lines.items():
        yield line if len(learners) == count else f"{line} ({', '.join(sorted(learners))})"


def _mixed(cells: Sequence[Cell]) -> Iterator[str]:
    for mix in dict.fromkeys(parse(cell.strategy).mix for cell in cells if cell.mixed):
        if mix is not None:
            fading = "" if mix.anneal is None else f", which falls to 0 over {mix.anneal:g} of the run"
            yield f"mixed     {mix.share:g} of each batch from {mix.file}{fading}"


def _power(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a line that states which comparisons the seeds of a study can decide."""
    seeds = min(Counter(cell.grid_point for cell in cells for _ in range(cell.members)).values())
    tests = families((cell.plant, cell.learner, cell.strategy, cell.noise, cell.frequency) for cell in cells)
    if not tests:
        return
    most = max(count for _, count in tests)
    baselines = " or ".join(dict.fromkeys(name for name, _ in tests))
    what = f"{most} comparison{'s' * (most > 1)} with {baselines} in each condition"
    needed = fewest_seeds(most)
    can = "can" if seeds >= needed else f"cannot, and {needed} seeds can,"
    smallest = min(1.0, most * 2.0 ** (1 - seeds))
    yield f"verdicts  {seeds} seed{'s' * (seeds > 1)} {can} show significance in {what}: smallest p {p_text(smallest)}"


def _plants(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield lines about each plant: its channel, what learners observe of it, and its steps of integration."""
    by_plant = {cell.plant: cell for cell in cells}
    plants = {name: cell.make_plant() for name, cell in by_plant.items()}
    for name, plant in plants.items():
        for what, words in (("channel", describe_channel(plant)), ("spread", describe_spread(plant))):
            if words:
                yield f"{what:<9} {name}: {words}"
    for name, cell in by_plant.items():
        if cell.observe:
            hidden = [state for state in plants[name].state_names if state not in cell.observe]
            yield f"observed  {name}: {', '.join(cell.observe)}; not {', '.join(hidden) or 'fewer'}"
    for name, frequency in dict.fromkeys((cell.plant, cell.frequency) for cell in cells):
        if words := describe_steps(plants[name], frequency):
            yield f"substeps  {name} at {frequency:g} Hz: {words}"


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
