"""Importance weights and divergences of Gaussians against numerical integration and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from replaybench.controllers.losses.densities import divergence, divergence_gradient, importance_weights

RNG = np.random.Generator(np.random.PCG64(3))
MEAN, MU_MEAN = RNG.normal(size=(2, 6, 2))
LOG_SIGMA, MU_LOG_SIGMA = RNG.normal(-0.5, 0.4, size=(2, 6, 2))


def integrated(m: float, s: float, to_m: float, to_s: float) -> float:
    """D_KL of N(m, s²) from N(to_m, to_s²) by quadrature over ±12 standard deviations."""
    p, q = norm(m, s), norm(to_m, to_s)
    area, _ = quad(lambda a: p.pdf(a) * (p.logpdf(a) - q.logpdf(a)), m - 12 * s, m + 12 * s, epsabs=1e-12)
    return float(area)


def test_the_divergence_is_the_integral() -> None:
    sigma, mu_sigma = np.exp(LOG_SIGMA), np.exp(MU_LOG_SIGMA)
    for b, closed in enumerate(divergence(MEAN, LOG_SIGMA, MU_MEAN, MU_LOG_SIGMA)):
        dimensions = (integrated(MU_MEAN[b, i], mu_sigma[b, i], MEAN[b, i], sigma[b, i]) for i in range(2))
        assert closed == pytest.approx(sum(dimensions), rel=1e-9)


@pytest.mark.parametrize("mu_pi", [True, False])
def test_its_gradient_equals_finite_differences(mu_pi: bool) -> None:
    d_mean, d_log_sigma = np.empty_like(MEAN), np.empty_like(MEAN)
    divergence_gradient(MEAN, LOG_SIGMA, MU_MEAN, MU_LOG_SIGMA, mu_pi, d_mean, d_log_sigma)

    def at(mean: np.ndarray, log_sigma: np.ndarray) -> np.ndarray:
        pi, mu = (mean, log_sigma), (MU_MEAN, MU_LOG_SIGMA)
        return divergence(*pi, *mu) if mu_pi else divergence(*mu, *pi)

    for i in range(2):
        step = np.zeros_like(MEAN)
        step[:, i] = 1e-6
        for found, (up, down) in (
            (d_mean, (at(MEAN + step, LOG_SIGMA), at(MEAN - step, LOG_SIGMA))),
            (d_log_sigma, (at(MEAN, LOG_SIGMA + step), at(MEAN, LOG_SIGMA - step))),
        ):
            np.testing.assert_allclose(found[:, i], (up - down) / 2e-6, rtol=1e-6, atol=1e-8)


def test_importance_weights_are_ratios_of_densities_within_bounds() -> None:
    action, rho = MU_MEAN + np.exp(MU_LOG_SIGMA) * RNG.normal(size=MEAN.shape), np.empty(6)
    importance_weights(action, MEAN, LOG_SIGMA, MU_MEAN, MU_LOG_SIGMA, rho)
    pi, mu = norm(MEAN, np.exp(LOG_SIGMA)), norm(MU_MEAN, np.exp(MU_LOG_SIGMA))
    expected = (pi.logpdf(action) - mu.logpdf(action)).sum(axis=1)
    assert np.abs(expected).max() > 7, "the bound is to be met"
    np.testing.assert_allclose(np.log(rho), np.clip(expected, -7, 7), rtol=1e-12)


def test_nan_passes() -> None:
    rho = np.empty(6)
    importance_weights(np.full_like(MEAN, np.nan), MEAN, LOG_SIGMA, MU_MEAN, MU_LOG_SIGMA, rho)
    assert np.isnan(rho).all()
