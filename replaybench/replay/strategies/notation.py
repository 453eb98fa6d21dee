"""The strategy notation `Retention[Sampling]` and its registries of names (de Bruin et al., 2018, section 5.2).

Modifiers of new experiences are prefixes (`Drop(0.5)*Synth(action=0.2)*FIFO[Uniform]`). Modifiers of weights and
gradients are suffixes (`FIFO[Uniform+ReFER]`). `parse` returns frozen dataclasses. `str` of the result is the
canonical notation, which commands, legends, hashes and files contain. The spellings of the authors' public code
(`resv`, `expl_1.2`, `PER_0.7`, `FULL DB`) and of published papers (`ReF-ER-1`) are accepted. A name can also have the
form `path/to/file.py:ClassName`.
"""

import contextlib
import dataclasses
import os
import re
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from replaybench.replay.strategies.interface import Term
from replaybench.replay.strategies.strategy import Strategy
from replaybench.runtime.errors import UserError, unknown
from replaybench.runtime.user_file import Registry, in_file

_HERE: Final = "replaybench.replay.strategies"


def _registry(kind: str, base: str, own: dict[str, str]) -> Registry:
    places = {name: f"{_HERE}.{place}" for name, place in own.items()}
    return Registry(kind=kind, own=places, base=f"{_HERE}.{base}", group="replaybench.strategies")


ENTRIES: Final = Registry(
    kind="modifier of entry",
    own={"Drop": f"{_HERE}.entry:Drop", "Synth": f"{_HERE}.entry:Synth", "Mix": f"{_HERE}.mixed:Mix"},
    base=f"{_HERE}.interface:Term",
    group="",
    also_named=(),
)
"""The modifiers of new experiences, and `Mix`, by name. Installed packages cannot add modifiers."""
RETENTIONS: Final = _registry(
    "retention strategy",
    "interface:Retention",
    {
        "FIFO": "retention:FIFO",
        "FULL": "retention:FULL",
        "Resv": "retention:Resv",
        "TDE": "retention:TDE",
        "Expl": "retention:Expl",
        "FarPol": "retention:FarPol",
        "Cover": "coverage:Cover",
    },
)
SAMPLINGS: Final = _registry(
    "sampling strategy",
    "interface:Sampling",
    {
        "Uniform": "uniform:Uniform",
        "PER": "prioritised:PER",
        "PERprop": "prioritised:PERprop",
        "LAP": "prioritised:LAP",
        "PAL": "prioritised:PAL",
        "Annealed": "uniform:Annealed",
        "AER": "attentive:AER",
        "ERE": "recent:ERE",
        "ERE+PER": "recent:EREPER",
        "TruncGeo": "geometric:TruncGeo",
        "LA3P": "actor_critic:LA3P",
        "ReaPER": "reliable:ReaPER",
    },
)
WEIGHTINGS: Final = _registry(
    "sampling modifier", "interface:Weighting", {"IS": "weighting:IS", "FIS": "weighting:FIS"}
)
REFER: Final = _registry(
    "form of ReF-ER",
    "strategy:ReFER1",
    {"ReFER": "strategy:ReFER", "ReFER-1": "strategy:ReFER1", "ReFER-2": "strategy:ReFER2"},
)
OF_BATCHES: Final = Registry(
    kind="sampling modifier",
    own={"Newest": f"{_HERE}.strategy:Newest"},
    base=f"{_HERE}.interface:Term",
    group="",
    also_named=(),
)
"""The modifiers of batches by name. Installed packages cannot add modifiers."""


_ALIASES: Final = {
    "full db": "FULL", "full_db": "FULL", "fulldb": "FULL", "reservoir": "Resv",
    "ref-er": "ReFER", "ref-er-1": "ReFER-1", "ref-er-2": "ReFER-2", "refer1": "ReFER-1", "refer2": "ReFER-2",
    "ere+perprop": "ERE+PER",
}  # fmt: skip
_NAME: Final = r"[A-Za-z][A-Za-z0-9 -]*?(?:_(?=[A-Za-z])[A-Za-z0-9]+)?"
_FILE: Final = r"[^()*·+\[\]]+\.py:\w+"
_TERM: Final = re.compile(rf"\s*(?:({_FILE})|({_NAME})\s*(?:_([0-9.]+))?)\s*(?:\(([^()]*)\))?\s*\Z")


_SIGNS: Final = "()*·+[]"


class _Written(NamedTuple):
    """A term of the strategy notation as text. `whole` is the text of the whole strategy."""

    whole: str
    name: str
    arguments: tuple[str, ...]


