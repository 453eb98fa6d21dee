"""Processing of the signals between agent and plant: units, noise, angles and ranges of actions."""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.envs.interface.declarations import Role
from replaybench.envs.interface.engine import Engine
from replaybench.envs.interface.plant import Plant
from replaybench.runtime.elementwise import nearest_level
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import Stream, next_normal

Floats = NDArray[np.float64]


@kernel
def wrap_angle(angle: float) -> float:
    """Return an angle [rad] wrapped into [−π, π)."""
    if -math.pi <= angle < math.pi:
        return angle
    turned = angle - 2 * math.pi * math.floor((angle + math.pi) / (2 * math.pi))
    return -math.pi if turned < -math.pi or turned >= math.pi else turned  # rounding may give a value outside


def wrap(angle: Floats) -> Floats:
    """Return an array of angles [rad] wrapped into [−π, π), with NaN for angles that are not finite."""
    out = np.where(np.isfinite(angle), angle, np.nan)
    _wrap(out.reshape(-1))
    return out


def short_way(difference: Floats, periodic: Sequence[bool], scale: Sequence[float]) -> Floats:
    """Return differences of normalised states, with differences of angles replaced by those along the shorter arc.

    Args:
        difference: Differences of normalised states, `[..., S]`.
        periodic: Whether each state is an angle, as in `Plant.periodic`.
        scale: Scales of the states, as in `Plant.state_scale`. A full turn of an angle is 2π/scale.
    """
    angle = np.array(scale) * difference
    wrapped = wrap(angle)
    return np.where(np.array(periodic) & (wrapped != angle), wrapped / np.array(scale), difference)


@kernel
def _wrap(angle: NDArray[Any]) -> None:
    for i in range(angle.size):
        angle[i] = wrap_angle(angle[i])


_PURPOSES: Final[dict[Role, tuple[str, str]]] = {
    "training": ("sensor", "actuator"),
    "evaluation": ("evaluation sensor", "evaluation actuator"),
}


