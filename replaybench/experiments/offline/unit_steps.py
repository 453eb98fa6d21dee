"""Convert a buffer of segments or episodes to one of single steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


def as_steps(arrays: Mapping[str, NDArray[Any]], fields: Mapping[str, int]) -> Arrays:
    """Return the arrays of a buffer with a slot for each step, in the order of the units' slots.

    Args:
        arrays: those of a buffer file whose unit has several steps: `length` `[M, N]`, the steps of each unit, and
            columns `[M, N, steps, width]`.
        fields: names of these columns, and their widths.

    Returns:
        Columns `[M, n, width]`, `serial`, `episode`, `step` `[M, n]` and `count` `[M]`, n the most steps of a member;
        `collected`, and the arrays on episodes' starts. Values of whole units, such as priorities, are left out.
    """
    members, slots = arrays["serial"].shape
    used = np.arange(slots) < arrays["count"][:, None]
    length = np.where(used, arrays["length"], 0).astype(np.int64)
    steps = arrays[next(iter(fields))].shape[2]
    own = np.arange(steps) < length[:, :, None]
    count = length.sum(axis=1)
    found: Arrays = {"count": count}
    place = np.arange(steps, dtype=np.uint32)
    whole = {name: arrays[name] for name in fields}
    whole |= {name: arrays[name][:, :, None] + place for name in ("serial", "step") if name in arrays}
    if "episode" in arrays:
        whole["episode"] = np.repeat(arrays["episode"][:, :, None], steps, axis=2)
    for name, array in whole.items():
        flat = np.zeros((members, int(count.max(initial=0)), *array.shape[3:]), array.dtype)
        for m in range(members):
            flat[m, : count[m]] = array[m][own[m]]
        found[name] = flat
    kept = ("collected", "episode_starts", "episode_begins")
    return found | {name: arrays[name] for name in kept if name in arrays}
