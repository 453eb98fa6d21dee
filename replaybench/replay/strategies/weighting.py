"""Importance weights: `IS` (Schaul et al., 2016) and `FIS` (de Bruin et al., 2018, section 7.2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from replaybench.replay.storage.columns import Indices, State
from replaybench.replay.strategies.interface import BufferView, Context, Draws, RunningWeighting, Usage, Weighting
from replaybench.runtime.arrays import Floats, Floats32
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import kernel


@dataclass(frozen=True)
class IS(Weighting):
    """Importance-sampling weights (1 / (N·P))^β (Schaul et al., 2016; de Bruin et al., 2018, eq. 8).

    N is the number of stored experiences, and P the probability of drawing the sample. β changes linearly over the run.
    In the combination SAC+PER of Wang & Ross (2019), Algorithm 2 normalises weights and has them in the losses of all
    networks. Equation 5 and section 3.3 have them in the losses of the critics Q only, not normalised.

    Attributes:
        first: Initial β.
        last: Final β.
        normalise: Whether the weights of a batch are divided by their maximum, as Schaul et al. (2016) do.
        all_networks: Whether the weights multiply the losses of all networks, or only the loss of the critics Q.
    """

    first: float = 0.5
    last: float = 1.0
    normalise: bool = False
    all_networks: bool = False
    by_probability = True

    def __post_init__(self) -> None:
        if not (0 <= self.first <= 1 and 0 <= self.last <= 1):
            raise UserError(f"IS({self.first:g}→{self.last:g}): both exponents must lie in [0, 1]")

    @property
    def steady(self) -> bool:
        return self.first == self.last

    def start(self, view: BufferView) -> RunningWeighting:
        return _RunningIS(self)


class _RunningIS(RunningWeighting):
    def __init__(self, description: IS) -> None:
        self.description = description

    def weigh(self, context: Context, usage: Usage, draws: Draws, weight: Floats32) -> None:
        first, last = self.description.first, self.description.last
        beta = first + (last - first) * context.progress
        _weigh_by_chance(usage.stored, draws.probability, beta, self.description.normalise, weight)


@kernel
def _weigh_by_chance(stored: Indices, probability: Floats, beta: float, normalise: bool, weight: Floats32) -> None:
    """Write the importance weights (1 / (N·P))^β of samples, where N is `stored[m]` and P is `probability[m, b]`."""
    raw = np.empty(probability.shape[1])
    for m in range(probability.shape[0]):
        most = 0.0
        for b in range(raw.size):
            raw[b] = (stored[m] * probability[m, b]) ** -beta
            most = max(most, raw[b])
        weight[m] = raw / most if normalise else raw


@dataclass(frozen=True)
class FIS(Weighting):
    """Full importance-sampling weights by the number of replays (de Bruin et al., 2018, section 7.2).

    The K-th replay of an experience has the weight

        (Pr(X ≥ K) / [Σ_{j=1}^{⌈np⌉} Pr(X ≥ j) / np])^β.

    X ~ Binomial(n, p) is the number of replays of an experience in a FIFO buffer with uniform sampling. n is the
    lifetime of the experience in updates. p = B / (number stored) is the probability of a draw per update, for B
    samples. The lifetime is the number of updates in which C new experiences are added to a buffer of capacity C. It is
    computed from the mean number of updates per new experience, without the time up to the end of the first series of
    updates. While the buffer contains experiences from that time, the lifetime is the number of all updates so far.

    The paper prints Pr(X > K) in its formula and Pr(X ≥ K) in its text. This class uses Pr(X ≥ K). If a batch contains
    an experience several times, its replays are counted one after the other. If p > 1/2, X counts n·B draws of
    probability p/B instead of n updates.
    """

    beta: float = 1.0
    slot_bytes = 2

    def __post_init__(self) -> None:
        if not 0 <= self.beta <= 1:
            raise UserError(f"FIS({self.beta:g}): the exponent must lie in [0, 1]")

    @property
    def steady(self) -> bool:
        return True

    def start(self, view: BufferView) -> RunningWeighting:
        return _RunningFIS(self.beta, view)


_CROWDED: Final = 0.5


class _RunningFIS(RunningWeighting):
    def __init__(self, beta: float, view: BufferView) -> None:
        self.beta, self.view = beta, view
        self.replays = np.zeros((len(view.members), view.capacity), np.uint16)
        self.before = np.zeros((len(view.members), 2), np.int64)  # offers and updates at the end of the first phase

    def stored(self, slots: Indices) -> None:
        members = np.flatnonzero(slots >= 0)
        self.replays[members, slots[members]] = 0

    def weigh(self, context: Context, usage: Usage, draws: Draws, weight: Floats32) -> None:
        if not self.before.any():
            self.before[:, 0], self.before[:, 1] = usage.offers, usage.phase_end
        lifetime, expected = self._lifetime(usage, draws.idx.shape[1])
        _weigh_by_counts(self.replays, lifetime, expected, self.beta, draws.idx, weight)

    def _lifetime(self, usage: Usage, batch: int) -> tuple[Indices, Floats]:
        """Return n and n·p of the binomial distribution of replays, shape `[M]` each, as in `FIS`."""
        offers, updates = usage.offers - self.before[:, 0], usage.phase_end - self.before[:, 1]
        # The lifetime of experiences from before the first update (warm-up, recording) contains all updates.
        rate = updates / np.maximum(offers, 1)
        replaced = self.view.capacity * rate <= usage.phase_end * (1 + 1e-9)
        full = (usage.stored == self.view.capacity) & self.view.bounded & (offers > 0) & (updates > 0) & replaced
        lifetime = np.maximum(np.rint(np.where(full, self.view.capacity * rate, usage.updates)), 1)
        expected = np.where(full, batch * rate, usage.updates * batch / usage.stored)
        lifetime = np.where(expected > _CROWDED * lifetime, lifetime * batch, lifetime)
        return lifetime.astype(np.int64), expected

    def state_dict(self, stored: int) -> State:
        return {"replays": self.replays[:, :stored], "replays_before": self.before}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        self.replays[:, : state["replays"].shape[1]] = state["replays"]
        before, offers = np.asarray(state["replays_before"], np.int64), np.asarray(state["offers"])
        if (before < 0).any() or (before[:, 0] > np.maximum(offers, 1)).any():
            raise ValueError("its first updates came after more experiences than it was offered")
        self.before[:] = before


@kernel
def _weigh_by_counts(
    replays: NDArray[np.uint16], lifetime: Indices, expected: Floats, beta: float, idx: Indices, weight: Floats32
) -> None:
    """Count the replays of samples, and write their weights by `FIS`, where `lifetime` is n and `expected` is n·p."""
    for m in range(idx.shape[0]):
        most = 0
        for b in range(idx.shape[1]):
            slot = idx[m, b]
            replays[m, slot] += np.uint16(replays[m, slot] < 0xFFFF)
            most = max(most, int(replays[m, slot]))
            weight[m, b] = replays[m, slot]
        terms = int(np.ceil(expected[m]))
        reached = binomial_tails(lifetime[m], expected[m] / lifetime[m], max(most, terms))
        mean = reached[1 : terms + 1].sum() / expected[m]
        for b in range(idx.shape[1]):
            weight[m, b] = (reached[int(weight[m, b])] / mean) ** beta


@kernel
def binomial_tails(n: int, p: float, most: int) -> Floats:
    """Return Pr(X ≥ K) for X ~ Binomial(n, p) and K = 0 … `most`; float64, shape `[most + 1]`.

    The logarithms of the probabilities are computed recursively. The probabilities are summed from the last one, which
    is the smallest.
    """
    reached = np.zeros(most + 1)
    reached[0] = 1.0
    if p >= 1.0:
        reached[: n + 1] = 1.0
        return reached
    mean = n * p
    last = min(n, int(max(float(most), mean) + 10.0 * np.sqrt(mean)) + 60)
    terms, log_term = np.zeros(last + 1), n * np.log1p(-p)
    for k in range(last + 1):
        terms[k] = np.exp(log_term)
        if terms[k] == 0.0 and k > mean:
            break
        if k < n:
            log_term += np.log((n - k) * p / ((k + 1) * (1.0 - p)))
    tail = 0.0
    for k in range(last, 0, -1):
        tail += terms[k]
        if k <= most:
            reached[k] = min(tail, 1.0)
    return reached
