"""Conversion of logs and datasets to buffer files (command `import`), and the reverse (command `export`)."""

import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress

from replaybench.data.documents import COLUMN_SUFFIXES, check_columns_file, write_columns
from replaybench.data.logs.log import read_log
from replaybench.data.logs.text import TextOptions
from replaybench.data.record import write_record
from replaybench.envs.interface.plant import Parameter
from replaybench.envs.registry import is_installed, make_plant
from replaybench.exchange.log_columns import Missing, parse_columns, reserved_names
from replaybench.exchange.logs_to_buffer import convert
from replaybench.exchange.minari_export import chosen_recordings, export_buffer, step_columns
from replaybench.exchange.minari_import import convert_dataset
from replaybench.exchange.recording import summary_table
from replaybench.experiments.recorded_buffer import read_recording
from replaybench.runtime.atomic import new_path
from replaybench.runtime.errors import UserError
from replaybench.runtime.user_file import canonical

_DATASET: Final = "minari:"


def show_import(
    console: Console, source: str, name: str, parameters: Mapping[str, Parameter], output: Path | None, *,
    columns: Sequence[str], time: str | None, frequency: float | None, clip_actions: bool, delay: float,
    missing: Missing, options: TextOptions, other_plant: bool,
) -> None:  # fmt: skip
    """Convert a log or a Minari dataset into a buffer file, after printing a summary of the data.

    `source` is the path of a log, or `minari:` followed by the id of a dataset. `name` is the name of the plant.
    """
    name = canonical(name)
    plant = make_plant(name, **parameters)
    if source.startswith(_DATASET):
        dataset_id = source.removeprefix(_DATASET)
        for_logs = {
            "--columns": columns, "--time": time, "--missing": missing != "refuse", "--encoding": options.encoding,
            "--date-format": options.date_format, "--na": options.empty, "--delay": delay,
        }  # fmt: skip
        if given := [option for option, value in for_logs.items() if value]:
            raise UserError(f"{given[0]} is for logs; a Minari dataset has no columns, leave it out")
        target = output or Path("runs") / f"{dataset_id.replace('/', '-')}.h5"
        place = _check_target(target)
        arrays, facts, summary = convert_dataset(dataset_id, plant, frequency, name, other_plant, clip_actions)
    else:
        path = Path(source)
        target = output or (path.with_suffix("") if path.suffix.lower() == ".gz" else path).with_suffix(".h5")
        place = _check_target(target)
        stated = parse_columns(columns)
        log = read_log(path, time, missing != "refuse", reserved_names(plant, stated), options)
        arrays, facts, summary = convert(log, plant, stated, frequency, clip_actions, name, missing, delay)
    console.print(summary_table(summary))
    for warning in summary.warnings:
        console.print(f"warning: {warning}", markup=False, highlight=False)
    write_record(place, "buffer", facts, arrays)
    if plant.observed:
        print(f"observed {', '.join(plant.observed)}, as {plant.name} declares; other states are not in the buffer")
    print(f"buffer   {target}")
    # Opening a file never runs a Python file that it names: the next command must name a user's own plant again.
    own = "" if is_installed(name) else f" --plant {shlex.quote(name)}"
    learner = "DQN" if plant.action_choices else "TD3+BC"  # TD3+BC has continuous actions
    print(f"next     replaybench replay {shlex.quote(f'{target}')} --learner {learner}{own}")
    if not plant.action_choices:
        print("         or --learner TD3, where the recorded actions were random or stepped and not a controller's")


def _check_target(path: Path) -> Path:
    place = new_path(path)
    folder = next(above for above in place.parents if above.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; choose another --output") from error
    return place


def show_export(
    console: Console, buffer: Path, dataset_id: str, member: int | None, plant: str | None, output: Path | None
) -> None:
    """Write the complete episodes of a buffer file as a Minari dataset, or all its steps as a table.

    A `dataset_id` with the suffix of a table, such as `.csv`, selects a table.
    """
    if (table := Path(dataset_id)).suffix.lower() in COLUMN_SUFFIXES:
        if output is not None:
            raise UserError(f"--output is for Minari datasets; {table} is the file to write, leave --output out")
        place = check_columns_file(table)
        recording = read_recording(buffer, plant)
        columns = step_columns(recording, chosen_recordings(recording, member))
        write_columns(place, columns)
        print(f"table    {table} ({len(columns['step'])} steps, recordings: {len(set(columns['recording']))})")
        return

    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("episodes", total=None)
        done = export_buffer(
            buffer, dataset_id, member, plant, output, lambda count, of: bar.update(task, completed=count, total=of)
        )
    print(f"episodes {done.episodes} whole ones, {done.steps} steps", end="")
    print(f"; {done.left_out} steps of incomplete ones left out" if done.left_out else "; nothing left out")
    if done.low is not None and done.high is not None:
        print(f"scores   random control returns {done.low:.6g} (0), dynamic programming {done.high:.6g} (1)")
    else:
        print("scores   none to normalise returns by: there are no references, or not of episodes of this length")
    print(f"dataset  {done.folder}")
    prefix = f"MINARI_DATASETS_PATH={shlex.quote(f'{output}')} " if output else ""
    print(f"next     {prefix}python -c \"import minari; print(minari.load_dataset('{dataset_id}').spec)\"")
