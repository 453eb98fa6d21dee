"""Processing of the signals between agent and plant if a channel with delays or limits lies between them."""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.envs.interface.declarations import Role
from replaybench.envs.interface.engine import Engine
from replaybench.envs.interface.plant import Plant
from replaybench.envs.interface.signals import Signals, physical_value, wrap_angle
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import Stream, next_double, next_normal

_PURPOSES: Final[dict[Role, tuple[str, str]]] = {
    "training": ("jitter", "disturbance"),
    "evaluation": ("evaluation jitter", "evaluation disturbance"),
}


class ChannelSignals(Signals):
    """The signals of M copies (members) of a plant with a channel that is not off.

    Commands under way are in a queue. Before the first command of an episode acts, the plant's `zero_action` acts.

    Args:
        dt: Length of a control period [s].
    """

    def __init__(
        self, plant: Plant, members: Sequence[int], sensor_noise: float, actuator_noise: float, seed: int, role: Role,
        dt: float,
    ) -> None:  # fmt: skip
        super().__init__(plant, members, sensor_noise, actuator_noise, seed, role)
        channel, (count, actions), states = plant.channel, self.action.shape, self.observation.shape[1]
        jitter, disturbance = (Stream(seed, members, purpose) for purpose in _PURPOSES[role])
        self.streams |= {"jitter_stream": jitter, "disturbance_stream": disturbance}
        self._neutral = plant.normalise_action(plant.zero_action)
        # Rows of `sent` are the newest commands in their order. The commands in `_order` act one after another.
        whole, rest = channel.periods(dt)
        if channel.jitter:
            slots = math.ceil((channel.delay + channel.jitter) / dt) + 1
            self._order, self._longest = np.arange(slots)[::-1].copy(), (dt,) * slots
        else:
            self._order, self._longest = (
                (np.array([whole + 1, whole]), (rest, dt - rest)) if rest else (np.array([whole]), (dt,))
            )
        slots, pieces = int(self._order[0]) + 1, len(self._order)
        # Members are the last axis, because loops over commands and actions are too short to be fast.
        self._sent, self._due = np.empty((slots, actions, count)), np.zeros((count, slots))
        self._pieces, self._seconds = np.empty((pieces, actions, count)), np.tile(self._longest, (count, 1)).T.copy()
        self._acting, self._bias = np.empty((actions, count)), np.zeros((actions, count))
        self._held = np.zeros(count, np.int64)
        self.past = np.zeros((count, channel.history, actions), np.float32)
        self._earlier = np.zeros((count, channel.sensor_periods(dt) + 1, states))
        self._last_reading, self._fresh = np.zeros((count, states)), np.ones(count, np.bool_)
        self._actuating: tuple[Any, ...] = (
            channel.dead_zone, channel.rate_limit is not None, (channel.rate_limit or 0.0) * dt,
            self.actuator.state, self.actuator_noise, self.actuator_error, *self._of_actions, self._acting, self.past,
            self._sent, self._physical,
        )  # fmt: skip
        hold = max(1, round(channel.hold / dt))
        self._delaying: tuple[Any, ...] = (
            jitter.state, channel.delay, channel.jitter, dt, self._due, self._seconds, self._order, self._sent,
            disturbance.state, channel.disturbance, hold, self._held, self._bias, *self._of_actions, self._pieces,
        )  # fmt: skip
        self._reads_plainly = not (channel.sensor_delay or channel.resolution or channel.differentiate)
        resolution = np.array([channel.resolution.get(name, 0.0) for name in plant.state_names])
        positions = np.full(states, -1)
        for velocity, position in plant.positions_of(channel.differentiate).items():
            positions[plant.state_names.index(velocity)] = plant.state_names.index(position)
        self._reading: tuple[Any, ...] = (
            self._earlier, self._fresh, resolution, positions, np.array(plant.periodic), dt, self._last_reading,
        )  # fmt: skip

    def rest(self, chosen: NDArray[np.bool_]) -> None:
        super().rest(chosen)
        self._acting[:, chosen] = self._sent[:, :, chosen] = self._neutral[:, None]
        self.past[chosen] = self._neutral
        self._due[chosen], self._bias[:, chosen], self._held[chosen] = 0.0, 0.0, 0
        self._fresh[chosen] = True

    def changing(self) -> dict[str, NDArray[Any]]:
        return super().changing() | {
            "commands_acting": self._acting.T, "commands_sent": np.moveaxis(self._sent, -1, 0),
            "commands_due": self._due, "commands_past": self.past, "bias": self._bias.T, "bias_held": self._held,
            "earlier_states": self._earlier, "last_reading": self._last_reading, "fresh": self._fresh,
        }  # fmt: skip

    def drive(self, engine: Engine, running: NDArray[np.bool_]) -> None:
        _send(self.action, running, *self._actuating)
        _delay(running, *self._delaying)
        engine.advance_pieces(self._physical, self._pieces, self._seconds, self._longest, running)

    def observed(self, seen: Sequence[int] | slice) -> NDArray[np.float32]:
        states = super().observed(seen)
        return np.concatenate([states, self.past.reshape(len(states), -1)], axis=1) if self.past.size else states

    def sense(self, observed: NDArray[np.float64], chosen: NDArray[np.bool_]) -> None:
        if self._reads_plainly:  # faster
            super().sense(observed, chosen)
        else:
            _read(observed, chosen, *self._reading, *self._sensing)


