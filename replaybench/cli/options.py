"""Parsing of command lines, with options, parameters of plants, suggestions for mistyped names, and help.

tyro parses, and about 180 lines here adapt it. cyclopts (5.5) starts as fast. It would replace fewer than 100 of these
lines: checks of bounds with their messages, one-line errors, shared help and metavars would be needed for it, too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import io
import itertools
import re
import shlex
import shutil
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

import tyro
from tyro.conf import Positional

from replaybench.runtime.configuration import UNIONS, Hertz, Noise, NonNegativeInt, Within
from replaybench.runtime.errors import UserError, shown, unknown

if TYPE_CHECKING:
    from replaybench.envs.interface.plant import Parameter

EXAMPLES: Final = Path(__file__).parents[1] / "examples"

SHORT: Final = {"-o": "--output", "-j": "--workers", "-q": "--quiet"}
"""Short forms of options."""

Form = Literal["text", "json", "csv", "md", "latex"]
"""Format of output: text, or only the tables as JSON, CSV, Markdown or LaTeX."""


def long_options(words: Sequence[str], command: Callable[..., int]) -> list[str]:
    """Replace short options in a command line by long ones, also where a value follows directly, as in `-j4`."""
    valid = signature_of(command).parameters
    replaced = []
    for word in words:
        option = SHORT.get(word[:2], "")
        if option[2:] in valid and not word.startswith("--"):
            replaced += [option, *([word[2:].removeprefix("=")] if word[2:] else [])]
        else:
            replaced.append(word)
    return replaced


_DOTS: Final = re.compile(r'\.(?=(?:[^"]*"[^"]*")*[^"]*$)')
"""Dots outside quotes."""


def plant_parameters(words: list[str], command: Callable[..., int]) -> dict[str, str]:
    """Find the plant in a command line, and return a dictionary from options such as `--inertia` to its parameters.

    The dictionary is empty without a plant, and for commands other than `baseline` and `import`. A parameter with the
    name of one of the command's options is left out, but `--parameters NAME=VALUE` can set it.
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
    """Replace options that set parameters of the plant, such as `--inertia`, by entries of the option `--parameters`.

    The keys of `fields` are these options, and the values are the names of the parameters.
    """
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
    """The options of commands that choose one cell of a run folder.

    The option `seed` chooses one seed of the cell.
    """

    strategy: str | None
    noise: Noise | None
    frequency: Hertz | None
    seed: NonNegativeInt | None


def signature_of(command: Callable[..., int]) -> inspect.Signature:
    """Return the signature of a command, in which the keys of an unpacked `TypedDict` are parameters of their own."""
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
    """Return whether a parameter of a command is positional on the command line."""
    return "Positional" in str(parameter.annotation)


def kinds_and_bounds(hint: Any) -> tuple[list[Any], list[Within]]:
    """Return the types that the value of an annotated parameter may have, and the bounds of its numbers."""
    kinds, bounds = list[Any](), list[Within]()
    for kind in typing.get_args(hint) if typing.get_origin(hint) in UNIONS else (hint,):
        bounded = typing.get_origin(kind) is typing.Annotated
        kinds.append(typing.get_args(kind)[0] if bounded else kind)
        bounds += [mark for mark in kind.__metadata__ if isinstance(mark, Within)] if bounded else []
    return kinds, bounds


