"""The contents of files, and the names that studies can use (commands `inspect` and `list`)."""

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from replaybench.controllers.registry import LEARNERS, SB3, SETTING_WORDS, load_learner
from replaybench.data.documents import read_toml
from replaybench.data.policy_file import failed_members, members_in, read_policy
from replaybench.data.record import Record, is_record, open_record, read_header
from replaybench.data.run_folder import RunFolder
from replaybench.envs.registry import PLANTS, missing, plant_class
from replaybench.experiments.cell_lookup import cells_of, no_run_folder, reached
from replaybench.experiments.dataset import describe
from replaybench.experiments.results_file import read_results
from replaybench.experiments.study import Cell, last_episodes
from replaybench.experiments.study_record import flat
from replaybench.experiments.tables import score_tables
from replaybench.experiments.text_table import FittedTable, plain_table
from replaybench.replay.storage.schema import BufferFile
from replaybench.replay.strategies.notation import ENTRIES, OF_BATCHES, REFER, RETENTIONS, SAMPLINGS, WEIGHTINGS
from replaybench.reports.figures.style import check_figure
from replaybench.reports.inspection.composition_report import check_choice, describe_composition
from replaybench.runtime.errors import UserError
from replaybench.runtime.quantities import decimals
from replaybench.runtime.user_file import shortened

_PART: Final = 1 << 24


def parts(record: Record, name: str) -> Iterator[np.ndarray]:
    """Yield an array of a file in pieces of at most 16 MiB, or in single rows if a row is larger."""
    shape, size = record.header.shapes[name], np.dtype(record.header.dtypes[name]).itemsize
    if math.prod(shape) * size <= _PART or len(shape) < 2:
        yield record.read(name)
        return
    high = max(1, _PART // (math.prod(shape[2:]) * size))
    for m in range(shape[0]):
        for start in range(0, shape[1], high):
            yield record.read(name, m, slice(start, start + high))


def array_row(name: str, shape: tuple[int, ...], pieces: Iterable[np.ndarray]) -> tuple[str, ...]:
    """Return name, shape and dtype of an array, and minimum, mean and maximum of its finite values, as strings."""
    low, high, total, count, dtype = np.inf, -np.inf, 0.0, 0, ""
    for part in pieces:
        finite = part[np.isfinite(part)] if part.dtype.kind == "f" else part
        dtype, count = str(part.dtype), count + finite.size
        if finite.size:
            low, high = min(low, finite.min()), max(high, finite.max())
            total += finite.sum(dtype=np.float64)
    known = count > 0 and len(shape) > 0
    values = [f"{float(value):.6g}" for value in (low, total / count, high)] if known else ["–"] * 3
    return (name, " × ".join(map(str, shape)), dtype, *values)


_MOST_SIGNALS: Final = 8
_FEW_SIGNALS: Final = 4


def show_file(
    console: Console, path: Path, verify: bool, member: int | None = None, plant: str | None = None,
    figure: Path | None = None,
) -> None:  # fmt: skip
    """Print the contents of a file or run folder and, for a buffer file, the composition of its experiences.

    Checksums are verified first. With `verify`, the serial numbers of experiences in buffers, and each file of a run
    folder, are checked, too.
    """
    buffer = path.is_file() and is_record(path) and read_header(path).kind == "buffer"
    for option, value in (("--member", member), ("--plant", plant), ("--figure", figure)):
        if value is not None and path.exists() and not buffer:
            raise UserError(f"{option} is for the composition of a buffer, but {path} is no buffer file")
    place = None if figure is None else check_figure(figure)
    if buffer:
        check_choice(path, member, plant)
        _show_one(console, path, verify)
        for part in describe_composition(path, member, plant, place):
            console.print(part, highlight=False)
        if figure is not None:
            print(f"figure   {place}")
    else:
        (_show_folder if path.is_dir() else _show_one)(console, path, verify)
    if verify:
        console.print("verified: checksums and structure are sound", style="green")


def _show_one(console: Console, path: Path, verify: bool) -> None:
    if path.suffix == ".nc":
        _show_results(console, path)
    elif path.suffix == ".safetensors":
        facts, weights = read_policy(path)
        members_in(path, weights)
        rows = [array_row(name, array.shape, [array]) for name, array in weights.items()]
        _show(console, path, "policy", facts, rows)
        if failed := failed_members(weights):
            numbers = ", ".join(map(str, failed))
            console.print(f"warning: unusable, weights are NaN or infinite: member {numbers}", soft_wrap=True)
    elif path.is_file() and not is_record(path):
        if path.suffix != ".h5":
            raise UserError(f"{path}: inspect opens .h5, .safetensors and .nc files, and run folders")
        raise UserError(f"{path} is not a file that replaybench wrote, or its beginning is damaged")
    else:
        with open_record(path) as record:
            header = record.header
            rows = [array_row(name, shape, parts(record, name)) for name, shape in header.shapes.items()]
            record.verify()
            if verify and header.kind == "buffer":
                file = BufferFile(record)
                for m, (stored, collected) in enumerate(zip(file.count, file.collected, strict=True)):
                    serial = record.read("serial", m, slice(0, int(stored)))
                    if len(np.unique(serial)) != stored or (stored and (serial.min() < 1 or serial.max() > collected)):
                        raise UserError(f"{path}: member {m} has repeated or impossible serial numbers")
        _show(console, path, header.kind, header.facts, rows)


def _show(console: Console, path: Path, content: str, facts: dict[str, Any], rows: Iterable[Sequence[str]]) -> None:
    size = path.stat().st_size / 1e6
    console.print(f"{path}: {content} file, {size:.2f} MB", style="bold", highlight=False, markup=False, soft_wrap=True)
    about = Table(show_header=False, box=None)
    for key, value in _texts(facts).items():
        about.add_row(escape(key), escape(value))
    console.print(about)
    table = plain_table(("array", "shape", "type", "minimum", "mean", "maximum"))
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)