class Signals:
    """The current actions and observations of M copies (members) of a plant, with the random streams of the noise."""

    def __init__(
        self, plant: Plant, members: Sequence[int], sensor_noise: float, actuator_noise: float, seed: int, role: Role
    ) -> None:
        middle, half = plant.action_range()
        shape, commands = (len(members), len(plant.state_names)), (len(members), len(middle))
        self.sensor_noise, self.actuator_noise = float(sensor_noise), float(actuator_noise)
        self.action = np.zeros(commands, np.float32)  # commanded actions, clipped to ±1
        self.actuator_error = np.zeros(commands, np.float32)  # noise on the last action
        self.observation, self.true_state = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self.sensor_error = np.zeros(shape, np.float32)  # noise in `observation`
        self.sensor, self.actuator = (Stream(seed, members, purpose) for purpose in _PURPOSES[role])
        self.streams = {"sensor_stream": self.sensor, "actuator_stream": self.actuator}
        self._physical = np.zeros(commands)
        self._of_actions = middle, half, np.array(plant.action_choices or (0,) * len(middle), np.int64)
        columns = plant.state_center, plant.state_scale, plant.observation_limit
        self._sensing: tuple[Any, ...] = (
            plant.saturates, *(np.array(column, np.float64) for column in columns), self.sensor.state,
            plant.sensor_noise(self.sensor_noise), self.observation, self.true_state, self.sensor_error,
        )  # fmt: skip

    def rest(self, chosen: NDArray[np.bool_]) -> None:
        """Set the last action and the last actuator noise to 0 for the copies of the plant marked in `chosen` `[M]`."""
        self.action[chosen] = 0.0
        self.actuator_error[chosen] = 0.0

    def changing(self) -> dict[str, NDArray[Any]]:
        """Return the arrays `[M, ...]` that change during an episode, by name."""
        names = ("action", "observation", "true_state", "sensor_error", "actuator_error")
        states = {name: stream.state for name, stream in self.streams.items()}
        return {name: getattr(self, name) for name in names} | states

    def drive(self, engine: Engine, running: NDArray[np.bool_]) -> None:
        """Advance the copies of the plant marked in `running` `[M]` by one control step under the current actions."""
        engine.advance(self.disturbed(running), running)

    def observed(self, seen: Sequence[int] | slice) -> NDArray[np.float32]:
        """Return a new array with those columns of the observations `[M, S]` that `seen` selects."""
        return self.observation[:, seen].copy()

    def disturbed(self, running: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the noisy current actions `[M, A]` in physical units, in an array that the next call overwrites.

        Noise is added only for the copies of the plant marked in `running` `[M]`.
        """
        noise = self.actuator.state, self.actuator_noise, self.actuator_error
        _disturb(self.action, running, *noise, *self._of_actions, self._physical)
        return self._physical

    def sense(self, observed: NDArray[np.float64], chosen: NDArray[np.bool_]) -> None:
        """Write `observation`, `true_state` and `sensor_error` from the physical states `observed` `[M, S]`.

        This is done for the copies of the plant marked in `chosen` `[M]`. If `Plant.saturates` is True, a noise-free
        state beyond `observation_limit` becomes the limit, and NaN becomes 0.
        """
        _sense(observed, chosen, *self._sensing)


@kernel
def physical_value(normalised: float, middle: float, half: float, choices: int) -> float:
    """Return the physical value of a normalised action, rounded to one of `choices` even levels if there are any."""
    if choices == 0:
        return middle + half * normalised
    # Integer choices give integers, because every product and quotient is exact then.
    return (middle - half) + 2.0 * half * nearest_level(normalised, choices) / (choices - 1)


@kernel
def _disturb(
    action: NDArray[np.float32], running: NDArray[np.bool_], stream: NDArray[np.uint64], sigma: float,
    noise: NDArray[np.float32], middle: NDArray[np.float64], half: NDArray[np.float64], choices: NDArray[np.int64],
    physical: NDArray[np.float64],
) -> None:  # fmt: skip
    for m in range(action.shape[0]):
        for a in range(action.shape[1]):
            applied = np.float64(action[m, a])
            if sigma > 0.0 and running[m]:
                error = sigma * next_normal(stream[m])
                noise[m, a] = error
                applied = min(max(applied + error, -1.0), 1.0)
            physical[m, a] = physical_value(applied, middle[a], half[a], choices[a])


@kernel
def _sense(
    observed: NDArray[np.float64], chosen: NDArray[np.bool_], limited: bool, center: NDArray[np.float64],
    scale: NDArray[np.float64], limit: NDArray[np.float64], stream: NDArray[np.uint64], sigma: NDArray[np.float64],
    observation: NDArray[np.float32], truth: NDArray[np.float32], noise: NDArray[np.float32],
) -> None:  # fmt: skip
    for m in range(observed.shape[0]):
        if not chosen[m]:
            continue
        for i in range(observed.shape[1]):
            seen = (observed[m, i] - center[i]) / scale[i]
            if limited and not abs(seen) <= limit[i]:
                seen = limit[i] if seen > 0 else -limit[i] if seen < 0 else 0.0
            truth[m, i] = seen
            if sigma[i] > 0.0:
                error = sigma[i] * next_normal(stream[m])
                noise[m, i] = error
                seen += error
            observation[m, i] = seen


@kernel
def begin_step(
    commanded: NDArray[Any], terminated: NDArray[np.bool_], truncated: NDArray[np.bool_], failed: NDArray[np.bool_],
    action: NDArray[np.float32], running: NDArray[np.bool_], moving: NDArray[np.bool_], fail: bool,
) -> int:  # fmt: skip
    """Write `commanded` actions `[M, A]`, clipped to ±1, to `action`, and mark the members that move in this step.

    Members are independent copies of a plant. `running` marks the members whose episode goes on, and `moving` those of
    them that have not failed. NaN stays in `action`. If `fail` is True, running members with a NaN action are marked in
    `failed`.

    Returns:
        The index of the first running member whose action is NaN, or −1 if there is none.
    """
    first = -1
    for m in range(running.size):
        running[m] = not (terminated[m] or truncated[m])
        if not running[m]:
            moving[m] = False
            continue
        bad = False
        for a in range(action.shape[1]):
            value = commanded[m, a]
            bad |= value != value
            action[m, a] = 1.0 if value > 1.0 else -1.0 if value < -1.0 else value
        if bad:
            first = m if first < 0 else first
            failed[m] |= fail
        moving[m] = not failed[m]
    return first


@kernel
def end_step(
    running: NDArray[np.bool_], failed: NDArray[np.bool_], steps: int, elapsed: NDArray[np.int64],
    cut: NDArray[np.bool_], truncated: NDArray[np.bool_], terminated: NDArray[np.bool_], reward: NDArray[np.float64],
) -> None:  # fmt: skip
    """Count a control step of the running members, and update `truncated` and `running`.

    Members are independent copies of a plant. All arrays have the shape `[M]` with one entry per member. An episode is
    truncated after `steps` control steps, or if the simulator has marked it in `cut`. Members in `failed` get NaN as
    their reward.
    """
    for m in range(running.size):
        if running[m]:
            elapsed[m] += 1
            if failed[m]:
                reward[m] = np.nan
        truncated[m] |= elapsed[m] >= steps or cut[m]
        running[m] = not (terminated[m] or truncated[m])
