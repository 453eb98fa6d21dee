"""The strategy language of de Bruin et al. (2018): `Retention[Sampling]`, for example `FIFO[Uniform]`, `FULL[PER+IS]`.

A string parses to two frozen dataclasses; `str` of the result is canonical and parses to the same again. That string
is command-line token, legend entry, hash input and file attribute. The spellings of the authors' public code
(`resv`, `PER_0.7`, `FULL DB`) are accepted.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any, Final

from replaybench.data.errors import UserError, unknown
from replaybench.replay.retention import RETENTIONS, Retention
from replaybench.replay.sampling import IS, SAMPLINGS, Sampling

MODIFIERS: Final = {"IS": IS}

_ALIASES: Final = {"full db": "FULL", "full_db": "FULL", "fulldb": "FULL", "resv": "Resv", "reservoir": "Resv"}
_TERM: Final = re.compile(r"\s*([A-Za-z][A-Za-z ]*?(?:_(?=[A-Za-z])[A-Za-z]+)?)\s*(?:_([0-9.]+)|\(([^()]*)\))?\s*\Z")


@dataclass(frozen=True)
class Strategy:
    """What is kept and what is replayed."""

    retention: Retention
    sampling: Sampling

    def __str__(self) -> str:
        modifier = f"+{_write(self.sampling.importance)}" if self.sampling.importance else ""
        return f"{_write(self.retention)}[{_write(self.sampling)}{modifier}]"


def parse(text: str) -> Strategy:
    """Parse a strategy.

    Raises:
        UserError: the text does not parse (the message shows where) or a name or number is wrong.
    """
    opening = text.find("[")
    if opening < 0 or not text.rstrip().endswith("]"):
        raise UserError(f"strategy {text!r} is not of the form Retention[Sampling], e.g. FIFO[Uniform]")
    first, *modifiers = text.rstrip()[opening + 1 : -1].split("+")
    retention = _read("retention strategy", text[:opening], text, RETENTIONS)
    sampling = _read("sampling strategy", first, text, SAMPLINGS)
    for part in modifiers:
        modifier = _read("sampling modifier", part, text, MODIFIERS)
        if sampling.importance is not None:
            raise UserError(f"strategy {text!r} has IS twice; name it once")
        sampling = dataclasses.replace(sampling, importance=modifier)
    return Strategy(retention, sampling)


def _read(kind: str, term: str, whole: str, valid: dict[str, Any]) -> Any:
    """Build the dataclass that `term` names, its arguments given in order or by name."""
    match = _TERM.match(term)
    if not match:
        raise UserError(f"strategy {whole!r}: cannot read {term.strip()!r} at character {whole.find(term) + 1}")
    written, suffix, inside = match.groups()
    folded = {name.casefold(): name for name in valid}
    name = _ALIASES.get(written.casefold(), written)
    name = folded.get(name.casefold(), name)
    if name not in valid:
        raise unknown(kind, written, valid)
    fields = [f for f in dataclasses.fields(valid[name]) if f.name != "importance"]
    arguments: dict[str, Any] = {}
    pieces = [suffix] if suffix else [p for p in re.split(r",|→|->", inside or "") if p.strip()]
    for place, piece in enumerate(pieces):
        key, _, value = piece.rpartition("=")
        by_name = {f.name: f for f in fields}
        if key.strip() and key.strip() not in by_name:
            raise unknown(f"parameter of {name}", key.strip(), by_name or ["none"])
        if not key.strip() and place >= len(fields):
            raise UserError(f"strategy {whole!r}: {name} takes {len(fields) or 'no'} parameter(s), not {len(pieces)}")
        target = by_name[key.strip()] if key.strip() else fields[place]
        arguments[target.name] = _value(value.strip(), target, name, whole)
    return valid[name](**arguments)


def _value(text: str, target: dataclasses.Field[Any], name: str, whole: str) -> float | bool:
    if isinstance(target.default, bool):
        if text.casefold() not in ("true", "false"):
            raise UserError(f"strategy {whole!r}: {target.name} of {name} is true or false, not {text!r}")
        return text.casefold() == "true"
    try:
        return float(text)
    except ValueError:
        raise UserError(f"strategy {whole!r}: {target.name} of {name} must be a number, not {text!r}") from None


def _write(term: Any) -> str:
    """Write a term with those arguments that differ from their defaults, so that equal terms read alike."""
    changed = [
        f"{f.name}={_plain(getattr(term, f.name))}"
        for f in dataclasses.fields(term)
        if f.name != "importance" and getattr(term, f.name) != f.default
    ]
    if len(changed) == 1 and changed[0].startswith("alpha="):
        changed = [changed[0].removeprefix("alpha=")]
    return type(term).__name__ + (f"({', '.join(changed)})" if changed else "")


def _plain(value: float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
