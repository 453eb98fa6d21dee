"""Numbers per stored step that a learner derives along its episode: a value, an importance weight, a return.

They have an array of their own, so that a sweep along an episode reads a few bytes per step. Links lead from each step
to its neighbours wherever retention has put them. The learner's `TraceRule` computes the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel

Values = NDArray[np.float32]
Links = NDArray[np.int32]
Slots = NDArray[np.int64]
Bools = NDArray[np.bool_]

_LINKS: Final = ("previous", "next", "last")


class TraceRule(Protocol):
    """What a learner writes into its numbers, and when.

    Throughout, `values` is `[M, N, K]`, in the order of `names`; `previous` and `next` `[M, N]` are the slots of the
    neighbours in the same episode, −1 where there is none. Rules write to `values` only.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the K numbers."""

    def followed(self, values: Values, last: Slots, experience: Mapping[str, NDArray[Any]]) -> None:
        """Learn that the step in slot `last[m]` (−1: none) is followed by `experience`, stored or not.

        A step that is then discarded, which `stored` tells by its slot of −1, leaves `last[m]` the end of what is
        linked: `last` may be kept until then.
        """

    def evicting(self, values: Values, previous: Links, next: Links, slots: Slots) -> None:
        """Learn that the occupants of `slots` `[M]` (−1: none) are about to be overwritten; their links still hold."""

    def stored(self, values: Values, previous: Links, next: Links, slots: Slots, ended: Bools) -> None:
        """Learn that a step lies in `slots[m]` (−1: none), linked and with its numbers as given, else 0.

        `ended` `[M]` says whose episode is over with this step, stored or not.
        """

    def annotated(
        self, values: Values, previous: Links, next: Links, idx: Slots, annotations: Mapping[str, NDArray[Any]]
    ) -> None:
        """Use what the learner says of the steps in slots `idx` `[M, B]`; −1 where one was replaced meanwhile."""

    # A rule that keeps counts may also have `loaded(values, count)`, called after a stored buffer was loaded; the first
    # `count` `[M]` slots are in use.


class Traces:
    """The numbers of a population's stored steps, and the links between these.

    Args:
        rule: the learner's.
        members, capacity: M and N.

    Attributes:
        values: float32 `[M, N, K]`.
        previous, next: int32 `[M, N]`, slots of the neighbours in the same episode; −1 at its ends, and where the
            neighbour was evicted, never stored or is yet to come.
        last: int64 `[M]`, slot of each member's latest step if that was stored and its episode goes on, else −1.

    Raises:
        ValueError: two numbers have the same name, or that of a link.
    """

    def __init__(self, rule: TraceRule, members: int, capacity: int) -> None:
        taken = {*rule.names, *_LINKS}
        if len(taken) < len(rule.names) + len(_LINKS):
            raise ValueError(f"traces need names of their own, beside {', '.join(_LINKS)}: {', '.join(rule.names)}")
        self.rule = rule
        self.values = np.zeros((members, capacity, len(rule.names)), np.float32)
        self.previous, self.next = (np.full((members, capacity), -1, np.int32) for _ in range(2))
        self.last = np.full(members, -1, np.int64)
        self._first = np.zeros((members, len(rule.names)), np.float32)

    @property
    def slot_bytes(self) -> int:
        """Bytes per slot."""
        return self.values.itemsize * self.values.shape[2] + self.previous.itemsize + self.next.itemsize

    def view(self, name: str) -> Values:
        """Return the view `[M, N]` of one number."""
        return self.values[:, :, self.rule.names.index(name)]

    def follow(self, experience: Mapping[str, NDArray[Any]], active: Bools) -> None:
        """Tell the rule what follows the latest step of each active member."""
        self.rule.followed(self.values, np.where(active, self.last, -1), experience)

    def evict(self, slots: Slots) -> None:
        """Take the occupants of `slots` `[M]` (−1: none) out of their episodes."""
        self.rule.evicting(self.values, self.previous, self.next, slots)
        _cut(self.previous, self.next, self.last, slots)

    def store(self, experience: Mapping[str, NDArray[Any]], slots: Slots, active: Bools, ended: Bools) -> None:
        """Link the new step of each active member, stored in `slots[m]` (−1: discarded), to its predecessor."""
        for k, name in enumerate(self.rule.names):
            self._first[:, k] = experience[name][:, 0] if name in experience else 0
        over = active & ended
        _link(self.values, self.previous, self.next, self.last, slots, self._first, active, over)
        self.rule.stored(self.values, self.previous, self.next, slots, over)

    def annotate(self, idx: Slots, annotations: Mapping[str, NDArray[Any]]) -> None:
        """Hand the rule what the learner returned of the steps in slots `idx` `[M, B]`; −1 is to be skipped."""
        self.rule.annotated(self.values, self.previous, self.next, idx, annotations)

    def of(self, idx: Slots) -> Values:
        """Return the numbers `[M, B, K]` of the steps in slots `idx` `[M, B]`."""
        return np.take_along_axis(self.values, idx[:, :, None], axis=1)

    def state_dict(self, stored: int) -> dict[str, NDArray[Any]]:
        """Return numbers and links of the first `stored` slots, as views."""
        numbers = {f"trace_{name}": self.view(name)[:, :stored] for name in self.rule.names}
        links = {"trace_previous": self.previous[:, :stored], "trace_next": self.next[:, :stored]}
        return {**numbers, **links, "trace_last": self.last}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state_dict`, which also holds `serial`, `count` and `collected`.

        Raises:
            ValueError: a link leads to no successive step, on which sweeps would go astray or never end.
        """
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
                raise ValueError("the latest step of its traces is none")
        stored = len(places)
        self.previous[:], self.next[:], self.last[:] = -1, -1, last
        self.previous[:, :stored], self.next[:, :stored] = previous, following
        for name in self.rule.names:
            self.view(name)[:, :stored] = state[f"trace_{name}"]
        rule: Any = self.rule
        if hasattr(rule, "loaded"):
            rule.loaded(self.values, count)


@kernel
def _cut(previous: Links, next: Links, last: Slots, slots: Slots) -> None:
    """Take the step in slot `slots[m]` (−1: none) out of its episode."""
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
    values: Values,
    previous: Links,
    next: Links,
    last: Slots,
    slots: Slots,
    first: Values,
    active: Bools,
    ended: Bools,
) -> None:
    """Put the new step of each active member at the end of its episode, with the numbers `first` `[M, K]`."""
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
