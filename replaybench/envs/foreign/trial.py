"""Users' plants, tried out before anything is compiled or run."""

from __future__ import annotations

from pathlib import Path

from replaybench.data.errors import UserError
from replaybench.data.user_file import reason
from replaybench.envs.foreign.python_plant import PythonPlant, try_methods
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import OdePlant, try_functions


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
