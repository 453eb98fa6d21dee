"""Functions of the Python interface that combine several packages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from replaybench.experiments.study import Study
from replaybench.experiments.sweep import Figures, cores, run_sweep
from replaybench.experiments.workers import leave_if_imported
from replaybench.reports.figures.all_figures import draw_figures, remove_figures

if TYPE_CHECKING:
    import xarray as xr


def sweep(study: Study, output: Path | str, *, workers: int | None = None, cluster: str | None = None) -> xr.Dataset:
    """Run a study into a folder, or continue there; return its results as `open_results` reads them.

    Scripts that call this need `if __name__ == "__main__":` around it: worker processes import them.

    Args:
        workers: local worker processes, one per core if not given.
        cluster: address of a Dask scheduler to use instead.

    Raises:
        UserError: the sweep cannot run here, does not fit, or its folder is in use.
        KeyboardInterrupt: Ctrl-C, after checkpoints were written; called again, it continues.
    """
    leave_if_imported()
    outcome = run_sweep(
        study, Path(output), workers or cores(), cluster, checkpoint_seconds=60.0, console=Console(quiet=True),
        figures=Figures(draw_figures, remove_figures),
    )  # fmt: skip
    if outcome.status:
        raise KeyboardInterrupt
    return outcome.data
