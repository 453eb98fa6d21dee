"""Drawing of the figures of a run folder."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import xarray as xr
from rich.console import Console

from replaybench.baselines.references import reference
from replaybench.data.documents import read_toml
from replaybench.data.run_folder import RunFolder, claim, is_own, runs_within
from replaybench.experiments.dataset import assemble, without_rewards
from replaybench.experiments.results_file import read_results
from replaybench.experiments.study import Cell, read_study, reference_cells
from replaybench.reports.figures import curves
from replaybench.reports.figures.all_figures import draw_figures
from replaybench.reports.figures.style import PAPER, SCREEN
from replaybench.runtime.atomic import check_place
from replaybench.runtime.errors import UserError
from replaybench.runtime.user_file import ImportRefusedError, imports_only


def show_figures(
    console: Console, run: Path, layout: str, suffix: Literal["pdf", "png", "svg"] | None, output: Path | None,
    in_steps: bool = False, overlay: Sequence[str] = (),
) -> None:  # fmt: skip
    """Draw the figures of a run folder with the options of the command `figures`, and print the paths of the files."""
    if run.is_file():
        parent = shlex.quote(str(run.parent))
        raise UserError(f"{run} is a file; figures are drawn from its run folder: replaybench figures {parent}")
    folder, medium, others = RunFolder(run), {"screen": SCREEN, "paper": PAPER}[layout], curves.read_others(overlay)
    if not folder.results.is_file() and not any(folder.path.glob("cells/*/scores.h5")):
        raise UserError(
            runs_within(run)
            or f"{run} holds no results.nc and no finished cell; run `replaybench sweep` into it first, or name "
            "another run folder"
        )
    if suffix is not None:
        medium = replace(medium, formats=(suffix,))
    cells = _cells(console, folder)
    data = read_results(folder.results) if folder.results.is_file() else _of_finished_cells(console, folder, cells)
    if others and (several := [axis for axis in ("plant", "noise", "frequency") if data.sizes[axis] > 1]):
        raise UserError(f"--overlay needs results of one plant, noise and rate; {run} has several ({several[0]})")
    named = output or folder.figures / ("paper" if medium.columns else ".")
    place = named.absolute()
    if output is not None:
        claim(output)
    else:
        check_place(folder.figures)
        check_place(place)
        if not is_own(run):
            claim(folder.figures)
    drawn = draw_figures(data, folder, cells, medium, place, in_steps, others)
    if not drawn:
        raise without_rewards(folder.results, data, "figures need")
    for path in drawn:
        print(f"{'captions' if path.suffix == '.txt' else 'figure  '} {named / path.name}")


def _of_finished_cells(console: Console, folder: RunFolder, cells: Sequence[Cell]) -> xr.Dataset:
    """Return the results of those cells that a killed sweep finished.

    Stored rewards of reference controllers are read. Missing ones are computed.
    """
    if not cells:
        raise UserError(f"{folder.path} holds no results.nc; run the sweep again to write it")
    console.print("no results.nc (the sweep was killed?): finished cells are drawn", highlight=False)
    rule = read_study(folder.study).reference
    done = [cell for cell in cells if folder.finished(cell.id)]
    finished = reference_cells(done)  # only its keys are used: unfinished cells may decide a discount
    known = {
        point: reference(cell.make_plant(), cell.frequency, cell.noise, rule)
        for point, cell in reference_cells(cells).items()
        if point in finished
    }
    return assemble(cells, known, {cell.id: folder.cell(cell.id) for cell in cells})


def _cells(console: Console, folder: RunFolder) -> Sequence[Cell]:
    """Return the cells of a study, or print why their policies cannot be drawn."""
    if not folder.study.is_file():
        console.print("the run folder has no study.toml: policies are not drawn", highlight=False)
        return ()
    read_toml(folder.study)  # raises an error if the file is damaged
    try:
        with imports_only():
            return read_study(folder.study).cells()
    except ImportRefusedError:
        console.print(
            "its study names Python files: policies are not drawn; `replaybench sweep` draws them", markup=False
        )
        return ()
    except UserError as error:  # e.g. the study is from a version whose settings had other names
        console.print(f"policies are not drawn, because this version cannot run the study: {error}", markup=False)
        return ()
