"""From plain tables (TOML, JSON) to frozen dataclasses, with one-line errors that name the key and the remedy."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from replaybench.data.errors import UserError, unknown

T = TypeVar("T")


def build(kind: type[T], table: Mapping[str, Any], where: str) -> T:
    """Make a dataclass of `kind` from a table; `where` names the table in errors.

    Raises:
        UserError: an unknown key, a missing one, or a value of the wrong type.
    """
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}  # type: ignore[arg-type]
    for key in table:
        if key not in fields:
            raise unknown(f"key in {where}:", key, fields)
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in table:
            raise UserError(f"{where}: {name!r} is missing")
    return kind(**{key: _convert(value, hints[key], f"{where}: {key}") for key, value in table.items()})


def _convert(value: Any, hint: Any, where: str) -> Any:
    """Check `value` against a type hint, turning lists into tuples, whole numbers into floats, tables into classes."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return build(typing.cast(type[Any], hint), value, where)
    if origin is typing.Literal:
        if value not in inner:
            raise UserError(f"{where} must be one of {', '.join(map(repr, inner))}, not {value!r}")
        return value
    if origin is types.UnionType:
        if value is None and type(None) in inner:
            return None
        kinds = [kind for kind in inner if kind is not type(None)]
        if len(kinds) > 1 and all(map(dataclasses.is_dataclass, kinds)):
            return _one_of(kinds, value, where)
        return _convert(value, kinds[0], where)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{where} must be a list, not {value!r}")
        kinds = [inner[0]] * len(value) if inner[-1] is Ellipsis else list(inner)
        if len(kinds) != len(value):
            raise UserError(f"{where} must have {len(kinds)} entries, not {len(value)}")
        return tuple(_convert(entry, entry_kind, where) for entry, entry_kind in zip(value, kinds, strict=True))
    if origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise UserError(f"{where} must be a table, not {value!r}")
        return {key: _convert(entry, inner[1], f"{where}.{key}") for key, entry in value.items()}
    if hint is Any:
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise UserError(f"{where} must be {_SPOKEN.get(hint, hint.__name__)}, not {value!r}")
    return value


def _one_of(kinds: list[type[Any]], table: Any, where: str) -> Any:
    """Make the one of several dataclasses that a table names by its key, the first if it names none.

    The key is the field that each of them has with one literal value of its own, e.g. `form: Literal["process"]`.
    """
    if not isinstance(table, Mapping):
        raise UserError(f"{where} must be a table, not {table!r}")
    literals = [
        {name: typing.get_args(hint) for name, hint in typing.get_type_hints(kind).items() if _is_name(hint)}
        for kind in kinds
    ]
    key = next(name for name in literals[0] if all(name in named for named in literals))
    forms = {named[key][0]: kind for named, kind in zip(literals, kinds, strict=True)}
    form = table.get(key, next(iter(forms)))
    if not isinstance(form, str) or form not in forms:
        raise unknown(f"{key} in {where}:", str(form), forms)
    return build(forms[form], table, where)


def _is_name(hint: Any) -> bool:
    return typing.get_origin(hint) is typing.Literal and len(typing.get_args(hint)) == 1


_SPOKEN = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
