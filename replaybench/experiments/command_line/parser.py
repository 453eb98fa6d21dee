"""From words to a command with its arguments: the parser, what its help looks like, and its faults in one line."""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import itertools
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TextIO

import tyro

from replaybench.data.errors import UserError
from replaybench.experiments.command_line.options import is_positional, kinds_and_bounds


def parse(words: Sequence[str], commands: Mapping[str, Callable[..., int]], description: str) -> functools.partial[int]:
    """Return the command that `words` name, with its arguments as keywords.

    Raises:
        UserError: they cannot be read; what the parser says in a box becomes one line.
        SystemExit: help or completion was asked for, and printed.
    """
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told), contextlib.redirect_stdout(_BriefUsage(sys.stdout, commands)):
            found = tyro.extras.subcommand_cli_from_dict(
                {name: _later(command) for name, command in commands.items()},
                prog="replaybench",
                description=description,
                args=words,
                sort_subcommands=False,
            )
    except SystemExit as end:
        if not end.code:
            raise
        help_text = f"replaybench {words[0]} --help" if words[0] in commands else "replaybench --help"
        raise UserError(f"{_one_line(told.getvalue())}; see {help_text}") from None
    call: functools.partial[int] = found.call
    return call


class _BriefUsage(io.TextIOBase):
    """Where help is printed to; its first line has one word for all commands, which are listed below it anyway."""

    def __init__(self, to: TextIO, commands: Mapping[str, Any]) -> None:
        self._to, self._all = to, f"{{{','.join(commands)}}}"

    def write(self, text: str) -> int:
        """Pass a text on."""
        return self._to.write(text.replace(self._all, "COMMAND [OPTIONS]"))

    def isatty(self) -> bool:
        """Tell whether colours can be shown."""
        return self._to.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """What characters frames can have."""
        return self._to.encoding


def _later(command: Callable[..., int]) -> type[Any]:
    """Return what takes a command's arguments and does not run it yet, described as its help is to read.

    A class and not a function: what functions stand for the parser asks a library that takes longer to import than
    help takes to print.
    """

    class Later:
        def __init__(self, *arguments: Any, **named: Any) -> None:
            self.call = functools.partial(command, **inspect.signature(command).bind(*arguments, **named).arguments)

    hints, signature = _readable_hints(command), inspect.signature(command)
    described = [each.replace(annotation=hints[name]) for name, each in signature.parameters.items()]
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method: Any = Later.__init__
    method.__annotations__, method.__signature__ = hints, signature.replace(parameters=[itself, *described])
    Later.__doc__ = _unfolded(inspect.getdoc(command) or "")
    return Later


def _unfolded(text: str) -> str:
    """Return a docstring with each argument's description in one line.

    The parser keeps some line breaks: help is then ragged, and a shell takes the second line for a completion.
    """
    return re.sub(r"\n {8,}(?=\S)", " ", text)


_WRITTEN: Final = {"parameters": "NAME=VALUE …", "columns": "NAME=COLUMN …", "na": "WORD …", "set": "NAME=VALUE …"}
"""Options that take several values in a form of their own."""


def _readable_hints(command: Callable[..., Any]) -> dict[str, Any]:
    """Return a command's annotations with what its help writes in the place of each value.

    Files and names are called as their parameters are, numbers by their units. That an option can be left out needs no
    telling: its description says what happens then.
    """
    hints = typing.get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        if hints[name] is bool:
            hints[name] = tyro.conf.FlagCreatePairsOff[bool]
            continue
        hint, metavar = "" if parameter.default in (None, ()) else None, _metavar(name, hints[name])
        if is_positional(parameter) and parameter.default is not parameter.empty:
            metavar = f"[{metavar}]"
        described = tyro.conf.arg(metavar=metavar, help_behavior_hint=hint)
        hints[name] = typing.Annotated[_union(hints[name]), described]
    return hints


def _union(hint: Any) -> Any:
    """Return `X | None` as `Union[None, X]`, which the parser understands without a slow import (see `_later`)."""
    if not isinstance(hint, types.UnionType):
        return hint
    return typing.Union.__getitem__(tuple(sorted(typing.get_args(hint), key=lambda kind: kind is not types.NoneType)))


def _metavar(name: str, hint: Any) -> str:
    """Return what stands for an option's value in help."""
    kinds, bounds = kinds_and_bounds(hint)
    choices = [str(choice) for kind in kinds for choice in typing.get_args(kind) if typing.get_origin(kind) is Literal]
    if choices:
        return "{" + ",".join(choices) + "}"
    if int in kinds:
        return "N"
    if float in kinds:
        return next((bound.unit.upper() for bound in bounds if bound.unit in ("Hz", "s")), "X")
    return _WRITTEN.get(name) or ("PATH" if name in ("output", "out", "figure") else name.upper())


def _one_line(text: str) -> str:
    """Return what a box of the parser says, up to its advice to read the help, as one line."""
    lines = [line.strip("│╭╮╰╯|+ ") for line in text.splitlines()[1:]]  # its frame is ASCII on plain terminals
    said = itertools.takewhile(lambda line: "helptext" not in line, [line for line in lines if line.strip("─-")])
    return " ".join(" ".join(said).split()).rstrip(".") or "the command cannot be read"
