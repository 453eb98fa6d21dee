"""Conversion of replay buffers to a form that a GPU computes: strategies as C++ source, and the memory layout.

Buffers on the GPU behave like those of `replaybench.replay.strategies` (see `source/replay.cuh`). The buffer of each
learner is one block of memory: counters (`ReplayState`), and then the arrays of experiences and priorities. This module
computes the byte offsets of the arrays.
"""

import ctypes
import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.replay.orders.rank_law import first_sums, segment_edges
from replaybench.replay.strategies.prioritised import PER, PERprop
from replaybench.replay.strategies.retention import FIFO, FULL, TDE, Expl, Resv
from replaybench.replay.strategies.strategy import Strategy
from replaybench.replay.strategies.uniform import Uniform
from replaybench.replay.strategies.weighting import FIS, IS
from replaybench.runtime.arrays import Floats32
from replaybench.runtime.errors import UserError

RETENTIONS: Final = {FIFO: "FIFO", FULL: "FULL", Resv: "RESV", TDE: "TDE", Expl: "EXPL"}
SAMPLINGS: Final = {Uniform: "UNIFORM", PER: "PER", PERprop: "PERPROP"}
WEIGHTINGS: Final = {type(None): "NONE", IS: "IS", FIS: "FIS"}
POSSIBLE: Final = "FIFO, FULL, Resv, TDE and Expl with Uniform, PER or PERprop, +IS, +FIS, and Drop in front"

_ROOM: Final = 512  # a multiple of the number of threads; larger values slow each change, smaller ones need more merges
_FAN: Final = 32
_LEVELS: Final = 7

_COUNTERS: Final = ("collected", "offers", "count", "updates", "offers_before", "updates_before")
_HEADS: Final = (("td_head", "i4", 2), ("exploration_head", "i4", 2), ("largest", "f4"), ("padding", "u4"))
STATE: Final = np.dtype([*((name, "u4") for name in _COUNTERS), *_HEADS])
"""Data type of the counters of a buffer, equal to the C++ struct `ReplayState`."""


class OrderPlaces(ctypes.Structure):
    """The C++ struct `OrderPlaces` of `replay.cuh`: byte offsets of arrays that keep experiences sorted by priority."""

    _fields_ = (("bits", ctypes.c_int64), ("run", ctypes.c_int64 * 2), ("slots", ctypes.c_int64 * 2))


class ReplaySettings(ctypes.Structure):
    """The C++ struct `ReplaySettings` of `replay.cuh`: settings and memory layout of a replay buffer."""

    _fields_ = (
        *((n, ctypes.c_double) for n in ("drop", "sampling_alpha", "epsilon", "beta_first", "beta_last")),
        *((name, ctypes.c_void_p) for name in ("sampling_sums", "retention_sums", "retention_edges")),
        *((name, ctypes.c_int64) for name in ("rows", "serial", "replays")),
        *((name, OrderPlaces) for name in ("td", "exploration")),
        ("sums", ctypes.c_int64 * _LEVELS),
        *((name, ctypes.c_int) for name in ("capacity", "segments", "levels", "normalise")),
    )


def check_strategy(strategy: Strategy) -> None:
    """Raise `UserError` if a strategy runs on the CPU only. The message names the strategies that a GPU supports."""
    unknown = strategy.synth or strategy.refer or strategy.newest or strategy.mix
    known = type(strategy.retention) in RETENTIONS and type(strategy.sampling) in SAMPLINGS
    if unknown or not known or type(strategy.weights) not in WEIGHTINGS:
        raise UserError(f'{strategy} runs on the CPU only; with device = "cuda" use {POSSIBLE}')


