"""Retention by policy distance: the episode that has strayed furthest from the present policy makes room first.

Novati & Koumoutsakos (2019) drop the oldest episodes, which is `FIFO`; their public code can also drop the episode
with the largest fraction of far-policy steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel
from replaybench.replay.arrays import Indices, State
from replaybench.replay.storage.traces import Values
from replaybench.replay.strategies.retention.interface import Retention, RunningRetention
from replaybench.replay.strategies.view import BufferView


@dataclass(frozen=True)
class FarPol(Retention):
    """Drop the episode with the largest fraction of far-policy steps, from its oldest step to its newest.

    The next one is chosen when it is gone; of equal ones the oldest, and never the episode under way unless nothing
    else is stored. The learner says with its trace `far` (0 or 1) which steps are far-policy.
    """

    traces = ("far",)
    slot_bytes = 4

    def start(self, view: BufferView) -> RunningRetention:
        return _RunningFarPol(view)


class _RunningFarPol(RunningRetention):
    """Victims of a population.

    Attributes:
        victim: int64 `[M, 2]`, serial numbers of the first step that is being dropped and of the one after the last.
        queue: int32 `[M, N]`, slots of the victim that are still to be dropped, the oldest last.
        waiting: int64 `[M]`, how many; −1 where they have to be looked up, after loading.
    """

    def __init__(self, view: BufferView) -> None:
        assert view.traces is not None  # `Replay` refuses this retention without
        members = len(view.members)
        self.serial, self.episodes = view.columns.serial, view.episodes
        self.far = view.traces.view("far")
        self.victim = np.zeros((members, 2), np.int64)
        self.queue = np.zeros((members, view.capacity), np.int32)
        self.waiting = np.zeros(members, np.int64)

    def slots(self, offers: Indices, capacity: int, slots: Indices) -> None:
        starts, known = self.episodes.starts, self.episodes.known
        _oldest_of_farthest(starts, known, self.serial, self.far, self.victim, self.queue, self.waiting, slots)

    def state_dict(self, stored: int) -> State:
        return {"far_victim": self.victim}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from `state_dict`.

        Raises:
            ValueError: the victim is nothing that was collected.
        """
        victim = np.asarray(state["far_victim"], np.int64)
        collected = np.asarray(state["collected"], np.int64)
        if ((victim < 0) | (victim > collected[:, None] + 1)).any() or (victim[:, 0] > victim[:, 1]).any():
            raise ValueError("the episode to be dropped is none that was collected")
        self.victim[:], self.waiting[:] = victim, -1


@kernel
def _oldest_of_farthest(
    starts: NDArray[np.uint32],
    known: NDArray[np.int64],
    serial: NDArray[np.uint32],
    far: Values,
    victim: NDArray[np.int64],
    queue: NDArray[np.int32],
    waiting: NDArray[np.int64],
    slots: Indices,
) -> None:
    """Fill in the slots of the oldest steps of the victims of all members whose entry is −2."""
    for m in range(slots.size):
        if slots[m] != -2:
            continue
        if waiting[m] < 0:
            waiting[m] = _line_up(serial[m], victim[m], queue[m])
        if waiting[m] == 0:
            _choose(starts[m, : known[m]], serial[m], far[m], victim[m])
            waiting[m] = _line_up(serial[m], victim[m], queue[m])
        waiting[m] -= 1
        slots[m] = queue[m, waiting[m]]


@kernel
def _choose(
    starts: NDArray[np.uint32], serial: NDArray[np.uint32], far: NDArray[np.float32], victim: NDArray[np.int64]
) -> None:
    """Choose one member's next victim; the last of its episodes, which began at `starts`, is under way."""
    under_way = starts.size - 1
    steps, strayed = np.zeros(starts.size, np.int64), np.zeros(starts.size, np.int64)
    episode, newest = 0, 0
    for slot in range(serial.size):
        number = int(serial[slot])
        # Neighbouring slots mostly hold neighbouring steps.
        if number < starts[episode] or (episode < under_way and number >= starts[episode + 1]):
            episode = int(np.searchsorted(starts, number, side="right")) - 1
        steps[episode] += 1
        strayed[episode] += far[slot] > 0
        newest = max(newest, number)
    chosen = -1
    for episode in range(under_way):
        if steps[episode] > 0 and (chosen < 0 or strayed[episode] * steps[chosen] > strayed[chosen] * steps[episode]):
            chosen = episode
    if chosen < 0:
        chosen = under_way
    victim[0] = starts[chosen]
    victim[1] = starts[chosen + 1] if chosen < under_way else newest + 1


@kernel
def _line_up(serial: NDArray[np.uint32], victim: NDArray[np.int64], queue: NDArray[np.int32]) -> int:
    """Put the slots of one member's victim into its queue, the oldest step last; return how many they are."""
    slot_of = np.full(victim[1] - victim[0], -1, np.int32)
    for slot in range(serial.size):
        if victim[0] <= serial[slot] < victim[1]:
            slot_of[serial[slot] - victim[0]] = slot
    waiting = 0
    for step in range(slot_of.size - 1, -1, -1):
        if slot_of[step] >= 0:
            queue[waiting] = slot_of[step]
            waiting += 1
    return waiting
