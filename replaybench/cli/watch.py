"""The live view of a sweep, which reads the progress from the run folder (command `watch`)."""

import contextlib
import math
import time
from pathlib import Path
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from replaybench.data.run_folder import RunFolder
from replaybench.experiments.display import CellHistory, RunHistory
from replaybench.experiments.progress import LINE_SECONDS
from replaybench.experiments.text_table import FittedTable
from replaybench.runtime.quantities import duration
from replaybench.runtime.user_file import shortened

_TICK: Final = 2.0
"""Time between two updates of the view [s]."""
_BARS: Final = " ▁▂▃▄▅▆▇█"
_CURVE: Final = 32
_NAMES: Final = ("plant", "learner", "strategy")
_HEADINGS: Final = (*_NAMES, "noise", "Hz", "seeds", "episode", "learning curve", "last", "failed")
_RIGHT: Final = ("noise", "Hz", "episode", "last", "failed")
_DROPPABLE: Final = ("learning curve", "seeds", "failed")
_AROUND: Final = 8
"""Number of lines of the view that are not rows of cells."""


def watch_run(console: Console, path: Path) -> None:
    """Show the progress of a sweep until the sweep ends, or once if the sweep has ended.

    Ctrl-C ends the view and does not stop the sweep.
    """
    history = RunHistory(RunFolder(path))

    def fitting() -> RenderableType:
        lines = max(3, console.height - _AROUND)
        return view(history, max(1, lines // cell_rows(history, lines).lines_a_row(console.width)))

    with contextlib.suppress(KeyboardInterrupt):
        if history.state != "running" or not console.is_terminal:
            _plain(console, history)
            return
        with Live(fitting(), console=console, auto_refresh=False, screen=False) as live:
            while history.state == "running":
                time.sleep(_TICK)
                history.update()
                live.update(fitting(), refresh=True)


def _plain(console: Console, history: RunHistory) -> None:
    passed, last = LINE_SECONDS, Text()
    while history.state == "running":
        if passed >= LINE_SECONDS:
            if (line := header(history)) != last:
                console.print(line, highlight=False)
            passed, last = 0.0, line
        time.sleep(_TICK)
        passed += _TICK
        history.update()
    console.print(view(history, len(history.cells)))


def view(history: RunHistory, rows: int) -> RenderableType:
    """Return the progress of a sweep as a line above a table of at most `rows` cells."""
    return Group(header(history), cell_rows(history, rows))


def header(history: RunHistory) -> Text:
    """Return a line with finished cells, failed runs and the remaining time of a sweep."""
    cells, failed = history.cells.values(), history.failed
    running = sum(known.done > 0 and not known.complete for known in cells)
    parts = [f"{history.study}: {history.state}", f"{history.complete}/{len(cells)} cells"]
    parts += [f"{running} under way"] if running else []
    parts += [f"{failed} failed runs"] if failed else []
    parts += [duration(history.seconds)] if history.seconds else []
    if history.state == "running" and (left := history.seconds_left()) is not None:
        parts.append(f"{duration(left)} left")
    return Text(", ".join(parts), style="bold")


def cell_rows(history: RunHistory, rows: int) -> FittedTable:
    """Return a table with the progress of at most `rows` cells of a sweep.

    Running cells come first, then waiting cells, then complete cells.
    """
    cells = sorted(history.cells.values(), key=lambda each: (each.complete, not each.done, -each.last))
    caption = f"… and {len(cells) - rows} further cells" if len(cells) > rows else ""
    table = FittedTable(_HEADINGS, _NAMES, _RIGHT, _DROPPABLE, caption=caption)
    short = {axis: shortened(getattr(each.cell, axis) for each in cells) for axis in _NAMES}
    for each in cells[:rows]:
        cell = each.cell
        names = (short[axis][getattr(cell, axis)] for axis in _NAMES)
        done = "" if not each.done else "complete" if each.complete else f"{each.done}/{cell.episodes}"
        curve, last = _curve(history, each)
        failed = Text(str(each.failed), style="bold red") if each.failed else ""
        table.add(*names, f"{cell.noise:g}", f"{cell.frequency:g}", cell.seed_range, done, curve, last, failed)
    return table


def _curve(history: RunHistory, known: CellHistory) -> tuple[str, str]:
    """Return a learning curve drawn with block characters, and its last value (a score or a reward) as text."""
    cell, points = known.cell, known.points
    if not points:
        return "", ""
    scale = history.references.get((cell.plant, cell.frequency, cell.noise))
    low, high = scale or (min(reward for _, reward in points), max(reward for _, reward in points))
    columns: list[list[float]] = [[] for _ in range(_CURVE)]
    for done, reward in points:
        columns[min(_CURVE - 1, max(0, (done - 1) * _CURVE // cell.episodes))].append(reward)
    while not columns[-1]:
        columns.pop()
    bars, before = "", math.nan
    for column in columns:
        before = sum(column) / len(column) if column else before
        share = (before - low) / (high - low) if high > low else 0.5
        bars += " " if math.isnan(before) else _BARS[1 + min(7, max(0, int(8 * share)))]
    reward = points[-1][1]
    return bars, f"μ_r {(reward - low) / (high - low):.2f}" if scale else f"{reward:.4g}"
