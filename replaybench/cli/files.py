"""Commands about files. Their signatures are their options."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Unpack

from tyro.conf import Positional

from replaybench.cli.options import CellOptions, parameter_values
from replaybench.runtime.configuration import Hertz, NonNegativeInt


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
        output: Buffer file to write; <log>.h5 next to the log (runs/<dataset>.h5) if not given.
        clip_actions: Clip actions that pass the plant's bounds instead of refusing them.
        missing: What to do about empty cells: refuse the log, leave out the steps that have them, or fill states on a
            line and actions by the last.
        encoding: Encoding of a text log, as in cp1251; recognised if not given, where it is UTF-8, UTF-16 or cp1252.
        date_format: Form of dates in a text log, as in %d/%m/%Y %H:%M:%S (of Python's strptime).
        na: Words in a text log that stand for a missing number, as in -9999.
        other_plant: Take a Minari dataset although it names another environment than the plant.
    """
    from replaybench.cli.console import make_console
    from replaybench.data.logs.text import TextOptions
    from replaybench.exchange.commands import show_import

    show_import(
        make_console(), log, plant, parameter_values(parameters), output, columns=columns, time=time,
        frequency=frequency, clip_actions=clip_actions, missing=missing, other_plant=other_plant,
        options=TextOptions(encoding, date_format, na),
    )  # fmt: skip
    return 0


def export(
    buffer: Positional[Path],
    dataset: Positional[str],
    member: NonNegativeInt | None = None,
    plant: str | None = None,
    output: Path | None = None,
    learner: str | None = None,
    **cell: Unpack[CellOptions],
) -> int:
    """Write the whole episodes of a stored buffer as a Minari dataset, or all its steps as a table.

    Args:
        buffer: Buffer file made by `sweep` or `import`; or run folder, of which the options below choose a cell.
        dataset: Id of the dataset, for example replaybench/pendulum/full-per-v0; or table to write (.csv, .json,
            .md, .parquet), a row a step in physical units.
        member: Recording to write, from 0; all of them if not given.
        plant: Of a run folder: the plant of the cell to take; of a buffer, needed only where it is one of your own
            (path/to/file.py:ClassName).
        output: Folder of Minari datasets; $MINARI_DATASETS_PATH, else ~/.minari/datasets, if not given.
    """
    from replaybench.cli.console import make_console
    from replaybench.exchange.commands import show_export
    from replaybench.experiments.cells import find_recording

    chosen, member = find_recording(buffer, member, plant=plant, learner=learner, **cell)
    show_export(make_console(), chosen, dataset, member, plant, output)
    return 0


def export_policy(
    policy: Positional[Path],
    format: Literal["c", "torch", "onnx"] | None = None,
    member: NonNegativeInt | None = None,
    output: Path | None = None,
    plant: str | None = None,
    learner: str | None = None,
    **cell: Unpack[CellOptions],
) -> int:
    """Write a learned policy for use without replaybench: C for a microcontroller, PyTorch, ONNX.

    Args:
        policy: Policy file (.safetensors) of a cell or of `replay`; or run folder, of which options choose a cell.
        format: C99 header without allocation, that tests itself; program of torch.export (.pt2); ONNX model. That of
            the suffix of --output, else C, if not given.
        member: Member whose policy to write, from 0; the one that did best in its last greedy episode if not given.
        output: File to write; policy.h, .pt2 or .onnx next to the policy file if not given. C is named after it.
        plant: Of a run folder: the plant of the cell to take; of a file, needed only where it is one of your own
            (path/to/file.py:ClassName).
        learner: Of a run folder: the learner of the cell to take; of a file, needed only where it is one of your own.
    """
    from replaybench.exchange.policy_export import export_policy
    from replaybench.experiments.cells import find_policy

    # Of a file, a learner does not choose a cell: it allows a file of one's own.
    chosen, place = find_policy(policy, member, plant=plant, learner=learner if policy.is_dir() else None, **cell)
    export_policy(chosen, place, format, output, plant, learner)
    return 0
