"""Table of the cells of a run folder: ids, progress and scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
        finals: from the results, by cell id: the mean of μ_final over its seeds, and the number of failed runs.

    Raises:
        UserError: this is no run folder, or a file in it is damaged.
    """
    cells = cells_of(folder)
    options = f"{folder.path} --strategy … --noise … --seed …"
    title = f"{len(cells)} cell{'s' * (len(cells) != 1)}; export and inspect take one by {options}, "
    title += "replay by --from-strategy …"
    notes = [f"… and {len(cells) - _MOST_ROWS} further cells"] if len(cells) > _MOST_ROWS else []
    short_runs = {cell.episodes for cell in cells if _counted(cell) == cell.episodes}
    notes += [f"reward and μ_final of {episodes} episodes: over all of them" for episodes in sorted(short_runs)]
    table = FittedTable(_HEADINGS, _NAMES, _RIGHT, _DROPPABLE, title=title, caption="\n".join(notes))
    short = {axis: shortened(getattr(cell, axis) for cell in cells) for axis in _NAMES}
    for cell in cells[:_MOST_ROWS]:
        names = (short[axis][getattr(cell, axis)] for axis in _NAMES)
        final, failed = finals.get(cell.id, (np.nan, -1))
        state, reward, lost = _progress(folder, cell)
        scores = _number(reward, decimals([reward])), _number(final, 2), f"{max(failed, lost)}".replace("-1", "–")
        table.add(cell.id, *names, f"{cell.noise:g}", f"{cell.frequency:g}", cell.seed_range, state, *scores)
    return table


def _progress(folder: RunFolder, cell: Cell) -> tuple[str, float, int]:
    """Return a cell's state, the mean reward of its last episodes, and the number of failed runs (−1 if unknown)."""
    scores = folder.cell(cell.id) / "scores.h5"
    if not scores.is_file():
        return reached(folder, cell) or "waiting", np.nan, -1
    with open_record(scores, "scores") as record:
        rewards = record.read("reward")
    if rewards.shape != (cell.members, cell.episodes):
        raise UserError(f"{scores}: reward is not of shape {(cell.members, cell.episodes)}; run that cell again")
    sound = np.isfinite(rewards).all(axis=1)
    last = rewards[sound, -_counted(cell) :]
    return "complete", float(last.mean()) if last.size else np.nan, int((~sound).sum())


def reached(folder: RunFolder, cell: Cell) -> str:
    """Return the progress of an unfinished cell, as "at 81 of 1200"; empty without a checkpoint."""
    checkpoint = folder.cell(cell.id) / "checkpoint.h5"
    if not checkpoint.is_file():
        return ""
    done = read_header(checkpoint).facts.get("episode")
    return f"at {done if isinstance(done, int) else '?'} of {cell.episodes}"


def _counted(cell: Cell) -> int:
    """Return the number of last episodes that make a cell's final reward."""
    return last_episodes(cell.episodes, cell.update_every > 0)


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if np.isfinite(value) else "–"
