"""The command line. Heavy libraries are imported where they are used, so that help is instant."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import tyro
from tyro.conf import Positional

from replaybench.data.bounds import Count, Hertz, Noise, RootSeed, Seconds, Seeds, Whole, Workers
from replaybench.data.errors import UserError, unknown
from replaybench.experiments.address_space import check_address_space
from replaybench.experiments.cli_options import check_options, one_line, parameter_values, take_plant_parameters
from replaybench.experiments.interruption import exit_status, termination_raises
from replaybench.experiments.terminal import make_console, prepare_streams, printable


def sweep(
    study: Positional[Path],
    output: Path | None = None,
    workers: Workers | None = None,
    cluster: str | None = None,
    buffers: Literal["final", "compressed", "none"] | None = None,
    seeds: Seeds | None = None,
    episodes: Count | None = None,
    checkpoint_seconds: Seconds = 60.0,
    dry_run: bool = False,
) -> int:
    """Run a study: a grid of plants, noise, frequencies and strategies against dynamic programming.

    Called again, it continues where it stopped, with the same numbers. Plants run at their own control rates where the
    study names none.

    Args:
        study: Study file (TOML); examples/demo.toml is one.
        output: Run folder; runs/<name of the study> if not given.
        workers: Worker processes; one per core if not given.
        cluster: Address of a Dask scheduler (tcp://host:8786) to run the cells on instead.
        buffers: Whether to keep each cell's replay buffer, as it is or packed (slower); overrides the study.
        seeds: Number of seeds; overrides the study.
        episodes: Number of episodes, or of rounds as long as one (see update_every); overrides the study.
        checkpoint_seconds: Least time between the checkpoints of a running cell; changes no numbers.
        dry_run: Print the cells and what they need in time, memory and disk; run nothing.
    """
    from replaybench.experiments.figures.all_figures import draw_figures
    from replaybench.experiments.results.tables import noise_tables, score_tables
    from replaybench.experiments.sweep import cores, run_sweep
    from replaybench.experiments.training.study import read_study

    given = {"buffers": buffers, "seeds": seeds, "episodes": episodes}
    read = read_study(study, {key: value for key, value in given.items() if value is not None})
    folder, count = output or Path("runs") / read.name, workers or cores()
    console = make_console()
    if dry_run:
        from replaybench.experiments.plan_report import show_plan

        show_plan(console, read, folder, count)
        return 0
    data, drawn, status = run_sweep(
        read,
        folder,
        count,
        cluster,
        checkpoint_seconds=checkpoint_seconds,
        console=console,
        figures=draw_figures,
    )
    for table in (*score_tables(data), *noise_tables(data)):
        console.print(table)
    print(f"results  {folder / 'results.nc'}")
    print(f"cells    {folder / 'cells'} (scores, policies{', buffers' if read.buffers != 'none' else ''})")
    for path in drawn:
        print(f"figure   {path}")
    if status:
        print("stopped before the end; run the same command again to continue", file=sys.stderr)
    return status


def baseline(
    plant: Positional[str],
    frequency: Hertz | None = None,
    noise: Noise = 0.0,
    reference: Literal["converged", "paper"] | None = None,
    output: Path | None = None,
    parameters: tuple[str, ...] = (),
) -> int:
    """Solve a plant by fuzzy Q-iteration, synchronous and asynchronous, and score it beside simpler control.

    Args:
        plant: Plant name (see `replaybench list`) or path/to/file.py:ClassName.
        frequency: Control rate in Hz; the plant's own if not given.
        noise: Standard deviation of sensor and actuator noise, normalised units.
        reference: Solve on the plant's grid refined until that changes nothing more, or as declared; the plant's own
            choice if not given.
        output: Folder for the figure; runs/baseline-<plant>-<rate> if not given.
        parameters: The plant's own parameters as NAME=VALUE; each is an option too, as in --inertia 1.91e-4.
    """
    from replaybench.envs.registry import make_plant
    from replaybench.experiments.commands import show_baseline

    values = parameter_values(parameters)
    rate = make_plant(plant, **values).frequency if frequency is None else frequency
    show_baseline(make_console(), plant, values, rate, noise, reference, output)
    return 0


def replay(
    buffer: Positional[Path],
    strategy: str = "FULL[Uniform]",
    stream: bool = False,
    plant: str | None = None,
    updates: Count = 20_000,
    learner: str = "DDPG",
    capacity: Count | None = None,
    seeds: Seeds | None = None,
    root_seed: RootSeed = 0,
    output: Path | None = None,
) -> int:
    """Train a fresh population from a stored buffer, offline, then evaluate it on the plant the file names.

    Args:
        buffer: Buffer file made by `sweep` or `import`.
        strategy: Retention[Sampling], for example FULL[PER] or Resv[Uniform].
        stream: Draw from the file block by block, for buffers larger than memory; not uniform, and without a strategy.
        plant: Plant to evaluate on; needed only where the file names a plant of your own (path/to/file.py:ClassName).
        updates: Updates of every learner.
        learner: Learner (see `replaybench list`).
        capacity: Slots of each buffer; by default everything in the file is kept.
        seeds: Learners to train; by default one per recording in the file, at least 8.
        root_seed: Root seed of the learners.
        output: Folder for policy, scores and figure; runs/replay-<file>-<strategy>-<updates> if not given.
    """
    from replaybench.experiments.commands import show_replay

    show_replay(make_console(), buffer, plant, strategy, stream, updates, learner, capacity, seeds, root_seed, output)
    return 0


def import_log(
    log: Positional[str],
    plant: str,
    columns: tuple[str, ...] = (),
    time: str | None = None,
    frequency: Hertz | None = None,
    output: Path | None = None,
    clip_actions: bool = False,
    parameters: tuple[str, ...] = (),
) -> int:
    """Turn recorded trajectories into a buffer file for `replay`.

    Args:
        log: CSV with a header row, NPZ, MATLAB .mat or .parquet, columns in physical SI units; or minari:DATASET_ID.
        plant: Plant name or path/to/file.py:ClassName.
        columns: Which column holds what, as NAME=COLUMN for the plant's states and actions, reward, terminated;
            columns that bear those names need not be given.
        time: Column of sample times in s.
        frequency: Control rate in Hz; taken from the time column or the dataset if not given.
        output: Buffer file to write; <log>.h5 beside the log (runs/<dataset>.h5) if not given.
        clip_actions: Clip actions that pass the plant's bounds instead of refusing them.
        parameters: The plant's own parameters as NAME=VALUE; each is an option too, as in --inertia 1.91e-4.
    """
    from replaybench.experiments.exchange.commands import show_import

    show_import(
        make_console(), log, plant, parameter_values(parameters), columns, time, frequency, output, clip_actions
    )
    return 0


def export(
    buffer: Positional[Path],
    dataset: Positional[str],
    member: Whole | None = None,
    plant: str | None = None,
    output: Path | None = None,
) -> int:
    """Write the whole episodes of a stored buffer as a Minari dataset.

    Args:
        buffer: Buffer file made by `sweep` or `import`.
        dataset: Id of the dataset, for example replaybench/pendulum/full-per-v0.
        member: Recording to write, from 0; all of them if not given.
        plant: The buffer's plant; needed only where the file names a plant of your own (path/to/file.py:ClassName).
        output: Folder of Minari datasets; $MINARI_DATASETS_PATH, else ~/.minari/datasets, if not given.
    """
    from replaybench.experiments.exchange.commands import show_export

    show_export(make_console(), buffer, dataset, member, plant, output)
    return 0


def inspect(
    file: Positional[Path],
    verify: bool = False,
    member: Whole | None = None,
    figure: Path | None = None,
    plant: str | None = None,
) -> int:
    """Say what is in any file that replaybench writes; of a buffer, what its experiences are.

    Args:
        file: Buffer, checkpoint, scores, solution (.h5), policy (.safetensors), results (.nc) or run folder.
        verify: Check structure and values as well, not only checksums.
        member: Member of a buffer whose composition to show, from 0; all of them, pooled, if not given.
        figure: File (.png, .svg or .pdf) to draw the composition of a buffer into.
        plant: The buffer's plant; needed only where the file names a plant of your own (path/to/file.py:ClassName).
    """
    from replaybench.experiments.inspection.inspect import show_file

    show_file(make_console(), file, verify, member, plant, figure)
    return 0


def list_names(what: Positional[Literal["all", "plants", "strategies", "learners"]] = "all") -> int:
    """Show the plants, strategies and learners that studies can name.

    Args:
        what: Which of them.
    """
    from replaybench.experiments.inspection.inspect import show_names

    show_names(make_console(), what)
    return 0


def check(name: Positional[str]) -> int:
    """Check what every plant, strategy and learner promises; a line for each promise, exit status 1 if one is broken.

    Args:
        name: path/to/file.py:ClassName; or a name that `replaybench list` shows, or a whole strategy.
    """
    from replaybench.experiments.contracts.command import show_check

    return show_check(make_console(), name)


COMMANDS: dict[str, Callable[..., int]] = {
    "sweep": sweep,
    "baseline": baseline,
    "replay": replay,
    "import": import_log,
    "export": export,
    "inspect": inspect,
    "list": list_names,
    "check": check,
}


DESCRIPTION = """Which experiences should a learning controller keep, and which should it replay?

sweep runs a study, baseline solves a plant by dynamic programming, replay learns offline from a stored buffer.
import and export take recordings in (logs, MATLAB, Parquet, Minari) and give whole episodes out (Minari).
check tries what a plant, strategy or learner of your own promises to the rest."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a user's mistake is one line on stderr and exit status 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    prepare_streams()
    try:
        with termination_raises():
            sys.exit(_run(words))
    except UserError as error:
        _fail(2, str(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        _fail(2, f"{error.filename or 'input or output'}: {error.strerror or error}")
    except MemoryError as error:
        _fail(2, " ".join(f"not enough memory; ask for fewer seeds, episodes or slots. {error}".split()))
    except KeyboardInterrupt as interruption:
        _fail(exit_status(interruption), str(interruption) or "stopped")


def _fail(status: int, reason: str) -> NoReturn:
    print(f"replaybench: {printable(reason)}", file=sys.stderr)
    sys.exit(status)


def _run(words: list[str]) -> int:
    if words in (["--version"], ["-V"]):
        from replaybench import __version__

        print(f"replaybench {__version__}")
        return 0
    if words and not words[0].startswith("-") and words[0] not in COMMANDS:
        raise unknown("command", words[0], COMMANDS)
    if not words:
        words = ["--help"]
    words = take_plant_parameters(words)
    if words[0] in COMMANDS:
        check_options(words, COMMANDS[words[0]])
    command = _parse(words)
    check_address_space()
    return command()


def _parse(words: Sequence[str]) -> Callable[[], int]:
    """Return the command that `words` name, with its arguments; the parser's boxes become one line."""
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            found: Callable[[], int] = tyro.extras.subcommand_cli_from_dict(
                {name: _later(command) for name, command in COMMANDS.items()},
                prog="replaybench",
                description=DESCRIPTION,
                args=words,
                sort_subcommands=False,
            )
    except SystemExit as end:
        if not end.code:
            raise
        help_text = f"replaybench {words[0]} --help" if words[0] in COMMANDS else "replaybench --help"
        raise UserError(f"{one_line(told.getvalue())}; see {help_text}") from None
    return found


def _later(command: Callable[..., int]) -> Callable[..., Callable[[], int]]:
    @functools.wraps(command)
    def bound(*arguments: Any, **named: Any) -> Callable[[], int]:
        return functools.partial(command, *arguments, **named)

    return bound


if __name__ == "__main__":
    main()
