"""Quantities as people read them: values, numbers of bytes, lengths of time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal


def shown_number(value: float) -> str:
    """Write a value that was read; an empty cell of a log is one that is not a number."""
    return "not a number" if math.isnan(value) else f"{value:.6g}"


def decimals(values: Iterable[float], least: int = 2) -> int:
    """Return with how many decimals quantities of one unit are written beside each other.

    Three significant digits of the largest, `least` where that is 0.1 or more, and up to four further where a smaller
    one would be written as 0. Give it all that is printed: what is left out may read -0.00.
    """
    sizes = [abs(value) for value in values if value and math.isfinite(value)]
    if not sizes:
        return least
    digits = max(least, 2 - math.floor(math.log10(max(sizes)))) if max(sizes) < 0.1 else least
    first = math.ceil(-math.log10(2 * min(sizes)))  # where the smallest is not 0
    return min(9, max(digits, min(first, digits + 4)))


def fixed(value: float, digits: int, sign: Literal["", "+"] = "") -> str:
    """Write a number with so many decimals, with its sign if asked for; one that is not 0 is not written as 0."""
    text = f"{value:{sign}.{digits}f}"
    return text if float(text) or not value else f"{value:{sign}.1e}"


def gigabytes(count: int) -> str:
    """Write a number of bytes for people."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.0f} MB"


def duration(seconds: float) -> str:
    """Write a length of time [s] in the one or two largest units that say it, as `2 h 45 min`.

    Tenths of a second count below ten seconds, seconds below ten minutes, minutes below a day, hours from there on.
    """
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 599.5:
        return _two(round(seconds), 60, "s", "min")
    if seconds < 24 * 3600 - 30:
        return _two(round(seconds / 60), 60, "min", "h")
    hours = round(seconds / 3600)
    return _two(hours, 24, "h", "day" if hours < 48 else "days")


def _two(count: int, several: int, small: str, large: str) -> str:
    """Write a whole number of small units, of which several are a large one."""
    wholes, rest = divmod(count, several)
    parts = [f"{number} {unit}" for number, unit in ((wholes, large), (rest, small)) if number]
    return " ".join(parts)