def merged_options(words: Sequence[str], command: Callable[..., int], also: Iterable[str] = ()) -> list[str]:
    """Check the options of a command line and their values, and merge the values of options that are given repeatedly.

    An unknown option raises an error that names the most similar option. An option that takes a single value raises an
    error if it is given twice, because the parser would silently use the last value.

    Args:
        also: Further valid options, namely those that set parameters of the plant. Errors suggest these options, which
            the `words` no longer contain.
    """
    parameters = [each for each in signature_of(command).parameters.values() if not is_positional(each)]
    hints = {f"--{each.name.replace('_', '-')}": each.annotation for each in parameters}
    hints["--help"] = bool
    merged: dict[str, list[str]] = {"": []}
    option = ""
    for word, after in itertools.pairwise([*words, ""]):
        if not word.startswith("--"):
            merged[option].append(word)
            continue
        option, equals, value = word.partition("=")
        option = option.replace("_", "-")
        if option not in hints:
            raise unknown(f"option of {words[0]}:", option, [*hints, *also])
        _check_value(option, value if equals else after, hints[option])
        several = any(typing.get_origin(kind) is tuple for kind in kinds_and_bounds(hints[option])[0])
        if option in merged and hints[option] is not bool and not several:
            raise UserError(f"{option} is given twice; leave one out")
        merged.setdefault(option, []).extend([value] if equals else [])
    return [word for option, values in merged.items() for word in ([option] if option else []) + values]


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
    """Parse entries NAME=VALUE into a dictionary of plant parameters, as floats or, if not numeric, as strings."""
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
    """Parse entries NAME=VALUE into nested tables of a study, where dots in a name separate the tables.

    For example, `exploration.first_amplitude=0.5` sets a key of the table `exploration`. A name that contains dots
    itself must be quoted, as in `plant."own.py:Tank".area`.
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
                raise UserError(f"--set gives {inner!r} both a value and entries of a table; leave one out")
        if key in table:
            raise UserError(f"--set gives {name!r} twice; leave one out")
        table[key] = text
        if "\n" not in text:
            with contextlib.suppress(tomllib.TOMLDecodeError, RecursionError, ValueError):
                table[key] = tomllib.loads(f"value = {text}")["value"]
    return settings


_SHARED: Final = {
    "strategy": "Use the cell of the run folder with this strategy.",
    "learner": "Use the cell of the run folder with this learner.",
    "noise": "Use the cell of the run folder with this noise.",
    "frequency": "Use the cell of the run folder with this control rate (Hz).",
    "seed": "Use the cell and the member of the run folder with this seed.",
    "quiet": "Print errors only.",
    "format": "Print text, or only the tables as JSON, CSV, Markdown or LaTeX (with booktabs).",
    "root_seed": "Root seed of the random numbers.",
    "workers": "Number of worker processes, one per core if not given.",
    "cluster": "Address of a Dask scheduler (tcp://host:8786), whose workers then run the cells.",
    "checkpoint_seconds": "Least time between the checkpoints of a running cell. Results do not depend on it.",
    "dry_run": "Print the cells and the time, memory and disk space that they need, but train nothing. Python files "
    "that the study names are executed.",
    "no_measure": "With --dry-run: do not measure the speed of cells (5 s for each type not yet timed here).",
    "parameters": "Parameters of the plant as NAME=VALUE. Each parameter is also an option, as in --inertia 1.91e-4.",
}
"""Descriptions of options of several commands, used if the docstring of a command does not describe the option."""
_WRITTEN: Final = {"parameters": "NAME=VALUE …", "columns": "NAME=COLUMN …", "na": "WORD …", "set": "NAME=VALUE …"}
"""Placeholders in help for options that take several values."""
_AXES: Final = ("plant", "learner", "strategy", "noise", "frequency")


def parse(words: Sequence[str], commands: Mapping[str, Callable[..., int]], description: str) -> functools.partial[int]:
    """Parse a command line, and return a function without arguments that runs the named command."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            parsed = tyro.extras.subcommand_cli_from_dict(
                {name: _deferred(command) for name, command in commands.items()}, prog="replaybench",
                description=description, args=words, sort_subcommands=False,
            )  # fmt: skip
    except SystemExit as end:
        if not end.code:
            raise
        help_text = f"replaybench {words[0]} --help" if words[0] in commands else "replaybench --help"
        raise UserError(f"{_one_line(printed.getvalue())}; see {help_text}") from None
    call: functools.partial[int] = parsed.call
    return call


def _deferred(command: Callable[..., int]) -> type[Any]:
    """Return a class whose instances store the arguments of a command without running the command.

    The parser gets a class instead of the function. For functions, the parser imports a library that takes longer than
    printing help.
    """

    class Deferred:
        def __init__(self, *arguments: Any, **named: Any) -> None:
            self.call = functools.partial(command, **signature.bind(*arguments, **named).arguments)

    signature = signature_of(command)
    hints = _readable_hints(signature)
    described = [each.replace(annotation=hints[name]) for name, each in signature.parameters.items()]
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method: Any = Deferred.__init__
    method.__annotations__, method.__signature__ = hints, signature.replace(parameters=[itself, *described])
    # The parser keeps some line breaks, which make help ragged and add wrong completions in a shell.
    text = re.sub(r"\n {8,}(?=\S)", " ", inspect.getdoc(command) or "")
    shared = [each for each in signature.parameters if each in _SHARED and not re.search(rf"^ +{each}: ", text, re.M)]
    Deferred.__doc__ = "\n".join([text.rstrip(), *(f"    {name}: {_SHARED[name]}" for name in shared)])
    return Deferred


