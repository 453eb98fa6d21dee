"""What led to a replayed step: the steps of its episode that end with it, as far as they are still stored.

Recurrent policies need them. They are found along the links between stored steps, under every retention and sampling: a
window is shorter where its episode began, or where a step of it was never stored or has been evicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel
from replaybench.replay.storage.columns import Columns
from replaybench.replay.storage.traces import Bools, Links, Slots, Traces, Values

Floats = NDArray[np.float32]

MEMORY: Final = "memory"
"""The field in which a learner may store what it remembered before the step."""


class Window(NamedTuple):
    """The successive steps that end with each sample, the oldest first, at most W.

    Attributes:
        observation: float32 `[M, B, W, S]`, zero behind the sample's own.
        length: steps of each window int64 `[M, B]`, at least 1.
        memory: what is stored as `memory` with the first step of each, float32 `[M, B, H]`; H = 0 if nothing is.
    """

    observation: Floats
    length: NDArray[np.int64]
    memory: Floats


class OnlyLinks:
    """The rule of learners that derive no numbers along episodes, and need the links all the same."""

    names: tuple[str, ...] = ()

    def followed(self, values: Values, last: Slots, experience: Mapping[str, NDArray[Any]]) -> None: ...

    def evicting(self, values: Values, previous: Links, next: Links, slots: Slots) -> None: ...

    def stored(self, values: Values, previous: Links, next: Links, slots: Slots, ended: Bools) -> None: ...

    def annotated(
        self, values: Values, previous: Links, next: Links, idx: Slots, annotations: Mapping[str, NDArray[Any]]
    ) -> None: ...


def windows(columns: Columns, traces: Traces, idx: Slots, steps: int) -> Window:
    """Return the windows of at most `steps` steps that end in slots idx `[M, B]`."""
    seen, kept = columns.spans["observation"], columns.spans.get(MEMORY, slice(0, 0))
    observation = np.zeros((*idx.shape, steps, seen.stop - seen.start), np.float32)
    length = np.empty(idx.shape, np.int64)
    memory = np.empty((*idx.shape, kept.stop - kept.start), np.float32)
    _gather(columns.rows, traces.previous, idx, seen.start, kept.start, observation, length, memory)
    return Window(observation, length, memory)


@kernel
def _gather(
    rows: Floats, previous: Links, idx: Slots, seen: int, kept: int,
    observation: Floats, length: NDArray[np.int64], memory: Floats,
) -> None:  # fmt: skip
    """Go back from each sample to the first step of its window, then come back with the observations."""
    for m in range(idx.shape[0]):
        for b in range(idx.shape[1]):
            first, steps = idx[m, b], 1
            while steps < observation.shape[2] and previous[m, first] >= 0:
                first = np.int64(previous[m, first])
                steps += 1
            length[m, b] = steps
            for k in range(memory.shape[2]):
                memory[m, b, k] = rows[m, first, kept + k]
            slot = idx[m, b]
            for t in range(steps - 1, -1, -1):
                for s in range(observation.shape[3]):
                    observation[m, b, t, s] = rows[m, slot, seen + s]
                slot = np.int64(previous[m, slot])
