"""Commands that compute, as functions whose parameters are the options."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import json
import shlex
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tyro.conf import Positional

from replaybench.cli.options import Form, parameter_values, setting_values
from replaybench.runtime import configuration as bounds
from replaybench.runtime.errors import ReplaybenchWarning, UserError, no_such_file

if TYPE_CHECKING:
    from rich.console import Console

    from replaybench.experiments.study import Study


def sweep(
    study: Positional[Path | None] = None,
    plant: tuple[str, ...] | None = None,
    learner: tuple[str, ...] | None = None,
    strategy: tuple[str, ...] | None = None,
    noise: tuple[bounds.Noise, ...] | None = None,
    frequency: tuple[bounds.Hertz, ...] | None = None,
    output: Path | None = None,
    workers: bounds.Workers | None = None,
    cluster: str | None = None,
    buffers: Literal["final", "compressed", "none"] | None = None,
    seeds: bounds.Seeds | None = None,
    episodes: bounds.Count | None = None,
    set: tuple[str, ...] | None = None,
    checkpoint_seconds: bounds.Seconds = 60.0,
    dry_run: bool = False,
    no_measure: bool = False,
    progress: Literal["bar", "lines", "json"] | None = None,
    tensorboard: bool = False,
    no_rivals: bool = False,
    quiet: bool = False,
) -> int:
    """Run a study, which is a grid of plants, learners, strategies, noise levels and control rates.

    The same command again continues a stopped run, with the same numbers as without the stop. If the study names no
    control rates, each plant runs at its own control rate.

    Args:
        study: Study file (TOML), or the name of a study in replaybench (card, demo, partial). It is not needed if
            --plant and --strategy describe the study.
        plant: Plants, as in --plant PendulumDCSC Magman, which replace those of the study.
        learner: Learners, which replace those of the study.
        strategy: Strategies, which replace those of the study. The first one is the baseline of comparisons.
        noise: Noise levels, which replace those of the study.
        frequency: Control rates in Hz, which replace those of the study.
        output: Run folder. If not given, it is runs/<name of the study> or runs/<plants>.
        buffers: How the replay buffer of each cell is stored at its end: final, compressed (slower) or none. This
            replaces the setting of the study.
        seeds: Number of seeds, which replaces that of the study.
        episodes: Number of episodes (or of iterations, with update_every), which replaces that of the study.
        set: Changed keys of the study, as in --set capacity=5000 learner.DDPG.tau=0.005 'noise=[0, 0.02]'.
        progress: A live line, a plain line every 30 s, or only a JSON object for each event. If not given, a live line
            is shown in a terminal and plain lines elsewhere.
        tensorboard: Also write TensorBoard event files into the run folder.
        no_rivals: Do not tune and score rivals of learners, such as PID controllers. Those of earlier runs are used.
    """
    from rich.console import Console

    from replaybench.cli.console import make_console
    from replaybench.experiments.study import Study, changed, read_study
    from replaybench.reports.figures.style import file_names
    from replaybench.runtime.configuration import build

    if quiet and progress:
        raise UserError("--quiet prints no progress; leave --progress out")
    axes = {"plants": plant, "learners": learner, "strategies": strategy, "noise": noise, "frequency": frequency}
    options = {"buffers": buffers, "seeds": seeds, "episodes": episodes}
    given: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    given |= {key: [*values] for key, values in axes.items() if values}
    changes = setting_values(set or ())
    if twice := [key for key in given if key in changes]:
        raise UserError(f"--set and an option both give {twice[0]}; leave one out")
    if study is None and not (plant and strategy):
        raise UserError("name a study, as in `sweep demo`, or --plant and --strategy; `init` writes a study to change")
    given |= changes
    name = "-".join(file_names(plant or ()))[:100]
    read = read_study(study, given) if study else build(Study, changed({"name": name}, given), "the options")
    only_json = progress == "json" and not dry_run
    console = Console(quiet=True, file=sys.stdout) if only_json else make_console(quiet=quiet and not dry_run)
    # What a user's plant prints must not come between the lines of JSON.
    with contextlib.redirect_stdout(sys.stderr) if only_json else contextlib.nullcontext():
        return _run_study(
            console, read, output or Path("runs") / read.name, workers, cluster, dry_run, no_measure,
            checkpoint_seconds=checkpoint_seconds, progress=progress, tensorboard=tensorboard, rivals=not no_rivals,
        )  # fmt: skip


def reproduce(
    preset: Positional[str | None] = None,
    list: bool = False,
    time: bool = False,
    scale: Literal["quick", "standard", "paper"] = "standard",
    seeds: bounds.Seeds | None = None,
    set: tuple[str, ...] | None = None,
    output: Path | None = None,
    no_copy: bool = False,
    workers: bounds.Workers | None = None,
    cluster: str | None = None,
    checkpoint_seconds: bounds.Seconds = 60.0,
    dry_run: bool = False,
    no_measure: bool = False,
    quiet: bool = False,
) -> int:
    """Run a published figure or table as a study, for example debruin2018/fig12.

    The same command again continues a stopped run. Finished cells of other figures are copied from your run folders
    next to the new one, if their checksums match.

    Args:
        preset: Figure or table, as --list names it.
        list: List all presets with the number of their cells, and their time and memory on this machine.
        time: With --list: first measure the speed of cells not yet timed on this machine. This takes a few minutes.
        scale: Size of the study. quick is a trial, standard has enough seeds to detect large effects, and paper has the
            size in the paper.
        seeds: Number of seeds instead of that of the scale. If the run folder has fewer seeds, only the further seeds
            are computed.
        set: Changed keys of the study, as in --set seeds=8 learner.DDPG.tau=0.005. Needs --output or --dry-run.
        output: Run folder. If not given, it is runs/<preset>-<scale>.
        no_copy: Run all cells, and copy none from neighbouring run folders.
    """
    from replaybench.cli.console import make_console
    from replaybench.cli.plan import announce, show_presets
    from replaybench.evidence.preset import continued, folder_of, read_preset, take_over
    from replaybench.experiments.sweep import cores

    console = make_console(quiet=quiet and not (list or dry_run))
    if list:
        show_presets(console, scale, workers or cores(), time)
        return 0
    if time:
        raise UserError("--time needs --list; for a single preset, --dry-run measures the time")
    if preset is None:
        raise UserError("name a figure to reproduce; `replaybench reproduce --list` shows all presets")
    figure, changes = read_preset(preset), setting_values(set or ())
    if changes and output is None and not dry_run:
        raise UserError("--set changes the preset's study; name another run folder with --output")
    study, folder = figure.study(scale, changes), output or folder_of(figure, scale)
    if seeds is not None:
        study = continued(study, folder, seeds)
    announce(console, figure, scale)
    if set:
        console.print(f"changed: {', '.join(set)}", markup=False, highlight=False)
    for source, cells in take_over(study, folder).items() if not (dry_run or no_copy) else ():
        console.print(f"{cells} finished cell(s) copied from {source}", markup=False, highlight=False)
    return _run_study(
        console, study, folder, workers, cluster, dry_run, no_measure, checkpoint_seconds=checkpoint_seconds
    )


def _run_study(
    console: Console, study: Study, folder: Path, workers: int | None, cluster: str | None, dry_run: bool,
    no_measure: bool, **options: Any,
) -> int:  # fmt: skip
    """Run a study, or print what the study needs if `dry_run`, and return the exit status of the command."""
    from rich.text import Text

    from replaybench.cli.plan import show_plan
    from replaybench.experiments.dataset import all_failed
    from replaybench.experiments.overview import LINES, screen
    from replaybench.experiments.sweep import Figures, cores, run_sweep
    from replaybench.reports.figures.all_figures import draw_figures, figure_paths

    if dry_run:
        show_plan(console, study, folder, workers or cores(), cluster, not no_measure)
        return 0
    if console.quiet and not options.get("progress"):
        warnings.simplefilter("ignore", ReplaybenchWarning)
    figures = Figures(draw_figures, figure_paths)
    data, drawn, status = run_sweep(
        study, folder, workers or cores(), cluster, console=console, figures=figures, **options
    )
    if status:
        print("stopped before the end; run the same command again to continue", file=sys.stderr)
    status = status or int(all_failed(data))
    if console.quiet:
        return status
    command = "report" if drawn else "table"
    for part in screen(data, LINES - 1):
        console.print(part, highlight=False)
    console.print(Text(f"next     replaybench {command} {shlex.quote(str(folder))}"), soft_wrap=True)
    return status


def card(
    strategy: Positional[str], output: Path | None = None, workers: bounds.Workers | None = None, quiet: bool = False
) -> int:
    """Run a strategy on a fixed protocol, and print its rank among other strategies.

    The protocol is the study `card`. The scores of the other strategies come with replaybench. The same command again
    continues a stopped run. The card is also written to card.html and card.md in the run folder.

    Args:
        strategy: Strategy, for example FULL[PER], or a part of one, such as LAP or path/to/file.py:Class for your own.
            A sampling is run with FULL, and a retention with Uniform.
        output: Run folder. If not given, it is runs/card-<strategy>.
    """
    from replaybench.cli.console import make_console
    from replaybench.data.run_folder import AUTHOR, refuse_foreign
    from replaybench.evidence.card import make_card, protocol
    from replaybench.evidence.contract_checks import with_rule
    from replaybench.experiments.sweep import cores, run_sweep
    from replaybench.experiments.text_table import Collector
    from replaybench.reports.figures.style import file_names
    from replaybench.reports.page.card import card_page
    from replaybench.runtime.atomic import write_text
    from replaybench.runtime.user_file import shortened

    strategy = strategy if strategy.endswith("]") else with_rule(strategy, "FULL") or strategy
    study = protocol([strategy], str(Path.cwd()))
    folder = output or Path("runs") / f"card-{file_names([*shortened([strategy]).values()])[0]}"
    page, text = (folder.absolute() / name for name in ("card.html", "card.md"))
    refuse_foreign(page)
    refuse_foreign(text)
    console = make_console(quiet=quiet)
    data, _, status = run_sweep(study, folder, workers or cores(), None, checkpoint_seconds=60.0, console=console)
    if status:
        print("stopped before the end; run the same command again to continue", file=sys.stderr)
        return status
    made, markdown = make_card(study.cells()[0].strategy, data, study), Collector()
    for table in made.tables():
        markdown.print(table)
        make_console().print(table)
    write_text(text, f"{markdown.text('md')}\n*Card {AUTHOR}.*\n")
    write_text(page, card_page(made))
    print(f"card     {folder / page.name} and {text.name}")
    return 0


def baseline(
    plant: Positional[str],
    frequency: bounds.Hertz | None = None,
    noise: bounds.Noise = 0.0,
    delay: bounds.Seconds = 0.0,
    reference: Literal["converged", "paper"] | None = None,
    output: Path | None = None,
    parameters: tuple[str, ...] = (),
    no_rivals: bool = False,
) -> int:
    """Solve a plant by fuzzy Q-iteration, and compare its scores with those of simpler controllers.

    The convergence of synchronous and of asynchronous sweeps is printed.

    Args:
        plant: Plant name (see `replaybench list`) or path/to/file.py:ClassName.
        frequency: Control rate in Hz. If not given, it is the plant's own control rate.
        noise: Standard deviation of sensor and actuator noise, in normalised units.
        delay: Time in seconds from a sample to the moment when its command acts.
        reference: Grid of the solution. converged refines the plant's grid until the result no longer changes, and
            paper uses the grid that the plant declares. If not given, the plant chooses.
        output: Folder for the figure. If not given, it is runs/baseline-<plant>-<rate>.
        no_rivals: Do not tune and score rivals of learners, such as PID controllers.
    """
    from replaybench.cli.baseline import show_baseline
    from replaybench.cli.console import make_console
    from replaybench.envs.registry import DELAY

    show_baseline(
        make_console(),
        f"{plant}{DELAY}{delay!r}" if delay else plant,
        parameter_values(parameters),
        frequency,
        noise,
        reference,
        output,
        not no_rivals,
    )
    return 0


def replay(
    buffer: Positional[Path],
    strategy: str = "FULL[Uniform]",
    stream: bool = False,
    plant: str | None = None,
    updates: bounds.Count = 20_000,
    learner: str = "DDPG",
    capacity: bounds.Count | None = None,
    seeds: bounds.Seeds | None = None,
    root_seed: bounds.RootSeed = 0,
    set: tuple[str, ...] | None = None,
    discount: bounds.Discount | None = None,
    evaluation_noise: bounds.Noise | None = None,
    from_learner: str | None = None,
    from_strategy: str | None = None,
    noise: bounds.Noise | None = None,
    frequency: bounds.Hertz | None = None,
    seed: bounds.NonNegativeInt | None = None,
    output: Path | None = None,
) -> int:
    """Train new learners offline from a stored buffer, then evaluate them on the buffer's plant.

    Args:
        buffer: Buffer file that `sweep` or `import` wrote, or a run folder. The options --from-strategy,
            --from-learner, --noise, --frequency and --seed choose a cell of the run folder.
        strategy: Retention[Sampling], for example FULL[PER] or Resv[Uniform].
        stream: Read batches from the file block by block, for buffers larger than memory. Sampling is then not uniform,
            and no strategy is used.
        plant: Plant on which the learners are evaluated. This is needed only if the plant is your own
            (path/to/file.py:ClassName).
        updates: Number of updates of every learner.
        learner: Learner (see `replaybench list`).
        capacity: Capacity of each buffer. If not given, each buffer holds everything in the file.
        seeds: Number of learners to train. If not given, it is one per recording in the file, and at least 8.
        set: Changed settings of the learner, as in --set tau=0.005 exploration.first_amplitude=0.5 'hidden=[64, 64]'.
        discount: Discount factor of a control step. If not given, it is that of the run that filled the buffer.
        evaluation_noise: Noise during evaluation. If not given, it is the noise in the buffer.
        from_learner: Use the cell of the run folder with this learner.
        from_strategy: Use the cell of the run folder with this strategy.
        output: Folder for policy, scores and figure. If not given, it is
            runs/replay-<file>-<learner>-<strategy>-<updates>.
    """
    from replaybench.cli.console import make_console
    from replaybench.exchange.offline import Changes
    from replaybench.experiments.cell_lookup import find_file
    from replaybench.reports.offline import offline_parts, run_replay

    file, member = find_file(
        buffer, None, "buffer", plant=plant, learner=from_learner, strategy=from_strategy, noise=noise,
        frequency=frequency, seed=seed, options={"learner": "--from-learner", "strategy": "--from-strategy"},
    )  # fmt: skip
    console = make_console()
    scores, files = run_replay(
        console, file, output, strategy, learner, plant=plant, stream=stream, updates=updates,
        capacity=capacity, seeds=seeds, root_seed=root_seed, member=member,
        changes=Changes(setting_values(set or ()), discount, evaluation_noise),
    )  # fmt: skip
    for part in offline_parts(scores):
        console.print(part, highlight=False)
    for content, path in files.items():
        print(f"{content}   {path}")
    return 0


_FOR_RUNS: Final = (
    "budget_minutes",
    "learner",
    "observe",
    "seeds",
    "episodes",
    "probes",
    "root_seed",
    "set",
    "output",
    "workers",
)
"""Options of `advise` that are for new runs only, and are refused with a run folder or a buffer file."""


def table(
    run: Positional[Path],
    baseline: str | None = None,
    compare: Literal["strategy", "learner", "noise", "frequency", "plant"] | None = None,
    strategies: tuple[str, ...] = (),
    explain: bool = False,
    output: Path | None = None,
    format: Form = "text",
) -> int:
    """Print the tables of a sweep again, with scores, comparisons, and recency, entropy and noise of what was replayed.

    Args:
        run: Run folder, or a results file (.nc).
        baseline: Value to compare the others with, for example a strategy. If not given, it is the study's first value.
        compare: Axis on which values are compared. If not given, it is strategy or, if there is only one, the first
            other axis that varies.
        strategies: Strategies to show, as in --strategies FIFO[Uniform] FULL[PER]; the first one is the baseline. Only
            these are a family of comparisons, for which p values are corrected.
        explain: Also explain the columns of comparisons.
        output: File (.csv, .json, .md, .parquet) to which scores are also written. It has one row for each cell.
        format: text, md and latex (with booktabs) print tables. json and csv print the scores with all digits, as in
            --output, or the comparison with --baseline or --compare.
    """
    from replaybench.cli.console import printing
    from replaybench.data.documents import as_rows, check_columns_file, rows_text, write_columns
    from replaybench.experiments.comparison import comparison_tables, value_of
    from replaybench.experiments.dataset import without_rewards
    from replaybench.experiments.results_file import read_results
    from replaybench.experiments.tables import measure_tables, noise_tables, replay_tables, score_columns, score_tables

    if output is not None:
        place = check_columns_file(output)
    data = read_results(run)
    if strategies:
        data = data.sel(strategy=[*dict.fromkeys(value_of(data, name) for name in strategies)])
    if not (scores := score_tables(data)):
        raise without_rewards(run, data, "a table needs")
    tables = comparison_tables(data, baseline, compare, explain)
    others = [*measure_tables(data), *replay_tables(data), *noise_tables(data)]
    if format in ("json", "csv"):
        scores, others = [], []
    if scores or baseline or compare:
        with printing(format) as console:
            for shown in (*scores, *tables, *others):
                console.print(shown)
    else:
        print(rows_text(as_rows(score_columns(data)), format), end="")
    if output is not None:
        write_columns(place, score_columns(data))
        print(f"table    {output}", file=sys.stdout if format == "text" else sys.stderr)
    return 0


def claims(
    runs: Positional[tuple[Path, ...]] = (),
    paper: str | None = None,
    claim: str | None = None,
    plan: bool = False,
    output: Path | None = None,
    figure: Path | None = None,
    format: Form = "text",
) -> int:
    """Test published claims by the results of runs.

    The verdict on a claim is printed with effect, interval and the number of seeds that would decide it. Without runs,
    the claims are listed.

    Args:
        runs: Run folders of presets, or of studies that contain the same combinations of settings.
        paper: Test the claims of this paper only, for example debruin2018.
        claim: Show only the claim with this name.
        plan: Print the commands that compute further seeds for undecided claims, the most decisions per core hour
            first.
        output: File to which verdicts are also written, as JSON.
        figure: File (.png, .svg or .pdf) to draw effects and verdicts into.
        format: text, md and latex print tables. json and csv print the verdicts with all digits.
    """
    from replaybench.cli.claims import show_claims, show_plan
    from replaybench.cli.console import make_console, printing
    from replaybench.data.documents import rows_text

    if plan:
        if output is not None or figure is not None or format != "text":
            raise UserError("--plan prints commands only; leave --output, --figure and --format out")
        show_plan(runs, () if paper is None else (paper,), claim)
        return 0
    asked = (runs, () if paper is None else (paper,), output, figure, claim)
    if format in ("json", "csv"):
        with contextlib.redirect_stdout(sys.stderr):
            records = show_claims(make_console(quiet=True), *asked)
        print(rows_text(records, format), end="")
        return 0
    with printing(format) as console:
        show_claims(console, *asked)
    return 0


def advise(
    run: Positional[Path | None] = None,
    plant: str | None = None,
    budget_minutes: bounds.Seconds = 10.0,
    noise: bounds.Noise | None = None,
    frequency: bounds.Hertz | None = None,
    learner: str = "DDPG",
    observe: tuple[str, ...] | None = None,
    memory: bounds.Count | None = None,
    seeds: bounds.Seeds = 10,
    episodes: bounds.Count | None = None,
    probes: bounds.Count | None = None,
    root_seed: bounds.RootSeed = 0,
    set: tuple[str, ...] = (),
    output: Path | None = None,
    workers: bounds.Workers | None = None,
    format: Literal["text", "json"] = "text",
) -> int:
    """Propose retention and sampling for a plant, after runs with FULL[Uniform] and some other strategies.

    The same command again continues a stopped run and reuses finished ones. With a run folder, nothing is run, and the
    proposal depends on the results in the folder. With a buffer file, such as one that `import` wrote, nothing is run,
    and the proposal depends on rules.

    Args:
        run: Run folder of a sweep with FULL[Uniform] and other strategies, or a buffer file, instead of a plant.
        plant: Plant name (see `replaybench list`) or path/to/file.py:ClassName. With a run folder, this is one of its
            plants. With a buffer file, this plant replaces the plant that the file names.
        budget_minutes: Wall-clock time in minutes for the runs and dynamic programming. The first compilation of
            kernels takes additional time.
        noise: Standard deviation of sensor and actuator noise, in normalised units. With a run folder, this is one of
            its noise levels.
        frequency: Control rate in Hz; by default the plant's own. With a run folder, this is one of its control rates.
        learner: Learner (see `replaybench list`).
        observe: Names of the states that the learner observes. If not given, the plant declares them, or all are
            observed.
        memory: Largest number of experiences in a buffer. If not given, there is no limit.
        seeds: Number of seeds of each strategy. Intervals of fewer than ten seeds are too narrow.
        episodes: Number of episodes of each run. If not given, it is as large as the budget allows.
        probes: Largest number of strategies to try in addition to FULL[Uniform]. If not given, it is as large as the
            budget allows, and at most eight.
        set: Changed settings of the learner, as in --set tau=0.005.
        output: Folder of the runs. If not given, it is runs/advice-PLANT.
        format: text prints text. json prints one object or, for a run folder, a list of objects, and progress then goes
            to stderr.
    """
    given = dict(locals())
    from rich.console import Console

    from replaybench.api import advice
    from replaybench.cli.console import make_console
    from replaybench.evidence.advice.advise import as_record
    from replaybench.evidence.advice.text import advice_parts

    if run is None and plant is None:
        raise UserError("name a plant, as in --plant PendulumDCSC, a run folder with FULL[Uniform], or a buffer file")
    if run is not None:
        if not run.exists():
            raise no_such_file(run)
        what = "buffer file" if run.is_file() else "run folder"
        defaults = inspect.signature(advise).parameters
        for name in (*_FOR_RUNS, *["frequency"] * run.is_file()):  # a file has its own rate
            if given[name] != defaults[name].default:
                option = name.replace("_", "-")
                raise UserError(f"--{option} is for new runs, but a {what} is only read; leave it out")
    console = make_console()
    advices = advice(
        run, plant, output, workers, Console(stderr=True, emoji=False) if format == "json" else console, noise=noise,
        frequency=frequency, memory=memory or 0, learner=learner, seeds=seeds, root_seed=root_seed,
        settings=setting_values(set), observe=observe, episodes=episodes or 0, probes=probes or 0,
        minutes=budget_minutes,
    )  # fmt: skip
    if format == "json":
        records = [as_record(each) for each in advices]
        several = run is not None and run.is_dir()
        print(json.dumps(records if several else records[0], ensure_ascii=False, indent=1))
        return 0
    for part in itertools.chain.from_iterable(map(advice_parts, advices)):
        console.print(part)
    return 0
