"""The memory that a population and its worker processes share, and the requests of one letter that pass between them.

The memory is a file without a name: nothing is left behind, however the processes end.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from enum import Enum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.envs.bullet.model import Model
from replaybench.envs.bullet.world import PIXELS

DONE: Final = b"."
"""A worker's answer."""


class Request(Enum):
    """What a worker is to do with its members."""

    PACE = b"p"
    RESTART = b"r"
    STEP = b"s"
    PICTURE = b"i"


class SharedMemory:
    """Arrays of all members, in shared memory.

    Args:
        model: what each member is made of.
        members: their number M.
        file: descriptor of the memory; a new one if none is given.

    Attributes:
        file: the descriptor.
        rows: float64 `[M, R]`, readings, written by the workers; the rest is written by the population.
        positions: float64 `[M, J]`, of the joints that are placed at a restart.
        torques: float64 `[M, A]`.
        chosen: bool `[M]`, whom an order concerns.
        pace: float64 `[2]`, the time of a step [s] and its physics steps.
        wanted: int64 `[1]`, the member whose picture is asked for.
        image: uint8 `[480, 480, 3]`, written by the worker that has it.
    """

    def __init__(self, model: Model, members: int, file: int | None = None) -> None:
        shapes: dict[str, tuple[Any, tuple[int, ...]]] = {
            "rows": (np.float64, (members, model.width)),
            "positions": (np.float64, (members, len(model.joints + model.placed))),
            "torques": (np.float64, (members, model.motors)),
            "pace": (np.float64, (2,)),
            "wanted": (np.int64, (1,)),
            "chosen": (np.bool_, (members,)),
            "image": (np.uint8, (PIXELS, PIXELS, 3)),
        }
        sizes = [math.prod(shape) * np.dtype(kind).itemsize for kind, shape in shapes.values()]
        self.file = _unnamed_file(sum(sizes)) if file is None else file
        memory = mmap.mmap(self.file, sum(sizes))
        arrays: dict[str, NDArray[Any]] = {}
        first = 0
        for (name, (kind, shape)), size in zip(shapes.items(), sizes, strict=True):
            arrays[name] = np.frombuffer(memory, kind, math.prod(shape), first).reshape(shape)
            first += size
        self.rows, self.positions, self.torques = arrays["rows"], arrays["positions"], arrays["torques"]
        self.pace, self.wanted, self.chosen, self.image = (
            arrays[name] for name in ("pace", "wanted", "chosen", "image")
        )


def _unnamed_file(size: int) -> int:
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("replaybench")
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    os.truncate(file, size)
    return file
