"""Importance weights, ReF-ER, the count of far-policy experiences, and stored returns (Novati & Koumoutsakos 2019).

Returns are those of Retrace with the approximation Q = V (eq. 6 to 8 of that paper, after Munos et al. 2016). With
r[t], the reward of step t, and ρ[t], its importance weight,

    Q_ret[t] = r[t] + γ V_tbc[t+1],    V_tbc[t] = V[t] + min(1, ρ[t]) (Q_ret[t] − V[t]).

The buffer stores the latest V and ρ of every step. When V or ρ of a step is updated, the returns of earlier steps are
recomputed. The recursion ends at the start of the episode or at a return that does not change. The stored returns of
finished episodes are therefore always equal to the full recursion. If rewards are normalised, each return is computed
with the factor on rewards at that time.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from replaybench.data.batch import Links, Slots, TraceRule
from replaybench.runtime import elementwise
from replaybench.runtime.arrays import AnyFloats, Bools, Floats, Floats32, Integers
from replaybench.runtime.kernel import kernel

LOG_RHO_BOUND: Final = 7.0
"""Bound on |log ρ| of importance weights ρ, as in the public code of Novati & Koumoutsakos (2019)."""

RHO_LIMIT: Final = 1e3
"""Bound on importance weights if ReF-ER uses Rule 2 without Rule 1 (Novati & Koumoutsakos 2019, section 5.3)."""


class Rules(NamedTuple):
    """The rules of ReF-ER that apply in one update (Novati & Koumoutsakos 2019, section 3).

    Attributes:
        c_max: An experience is near-policy if its importance weight ρ lies in (1/c_max, c_max), else far-policy.
        mask: Whether Rule 1 applies, by which far-policy samples give no gradient of the loss.
        pull: Whether Rule 2 applies, which penalises the divergence from past policies.
        mu_pi: Whether this divergence is D_KL(μ‖π), otherwise D_KL(π‖μ), for the policy π and the past policy μ.
        limit: Upper bound on ρ in V-RACER's policy loss.
        beta: Coefficient β of the loss of each member; float64, shape `[M]`. The penalty has the
            weight 1 − β.
    """

    c_max: float
    mask: bool
    pull: bool
    mu_pi: bool
    limit: float
    beta: Floats


class ReFER:
    """The settings and coefficients β of ReF-ER for M members (Novati & Koumoutsakos 2019, section 3).

    Without settings, no rule applies and β stays 1. Then c_max = 5 only defines far-policy experiences, whose
    importance weights lie outside (1/c_max, c_max).

    Args:
        settings: Settings of ReF-ER in the replay strategy, or None.
        members: Number of members M.
        learning_rate: Step size of β, unless the settings contain one.
    """

    def __init__(self, settings: Any, members: int, learning_rate: float) -> None:
        rules = () if settings is None else settings.rules
        self.on, self.mask, self.pull = settings is not None, 1 in rules, 2 in rules
        self.c: float = 4.0 if settings is None else settings.c
        self.anneal: float = 0.0 if settings is None else settings.anneal
        self.beta = np.ones(members)
        self.learning_rate = learning_rate
        self.far, self.beta_rate, self.mu_pi = 1.0, None, True
        if self.pull:
            self.far, self.beta_rate, self.mu_pi = settings.far, settings.beta_rate, settings.kl == "mu_pi"
            self.beta[:] = settings.beta
        limit = RHO_LIMIT if self.pull and not self.mask else np.inf
        self._rules = Rules(self.c_max(1), self.mask, self.pull, self.mu_pi, limit, self.beta)

    def annealed(self, update: int) -> float:
        """Return 1/(1 + A·t), the factor by which ReF-ER decreases learning rates (Novati & Koumoutsakos 2019, eq. 13).

        A is the setting `anneal`, and t is the number of the update, counted from 1.
        """
        return 1.0 / (1.0 + self.anneal * update)

    def rules(self, update: int) -> Rules:
        """Return the rules of ReF-ER that apply in update number `update`, counted from 1."""
        return self._rules._replace(c_max=self.c_max(update)) if self.anneal else self._rules

    def slowed(self, rate_factor: Floats32, update: int) -> Floats32:
        """Return factors on learning rates, `rate_factor` decreased by ReF-ER for update number `update` (from 1)."""
        return rate_factor * np.float32(self.annealed(update)) if self.anneal else rate_factor

    def c_max(self, update: int) -> float:
        """Return the bound on near-policy ρ, c_max = 1 + C/(1 + A·t) (Novati & Koumoutsakos 2019, eq. 13)."""
        return 1.0 + self.c * self.annealed(update)

    def move_beta(self, far_fraction: Floats, update: int) -> None:
        """Adapt the coefficient β by Rule 2 of ReF-ER (Novati & Koumoutsakos 2019, eq. 12), if this rule applies.

        β moves towards 0 if the fraction n_far/N `[M]` of far-policy experiences in the buffer exceeds the setting D.
        Otherwise it moves towards 1. A rising β is computed from 1 − β, so that both fixed points are exact.
        """
        if self.pull:
            eta = self.learning_rate * self.annealed(update) if self.beta_rate is None else self.beta_rate
            falling, rising = (1.0 - eta) * self.beta, 1.0 - (1.0 - eta) * (1.0 - self.beta)
            self.beta[:] = np.where(far_fraction > self.far, falling, rising)


@kernel
def near_policy(rho: float, c_max: float) -> bool:
    """Return whether an importance weight ρ satisfies 1/c_max < ρ < c_max. For NaN, the result is False."""
    return 1.0 / c_max < rho < c_max


@kernel
def gives_gradient(rho: float, rules: Rules) -> bool:
    """Return whether a sample with importance weight ρ gives a gradient under the rules of ReF-ER."""
    return not rules.mask or near_policy(rho, rules.c_max)


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


Counts = Integers

RHO, FAR = 0, 1
"""Indices of the importance weight ρ and of the far-policy flag among the numbers that are stored with a step."""

RECOUNT: Final = 1000
"""Number of updates between full recounts of far-policy steps."""


class FarCount(TraceRule):
    """A rule that counts far-policy steps in the buffer of each of M members.

    A step is far-policy if its importance weight lies outside (1/c_max, c_max) (Novati & Koumoutsakos 2019). The buffer
    stores two numbers (traces) with every step. They are `rho`, the latest importance weight, and `far`, which is 1 if
    the step is far-policy.

    Attributes:
        far: Number of far-policy steps in each buffer; int64, shape `[M]`.
        stored_steps: Number of all steps in each buffer; int64, shape `[M]`.
    """

    names: tuple[str, ...] = ("rho", "far")

    def __init__(self, refer: ReFER, steps: Integers, members: int) -> None:
        self.refer, self.steps = refer, steps
        self.far, self.stored_steps = np.zeros(members, np.int64), np.zeros(members, np.int64)

    @property
    def fraction(self) -> Floats:
        """Fraction of far-policy steps in each buffer, shape `[M]`. It is 0 for an empty buffer."""
        return self.far / np.maximum(self.stored_steps, 1)

    def evicting(self, values: Floats32, previous: Links, next: Links, slots: Slots) -> None:
        """Subtract the steps at buffer indices `slots` `[M]` from the counts, because they will be overwritten."""
        gone = np.flatnonzero(slots >= 0)
        self.far[gone] -= values[gone, slots[gone], FAR].astype(np.int64)
        self.stored_steps[gone] -= 1

    def stored(self, values: Floats32, previous: Links, next: Links, slots: Slots, ended: Bools) -> None:
        """Count the new steps at buffer indices `slots` `[M]`. Their ρ is 1, because the current policy acted."""
        new = np.flatnonzero(slots >= 0)
        values[new, slots[new], RHO], values[new, slots[new], FAR] = 1, 0
        self.stored_steps[new] += 1

    def annotated(
        self, values: Floats32, previous: Links, next: Links, idx: Slots, annotations: Mapping[str, np.ndarray]
    ) -> None:
        """Store the latest importance weights `rho` `[M, B]` of B sampled steps, and update the counts and β."""
        update = int(self.steps[0])
        c_max = self.refer.c_max(update)
        _write_rho(values, idx, annotations["rho"], c_max, self.far)
        if update % RECOUNT == 0:
            _recount_far(values, self.stored_steps, c_max, self.far)
        self.refer.move_beta(self.fraction, update)

    def loaded(self, values: Floats32, count: Counts) -> None:
        """Count the steps of a loaded buffer, which are at the first `count[m]` indices of the m-th buffer."""
        self.stored_steps[:] = count
        self.far[:] = [int(values[m, :n, FAR].sum()) for m, n in enumerate(count)]

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the counts by name, without copying."""
        return {"far": self.far, "stored_steps": self.stored_steps}


