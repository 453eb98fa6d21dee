"""Draw the figures of a run folder, for a screen or for print."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import xarray as xr
from rich.console import Console

from replaybench.baselines.references import reference
from replaybench.data.errors import UserError
from replaybench.data.formats.documents import read_toml
from replaybench.data.formats.run_folder import RunFolder, runs_within
from replaybench.data.user_code.user_file import ImportRefusedError, imports_only
from replaybench.experiments.figures.all_figures import draw_figures
from replaybench.experiments.figures.curves import read_others
from replaybench.experiments.figures.style import PAPER, SCREEN
from replaybench.experiments.results.dataset import assemble, without_rewards
from replaybench.experiments.results.results_file import read_results
from replaybench.experiments.training.study import Cell, read_study, reference_cells

LOOKS: Final = {"screen": SCREEN, "paper": PAPER}


def show_figures(
    console: Console,
    run: Path,
    style: str,
    suffix: Literal["pdf", "png", "svg"] | None,
    output: Path | None,
    in_steps: bool = False,
    overlay: Sequence[str] = (),
) -> None:
    """Draw the figures of a run folder and print their paths.

    Raises:
        UserError: the run holds no results, or is damaged.
    """
    if run.is_file():
        there = shlex.quote(str(run.parent))
        raise UserError(f"{run} is a file; figures are drawn from its run folder: replaybench figures {there}")
    folder, look, others = RunFolder(run), LOOKS[style], read_others(overlay)
    if not folder.results.is_file() and not any(folder.path.glob("cells/*/scores.h5")):
        raise UserError(
            runs_within(run)
            or f"{run} holds no results.nc and no finished cell; run `replaybench sweep` into it first, or name "
            "another run folder"
        )
    if suffix is not None:
        look = dataclasses.replace(look, formats=(suffix,))
    cells = _cells(console, folder)
    data = read_results(folder.results) if folder.results.is_file() else _of_finished_cells(console, folder, cells)
    if others and (several := [axis for axis in ("plant", "noise", "frequency") if data.sizes[axis] > 1]):
        raise UserError(f"--overlay needs results of one plant, noise and rate; {run} has several ({several[0]})")
    place = output or folder.figures / ("paper" if look.columns else ".")
    drawn = draw_figures(data, folder, cells, look, place, in_steps, others)
    if not drawn:
        raise without_rewards(folder.results, data, "figures need")
    for path in drawn:
        print(f"{'captions' if path.suffix == '.txt' else 'figure  '} {path}")


def _of_finished_cells(console: Console, folder: RunFolder, cells: Sequence[Cell]) -> xr.Dataset:
    """Assemble the results of a killed sweep; its references are read from the cache or computed."""
    if not cells:
        raise UserError(f"{folder.path} holds no results.nc; run the sweep again to write it")
    console.print("no results.nc, as after a kill: finished cells are drawn", highlight=False)
    rule = read_study(folder.study).reference
    done = [cell for cell in cells if (folder.cell(cell.id) / "scores.h5").is_file()]
    finished = reference_cells(done)  # at these points, though another cell may decide the discount there
    known = {
        point: reference(cell.make_plant(), cell.frequency, cell.noise, rule)
        for point, cell in reference_cells(cells).items()
        if point in finished
    }
    return assemble(cells, known, {cell.id: folder.cell(cell.id) for cell in cells})


def _cells(console: Console, folder: RunFolder) -> Sequence[Cell]:
    """Return the cells whose policies are drawn: none if the study is missing, outdated or names Python files."""
    if not folder.study.is_file():
        console.print("the study file is gone from the run folder: policies are not drawn", highlight=False)
        return ()
    read_toml(folder.study)  # one that is damaged is an error
    try:
        with imports_only():
            return read_study(folder.study).cells()
    except ImportRefusedError:
        console.print(
            "its study names Python files: policies are not drawn; `replaybench sweep` draws them", markup=False
        )
        return ()
    except UserError as error:  # of an older version, whose settings had other names
        console.print(f"policies are not drawn, for its study cannot be run here: {error}", markup=False)
        return ()
