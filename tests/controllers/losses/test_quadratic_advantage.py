"""Quadratic action values: a worked example, the formula in matrices, finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from replaybench.controllers.algorithms.naf import AdvantageForm, action_values, means, output_size

FORMS = [
    AdvantageForm(c, bounded, softplus) for c in (0.5, 1.0) for bounded in (True, False) for softplus in (True, False)
]


def values(outputs: np.ndarray, action: np.ndarray, form: AdvantageForm) -> tuple[np.ndarray, np.ndarray]:
    mean, q, d_q = np.empty_like(action), np.empty(len(action), action.dtype), np.empty_like(outputs)
    means(outputs, form, mean)
    action_values(outputs, action, mean, form, q, d_q)
    return q, d_q


def test_value_and_slopes_are_those_by_hand() -> None:
    """V = 10, m = (1, −1), L = [[e⁰, 0], [3, e^log 2]], a = (2, 1): e = (1, 2), u = Lᵀe = (1 + 6, 4), |u|² = 65.

    With c = ½: Q = 10 − 32.5; ∂Q/∂m = L u = (7, 3 · 7 + 2 · 4 = 29); ∂Q/∂L = −e uᵀ = −(7; 14, 8), and the slopes of
    exp at the diagonal are 1 and 2.
    """
    outputs = np.array([[10, 1, -1, 0, 3, np.log(2)]])
    q, d_q = values(outputs, np.array([[2.0, 1.0]]), AdvantageForm(0.5, False, False))
    np.testing.assert_allclose(q, [-22.5])
    np.testing.assert_allclose(d_q, [[1, 7, 29, -7, -14, -16]])


@pytest.mark.parametrize("form", FORMS)
def test_values_are_the_formula_and_gradients_finite_differences(form: AdvantageForm) -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    outputs, action = rng.normal(size=(5, output_size(3))), rng.normal(size=(5, 3))
    q, d_q = values(outputs, action, form)
    for b in range(5):
        lower = np.zeros((3, 3))
        lower[np.tril_indices(3)] = outputs[b, 4:]
        diagonal = np.diag(lower)
        lower[np.diag_indices(3)] = np.log1p(np.exp(diagonal)) if form.softplus else np.exp(diagonal)
        e = action[b] - (np.tanh(outputs[b, 1:4]) if form.bounded else outputs[b, 1:4])
        assert q[b] == pytest.approx(outputs[b, 0] - form.c * e @ lower @ lower.T @ e)
    for k in range(outputs.shape[1]):
        step = np.zeros_like(outputs)
        step[:, k] = 1e-6
        difference = values(outputs + step, action, form)[0] - values(outputs - step, action, form)[0]
        np.testing.assert_allclose(d_q[:, k], difference / 2e-6, rtol=1e-6, atol=1e-7)


def test_the_mean_is_the_best_action() -> None:
    rng = np.random.Generator(np.random.PCG64(1))
    outputs, form = rng.normal(size=(4, output_size(2))), AdvantageForm(0.5, True, False)
    q, _ = values(outputs, np.tanh(outputs[:, 1:3]), form)
    np.testing.assert_array_equal(q, outputs[:, 0])


def test_softplus_neither_overflows_nor_hides_nan() -> None:
    outputs = np.array([[0, 0, 500.0], [0, 0, -500.0], [0, 0, np.nan]], np.float32)
    q, d_q = values(outputs, np.ones((3, 1), np.float32), AdvantageForm(0.5, False, True))
    np.testing.assert_allclose(q[:2], [-125000, 0])
    assert np.isfinite(d_q[:2]).all()
    assert np.isnan(q[2])