@kernel
def _write_rho(values: Floats32, idx: Slots, rho: AnyFloats, c_max: float, far: Counts) -> None:
    for m in range(idx.shape[0]):
        for b in range(idx.shape[1]):
            slot = idx[m, b]
            if slot >= 0:
                before = values[m, slot, FAR]
                now = 0 if near_policy(rho[m, b], c_max) else 1
                values[m, slot, RHO], values[m, slot, FAR] = rho[m, b], now
                far[m] += now - int(before)


@kernel
def _recount_far(values: Floats32, stored: Counts, c_max: float, far: Counts) -> None:
    for m in range(stored.size):
        far[m] = 0
        for slot in range(stored[m]):
            values[m, slot, FAR] = 0 if near_policy(values[m, slot, RHO], c_max) else 1
            far[m] += int(values[m, slot, FAR])


VALUE, Q_RET, REWARD, TRUNCATED = 2, 3, 4, 5
ONE = np.float32(1)


class StoredReturns(FarCount):
    """A rule that computes the Retrace return of every step in the buffer (Novati & Koumoutsakos 2019, eq. 6 to 8).

    If the next step of the episode is not in the buffer, the return contains a bootstrap. The bootstrap is 0 after
    termination. After truncation, it is V(s′), which is updated whenever the step is replayed. If the next step was
    never stored, the bootstrap is also V(s′). If the next step was overwritten, the bootstrap is the latest
    V + min(1, ρ) (Q_ret − V) of the next step (eq. 7).

    Experiences must have the fields `value`, which is V(s) at collection, `truncated` and, at the end of an episode,
    `q_ret`. The numbers (traces) of a step are `rho`, `far`, `value`, `q_ret`, `reward` and `truncated`, which is 1 if
    the episode was truncated at this step. `scale` `[M]` is the factor on the rewards of each member.
    """

    names = ("rho", "far", "value", "q_ret", "reward", "truncated")

    def __init__(self, refer: ReFER, steps: Integers, members: int, discount: float, scale: Floats) -> None:
        super().__init__(refer, steps, members)
        self.discount, self.scale = np.float32(discount), scale
        self._last = np.full(members, -1, np.int64)

    def followed(self, values: Floats32, last: Slots, experience: Mapping[str, np.ndarray]) -> None:
        """Bootstrap the steps at indices `last` `[M]` from V of the next state, until the next step is stored."""
        self._last[:] = last
        m = np.flatnonzero(last >= 0)
        reward, value = values[m, last[m], REWARD], experience["value"][m, 0].astype(np.float32)
        values[m, last[m], Q_RET] = self.scale[m].astype(np.float32) * reward + self.discount * value

    def evicting(self, values: Floats32, previous: Links, next: Links, slots: Slots) -> None:
        """Compute the returns of all earlier steps before the steps at indices `slots` `[M]` are overwritten."""
        super().evicting(values, previous, next, slots)
        _sweep_all(values, previous, slots, self.discount, self.scale)

    def stored(self, values: Floats32, previous: Links, next: Links, slots: Slots, ended: Bools) -> None:
        """Compute the returns of an episode if the new step ends the episode or was discarded.

        After a discarded step, the preceding step keeps the return that `followed` computed.
        """
        super().stored(values, previous, next, slots, ended)
        unfinished = (slots >= 0) & ~ended
        m = np.flatnonzero(unfinished)
        values[m, slots[m], Q_RET] = values[m, slots[m], VALUE]  # no advantage until the successor is known
        latest = np.where(unfinished, -1, np.where(slots >= 0, slots, self._last))
        _sweep_all(values, previous, latest, self.discount, self.scale)

    def annotated(
        self, values: Floats32, previous: Links, next: Links, idx: Slots, annotations: Mapping[str, AnyFloats]
    ) -> None:
        """Store new values of B sampled steps of each member, and update the returns of their episodes.

        The annotations `[M, B]` are ρ (`rho`), V(s) (`value`) and, for truncated steps, V(s′) (`bootstrap`).
        """
        super().annotated(values, previous, next, idx, annotations)
        renewed = annotations["value"], annotations["bootstrap"]
        _renew_values(values, previous, idx, *renewed, self.discount, self.scale)


