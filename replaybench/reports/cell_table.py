"""Tables of the cells of a run folder, and the table that a dry run prints."""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr
from rich.console import Console

from replaybench.data.record import open_record, read_header
from replaybench.data.run_folder import RunFolder
from replaybench.envs.interface.channel_of_plant import describe_channel
from replaybench.envs.ode.plant import describe_steps
from replaybench.experiments.calibration import TRIAL_SECONDS, estimate, untried
from replaybench.experiments.cell_lookup import cells_of
from replaybench.experiments.comparison import families
from replaybench.experiments.effects import fewest_seeds, p_text
from replaybench.experiments.plan import Plan, check_room, plan, plan_warnings
from replaybench.experiments.schedule import horizon
from replaybench.experiments.study import Cell, Study, last_episodes
from replaybench.experiments.study_record import replaced
from replaybench.experiments.sweep import cores
from replaybench.experiments.text_table import FittedTable
from replaybench.runtime.errors import UserError
from replaybench.runtime.quantities import decimals, duration, gigabytes
from replaybench.runtime.user_file import names_from, shortened

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

    A cell is one combination of settings. The numbers count episodes or iterations. The result is empty if the cell has
    no checkpoint.
    """
    checkpoint = folder.cell(cell.id) / "checkpoint.h5"
    if not checkpoint.is_file():
        return ""
    done = read_header(checkpoint).facts.get("episode")
    return f"at {done if isinstance(done, int) else '?'} of {cell.episodes}"


def _counted(cell: Cell) -> int:
    """Return the number of last episodes whose mean reward is the final reward of a run."""
    return last_episodes(cell.episodes, cell.update_every > 0)


_PLAN_ROWS: Final = 200

_PLAN_HEADINGS: Final = ("cell", *_NAMES, "noise", "Hz", "seeds", "episodes", "updates", "state")
_PLAN_RIGHT: Final = ("noise", "Hz", "seeds", "episodes")
_PLAN_DROPPABLE: Final = ("updates", "cell", "state")


def show_plan(
    console: Console, study: Study, folder: Path, workers: int, cluster: str | None = None, measure: bool = True
) -> None:
    """Print what a sweep would run and replace, and the time, memory and disk space that the sweep would need.

    With a cluster, the printed needs are those of a single worker as fast as this machine.

    Args:
        cluster: Address of a Dask scheduler. If None, the sweep runs on this machine.
        measure: Whether to measure unknown speeds of cells, for a few seconds each.

    Raises:
        UserError: The sweep needs more memory or disk space than is free.
    """
    with names_from(study.folder):
        _show(console, study, folder, workers, cluster, measure)


def _show(console: Console, study: Study, folder: Path, workers: int, cluster: str | None, measure: bool) -> None:
    run = RunFolder(folder)
    todo = plan(study, run, workers if cluster is None else 1)
    console.print(_cell_table(study.name, todo, run))
    lines = _discounts, _channels, _observed, _substeps, _power
    for line in itertools.chain(*(each(todo.cells) for each in lines)):
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


def _cell_table(name: str, todo: Plan, folder: RunFolder) -> FittedTable:
    title = f"{name}: {len(todo.cells)} cell{'s' * (len(todo.cells) != 1)}, {len(todo.open)} to run"
    title += f", {len(todo.shared)} of the same runs as others" if todo.shared else ""
    points: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in todo.cells:
        points.setdefault(cell.grid_point, []).append(cell)
    further = len(points) - _PLAN_ROWS
    caption = f"… and {further} further grid points" if further > 0 else ""
    table = FittedTable(_PLAN_HEADINGS, _NAMES, _PLAN_RIGHT, _PLAN_DROPPABLE, title=title, caption=caption)
    open_ids = {cell.id for cell in todo.open}
    short = {axis: shortened(getattr(cell, axis) for cell in todo.cells) for axis in _NAMES}
    for blocks in itertools.islice(points.values(), _PLAN_ROWS):
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


def _observed(cells: Sequence[Cell]) -> Iterator[str]:
    for cell in {cell.plant: cell for cell in cells}.values():
        if cell.observe:
            hidden = [name for name in cell.make_plant().state_names if name not in cell.observe]
            yield f"observed  {cell.plant}: {', '.join(cell.observe)}; not {', '.join(hidden) or 'fewer'}"


def _channels(cells: Sequence[Cell]) -> Iterator[str]:
    for cell in {cell.plant: cell for cell in cells}.values():
        if words := describe_channel(cell.make_plant()):
            yield f"channel   {cell.plant}: {words}"


def _substeps(cells: Sequence[Cell]) -> Iterator[str]:
    for cell in {(cell.plant, cell.frequency): cell for cell in cells}.values():
        if words := describe_steps(cell.make_plant(), cell.frequency):
            yield f"substeps  {cell.plant} at {cell.frequency:g} Hz: {words}"
