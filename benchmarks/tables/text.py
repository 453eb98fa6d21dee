"""Numbers and tables as text."""

import textwrap
from collections.abc import Iterable, Sequence

import numpy as np

from replaybench.experiments.effects import p_text, paired
from replaybench.experiments.statistics import interval


def number(value: float, digits: int = 2) -> str:
    """Return a number with so many digits behind the point, a true minus, and commas between thousands."""
    if not np.isfinite(value):
        return "–"
    text = f"{value:,.{digits}f}"
    if float(text.replace(",", "")) == 0:
        text = text.lstrip("-")
    return text.replace("-", "−")


def significant(value: float, digits: int = 2) -> str:
    """Return a number with so many significant digits, without an exponent up to a million."""
    if not np.isfinite(value) or value == 0:
        return "–" if value else "0"
    size = int(np.floor(np.log10(abs(value))))
    if size >= 6:
        return f"above 10{superscript(size)}"
    return number(round(value, digits - 1 - size), max(0, digits - 1 - size))


def superscript(power: int) -> str:
    """Return a power in small raised digits."""
    return str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def spread(sample: np.ndarray, digits: int = 2) -> str:
    """Return the mean over runs with its 95 % bootstrap interval."""
    found = interval(np.asarray(sample, np.float64))
    return between(found.mean, found.low, found.high, digits)


def between(mean: float, low: float, high: float, digits: int = 2) -> str:
    """Return a mean with an interval."""
    return f"{number(mean, digits)} [{number(low, digits)}, {number(high, digits)}]"


def difference(one: np.ndarray, other: np.ndarray, digits: int = 2) -> tuple[str, str]:
    """Return the mean difference of paired seeds with its BCa interval, and its p value by flipped signs, two-sided."""
    effect = paired([np.asarray(one, np.float64)], [np.asarray(other, np.float64)])
    p = min(1.0, 2 * min(effect.chance_below(0.0), effect.chance_above(0.0)))
    return between(effect.estimate, *effect.interval(), digits), p_text(p)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    assert all(len(line) == len(headings) for line in lines), headings
    return "\n".join("| " + " | ".join(line) + " |" for line in lines).replace("|  |", "| |").replace("|  |", "| |")


def wrapped(text: str) -> str:
    """Return a paragraph in lines as long as the pages'."""
    return "\n".join(textwrap.wrap(text, 130, break_on_hyphens=False))


def captioned(caption: str, body: str) -> str:
    """Return a table below what it shows."""
    return f"{wrapped(caption)}\n\n{body}"


def listed(items: Sequence[object]) -> str:
    """Return items as people list them: a, b and c."""
    words = [str(item) for item in items]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]