@kernel
def earlier_return(
    r_tm1: np.float32, v_t: np.float32, rho_t: np.float32, q_ret_t: np.float32, discount: np.float32
) -> np.float32:
    """Return the Retrace return of step t − 1, given step t (Novati & Koumoutsakos 2019, eq. 6 with Q = V).

        Q_ret[t−1] = r[t−1] + γ (V[t] + min(1, ρ[t]) (Q_ret[t] − V[t]))

    The code adds Q_ret[t] last, so that a processor can compute the other terms of several steps in parallel.
    """
    kept = discount * (ONE if rho_t > ONE else rho_t)
    return (r_tm1 + (discount - kept) * v_t) + kept * q_ret_t


@kernel
def _sweep(
    values: Floats32, previous: Links, m: int, slot: np.int64, discount: np.float32, scale: np.float32, whole: bool
) -> None:
    """Recompute returns backwards from a step, to the start of its episode if `whole`, else while returns change."""
    q_ret = values[m, slot, Q_RET]
    while previous[m, slot] >= 0:
        v, rho = values[m, slot, VALUE], values[m, slot, RHO]
        slot = np.int64(previous[m, slot])
        q_ret = earlier_return(scale * values[m, slot, REWARD], v, rho, q_ret, discount)
        if q_ret == values[m, slot, Q_RET] and not whole:  # another sweep updates earlier returns, if necessary
            break
        values[m, slot, Q_RET] = q_ret


@kernel
def _sweep_all(values: Floats32, previous: Links, slots: Slots, discount: np.float32, scale: Floats) -> None:
    for m in range(slots.size):
        if slots[m] >= 0:
            _sweep(values, previous, m, slots[m], discount, np.float32(scale[m]), True)


@kernel
def _renew_values(
    values: Floats32, previous: Links, idx: Slots, value: AnyFloats, bootstrap: AnyFloats, discount: np.float32,
    scale: Floats,
) -> None:  # fmt: skip
    """Store the values of sampled steps, then recompute Retrace returns backwards from all sampled steps."""
    slots = np.empty(idx.shape[1], np.int64)
    for m in range(idx.shape[0]):
        factor, count = np.float32(scale[m]), 0
        for b in range(idx.shape[1]):
            slot = idx[m, b]
            if slot >= 0:
                step = values[m, slot]
                step[VALUE] = value[m, b]
                if step[TRUNCATED] > 0:
                    step[Q_RET] = factor * step[REWARD] + discount * np.float32(bootstrap[m, b])
                slots[count] = slot
                count += 1
        slots[:count].sort()
        for k in range(count - 1, -1, -1):  # later steps first
            _sweep(values, previous, m, slots[k], discount, factor, False)
