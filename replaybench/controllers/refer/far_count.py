"""How many stored experiences are far-policy: the trace that ReF-ER needs (Novati & Koumoutsakos 2019, eq. 12).

Every stored step keeps the importance weight ρ of its last replay. n_far is updated when steps are stored, replayed and
evicted. As c_max shrinks, it is counted exactly every `RECOUNT` updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.refer.rules import ReFER, near_policy
from replaybench.data.kernel import kernel

Values = NDArray[np.float32]
Links = NDArray[np.int32]
Slots = NDArray[np.int64]
Counts = NDArray[np.int64]

RHO, FAR = 0, 1
"""Places of the two numbers in the traces of every rule."""

RECOUNT: Final = 1000
"""Updates between exact counts."""


class FarCount:
    """The traces `rho`, the importance weight, and `far`, 1 where it is far-policy.

    Replay calls it (`TraceRule`); `values` is `[M, N, K]`, slots −1 are skipped.

    Args:
        refer: its β depends on the count.
        steps: the learner's count of updates, int64 `[1]`.
        members: M.

    Attributes:
        far, stored_steps: int64 `[M]`, number of far-policy steps, and of all.
    """

    names: tuple[str, ...] = ("rho", "far")

    def __init__(self, refer: ReFER, steps: NDArray[np.int64], members: int) -> None:
        self.refer, self.steps = refer, steps
        self.far, self.stored_steps = np.zeros(members, np.int64), np.zeros(members, np.int64)

    @property
    def fraction(self) -> NDArray[np.float64]:
        """n_far/N `[M]`, 0 where nothing is stored."""
        return self.far / np.maximum(self.stored_steps, 1)

    def followed(self, values: Values, last: Slots, experience: Mapping[str, NDArray[Any]]) -> None:
        """Do nothing: these traces do not depend on successors."""

    def evicting(self, values: Values, previous: Links, next: Links, slots: Slots) -> None:
        """Remove the steps in `slots` `[M]` from the counts."""
        gone = np.flatnonzero(slots >= 0)
        self.far[gone] -= values[gone, slots[gone], FAR].astype(np.int64)
        self.stored_steps[gone] -= 1

    def stored(self, values: Values, previous: Links, next: Links, slots: Slots, ended: NDArray[np.bool_]) -> None:
        """Count the new steps in `slots` `[M]`; the present policy chose them: ρ = 1."""
        new = np.flatnonzero(slots >= 0)
        values[new, slots[new], RHO], values[new, slots[new], FAR] = 1, 0
        self.stored_steps[new] += 1

    def annotated(
        self, values: Values, previous: Links, next: Links, idx: Slots, annotations: Mapping[str, NDArray[Any]]
    ) -> None:
        """Write the samples' ρ, `annotations["rho"]` `[M, B]`, count, and move β."""
        update = int(self.steps[0])
        c_max = self.refer.c_max(update)
        _write_rho(values, idx, annotations["rho"], c_max, self.far)
        if update % RECOUNT == 0:
            _recount_far(values, self.stored_steps, c_max, self.far)
        self.refer.move_beta(self.fraction, update)

    def loaded(self, values: Values, count: Counts) -> None:
        """Count the steps in the first `count` `[M]` slots of a loaded buffer."""
        self.stored_steps[:] = count
        self.far[:] = [int(values[m, :n, FAR].sum()) for m, n in enumerate(count)]

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return the counts."""
        return {"far": self.far, "stored_steps": self.stored_steps}


@kernel
def _write_rho(values: Values, idx: Slots, rho: NDArray[np.floating], c_max: float, far: Counts) -> None:
    for m in range(idx.shape[0]):
        for b in range(idx.shape[1]):
            slot = idx[m, b]
            if slot >= 0:
                before = values[m, slot, FAR]
                now = 0 if near_policy(rho[m, b], c_max) else 1
                values[m, slot, RHO], values[m, slot, FAR] = rho[m, b], now
                far[m] += now - int(before)


@kernel
def _recount_far(values: Values, stored: Counts, c_max: float, far: Counts) -> None:
    """Count all stored steps, which fill the first slots, by the present c_max."""
    for m in range(stored.size):
        far[m] = 0
        for slot in range(stored[m]):
            values[m, slot, FAR] = 0 if near_policy(values[m, slot, RHO], c_max) else 1
            far[m] += int(values[m, slot, FAR])