def parse(text: str) -> Strategy:
    """Parse a strategy in the strategy notation, such as `FIFO[PER+IS]`.

    Raises:
        UserError: The text does not follow the notation, a name or number is wrong, or the parts are incompatible.
    """
    try:
        return _parse(text)
    except UserError:
        if path := _signs_in_path(text):
            raise UserError(
                f"strategy {text!r}: the path {path!r} contains a character of the notation, one of "
                f"{' '.join(_SIGNS)}; rename the file or its folder"
            ) from None
        raise


def _parse(text: str) -> Strategy:
    opening = text.find("[")
    if opening < 0 or not text.rstrip().endswith("]"):
        raise UserError(f"strategy {text!r} is not of the form Retention[Sampling], e.g. {_whole(text)}")
    *before, last = (_split_term(part, text) for part in re.split(r"[*·]", text[:opening]))
    first, *suffixes = (_split_term(part, text) for part in text.rstrip()[opening + 1 : -1].split("+"))
    entries = [_read(ENTRIES, term) for term in before]
    retention = _read(RETENTIONS, last)
    sampling, suffixes = _read_sampling(first, suffixes)
    refers, newest = ([_read(own, term) for term in suffixes if term.name in own] for own in (REFER, OF_BATCHES))
    weightings = [_read(WEIGHTINGS, term) for term in suffixes if term.name not in (*REFER, *OF_BATCHES)]
    _refuse_repeated(text, "ReFER", len(refers) > 1)
    _refuse_repeated(text, "Newest", len(newest) > 1)
    for terms in (entries, weightings):
        for i, term in enumerate(terms):
            _refuse_repeated(text, term.written_name(), type(term) in map(type, terms[:i]))
    if len(weightings) > 1:
        raise UserError(f"strategy {text!r}: IS and FIS correct for the same thing; name one of them")
    modifiers = {type(entry).__name__.casefold(): entry for entry in entries}
    modifiers |= {"refer": next(iter(refers), None), "newest": next(iter(newest), None)}
    return Strategy(retention, sampling, *weightings, **modifiers)


def _signs_in_path(text: str) -> str:
    """Return a path in the text if its file exists and the path has a character of the notation, else an empty text."""
    starts = [0, *(place + 1 for place, sign in enumerate(text) if sign in _SIGNS)]
    ends = [match.end() for match in re.finditer(r"\.py(?=:)|\.h5", text)]
    paths = (text[start:end].strip() for end in ends for start in starts if start < end)
    # Path.is_file() raises an error for names that are too long.
    return next((path for path in paths if set(path) & set(_SIGNS) and os.path.isfile(path)), "")


def _whole(text: str) -> str:
    """Return a complete strategy that contains the given part, as an example for an error message."""
    match = _TERM.match(text)
    if match is None or match[2] is None:
        return "FIFO[Uniform]"
    part = _split_term(text, text).name
    ways = (
        (RETENTIONS, "{}[Uniform]"),
        (SAMPLINGS, "FIFO[{}]"),
        (WEIGHTINGS, "FIFO[PER+{}]"),
        (REFER, "FIFO[Uniform+{}]"),
        (OF_BATCHES, "FIFO[Uniform+{}]"),
    )
    return next((way.format(part) for registry, way in ways if part in registry), "FIFO[Uniform]")


def _refuse_repeated(text: str, name: str, seen: bool) -> None:
    if seen:
        raise UserError(f"strategy {text!r} has {name} twice; name it once")


def _split_term(term: str, whole: str) -> _Written:
    """Split the text of a term into name and arguments, and give known names their registered spelling."""
    match = _TERM.match(term)
    if not term.strip():
        raise UserError(f"strategy {whole!r}: a name is missing; write Retention[Sampling], e.g. FIFO[PER+IS]")
    if not match:
        raise UserError(f"strategy {whole!r}: cannot read {term.strip()!r} at character {whole.find(term) + 1}")
    file, name, suffix, inside = match.groups()
    arguments = (suffix,) if suffix else tuple(p.strip() for p in re.split(r",|→|->", inside or "") if p.strip())
    if file:
        return _Written(whole, file.strip(), arguments)
    name = _ALIASES.get(name.casefold(), name)
    for registry in (ENTRIES, RETENTIONS, SAMPLINGS, WEIGHTINGS, OF_BATCHES, REFER):
        name = registry.spelled(name)
    if suffix and name in REFER:
        raise UserError(f"strategy {whole!r}: write ReFER-1 for Rule 1 alone, ReFER({suffix}) for C = {suffix}")
    return _Written(whole, name, arguments)


