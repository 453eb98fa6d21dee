"""sin and cos of whole populations against exact arithmetic, and alone against in company."""

import math
from typing import Any

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
from numba import njit

from replaybench.runtime import trigonometry


@njit(error_model="numpy")
def of_all(x: Any) -> Any:
    sines, cosines = np.empty_like(x), np.empty_like(x)
    for i in range(x.size):
        sines[i], cosines[i] = trigonometry.sin(x[i]), trigonometry.cos(x[i])
    return sines, cosines


def angles(reach: float, count: int) -> np.ndarray:
    """Angles everywhere up to `reach`, small ones, and those nearest to multiples of π/2, where digits cancel."""
    rng = np.random.Generator(np.random.PCG64(2))
    quarters = rng.integers(1, int(reach / 1.58), count)
    with mpmath.workprec(200):
        near = [float(int(q) * mpmath.pi / 2) for q in quarters]
    return np.concatenate([rng.uniform(-reach, reach, count), rng.uniform(-2, 2, count), near])


def units_off(found: np.ndarray, x: np.ndarray, exact: Any) -> float:
    """Return the largest error in units in the last place of the exact value."""
    worst = 0.0
    with mpmath.workprec(200):
        for value, angle in zip(found.tolist(), x.tolist(), strict=True):
            true = exact(mpmath.mpf(angle))
            worst = max(worst, float(abs(value - true) / math.ulp(float(true))))
    return worst


@pytest.mark.parametrize("reach", [10.0, 1e5, trigonometry.LARGEST])
def test_both_are_right_to_two_units_in_the_last_place(reach: float) -> None:
    x = angles(reach, 1500)
    sines, cosines = of_all(x)
    assert units_off(sines, x, mpmath.sin) < 2.0
    assert units_off(cosines, x, mpmath.cos) < 2.0


def test_a_number_alone_gives_the_bits_that_it_gives_among_others() -> None:
    x = angles(100.0, 40)
    sines, cosines = of_all(x)
    assert [trigonometry.sin(value) for value in x] == sines.tolist()
    assert [trigonometry.cos(value) for value in x] == cosines.tolist()


def test_the_ends() -> None:
    assert trigonometry.sin(0.0) == 0.0
    assert trigonometry.cos(0.0) == 1.0
    assert trigonometry.sin(5e-324) == 5e-324
    assert math.isfinite(trigonometry.sin(-trigonometry.LARGEST))
    for beyond in (math.nextafter(trigonometry.LARGEST, math.inf), -1e300, math.inf, math.nan):
        assert math.isnan(trigonometry.sin(beyond))
        assert math.isnan(trigonometry.cos(beyond))
