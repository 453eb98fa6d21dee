"""Checked settings: bounds on numbers and names, and conversion of TOML and JSON tables to frozen dataclasses.

Every error is one line that names the key and the remedy.
"""

import dataclasses
import functools
import math
import types
import typing
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

from replaybench.runtime.errors import UserError, shown, unknown

MOST: Final = 10**9


@dataclass(frozen=True)
class Within:
    """A range of allowed numbers from `low` to `high`, without `low` itself if `above`. Errors print the `unit`."""

    low: float
    high: float = MOST
    unit: str = ""
    above: bool = False

    def check(self, value: float, what: str) -> None:
        """Raise `UserError`, with a message about `what`, for NaN or a number outside the range."""
        if self.low <= value <= self.high and not (self.above and value == self.low):
            return
        low = f"above {self.low:.10g}" if self.above else f"at least {self.low:.10g}"
        high = "" if math.isinf(self.high) else f" and at most {self.high:.10g}"
        raise UserError(f"{what} must be {low}{high}{self.unit and ' '}{self.unit}, not {shown(value)}")


@dataclass(frozen=True)
class OneLine:
    """A constraint on strings: no control characters and no line breaks."""

    def check(self, value: str, what: str) -> None:
        """Raise `UserError`, with a message about `what`, for a string with control characters or line breaks."""
        if any(unicodedata.category(each) in ("Cc", "Zl", "Zp") for each in value):
            raise UserError(f"{what} holds a control character or line break: {shown(value)}; names are one line")


Bound = Within | OneLine

Name = Annotated[str, OneLine()]
"""A name of a plant, learner, strategy or signal."""

Count = Annotated[int, Within(1)]
"""A count from 1 to `MOST`."""
NonNegativeInt = Annotated[int, Within(0)]
"""A count or an index from 0 to `MOST`."""
Seeds = Annotated[int, Within(1, 100_000)]
Workers = Annotated[int, Within(1, 4096)]
RootSeed = Annotated[int, Within(0, 2**128 - 1)]

NOISE: Final = Within(0, 10, "normalised units")
Noise = Annotated[float, NOISE]
"""Standard deviation of noise in normalised units."""
HERTZ: Final = Within(0, 1e5, "Hz", above=True)
Hertz = Annotated[float, HERTZ]
Seconds = Annotated[float, Within(0, math.inf, "s")]
Discount = Annotated[float, Within(0, 1)]
"""Discount factor per control step."""

STEPS: Final = Within(1, 10**7, "steps")
"""Bounds on the control steps of an episode and on the integration steps of a control step."""


T = TypeVar("T")

UNIONS: Final = (types.UnionType, typing.Union)
"""The types of `int | None` and of `Annotated[int, …] | None`."""


def build(kind: type[T], table: Mapping[str, Any], where: str, *, others: bool = False) -> T:
    """Build a dataclass or named tuple from a table of settings, and check types and bounds of the values.

    Args:
        kind: Class of the result.
        table: Values by name of the field.
        where: Name of the table in error messages.
        others: Whether to ignore unknown keys, also in nested tables. A later version may have written such keys.

    Raises:
        UserError: If a key is unknown or missing, or a value has the wrong type or is outside its bounds.
    """
    schema: Any = kind  # for mypy, a `type[T]` is not hashable
    hints, required = _hints(schema), _keys(schema)
    for key in table:
        if key not in required and not others:
            raise unknown(f"key in {where}:", str(key), required)
    for name, needed in required.items():
        if needed and name not in table:
            raise UserError(f"{where}: {name!r} is missing")
    known = {key: value for key, value in table.items() if key in required}
    for key, value in known.items():
        # `key` holds tables of settings, and the user gave names, which belong to the key in the plural.
        if f"{key}s" in required and typing.get_origin(hints[key]) is dict and isinstance(value, list | str):
            raise UserError(f"{where}: {key} must be a table, not {shown(value)}; did you mean {key}s?")
    converted = {key: _convert(value, hints[key], f"{where}: {key}", others) for key, value in known.items()}
    try:
        return kind(**converted)
    except UserError as error:
        raise (UserError(f"{where}: {error}") if others else error) from None


def check(settings: Any, where: str) -> None:
    """Check types and bounds of the fields of a frozen dataclass, and convert lists to tuples in place.

    A single string or number in a tuple field becomes a tuple of length one. `where` names the dataclass in errors.

    Raises:
        UserError: If a value has the wrong type or is outside its bounds.
    """
    schema: Any = type(settings)  # for mypy, a `type[T]` is not hashable
    for name in _keys(schema):
        value, hint = getattr(settings, name), _hints(schema)[name]
        if typing.get_origin(hint) is tuple and isinstance(value, str | int | float):
            value = (value,)
        object.__setattr__(settings, name, _convert(value, hint, f"{where}: {name}", False))


