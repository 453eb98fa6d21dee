"""Segments of successive steps, returns of segments, and the trust region, for ACER (Wang et al. 2017)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from replaybench.controllers.interface.agent import Batch, LearnerConfig, Normaliser, Schedule
from replaybench.controllers.learner import Learner
from replaybench.runtime.arrays import AnyFloats, Bools, Floats, Integers
from replaybench.runtime.configuration import Episodes, NonNegative, Number, Positive, Share, Widths
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import kernel


class ACERNumbers(NamedTuple):
    """The settings of ACER as numbers, for compiled updates. Those after `tau` are only for continuous actions.

    The weights ρ̄ in returns are min(cap, ρ^power), with separate values for critic and policy. `control` is 1.0 if
    returns use Q and V, else 0.0. Importance weights other than ρ̄ are truncated at `bound`, the paper's c.
    `correct_from` is c in the bias correction: `bound`, or ∞ with trajectory weights, which are not corrected.
    """

    discount: float
    log_bound: float
    cap: float
    control: float
    bound: float
    delta: float
    tau: float
    sigma: float = 0.0
    samples: int = 0
    power: float = 1.0
    policy_power: float = 1.0
    policy_cap: float = 1.0
    correct_from: float = 1.0
    carry: float = 0.0
    dueling: bool = False
    trajectory: bool = False


@dataclass(frozen=True, kw_only=True)
class ACERSettings(LearnerConfig):
    """Settings that ACER has for continuous and for discrete actions.

    `truncate_at` is c, at which importance weights ρ are truncated (Wang et al. 2017, eq. 9 and 15). `truncation =
    false` sets c to ∞. `average` is α of the average policy, whose parameters are θ_a ← α θ_a + (1 − α) θ. `delta` is δ
    of the trust region (eq. 12). `on_policy` adds an update on the newest stored segments before replay. The logarithm
    of ρ is clipped to ±`log_ratio_bound`. `retrace = false` uses importance sampling for returns (appendix E.4).
    """

    policy_hidden: Widths = (64, 64)
    output_scale: Positive = 0.1
    policy_rate: Positive = 5e-4
    critic_rate: Positive = 3e-3
    truncate_at: Positive = 5.0
    delta: Positive = 10.0
    average: Share = 0.995
    log_ratio_bound: Positive = 7.0
    segment: Number = 50
    batch_size: Number = 4
    replays_per_experience: NonNegative = 16.0
    warmup_episodes: Episodes = 0
    on_policy: bool = False
    retrace: bool = True
    trust_region: bool = True
    truncation: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.on_policy or self.replays_per_experience > 0):
            raise UserError("ACER: set on_policy or replays_per_experience above 0, else nothing is learned")

    @property
    def schedule(self) -> Schedule:
        return super().schedule._replace(
            segment=self.segment,
            warmup_episodes=self.warmup_episodes,
            on_policy=self.on_policy,
            target_rate=1.0 - self.average,
        )

    def numbers(self, discount: float) -> ACERNumbers:
        """Return the settings as numbers, for compiled updates."""
        return ACERNumbers(
            discount,
            self.log_ratio_bound,
            cap=1.0 if self.retrace else np.inf,
            control=float(self.retrace),
            bound=self.truncate_at if self.truncation else np.inf,
            delta=self.delta if self.trust_region else np.inf,
            tau=1.0 - self.average,
        )


class Segments(NamedTuple):
    """A batch of segments (successive steps of an episode), as compiled updates take it.

    Each of M members has B segments of up to K steps. Row b·K + t is step t of segment b. Rows beyond the end of a
    segment are zero. For a batch of U updates, M·U replaces M.

    Attributes:
        observation: Normalised observations, shape `[M, B·K + B, S]`. The last B rows are the observations after the
            last step of each segment.
        action: Actions, shape `[M, B·K, A]`.
        reward: Rewards, multiplied by the learner's reward scale; float64, shape `[M, B·K]`.
        goes_on: Whether the state after the last step of each segment is not terminal, shape `[M, B]`.
        length: Number of steps of each segment; int64, shape `[M, B]`.
        weight: Weight of each segment in the critic's loss, shape `[M, B]`.
        actor_weight: Weight of each segment in the policy's loss, shape `[M, B]`.
        rate_factor: Factor on learning rates, shape `[M]`.
    """

    observation: AnyFloats
    action: AnyFloats
    reward: Floats
    goes_on: Bools
    length: Integers
    weight: AnyFloats
    actor_weight: AnyFloats
    rate_factor: AnyFloats


def as_segments(batch: Batch, normaliser: Normaliser, dtype: DTypeLike) -> Segments:
    """Return a batch as segments, where a single step is a segment of length 1."""
    length = np.ones(batch.weight.shape, np.int64) if batch.length is None else batch.length.astype(np.int64)
    last = np.maximum(length - 1, 0)[:, :, None, None]
    observation = rows(batch, "observation", dtype)
    successor = np.take_along_axis(_stepwise(batch, "next_observation"), last, axis=2)[:, :, 0]
    terminated = np.take_along_axis(_stepwise(batch, "terminated"), last, axis=2)[:, :, 0, 0]
    scale = np.repeat(normaliser.rewards.factor, len(length) // len(normaliser.rewards.factor))
    return Segments(
        normaliser.observations(np.concatenate([observation, successor.astype(dtype)], axis=1)),
        rows(batch, "action", dtype),
        scale[:, None] * np.asarray(rows(batch, "reward", np.float64)[:, :, 0], np.float64),
        terminated == 0,
        length,
        batch.weight,
        batch.actor_weight,
        batch.rate_factor,
    )


def rows(batch: Batch, name: str, dtype: DTypeLike) -> AnyFloats:
    """Return a column `[M, B·K, width]` of a batch: B segments of K steps each, shorter ones padded with zeros."""
    column = _stepwise(batch, name)
    members, _, _, width = column.shape
    return np.array(column, dtype, order="C").reshape(members, -1, width)


def _stepwise(batch: Batch, name: str) -> AnyFloats:
    column = batch.columns[name]
    return column if column.ndim == 4 else column[:, :, None]


def steps_of(learner: Learner, stored: Mapping[str, AnyFloats], *names: str) -> list[AnyFloats]:
    """Return stored fields `[M, n, width]` of the n steps of all segments, shorter ones padded with zeros."""
    columns = (stored[name][:, :: learner.schedule.segment] for name in names)
    return [column.reshape(len(column), -1, column.shape[-1]) for column in columns]


def mean_over(own: Bools, measured: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the mean `[M]` of each array `[M, n]`, over the steps for which `own` `[M, n]` is true."""
    steps = np.maximum(own.sum(axis=1), 1)
    return {name: np.where(own, values, 0).sum(axis=1) / steps for name, values in measured.items()}