def _read_sampling(first: _Written, suffixes: list[_Written]) -> tuple[Any, list[_Written]]:
    """Return the sampling rule and the remaining suffixes. A joint rule such as `ERE+PER` uses one of the suffixes."""
    for place, term in enumerate(suffixes):
        joined = f"{first.name}+{term.name}"
        joined = SAMPLINGS.spelled(_ALIASES.get(joined.casefold(), joined))
        if joined not in SAMPLINGS:
            continue
        rest = suffixes[:place] + suffixes[place + 1 :]
        _refuse_repeated(first.whole, term.name, term.name in (other.name for other in rest))
        kind = SAMPLINGS[joined]
        (part,) = kind.kinds(kind.second)
        second = part(**_arguments(part, term))
        return kind(**_arguments(kind, first._replace(name=joined.partition("+")[0])), **{kind.second: second}), rest
    return _read(SAMPLINGS, first), suffixes


def _read(registry: Registry, term: _Written) -> Any:
    if term.name not in registry and not in_file(term.name):
        for here, other in ((RETENTIONS, SAMPLINGS), (SAMPLINGS, RETENTIONS)):
            if registry is here and term.name in other:
                raise UserError(
                    f"strategy {term.whole!r}: {term.name} is a {other.kind}; "
                    "write Retention[Sampling], e.g. FIFO[Uniform]"
                )
        if registry is WEIGHTINGS and term.name in SAMPLINGS:
            joint = " or ".join(name for name in SAMPLINGS if "+" in name)
            raise UserError(f"strategy {term.whole!r} has two samplings; name one of them, or {joint}")
        if registry is WEIGHTINGS:
            raise unknown(registry.kind, term.name, [*WEIGHTINGS, *OF_BATCHES, *REFER])
    if registry is ENTRIES and in_file(term.name):
        raise unknown(registry.kind, term.name, registry)
    kind = registry.load(term.name)
    for parameter, field in kind.parameters().items():
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise UserError(f"{kind.written_name()}: {parameter} needs a default; write one behind it in the class")
    return _built(kind, _arguments(kind, term))


def _built(kind: type[Term], arguments: Mapping[str, Any]) -> Any:
    try:
        return kind(**arguments)
    except UserError:
        raise
    except Exception as error:  # any error that a user's class raises
        raise UserError(f"{kind.written_name()} cannot be made: {type(error).__name__}: {error}") from error


def _arguments(kind: type[Term], term: _Written) -> dict[str, Any]:
    name, whole, fields = term.name, term.whole, list(kind.parameters())
    if term.arguments and kind.no_parameters:
        raise UserError(f"strategy {whole!r}: {kind.no_parameters}")
    arguments: dict[str, Any] = {}
    for place, piece in enumerate(term.arguments):
        key, _, value = (part.strip() for part in piece.rpartition("="))
        if key and key not in fields:
            raise unknown(f"parameter of {name}", key, fields or ["none"])
        if not key and place >= len(fields):
            given = len(term.arguments)
            raise UserError(f"strategy {whole!r}: {name} takes {len(fields) or 'no'} parameter(s), not {given}")
        target = key or fields[place]
        if target in arguments:
            raise UserError(f"strategy {whole!r}: {name} has {target} twice")
        arguments[target] = _value(value, kind.kinds(target), f"strategy {whole!r}: {target} of {name}")
        if place == 0 and not key and not kind.clear(arguments[target]):
            meant = " for the exponent" if target == "alpha" else ""
            other = f" or {name}(capacity={value}) for the capacity" if "capacity" in fields else ""
            raise UserError(
                f"strategy {whole!r}: {name}({value}) is not clear; write {name}({target}={value}){meant}{other}"
            )
    return arguments


def _value(text: str, kinds: Sequence[Any], where: str) -> float | bool | str | Path | None:
    if Path in kinds:
        return Path(text)
    words: dict[str, bool | str | None] = {}
    for kind in kinds:
        if typing.get_origin(kind) is Literal:
            words |= {str(word).casefold(): word for word in typing.get_args(kind)}
    if types.NoneType in kinds:
        words["none"] = None
    if bool in kinds:
        words |= {"true": True, "false": False}
    if text.casefold() in words:
        return words[text.casefold()]
    if bool in kinds:
        raise UserError(f"{where} is true or false, not {text!r}")
    number = int if int in kinds else float if float in kinds else None
    with contextlib.suppress(ValueError):
        if number is not None:
            return number(text)
    if number is None and not words:
        raise UserError(f"{where} has a type that the notation does not support; declare a number, a bool or a Literal")
    expected = {int: ["a whole number"], float: ["a number"], None: []}[number]
    raise UserError(f"{where} must be {' or '.join([*expected, *words])}, not {text!r}")
