"""On-policy returns along stored episodes, kept up to date as values and importance weights change.

Retrace with Q := V (Novati & Koumoutsakos 2019, eq. 6 to 8, after Munos et al. 2016); a step has its own reward:

    Q_ret[t] = r[t] + γ V_tbc[t+1],    V_tbc[t] = V[t] + min(1, ρ[t]) (Q_ret[t] − V[t])

Every stored step holds its latest V and ρ. When these are renewed, the change travels back to the start of the episode
or until it is lost in rounding, so that what is stored is at any time what the recursion would give from scratch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.far_count import RHO, FarCount, Links, Slots, Values
from replaybench.controllers.refer import ReFER
from replaybench.data.kernel import kernel

VALUE, Q_RET, REWARD, BOOTSTRAP, TRUNCATED = 2, 3, 4, 5, 6


class Retrace(FarCount):
    """The traces `rho`, `far`, `value` V, `q_ret`, `reward`, `bootstrap` and `truncated`.

    `bootstrap` is what follows a step whose successor is not stored: 0 after termination; V(s′) where the episode was
    cut off (`truncated` = 1), renewed whenever that step is replayed; V(s′) of the successor that is yet to come or was
    never kept; V_tbc of one that was evicted, as it last was.

    An experience must come with `value`, V(s) when it was collected; `bootstrap` and `truncated`.

    Args:
        refer, steps, members: see `FarCount`.
        discount: γ.
        scale: float64 `[M]`, factor on each member's rewards.
    """

    names = ("rho", "far", "value", "q_ret", "reward", "bootstrap", "truncated")

    def __init__(
        self, refer: ReFER, steps: NDArray[np.int64], members: int, discount: float, scale: NDArray[np.float64]
    ) -> None:
        super().__init__(refer, steps, members)
        self.discount, self.scale = discount, scale
        self._last = np.full(members, -1, np.int64)

    def followed(self, values: Values, last: Slots, experience: Mapping[str, NDArray[Any]]) -> None:
        """Let the steps in slots `last` `[M]` bootstrap from their successors' values until these are stored."""
        self._last[:] = last
        _bootstrap(values, last, experience["value"][:, 0], self.discount, self.scale)

    def evicting(self, values: Values, previous: Links, next: Links, slots: Slots) -> None:
        """Leave what the occupants of `slots` `[M]` say of their predecessors' returns with these."""
        super().evicting(values, previous, next, slots)
        _freeze(values, previous, slots, self.discount, self.scale)

    def stored(self, values: Values, previous: Links, next: Links, slots: Slots, ended: NDArray[np.bool_]) -> None:
        """Derive the returns of an episode when it is over, or when its latest step was not kept."""
        super().stored(values, previous, next, slots, ended)
        _close(values, previous, slots, self._last, ended, self.discount, self.scale)

    def annotated(
        self, values: Values, previous: Links, next: Links, idx: Slots, annotations: Mapping[str, NDArray[Any]]
    ) -> None:
        """Write the samples' ρ, V and, where truncated, V(s′) (`rho`, `value`, `bootstrap` `[M, B]`); then sweep."""
        value, bootstrap = annotations["value"], annotations["bootstrap"]
        super().annotated(values, previous, next, idx, annotations)
        _renew(values, previous, idx, value, bootstrap, self.discount, self.scale)


ONE = np.float32(1)


@kernel
def v_tbc(v: np.float32, rho: np.float32, q_ret: np.float32) -> np.float32:
    """V_tbc = V + min(1, ρ) (Q_ret − V), eq. 7."""
    return v + (ONE if rho > ONE else rho) * (q_ret - v)


@kernel
def _one_step(values: Values, m: int, slot: int | np.int64, discount: np.float32, scale: np.float32) -> None:
    """Q_ret = r + γ · bootstrap, of a step without stored successor."""
    values[m, slot, Q_RET] = scale * values[m, slot, REWARD] + discount * values[m, slot, BOOTSTRAP]


