"""Rounds of a run at which snapshots are taken: densely at first, where learning is fast, then at every tenth."""

from __future__ import annotations

import math
from typing import Final

TENTHS: Final = 10
_EARLY: Final = (0.01, 0.03, 0.06)


def snapshot_rounds(rounds: int) -> list[int]:
    """Return the rounds, counted from 1, after which a snapshot is taken; the last is always one."""
    return sorted({math.ceil(share * rounds - 1e-9) for share in _EARLY} | set(tenth_ends(rounds)))


def tenth_ends(rounds: int) -> list[int]:
    """Return the last round of each tenth of a run."""
    return [math.ceil(tenth * rounds / TENTHS - 1e-9) for tenth in range(1, TENTHS + 1)]
