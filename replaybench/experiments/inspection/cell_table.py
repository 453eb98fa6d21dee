"""A run folder's cells as a table: their ids, how far they are, and what they scored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from rich import box
from rich.markup import escape
from rich.table import Table

from replaybench.data.errors import UserError
from replaybench.data.formats.run_folder import RunFolder
from replaybench.data.records.record import open_record, read_header
from replaybench.data.user_file import shortened
from replaybench.experiments.inspection.cells import cells_of
from replaybench.experiments.results.statistics import last_episodes
from replaybench.experiments.training.study import Cell

_NAMES: Final = ("plant", "learner", "strategy")
_MOST_ROWS: Final = 1000


def cell_table(folder: RunFolder, finals: Mapping[str, tuple[float, int]]) -> Table:
    """Return a table of a run's cells.

    Args:
        finals: by cell id, what results hold of it: the mean of μ_final over its seeds, and how many runs failed.

    Raises:
        UserError: the folder is none of a run, or a file in it is damaged.
    """
    cells = cells_of(folder)
    title = f"{len(cells)} cells; replay, export and inspect take one by {folder.path} --strategy … --noise … --seed …"
    table = Table(title=escape(title), box=box.SIMPLE_HEAD)
    for heading in ("cell", *_NAMES, "noise", "Hz", "seeds", "state", "reward", "μ_final", "failed"):
        folds = heading in (*_NAMES, "state")
        right = heading in ("noise", "Hz", "reward", "μ_final", "failed")
        table.add_column(heading, justify="right" if right else "left", no_wrap=not folds, overflow="fold")
    short = {axis: shortened(getattr(cell, axis) for cell in cells) for axis in _NAMES}
    for cell in cells[:_MOST_ROWS]:
        names = (escape(short[axis][getattr(cell, axis)]) for axis in _NAMES)
        seeds = f"{cell.seeds[0]}–{cell.seeds[-1]}" if cell.members > 1 else f"{cell.seeds[0]}"
        final, failed = finals.get(cell.id, (np.nan, -1))
        state, reward, lost = _progress(folder, cell)
        scores = _number(reward), _number(final), f"{max(failed, lost)}" if max(failed, lost) >= 0 else "–"
        table.add_row(cell.id, *names, f"{cell.noise:g}", f"{cell.frequency:g}", seeds, state, *scores)
    if len(cells) > _MOST_ROWS:
        table.caption = f"… and {len(cells) - _MOST_ROWS} further cells"
    return table


def _progress(folder: RunFolder, cell: Cell) -> tuple[str, float, int]:
    """Return a cell's state in words, the mean reward of its last episodes, and how many of its runs failed."""
    scores, checkpoint = (folder.cell(cell.id) / f"{name}.h5" for name in ("scores", "checkpoint"))
    if scores.is_file():
        with open_record(scores, "scores") as record:
            rewards = record.read("reward")
        if rewards.shape != (cell.members, cell.episodes):
            raise UserError(f"{scores}: reward is not of shape {(cell.members, cell.episodes)}; run that cell again")
        sound = np.isfinite(rewards).all(axis=1)
        last = rewards[sound, -last_episodes(cell.episodes, cell.update_every > 0) :]
        return "complete", float(last.mean()) if last.size else np.nan, int((~sound).sum())
    if checkpoint.is_file():
        return f"at {_episode(read_header(checkpoint).facts)} of {cell.episodes}", np.nan, -1
    return "waiting", np.nan, -1


def _episode(facts: Mapping[str, Any]) -> str:
    """Return how many rounds a checkpoint says it has done."""
    done = facts.get("episode")
    return f"{done}" if isinstance(done, int) else "?"


def _number(value: float) -> str:
    return f"{value:.2f}" if np.isfinite(value) else "–"
