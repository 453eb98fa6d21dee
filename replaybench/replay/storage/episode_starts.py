"""Serial numbers of each episode's first experience, from which every experience's episode and step follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel
from replaybench.data.records.lazy_column import LazyColumn

NONE = np.uint32(0xFFFF_FFFF)


class EpisodeStarts:
    """Serial numbers of the first experience of each member's episodes, ascending.

    Attributes:
        starts: uint32 `[M, E]`, padded with the largest number; grows.
        known: int64 `[M]`, episodes begun.
    """

    def __init__(self, members: int) -> None:
        self.starts = np.full((members, 16), NONE, np.uint32)
        self.known = np.zeros(members, np.int64)
        self.begins = np.ones(members, np.bool_)
        self._most = np.zeros(1, np.int64)

    def step(self, collected: NDArray[np.int64], active: NDArray[np.bool_], ended: NDArray[np.bool_]) -> None:
        """Count one more experience of each active member in `collected` `[M]`; `ended` says whose episode is over."""
        if self._most[0] == self.starts.shape[1]:
            self.starts = np.concatenate([self.starts, np.full_like(self.starts, NONE)], axis=1)
        _step(self.starts, self.known, self.begins, collected, active, ended, self._most)

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return the starts that are known, and whose next experience begins an episode."""
        most = int(self.known.max(initial=0))
        return {"episode_starts": self.starts[:, :most], "episode_begins": self.begins.view(np.uint8)}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state_dict`."""
        starts = np.asarray(state["episode_starts"], np.uint32)
        room = max(16, starts.shape[1])
        self.starts = np.full((len(starts), room), NONE, np.uint32)
        self.starts[:, : starts.shape[1]] = starts
        self.known[:] = (starts != NONE).sum(axis=1)
        self.begins[:] = state["episode_begins"] != 0
        self._most[0] = self.known.max(initial=0)


@kernel
def _step(
    starts: NDArray[np.uint32],
    known: NDArray[np.int64],
    begins: NDArray[np.bool_],
    collected: NDArray[np.int64],
    active: NDArray[np.bool_],
    ended: NDArray[np.bool_],
    most: NDArray[np.int64],
) -> None:
    """Do what `EpisodeStarts.step` says; `most` `[1]` is how many episodes some member has begun."""
    for m in range(collected.size):
        if active[m]:
            collected[m] += 1
            if begins[m]:
                starts[m, known[m]] = collected[m]
                known[m] += 1
            begins[m] = ended[m]
        most[0] = max(most[0], known[m])


def numbering(starts: NDArray[np.uint32], serial: NDArray[np.uint32]) -> dict[str, LazyColumn]:
    """Return the columns `episode` and `step` uint32 `[M, N]`, to be computed in parts.

    Args:
        starts: serial numbers of the first experience of each member's episodes, `[M, E]`.
        serial: serial numbers, 0 where a slot is empty.
    """

    def part(which: int) -> Callable[[tuple[int, slice]], NDArray[np.uint32]]:
        return lambda at: episode_and_step(starts[at[0]], serial[at])[which]

    return {name: LazyColumn(serial.shape, np.dtype(np.uint32), part(i)) for i, name in enumerate(("episode", "step"))}


def episode_and_step(
    starts: NDArray[np.uint32], serial: NDArray[np.uint32]
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return episode and step, from 0, of experiences with these serial numbers; `starts` `[E]` of one member."""
    episode = np.searchsorted(starts, serial, side="right") - 1
    first = starts[np.maximum(episode, 0)]
    return np.maximum(episode, 0).astype(np.uint32), np.where(serial > 0, serial - first, 0).astype(np.uint32)
