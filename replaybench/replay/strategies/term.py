"""Terms of the notation: what a strategy's parts have in common, and how they are written.

A term is a frozen dataclass whose fields are what the notation puts in brackets. Equal terms read alike, and what is
written is read as an equal term again (`replaybench.replay.strategies.notation`).
"""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass
from typing import Any, ClassVar

from replaybench.data.user_code.user_file import name_in_file


@dataclass(frozen=True)
class Term:
    """Base class of everything that the notation names."""

    name: ClassVar[str] = ""
    """How the notation calls it; the class's own name if empty."""
    second: ClassVar[str] = ""
    """The field, a term itself, that is written behind a plus, under the second part of `name`."""
    always_written: ClassVar[bool] = False
    """Whether values are written although they are the default."""
    keywords: ClassVar[bool] = False
    """Whether a value alone is not enough to say which it is."""
    no_parameters: ClassVar[str] = ""
    """What to tell somebody who gives it one, where it takes none."""

    @classmethod
    def written_name(cls) -> str:
        """Return how the notation calls it; a class in a user's file by the file and its name."""
        return name_in_file(cls) or cls.name or cls.__name__

    @classmethod
    def parameters(cls) -> dict[str, dataclasses.Field[Any]]:
        """Return the fields that are written in its brackets, by name; those that all of a kind have come last."""
        fields = sorted(dataclasses.fields(cls), key=lambda field: field.kw_only is True)
        return {field.name: field for field in fields if field.name != cls.second}

    @classmethod
    def kinds(cls, parameter: str) -> tuple[Any, ...]:
        """Return the types that a parameter may have: the parts of its union, or its only type."""
        hint = typing.get_type_hints(cls)[parameter]
        return typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)

    def __str__(self) -> str:
        first, _, second = self.written_name().partition("+")
        behind = f"+{second}{getattr(self, self.second).in_brackets()}" if self.second else ""
        return f"{first}{self.in_brackets()}{behind}"

    def in_brackets(self) -> str:
        """Write those parameters that differ from their defaults."""
        fields = self.parameters()
        changed = {
            name: self._plain(name)
            for name, field in fields.items()
            if self.always_written or getattr(self, name) != field.default
        }
        if not changed:
            return ""
        if list(changed) == list(fields)[:1] and not self.keywords:
            return f"({next(iter(changed.values()))})"
        return "(" + ", ".join(f"{name}={value}" for name, value in changed.items()) + ")"

    def _plain(self, parameter: str) -> str:
        value = getattr(self, parameter)
        if value is None or isinstance(value, bool | str):
            return str(value).lower()
        number = int(value) if int in self.kinds(parameter) else float(value)
        return repr(number).replace("e+", "e")  # a plus would begin a modifier
