"""Commands about files: recordings in, episodes out, and what is in them. Signatures are options."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from replaybench.data.bounds import Hertz, Noise, Whole
from replaybench.experiments.command_line.options import parameter_values


def import_log(
    log: Positional[str],
    plant: str,
    columns: tuple[str, ...] = (),
    time: str | None = None,
    frequency: Hertz | None = None,
    output: Path | None = None,
    clip_actions: bool = False,
    missing: Literal["refuse", "drop", "interpolate"] = "refuse",
    encoding: str | None = None,
    date_format: str | None = None,
    na: tuple[str, ...] = (),
    other_plant: bool = False,
    parameters: tuple[str, ...] = (),
) -> int:
    """Turn recorded trajectories into a buffer file for `replay`.

    Args:
        log: CSV or other text with a header row, LabVIEW .lvm, NPZ, MATLAB .mat or .parquet, columns in physical SI
            units; or minari:DATASET_ID.
        plant: Plant name or path/to/file.py:ClassName.
        columns: Which column holds what, as NAME=COLUMN for the plant's states and actions, reward, terminated,
            truncated and episode; columns that bear those names need not be given.
        time: Column of sample times in s.
        frequency: Control rate in Hz; taken from the time column or the dataset if not given.
        output: Buffer file to write; <log>.h5 beside the log (runs/<dataset>.h5) if not given.
        clip_actions: Clip actions that pass the plant's bounds instead of refusing them.
        missing: What to do about empty cells: refuse the log, leave out the steps that have them, or fill states on a
            line and actions by the last.
        encoding: Encoding of a text log, as in cp1251; recognised if not given, where it is UTF-8, UTF-16 or cp1252.
        date_format: Form of dates in a text log, as in %d/%m/%Y %H:%M:%S (of Python's strptime).
        na: Words in a text log that stand for a missing number, as in -9999.
        other_plant: Take a Minari dataset although it names another environment than the plant.
        parameters: The plant's own parameters as NAME=VALUE; each is an option too, as in --inertia 1.91e-4.
    """
    from replaybench.data.logs.text import TextOptions
    from replaybench.experiments.command_line.console import make_console
    from replaybench.experiments.exchange.commands import show_import

    show_import(
        make_console(),
        log,
        plant,
        parameter_values(parameters),
        columns,
        time,
        frequency,
        output,
        clip_actions,
        missing,
        TextOptions(encoding, date_format, na),
        other_plant,
    )
    return 0


def export(
    buffer: Positional[Path],
    dataset: Positional[str],
    member: Whole | None = None,
    plant: str | None = None,
    output: Path | None = None,
    learner: str | None = None,
    strategy: str | None = None,
    noise: Noise | None = None,
    frequency: Hertz | None = None,
    seed: Whole | None = None,
) -> int:
    """Write the whole episodes of a stored buffer as a Minari dataset, or all its steps as a table.

    Args:
        buffer: Buffer file made by `sweep` or `import`; or run folder, of which the options below choose a cell.
        dataset: Id of the dataset, for example replaybench/pendulum/full-per-v0; or table to write (.csv, .parquet),
            a row a step in physical units.
        member: Recording to write, from 0; all of them if not given.
        plant: The buffer's plant; needed only where it is one of your own (path/to/file.py:ClassName).
        output: Folder of Minari datasets; $MINARI_DATASETS_PATH, else ~/.minari/datasets, if not given.
        learner: Learner of the cell of a run folder.
        strategy: Its strategy.
        noise: Its noise.
        frequency: Its control rate in Hz.
        seed: Its seed: its recording is the one to write.
    """
    from replaybench.experiments.command_line.console import make_console
    from replaybench.experiments.exchange.commands import show_export
    from replaybench.experiments.inspection.finding import find_recording

    chosen, member = find_recording(
        buffer, member, plant=plant, learner=learner, strategy=strategy, noise=noise, frequency=frequency, seed=seed
    )
    show_export(make_console(), chosen, dataset, member, plant, output)
    return 0


def inspect(
    file: Positional[Path],
    verify: bool = False,
    member: Whole | None = None,
    figure: Path | None = None,
    plant: str | None = None,
    learner: str | None = None,
    strategy: str | None = None,
    noise: Noise | None = None,
    frequency: Hertz | None = None,
    seed: Whole | None = None,
) -> int:
    """Say what is in any file that replaybench writes; of a buffer, what its experiences are.

    Args:
        file: Buffer, checkpoint, scores, solution (.h5), policy (.safetensors), results (.nc) or run folder, all
            of it or the cell that the last options choose.
        verify: Check structure and values as well, not only checksums.
        member: Member of a buffer whose composition to show, from 0; all of them, pooled, if not given.
        figure: File (.png, .svg or .pdf) to draw the composition of a buffer into.
        plant: The buffer's plant; needed only where it is one of your own (path/to/file.py:ClassName).
        learner: Learner of the cell of a run folder.
        strategy: Its strategy.
        noise: Its noise.
        frequency: Its control rate in Hz.
        seed: Its seed: its member is the one to show.
    """
    from replaybench.experiments.command_line.console import make_console
    from replaybench.experiments.inspection.finding import find_inspected
    from replaybench.experiments.inspection.inspect import show_file

    chosen, member = find_inspected(
        file, member, plant=plant, learner=learner, strategy=strategy, noise=noise, frequency=frequency, seed=seed
    )
    show_file(make_console(), chosen, verify, member, plant, figure)
    return 0
