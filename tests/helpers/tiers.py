"""Parameters that only `make test-all` runs."""

import itertools
from collections.abc import Collection, Container, Iterable
from typing import Any

import pytest


def slow(values: Iterable[Any], but: Container[Any] = (), only: Container[Any] | None = None) -> list[Any]:
    """Return the parameters of a test, each a value or a tuple; slow are all but those in `but`, or those in `only`."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
        if (value not in but if only is None else value in only)
        else value
        for value in values
    ]


def each_once(*parts: Collection[Any]) -> set[tuple[Any, ...]]:
    """Return few combinations, which together hold every element of each of `parts`."""
    return set(itertools.islice(zip(*map(itertools.cycle, parts), strict=False), max(map(len, parts))))
