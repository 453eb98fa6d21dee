"""On-policy returns along stored episodes, kept up to date as values and importance weights change.

Retrace with Q := V (Novati & Koumoutsakos 2019, eq. 6 to 8, after Munos et al. 2016); a step has its own reward:

    Q_ret[t] = r[t] + γ V_tbc[t+1],    V_tbc[t] = V[t] + min(1, ρ[t]) (Q_ret[t] − V[t])

Every stored step holds its latest V and ρ. When these are renewed, the change is propagated back to the start of the
episode, or until it is lost in rounding. The stored returns of finished episodes are therefore always those of the
recursion from scratch. (Where rewards are normalised, returns are derived with the present scale.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.refer.far_count import RHO, FarCount, Links, Slots, Values
from replaybench.controllers.refer.rules import ReFER
from replaybench.data.kernel import kernel

VALUE, Q_RET, REWARD, TRUNCATED = 2, 3, 4, 5
WIDTH = np.uint64(6)
LANES, TURN = 4, 8
ONE = np.float32(1)


class StoredReturns(FarCount):
    """The traces `rho`, `far`, `value` V, `q_ret`, `reward` and `truncated`, 1 where an episode was cut off.

    Where the successor of a step is not stored, the bootstrap is in its `q_ret` alone: 0 after termination; V(s′) where
    the episode was cut off, renewed whenever that step is replayed; V(s′) of a successor that was not kept; the latest
    V_tbc of one that was evicted.

    An experience must have the fields `value`, V(s) when it was collected, `truncated`, and, if it ends an episode,
    `q_ret`.

    Args:
        refer, steps, members: see `FarCount`.
        discount: γ.
        scale: float64 `[M]`, factor on each member's rewards.
    """

    names = ("rho", "far", "value", "q_ret", "reward", "truncated")

    def __init__(
        self, refer: ReFER, steps: NDArray[np.int64], members: int, discount: float, scale: NDArray[np.float64]
    ) -> None:
        super().__init__(refer, steps, members)
        self.discount, self.scale = np.float32(discount), scale
        self._last = np.full(members, -1, np.int64)

    def followed(self, values: Values, last: Slots, experience: Mapping[str, NDArray[Any]]) -> None:
        """Bootstrap the steps in slots `last` `[M]` from their successors' values until these are stored."""
        self._last[:] = last
        m = np.flatnonzero(last >= 0)
        reward, value = values[m, last[m], REWARD], experience["value"][m, 0].astype(np.float32)
        values[m, last[m], Q_RET] = self.scale[m].astype(np.float32) * reward + self.discount * value

    def evicting(self, values: Values, previous: Links, next: Links, slots: Slots) -> None:
        """Derive the returns of the predecessors of the steps in `slots` `[M]` before these are evicted."""
        super().evicting(values, previous, next, slots)
        _sweep_all(values, previous, slots, self.discount, self.scale)

    def stored(self, values: Values, previous: Links, next: Links, slots: Slots, ended: NDArray[np.bool_]) -> None:
        """Derive the returns of an episode when it has ended, or when its latest step was not kept."""
        super().stored(values, previous, next, slots, ended)
        unfinished = (slots >= 0) & ~ended
        m = np.flatnonzero(unfinished)
        values[m, slots[m], Q_RET] = values[m, slots[m], VALUE]  # no advantage until the successor is known
        latest = np.where(unfinished, -1, np.where(slots >= 0, slots, self._last))
        _sweep_all(values, previous, latest, self.discount, self.scale)

    def annotated(
        self, values: Values, previous: Links, next: Links, idx: Slots, annotations: Mapping[str, Any]
    ) -> None:
        """Write the samples' `rho` and `value` `[M, B]`, and where truncated `bootstrap`, V(s′); renew returns."""
        super().annotated(values, previous, next, idx, annotations)
        renewed = annotations["value"], annotations["bootstrap"]
        _renew_values(values, previous, idx, *renewed, self.discount, self.scale)


@kernel
def earlier_return(
    r_tm1: np.float32, v_t: np.float32, rho_t: np.float32, q_ret_t: np.float32, discount: np.float32
) -> np.float32:
    """Q_ret[t−1] = r[t−1] + γ (V[t] + min(1, ρ[t]) (Q_ret[t] − V[t])), eq. 6, arranged so that Q_ret[t] enters last."""
    kept = discount * (ONE if rho_t > ONE else rho_t)
    return (r_tm1 + (discount - kept) * v_t) + kept * q_ret_t


@kernel
def _sweep(values: Values, previous: Links, m: int, slot: int, discount: np.float32, scale: np.float32) -> None:
    """Derive all returns before a step, to the first that is linked."""
    while previous[m, slot] >= 0:
        step, before = values[m, slot], values[m, previous[m, slot]]
        before[Q_RET] = earlier_return(scale * before[REWARD], step[VALUE], step[RHO], step[Q_RET], discount)
        slot = previous[m, slot]


@kernel
def _sweep_all(values: Values, previous: Links, slots: Slots, discount: np.float32, scale: NDArray[np.float64]) -> None:
    for m in range(slots.size):
        if slots[m] >= 0:
            _sweep(values, previous, m, slots[m], discount, np.float32(scale[m]))


@kernel
def _renew_values(
    values: Values,
    previous: Links,
    idx: Slots,
    value: NDArray[np.floating],
    bootstrap: NDArray[np.floating],
    discount: np.float32,
    scale: NDArray[np.float64],
) -> None:
    """Write the samples' values, then sweep back from all of them."""
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
        _sweep_from(values[m].reshape(-1), previous[m], np.sort(slots[:count]), discount, factor)


@kernel
def _sweep_from(
    steps: NDArray[np.float32], previous: NDArray[np.int32], slots: Slots, discount: np.float32, scale: np.float32
) -> None:
    """Sweep from the steps of one member in `slots`, which ascend; `steps` is flat, `[N · K]`.

    A sweep stops where it changes nothing: the steps before are consistent, or belong to another sweep. The latest step
    of an episode is swept first. A sweep is a chain of dependent sums; a few lanes, each with neighbouring slots, take
    turns of a few steps, so that their chains overlap. Unsigned indices avoid tests for negative ones.
    """
    at, start, end = np.empty(LANES, np.uint64), np.empty(LANES, np.int64), np.empty(LANES, np.int64)
    share, lanes = -(-slots.size // LANES), 0
    for last in range(slots.size, 0, -max(1, share)):
        at[lanes], start[lanes], end[lanes] = np.uint64(slots[last - 1]), last - 1, max(0, last - share)
        lanes += 1
    lane = 0
    while lanes > 0:
        slot, goes_on = at[lane], True
        q_ret = steps[slot * WIDTH + np.uint64(Q_RET)]
        for _ in range(TURN):
            goes_on = goes_on and previous[slot] >= 0
            if not goes_on:
                break
            this, slot = slot * WIDTH, np.uint64(previous[slot])
            reward, before = steps[slot * WIDTH + np.uint64(REWARD)], slot * WIDTH + np.uint64(Q_RET)
            v, rho = steps[this + np.uint64(VALUE)], steps[this + np.uint64(RHO)]
            q_ret = earlier_return(scale * reward, v, rho, q_ret, discount)
            goes_on = q_ret != steps[before]
            steps[before] = q_ret
        at[lane] = slot
        if not goes_on:
            start[lane] -= 1
            if start[lane] >= end[lane]:
                at[lane] = np.uint64(slots[start[lane]])
            else:
                lanes -= 1
                at[lane], start[lane], end[lane] = at[lanes], start[lanes], end[lanes]
        lane = lane + 1 if lane + 1 < lanes else 0
