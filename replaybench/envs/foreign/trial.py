"""Users' plants, tried out before anything is run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import numpy as np
from numba.core.errors import NumbaError, UnsupportedBytecodeError

from replaybench.data.errors import UserError
from replaybench.data.user_code.user_file import reason
from replaybench.envs.foreign.python_plant import PythonPlant, try_methods
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode import rk4
from replaybench.envs.ode.plant import OdePlant, try_functions

_REFUSED: Final = (NumbaError, UnsupportedBytecodeError)
"""What Numba raises."""


def try_out(plant: Plant, name: str) -> None:
    """Call a user's functions once as plain Python, where a mistake shows at its own line; then compile equations.

    Raises:
        UserError: one of them fails, does not return what it should, or cannot be compiled.
    """
    if isinstance(plant, PythonPlant):
        try_methods(plant)
    if not isinstance(plant, OdePlant):
        return
    path = Path(name.rpartition(":")[0])
    try:
        wrong = try_functions(plant)
    except Exception as error:
        raise UserError(f"plant {name} fails at its initial state: {reason(error, path)}") from error
    if wrong:
        raise UserError(f"plant {name}: {wrong}")
    try:
        rk4.simulate(plant, plant.initial_state, plant.action_range()[0], plant.max_substep)
    except _REFUSED as error:
        raise UserError(f"plant {name}: {_refused(plant, path, error)}") from error


def _refused(plant: OdePlant, path: Path, error: Exception) -> str:
    """Say which function it is that Numba does not compile, and where."""
    x, u, p = np.array(plant.initial_state, np.float64), np.array(plant.action_range()[0]), plant.params()
    given: dict[str, tuple[Any, ...]] = {
        "rhs": (x, u, p),
        "reward": (x, u, x, 0, p),
        "project": (x.copy(), p),
        "terminated": (x, 0, p),
    }
    for function, arguments in given.items():
        try:
            getattr(plant, function)(*arguments)
        except _REFUSED as own:
            return f"Numba, which compiles {function}, does not know this Python: {_told(own, path)}"
    return f"Numba does not compile its functions: {_told(error, path)}"


def _told(error: Exception, path: Path) -> str:
    """Return the line of an error of Numba's that says something, and the line of the user's file."""
    lines = [line.strip() for line in str(error).splitlines()]
    words = next((line for line in lines if line and not line.startswith(("Failed in", "During"))), "no message")
    places = re.findall(rf'{re.escape(path.name)}"?, line (\d+)', str(error))
    return f"line {places[-1]}: {words}" if places else words
