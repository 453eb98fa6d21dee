"""Write the report of a run."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

from replaybench.data.atomic import write_text
from replaybench.data.errors import UserError


def show_report(run: Path, output: Path | None) -> None:
    """Write the report of a run or an offline replay, and print its path.

    Raises:
        UserError: the run holds no results, `output` exists already, or a library for reports is not installed.
    """
    for library in ("jinja2", "plotly"):
        if importlib.util.find_spec(library) is None:
            raise UserError(f"a report needs {library}; pip install 'replaybench[report]'")
    from replaybench.data.atomic import refuse_existing
    from replaybench.experiments.report.assembly import make_report
    from replaybench.experiments.report.offline import make_offline_report

    if output is not None:  # the report in the run folder is replaced
        refuse_existing(output)
    target = output or (run if run.is_dir() else run.parent) / "report.html"
    began = time.perf_counter()
    offline = run / "scores.h5"
    html = make_offline_report(offline) if offline.is_file() else make_report(run)
    write_text(target, html)
    print(f"report   {target} ({len(html.encode()) / 1e6:.1f} MB, {time.perf_counter() - began:.0f} s)")
