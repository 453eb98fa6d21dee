"""Angles wrapped into [−π, π): numbers in compiled code, arrays, and differences of states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel

Floats = NDArray[np.float64]


@kernel
def wrap_angle(angle: float) -> float:
    """Return an angle [rad] brought into [−π, π)."""
    if -math.pi <= angle < math.pi:
        return angle
    turned = angle - 2 * math.pi * math.floor((angle + math.pi) / (2 * math.pi))
    return -math.pi if turned < -math.pi or turned >= math.pi else turned  # as far as rounding may lead astray


def wrap(angle: Floats) -> Floats:
    """Return an array of angles [rad] wrapped into [−π, π); NaN where they are not finite."""
    out = np.where(np.isfinite(angle), angle, np.nan)
    _wrap(out.reshape(-1))
    return out


def short_way(difference: Floats, periodic: Sequence[bool], scale: Sequence[float]) -> Floats:
    """Return differences of normalised states `[..., S]`, those of periodic states taken the short way round.

    Args:
        difference: of states that were divided by `scale`, `[..., S]`.
        periodic, scale: `Plant.periodic` and `Plant.state_scale`. A turn of a periodic state is 2π/scale.
    """
    angle = np.array(scale) * difference
    wrapped = wrap(angle)
    return np.where(np.array(periodic) & (wrapped != angle), wrapped / np.array(scale), difference)


@kernel
def _wrap(angle: NDArray[Any]) -> None:
    for i in range(angle.size):
        angle[i] = wrap_angle(angle[i])
