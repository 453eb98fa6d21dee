"""Importance weights and divergences of Gaussian policies, with gradients."""

from typing import Final

import numpy as np

from replaybench.runtime import elementwise
from replaybench.runtime.arrays import AnyFloats
from replaybench.runtime.kernel import kernel

LOG_RHO_BOUND: Final = 7.0
"""Bound on |log ρ| of importance weights ρ, as in the public code of Novati & Koumoutsakos (2019)."""


@kernel
def importance_weights(
    action: AnyFloats,
    mean: AnyFloats,
    log_sigma: AnyFloats,
    mu_mean: AnyFloats,
    mu_log_sigma: AnyFloats,
    rho: AnyFloats,
) -> None:
    """Write the importance weights ρ = π(a|s)/μ(a|s) of B samples to `rho` `[B]`, with |log ρ| ≤ 7.

    The present policy π and the behaviour policy μ are Gaussian. The other arguments have shape `[B, A]`.
    """
    kind = rho.dtype.type
    half, bound = kind(0.5), kind(LOG_RHO_BOUND)
    for b in range(rho.size):
        log_rho = kind(0)
        for i in range(action.shape[1]):
            z = (action[b, i] - mean[b, i]) * np.exp(-log_sigma[b, i])
            z_mu = (action[b, i] - mu_mean[b, i]) * np.exp(-mu_log_sigma[b, i])
            log_rho += half * (z_mu * z_mu - z * z) + mu_log_sigma[b, i] - log_sigma[b, i]
        # Written so that NaN gives NaN: a failed member must be detected.
        rho[b] = np.exp(bound if log_rho > bound else -bound if log_rho < -bound else log_rho)


@kernel
def divergence_gradient(
    mean: AnyFloats, log_sigma: AnyFloats, mu_mean: AnyFloats, mu_log_sigma: AnyFloats, mu_pi: bool,
    d_mean: AnyFloats, d_log_sigma: AnyFloats,
) -> None:  # fmt: skip
    """Write the gradient of the divergence between π and μ with respect to the mean and log σ of π.

    The policy π and the behaviour μ are Gaussian, with means m and m_μ and standard deviations σ and σ_μ. All arrays
    have shape `[B, A]` for B samples. With `mu_pi`, the divergence is that of Novati & Koumoutsakos (2019, eq. 11),

        D_KL(μ‖π) = Σ log(σ/σ_μ) + (σ_μ² + (m_μ − m)²)/2σ² − ½.

    Otherwise, the divergence is D_KL(π‖μ), which exchanges π and μ.
    """
    one = mean.dtype.type(1)
    for b in range(mean.shape[0]):
        for i in range(mean.shape[1]):
            apart = mean[b, i] - mu_mean[b, i]
            ratio = np.exp(log_sigma[b, i] - mu_log_sigma[b, i])
            if mu_pi:
                inverse = np.exp(-log_sigma[b, i])
                d_mean[b, i] = apart * inverse * inverse
                d_log_sigma[b, i] = one - one / (ratio * ratio) - apart * d_mean[b, i]
            else:
                inverse = np.exp(-mu_log_sigma[b, i])
                d_mean[b, i] = apart * inverse * inverse
                d_log_sigma[b, i] = ratio * ratio - one


def divergence(mean: AnyFloats, log_sigma: AnyFloats, mu_mean: AnyFloats, mu_log_sigma: AnyFloats) -> AnyFloats:
    """Return the divergence D_KL(μ‖π) of Gaussians with parameters `[…, A]`, summed over action dimensions."""
    wider = elementwise.exp(2 * (mu_log_sigma - log_sigma))
    spread = wider + ((mu_mean - mean) * elementwise.exp(-log_sigma)) ** 2
    summed: AnyFloats = (log_sigma - mu_log_sigma + (spread - 1) / 2).sum(axis=-1)
    return summed
