"""The strategy language of de Bruin et al. (2018): `Retention[Sampling]`, for example `FIFO[Uniform]`, `FULL[PER+IS]`.

Modifiers of what enters stand in front (`Drop(0.5)*Synth(action=0.2)*FIFO[Uniform]`), those of weights and gradients
(`FIFO[Uniform+ReFER]`) behind. A string parses to frozen dataclasses; `str` of the result is canonical and parses to
the same again. That string is command-line token, legend entry, hash input and file attribute. The spellings of the
authors' public code (`resv`, `expl_1.2`, `PER_0.7`, `FULL DB`) and of their papers (`ReF-ER-1`) are accepted.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Final

from replaybench.data.errors import UserError, unknown
from replaybench.replay.strategies.entry.synth import Drop
from replaybench.replay.strategies.refer import ReFER1
from replaybench.replay.strategies.sampling.proportional import PERprop
from replaybench.replay.strategies.sampling.recent import ERE
from replaybench.replay.strategies.strategy import ENTRIES, REFER, RETENTIONS, SAMPLINGS, WEIGHTINGS, Strategy

_ALIASES: Final = {
    "full db": "FULL", "full_db": "FULL", "fulldb": "FULL", "reservoir": "Resv",
    "ref-er": "ReFER", "ref-er-1": "ReFER-1", "ref-er-2": "ReFER-2", "refer1": "ReFER-1", "refer2": "ReFER-2",
}  # fmt: skip
_NAME: Final = r"[A-Za-z][A-Za-z -]*?(?:_(?=[A-Za-z])[A-Za-z]+)?[0-9]?"
_TERM: Final = re.compile(rf"\s*({_NAME})\s*(?:_([0-9.]+)|\(([^()]*)\))?\s*\Z")


def parse(text: str) -> Strategy:
    """Parse a strategy.

    Raises:
        UserError: the text does not parse (the message shows where), a name or number is wrong, or the parts do not
            go together.
    """
    opening = text.find("[")
    if opening < 0 or not text.rstrip().endswith("]"):
        raise UserError(f"strategy {text!r} is not of the form Retention[Sampling], e.g. FIFO[Uniform]")
    *before, last = re.split(r"[*·]", text[:opening])
    first, *behind = text.rstrip()[opening + 1 : -1].split("+")
    entries = [_read("modifier of what enters", part, text, ENTRIES) for part in before]
    retention = _read("retention strategy", last, text, RETENTIONS)
    sampling = _read("sampling strategy", first, text, SAMPLINGS)
    weightings: list[Any] = []
    refers: list[ReFER1] = []
    for part in behind:
        if isinstance(sampling, ERE) and part.strip().casefold().startswith("per"):
            _refuse_second(text, "PER", sampling.priorities is not None)
            priorities = _read("priorities of ERE", part, text, {"PER": PERprop, "PERprop": PERprop})
            sampling = dataclasses.replace(sampling, priorities=priorities)
        else:
            term = _read("sampling modifier", part, text, {**WEIGHTINGS, **REFER})
            (refers if isinstance(term, ReFER1) else weightings).append(term)
    _refuse_second(text, "ReFER", len(refers) > 1)
    for terms in (entries, weightings):
        for i, term in enumerate(terms):
            _refuse_second(text, type(term).__name__, type(term) in map(type, terms[:i]))
    if len(weightings) > 1:
        raise UserError(f"strategy {text!r}: IS and FIS correct for the same thing; name one of them")
    found = {type(entry).__name__.casefold(): entry for entry in entries}
    if refers:
        found["refer"] = refers[0]
    return Strategy(retention, sampling, *weightings, **found)


def _refuse_second(text: str, name: str, seen: bool) -> None:
    if seen:
        raise UserError(f"strategy {text!r} has {name} twice; name it once")


def write(strategy: Strategy) -> str:
    """Return the canonical text of a strategy; equal strategies read alike."""
    entries = "".join(f"{_write(entry)}*" for entry in (strategy.drop, strategy.synth) if entry)
    sampling = _write(strategy.sampling)
    if isinstance(strategy.sampling, ERE) and strategy.sampling.priorities:
        sampling += "+" + _write(strategy.sampling.priorities).replace("PERprop", "PER")
    behind = "".join(f"+{_write(term)}" for term in (strategy.weighting, strategy.refer) if term)
    return f"{entries}{_write(strategy.retention)}[{sampling}{behind}]"


def parameters(kind: Any) -> list[dataclasses.Field[Any]]:
    """Return the parameters that the notation writes in a term's brackets."""
    return [field for field in dataclasses.fields(kind) if field.name != "priorities"]


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
        for other, names in (("retention strategy", RETENTIONS), ("sampling strategy", SAMPLINGS)):
            if kind.endswith("strategy") and name in names:
                raise UserError(
                    f"strategy {whole!r}: {name} is a {other}; write Retention[Sampling], e.g. FIFO[Uniform]"
                )
        raise unknown(kind, written, valid)
    if suffix and name in REFER:
        raise UserError(f"strategy {whole!r}: write ReFER-1 for Rule 1 alone, ReFER({suffix}) for C = {suffix}")
    fields = parameters(valid[name])
    arguments: dict[str, Any] = {}
    pieces = [suffix] if suffix else [p for p in re.split(r",|→|->", inside or "") if p.strip()]
    if pieces and name == "FULL":
        raise UserError(
            f"strategy {whole!r}: FULL keeps everything and has no capacity; FIFO, Resv, TDE and Expl have the study's"
        )
    for place, piece in enumerate(pieces):
        key, _, value = piece.rpartition("=")
        by_name = {f.name: f for f in fields}
        if key.strip() and key.strip() not in by_name:
            raise unknown(f"parameter of {name}", key.strip(), by_name or ["none"])
        if not key.strip() and place >= len(fields):
            raise UserError(f"strategy {whole!r}: {name} takes {len(fields) or 'no'} parameter(s), not {len(pieces)}")
        target = by_name[key.strip()] if key.strip() else fields[place]
        if target.name in arguments:
            raise UserError(f"strategy {whole!r}: {name} has {target.name} twice")
        arguments[target.name] = _value(value.strip(), target, name, whole)
    return valid[name](**arguments)


