"""Commands that show results: watch, report, figures, show, inspect. Their signatures are their options."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Unpack

from tyro.conf import Positional

from replaybench.cli.options import CellOptions, Form
from replaybench.runtime.configuration import NonNegativeInt, RootSeed, Seconds
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
    from replaybench.experiments.cells import find_policy
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
    from replaybench.experiments.cells import find_inspected
    from replaybench.reports.inspection.inspect import show_file

    chosen, member = find_inspected(file, member, plant=plant, learner=learner, **cell)
    with printing(format) as console:
        show_file(console, chosen, verify, member, plant, figure)
    return 0
