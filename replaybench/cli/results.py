"""Commands that show results or convert files, as functions whose parameters are the options."""

import contextlib
import time
from pathlib import Path
from typing import Literal, Unpack

from tyro.conf import Positional

from replaybench.cli.options import CellOptions, Form, parameter_values
from replaybench.runtime.configuration import Hertz, Noise, NonNegativeInt, RootSeed, Seconds
from replaybench.runtime.errors import UserError


def watch(run: Positional[Path]) -> int:
    """Show the progress of a sweep with its cells, learning curves and remaining time.

    Ctrl-C ends the display and does not stop the sweep.

    Args:
        run: Run folder of a sweep that runs, has ended or was interrupted.
    """
    from replaybench.cli.console import make_console
    from replaybench.cli.watch import watch_run

    watch_run(make_console(), run)
    return 0


def report(run: Positional[Path], output: Path | None = None) -> int:
    """Write the results of a sweep or of an offline replay as one HTML page.

    The page begins with the best strategies and their intervals. Figures with filters follow.

    Args:
        run: Run folder, a results file (.nc), or a folder that `replay` wrote.
        output: File to write. If not given, it is report.html in the run folder.
    """
    from replaybench.reports.page.report import write_report

    began = time.perf_counter()
    written = write_report(run, output)
    size = written.stat().st_size / 1e6
    print(f"report   {written} ({size:.1f} MB, {time.perf_counter() - began:.0f} s)")
    return 0


def figures(
    run: Positional[Path],
    style: Literal["screen", "paper"] = "screen",
    format: Literal["pdf", "png", "svg"] | None = None,
    axis: Literal["episodes", "steps"] = "episodes",
    overlay: tuple[str, ...] = (),
    output: Path | None = None,
) -> int:
    """Draw the figures of a sweep again, for a screen or for print in the columns of a journal.

    Args:
        run: Run folder.
        style: screen draws figures with title and caption. paper draws figures without these, 89 or 183 mm wide, with
            embedded fonts.
        format: File format. If not given, figures are written as PNG and SVG for screens, and as PDF for paper.
        axis: Quantity on the x axis of learning curves: training episodes (or iterations), or environment steps.
        overlay: Learning curves of other programs to add, over environment steps. Each has the form LABEL=FILE. A file
            is Stable-Baselines3's monitor.csv, or a CSV file with the columns step and return. Files with equal labels
            are runs of one curve.
        output: Folder to write into. If not given, it is figures or, for paper, figures/paper in the run folder.
    """
    from replaybench.cli.console import make_console
    from replaybench.cli.figures import show_figures

    show_figures(make_console(), run, style, format, output, axis == "steps", overlay)
    return 0


def show(
    plant: Positional[str],
    policy: Path | None = None,
    output: Path | None = None,
    plot: Path | None = None,
    seconds: Seconds | None = None,
    member: NonNegativeInt | None = None,
    learner: str | None = None,
    root_seed: RootSeed = 0,
    references: tuple[str, ...] = (),
    no_rivals: bool = False,
    **cell: Unpack[CellOptions],
) -> int:
    """Show episodes of a plant under random actions or a learned policy, in a window or as a film.

    Args:
        plant: Plant name (see `replaybench list`) or path/to/file.py:ClassName.
        policy: Policy file (.safetensors), or a run folder. Other options choose a cell of the run folder.
        output: Film to write (.gif or .mp4). If neither --output nor --plot is given, a window opens.
        plot: File to write with states, actions and rewards of one episode over time, and those of reference
            controllers: a figure (.png, .svg, .pdf) or a table (.csv, .json, .md, .parquet).
        seconds: Length in seconds of the plant's time, over several episodes if one is too short. If not given, the
            film ends with the first episode that ends after three seconds, or after 500 pictures.
        member: Index, from 0, of a member whose policy is in the file. If not given, it is the member with the highest
            mean score in 32 evaluation episodes.
        learner: Use the cell of the run folder with this learner. With a policy file, this is needed only if the
            learner is your own.
        root_seed: Root seed of the random numbers. Another one gives another episode, with other set points.
        references: Controllers of your own for --plot, as path/to/file.py:ClassName.
        no_rivals: Do not tune rivals for --plot, such as PID controllers, and leave them out.
        noise: Use the cell of the run folder with this noise. Otherwise, this is the noise on the plant. By default, it
            is that of the policy's training, or 0 under random actions.
        frequency: Use the cell of the run folder with this control rate (Hz). Without a policy, this is the control
            rate of the plant.
    """
    from replaybench.cli.console import make_console
    from replaybench.cli.robustness import chosen_references
    from replaybench.data.run_folder import RunFolder
    from replaybench.experiments.cell_lookup import find_file
    from replaybench.experiments.study import read_study
    from replaybench.reports.figures.style import own_settings
    from replaybench.reports.films import show as show_film
    from replaybench.reports.time_series import write_episode

    source = None
    if plot is None and (references or no_rivals):
        raise UserError(f"{'--references' if references else '--no-rivals'} is about --plot; name its file, too")
    if references and no_rivals:
        raise UserError("--no-rivals leaves out your --references, too; leave one of them out")
    if policy is None:
        given = {"strategy": cell.get("strategy"), "member": member, "learner": learner, "seed": cell.get("seed")}
        if names := [f"--{name}" for name, value in given.items() if value is not None]:
            raise UserError(f"there is no policy for {', '.join(names)}; name its file or run folder with --policy")
    elif policy.is_dir():
        source = find_file(policy, member, "policy", plant=plant, learner=learner, **cell)
        with contextlib.suppress(UserError):  # a study of another version
            if plot is not None and not no_rivals:
                chosen_references(make_console(), read_study(RunFolder(policy).study).references, references)
    elif cell.get("frequency") is not None:
        raise UserError("--frequency chooses a cell of a run folder; a policy file runs at the rate of its training")
    else:
        source = find_file(policy, member, "policy", plant=plant, strategy=cell.get("strategy"), seed=cell.get("seed"))
    conditions = source, learner, cell.get("noise"), cell.get("frequency"), root_seed, seconds
    with own_settings():
        if plot is not None:
            print("\n".join(write_episode(plant, plot, *conditions, None if no_rivals else references)))
        if output is not None or plot is None:
            print("\n".join(show_film(plant, output, *conditions)))
    return 0


