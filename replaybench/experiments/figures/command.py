"""What the command `figures` does: draw those of a run again, for a screen or for print."""

from __future__ import annotations

import dataclasses
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
from replaybench.experiments.figures.style import PAPER, SCREEN
from replaybench.experiments.results.dataset import assemble, without_rewards
from replaybench.experiments.results.results_file import read_results
from replaybench.experiments.training.study import Cell, read_study

LOOKS: Final = {"screen": SCREEN, "paper": PAPER}
Kind = Literal["pdf", "png", "svg"]


def show_figures(console: Console, run: Path, style: str, kind: Kind | None, output: Path | None) -> None:
    """Draw the figures of a run folder, and say where they are.

    Raises:
        UserError: the run holds no results, or is damaged.
    """
    if run.is_file():
        raise UserError(f"{run} is a file; figures are drawn from its run folder: replaybench figures {run.parent}")
    folder, look = RunFolder(run), LOOKS[style]
    if not folder.results.is_file() and not any(folder.path.glob("cells/*/scores.h5")):
        raise UserError(
            runs_within(run)
            or f"{run} holds no results.nc and no finished cell; run `replaybench sweep` into it first, or name "
            "another run folder"
        )
    if kind is not None:
        look = dataclasses.replace(look, formats=(kind,))
    cells = _cells(console, folder)
    data = read_results(folder.results) if folder.results.is_file() else _of_finished_cells(console, folder, cells)
    drawn = draw_figures(data, folder, cells, look, output or folder.figures / ("paper" if look.columns else "."))
    if not drawn:
        raise without_rewards(folder.results, data, "figures need")
    for path in drawn:
        print(f"{'captions' if path.suffix == '.txt' else 'figure  '} {path}")


def _of_finished_cells(console: Console, folder: RunFolder, cells: Sequence[Cell]) -> xr.Dataset:
    """Put together what a sweep that was killed has left; its references are found again, or solved anew."""
    if not cells:
        raise UserError(f"{folder.path} holds no results.nc; run the sweep again to write it")
    console.print("no results.nc, as after a kill: finished cells are drawn", highlight=False)
    rule = read_study(folder.study).reference
    known = {}
    for cell in cells:
        point = (cell.plant, cell.frequency, cell.noise)
        if point not in known and (folder.cell(cell.id) / "scores.h5").is_file():
            known[point] = reference(cell.make_plant(), cell.frequency, cell.noise, rule)
    return assemble(cells, known, {cell.id: folder.cell(cell.id) for cell in cells})


def _cells(console: Console, folder: RunFolder) -> Sequence[Cell]:
    """Return the cells whose policies are to be drawn; none where they cannot be known, or by others' code only."""
    if not folder.study.is_file():
        console.print("the study file is gone from the run folder: policies are not drawn", highlight=False)
        return ()
    read_toml(folder.study)  # one that is damaged is an error
    try:
        with imports_only():
            return read_study(folder.study).cells()
    except ImportRefusedError:
        told = "its study names Python files: policies are not drawn; `replaybench sweep` draws them"
        console.print(told, markup=False)
        return ()
    except UserError as error:  # of an older version, whose settings had other names
        console.print(f"policies are not drawn, for its study cannot be run here: {error}", markup=False)
        return ()
