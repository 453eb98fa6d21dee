"""Tables of the cells of a run folder."""

from typing import Final

import numpy as np
import xarray as xr

from replaybench.data.record import open_record, read_header
from replaybench.data.run_folder import RunFolder
from replaybench.experiments.cell_lookup import cells_of
from replaybench.experiments.study import Cell, last_episodes
from replaybench.experiments.text_table import FittedTable
from replaybench.runtime.errors import UserError
from replaybench.runtime.quantities import decimals
from replaybench.runtime.user_file import shortened

_NAMES: Final = ("plant", "learner", "strategy")
_HEADINGS: Final = ("cell", *_NAMES, "noise", "Hz", "seeds", "state", "reward", "μ_final", "failed")
_RIGHT: Final = ("noise", "Hz", "reward", "μ_final", "failed")
_DROPPABLE: Final = ("state", "reward", "seeds", "failed")
_MOST_ROWS: Final = 1000


def cell_table(folder: RunFolder, results: xr.Dataset | None) -> FittedTable:
    """Return a table with a row for each cell of a run folder.

    A cell is one combination of plant, learner, strategy, noise level and control rate, with a block of seeds. Final
    scores are read from `results`. If `results` is None, dashes replace the scores.
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
    finals = {} if results is None else _finals(results)
    for cell in cells[:_MOST_ROWS]:
        names = (short[axis][getattr(cell, axis)] for axis in _NAMES)
        final, failed = finals.get(cell.id, (np.nan, -1))
        state, reward, lost = _progress(folder, cell)
        scores = [f"{value:.{digits}f}" if np.isfinite(value) else "–" for value, digits in
                  ((reward, decimals([reward])), (final, 2))]  # fmt: skip
        scores.append(f"{max(failed, lost)}".replace("-1", "–"))
        table.add(cell.id, *names, f"{cell.noise:g}", f"{cell.frequency:g}", cell.seed_range, state, *scores)
    return table


def _finals(data: xr.Dataset) -> dict[str, tuple[float, int]]:
    """Return mean final score and number of failed runs of each cell, by the cell's id."""
    if "cell" not in data.coords:
        return {}
    blocks = [*data["block"].values.tolist(), data.sizes["seed"]]
    finals = {}
    for place in np.ndindex(data["cell"].shape):
        seeds = slice(blocks[place[-1]], blocks[place[-1] + 1])
        scores, runs = (data[name].values[place[:-1]][seeds] for name in ("mu_final", "reward"))
        present = ~np.isnan(runs).all(axis=-1)
        if present.any():
            sound = scores[np.isfinite(scores)]
            failed = int((present & ~np.isfinite(runs).all(axis=-1)).sum())
            finals[str(data["cell"].values[place])] = float(sound.mean()) if sound.size else np.nan, failed
    return finals


def _progress(folder: RunFolder, cell: Cell) -> tuple[str, float, int]:
    """Return the progress of a cell as text, its final reward, and its number of failed runs.

    If the cell is not complete, the reward is NaN and the number is −1.
    """
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
    """Return the progress of an unfinished cell as text, for example "at 81 of 1200".

    The numbers count episodes or iterations. The result is empty if the cell has no checkpoint.
    """
    checkpoint = folder.cell(cell.id) / "checkpoint.h5"
    if not checkpoint.is_file():
        return ""
    done = read_header(checkpoint).facts.get("episode")
    return f"at {done if isinstance(done, int) else '?'} of {cell.episodes}"


def _counted(cell: Cell) -> int:
    """Return the number of last episodes whose mean reward is the final reward of a run."""
    return last_episodes(cell.episodes, cell.update_every > 0)
