"""Plants by name: built in, from installed packages, from users' files, and Gymnasium's tasks.

Importing this module imports no plant.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final, NamedTuple

from replaybench.runtime.errors import UserError, unknown
from replaybench.runtime.user_file import IN_FILE, ImportRefusedError, Registry, imports_only, in_file

if TYPE_CHECKING:
    from replaybench.envs.interface.plant import Parameter, Plant

GYMNASIUM: Final = "gymnasium:"
"""Prefix of the id of a task that is registered with Gymnasium."""


class Entry(NamedTuple):
    """The module of a plant, and its requirements."""

    module: str
    needs: str = ""  # a package beyond the project's own dependencies
    extra: str = ""  # the project's extra that installs it
    outgrown_by: tuple[str, int] | None = None  # a package, and its first major version that does not work


_MUJOCO: Final = ("mujoco", "mujoco")
_BULLET: Final = ("pybullet", "bullet")
_PLANTS: Final = {
    name: Entry(f"replaybench.envs.{module}", *requirements)
    for module, requirements, names in (
        ("ode.pendulum", (), ("Pendulum", "PendulumDCSC")),
        ("ode.magman", (), ("Magman",)),
        (
            "mujoco.locomotion",
            _MUJOCO,
            ("MujocoHopper", "MujocoWalker2d", "MujocoHalfCheetah", "MujocoSwimmer", "MujocoAnt", "MujocoHumanoid"),
        ),
        ("mujoco.arms", _MUJOCO, ("MujocoReacher", "MujocoInvertedDoublePendulum")),
        ("bullet.double_pendulum", _BULLET, ("BulletInvertedDoublePendulum",)),
        ("bullet.reacher", _BULLET, ("BulletReacher",)),
        ("bullet.walkers", _BULLET, ("BulletHopper", "BulletWalker2d", "BulletHalfCheetah", "BulletAnt")),
        ("flow.plant", (), ("Drafting",)),
        (
            "foreign.dm_suite",
            ("dm_control", "dm", ("mujoco", 4)),
            ("AcerCartpole", "AcerCheetah", "AcerFish", "AcerWalker", "AcerHumanoid"),
        ),
        ("mujoco.arms", _MUJOCO, ("AcerReacher3",)),
    )
    for name in names
}

PLANTS: Final = Registry(
    kind="plant",
    own={name: f"{entry.module}:{name}" for name, entry in _PLANTS.items()},
    base="replaybench.envs.interface.plant:Plant",
    group="replaybench.plants",
    derive_from="OdePlant or PythonPlant",
    also_named=(IN_FILE, f"{GYMNASIUM}Name-v0"),
)


def plant_names() -> tuple[str, ...]:
    """Return the names of the plants that come with the package, available or not."""
    return tuple(_PLANTS)


def is_installed(name: str) -> bool:
    """Return whether only installed code makes a plant of this name, so that a stored file may name it.

    This includes plants of installed packages, and Gymnasium's tasks unless their names import a file or module.
    """
    registered = name.startswith(GYMNASIUM) and ":" not in name.removeprefix(GYMNASIUM)
    return registered or PLANTS.spelled(name) in PLANTS


def stored_plant(stored: str, given: str | None, parameters: Mapping[str, Parameter]) -> Plant | None:
    """Return the plant that a file names, or the one `given` by the user in its place; raise as `make_plant`.

    None if the plant would execute code that only the file names.
    """
    try:
        with imports_only(given):
            return make_plant(given or stored, **parameters)
    except ImportRefusedError:
        return None


def missing(name: str) -> str:
    """Return the command that installs the missing requirements of a plant; empty if none is missing."""
    entry = _PLANTS.get(PLANTS.spelled(name), Entry(""))
    here = not entry.needs or importlib.util.find_spec(entry.needs) is not None
    if entry.outgrown_by and here:
        package, major = entry.outgrown_by
        with contextlib.suppress(PackageNotFoundError):
            here = int(version(package).partition(".")[0]) < major
    if here:
        return ""
    return f'pip install "replaybench[{entry.extra}]"'


def make_plant(name: str, /, **parameters: Parameter) -> Plant:
    """Return a plant with the given values of its fields, and a `discount` in place of the declared one.

    Args:
        name: a name from `plant_names()`, `path/to/file.py:ClassName`, or `gymnasium:Name-v0`.
        parameters: the values.

    Raises:
        UserError: there is no such plant, file, class or parameter.
    """
    plant = plant_class(name)
    fields = [field.name for field in dataclasses.fields(plant)]
    if "discount" in parameters and "discount" not in fields:
        plant = plant.with_discount(parameters.pop("discount"))  # type: ignore[arg-type]  # checked there
    for parameter in parameters:
        if not fields:
            raise UserError(f"{plant.name} has no parameters, so that {parameter} cannot be set; leave it out")
        if parameter not in fields:
            raise unknown(f"parameter of {plant.name}", parameter, fields)
    made = plant(**parameters)
    if in_file(name):
        from replaybench.envs.foreign.python_plant import try_out

        try_out(made, name)
    return made


def plant_class(name: str) -> type[Plant]:
    """Return the class of the plant that `make_plant` returns for a name."""
    if name.startswith(GYMNASIUM):
        from replaybench.envs.foreign.gymnasium_plant import plant_of

        return plant_of(name)
    name = PLANTS.spelled(name)
    if name in _PLANTS and (lacking := missing(name)):
        entry = _PLANTS[name]
        also = f" and {entry.outgrown_by[0]} before {entry.outgrown_by[1]}" if entry.outgrown_by else ""
        raise UserError(f"plant {name} needs the package {entry.needs}{also}: {lacking}")
    found: type[Plant] = PLANTS.load(name)
    if in_file(name) and "__dataclass_params__" not in vars(found):
        raise UserError(f"{name} needs @dataclass(frozen=True, kw_only=True) in front of it")
    return found


def register_gymnasium() -> None:
    """Register every plant with Gymnasium as `replaybench/<name>-v0`, single and vectorised.

    Importing `replaybench.envs` calls this, and so does `gymnasium.make("replaybench.envs:replaybench/Pendulum-v0")`.
    """
    from gymnasium.envs.registration import register, registry

    for name in _PLANTS:
        if (identifier := f"replaybench/{name}-v0") not in registry:
            register(
                id=identifier,
                entry_point="replaybench.envs.population:SingleEnv",
                vector_entry_point="replaybench.envs.population:PopulationEnv",
                kwargs={"plant": name},
            )
