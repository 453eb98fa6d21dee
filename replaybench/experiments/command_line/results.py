"""Commands about what came of a sweep. Signatures are options."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from replaybench.data.bounds import Hertz, Noise, RootSeed, Seconds, Whole
from replaybench.data.errors import UserError


def report(run: Positional[Path], output: Path | None = None) -> int:
    """Write a sweep's results as one HTML page: what won and how sure that is, then figures to choose from.

    Args:
        run: Run folder, or a results file (.nc) by itself; or folder that `replay` wrote.
        output: File to write; report.html in the run folder if not given.
    """
    from replaybench.experiments.report.command import show_report

    show_report(run, output)
    return 0


def show(
    plant: Positional[str],
    policy: Path | None = None,
    out: Path | None = None,
    seconds: Seconds | None = None,
    member: Whole | None = None,
    learner: str | None = None,
    strategy: str | None = None,
    noise: Noise | None = None,
    frequency: Hertz | None = None,
    seed: Whole | None = None,
    root_seed: RootSeed = 0,
) -> int:
    """Show an episode of a plant in motion, under random actions or a learned policy: in a window, or as a film.

    Args:
        plant: Plant name (see `replaybench list`) or path/to/file.py:ClassName.
        policy: Policy file (.safetensors); or run folder, of which options choose a cell.
        out: Film to write (.gif, .mp4); a window if not given.
        seconds: End of the film in seconds of the plant, whose episodes follow each other where they are short; that of
            the first episode beyond three seconds, or that of 500 pictures, if not given.
        member: Member of the policy file, from 0; the one that did best in its last greedy episode if not given.
        learner: Learner of the cell of a run folder; of a file only where it is one of your own.
        strategy: Strategy of the cell of a run folder.
        noise: Noise of the cell of a run folder; beside a policy file, or without a policy, of the plant.
        frequency: Control rate in Hz of the cell of a run folder; without a policy, of the plant.
        seed: Seed of the cell of a run folder.
        root_seed: Root seed of the episode's start and noise.
    """
    from replaybench.experiments.films.show import Asked
    from replaybench.experiments.films.show import show as show_film
    from replaybench.experiments.inspection.finding import find_policy

    found = None
    if policy is None:
        given = {"strategy": strategy, "member": member, "learner": learner, "seed": seed}
        if names := [f"--{name}" for name, value in given.items() if value is not None]:
            raise UserError(f"there is no policy for {', '.join(names)}; name its file or run folder with --policy")
    elif frequency is not None and not policy.is_dir():
        raise UserError("--frequency chooses a cell of a run folder; a policy file acts at the rate that it learned at")
    else:
        axes = {"noise": noise, "frequency": frequency} if policy.is_dir() else {}
        chosen = {"plant": plant, "strategy": strategy, "seed": seed, **axes}
        found = find_policy(policy, member, learner=learner if policy.is_dir() else None, **chosen)
    show_film(Asked(plant, found, learner, noise, frequency, root_seed, seconds), out)
    return 0


def figures(
    run: Positional[Path],
    style: Literal["screen", "paper"] = "screen",
    format: Literal["pdf", "png", "svg"] | None = None,
    output: Path | None = None,
) -> int:
    """Draw the figures of a sweep again: for a screen, or for print in a journal's columns.

    Args:
        run: Run folder.
        style: For a screen, with title and caption; or on paper: without, 89 or 183 mm wide, fonts embedded.
        format: Kind of file; PNG and SVG for screens and PDF for paper if not given.
        output: Folder to write into; figures in the run folder, and there figures/paper, if not given.
    """
    from replaybench.experiments.command_line.console import make_console
    from replaybench.experiments.figures.command import show_figures

    show_figures(make_console(), run, style, format, output)
    return 0


def table(
    run: Positional[Path],
    baseline: str | None = None,
    compare: Literal["strategy", "learner", "noise", "frequency", "plant"] | None = None,
) -> int:
    """Print the tables of a sweep again: scores, how cells compare along an axis of the study, seed by seed, noise.

    Args:
        run: Run folder, or a results file (.nc) by itself.
        baseline: What the others are compared with, e.g. a strategy; the study's first if not given.
        compare: Axis along which cells are compared; strategies if not given, or the first axis that varies.
    """
    from replaybench.data.formats.run_folder import runs_within
    from replaybench.experiments.command_line.console import make_console
    from replaybench.experiments.results.comparison_tables import comparison_tables
    from replaybench.experiments.results.dataset import without_rewards
    from replaybench.experiments.results.results_file import read_results
    from replaybench.experiments.results.tables import noise_tables, score_tables

    console, path = make_console(), run / "results.nc" if run.is_dir() else run
    if run.is_dir() and not path.is_file():
        wanted = f"{run} holds no results.nc; run `replaybench sweep` into it first, or name another run folder"
        raise UserError(runs_within(run) or wanted)
    data = read_results(path)
    if not (scores := score_tables(data)):
        raise without_rewards(path, data, "a table needs")
    for shown in (*scores, *comparison_tables(data, baseline, compare), *noise_tables(data)):
        console.print(shown)
    return 0


def watch(run: Positional[Path]) -> int:
    """Show a run while it learns: cells, curves, failures, time left. Ctrl-C leaves the run alone.

    Args:
        run: Run folder of a sweep that runs, has ended or was interrupted.
    """
    from replaybench.experiments.command_line.console import make_console
    from replaybench.experiments.progress.watch import watch_run

    watch_run(make_console(), run)
    return 0
