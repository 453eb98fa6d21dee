"""Commands that show results, and that read and write files. Their signatures are their options."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Unpack

from tyro.conf import Positional

from replaybench.cli.options import CellOptions, Form, parameter_values
from replaybench.runtime.configuration import Hertz, NonNegativeInt, RootSeed, Seconds
from replaybench.runtime.errors import UserError


def watch(run: Positional[Path]) -> int:
    """Show a run while it learns: cells, curves, failures, time left. Ctrl-C leaves the run alone.

    Args:
        run: Run folder of a sweep that runs, has ended or was interrupted.
    """
    from replaybench.cli.console import make_console
    from replaybench.reports.watch import watch_run

    watch_run(make_console(), run)
    return 0


def report(run: Positional[Path], output: Path | None = None) -> int:
    """Write a sweep's results as one HTML page: the best strategies with intervals, then figures to choose from.

    Args:
        run: Run folder, or a results file (.nc) by itself; or folder that `replay` wrote.
        output: File to write; report.html in the run folder if not given.
    """
    from replaybench.reports.page.report import show_report

    show_report(run, output)
    return 0


def figures(
    run: Positional[Path],
    style: Literal["screen", "paper"] = "screen",
    format: Literal["pdf", "png", "svg"] | None = None,
    axis: Literal["episodes", "steps"] = "episodes",
    overlay: tuple[str, ...] = (),
    output: Path | None = None,
) -> int:
    """Draw the figures of a sweep again: for a screen, or for print in a journal's columns.

    Args:
        run: Run folder.
        style: For a screen, with title and caption; or on paper: without, 89 or 183 mm wide, fonts embedded.
        format: Kind of file; PNG and SVG for screens and PDF for paper if not given.
        axis: What learning curves are drawn over: training episodes (or iterations), or environment steps.
        overlay: Learning curves from elsewhere to draw with them, over environment steps, as LABEL=FILE:
            Stable-Baselines3's monitor.csv, or a CSV with columns step and return. Files of one label are runs.
        output: Folder to write into; figures in the run folder, and there figures/paper, if not given.
    """
    from replaybench.cli.console import make_console
    from replaybench.reports.figures.all_figures import show_figures

    show_figures(make_console(), run, style, format, output, axis == "steps", overlay)
    return 0


def show(
    plant: Positional[str],
    policy: Path | None = None,
    output: Path | None = None,
    seconds: Seconds | None = None,
    member: NonNegativeInt | None = None,
    learner: str | None = None,
    root_seed: RootSeed = 0,
    **cell: Unpack[CellOptions],
) -> int:
    """Show an episode of a plant in motion, under random actions or a learned policy: in a window, or as a film.

    Args:
        plant: Plant name (see `replaybench list`) or path/to/file.py:ClassName.
        policy: Policy file (.safetensors); or run folder, of which options choose a cell.
        output: Film to write (.gif, .mp4); a window if not given.
        seconds: End of the film in seconds of the plant, whose episodes follow each other where they are short; that of
            the first episode beyond three seconds, or that of 500 pictures, if not given.
        member: Member of the policy file, from 0; the one that did best in its last greedy episode if not given.
        learner: Of a run folder: the learner of the cell to take; of a file only where it is one of your own.
        noise: Of a run folder: the noise of the cell to take; else that of the plant.
        frequency: Of a run folder: the control rate in Hz of the cell to take; without a policy, that of the plant.
    """
    from replaybench.experiments.cell_lookup import find_policy
    from replaybench.reports.films import show as show_film

    found = None
    if policy is None:
        given = {"strategy": cell.get("strategy"), "member": member, "learner": learner, "seed": cell.get("seed")}
        if names := [f"--{name}" for name, value in given.items() if value is not None]:
            raise UserError(f"there is no policy for {', '.join(names)}; name its file or run folder with --policy")
    elif policy.is_dir():
        found = find_policy(policy, member, plant=plant, learner=learner, **cell)
    elif cell.get("frequency") is not None:
        raise UserError("--frequency chooses a cell of a run folder; a policy file acts at the rate that it learned at")
    else:
        found = find_policy(policy, member, plant=plant, strategy=cell.get("strategy"), seed=cell.get("seed"))
    show_film(plant, output, found, learner, cell.get("noise"), cell.get("frequency"), root_seed, seconds)
    return 0


def inspect(
    file: Positional[Path],
    verify: bool = False,
    member: NonNegativeInt | None = None,
    figure: Path | None = None,
    plant: str | None = None,
    learner: str | None = None,
    format: Form = "text",
    **cell: Unpack[CellOptions],
) -> int:
    """Print the contents of any file that replaybench writes; of a buffer, the composition of its experiences.

    Args:
        file: Buffer, checkpoint, scores, solution (.h5), policy (.safetensors), results (.nc) or run folder, all
            of it or the cell that the last options choose.
        verify: Check structure and values as well, not only checksums.
        member: Member of a buffer whose composition to show, from 0; all of them, pooled, if not given.
        figure: File (.png, .svg or .pdf) to draw the composition of a buffer into.
        plant: Of a run folder: the plant of the cell to take; of a buffer, needed only where it is one of your own
            (path/to/file.py:ClassName).
    """
    from replaybench.cli.console import printing
    from replaybench.experiments.cell_lookup import find_inspected
    from replaybench.reports.inspection.inspect import show_file

    chosen, member = find_inspected(file, member, plant=plant, learner=learner, **cell)
    with printing(format) as console:
        show_file(console, chosen, verify, member, plant, figure)
    return 0


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
    from replaybench.experiments.cell_lookup import find_recording

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
    from replaybench.experiments.cell_lookup import find_policy

    # Of a file, a learner does not choose a cell: it allows a file of one's own.
    chosen, place = find_policy(policy, member, plant=plant, learner=learner if policy.is_dir() else None, **cell)
    export_policy(chosen, place, format, output, plant, learner)
    return 0
