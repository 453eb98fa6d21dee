"""A run folder's cells as a table: their ids, how far they are, and what they scored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from replaybench.data.errors import UserError
from replaybench.data.formats.run_folder import RunFolder
from replaybench.data.quantities import decimals
from replaybench.data.records.record import open_record, read_header
from replaybench.data.user_code.user_file import shortened
from replaybench.experiments.inspection.cells import cells_of
from replaybench.experiments.inspection.fitted_table import FittedTable
from replaybench.experiments.training.study import Cell, last_episodes

_NAMES: Final = ("plant", "learner", "strategy")
_HEADINGS: Final = ("cell", *_NAMES, "noise", "Hz", "seeds", "state", "reward", "μ_final", "failed")
_RIGHT: Final = ("noise", "Hz", "reward", "μ_final", "failed")
_DROPPABLE: Final = ("state", "reward", "seeds", "failed")
_MOST_ROWS: Final = 1000


def cell_table(folder: RunFolder, finals: Mapping[str, tuple[float, int]]) -> FittedTable:
    """Return a table of a run's cells.

    Args:
        finals: by cell id, what results hold of it: the mean of μ_final over its seeds, and how many runs failed.

    Raises:
        UserError: the folder is none of a run, or a file in it is damaged.
    """
    cells = cells_of(folder)
    count = f"{len(cells)} cell{'s' * (len(cells) != 1)}"
    told = f"{folder.path} --strategy … --noise … --seed …"
    title = f"{count}; export and inspect take one by {told}, replay by --from-strategy …"
    notes = [f"… and {len(cells) - _MOST_ROWS} further cells"] if len(cells) > _MOST_ROWS else []
    short_runs = {cell.episodes for cell in cells if _counted(cell) == cell.episodes}
    notes += [f"reward and μ_final of {episodes} episodes: over all of them" for episodes in sorted(short_runs)]
    caption = "\n".join(notes)
    table = FittedTable(_HEADINGS, _NAMES, _RIGHT, _DROPPABLE, title=title, caption=caption)
    short = {axis: shortened(getattr(cell, axis) for cell in cells) for axis in _NAMES}
    for cell in cells[:_MOST_ROWS]:
        names = (short[axis][getattr(cell, axis)] for axis in _NAMES)
        final, failed = finals.get(cell.id, (np.nan, -1))
        state, reward, lost = _progress(folder, cell)
        scores = (
            _number(reward, decimals([reward])),
            _number(final),
            f"{max(failed, lost)}" if max(failed, lost) >= 0 else "–",
        )
        table.add(cell.id, *names, f"{cell.noise:g}", f"{cell.frequency:g}", cell.seed_range, state, *scores)
    return table


def _progress(folder: RunFolder, cell: Cell) -> tuple[str, float, int]:
    """Return a cell's state in words, the mean reward of its last episodes, and how many of its runs failed."""
    scores = folder.cell(cell.id) / "scores.h5"
    if scores.is_file():
        with open_record(scores, "scores") as record:
            rewards = record.read("reward")
        if rewards.shape != (cell.members, cell.episodes):
            raise UserError(f"{scores}: reward is not of shape {(cell.members, cell.episodes)}; run that cell again")
        sound = np.isfinite(rewards).all(axis=1)
        last = rewards[sound, -_counted(cell) :]
        return "complete", float(last.mean()) if last.size else np.nan, int((~sound).sum())
    return reached(folder, cell) or "waiting", np.nan, -1


def reached(folder: RunFolder, cell: Cell) -> str:
    """Say where an unfinished cell goes on: "at 81 of 1200"; empty where it begins anew."""
    checkpoint = folder.cell(cell.id) / "checkpoint.h5"
    return f"at {_episode(read_header(checkpoint).facts)} of {cell.episodes}" if checkpoint.is_file() else ""


def _counted(cell: Cell) -> int:
    """Return how many of a cell's episodes, the last, are what its final reward is a mean of."""
    return last_episodes(cell.episodes, cell.update_every > 0)


def _episode(facts: Mapping[str, Any]) -> str:
    """Return how many rounds a checkpoint says it has done."""
    done = facts.get("episode")
    return f"{done}" if isinstance(done, int) else "?"


def _number(value: float, digits: int = 2) -> str:
    return f"{value:.{digits}f}" if np.isfinite(value) else "–"