@kernel
def _bootstrap(
    values: Values, last: Slots, value: NDArray[np.floating], discount: float, scale: NDArray[np.float64]
) -> None:
    for m in range(last.size):
        if last[m] >= 0:
            values[m, last[m], BOOTSTRAP] = value[m]
            _one_step(values, m, last[m], np.float32(discount), np.float32(scale[m]))


@kernel
def _sweep(
    values: Values, previous: Links, m: int, slot: int | np.int64, discount: np.float32, scale: np.float32
) -> None:
    """Derive all returns from a step without stored successor to the first that is linked."""
    _one_step(values, m, slot, discount, scale)
    before = np.int64(previous[m, slot])
    while before >= 0:
        step = values[m, slot]
        future = v_tbc(step[VALUE], step[RHO], step[Q_RET])
        values[m, before, Q_RET] = scale * values[m, before, REWARD] + discount * future
        slot, before = before, np.int64(previous[m, before])


@kernel
def _freeze(values: Values, previous: Links, slots: Slots, discount: float, scale: NDArray[np.float64]) -> None:
    """Let predecessors bootstrap from those that leave; of an episode under way their returns are not known yet."""
    for m in range(slots.size):
        if slots[m] >= 0 and previous[m, slots[m]] >= 0:
            gone, before = values[m, slots[m]], np.int64(previous[m, slots[m]])
            values[m, before, BOOTSTRAP] = v_tbc(gone[VALUE], gone[RHO], gone[Q_RET])
            _sweep(values, previous, m, before, np.float32(discount), np.float32(scale[m]))


@kernel
def _close(
    values: Values,
    previous: Links,
    slots: Slots,
    last: Slots,
    ended: NDArray[np.bool_],
    discount: float,
    scale: NDArray[np.float64],
) -> None:
    """Sweep from the newest linked step where it will have no successor: it is the last, or this one was not kept."""
    for m in range(slots.size):
        end = slots[m] if slots[m] >= 0 else last[m]
        if slots[m] >= 0 and not ended[m]:
            values[m, end, Q_RET] = values[m, end, VALUE]  # no advantage until the successor is known
        elif end >= 0:
            _sweep(values, previous, m, end, np.float32(discount), np.float32(scale[m]))


@kernel
def _renew(
    values: Values,
    previous: Links,
    idx: Slots,
    value: NDArray[np.floating],
    bootstrap: NDArray[np.floating],
    discount: float,
    scale: NDArray[np.float64],
) -> None:
    """Write the samples' values, then sweep back from all of them, a step at a time in turn.

    A sweep is a chain of dependent loads; in turn, those of a batch overlap. One that changes nothing can stop: what
    lies before is consistent, or another sweep's work. Each leaves one step at most that does not yet agree with its
    successor, the one it goes to next, so that none is left in the end, in whatever order they meet.
    """
    gamma = np.float32(discount)
    slots = np.empty(idx.shape[1], np.int64)
    for m in range(idx.shape[0]):
        factor = np.float32(scale[m])
        mine, before_mine = values[m], previous[m]
        alive = 0
        for b in range(idx.shape[1]):
            slot = idx[m, b]
            if slot >= 0:
                mine[slot, VALUE] = value[m, b]
                if mine[slot, TRUNCATED] > 0:
                    mine[slot, BOOTSTRAP] = bootstrap[m, b]
                    _one_step(values, m, slot, gamma, factor)
                slots[alive] = slot
                alive += 1
        while alive > 0:
            kept = 0
            for i in range(alive):
                slot = slots[i]
                before = np.int64(before_mine[slot])
                if before >= 0:
                    future = v_tbc(mine[slot, VALUE], mine[slot, RHO], mine[slot, Q_RET])
                    q_ret = factor * mine[before, REWARD] + gamma * future
                    changed = q_ret != mine[before, Q_RET]
                    mine[before, Q_RET] = q_ret
                    slots[kept] = before
                    kept += changed
            alive = kept
