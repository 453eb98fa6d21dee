"""What passes between agents and a plant, normalised, and the noise that is put on it on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel
from replaybench.data.streams import Stream, next_normal
from replaybench.envs.interface.angles import wrap_angle
from replaybench.envs.interface.checks import Role
from replaybench.envs.interface.physical_action import physical_action

_PURPOSES: Final[dict[Role, tuple[str, str]]] = {
    "training": ("sensor", "actuator"),
    "evaluation": ("evaluation sensor", "evaluation actuator"),
}


class Ranges(NamedTuple):
    """What normalises a plant's signals.

    Attributes:
        center, scale: float64 `[S]`, by which states are normalised.
        limit: float64 `[S]`, bound on |normalised state| within which a simulation is taken at its word.
        limited: whether there is such a bound: else `limit` is not heeded.
        middle, half: float64 `[A]`, of the physical action range.
        choices: int64 `[A]`, how many values each action takes; 0 where it is continuous.
        wrap: bool `[S]`, which noisy angles are brought back.
    """

    center: NDArray[np.float64]
    scale: NDArray[np.float64]
    limit: NDArray[np.float64]
    limited: bool
    middle: NDArray[np.float64]
    half: NDArray[np.float64]
    choices: NDArray[np.int64]
    wrap: NDArray[np.bool_]


class Signals:
    """The actions and observations of a population at one instant, with the streams that disturb them.

    Args:
        ranges: what normalises them.
        members: member numbers `[M]`.
        sensor_noise, actuator_noise: standard deviations, normalised.
        seed: root seed of the streams.
        role: whose streams to draw from.

    Attributes:
        action: float32 `[M, A]`, as commanded, within ±1.
        observation: float32 `[M, S]`, what the sensors say.
        true_state: float32 `[M, S]`, what they would say without noise.
        sensor_error: float32 `[M, S]`, the noise that is in `observation`.
        actuator_error: float32 `[M, A]`, the noise put on the last action.
        ranges: as given.
        sensor, actuator: the streams.
    """

    def __init__(
        self,
        ranges: Ranges,
        members: Sequence[int],
        sensor_noise: float,
        actuator_noise: float,
        seed: int,
        role: Role,
    ) -> None:
        self.ranges = ranges
        shape, commands = (len(members), len(ranges.center)), (len(members), len(ranges.middle))
        self.sensor_noise, self.actuator_noise = float(sensor_noise), float(actuator_noise)
        self.action, self.actuator_error = np.zeros(commands, np.float32), np.zeros(commands, np.float32)
        self.observation, self.true_state = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self.sensor_error = np.zeros(shape, np.float32)
        self._physical = np.zeros(commands)
        self.sensor, self.actuator = (Stream(seed, members, purpose) for purpose in _PURPOSES[role])

    def rest(self, chosen: NDArray[np.bool_]) -> None:
        """Take back the chosen members' last action."""
        self.action[chosen] = 0.0
        self.actuator_error[chosen] = 0.0

    def disturbed(self, running: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the physical actions `[M, A]` that reach the plant; the array is overwritten by the next call."""
        noise, ranges = (self.actuator.state, self.actuator_noise, self.actuator_error), self.ranges
        _disturb(self.action, running, *noise, ranges.middle, ranges.half, ranges.choices, self._physical)
        return self._physical

    def sense(self, observed: NDArray[np.float64], chosen: NDArray[np.bool_]) -> None:
        """Write what the chosen members' sensors say of the physical states `observed` `[M, S]`.

        Noisy angles are brought back into their range where that was asked for. Where the plant saturates, a true state
        beyond its `observation_limit` is shown at the limit, one that is not a number at 0.
        """
        ranges, noise = self.ranges, (self.sensor.state, self.sensor_noise)
        shown = ranges.limited, ranges.center, ranges.scale, ranges.limit, ranges.wrap
        _sense(observed, chosen, *shown, *noise, self.observation, self.true_state, self.sensor_error)


@kernel
def _disturb(
    action: NDArray[np.float32],
    running: NDArray[np.bool_],
    stream: NDArray[np.uint64],
    sigma: float,
    noise: NDArray[np.float32],
    middle: NDArray[np.float64],
    half: NDArray[np.float64],
    choices: NDArray[np.int64],
    physical: NDArray[np.float64],
) -> None:
    for m in range(action.shape[0]):
        for a in range(action.shape[1]):
            applied = np.float64(action[m, a])
            if sigma > 0.0 and running[m]:
                error = sigma * next_normal(stream[m])
                noise[m, a] = error
                applied = min(max(applied + error, -1.0), 1.0)
            physical[m, a] = physical_action(applied, middle[a], half[a], choices[a])


@kernel
def _sense(
    observed: NDArray[np.float64],
    chosen: NDArray[np.bool_],
    limited: bool,
    center: NDArray[np.float64],
    scale: NDArray[np.float64],
    limit: NDArray[np.float64],
    wrap: NDArray[np.bool_],
    stream: NDArray[np.uint64],
    sigma: float,
    observation: NDArray[np.float32],
    truth: NDArray[np.float32],
    noise: NDArray[np.float32],
) -> None:
    for m in range(observed.shape[0]):
        if not chosen[m]:
            continue
        for i in range(observed.shape[1]):
            seen = (observed[m, i] - center[i]) / scale[i]
            if limited and not abs(seen) <= limit[i]:
                seen = limit[i] if seen > 0 else -limit[i] if seen < 0 else 0.0
            truth[m, i] = seen
            if sigma > 0.0:
                error = sigma * next_normal(stream[m])
                noise[m, i] = error
                seen += error
                if wrap[i]:
                    angle = center[i] + scale[i] * seen
                    wrapped = wrap_angle(angle)
                    if wrapped != angle:
                        seen = (wrapped - center[i]) / scale[i]
            observation[m, i] = seen


@kernel
def begin_step(
    commanded: NDArray[Any],
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    failed: NDArray[np.bool_],
    action: NDArray[np.float32],
    running: NDArray[np.bool_],
    moving: NDArray[np.bool_],
    fail: bool,
) -> int:
    """Write who is in an episode (`running`) and did not fail (`moving`), and their commanded actions, clipped to ±1.

    Returns:
        The first running member whose action is no number, which is kept as NaN; −1 if there is none. With `fail` all
        such members have failed.

    Actions are `[M, A]`.
    """
    first = -1
    for m in range(running.size):
        running[m] = not (terminated[m] or truncated[m])
        if not running[m]:
            moving[m] = False
            continue
        bad = False
        for a in range(action.shape[1]):
            said = commanded[m, a]
            bad |= said != said
            action[m, a] = 1.0 if said > 1.0 else -1.0 if said < -1.0 else said
        if bad:
            first = m if first < 0 else first
            failed[m] |= fail
        moving[m] = not failed[m]
    return first


@kernel
def end_step(
    running: NDArray[np.bool_],
    failed: NDArray[np.bool_],
    steps: int,
    elapsed: NDArray[np.int64],
    cut: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    terminated: NDArray[np.bool_],
    reward: NDArray[np.float64],
) -> None:
    """Count a step of the running members `[M]`; their time is over after `steps`, or where the engine `cut` it.

    Those whose episode ends by that, or by termination, are `running` no more.
    """
    for m in range(running.size):
        if running[m]:
            elapsed[m] += 1
            if failed[m]:
                reward[m] = np.nan
        truncated[m] |= elapsed[m] >= steps or cut[m]
        running[m] = not (terminated[m] or truncated[m])
