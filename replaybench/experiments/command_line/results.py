"""Commands about what came of a sweep. Signatures are options."""

from __future__ import annotations

from pathlib import Path

from tyro.conf import Positional


def report(run: Positional[Path], output: Path | None = None) -> int:
    """Write a sweep's results as one HTML page: what won and how sure that is, then figures to choose from.

    Args:
        run: Run folder, or a results file (.nc) by itself.
        output: File to write; report.html in the run folder if not given.
    """
    from replaybench.experiments.report.command import show_report

    show_report(run, output)
    return 0
