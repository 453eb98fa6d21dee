"""Plants by name, or by the file in which a user keeps one. Importing this file imports no plant."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, NamedTuple

from replaybench.data.errors import UserError, unknown

if TYPE_CHECKING:
    from replaybench.envs.plant import Parameter, Plant

GYMNASIUM: Final = "gymnasium:"
"""What stands before the id of a task that is registered with Gymnasium."""

OWN: Final = ("path/to/file.py:ClassName", f"{GYMNASIUM}Name-v0")
"""How plants are named that do not come with the package."""


class Entry(NamedTuple):
    """Where a plant is, and what must be installed for it.

    Attributes:
        module: the module that holds the class of the plant's name.
        needs: the package that is imported, empty if none is beyond the project's own dependencies.
        extra: the project's extra that installs it.
        outgrown_by: a package and its first major version for which `needs` has no release that works with it.
    """

    module: str
    needs: str = ""
    extra: str = ""
    outgrown_by: tuple[str, int] | None = None


_DM_CONTROL: Final = Entry("replaybench.envs.dm_control_plant", "dm_control", "dm", ("mujoco", 4))

_PLANTS: Final = {
    "Pendulum": Entry("replaybench.envs.pendulum"),
    "PendulumDCSC": Entry("replaybench.envs.pendulum"),
    "Magman": Entry("replaybench.envs.magman"),
    "MujocoHopper": Entry("replaybench.envs.mujoco_runners", needs="mujoco", extra="mujoco"),
    "MujocoWalker2d": Entry("replaybench.envs.mujoco_runners", needs="mujoco", extra="mujoco"),
    "MujocoHalfCheetah": Entry("replaybench.envs.mujoco_runners", needs="mujoco", extra="mujoco"),
    "MujocoSwimmer": Entry("replaybench.envs.mujoco_roamers", needs="mujoco", extra="mujoco"),
    "MujocoAnt": Entry("replaybench.envs.mujoco_roamers", needs="mujoco", extra="mujoco"),
    "MujocoHumanoid": Entry("replaybench.envs.mujoco_roamers", needs="mujoco", extra="mujoco"),
    "MujocoReacher": Entry("replaybench.envs.mujoco_arms", needs="mujoco", extra="mujoco"),
    "MujocoInvertedDoublePendulum": Entry("replaybench.envs.mujoco_arms", needs="mujoco", extra="mujoco"),
    "BulletInvertedDoublePendulum": Entry("replaybench.envs.bullet_double_pendulum", needs="pybullet", extra="bullet"),
    "BulletReacher": Entry("replaybench.envs.bullet_reacher", needs="pybullet", extra="bullet"),
    "BulletHopper": Entry("replaybench.envs.bullet_walkers", needs="pybullet", extra="bullet"),
    "BulletWalker2d": Entry("replaybench.envs.bullet_walkers", needs="pybullet", extra="bullet"),
    "BulletHalfCheetah": Entry("replaybench.envs.bullet_walkers", needs="pybullet", extra="bullet"),
    "BulletAnt": Entry("replaybench.envs.bullet_walkers", needs="pybullet", extra="bullet"),
    "Drafting": Entry("replaybench.envs.flow_task"),
    "AcerCartpole": _DM_CONTROL,
    "AcerCheetah": _DM_CONTROL,
    "AcerFish": _DM_CONTROL,
    "AcerWalker": _DM_CONTROL,
    "AcerHumanoid": _DM_CONTROL,
}


_BASES: Final = ("Plant", "OdePlant", "PythonPlant", "GymnasiumPlant")


def plant_names() -> tuple[str, ...]:
    """Return the names of the plants that come with the package, available or not."""
    return tuple(_PLANTS)


def missing(name: str) -> str:
    """Return the command that installs what a plant of `plant_names()` lacks here; empty if it lacks nothing."""
    entry = _PLANTS[name]
    here = not entry.needs or importlib.util.find_spec(entry.needs) is not None
    if here and not (entry.outgrown_by and _has_outgrown(*entry.outgrown_by)):
        return ""
    return f'pip install "replaybench[{entry.extra}]"'


def make_plant(name: str, **parameters: Parameter) -> Plant:
    """Return a plant with the given parameters, the others at their defaults.

    Args:
        name: a name from `plant_names()`; or `path/to/file.py:ClassName` for a plant of your own; or
            `gymnasium:Name-v0` for a task that is registered with Gymnasium.
        parameters: values of the plant's fields.

    Raises:
        UserError: no such plant, file, class or parameter.
    """
    plant = plant_class(name)
    fields = [field.name for field in dataclasses.fields(plant)]
    for parameter in parameters:
        if parameter not in fields:
            raise unknown(f"parameter of {plant.name}", parameter, fields)
    made = plant(**parameters)
    if name not in _PLANTS and not name.startswith(GYMNASIUM):
        _try(made, name)
    return made


def plant_class(name: str) -> type[Plant]:
    """Return the class that `make_plant` would make a plant of."""
    if name.startswith(GYMNASIUM):
        from replaybench.envs.gymnasium_plant import plant_of

        return plant_of(name)
    path, colon, class_name = name.rpartition(":")
    if name in _PLANTS:
        if lacking := missing(name):
            raise UserError(f"plant {name} needs {_needed(_PLANTS[name])}: {lacking}")
        found: type[Plant] = getattr(importlib.import_module(_PLANTS[name].module), name)
        return found
    if colon and path.endswith(".py"):
        return _class_in_file(Path(path), class_name)
    if name.endswith(".py"):
        raise UserError(f"{name!r} names no plant in the file; write {name}:ClassName")
    raise unknown("plant", name, [*_PLANTS, *OWN])


def register_gymnasium() -> None:
    """Make every plant known to Gymnasium as `replaybench/<name>-v0`, single and vectorised.

    Gymnasium finds no packages by itself since its version 1.0: importing `replaybench.envs` calls this, and so does
    `gymnasium.make("replaybench.envs:replaybench/Pendulum-v0")`.
    """
    from gymnasium.envs.registration import register, registry

    for name in _PLANTS:
        if (identifier := f"replaybench/{name}-v0") not in registry:
            register(
                id=identifier,
                entry_point="replaybench.envs.single:SingleEnv",
                vector_entry_point="replaybench.envs.population:PopulationEnv",
                kwargs={"plant": name},
            )


def _has_outgrown(package: str, major: int) -> bool:
    """Return whether a package is installed in that major version or a later one."""
    try:
        return int(version(package).partition(".")[0]) >= major
    except PackageNotFoundError:
        return False


def _needed(entry: Entry) -> str:
    """Say what a plant needs, and which version of what else that asks for."""
    also = f" and {entry.outgrown_by[0]} before {entry.outgrown_by[1]}" if entry.outgrown_by else ""
    return f"the package {entry.needs}{also}"


def _class_in_file(path: Path, class_name: str) -> type[Plant]:
    from replaybench.envs.plant import Plant

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


def _try(plant: Plant, name: str) -> None:
    """Call a user's functions once as plain Python, where a mistake shows at its own line.

    Raises:
        UserError: one of them fails, or does not return what it should.
    """
    from replaybench.envs.ode import OdePlant, try_functions
    from replaybench.envs.python_plant import PythonPlant, try_methods

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
