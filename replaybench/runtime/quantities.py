"""Functions that format quantities as text: values, numbers of bytes and durations."""

import math
from collections.abc import Iterable
from typing import Literal


def shown_number(value: float) -> str:
    """Format a number with six significant digits, and NaN as `not a number`."""
    return "not a number" if math.isnan(value) else f"{value:.6g}"


def decimals(values: Iterable[float], least: int = 2) -> int:
    """Return the number of decimals for quantities of one unit that are printed together.

    The number is from `least` to 9. If all sizes are below 0.1, the largest one gets three significant digits. Up to
    four more decimals are used if a smaller value would otherwise be printed as 0. Pass all values that are printed,
    because an omitted value may be printed as -0.00.
    """
    sizes = [abs(value) for value in values if value and math.isfinite(value)]
    if not sizes:
        return least
    digits = max(least, 2 - math.floor(math.log10(max(sizes)))) if max(sizes) < 0.1 else least
    first = math.ceil(-math.log10(2) - math.log10(min(sizes)))  # if the smallest is not 0
    return min(9, max(digits, min(first, digits + 4)))


def fixed(value: float, digits: int, sign: Literal["", "+"] = "") -> str:
    """Format a number with a fixed number of decimals.

    A nonzero number that would be printed as 0 gets an exponent instead, as in 1.2e-05.
    """
    text = f"{value:{sign}.{digits}f}"
    return text if float(text) or not value else f"{value:{sign}.1e}"


def gigabytes(count: int) -> str:
    """Format a number of bytes in GB (10⁹ bytes) or, below 0.1 GB, in MB (10⁶ bytes)."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.0f} MB"


def duration(seconds: float) -> str:
    """Format a duration in seconds in its one or two largest units, such as `2 h 45 min`.

    A duration is rounded to 0.1 s below 10 s, to seconds below 10 min, to minutes below a day, and else to hours.
    """
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 599.5:
        return _two(round(seconds), 60, "s", "min")
    if seconds < 24 * 3600 - 30:
        return _two(round(seconds / 60), 60, "min", "h")
    hours = round(seconds / 3600)
    return _two(hours, 24, "h", "day" if hours < 48 else "days")


def _two(count: int, ratio: int, small: str, large: str) -> str:
    """Format a number of small units as a number of large units and a remainder of small units."""
    wholes, rest = divmod(count, ratio)
    parts = [f"{number} {unit}" for number, unit in ((wholes, large), (rest, small)) if number]
    return " ".join(parts)
