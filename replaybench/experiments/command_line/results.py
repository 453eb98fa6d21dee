"""Commands about what came of a sweep. Signatures are options."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from replaybench.experiments.terminal import make_console


def report(run: Positional[Path], output: Path | None = None) -> int:
    """Write a sweep's results as one HTML page: what won and how sure that is, then figures to choose from.

    Args:
        run: Run folder, or a results file (.nc) by itself.
        output: File to write; report.html in the run folder if not given.
    """
    from replaybench.experiments.report.command import show_report

    show_report(run, output)
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
    from replaybench.experiments.figures.command import show_figures

    show_figures(make_console(), run, style, format, output)
    return 0
