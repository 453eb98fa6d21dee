"""Plants in users' files: looked up, and tried out before anything is compiled or run."""

from __future__ import annotations

from pathlib import Path

from replaybench.data.errors import UserError
from replaybench.data.plugins import InFile, class_in_file, reason
from replaybench.envs.foreign.python_plant import PythonPlant, try_methods
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import OdePlant, try_functions


def plant_in_file(place: InFile) -> type[Plant]:
    """Return the plant of that name in a file.

    Raises:
        UserError: there is no such file or class, it cannot be imported, or the class is no plant.
    """
    found: type[Plant] = class_in_file(place, "plant", Plant, "OdePlant or PythonPlant")
    if "__dataclass_params__" not in vars(found):
        raise UserError(
            f"{place.class_name} in {place.path} needs @dataclass(frozen=True, kw_only=True) in front of it"
        )
    return found


def try_out(plant: Plant, name: str) -> None:
    """Call a user's functions once as plain Python, where a mistake shows at its own line.

    Raises:
        UserError: one of them fails, or does not return what it should.
    """
    if isinstance(plant, PythonPlant):
        try_methods(plant)
    if not isinstance(plant, OdePlant):
        return
    try:
        wrong = try_functions(plant)
    except Exception as error:
        path = Path(name.rpartition(":")[0])
        raise UserError(f"plant {name} fails at its initial state: {reason(error, path)}") from error
    if wrong:
        raise UserError(f"plant {name}: {wrong}")