def _value(text: str, target: dataclasses.Field[Any], name: str, whole: str) -> float | bool | str | None:
    """Read an argument as what its field takes."""
    takes = str(target.type)
    words = re.findall(r"'(\w+)'", takes) + ["none"] * takes.endswith("None") + ["true", "false"] * (takes == "bool")
    if text.casefold() in words or takes == "bool":
        found = {"none": None, "true": True, "false": False}.get(text.casefold(), text.casefold())
        if takes == "bool" and not isinstance(found, bool):
            raise UserError(f"strategy {whole!r}: {target.name} of {name} is true or false, not {text!r}")
        return found
    number = ["a whole number"] * ("int" in takes) or ["a number"] * ("float" in takes)
    try:
        if not number:
            raise ValueError
        return int(text) if "int" in takes else float(text)
    except ValueError:
        expected = " or ".join([*number, *words])
        raise UserError(f"strategy {whole!r}: {target.name} of {name} must be {expected}, not {text!r}") from None


def _write(term: Any) -> str:
    """Write a term with those arguments that differ from their defaults, so that equal terms read alike."""
    name = {kind: name for name, kind in REFER.items()}.get(type(term), type(term).__name__)
    fields = parameters(term)
    always = isinstance(term, Drop)  # a bare `Drop` would not say how much
    kept = [f for f in fields if always or getattr(term, f.name) != f.default]
    changed = [(f.name, _plain(getattr(term, f.name), f)) for f in kept]
    if len(changed) == 1 and changed[0][0] == fields[0].name and name != "Synth":
        inside = changed[0][1]
    else:
        inside = ", ".join(f"{name}={value}" for name, value in changed)
    return name + (f"({inside})" if changed else "")


def _plain(value: float | bool | str | None, field: dataclasses.Field[Any]) -> str:
    if value is None or isinstance(value, bool | str):
        return str(value).lower()
    number = int(value) if "int" in str(field.type) else float(value)
    return repr(number).replace("e+", "e")  # a plus would begin a modifier