def merged(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of settings in which the changes replace values, also in nested tables.

    The key `form` selects a class of settings. Changes with another `form` than the table replace the whole table.
    """
    if changes.get("form", table.get("form")) != table.get("form"):
        return dict(changes)
    result = dict(table)
    for name, value in changes.items():
        inner = result.get(name)
        both = isinstance(value, Mapping) and isinstance(inner, Mapping)
        result[name] = merged(inner, value) if both and inner is not None else value
    return result


@functools.cache  # a sweep has thousands of cells
def _hints(kind: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


@functools.cache
def _keys(kind: type[Any]) -> dict[str, bool]:
    """Return the names of the settings of a class, and whether each setting is required."""
    if not dataclasses.is_dataclass(kind):
        return {name: name not in kind._field_defaults for name in kind._fields}
    missing = dataclasses.MISSING
    fields = [field for field in dataclasses.fields(kind) if field.init]
    return {field.name: field.default is missing and field.default_factory is missing for field in fields}


def _is_table(hint: Any) -> bool:
    return dataclasses.is_dataclass(hint) or (isinstance(hint, type) and hasattr(hint, "_field_defaults"))


def _convert(value: Any, hint: Any, where: str, others: bool) -> Any:
    """Check a value against a type hint, and convert lists to tuples, integers to floats and tables to dataclasses."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        converted = _convert(value, inner[0], where, others)
        for bound in hint.__metadata__:
            if isinstance(bound, Bound):
                bound.check(converted, where)
        return converted
    if origin is typing.Literal:
        if not isinstance(value, str | int) or value not in inner:
            raise UserError(f"{where} must be one of {', '.join(map(repr, inner))}, not {shown(value)}")
        return value
    if origin in UNIONS:
        return _convert_union(value, inner, where, others)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{where} must be a list, not {shown(value)}")
        kinds: Iterable[Any] = [inner[0]] * len(value) if inner[-1] is Ellipsis else inner
        if len(list(kinds)) != len(value):
            raise UserError(f"{where} must have {len(inner)} entries, not {len(value)}")
        return tuple(_convert(entry, kind, where, others) for entry, kind in zip(value, kinds, strict=True))
    if _is_table(hint) and isinstance(value, hint):
        return value
    if _is_table(hint) or origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise UserError(f"{where} must be a table, not {shown(value)}")
        if _is_table(hint):
            return build(typing.cast(type[Any], hint), value, where, others=others)
        return {key: _convert(entry, inner[1], f"{where}.{key}", others) for key, entry in value.items()}
    return value if hint is Any else _scalar(value, hint, where)


def _scalar(value: Any, kind: type[Any], where: str) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise UserError(f"{where} is too large: {shown(value)}") from None
    if kind is str and isinstance(value, type):
        place = "" if value.__module__.startswith("replaybench.") else "path/to/file.py:"
        how = " (in a notebook, a cell that begins with %%writefile path/to/file.py writes the file)" if place else ""
        raise UserError(f"{where} takes names, not classes; write '{place}{value.__name__}'{how}")
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise UserError(f"{where} must be {_TYPE_WORDS.get(kind, kind.__name__)}, not {shown(value)}")
    return value


def _convert_union(value: Any, inner: tuple[Any, ...], where: str, others: bool) -> Any:
    """Convert a value to the type of a union that fits, or to the dataclass that a table selects."""
    if value is None and type(None) in inner:
        return None
    kinds = [kind for kind in inner if kind is not type(None)]
    if any(_is_table(kind) and isinstance(value, kind) for kind in kinds):
        return value
    if len(kinds) > 1 and all(map(_is_table, kinds)):
        return _build_selected(kinds, value, where, others)
    fitting = [kind for kind in kinds if _type_of(kind) is (tuple if isinstance(value, list) else type(value))]
    return _convert(value, (fitting or kinds)[0], where, others)


def _type_of(hint: Any) -> Any:
    origin = typing.get_origin(hint)
    return _type_of(typing.get_args(hint)[0]) if origin is typing.Annotated else origin or hint


def _build_selected(kinds: list[type[Any]], table: Any, where: str, others: bool) -> Any:
    """Build the dataclass that a table selects among several dataclasses.

    The dataclasses have a common field with a different literal type in each, for example `form: Literal["process"]`.
    The table's value of this field selects the dataclass. If the table has no such value, the first dataclass is built.
    """
    if not isinstance(table, Mapping):
        raise UserError(f"{where} must be a table, not {shown(table)}")
    hints = [typing.get_type_hints(kind) for kind in kinds]
    literals = [
        {name: typing.get_args(hint) for name, hint in each.items() if typing.get_origin(hint) is typing.Literal}
        for each in hints
    ]
    key = next(name for name in literals[0] if all(len(named.get(name, ())) == 1 for named in literals))
    forms = {named[key][0]: kind for named, kind in zip(literals, kinds, strict=True)}
    form = table.get(key, next(iter(forms)))
    if not isinstance(form, str) or form not in forms:
        raise unknown(f"{key} in {where}:", shown(form).strip("'"), forms)
    return build(forms[form], table, where, others=others)


_TYPE_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


Positive = Annotated[float, Within(0, above=True)]
NonNegative = Annotated[float, Within(0)]
Share = Annotated[float, Within(0, 1)]
Number = Annotated[int, Within(1, 10**6)]
Episodes = Annotated[int, Within(0, 10**6)]
Units = Annotated[int, Within(1, 10_000)]
Widths = tuple[Units, ...]
"""Number of units of each hidden layer."""
Betas = tuple[Annotated[float, Within(0, 1 - 1e-9)], Annotated[float, Within(0, 1 - 1e-9)]]
"""Adam's decay rates β₁ and β₂, in [0, 1)."""


class Settings:
    """A base class of frozen dataclasses that check types and bounds of their fields on creation.

    Raises:
        UserError: If a value has the wrong type or is outside its bounds.
    """

    def __post_init__(self) -> None:
        check(self, type(self).__name__.removesuffix("Config"))
