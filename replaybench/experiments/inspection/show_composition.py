"""Print and draw the composition of a buffer file."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from replaybench.data.errors import UserError
from replaybench.envs.interface.plant import Plant
from replaybench.envs.registry import stored_plant
from replaybench.experiments.inspection.buffer_pieces import choose
from replaybench.experiments.inspection.composition import measure
from replaybench.experiments.inspection.composition_report import composition_tables
from replaybench.experiments.inspection.state_visits import Axis, plant_axes
from replaybench.replay.files.buffer_schema import BufferFile, open_buffer


def show_composition(
    console: Console, path: Path, member: int | None, plant_name: str | None, figure: Path | None
) -> None:
    """Print the composition of a buffer file, and draw it if `figure` names a file.

    Arguments are those of `show_file`.

    Raises:
        UserError: there is no such member or plant, or the file is damaged or contradicts itself.
    """
    with open_buffer(path) as file:
        plant, axes = _known_plant(file, plant_name)
        found, facts = measure(file, member, axes), file.facts
    for part in composition_tables(found, facts, plant):
        console.print(part, highlight=False)
    if figure is not None:
        from replaybench.experiments.inspection.composition_figure import draw_composition

        draw_composition(found, facts, plant, figure)
        print(f"figure   {figure}")


def check_choice(path: Path, member: int | None, plant_name: str | None) -> None:
    """Check a buffer file, member and plant before anything is printed.

    Raises:
        UserError: the file is damaged or contradicts itself, or there is no such member or plant.
    """
    with open_buffer(path) as file:
        _known_plant(file, plant_name)
        choose(file, member)


def _known_plant(file: BufferFile, plant_name: str | None) -> tuple[Plant | None, list[Axis] | None]:
    """Return the plant of a buffer and its states, or None twice.

    A plant in a Python file is used only if the user names it: opening a file never executes code that it names.
    """
    facts, states = file.facts, file.facts.fields.get("observation", 0)
    try:
        plant = stored_plant(facts.plant or "", plant_name, facts.parameters)
        axes = None if plant is None else plant_axes(plant)
    except (UserError, ArithmeticError) as error:
        if plant_name is not None:
            raise UserError(f"{plant_name} does not fit {file.path}: {error}") from None
        return None, None
    if axes is not None and len(axes) == states:
        return plant, axes
    if plant is not None and plant_name is not None:
        raise UserError(f"{file.path} holds {states} states, {plant_name} has {len(plant.state_names)}")
    return None, None
