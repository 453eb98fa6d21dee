"""The registry of plants by name: built-in plants, installed packages, users' files and tasks of Gymnasium.

Importing this module imports no plant.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import shlex
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from replaybench.runtime.configuration import build
from replaybench.runtime.errors import UserError, unknown
from replaybench.runtime.user_file import (
    IN_FILE,
    ImportRefusedError,
    Registry,
    imports_only,
    in_file,
    same_working_folder,
)

if TYPE_CHECKING:
    from replaybench.envs.interface.channel import Channel
    from replaybench.envs.interface.plant import Plant

DELAY: Final = ":delay="
"""Text between the name of a plant and the delay of its commands in seconds, as in `Pendulum:delay=0.01`."""

GYMNASIUM: Final = "gymnasium:"
"""Prefix of the names of plants that are tasks of Gymnasium, as in `gymnasium:Pendulum-v1`."""


class Entry(NamedTuple):
    """The module that defines a built-in plant, and the packages that the plant needs."""

    module: str
    needs: str = ""  # a package that is not among the project's own dependencies
    extra: str = ""  # the extra of replaybench that installs the package
    outgrown_by: tuple[str, int] | None = None  # a package, and its first major version with which the plant fails


_BULLET: Final = ("pybullet", "bullet")
_PLANTS: Final = {
    name: Entry(f"replaybench.envs.{module}", *requirements)
    for module, requirements, names in (
        ("ode.pendulum", (), ("Pendulum", "PendulumDCSC")),
        ("ode.magman", (), ("Magman",)),
        ("ode.servo", (), ("Servo",)),
        (
            "mujoco.locomotion",
            (),
            ("MujocoHopper", "MujocoWalker2d", "MujocoHalfCheetah", "MujocoSwimmer", "MujocoAnt", "MujocoHumanoid"),
        ),
        ("mujoco.arms", (), ("MujocoReacher", "MujocoInvertedDoublePendulum")),
        ("bullet.double_pendulum", _BULLET, ("BulletInvertedDoublePendulum",)),
        ("bullet.reacher", _BULLET, ("BulletReacher",)),
        ("bullet.walkers", _BULLET, ("BulletHopper", "BulletWalker2d", "BulletHalfCheetah", "BulletAnt")),
        ("flow.plant", (), ("Drafting",)),
        (
            "foreign.dm_suite",
            ("dm_control", "dm", ("mujoco", 4)),
            ("AcerCartpole", "AcerCheetah", "AcerFish", "AcerWalker", "AcerHumanoid"),
        ),
        ("mujoco.arms", (), ("AcerReacher3",)),
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
    """Return the names of all built-in plants, including those whose packages are not installed."""
    return tuple(_PLANTS)


def without_delay(name: str) -> tuple[str, float | None]:
    """Split the name of a plant such as `Pendulum:delay=0.01` into the name without delay and the delay [s], or None.

    Raises:
        UserError: The delay is not a number.
    """
    bare, found, text = name.partition(DELAY)
    if not found:
        return name, None
    try:
        return bare, float(text)
    except ValueError:
        raise UserError(
            f"the delay in {name} is not a number of seconds; write {bare}{DELAY}0.01, for example"
        ) from None


def spelled(name: str) -> str:
    """Return the name of a plant in its registered spelling, such as `Pendulum:delay=0.01` for `pendulum:delay=1e-2`.

    A delay of 0 is left out.
    """
    bare, delay = without_delay(name)
    return PLANTS.spelled(bare) + (f"{DELAY}{delay:.12g}" if delay else "")


def is_installed(name: str) -> bool:
    """Return whether a plant of this name needs only code of installed packages.

    This holds for built-in plants, for plants of installed packages, and for tasks of Gymnasium whose names contain no
    file or module. A stored file may name only such plants.
    """
    name, _ = without_delay(name)
    registered = name.startswith(GYMNASIUM) and ":" not in name.removeprefix(GYMNASIUM)
    return registered or PLANTS.spelled(name) in PLANTS


def stored_plant(stored: str, given: str | None, parameters: Mapping[str, Any]) -> Plant | None:
    """Make the plant that a stored file names, or return None if this would import code that the user has not named.

    Args:
        stored: Name of the plant in the file.
        given: Name of a plant that the user has given, or None. This plant replaces the stored one.
        parameters: Values of the plant's parameters.

    Raises:
        UserError: There is no such plant, file, class or parameter.
    """
    try:
        with imports_only(given):
            return make_plant(given or stored, **parameters)
    except ImportRefusedError:
        return None


def untrusted(name: str) -> ImportRefusedError:
    """Return the error that only an opened file names a plant in a Python file. `name` may contain a delay."""
    return ImportRefusedError(f"{name} is in a Python file; add --plant {shlex.quote(name)} if you trust that file")


def missing(name: str) -> str:
    """Return the command that installs the missing packages of a plant, or an empty string if none is missing."""
    entry = _PLANTS.get(PLANTS.spelled(without_delay(name)[0]), Entry(""))
    here = not entry.needs or importlib.util.find_spec(entry.needs) is not None
    if entry.outgrown_by and here:
        package, major = entry.outgrown_by
        with contextlib.suppress(PackageNotFoundError):
            here = int(version(package).partition(".")[0]) < major
    if here:
        return ""
    return f'pip install "replaybench[{entry.extra}]"'


def make_plant(name: str, /, **parameters: Any) -> Plant:
    """Make a plant by its name.

    Args:
        name: A name from `plant_names()`, `path/to/file.py:ClassName`, or `gymnasium:Name-v0`. The delay of commands in
            seconds may follow, as in `Pendulum:delay=0.01`.
        parameters: Values of the plant's parameters. The keyword `discount` replaces the plant's discount factor. The
            keyword `channel` is a `Channel`, or a mapping of its settings. The keyword `spread` is a mapping from names
            of parameters to half-widths of their ranges, such as `{"mass": 0.2}` for ± 20 %.

    Raises:
        UserError: There is no such plant, file, class or parameter.
    """
    name, delay = without_delay(name)
    plant = plant_class(name)
    fields = [field.name for field in dataclasses.fields(plant)]
    if delay is not None or "channel" in parameters:
        plant = plant.with_channel(_channel(name, delay, parameters.pop("channel", {})))
    if "spread" in parameters:
        plant = plant.with_spread(parameters.pop("spread"))
    if "discount" in parameters and "discount" not in fields:
        plant = plant.with_discount(parameters.pop("discount"))
    for parameter in parameters:
        if not fields:
            raise UserError(f"{plant.name} has no parameters, so that {parameter} cannot be set; leave it out")
        if parameter not in fields:
            raise unknown(f"parameter of {plant.name}", parameter, fields)
    with same_working_folder():
        made = plant(**parameters)
        if in_file(name):
            from replaybench.envs.foreign.python_plant import try_out

            try_out(made, name)
    return made


def _channel(name: str, delay: float | None, settings: Channel | Mapping[str, Any]) -> Channel:
    """Return the channel of a plant with the settings in a table, and with the delay in the plant's name."""
    from replaybench.envs.interface.channel import Channel

    if not isinstance(settings, Channel):
        settings = build(Channel, settings, f"channel of {name}")
    if delay is None:
        return settings
    if settings.delay not in (0.0, delay):
        raise UserError(f"{name} has two delays, {delay:g} s in its name and {settings.delay:g} s; leave one out")
    return dataclasses.replace(settings, delay=delay)


def plant_class(name: str) -> type[Plant]:
    """Return the class of the plant that `make_plant` makes for the same name, without the delay in the name."""
    name, _ = without_delay(name)
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
    """Register every built-in plant with Gymnasium as `replaybench/<name>-v0`, single and vectorised.

    Importing `replaybench.envs` calls this function. `gymnasium.make("replaybench.envs:replaybench/Pendulum-v0")` also
    imports the package.
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
