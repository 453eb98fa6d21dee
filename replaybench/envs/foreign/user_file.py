"""Plants in users' files: imported, looked up, and tried out before anything is compiled or run."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Final

from replaybench.data.errors import UserError, unknown
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import OdePlant, try_functions

_BASES: Final = ("Plant", "OdePlant", "PythonPlant", "GymnasiumPlant")


def plant_in_file(path: Path, class_name: str) -> type[Plant]:
    """Return the plant of that name in a file.

    Raises:
        UserError: there is no such file or class, it cannot be imported, or the class is no plant.
    """
    classes = vars(import_file(path))
    if class_name not in classes:
        plants = [key for key, value in classes.items() if isinstance(value, type) and issubclass(value, Plant)]
        raise unknown(f"plant in {path}", class_name, [plant for plant in plants if plant not in _BASES])
    found = classes[class_name]
    if not (isinstance(found, type) and issubclass(found, Plant)):
        raise UserError(f"{class_name} in {path} is no plant; derive it from OdePlant or PythonPlant")
    if not dataclasses.is_dataclass(found) or "__dataclass_params__" not in vars(found):
        raise UserError(f"{class_name} in {path} needs @dataclass(frozen=True, kw_only=True) in front of it")
    return found


def import_file(path: Path) -> ModuleType:
    """Import a user's file as a module; an edited file is another module, so that it is read again.

    Raises:
        UserError: there is no such file, or it cannot be imported; the line is named.
    """
    if not path.is_file():
        raise UserError(f"no plant file {str(path)!r}; give the path of a Python file that exists")
    path = path.resolve()
    content = hashlib.sha256(str(path).encode() + b"\0" + path.read_bytes()).hexdigest()[:16]
    name = f"replaybench_plant_{path.stem}_{content}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{str(path)!r} cannot be imported; give a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, os.fspath(path.parent))  # as when the file is run: it may import its neighbours
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, UserError | KeyboardInterrupt):
            raise
        raise UserError(f"plant file {path} cannot be imported: {reason(error, path)}") from error
    finally:
        sys.path.remove(os.fspath(path.parent))
    return module


def try_out(plant: Plant, name: str) -> None:
    """Call a user's functions once as plain Python, where a mistake shows at its own line.

    Raises:
        UserError: one of them fails, or does not return what it should.
    """
    from replaybench.envs.foreign.python_plant import PythonPlant, try_methods

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


def reason(error: BaseException, path: Path) -> str:
    """Say in one line what went wrong, and at which line of the file."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}"
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).name == path.name
    ]
    place = f"line {lines[-1]}: " if lines else ""
    return f"{place}{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
