"""Values of stored steps that depend on their episode: traces, history windows, n-step returns, episode starts.

A trace is a value that a learner maintains for each stored step, such as an importance weight. Traces are stored in a
separate array, so that a pass along an episode reads a few bytes per step. Links give the buffer slots of the previous
and the next step. The learner's `TraceRule` computes the values.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from replaybench.data.batch import MEMORY, Links, Slots, TraceRule, Window
from replaybench.data.record import LazyColumn
from replaybench.replay.storage.columns import Columns
from replaybench.runtime.arrays import Bools, Floats32, Integers
from replaybench.runtime.kernel import kernel

_LINKS: Final = ("previous", "next", "last")


class Traces:
    """The values that a learner maintains for each stored step, and the links between steps of an episode.

    Attributes:
        values: The K values of each buffer slot; float32, shape `[M, N, K]` for N slots of each of M members.
        previous: Slot of the previous step of the same episode, or −1 if that step is not stored; int32, shape
            `[M, N]`.
        next: Slot of the next step of the same episode, or −1 if that step is not stored; int32, shape `[M, N]`.
        last: Slot of each member's latest step, −1 if the step is not stored or ended its episode; int64, shape `[M]`.

    Raises:
        ValueError: Two traces have the same name, or a trace is named `previous`, `next` or `last`.
    """

    def __init__(self, rule: TraceRule, members: int, capacity: int) -> None:
        taken = {*rule.names, *_LINKS}
        if len(taken) < len(rule.names) + len(_LINKS):
            raise ValueError(f"traces need unique names other than {', '.join(_LINKS)}: {', '.join(rule.names)}")
        self.rule = rule
        self.values = np.zeros((members, capacity, len(rule.names)), np.float32)
        self.previous, self.next = (np.full((members, capacity), -1, np.int32) for _ in range(2))
        self.last = np.full(members, -1, np.int64)
        self._first = np.zeros((members, len(rule.names)), np.float32)

    @property
    def slot_bytes(self) -> int:
        """Number of bytes per buffer slot, for the values and the links between steps."""
        return self.values.itemsize * self.values.shape[2] + self.previous.itemsize + self.next.itemsize

    def view(self, name: str) -> Floats32:
        """Return a view of the trace with this name, shape `[M, N]` for N buffer slots of each member."""
        return self.values[:, :, self.rule.names.index(name)]

    def follow(self, experience: Mapping[str, np.ndarray], active: Bools) -> None:
        """Call the learner's `TraceRule` with the new experience of each active member, before storage."""
        self.rule.followed(self.values, np.where(active, self.last, -1), experience)

    def evict(self, slots: Slots) -> None:
        """Call the learner's `TraceRule` and remove links before slot `slots[m]` is overwritten, unless it is −1."""
        self.rule.evicting(self.values, self.previous, self.next, slots)
        _unlink(self.previous, self.next, self.last, slots)

    def store(self, experience: Mapping[str, np.ndarray], slots: Slots, active: Bools, ended: Bools) -> None:
        """Link each active member's new step to the previous step of the episode, and call the learner's `TraceRule`.

        `slots[m]` is the slot in which the step was stored, or −1 if the step was discarded. Traces that are missing
        from `experience` begin at 0.
        """
        for k, name in enumerate(self.rule.names):
            self._first[:, k] = experience[name][:, 0] if name in experience else 0
        over = active & ended
        _link(self.values, self.previous, self.next, self.last, slots, self._first, active, over)
        self.rule.stored(self.values, self.previous, self.next, slots, over)

    def annotate(self, idx: Slots, annotations: Mapping[str, np.ndarray]) -> None:
        """Pass the learner's annotations of steps in slots `idx` `[M, B]` (−1: none) to the learner's `TraceRule`."""
        self.rule.annotated(self.values, self.previous, self.next, idx, annotations)

    def of(self, idx: Slots) -> Floats32:
        """Return the K traces of sampled steps, shape `[M, B, K]`, for their buffer slots `idx` `[M, B]`."""
        return np.take_along_axis(self.values, idx[:, :, None], axis=1)

    def state_dict(self, stored: int) -> dict[str, np.ndarray]:
        numbers = {f"trace_{name}": self.view(name)[:, :stored] for name in self.rule.names}
        links = {"trace_previous": self.previous[:, :stored], "trace_next": self.next[:, :stored]}
        return {**numbers, **links, "trace_last": self.last}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        serial, count = np.asarray(state["serial"], np.int64), np.asarray(state["count"], np.int64)
        previous, following, last = (np.asarray(state[f"trace_{name}"], np.int64) for name in _LINKS)
        places = np.arange(serial.shape[1])
        for link in (previous, following):
            beyond = (link < -1) | (link >= count[:, None])
            if (beyond | ((link != -1) & (places >= count[:, None]))).any():
                raise ValueError("a step of its traces is linked to a slot that holds none")
        for link, back, step in ((previous, following, -1), (following, previous, 1)):
            there = np.maximum(link, 0)
            returns = np.take_along_axis(back, there, axis=1) == places
            successive = np.take_along_axis(serial, there, axis=1) == serial + step
            if ((link != -1) & ~(returns & successive)).any():
                raise ValueError("the links of its traces do not lead from step to step")
        for m in np.flatnonzero(last != -1):
            if not 0 <= last[m] < count[m] or serial[m, last[m]] != np.asarray(state["collected"])[m]:
                raise ValueError("the latest step of its traces is not stored")
        stored = len(places)
        self.previous[:], self.next[:], self.last[:] = -1, -1, last
        self.previous[:, :stored], self.next[:, :stored] = previous, following
        for name in self.rule.names:
            self.view(name)[:, :stored] = state[f"trace_{name}"]
        self.rule.loaded(self.values, count)


