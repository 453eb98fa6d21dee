"""Observations and rewards of the MuJoCo tasks that run or crawl; each kernel is used by several tasks."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from replaybench.runtime.kernel import kernel

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


@kernel
def control_cost(action: Array, m: int) -> float:
    """Return the sum of the squared controls of member m."""
    total = 0.0
    for a in range(action.shape[1]):
        total += action[m, a] * action[m, a]
    return total


@kernel
def _observe(chosen: Mask, raw: Array, skipped: int, low: Array, high: Array, observed: Array) -> None:
    for m in range(raw.shape[0]):
        if chosen[m]:
            for i in range(observed.shape[1]):
                observed[m, i] = min(max(raw[m, skipped + i], low[i]), high[i])


@kernel
def observe_past_x(chosen: Mask, raw: Array, low: Array, high: Array, observed: Array) -> None:
    """Observe all but the first coordinate, clipped to `low` and `high` `[S]`."""
    _observe(chosen, raw, 1, low, high, observed)


@kernel
def observe_past_xy(chosen: Mask, raw: Array, low: Array, high: Array, observed: Array) -> None:
    """Observe all but the first two coordinates, clipped to `low` and `high` `[S]`."""
    _observe(chosen, raw, 2, low, high, observed)


@kernel
def reward_runner(
    running: Mask, raw: Array, action: Array, marker: Array, dt: float, constants: tuple[float, ...],
    reward: Array, terminated: Mask, terms: Array,
) -> None:  # fmt: skip
    """Reward runners along x in a vertical plane: speed, less effort, and a bonus while standing.

    A runner stands while height, pitch, and all later coordinates and velocities are within open ranges.
    """
    forward_weight, control_weight, bonus, low_z, high_z, low_pitch, high_pitch, largest, rest_z = constants
    for m in range(raw.shape[0]):
        if not running[m]:
            continue
        x, z, pitch = raw[m, 0], raw[m, 1], raw[m, 2]
        speed = (x - marker[m, 0]) / dt
        marker[m, 0], marker[m, 1] = x, z
        stands = low_z < z < high_z and low_pitch < pitch < high_pitch
        for i in range(2, raw.shape[1]):
            stands = stands and -largest < raw[m, i] < largest
        forward, effort, alive = forward_weight * speed, control_weight * control_cost(action, m), stands * bonus
        reward[m] = forward + alive - effort
        terminated[m] = not stands
        found = (x, speed, forward, -effort, alive, z - rest_z)
        for k in range(terms.shape[1]):
            terms[m, k] = found[k]


@kernel
def reward_roamer(
    running: Mask, raw: Array, action: Array, marker: Array, dt: float, constants: tuple[float, ...],
    reward: Array, terminated: Mask, terms: Array,
) -> None:  # fmt: skip
    """Reward roamers in the plane: speed along x, less effort and contact forces, and a bonus while upright.

    Rows of `raw` end with contact forces, from a column that `constants` names, and the place that is followed. It is
    up while its third coordinate is within a closed range.
    """
    forward_weight, control_weight, contact_weight, largest_force, worst, bonus, low_z, high_z, first = constants
    place = raw.shape[1] - 2
    for m in range(raw.shape[0]):
        if not running[m]:
            continue
        along, across = (raw[m, place] - marker[m, 0]) / dt, (raw[m, place + 1] - marker[m, 1]) / dt
        marker[m, 0], marker[m, 1] = raw[m, place], raw[m, place + 1]
        contact = 0.0
        for i in range(int(first), place):
            force = min(max(raw[m, i], -largest_force), largest_force)
            contact += force * force
        contact = min(contact_weight * contact, worst)
        up = low_z <= raw[m, 2] <= high_z
        forward, effort, alive = forward_weight * along, control_weight * control_cost(action, m), up * bonus
        reward[m] = forward + alive - (effort + contact)
        terminated[m] = not up
        x, y = raw[m, 0], raw[m, 1]
        found = (x, y, math.sqrt(x * x + y * y), along, across, forward, -effort, -contact, alive)
        for k in range(terms.shape[1]):
            terms[m, k] = found[k]
