"""Options with several values, plant parameters, suggestions for mistyped names, and the console."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import itertools
import re
import shlex
import tomllib
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from tyro.conf import Positional

from replaybench.runtime.configuration import UNIONS, Hertz, Noise, NonNegativeInt, Within
from replaybench.runtime.errors import UserError, shown, unknown

if TYPE_CHECKING:
    from replaybench.envs.interface.plant import Parameter

SHORT: Final = {"-o": "--output", "-j": "--workers", "-q": "--quiet"}
"""Short forms of options."""

Form = Literal["text", "json", "csv", "md"]
"""plain text, or the tables alone in a format."""


def long_options(words: Sequence[str], command: Callable[..., int]) -> list[str]:
    """Replace short options of a command by long ones; a value may follow at once, as in `-j4`."""
    valid = signature_of(command).parameters
    found = []
    for word in words:
        option = SHORT.get(word[:2], "")
        if option[2:] in valid and not word.startswith("--"):
            found += [option, *([word[2:].removeprefix("=")] if word[2:] else [])]
        else:
            found.append(word)
    return found


_DOTS: Final = re.compile(r'\.(?=(?:[^"]*"[^"]*")*[^"]*$)')
"""Dots outside quotes."""


def plant_parameters(words: list[str], command: Callable[..., int]) -> dict[str, str]:
    """Return the parameters of the plant named in `words`, by option; none if no plant is named.

    A parameter with the name of an option of the command is left out: `--parameters NAME=VALUE` sets it.
    """
    if words[:1] not in (["baseline"], ["import"]):
        return {}
    takes = [word.startswith("-") and "=" not in word for word in words]
    plain = [word for option, word in zip(takes, words[1:], strict=False) if not option and not word.startswith("-")]
    plain += [word for word in words[1:2] if not word.startswith("-")]
    named = [after for word, after in itertools.pairwise(words) if word == "--plant"]
    named += [word.partition("=")[2] for word in words if word.startswith("--plant=")]
    names = plain if words[0] == "baseline" else named
    if not names:
        return {}
    from replaybench.envs.registry import plant_class

    own = signature_of(command).parameters
    free = (field.name for field in dataclasses.fields(plant_class(names[-1])) if field.name not in own)
    return {f"--{name.replace('_', '-')}": name for name in free}


def take_plant_parameters(words: list[str], fields: Mapping[str, str]) -> list[str]:
    """Turn options that are parameters of the plant (see `plant_parameters`) into entries of `--parameters`."""
    kept, taken = list[str](), list[str]()
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        name = fields.get(option.replace("_", "-"))
        if name is None:
            kept.append(word)
        else:
            taken.append(f"{name}={value if equals else next(rest, '')}")
    return [*kept, "--parameters", *taken] if taken else kept


class CellOptions(TypedDict, total=False):
    """Options that choose a cell of a run folder, and by its seed a member of it."""

    strategy: str | None
    noise: Noise | None
    frequency: Hertz | None
    seed: NonNegativeInt | None


def signature_of(command: Callable[..., int]) -> inspect.Signature:
    """Return a command's signature with evaluated annotations; an unpacked `TypedDict` stands as its keys."""
    hints = typing.get_type_hints(command, include_extras=True)
    parameters = []
    for name, each in inspect.signature(command).parameters.items():
        if each.kind is not each.VAR_KEYWORD:
            parameters.append(each.replace(annotation=hints[name]))
            continue
        (options,) = typing.get_args(hints[name])
        for key, hint in typing.get_type_hints(options, include_extras=True).items():
            parameters.append(inspect.Parameter(key, each.KEYWORD_ONLY, default=None, annotation=hint))
    return inspect.Signature(parameters)


def is_positional(parameter: inspect.Parameter) -> bool:
    """Return whether a command takes a parameter by its place."""
    return "Positional" in str(parameter.annotation)


def kinds_and_bounds(hint: Any) -> tuple[list[Any], list[Within]]:
    """Return the types that a value may have, and the bounds of its numbers."""
    kinds, bounds = list[Any](), list[Within]()
    for kind in typing.get_args(hint) if typing.get_origin(hint) in UNIONS else (hint,):
        bounded = typing.get_origin(kind) is typing.Annotated
        kinds.append(typing.get_args(kind)[0] if bounded else kind)
        bounds += [mark for mark in kind.__metadata__ if isinstance(mark, Within)] if bounded else []
    return kinds, bounds


