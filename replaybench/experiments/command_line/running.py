"""Commands that compute: their signatures are their options. Heavy libraries are imported where they are used."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tyro.conf import Positional

from replaybench.data.bounds import Count, Discount, Hertz, Noise, RootSeed, Seconds, Seeds, Whole, Workers
from replaybench.data.errors import UserError
from replaybench.experiments.command_line.options import parameter_values, setting_values

if TYPE_CHECKING:
    from rich.console import Console

    from replaybench.experiments.progress.listeners import ProgressForm
    from replaybench.experiments.training.study import Study


def sweep(
    study: Positional[Path],
    output: Path | None = None,
    workers: Workers | None = None,
    cluster: str | None = None,
    buffers: Literal["final", "compressed", "none"] | None = None,
    seeds: Seeds | None = None,
    episodes: Count | None = None,
    set: tuple[str, ...] | None = None,
    checkpoint_seconds: Seconds = 60.0,
    dry_run: bool = False,
    no_measure: bool = False,
    progress: Literal["bar", "lines", "json"] | None = None,
    tensorboard: bool = False,
    quiet: bool = False,
) -> int:
    """Run a study: a grid of plants, noise, frequencies and strategies against dynamic programming.

    Called again, it continues where it stopped, with the same numbers. Plants run at their own control rates where the
    study names none.

    Args:
        study: Study file (TOML), or the name of a study that comes with replaybench: demo, partial.
        output: Run folder; runs/<name of the study> if not given.
        workers: Worker processes; one per core if not given.
        cluster: Address of a Dask scheduler (tcp://host:8786) to run the cells on instead.
        buffers: Whether to keep each cell's replay buffer, as it is or packed (slower); overrides the study.
        seeds: Number of seeds; overrides the study.
        episodes: Number of episodes, or of rounds as long as one (see update_every); overrides the study.
        set: Changed keys of the study, as in --set capacity=5000 learner.DDPG.tau=0.005 'noise=[0, 0.02]'.
        checkpoint_seconds: Least time between the checkpoints of a running cell; changes no numbers.
        dry_run: Print the cells and what they need in time, memory and disk; run nothing.
        no_measure: With --dry-run, do not measure how fast kinds of cells are that are new here (at most 5 s each).
        progress: A live line, a plain line every 30 s, or a JSON object for each event and nothing else; a live line in
            a terminal and plain ones elsewhere if not given.
        tensorboard: Write TensorBoard event files too, into the run folder.
        quiet: Print nothing but what went wrong.
    """
    from replaybench.experiments.command_line.console import make_console
    from replaybench.experiments.training.study import read_study

    if quiet and progress:
        raise UserError("--quiet prints no progress; leave --progress out")
    options = {"buffers": buffers, "seeds": seeds, "episodes": episodes}
    given, changes = {key: value for key, value in options.items() if value is not None}, setting_values(set or ())
    if twice := [key for key in given if key in changes]:
        raise UserError(f"--set gives {twice[0]}, which --{twice[0]} gives, too; leave one out")
    read = read_study(study, {**given, **changes})
    folder = output or Path("runs") / read.name
    console = make_console(quiet=not dry_run and (quiet or progress == "json"))
    return run_study(
        console, read, folder, workers, cluster, checkpoint_seconds, dry_run, measure=not no_measure, progress=progress,
        tensorboard=tensorboard,
    )  # fmt: skip


def run_study(
    console: Console,
    study: Study,
    folder: Path,
    workers: int | None,
    cluster: str | None,
    checkpoint_seconds: float,
    dry_run: bool,
    *,
    measure: bool = True,
    progress: ProgressForm | None = None,
    tensorboard: bool = False,
) -> int:
    """Run a study, or say what it needs, as the command `sweep` does; return the exit status.

    On a quiet console nothing is printed, but for progress as JSON.
    """
    from replaybench.experiments.figures.all_figures import draw_figures
    from replaybench.experiments.results.comparison_tables import comparison_tables
    from replaybench.experiments.results.tables import noise_tables, score_tables
    from replaybench.experiments.sweep import cores, run_sweep

    count = workers or cores()
    if dry_run:
        from replaybench.experiments.plan_report import show_plan

        show_plan(console, study, folder, count, cluster, measure)
        return 0
    data, drawn, status = run_sweep(
        study,
        folder,
        count,
        cluster,
        checkpoint_seconds=checkpoint_seconds,
        console=console,
        figures=draw_figures,
        progress=progress,
        tensorboard=tensorboard,
    )
    if status:
        print("stopped before the end; run the same command again to continue", file=sys.stderr)
    if console.quiet:
        return status
    for table in (*score_tables(data), *comparison_tables(data), *noise_tables(data)):
        console.print(table)
    print(f"results  {folder / 'results.nc'}")
    print(f"cells    {folder / 'cells'} (scores, policies{', buffers' if study.buffers != 'none' else ''})")
    for path in drawn:
        print(f"figure   {path}")
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
    from replaybench.experiments.command_line.console import make_console
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
    set: tuple[str, ...] | None = None,
    discount: Discount | None = None,
    evaluation_noise: Noise | None = None,
    from_learner: str | None = None,
    from_strategy: str | None = None,
    noise: Noise | None = None,
    frequency: Hertz | None = None,
    seed: Whole | None = None,
    output: Path | None = None,
) -> int:
    """Train a fresh population from a stored buffer, offline, then evaluate it on the plant the file names.

    Args:
        buffer: Buffer file made by `sweep` or `import`; or run folder, of which --from-strategy, --from-learner,
            --noise, --frequency and --seed choose a cell.
        strategy: Retention[Sampling], for example FULL[PER] or Resv[Uniform].
        stream: Draw from the file block by block, for buffers larger than memory; not uniform, and without a strategy.
        plant: Plant to evaluate on; needed only where it is one of your own (path/to/file.py:ClassName).
        updates: Updates of every learner.
        learner: Learner (see `replaybench list`).
        capacity: Slots of each buffer; by default everything in the file is kept.
        seeds: Learners to train; by default one per recording in the file, at least 8.
        root_seed: Root seed of the learners.
        set: Changed settings of the learner, as in --set tau=0.005 exploration.first_amplitude=0.5 'hidden=[64, 64]'.
        discount: Discount factor of a control step; that of those who filled the buffer if not given.
        evaluation_noise: Noise under which is evaluated; the buffer's if not given.
        from_learner: Learner of the cell of a run folder.
        from_strategy: Its strategy.
        noise: Its noise.
        frequency: Its control rate in Hz.
        seed: Its seed, the only one to learn from.
        output: Folder for policy, scores and figure; runs/replay-<file>-<learner>-<strategy>-<updates> if not given.
    """
    from replaybench.experiments.command_line.console import make_console
    from replaybench.experiments.commands import show_replay
    from replaybench.experiments.inspection.finding import find_recording
    from replaybench.experiments.offline.changes import Changes

    file, member = find_recording(
        buffer, None, plant=plant, learner=from_learner, strategy=from_strategy, noise=noise, frequency=frequency,
        seed=seed, options={"learner": "--from-learner", "strategy": "--from-strategy"},
    )  # fmt: skip
    changes = Changes(setting_values(set or ()), discount, evaluation_noise)
    show_replay(
        make_console(),
        file,
        plant,
        strategy,
        stream,
        updates,
        learner,
        capacity,
        seeds,
        root_seed,
        output,
        member,
        changes,
    )
    return 0