def robustness(
    run: Positional[Path],
    parameter: str,
    factors: tuple[float, ...] = (),
    values: tuple[float, ...] = (),
    plant: str | None = None,
    learner: str | None = None,
    strategy: str | None = None,
    noise: Noise | None = None,
    frequency: Hertz | None = None,
    references: tuple[str, ...] = (),
    no_rivals: bool = False,
    output: Path | None = None,
) -> int:
    """Evaluate the learned policies and reference controllers of a run on plants with another mass, delay or noise.

    Nothing is trained, tuned or solved again. A table and a figure are written, and the report shows them.

    Args:
        run: Run folder.
        parameter: Parameter of the plant to change, or delay, or noise.
        factors: Factors by which the parameter is multiplied, 0.5 0.75 1 1.25 1.5 2 if none are given.
        values: New values of the parameter, in place of factors. A delay is in s, and noise in normalised units.
        plant: Use the cells of the run folder with this plant.
        learner: Use the cells with this learner.
        strategy: Use the cells with this strategy.
        noise: Use the cells with this noise.
        frequency: Use the cells with this control rate (Hz).
        references: Your own controllers that the study names, such as pid.py:MyPID. The others are left out, because
            opening a run folder never executes code that it names.
        no_rivals: Do not evaluate rivals of learners, such as tuned PID controllers.
        output: Folder to write into. If not given, it is robustness in the run folder.
    """
    from replaybench.cli.console import make_console
    from replaybench.cli.robustness import show_robustness

    if factors and values:
        raise UserError("--factors and --values both give values of the parameter; leave one out")
    if references and no_rivals:
        raise UserError("--no-rivals leaves out your --references, too; leave one of them out")
    chosen = {"plant": plant, "learner": learner, "strategy": strategy, "noise": noise, "frequency": frequency}
    chosen = {axis: value for axis, value in chosen.items() if value is not None}
    show_robustness(make_console(), run, parameter, factors, values, chosen, references, not no_rivals, output)
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
    """Print the contents of a file that replaybench wrote, or of a run folder.

    For a buffer, the composition of its experiences is printed, too.

    Args:
        file: Buffer, checkpoint, scores or solution (.h5), policy (.safetensors), results (.nc), or run folder. Options
            can choose a cell of a run folder. The buffer or scores of the cell are then printed.
        verify: Check structure and values as well as checksums.
        member: Index, from 0, of the member whose buffer is described. If not given, all members are described
            together.
        figure: File (.png, .svg or .pdf) to draw the composition of a buffer into.
        plant: Use the cell of the run folder with this plant. With a buffer, this is needed only if the plant is your
            own (path/to/file.py:ClassName).
    """
    from replaybench.cli.console import printing
    from replaybench.cli.inspect import show_file
    from replaybench.experiments.cell_lookup import find_inspected

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
    delay: Seconds = 0.0,
    missing: Literal["refuse", "drop", "interpolate"] = "refuse",
    encoding: str | None = None,
    date_format: str | None = None,
    na: tuple[str, ...] = (),
    other_plant: bool = False,
    parameters: tuple[str, ...] = (),
) -> int:
    """Turn recorded trajectories into a buffer file for `replay`.

    Args:
        log: File with columns in physical SI units. It is CSV or other text with a header row, LabVIEW .lvm, NPZ,
            MATLAB .mat or .parquet. A Minari dataset is named as minari:DATASET_ID.
        plant: Plant name or path/to/file.py:ClassName.
        columns: Columns of the log, each as NAME=COLUMN. A NAME is a state or action of the plant, reward, terminated,
            truncated or episode. Columns with exactly these names need not be given.
        time: Column of sample times in s.
        frequency: Control rate in Hz. If not given, it is taken from the time column or the dataset.
        output: Buffer file to write. If not given, it is <log>.h5 next to the log, or runs/<dataset>.h5.
        delay: Time in seconds until a recorded action acts, a multiple of the control period. Each step gets the action
            that acts in it.
        clip_actions: Clip actions outside the plant's bounds instead of refusing the log or dataset.
        missing: Treatment of empty cells: refuse the log, drop the steps that have empty cells, or interpolate states
            linearly and repeat the last action.
        encoding: Encoding of a text log, for example cp1251. If not given, UTF-8, UTF-16 and cp1252 are recognised.
        date_format: Format of dates in a text log for Python's strptime, for example %d/%m/%Y %H:%M:%S.
        na: Words in a text log, or numbers in any log, that stand for a missing number, for example -9999.
        other_plant: Import a Minari dataset even if it names another environment than the plant.
    """
    from replaybench.cli.console import make_console
    from replaybench.cli.exchange import show_import
    from replaybench.data.logs.text import TextOptions

    show_import(
        make_console(), log, plant, parameter_values(parameters), output, columns=columns, time=time,
        frequency=frequency, clip_actions=clip_actions, delay=delay, missing=missing, other_plant=other_plant,
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
        buffer: Buffer file that `sweep` or `import` wrote, or a run folder. Options choose a cell of the run folder.
        dataset: Id of the dataset, for example replaybench/pendulum/full-per-v0. Instead, it can be a table to write
            (.csv, .json, .md, .parquet), which has one row for each step, in physical units.
        member: Index, from 0, of the recording to write. If not given, all recordings are written.
        plant: Use the cell of the run folder with this plant. With a buffer, this is needed only if the plant is your
            own (path/to/file.py:ClassName).
        output: Folder of Minari datasets. If not given, it is $MINARI_DATASETS_PATH, or else ~/.minari/datasets.
    """
    from replaybench.cli.console import make_console
    from replaybench.cli.exchange import show_export
    from replaybench.experiments.cell_lookup import find_file

    chosen, member = find_file(buffer, member, "buffer", plant=plant, learner=learner, **cell)
    show_export(make_console(), chosen, dataset, member, plant, output)
    return 0


def export_policy(
    policy: Positional[Path],
    format: Literal["c", "torch", "onnx"] | None = None,
    member: NonNegativeInt | None = None,
    output: Path | None = None,
    plant: str | None = None,
    learner: str | None = None,
    rival: Literal["PID", "LQI"] | None = None,
    **cell: Unpack[CellOptions],
) -> int:
    """Write a learned policy as C source, PyTorch program or ONNX model, for use without replaybench.

    Args:
        policy: Run folder, or policy file (.safetensors) of a cell or of the command `replay`. Options choose a cell of
            the run folder.
        format: c is a C99 header without allocation and with a self-test. torch is a program of torch.export (.pt2).
            onnx is an ONNX model. If not given, the suffix of --output decides, or else the format is C.
        member: Index, from 0, of the member whose policy is written. If not given, it is the member with the highest
            mean score in 32 evaluation episodes.
        output: File to write. If not given, it is the path of the policy file with the suffix .h, .pt2 or .onnx. C
            functions are named after the file.
        plant: Use the cell of the run folder with this plant. With a file, this is needed only if the plant is your own
            (path/to/file.py:ClassName).
        learner: Use the cell of the run folder with this learner. With a file, this is needed only if the learner is
            your own.
        rival: Write a tuned PID controller, or linear-quadratic control with integral action, instead of a policy. Only
            C is possible.
    """
    from replaybench.exchange.policy_export import export_policy, export_rival
    from replaybench.experiments.cell_lookup import find_file

    if rival is not None:
        given = {"member": member, "learner": learner, "strategy": cell.get("strategy"), "seed": cell.get("seed")}
        given |= {"format": None if format == "c" else format}
        if names := [f"--{name}" for name, value in given.items() if value is not None]:
            raise UserError(f"--rival {rival} is C code that does not depend on {', '.join(names)}; leave it out")
        lines = export_rival(policy, rival, output, plant, noise=cell.get("noise"), frequency=cell.get("frequency"))
        print("\n".join(lines))
        return 0
    # With a policy file, `learner` does not choose a cell; it names a Python file that may be imported.
    named = learner if policy.is_dir() else None
    chosen, place = find_file(policy, member, "policy", plant=plant, learner=named, **cell)
    print("\n".join(export_policy(chosen, place, format, output, plant, learner)))
    return 0