@kernel
def clipped(x: float, bound: float) -> float:
    """Return x clipped to ±bound, or NaN for NaN."""
    if x < -bound:
        return -bound
    return bound if x > bound else x


@kernel
def capped(x: float, cap: float) -> float:
    """Return min(x, cap), or NaN for NaN."""
    return cap if x > cap else x


@kernel
def retrace(
    reward: Floats, q: Floats, v: Floats, trace: Floats, bootstrap: float, discount: float, out: Floats
) -> None:
    """Write the Retrace returns of the T steps of a segment to `out` `[T]` (Wang et al. 2017, eq. 5).

        Q_ret(x_t, a_t) = r_t + γ (ρ̄_{t+1} [Q_ret − Q](x_{t+1}, a_{t+1}) + V(x_{t+1}))

    `trace` contains the truncated importance weights ρ̄. `bootstrap` is V of the state after the last step, or 0 after
    termination. Other arguments give other returns. With trace 1, the result is Q_opc (eq. 21), and with trace 0, a
    one-step target. With q = v = 0 and trace ρ, the result is plain importance sampling, R_t = r_t + γ ρ_{t+1} R_{t+1}
    (appendix E.4, which omits γ). With q = v = 0 and trace 1, the result is the discounted return.
    """
    follows = bootstrap
    for t in range(reward.size - 1, -1, -1):
        out[t] = reward[t] + discount * follows
        follows = trace[t] * (out[t] - q[t]) + v[t]


@kernel
def traces(log_ratio: Floats, power: float, cap: float, out: Floats) -> None:
    """Write the truncated importance weights min(cap, ρ^power) of T steps to `out` `[T]`, given log ρ `[T]`.

    Wang et al. (2017, section 5.1) use cap 1 and power 1/A for A action dimensions.
    """
    for t in range(log_ratio.size):
        out[t] = capped(np.exp(power * log_ratio[t]), cap)


@kernel
def truncated_weights(log_ratio: Floats, cap: float, carry: float, out: Floats) -> None:
    """Write the importance weights in the policy gradient of the T steps of a segment to `out` `[T]`.

    With carry 0, the weights are min(c, ρ_t) (Wang et al. 2017, eq. 7). With carry 1, they are min(c, Π_{i ≥ t} ρ_i)
    over the remaining steps (appendix E.2). The argument `cap` is c.
    """
    total = 0.0
    for t in range(log_ratio.size - 1, -1, -1):
        total = log_ratio[t] + carry * total
        out[t] = capped(np.exp(total), cap)


@kernel
def correction(rho: float, cap: float) -> float:
    """Return max(0, 1 − c/ρ), the weight of ACER's bias correction, where c is `cap` (Wang et al. 2017, eq. 7)."""
    weight = 1.0 - cap / rho
    return 0.0 if weight <= 0.0 else weight


@kernel
def project(g: Floats, k: Floats, delta: float) -> None:
    """Project a policy gradient into the trust region, in place (Wang et al. 2017, eq. 11 and 12).

    The result z* = g − max{0, (kᵀg − δ)/‖k‖²} k is the nearest z with kᵀz ≤ δ. The arguments are gradients with respect
    to the n statistics of one state's policy. g `[n]` is the policy gradient, and k `[n]` is the gradient of the
    divergence D_KL(average policy ‖ policy). With δ = ∞, g does not change.
    """
    along, square = 0.0, 0.0
    for i in range(g.size):
        along += k[i] * g[i]
        square += k[i] * k[i]
    excess = (along - delta) / square
    if not excess <= 0.0:  # NaN gives NaN, so that a failed member is detected
        for i in range(g.size):
            g[i] -= excess * k[i]