@kernel
def _unlink(previous: Links, next: Links, last: Slots, slots: Slots) -> None:
    for m in range(slots.size):
        slot = slots[m]
        if slot < 0:
            continue
        before, after = previous[m, slot], next[m, slot]
        if before >= 0:
            next[m, before] = -1
        if after >= 0:
            previous[m, after] = -1
        previous[m, slot] = next[m, slot] = -1
        if last[m] == slot:
            last[m] = -1


@kernel
def _link(
    values: Floats32,
    previous: Links,
    next: Links,
    last: Slots,
    slots: Slots,
    first: Floats32,
    active: Bools,
    ended: Bools,
) -> None:
    for m in range(slots.size):
        if not active[m]:
            continue
        slot = slots[m]
        if slot >= 0:
            values[m, slot] = first[m]
            previous[m, slot] = last[m]
            if last[m] >= 0:
                next[m, last[m]] = slot
        last[m] = -1 if ended[m] else slot


def windows(columns: Columns, traces: Traces, idx: Slots, steps: int) -> Window:
    """Return the observations of the last `steps` steps up to and including each sampled step.

    A window has fewer steps if the episode began later or if earlier steps are not stored. `idx` contains the buffer
    slots of B samples of each member, shape `[M, B]`.
    """
    state, stored = columns.spans["observation"], columns.spans.get(MEMORY, slice(0, 0))
    observation = np.zeros((*idx.shape, steps, state.stop - state.start), np.float32)
    length = np.empty(idx.shape, np.int64)
    memory = np.empty((*idx.shape, stored.stop - stored.start), np.float32)
    _gather(columns.rows, traces.previous, idx, state.start, stored.start, observation, length, memory)
    return Window(observation, length, memory)


@kernel
def _gather(
    rows: Floats32, previous: Links, idx: Slots, first_state: int, first_memory: int,
    observation: Floats32, length: Integers, memory: Floats32,
) -> None:  # fmt: skip
    """Find the first step of each sample's window, then copy the observations from there."""
    for m in range(idx.shape[0]):
        for b in range(idx.shape[1]):
            first, steps = idx[m, b], 1
            while steps < observation.shape[2] and previous[m, first] >= 0:
                first = np.int64(previous[m, first])
                steps += 1
            length[m, b] = steps
            for k in range(memory.shape[2]):
                memory[m, b, k] = rows[m, first, first_memory + k]
            slot = idx[m, b]
            for t in range(steps - 1, -1, -1):
                for s in range(observation.shape[3]):
                    observation[m, b, t, s] = rows[m, slot, first_state + s]
                slot = np.int64(previous[m, slot])


def n_step_returns(
    columns: Columns, following: Links, idx: Slots, n: int, discount: float
) -> tuple[Mapping[str, Floats32], Integers]:
    """Return the rewards of up to n steps from each sampled step on, and the outcome of the last of these steps.

    A sum is shorter if the episode ends, or if the next step is not stored. For k steps, the target of a value is then
    Σ_{i<k} γ^i r_{t+i} + γ^k Q(s_{t+k}), without the last term after termination (Sutton & Barto, 2018, section 7.1).

    Args:
        following: Slot of the next step of the same episode, or −1; int32, shape `[M, N]` for N slots.
        idx: Slots of the B sampled steps of each of M members; int64, shape `[M, B]`.
        discount: Discount γ of a control step.

    Returns:
        The fields `reward`, `next_observation` and `terminated`, float32, shape `[M, B, width]`, and the number of
        steps k, int64, shape `[M, B]`.
    """
    names = "reward", "next_observation", "terminated"
    found = {name: np.empty((*idx.shape, columns.fields[name]), np.float32) for name in names}
    steps = np.empty(idx.shape, np.int64)
    reward, successor, terminated = (columns.spans[name].start for name in names)
    _sum_rewards(
        columns.rows, following, idx, n, discount, (reward, successor, terminated),
        found["reward"], found["next_observation"], found["terminated"], steps,
    )  # fmt: skip
    return found, steps


