"""Which of a few values is nearest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from replaybench.runtime.elementwise import nearest_level


@pytest.mark.parametrize("count", [2, 3, 4, 5, 15, 1000])
def test_the_nearest_of_all_is_found(count: int) -> None:
    values = np.linspace(-1.0, 1.0, count)
    for value in np.random.Generator(np.random.PCG64(count)).uniform(-1.2, 1.2, 200):
        assert nearest_level(value, count) == np.argmin(np.abs(values - value))
    rounded: list[Any] = [np.float32(value) for value in values]  # what kernels pass
    assert [nearest_level(value, count) for value in rounded] == list(range(count))


def test_of_two_that_are_equally_near_it_is_the_lower() -> None:
    assert [nearest_level(value, 3) for value in (-0.5, -0.49, 0.5, 0.51)] == [0, 1, 1, 2]
    assert nearest_level(0.0, 2) == 0
    assert nearest_level(0.0, 4) == 1


def test_what_is_no_value_of_a_range_has_a_place_too() -> None:
    assert [nearest_level(value, 4) for value in (np.nan, -np.inf, np.inf, 1e300)] == [0, 0, 3, 3]
