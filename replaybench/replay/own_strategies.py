"""Checks of what users' strategies return: kernels take slots as they are, and files arrays.

Built-in strategies skip these checks, which take time at every step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from replaybench.data.errors import UserError
from replaybench.data.user_code.user_file import name_in_file
from replaybench.replay.arrays import Indices
from replaybench.replay.files.buffer_schema import KINDS
from replaybench.replay.strategies.retention.interface import RunningRetention
from replaybench.replay.strategies.sampling.interface import RunningSampling


def choose_slots(running: RunningRetention, offers: Indices, capacity: int, slots: Indices) -> None:
    """Let a retention fill `slots` `[M]` where they are −2, and refuse what no kernel could take of a user's.

    Raises:
        UserError: it chose a slot that is not there, or changed another entry.
    """
    if ours(running):
        running.slots(offers, capacity, slots)
        return
    before, full = slots.copy(), slots == -2
    running.slots(offers, capacity, slots)
    if (slots[~full] != before[~full]).any():
        raise UserError(f"{_called(running)}: slots changed an entry that was not -2")
    if ((slots < -1) | (slots >= capacity))[full].any():
        wrong = slots[full][(slots[full] < -1) | (slots[full] >= capacity)][0]
        raise UserError(f"{_called(running)}: slots chose {wrong}, not -1 or a slot from 0 to {capacity - 1}")


def check_drawn(running: RunningSampling, idx: Indices, stored: Indices) -> None:
    """Refuse slots `[M, …]` that a user's sampling drew beyond those that its members have `stored` `[M]`."""
    drawn = idx.reshape(len(stored), -1)
    beyond = (drawn < 0) | (drawn >= stored[:, None])
    if beyond.any():
        member = int(beyond.any(axis=1).argmax())
        wrong, last = drawn[member][beyond[member]][0], stored[member] - 1
        raise UserError(f"{_called(running)}: draw chose slot {wrong} of a member that has 0 to {last}")


def check_remembered(running: object, state: Mapping[str, Any], taken: Collection[str], members: int) -> None:
    """Refuse a `state_dict` of a user's class that no file could hold beside what is `taken`."""
    if ours(running):
        return
    for name, array in state.items():
        mine = f"{_called(running)}: {name!r} of state_dict"
        if name in taken:
            raise UserError(f"{mine} is what the buffer itself calls so; give it another name")
        if not isinstance(array, np.ndarray) or array.shape[:1] != (members,):
            raise UserError(f"{mine} must be an array that begins with M = {members}")
        kind = array.dtype.str[1:]
        if KINDS.get(name, kind) != kind:
            raise UserError(f"{mine} is of type {kind}, and of {KINDS[name]} in buffer files; give it another name")


def ours(running: object) -> bool:
    """Tell whether a running form is the package's own."""
    return type(running).__module__.startswith("replaybench.")


def _called(running: object) -> str:
    return name_in_file(type(running)) or type(running).__name__