def _texts(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return nested metadata as texts of at most 100 characters, by names such as `table.key`."""
    texts = {key: json.dumps(value, ensure_ascii=False) for key, value in flat(facts)}
    return {key: text if len(text) <= 100 else text[:97] + "…" for key, text in texts.items()}


def _show_results(console: Console, path: Path) -> xr.Dataset:

    data = read_results(path)
    title = f"{path}: results, written by replaybench {data.attrs['version']}"
    console.print(title, style="bold", markup=False, soft_wrap=True)
    console.print(describe(data), markup=False, soft_wrap=True)
    for table in score_tables(data):
        console.print(table)
    return data


def _show_folder(console: Console, path: Path, verify: bool) -> None:
    folder = RunFolder(path)
    if not folder.study.is_file():
        raise no_run_folder(path)
    read_toml(folder.study)  # raises an error if the file is damaged
    complete = sorted(folder.path.glob("cells/*/scores.h5"))
    started = sorted(folder.path.glob("cells/*/checkpoint.h5"))
    state = f"{path}: run folder, {len(complete)} cells complete, {len(started)} under way"
    console.print(state, style="bold", markup=False, soft_wrap=True)
    console.print(folder.study.read_text(encoding="utf-8"), highlight=False, markup=False, soft_wrap=True)
    results = _show_results(console, folder.results) if folder.results.is_file() else None
    console.print(_cell_table(folder, results))
    if verify:
        for suffix in (".h5", ".safetensors"):  # other files in these folders are not checked
            for file in sorted(folder.path.glob(f"cells/*/[!.]*{suffix}")):
                _show_one(Console(quiet=True), file, verify=True)


_NAMES: Final = ("plant", "learner", "strategy")
_HEADINGS: Final = ("cell", *_NAMES, "noise", "Hz", "seeds", "state", "reward", "μ_final", "failed")
_RIGHT: Final = ("noise", "Hz", "reward", "μ_final", "failed")
_DROPPABLE: Final = ("state", "reward", "seeds", "failed")
_MOST_ROWS: Final = 1000


def _cell_table(folder: RunFolder, results: xr.Dataset | None) -> FittedTable:
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


def _counted(cell: Cell) -> int:
    """Return the number of last episodes whose mean reward is the final reward of a run."""
    return last_episodes(cell.episodes, cell.update_every > 0)


def show_names(console: Console, what: str) -> None:
    """Print tables of the plants, strategies and learners that a study can use, or only of the group `what`."""
    for group, table in (("plants", _plants), ("strategies", _strategies), ("learners", _learners)):
        if what in ("all", group):
            console.print(table())


def _plants() -> Table:

    title = "Plants (or path/to/file.py:ClassName for your own, or gymnasium:Name-v0)"
    table = plain_table(("name", "states and actions", "parameters", "episode"), title=title)
    for name in PLANTS:
        if lacking := missing(name):
            table.add_row(name, f"not available here: {escape(lacking)}", end_section=True)
            continue
        plant = plant_class(name)()
        signals: list[str] = []
        for what in ("state", "action"):
            named = zip(getattr(plant, f"{what}_names"), getattr(plant, f"{what}_units"), strict=True)
            lines = [f"{label} [{unit}]" for label, unit in named]
            few = [*lines[:_FEW_SIGNALS], f"… {len(lines)} {what}s in all"]
            signals += lines if len(lines) <= _MOST_SIGNALS else few
        values = {f.name: getattr(plant, f.name) for f in dataclasses.fields(plant)}
        parameters = [f"{key} = {value if isinstance(value, str) else f'{value:g}'}" for key, value in values.items()]
        episode = f"{plant.steps_per_episode(plant.frequency)} steps\nat {plant.frequency:.4g} Hz"
        table.add_row(name, escape("\n".join(signals)), "\n".join(parameters), episode, end_section=True)
    return table


def _strategies() -> Table:

    title = escape("Strategies: Entry*Retention[Sampling+Modifier], for example Drop(0.5)*TDE(1.2)[PER+IS]")
    table = plain_table(("part", "name", "parameters", ""), title=title)
    parts: dict[str, Mapping[str, Any]] = {
        "entry": ENTRIES,
        "retention": RETENTIONS,
        "sampling": SAMPLINGS,
        "modifier": {**WEIGHTINGS, **OF_BATCHES, **REFER},
    }
    for part, names in parts.items():
        for name, described in names.items():
            written = ", ".join(f"{f.name}={str(f.default).lower()}" for f in described.parameters().values())
            table.add_row(part, name, written, _first_line(described))
    return table


def _learners() -> Table:

    table = plain_table(("name", "setting", "what it is"), title="Learners")
    for name in LEARNERS:
        learner, config = load_learner(name)
        also = f"; also {name}:sb3, with Stable-Baselines3's defaults" if name in SB3 else ""
        table.add_row(name, "", f"{_first_line(learner).removesuffix('.')}{also}")
        for key, value in _texts(dataclasses.asdict(config())).items():
            table.add_row("", escape(f"{key} = {value}"), SETTING_WORDS.get(key, ""))
        table.add_section()
    return table


def _first_line(described: type) -> str:
    return (described.__doc__ or "").strip().partition("\n")[0]  # without docstrings under `python -OO`
