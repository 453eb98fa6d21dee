"""Units of columns, as titles such as `speed [rad/s]` and rows of units state them."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

_TITLE: Final = re.compile(r"(.*?)\s*(?:\[([^\[\]:,]*)\]|\(([^():,]*)\)|/\s*([^\[\]():,]+))")
_SPELLINGS: Final = {
    **dict.fromkeys(("degC", "degreeC", "celsius", "Celsius", "ºC", "℃"), "°C"),
    **dict.fromkeys(("deg", "degree", "degrees", "º"), "°"),
    **dict.fromkeys(("sec", "second", "seconds"), "s"),
    **dict.fromkeys(("radian", "radians"), "rad"),
    **dict.fromkeys(("volt", "volts", "Volt"), "V"),
    **dict.fromkeys(("-", "–", "—", "1", "none"), ""),
}
_PART: Final = re.compile(r"([^\d^+-]+)\^?([+-]?\d+)?")
_BASE: Final = re.compile(
    r"[pnuμmcdhkMGT]?(s|m|g|A|K|V|W|N|J|Hz|Pa|rad|Ω|Ohm|F|H|T|L|l|bar|mol|C|Wb|VA)|°|°C|°F|%|min|h|d|rpm|U|psi"
)


def split_title(title: str) -> tuple[str, str | None]:
    """Return a column's name and the unit in brackets, or behind a slash, at the end of its title, if any."""
    found = _TITLE.fullmatch(title.strip())
    return (found[1], next(unit for unit in found.groups()[1:] if unit is not None)) if found else (title, None)


def contradicts(unit: str | None, wanted: str) -> bool:
    """Return whether a `unit` is certainly another than the one that is wanted: both must be known."""
    if unit is None:
        return False
    mine, theirs = _powers(unit), _powers(wanted)
    return bool(mine and theirs) and mine != theirs and all(map(_BASE.fullmatch, mine))


def agrees(unit: str | None, wanted: str) -> bool:
    """Return whether a `unit` is the one that is wanted, however it is spelt."""
    return unit is not None and _powers(unit) == _powers(wanted)


def _powers(unit: str) -> dict[str, int]:
    """Return the power of each part of a unit: of m/s² 1 of m and −2 of s."""
    powers = Counter[str]()
    unit = _SPELLINGS.get(unit.strip(), unit).replace("Nm", "N m").replace("µ", "μ").replace("−", "-")
    unit = unit.translate(str.maketrans("²³⁻¹", "23-1"))
    for factor in re.split(r"[\s·⋅*]+", unit):
        for place, part in enumerate(factor.split("/")):
            found = _PART.fullmatch(part)
            name, power = (found[1], int(found[2] or 1)) if found else (part, 1)
            powers[_SPELLINGS.get(name, name)] += -power if place else power
    return {name: power for name, power in powers.items() if name and power}
