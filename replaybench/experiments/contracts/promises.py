"""Check promises: functions that return a problem in words, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from replaybench.data.user_code.user_file import line_of, said

S = TypeVar("S")

Promises = Mapping[str, Callable[[S], str]]
"""Promises in words; each function returns a problem, or an empty text."""


def checked(promises: Promises[S], subject: S) -> Iterator[tuple[str, str]]:
    """Yield every promise with its problem; an exception is one, with the last line in a user's file."""
    for promise, problem in promises.items():
        try:
            yield promise, problem(subject)
        except Exception as error:
            line = line_of(error)
            place = f" ({line})" if line else ""
            yield promise, f"{said(error)}{place}"


def difference(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Return which arrays are not equal bit for bit, by name; empty if all are. NaN equals NaN."""
    differ = [
        name for name in {**mine, **theirs}
        if name not in mine or name not in theirs or not np.array_equal(mine[name], theirs[name], equal_nan=True)
    ]  # fmt: skip
    return f"{', '.join(differ)} differ" if differ else ""