@kernel
def _sum_rewards(
    rows: Floats32, following: Links, idx: Slots, n: int, discount: float, firsts: tuple[int, int, int],
    reward: Floats32, next_observation: Floats32, terminated: Floats32, steps: Integers,
) -> None:  # fmt: skip
    for m in range(idx.shape[0]):
        for b in range(idx.shape[1]):
            slot, factor, total, k = idx[m, b], 1.0, 0.0, 0
            while True:
                total += factor * np.float64(rows[m, slot, firsts[0]])
                k += 1
                if k == n or following[m, slot] < 0:
                    break
                slot, factor = np.int64(following[m, slot]), factor * discount
            reward[m, b, 0], terminated[m, b, 0], steps[m, b] = total, rows[m, slot, firsts[2]], k
            for s in range(next_observation.shape[2]):
                next_observation[m, b, s] = rows[m, slot, firsts[1] + s]


NONE = np.uint32(0xFFFF_FFFF)


class EpisodeStarts:
    """A record of the experience with which each episode begins, by which steps are assigned to episodes.

    Experiences of a member are numbered from 1 in order of collection.

    Attributes:
        starts: Number of the first experience of each episode, ascending; uint32, shape `[M, E]` for at most E
            episodes. Unused entries hold the largest uint32. The array is enlarged when an episode does not fit.
        known: Number of episodes that each member has begun; int64, shape `[M]`.
        begins: Whether each member's next experience begins an episode; bool, shape `[M]`.
    """

    def __init__(self, members: int) -> None:
        self.starts = np.full((members, 16), NONE, np.uint32)
        self.known = np.zeros(members, np.int64)
        self.begins = np.ones(members, np.bool_)
        self._most = np.zeros(1, np.int64)

    def step(self, collected: Integers, active: Bools, ended: Bools) -> None:
        """Add 1 to `collected[m]` for each active member, and record the experiences that begin an episode.

        `ended` marks members whose episode ends with this experience.
        """
        if self._most[0] == self.starts.shape[1]:
            self.starts = np.concatenate([self.starts, np.full_like(self.starts, NONE)], axis=1)
        _step(self.starts, self.known, self.begins, collected, active, ended, self._most)

    def state_dict(self) -> dict[str, np.ndarray]:
        most = int(self.known.max(initial=0))
        return {"episode_starts": self.starts[:, :most], "episode_begins": self.begins.view(np.uint8)}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        starts = np.asarray(state["episode_starts"], np.uint32)
        width = max(16, starts.shape[1])
        self.starts = np.full((len(starts), width), NONE, np.uint32)
        self.starts[:, : starts.shape[1]] = starts
        self.known[:] = (starts != NONE).sum(axis=1)
        self.begins[:] = state["episode_begins"] != 0
        self._most[0] = self.known.max(initial=0)


@kernel
def _step(
    starts: NDArray[np.uint32],
    known: Integers,
    begins: Bools,
    collected: Integers,
    active: Bools,
    ended: Bools,
    most: Integers,
) -> None:
    for m in range(collected.size):
        if active[m]:
            collected[m] += 1
            if begins[m]:
                starts[m, known[m]] = collected[m]
                known[m] += 1
            begins[m] = ended[m]
        most[0] = max(most[0], known[m])


def numbering(starts: NDArray[np.uint32], serial: NDArray[np.uint32]) -> dict[str, LazyColumn]:
    """Return the arrays `episode` and `step`, numbered from 0, of the experience in each buffer slot.

    Parts of the arrays are computed on request. Experiences of a member are numbered from 1 in order of collection.

    Args:
        starts: Number of the first experience of each of E episodes, shape `[M, E]`.
        serial: Number of the experience in each of N slots, or 0 if the slot is empty; shape `[M, N]`.
    """

    def part(which: int) -> Callable[[tuple[int, slice]], NDArray[np.uint32]]:
        return lambda at: episode_and_step(starts[at[0]], serial[at])[which]

    return {name: LazyColumn(serial.shape, np.dtype(np.uint32), part(i)) for i, name in enumerate(("episode", "step"))}


def episode_and_step(
    starts: NDArray[np.uint32], serial: NDArray[np.uint32]
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return the episode and the step, numbered from 0, of each experience of one member.

    `serial` contains the numbers of the experiences in order of collection. `starts` contains the number of the first
    experience of each episode.
    """
    episode = np.searchsorted(starts, serial, side="right") - 1
    first = starts[np.maximum(episode, 0)]
    return np.maximum(episode, 0).astype(np.uint32), np.where(serial > 0, serial - first, 0).astype(np.uint32)
