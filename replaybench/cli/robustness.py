"""The command `robustness`, which evaluates a run's policies and reference controllers on changed plants."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from replaybench.baselines.grid_choice import Rule
from replaybench.baselines.rivals import Rivals
from replaybench.data.documents import write_columns
from replaybench.data.run_folder import RunFolder, claim
from replaybench.experiments.progress import plain_lines, shows_bars
from replaybench.experiments.robustness import FOLDER, Condition, Row, columns_of, conditions, evaluate
from replaybench.experiments.study import read_study
from replaybench.experiments.text_table import FittedTable
from replaybench.reports.figures.robustness import axis_label, parts_of, robustness_figure
from replaybench.reports.figures.style import check_saved, file_names, save, style
from replaybench.runtime.atomic import new_path
from replaybench.runtime.errors import unknown
from replaybench.runtime.user_file import canonical, names_from


def show_robustness(
    console: Console, run: Path, parameter: str, factors: Sequence[float], values: Sequence[float],
    chosen: Mapping[str, Any], references: Sequence[str], rivals: bool, output: Path | None,
) -> None:  # fmt: skip
    """Evaluate the controllers of a run on changed plants, print their scores, and write a table and a figure.

    Args:
        chosen: Values that select cells of the run by axis.
        references: Names of users' controllers in the study that are evaluated.
        rivals: Whether rivals, such as a tuned PID controller, are evaluated.
        output: Folder to write into. If None, it is `robustness` in the run folder.
    """
    folder, (name,) = output or run / FOLDER, file_names([parameter])
    table = new_path(folder / f"{name}.csv", "move it away or choose another --output")  # before plants are compiled
    study = read_study(RunFolder(run).study) if RunFolder(run).study.is_file() else None
    with names_from("" if study is None else study.folder):
        found, missing = conditions(run, parameter, factors, values, chosen)
        assert study is not None  # `conditions` refuses folders without a study
        own = study.rivals() if rivals else None
        if own is not None:
            named = chosen_references(console, own.own, references)
            if unknown_names := named - set(own.own):
                raise unknown("controller of this study:", min(unknown_names), own.own)
            own = dataclasses.replace(own, own=tuple(name for name in own.own if name in named))
        place = claim(folder)
        check_saved(place, name)
        if missing:
            console.print(f"{missing} cells have no stored policies yet and are left out", highlight=False)
        rows = _evaluated(console, found, study.reference, own)
    for each in tables(rows):
        console.print(each)
    with style():
        drawn = save(robustness_figure(rows), place, name)
    write_columns(table, columns_of(rows))
    print(f"figure   {folder / drawn.name}")
    print(f"table    {folder / table.name}")


def chosen_references(console: Console, study: Sequence[str], given: Sequence[str]) -> set[str]:
    """Return the canonical names of the `given` controllers of users, and print which ones of a study are left out."""
    named = {canonical(name, str(Path.cwd())) for name in given}
    if left_out := set(study) - named:
        names = " ".join(sorted(left_out))
        console.print(f"left out: {names}; if you trust these files, add --references {names}", markup=False)
    return named


def _evaluated(console: Console, found: Sequence[Condition], rule: Rule | None, rivals: Rivals | None) -> list[Row]:
    steps, done, stage = sum(each.steps for each in found) + len(found), 0, ""

    def report(controller: str) -> None:
        nonlocal done, stage
        progress.update(task, completed=done, description=controller)
        done, stage = done + 1, f"{done} of {steps}, {controller}"

    with (
        Progress(console=console, disable=not shows_bars(console), transient=True) as progress,
        plain_lines(console, lambda: stage),
    ):
        task = progress.add_task("", total=steps)
        try:
            return [row for each in found for row in evaluate(each, rule, rivals, report)]
        except KeyboardInterrupt as stop:
            raise type(stop)("stopped; nothing was written, the same command starts again") from stop


def tables(rows: Sequence[Row]) -> list[FittedTable]:
    """Return one table for each condition, with a row for each controller and a column for each changed value."""
    made = []
    for part in parts_of(rows):
        values = [f"{value:.4g}" for value in part.lines[0].values]
        title = f"{part.plant}, {part.frequency:g} Hz, noise {part.noise:g}: mean score by {axis_label(part)}"
        scale = "μ_r: 0 = random control, 1 = dynamic programming, both" if part.normalised else "rewards"
        caption = f"{scale} on the plant of the training ({part.parameter} = {part.trained:.4g})"
        table = FittedTable(("controller", *values), ("controller",), values, title=title, caption=caption)
        for line in part.lines:
            table.add(
                line.controller, *(f"{score:.2f}" if part.normalised else f"{score:.4g}" for score in line.scores[:, 0])
            )
        made.append(table)
    return made