class DeviceBuffers:
    """The memory layout and rules of replay buffers on a GPU, with one buffer per member.

    The memory of all buffers is an array of bytes `[M, bytes]`, which the caller allocates.

    Args:
        strategy: The replay strategy, with its settings for the control rate.
        fields: Width of each stored field by name, in the order of storage.
        capacity: Largest number of experiences in a buffer.
        batch: Batch size.

    Attributes:
        source: C++ source that defines the type `Rules`.
        settings: The C++ struct `ReplaySettings`. The caller sets the addresses of the arrays in `tables`.
        tables: Arrays that the caller copies to the GPU, by the name of their address in `settings`.
        arrays: Byte offset, dtype and shape of each array of a buffer, by name.
        bytes: Size of a buffer in bytes.

    Raises:
        UserError: The strategy runs on the CPU only.
    """

    def __init__(self, strategy: Strategy, fields: Mapping[str, int], capacity: int, batch: int) -> None:
        check_strategy(strategy)
        retention, sampling, weighting = strategy.retention, strategy.sampling, strategy.weights
        self.strategy, self.fields, self.capacity, self.batch = strategy, dict(fields), capacity, batch
        ends = np.cumsum(list(fields.values())).tolist()
        self._firsts, self.width = dict(zip(fields, [0, *ends[:-1]], strict=True)), ends[-1]
        own = self.settings = ReplaySettings(capacity=capacity, beta_first=1.0, beta_last=1.0)
        self.tables: dict[str, np.ndarray] = {}
        self.arrays: dict[str, tuple[int, np.dtype[Any], tuple[int, ...]]] = {}
        self.bytes = STATE.itemsize
        own.drop = float(strategy.drop.probability) if strategy.drop else 0.0
        own.rows, own.serial = self._place("rows", "f4", capacity, self.width), self._place("serial", "u4", capacity)
        if isinstance(retention, TDE | Expl):
            rule, alpha = retention.segments, retention.alpha
            own.segments = min(max(3, capacity // 500) if rule == "authors" else int(rule or 0), capacity)
            edges = np.zeros(own.segments + 1, np.int64)
            if own.segments:
                segment_edges(first_sums(alpha), alpha, capacity, edges)
            self.tables = {"retention_sums": _rank_sums(alpha, capacity), "retention_edges": edges.astype(np.int32)}
        if isinstance(retention, TDE) or isinstance(sampling, PER):
            own.td = self._order("td", isinstance(retention, TDE))
        if isinstance(retention, Expl):
            own.exploration = self._order("exploration", True)
        if isinstance(sampling, PER):
            own.sampling_alpha, self.tables["sampling_sums"] = sampling.alpha, _rank_sums(sampling.alpha, capacity)
        if isinstance(sampling, PERprop):
            own.sampling_alpha, own.epsilon = sampling.alpha, sampling.epsilon
            own.sums[0], nodes = self._place("priority", "f4", capacity), capacity
            self.bytes += 4 * _FAN  # leaves are padded to whole groups of children
            while nodes > 1 or own.levels == 0:
                nodes, own.levels = -(-nodes // _FAN), own.levels + 1
                own.sums[own.levels] = self._place(f"sums{own.levels}", "f8", -(-nodes // _FAN) * _FAN)
        if isinstance(weighting, IS):
            own.beta_first, own.beta_last, own.normalise = weighting.first, weighting.last, weighting.normalise
        if isinstance(weighting, FIS):
            own.beta_first, own.replays = weighting.beta, self._place("replays", "u2", capacity)
        kinds = {
            "Retention RETENTION": f"Retention::{RETENTIONS[type(retention)]}",
            "Sampling SAMPLING": f"Sampling::{SAMPLINGS[type(sampling)]}",
            "Weighting WEIGHTING": f"Weighting::{WEIGHTINGS[type(weighting)]}",
            "bool DROPS": int(bool(strategy.drop)),
            "bool WEIGHS_ACTOR": int(weighting is not None and weighting.all_networks),
            "int WIDTH": self.width,
            "int EXPLORATION_AT": self._firsts["exploration"],
            "int BATCH": batch,
            "int ROOM": -(-2 * batch // _ROOM) * _ROOM,
        }
        lines = "".join(f"    CONSTANT {name} = {value};\n" for name, value in kinds.items())
        self.source = f'#include "replay.cuh"\nstruct Rules {{\n{lines}}};\n'

    def start(self, memory: NDArray[np.uint8]) -> None:
        """Turn memory `[M, bytes]`, all bytes of which are zero, into M empty buffers, in place."""
        self.state(memory)["largest"] = 1.0
        for name in ("td_bits", "exploration_bits"):
            if name in self.arrays:
                self.view(memory, name)[:] = 0xFFFFFFFF

    def state(self, memory: NDArray[np.uint8]) -> np.ndarray:
        """Return the counters of M buffers, a structured array `[M]`, as a view of the buffers' memory `[M, bytes]`."""
        return memory[:, : STATE.itemsize].view(STATE)[:, 0]

    def view(self, memory: NDArray[np.uint8], name: str) -> np.ndarray:
        """Return the array `name` of M buffers, `[M, …]`, as a view of the buffers' memory `[M, bytes]`."""
        start, dtype, shape = self.arrays[name]
        flat = memory[:, start : start + dtype.itemsize * math.prod(shape)].view(dtype)
        return flat.reshape(len(memory), *shape)

    def columns(self, memory: NDArray[np.uint8]) -> dict[str, Floats32]:
        """Return each stored field by name, `[M, capacity, width]`, as a view of the buffers' memory `[M, bytes]`."""
        rows = self.view(memory, "rows")
        return {name: rows[..., first : first + self.fields[name]] for name, first in self._firsts.items()}

    def _place(self, name: str, dtype: str, *shape: int) -> int:
        kind, start = np.dtype(dtype), self.bytes
        self.arrays[name] = start, kind, shape
        self.bytes = start + -(-kind.itemsize * math.prod(shape) // 16) * 16
        return start

    def _order(self, name: str, by_age: bool) -> OrderPlaces:
        pair = ctypes.c_int64 * 2
        bits = self._place(f"{name}_bits", "u4", self.capacity)
        run = pair(*(self._place(f"{name}_run{which}", "u8", self.capacity) for which in range(2)))
        slots = pair(*(self._place(f"{name}_slots{which}", "u4", self.capacity) for which in range(2) if by_age))
        return OrderPlaces(bits, run, slots)


def _rank_sums(alpha: float, count: int) -> np.ndarray:
    """Return the sums Σ_{r ≤ k} r^−α over ranks r, for k = 0 … count, with the exponent `alpha`."""
    return np.append(0.0, np.cumsum(np.arange(1.0, count + 1) ** -alpha, dtype=np.longdouble)).astype(np.float64)