def _readable_hints(signature: inspect.Signature) -> dict[str, Any]:
    """Return the annotations of a command with the placeholders that its help shows for values."""
    hints = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    for name, parameter in signature.parameters.items():
        short = [short for short, option in SHORT.items() if option == f"--{name}"]
        if hints[name] is bool:
            hints[name] = typing.Annotated[tyro.conf.FlagCreatePairsOff[bool], tyro.conf.arg(aliases=short)]
            continue
        hint, metavar = "" if parameter.default in (None, ()) else None, _metavar(name, hints[name])
        if is_positional(parameter) and parameter.default is not parameter.empty:
            metavar = f"[{metavar}]"
        described = tyro.conf.arg(metavar=metavar, help_behavior_hint=hint, aliases=short)
        hints[name] = typing.Annotated[_union(hints[name]), described]
    return hints


def _union(hint: Any) -> Any:
    """Return an annotation `X | None` as `Union[None, X]`, which the parser understands without a slow import."""
    if typing.get_origin(hint) is typing.Annotated:
        inner, *marks = typing.get_args(hint)
        return typing.Annotated[(_union(inner), *marks)]
    if not isinstance(hint, types.UnionType):
        return hint
    return typing.Union.__getitem__(tuple(sorted(typing.get_args(hint), key=lambda kind: kind is not types.NoneType)))


def _metavar(name: str, hint: Any) -> str:
    kinds, bounds = kinds_and_bounds(hint)
    choices = [str(choice) for kind in kinds for choice in typing.get_args(kind) if typing.get_origin(kind) is Literal]
    if choices:
        return "{" + ",".join(choices) + "}"
    if int in kinds:
        return "N"
    if float in kinds:
        return next((bound.unit.upper() for bound in bounds if bound.unit in ("Hz", "s")), "X")
    if any(typing.get_origin(kind) is tuple for kind in kinds) and name in _AXES:
        return f"{name.upper()} …"
    return _WRITTEN.get(name) or ("PATH" if name in ("output", "figure") else name.upper())


def _one_line(text: str) -> str:
    """Return an error text of the parser as one line, without frame and without advice to read the help."""
    lines = [line.strip("│╭╮╰╯|+ ") for line in text.splitlines()[1:]]  # the frame is ASCII on plain terminals
    text_lines = itertools.takewhile(lambda line: "helptext" not in line, [line for line in lines if line.strip("─-")])
    return " ".join(" ".join(text_lines).split()).rstrip(".") or "the command cannot be read"


def list_names(
    what: Positional[Literal["all", "plants", "strategies", "learners"]] = "all", format: Form = "text"
) -> int:
    """List the plants, strategies and learners that studies can name.

    Args:
        what: Group of names to list.
    """
    from replaybench.cli.console import printing
    from replaybench.cli.inspect import show_names

    with printing(format) as console:
        show_names(console, what)
    return 0


def check(name: Positional[str]) -> int:
    """Check that a plant, strategy or learner follows the rules of its interface.

    The exit status is 1 if a check fails.

    Args:
        name: Name that `replaybench list` shows, path/to/file.py:ClassName, or a whole strategy such as FULL[PER].
    """
    from replaybench.cli.console import make_console
    from replaybench.evidence import contract_checks
    from replaybench.evidence.contracts import TOO_WEAK

    console, broken = make_console(), False
    category, results = contract_checks.check(name)
    console.print(f"{category} {name}", style="bold", highlight=False, markup=False)
    for promise, problem in results:
        weak = problem.startswith(TOO_WEAK)
        broken |= bool(problem) and not weak
        line = f"  {'weak  ' if weak else 'broken'}  {promise}: {problem}" if problem else f"  ok      {promise}"
        console.print(line, style="red" if problem and not weak else "", highlight=False, markup=False, soft_wrap=True)
    return int(broken)


def examples(folder: Positional[Path] = Path("examples")) -> int:
    """Copy examples of plants, strategies, learners, logs and scripts into a folder.

    Args:
        folder: New folder to copy them into.
    """
    from replaybench.runtime.atomic import atomic_path, new_path

    with atomic_path(new_path(folder, "name a folder that does not"), folder=True) as temporary:
        for path in filter(Path.is_file, EXAMPLES.iterdir()):
            shutil.copyfile(path, temporary / path.name)
    print(*sorted(folder.iterdir()), sep="\n")
    return 0


def init(file: Positional[Path] = Path("study.toml")) -> int:
    """Write a commented study file to edit and run.

    Args:
        file: New file to write.
    """
    from replaybench.runtime.atomic import new_path, write_text

    write_text(new_path(file, "name another file"), (EXAMPLES / "study.toml").read_text(encoding="utf-8"))
    print(f"study    {file}")
    print(f"next     replaybench sweep {shlex.quote(str(file))} --dry-run")
    return 0