@kernel
def _send(
    action: NDArray[np.float32], running: NDArray[np.bool_], dead_zone: float, limited: bool, most: float,
    stream: NDArray[np.uint64], sigma: float, noise: NDArray[np.float32], middle: NDArray[np.float64],
    half: NDArray[np.float64], choices: NDArray[np.int64], acting: NDArray[np.float64],
    past: NDArray[np.float32], sent: NDArray[np.float64], physical: NDArray[np.float64],
) -> None:  # fmt: skip
    """Put the commands `action` `[M, A]` into the queue `sent` `[K, A, M]`, after dead zone, rate limit and noise.

    `physical` `[M, A]` gets the noisy commands without dead zone and rate limit, on which the reward depends. If
    `limited`, `most` is the largest change of a command in a control step. `acting` `[A, M]` has the last commands.
    """
    for a in range(action.shape[1]):
        for row in range(past.shape[1] - 1, 0, -1):
            for m in range(running.size):
                if running[m]:
                    past[m, row, a] = past[m, row - 1, a]
        for row in range(sent.shape[0] - 1, 0, -1):
            for m in range(running.size):
                if running[m]:
                    sent[row, a, m] = sent[row - 1, a, m]
        for m in range(running.size):
            if not running[m]:
                continue
            command = float(action[m, a])
            if past.shape[1] > 0:
                past[m, 0, a] = command
            moved = command
            if dead_zone > 0.0:
                moved = max(command - dead_zone, 0.0) + min(command + dead_zone, 0.0)
            if limited:
                moved = min(max(moved, acting[a, m] - most), acting[a, m] + most)
                acting[a, m] = moved
            if sigma > 0.0:
                error = sigma * next_normal(stream[m])
                noise[m, a] = error
                command = min(max(command + error, -1.0), 1.0)
                moved = min(max(moved + error, -1.0), 1.0)
            sent[0, a, m] = moved
            physical[m, a] = physical_value(command, middle[a], half[a], choices[a])