def merged_options(words: Sequence[str], command: Callable[..., int], also: Iterable[str] = ()) -> list[str]:
    """Check options and their values, and merge the values of one that is given more than once.

    An option that the command does not have is refused, and the nearest one named; so is one that is given twice and
    takes a single value, of which the parser would use the last.

    Args:
        also: options by parameters of the plant, which are taken out already.
    """
    parameters = [each for each in signature_of(command).parameters.values() if not is_positional(each)]
    hints = {f"--{each.name.replace('_', '-')}": each.annotation for each in parameters}
    hints["--help"] = bool
    found: dict[str, list[str]] = {"": []}
    option = ""
    for word, after in itertools.pairwise([*words, ""]):
        if not word.startswith("--"):
            found[option].append(word)
            continue
        option, equals, value = word.partition("=")
        option = option.replace("_", "-")
        if option not in hints:
            raise unknown(f"option of {words[0]}:", option, [*hints, *also])
        _check_value(option, value if equals else after, hints[option])
        several = any(typing.get_origin(kind) is tuple for kind in kinds_and_bounds(hints[option])[0])
        if option in found and hints[option] is not bool and not several:
            raise UserError(f"{option} is given twice; leave one out")
        found.setdefault(option, []).extend([value] if equals else [])
    return [word for option, values in found.items() for word in ([option] if option else []) + values]


def _check_value(option: str, value: str, hint: Any) -> None:
    kinds, bounds = kinds_and_bounds(hint)
    choices = [str(choice) for kind in kinds for choice in typing.get_args(kind) if typing.get_origin(kind) is Literal]
    optional = type(None) in kinds and value == "None"
    if choices and value not in choices and not optional:
        raise UserError(f"{option} must be one of {', '.join(choices)}, not {value!r}")
    for kind, needed in ((int, "a whole number"), (float, "a number")):
        if kind in kinds and not optional:
            try:
                number = kind(value)
            except ValueError:
                raise UserError(f"{option} must be {needed}, not {shown(value)}") from None
            for bound in bounds:
                bound.check(number, option)


def parameter_values(parameters: Sequence[str]) -> dict[str, Parameter]:
    """Parse NAME=VALUE entries: numbers where they can be, else text, which the plant checks."""
    values: dict[str, Parameter] = {}
    for entry in parameters:
        name, _, value = entry.partition("=")
        name = name.replace("-", "_")
        if name in values:
            raise UserError(f"{name} is given twice; leave one out")
        values[name] = value
        with contextlib.suppress(ValueError):
            values[name] = float(value)
    return values


def setting_values(entries: Sequence[str]) -> dict[str, Any]:
    """Parse NAME=VALUE entries as a study's tables hold them; `exploration.first_amplitude` is one of a table within.

    A name with dots of its own stands in quotes, as in `plant."own.py:Tank".area`.
    """
    settings: dict[str, Any] = {}
    for entry in entries:
        name, equals, text = entry.partition("=")
        first, *middle = (part.strip('"') for part in _DOTS.split(name))
        names = [part.replace("-", "_") for part in (first, *middle[-1:])]
        *tables, key = [names[0], *middle[:-1], *names[1:]]  # learners' names keep their dashes
        if not (equals and key and all(tables)):
            raise UserError(f"--set takes NAME=VALUE, as in tau=0.005, not {shown(entry)}")
        table = settings
        for inner in tables:
            table = table.setdefault(inner, {})
            if not isinstance(table, dict):
                raise UserError(f"--set gives {inner!r} a value and entries of its own; leave one out")
        if key in table:
            raise UserError(f"--set gives {name!r} twice; leave one out")
        table[key] = text
        if "\n" not in text:
            with contextlib.suppress(tomllib.TOMLDecodeError, RecursionError, ValueError):
                table[key] = tomllib.loads(f"value = {text}")["value"]
    return settings


def list_names(
    what: Positional[Literal["all", "plants", "strategies", "learners"]] = "all", format: Form = "text"
) -> int:
    """List the plants, strategies and learners that studies can name.

    Args:
        what: Which of them.
    """
    from replaybench.cli.console import printing
    from replaybench.reports.inspection.inspect import show_names

    with printing(format) as console:
        show_names(console, what)
    return 0


def check(name: Positional[str]) -> int:
    """Check a plant, strategy or learner; a line for each promise, exit status 1 if one is broken.

    Args:
        name: path/to/file.py:ClassName; or a name that `replaybench list` shows, or a whole strategy.
    """
    from replaybench.cli.console import make_console
    from replaybench.evidence.contract_checks import show_check

    return show_check(make_console(), name)


def examples(folder: Positional[Path] = Path("examples")) -> int:
    """Copy the examples that come with replaybench: plants, a strategy, a learner, a test rig's log, scripts.

    Args:
        folder: New folder to copy them into.
    """
    from replaybench.experiments.start import copy_examples

    for path in copy_examples(folder):
        print(path)
    return 0


def init(file: Positional[Path] = Path("study.toml")) -> int:
    """Write a study file with comments, to change and run.

    Args:
        file: New file to write.
    """
    from replaybench.experiments.start import EXAMPLES
    from replaybench.runtime.atomic import write_text

    if file.exists():
        raise UserError(f"{file} exists already; name another file")
    write_text(file, (EXAMPLES / "study.toml").read_text(encoding="utf-8"))
    print(f"study    {file}")
    print(f"next     replaybench sweep {shlex.quote(str(file))} --dry-run")
    return 0
