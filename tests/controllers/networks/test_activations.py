"""Vectorised activations against exact values, over the whole range of float32."""

from __future__ import annotations

import numpy as np
import pytest

from replaybench.controllers.networks.layers import ACTIVATIONS, activate, activate_backward

RELU, TANH, SOFTSIGN = range(3)
DENSE = np.arange(0, 0x7F800000, 997, dtype=np.uint32).view(np.float32)
"""Every 997th float32 from zero to the greatest."""


def test_tanh_is_odd_bounded_and_within_two_units_in_the_last_place() -> None:
    positive, negative, exact = DENSE.copy(), -DENSE, np.tanh(DENSE.astype(np.float64))
    activate(positive, TANH)
    activate(negative, TANH)
    np.testing.assert_array_equal(negative, -positive)
    assert positive.max() == 1.0
    assert (np.abs(positive - exact) / np.spacing(exact.astype(np.float32))).max() < 1.82


def test_tanh_in_float64_is_exact_to_rounding() -> None:
    x = np.linspace(-12, 12, 1001)
    y = x.copy()
    activate(y, TANH)
    np.testing.assert_allclose(y, np.tanh(x), rtol=1e-15)


def test_softsign_and_relu() -> None:
    for x in (DENSE[DENSE < 1e30], -DENSE[DENSE < 1e30]):
        y, rectified, wide = x.copy(), x.copy(), x.astype(np.float64)
        activate(y, SOFTSIGN)
        np.testing.assert_allclose(y, wide / (1 + np.abs(wide)), rtol=2e-7, atol=1e-45)
        activate(rectified, RELU)
        np.testing.assert_array_equal(rectified, np.where(x > 0, x, 0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("activation", range(len(ACTIVATIONS)), ids=ACTIVATIONS)
def test_nan_passes_forward_and_backward(activation: int, dtype: type[np.floating]) -> None:
    values = np.ones(37, dtype)
    values[[2, 35]] = np.nan
    error = values.copy()
    activate(values, activation)
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(values)), [2, 35])
    activate_backward(error, np.full(37, 0.5, dtype), activation)
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(error)), [2, 35])


@pytest.mark.parametrize("activation", range(len(ACTIVATIONS)), ids=ACTIVATIONS)
def test_derivatives_equal_finite_differences(activation: int) -> None:
    x = np.linspace(-3, 3, 100)
    low, here, high, slope = x - 1e-6, x.copy(), x + 1e-6, np.full(100, 2.0)
    for values in (low, here, high):
        activate(values, activation)
    activate_backward(slope, here, activation)
    np.testing.assert_allclose(slope, (high - low) / 1e-6, rtol=1e-7, atol=1e-8)