@kernel
def _delay(
    running: NDArray[np.bool_], jitter_stream: NDArray[np.uint64], delay: float, jitter: float, dt: float,
    due: NDArray[np.float64], seconds: NDArray[np.float64], order: NDArray[np.int64], sent: NDArray[np.float64],
    bias_stream: NDArray[np.uint64], size: float, hold: int, held: NDArray[np.int64], bias: NDArray[np.float64],
    middle: NDArray[np.float64], half: NDArray[np.float64], choices: NDArray[np.int64], pieces: NDArray[np.float64],
) -> None:  # fmt: skip
    """Write the physical commands `pieces` `[P, A, M]` of this control step, and with jitter their `seconds` `[P, M]`.

    `due` `[M, K]` has the times at which the commands in `sent` `[K, A, M]` begin to act, relative to this step.
    """
    last = order.size - 1
    for m in range(running.size):
        if not running[m]:
            continue
        if jitter > 0.0:
            for row in range(due.shape[1] - 1, 0, -1):
                due[m, row] = due[m, row - 1] - dt
            drawn = delay + jitter * (2.0 * next_double(jitter_stream[m]) - 1.0)
            due[m, 0] = max(drawn, 0.0, due[m, 1])
            start = 0.0
            for piece in range(last):
                end = min(max(due[m, order[piece + 1]], 0.0), dt)
                seconds[piece, m] = end - start
                start = end
            seconds[last, m] = dt - start
        if size > 0.0:
            if held[m] == 0:
                for a in range(bias.shape[0]):
                    bias[a, m] = size * (2.0 * next_double(bias_stream[m]) - 1.0)
                held[m] = hold
            held[m] -= 1
    for piece in range(order.size):
        row = order[piece]
        for a in range(bias.shape[0]):
            for m in range(running.size):
                command = sent[row, a, m]
                if size > 0.0:
                    command = min(max(command + bias[a, m], -1.0), 1.0)
                pieces[piece, a, m] = physical_value(command, middle[a], half[a], choices[a])


@kernel
def _read(
    observed: NDArray[np.float64], chosen: NDArray[np.bool_], earlier: NDArray[np.float64], fresh: NDArray[np.bool_],
    resolution: NDArray[np.float64], positions: NDArray[np.int64], periodic: NDArray[np.bool_], dt: float,
    last: NDArray[np.float64], limited: bool, center: NDArray[np.float64], scale: NDArray[np.float64],
    limit: NDArray[np.float64], stream: NDArray[np.uint64], sigma: NDArray[np.float64],
    observation: NDArray[np.float32], truth: NDArray[np.float32], noise: NDArray[np.float32],
) -> None:  # fmt: skip
    """Write the observations of the physical states `observed` `[M, S]`, and the normalised true states `truth`.

    `earlier` `[M, D, S]` has the last states, the newest first, of which the oldest is read. `last` `[M, S]` has the
    last readings, normalised. `positions` `[S]` has the index of the position of a velocity that is computed by
    differences, and −1 for measured states. `fresh` marks members at the start of an episode.
    """
    oldest, now = earlier.shape[1] - 1, np.empty(observed.shape[1])
    for m in range(observed.shape[0]):
        if not chosen[m]:
            continue
        for row in range(oldest, 0, -1):
            earlier[m, row] = observed[m] if fresh[m] else earlier[m, row - 1]
        earlier[m, 0] = observed[m]
        for i in range(observed.shape[1]):
            truth[m, i] = _limited((observed[m, i] - center[i]) / scale[i], limited, limit[i])
            reading = _limited((earlier[m, oldest, i] - center[i]) / scale[i], limited, limit[i])
            if sigma[i] > 0.0:
                error = sigma[i] * next_normal(stream[m])
                noise[m, i] = error
                reading += error
            if resolution[i] > 0.0:
                physical = center[i] + scale[i] * reading
                reading = (resolution[i] * np.rint(physical / resolution[i]) - center[i]) / scale[i]
            now[i] = reading
        for i in range(observed.shape[1]):
            position = positions[i]
            if position >= 0:
                change = scale[position] * (now[position] - last[m, position])
                if periodic[position]:
                    change = wrap_angle(change)
                now[i] = ((0.0 if fresh[m] else change / dt) - center[i]) / scale[i]
        for i in range(observed.shape[1]):
            observation[m, i] = last[m, i] = now[i]
        fresh[m] = False


@kernel
def _limited(state: float, limited: bool, limit: float) -> float:
    """Return a normalised state, or the limit if `limited` and the state is beyond it."""
    if limited and not abs(state) <= limit:
        return limit if state > 0 else -limit if state < 0 else 0.0
    return state
