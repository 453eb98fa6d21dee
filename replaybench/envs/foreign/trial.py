"""Trial calls of users' plants before anything is run."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

import numpy as np
from numba.core.errors import NumbaError, UnsupportedBytecodeError

from replaybench.data.errors import UserError
from replaybench.data.user_code.source_hash import of_a_package
from replaybench.data.user_code.user_file import reason
from replaybench.envs.foreign.python_plant import PythonPlant, try_methods
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode import rk4
from replaybench.envs.ode.plant import OdePlant, try_functions

_REFUSED: Final = (NumbaError, UnsupportedBytecodeError)


def try_out(plant: Plant, name: str) -> None:
    """Call a user's functions once as plain Python, then compile equations.

    Raises:
        UserError: a function fails, returns a wrong value, or cannot be compiled.
    """
    if isinstance(plant, PythonPlant):
        try_methods(plant)
    if not isinstance(plant, OdePlant):
        return
    path = Path(name.rpartition(":")[0])
    try:
        wrong = try_functions(plant)
    except _REFUSED as error:  # of what they call, which is compiled
        raise UserError(f"plant {name}: {_refused(plant, path, error)}") from error
    except Exception as error:
        raise UserError(f"plant {name} fails at its initial state: {reason(error, path)}") from error
    if wrong:
        raise UserError(f"plant {name}: {wrong}")
    try:
        rk4.simulate(plant, plant.initial_state, plant.action_range()[0], plant.max_substep)
    except _REFUSED as error:
        raise UserError(f"plant {name}: {_refused(plant, path, error)}") from error


def _refused(plant: OdePlant, path: Path, error: Exception) -> str:
    """Return which function Numba does not compile, and where."""
    x, u, p = np.array(plant.initial_state, np.float64), np.array(plant.action_range()[0]), plant.params()
    given: tuple[tuple[Any, ...], ...] = (x, u, p), (x, u, x, 0, p), (x.copy(), p), (x, 0, p)
    for function, arguments in zip(rk4.FUNCTIONS, given, strict=True):
        try:
            getattr(plant, function)(*arguments)
        except _REFUSED as own:
            if helper := _not_compiled(getattr(plant, function).py_func, str(own)):
                return f"{_line(own, path)}{function} needs {helper}"
            return f"Numba, which compiles {function}, does not know this Python: {_message(own, path)}"
    return f"Numba does not compile its functions: {_message(error, path)}"


def _not_compiled(function: FunctionType, message: str) -> str:
    """Return the plain Python in Numba's complaint `message` that a user's functions refer to, with a remedy; or ""."""
    waiting, seen = [function], {function}
    while waiting:
        reached = inspect.getclosurevars(waiting.pop())
        values = {**reached.nonlocals, **reached.globals}
        for module in [each for each in values.values() if isinstance(each, ModuleType)]:
            values |= {name: getattr(module, name) for name in reached.unbound if hasattr(module, name)}
        for name, value in values.items():
            compiled = getattr(value, "py_func", None)
            if isinstance(compiled, FunctionType) and compiled not in seen:
                seen.add(compiled)
                waiting.append(compiled)
            elif isinstance(value, FunctionType | type) and f"'{name}'" in message:
                top, _, _ = value.__module__.partition(".")
                if not of_a_package(top):
                    return _plain(name, value)
    return ""


def _plain(name: str, value: FunctionType | type) -> str:
    if isinstance(value, type):
        return f"the class {name}, which is not compiled; put what it needs of it outside of the class"
    place = f"{Path(value.__code__.co_filename).name}, line {value.__code__.co_firstlineno}"
    return f"the function {name} ({place}), which is not compiled; put @numba.njit in front of it"


def _message(error: Exception, path: Path) -> str:
    """Return the informative line of a Numba error, and the line of the user's file."""
    lines = [line.strip() for line in str(error).splitlines()]
    words = next((line for line in lines if line and not line.startswith(("Failed in", "During"))), "no message")
    return f"{_line(error, path)}{words}"


def _line(error: Exception, path: Path) -> str:
    """Return the line of the user's file in a Numba error, with a colon; empty if it names none."""
    places = re.findall(rf'{re.escape(path.name)}"?, line (\d+)', str(error))
    return f"line {places[-1]}: " if places else ""
