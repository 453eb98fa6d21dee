"""Plants by name: the package's own, those that installed packages offer, users' files, Gymnasium's tasks.

Importing this file imports no plant.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final, NamedTuple

from replaybench.data.errors import UserError, unknown
from replaybench.data.registry import Registry
from replaybench.data.user_code.user_file import IN_FILE, ImportRefusedError, imports_only, in_file

if TYPE_CHECKING:
    from replaybench.envs.interface.plant import Parameter, Plant

GYMNASIUM: Final = "gymnasium:"
"""What stands before the id of a task that is registered with Gymnasium."""


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


_DM_CONTROL: Final = Entry("replaybench.envs.dm_suite.acer_tasks", "dm_control", "dm", ("mujoco", 4))

_PLANTS: Final = {
    "Pendulum": Entry("replaybench.envs.ode.pendulum"),
    "PendulumDCSC": Entry("replaybench.envs.ode.pendulum"),
    "Magman": Entry("replaybench.envs.ode.magman"),
    "MujocoHopper": Entry("replaybench.envs.mujoco.runners", needs="mujoco", extra="mujoco"),
    "MujocoWalker2d": Entry("replaybench.envs.mujoco.runners", needs="mujoco", extra="mujoco"),
    "MujocoHalfCheetah": Entry("replaybench.envs.mujoco.runners", needs="mujoco", extra="mujoco"),
    "MujocoSwimmer": Entry("replaybench.envs.mujoco.roamers", needs="mujoco", extra="mujoco"),
    "MujocoAnt": Entry("replaybench.envs.mujoco.roamers", needs="mujoco", extra="mujoco"),
    "MujocoHumanoid": Entry("replaybench.envs.mujoco.roamers", needs="mujoco", extra="mujoco"),
    "MujocoReacher": Entry("replaybench.envs.mujoco.arms", needs="mujoco", extra="mujoco"),
    "MujocoInvertedDoublePendulum": Entry("replaybench.envs.mujoco.arms", needs="mujoco", extra="mujoco"),
    "BulletInvertedDoublePendulum": Entry("replaybench.envs.bullet.double_pendulum", needs="pybullet", extra="bullet"),
    "BulletReacher": Entry("replaybench.envs.bullet.reacher", needs="pybullet", extra="bullet"),
    "BulletHopper": Entry("replaybench.envs.bullet.walkers", needs="pybullet", extra="bullet"),
    "BulletWalker2d": Entry("replaybench.envs.bullet.walkers", needs="pybullet", extra="bullet"),
    "BulletHalfCheetah": Entry("replaybench.envs.bullet.walkers", needs="pybullet", extra="bullet"),
    "BulletAnt": Entry("replaybench.envs.bullet.walkers", needs="pybullet", extra="bullet"),
    "Drafting": Entry("replaybench.envs.flow.plant"),
    "AcerCartpole": _DM_CONTROL,
    "AcerCheetah": _DM_CONTROL,
    "AcerFish": _DM_CONTROL,
    "AcerWalker": _DM_CONTROL,
    "AcerHumanoid": _DM_CONTROL,
    "AcerReacher3": Entry("replaybench.envs.mujoco.acer_reacher3", needs="mujoco", extra="mujoco"),
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
    """Return whether a name can be taken from a file of unknown origin: making that plant runs installed code only.

    That is so for the plants of this and other installed packages and for tasks that are registered with Gymnasium
    already, but not where a file or a module would be imported first.
    """
    registered = name.startswith(GYMNASIUM) and ":" not in name.removeprefix(GYMNASIUM)
    return registered or PLANTS.spelled(name) in PLANTS


def stored_plant(stored: str, given: str | None, parameters: Mapping[str, Parameter]) -> Plant | None:
    """Return the plant that a file names, or that the user gives in its place.

    None where making it would run code that only the file names.

    Raises:
        UserError: as `make_plant`.
    """
    try:
        with imports_only(given):
            return make_plant(given or stored, **parameters)
    except ImportRefusedError:
        return None


def missing(name: str) -> str:
    """Return the command that installs what a plant of that name lacks here; empty if it lacks nothing."""
    entry = _PLANTS.get(PLANTS.spelled(name), Entry(""))
    here = not entry.needs or importlib.util.find_spec(entry.needs) is not None
    if here and not (entry.outgrown_by and _has_outgrown(*entry.outgrown_by)):
        return ""
    return f'pip install "replaybench[{entry.extra}]"'


def make_plant(name: str, /, **parameters: Parameter) -> Plant:
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
        if not fields:
            raise UserError(f"{plant.name} has no parameters, so that {parameter} cannot be set; leave it out")
        if parameter not in fields:
            raise unknown(f"parameter of {plant.name}", parameter, fields)
    made = plant(**parameters)
    if in_file(name):
        from replaybench.envs.foreign.trial import try_out

        try_out(made, name)
    return made


def plant_class(name: str) -> type[Plant]:
    """Return the class that `make_plant` would make a plant of."""
    if name.startswith(GYMNASIUM):
        from replaybench.envs.foreign.gymnasium_plant import plant_of

        return plant_of(name)
    name = PLANTS.spelled(name)
    if name in _PLANTS and (lacking := missing(name)):
        raise UserError(f"plant {name} needs {_needed(_PLANTS[name])}: {lacking}")
    found: type[Plant] = PLANTS.load(name)
    if in_file(name) and "__dataclass_params__" not in vars(found):
        raise UserError(f"{name} needs @dataclass(frozen=True, kw_only=True) in front of it")
    return found


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
