"""Parse words to a command with its arguments; errors are one line, and shared options are described once."""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import itertools
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import tyro

from replaybench.cli.options import SHORT, is_positional, kinds_and_bounds, signature_of
from replaybench.runtime.errors import UserError

_SHARED: Final = {
    "strategy": "Of a run folder: the strategy of the cell to take.",
    "learner": "Of a run folder: the learner of the cell to take.",
    "noise": "Of a run folder: the noise of the cell to take.",
    "frequency": "Of a run folder: the control rate in Hz of the cell to take.",
    "seed": "Of a run folder: the seed, whose cell and member to take.",
    "quiet": "Print errors only.",
    "format": "plain text; or the tables alone, as JSON, CSV or Markdown.",
    "root_seed": "Root seed of the random numbers.",
    "workers": "Worker processes; one per core if not given.",
    "cluster": "Address of a Dask scheduler (tcp://host:8786) to run the cells on instead.",
    "checkpoint_seconds": "Least time between the checkpoints of a running cell; changes no numbers.",
    "dry_run": "Print the cells and what they need in time, memory and disk; run nothing.",
    "no_measure": "With --dry-run, do not measure how fast kinds of cells are that are new here (at most 5 s each).",
    "parameters": "The plant's own parameters as NAME=VALUE; each is an option too, as in --inertia 1.91e-4.",
}
"""Descriptions of options that several commands have, used where a command's docstring has none."""
_WRITTEN: Final = {"parameters": "NAME=VALUE …", "columns": "NAME=COLUMN …", "na": "WORD …", "set": "NAME=VALUE …"}
"""Options that take several values in a form of their own."""
_AXES: Final = ("plant", "learner", "strategy", "noise", "frequency")


def parse(words: Sequence[str], commands: Mapping[str, Callable[..., int]], description: str) -> functools.partial[int]:
    """Return the command that `words` name, with its arguments as keywords."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            found = tyro.extras.subcommand_cli_from_dict(
                {name: _deferred(command) for name, command in commands.items()}, prog="replaybench",
                description=description, args=words, sort_subcommands=False,
            )  # fmt: skip
    except SystemExit as end:
        if not end.code:
            raise
        help_text = f"replaybench {words[0]} --help" if words[0] in commands else "replaybench --help"
        raise UserError(f"{_one_line(printed.getvalue())}; see {help_text}") from None
    call: functools.partial[int] = found.call
    return call


def _deferred(command: Callable[..., int]) -> type[Any]:
    """Return a class that takes a command's arguments and does not run it yet.

    A class and not a function: for functions the parser imports a library that takes longer than help takes to print.
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
    """Return a command's annotations with the placeholder of each value in help.

    Defaults of None are not shown: the description covers them.
    """
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
    """Return `X | None` as `Union[None, X]`, which the parser understands without a slow import."""
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
    """Return the text in a box of the parser, up to its advice to read the help, as one line."""
    lines = [line.strip("│╭╮╰╯|+ ") for line in text.splitlines()[1:]]  # its frame is ASCII on plain terminals
    text_lines = itertools.takewhile(lambda line: "helptext" not in line, [line for line in lines if line.strip("─-")])
    return " ".join(" ".join(text_lines).split()).rstrip(".") or "the command cannot be read"
