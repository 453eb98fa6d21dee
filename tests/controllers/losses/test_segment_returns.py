"""Returns, weights and the trust region: numbers by hand, limits of c, the projection by its definition."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from replaybench.controllers.algorithms.segments import correction, project, retrace, traces, truncated_weights

R, Q, V = np.array([1.0, 2.0]), np.array([0.5, 0.25]), np.array([0.3, 0.4])


def returns(trace: float, q: np.ndarray = Q, v: np.ndarray = V) -> np.ndarray:
    """Two steps with γ = 0.5 that continue with V(x_2) = 3."""
    out = np.empty(2)
    retrace(R, q, v, np.full(2, trace), 3.0, 0.5, out)
    return out


def test_two_steps_by_hand() -> None:
    # Q_ret(1) = 2 + 0.5·3 = 3.5; Q_ret(0) = 1 + 0.5·(0.8·(3.5 − 0.25) + 0.4) = 2.5, with trace 1 1 + 0.5·3.65 = 2.825.
    np.testing.assert_allclose(returns(0.8), [2.5, 3.5])
    np.testing.assert_allclose(returns(1.0), [2.825, 3.5])
    # Importance sampling: 1 + 0.5·0.8·3.5 = 2.4; discounted return: 1 + 0.5·3.5 = 2.75.
    np.testing.assert_allclose(returns(0.8, np.zeros(2), np.zeros(2)), [2.4, 3.5])
    np.testing.assert_allclose(returns(1.0, np.zeros(2), np.zeros(2)), [2.75, 3.5])


def test_without_traces_retrace_is_a_one_step_target() -> None:
    trace = np.empty(2)
    traces(np.array([0.7, -0.7]), 1.0, 0.0, trace)
    np.testing.assert_array_equal(trace, 0.0)
    np.testing.assert_allclose(returns(0.0), [1 + 0.5 * 0.4, 2 + 0.5 * 3.0])


def test_traces_and_weights_by_hand() -> None:
    log_rho, out = np.log([4.0, 0.25, 2.0]), np.empty(3)
    traces(log_rho, 0.5, 1.0, out)
    np.testing.assert_allclose(out, [1.0, 0.5, 1.0])
    truncated_weights(log_rho, 3.0, 0.0, out)
    np.testing.assert_allclose(out, [3.0, 0.25, 2.0])
    # Products of what is left: 2, 0.25·2 = 0.5, 4·0.5 = 2.
    truncated_weights(log_rho, 1.5, 1.0, out)
    np.testing.assert_allclose(out, [1.5, 0.5, 1.5])
    # [1 − 5/10]₊ and [1 − 5/4]₊.
    assert correction(10.0, 5.0) == pytest.approx(0.5)
    assert correction(4.0, 5.0) == 0.0
    assert correction(4.0, np.inf) == 0.0


def test_truncation_and_correction_add_up_to_the_importance_weight() -> None:
    """min(c, ρ) + ρ [1 − c/ρ]₊ = ρ: what makes eq. 7 unbiased."""
    for rho in (0.1, 1.0, 4.9, 5.1, 80.0):
        weight = np.empty(1)
        truncated_weights(np.log([rho]), 5.0, 0.0, weight)
        assert weight[0] + rho * correction(rho, 5.0) == pytest.approx(rho)


def test_projection_by_hand() -> None:
    # g = (3, 1), k = (1, 0), δ = 2: kᵀg − δ = 1, z = (2, 1).
    g = np.array([3.0, 1.0])
    project(g, np.array([1.0, 0.0]), 2.0)
    np.testing.assert_allclose(g, [2.0, 1.0])


@pytest.mark.parametrize("seed", range(6))
def test_projection_is_the_nearest_point_that_satisfies_the_constraint(seed: int) -> None:
    rng = np.random.Generator(np.random.PCG64(seed))
    g, k, delta = rng.normal(size=4), rng.normal(size=4), 0.1 if seed < 4 else 5.0
    peer = minimize(
        lambda z: 0.5 * ((g - z) ** 2).sum(), np.zeros(4), jac=lambda z: z - g, method="SLSQP", tol=1e-12,
        constraints={"type": "ineq", "fun": lambda z: delta - k @ z, "jac": lambda _: -k},
    )  # fmt: skip
    z = g.copy()
    project(z, k, delta)
    assert k @ z <= delta + 1e-12
    np.testing.assert_allclose(z, peer.x, atol=1e-6)
    if k @ g <= delta:
        np.testing.assert_array_equal(z, g)


def test_projection_without_a_direction_or_a_bound_changes_nothing_and_keeps_nan() -> None:
    for k, delta in ((np.zeros(2), 1.0), (np.ones(2), np.inf), (np.zeros(2), np.inf)):
        g = np.array([3.0, 4.0])
        project(g, k, delta)
        np.testing.assert_array_equal(g, [3.0, 4.0])
    g = np.array([np.nan, 1.0])
    project(g, np.ones(2), 1.0)
    assert np.isnan(g).all()
