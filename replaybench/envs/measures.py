"""What the signals of an episode cost, and how a plant responds to steps of its set points."""

from typing import Final

import numpy as np

from replaybench.envs.interface.plant import Plant
from replaybench.envs.interface.signals import wrap, wrap_angle
from replaybench.envs.ode.courses import Steps
from replaybench.envs.ode.plant import OdePlant
from replaybench.runtime.arrays import Bools, Floats, Floats32, Integers
from replaybench.runtime.kernel import kernel

MEASURES: Final = {
    "action variation": "mean |a(k) − a(k−1)| of normalised commands, per second",
    "sign reversals": "changes of the sign of a command from one step to the next, per second",
    "saturated steps": "share of steps in which a command is at the end of its range",
    "steps outside limits": "share of steps that end outside the limits that the plant declares",
    "mean absolute error": "mean |set point − state|, in units of the state",
    "overshoot": "largest error past the set point, relative to the step of the set point",
    "settling time": "time after which the error stays within 2 % of the step of the set point [s]",
    "steady-state error": "|set point − state| at the end of a step of the set point, in units of the state",
}
"""Measures of an episode by name. The last three are means over the steps of set points in the episode."""
_BAND: Final = 0.02
_TARGET, _FIRST, _PEAK, _OUTSIDE, _COUNT, _ERROR, _STEPS, _OVERSHOOT, _SETTLING, _STEADY, _TOTAL = range(11)


class EpisodeMeasures:
    """The measures of the running episodes of M members, which are copies of a plant.

    Errors of set points are those at the end of a control step, with the set point that held in it. The measures of
    responses count only set points that are `Steps`. The step that the end of an episode interrupts counts, too.
    """

    def __init__(self, plant: Plant, num_envs: int, dt: float) -> None:
        low, high = np.array([plant.limits.get(name, (-np.inf, np.inf)) for name in plant.state_names], np.float64).T
        pairs = plant.set_points.items() if isinstance(plant, OdePlant) else ()
        places = [[plant.state_names.index(name) for name in pair] for pair in pairs]
        self._places = np.array(places, np.int64).reshape(-1, 2)
        self._angles = np.array([plant.periodic[state] for state, _ in places], np.bool_)
        stepping = [isinstance(plant, OdePlant) and isinstance(plant.exogenous[point], Steps) for _, point in pairs]
        self._stepping, self._limits, self._dt = np.array(stepping, np.bool_), (low, high), dt
        self._limited = bool(plant.limits)
        self._sums = np.zeros((num_envs, 5))  # steps, variation, reversals, saturated steps, steps outside limits
        self._last = np.zeros((num_envs, len(plant.action_names)), np.float32)
        self._responses = np.zeros((num_envs, len(places), 11))

    def restart(self, observed: Floats, chosen: Bools) -> None:
        """Begin an episode of the members marked in `chosen` `[M]`, at physical states `[M, S]`."""
        self._sums[chosen] = self._last[chosen] = self._responses[chosen] = 0
        for j, (state, point) in enumerate(self._places):
            self._responses[chosen, j, _TARGET] = observed[chosen, point]
            error = observed[chosen, point] - observed[chosen, state]
            self._responses[chosen, j, _FIRST] = wrap(error) if self._angles[j] else error

    def count(self, action: Floats32, observed: Floats, moving: Bools) -> None:
        """Count a step of the members marked in `moving`, under commands `[M, A]`, that ends at states `[M, S]`."""
        signals = self._sums, self._last, *self._limits
        _count(action, observed, moving, *signals, self._responses, self._places, self._angles)

    def values(self) -> Floats:
        """Return the measures of the episodes up to now, `[M, 8]`, in the order of `MEASURES`, with NaN for none."""
        steps, (variation, reversals, *shares) = self._sums[:, 0], self._sums.T[1:]
        found = np.full((len(steps), len(MEASURES)), np.nan)
        with np.errstate(invalid="ignore", divide="ignore"):
            pairs = np.where(steps > 1, (steps - 1) * self._last.shape[1] * self._dt, np.nan)
            found[:, 0], found[:, 1] = variation / pairs, reversals / pairs
            found[:, 2] = shares[0] / steps
            if self._limited:
                found[:, 3] = shares[1] / steps
            if len(self._places):
                found[:, 4] = self._responses[:, :, _TOTAL].mean(axis=1) / steps
            if self._stepping.any():
                ended = self._responses[:, self._stepping].copy()
                for response in ended.reshape(-1, 11):
                    _end_response(response)
                overshoot, settling, steady = ended[:, :, [_OVERSHOOT, _SETTLING, _STEADY]].sum(axis=1).T
                count = ended[:, :, _STEPS].sum(axis=1)
                found[:, 5:] = np.stack([overshoot, settling * self._dt, steady], axis=1) / count[:, None]
        return found

    def changing(self) -> dict[str, Floats | Floats32]:
        """Return the arrays `[M, ...]` that change during an episode, by name."""
        return {"measured": self._sums, "measured_action": self._last, "measured_responses": self._responses}


@kernel
def _end_response(response: Floats) -> None:
    """Add the response to the present step of a set point to the sums of the episode."""
    if response[_COUNT] > 0 and response[_FIRST] != 0:
        response[_STEPS] += 1
        response[_OVERSHOOT] += response[_PEAK] / abs(response[_FIRST])
        response[_SETTLING] += response[_OUTSIDE]
        response[_STEADY] += abs(response[_ERROR])


@kernel
def _count(
    action: Floats32, observed: Floats, moving: Bools, sums: Floats, last: Floats32, low: Floats, high: Floats,
    responses: Floats, places: Integers, angles: Bools,
) -> None:  # fmt: skip
    for m in range(moving.size):
        if not moving[m]:
            continue
        saturated, outside = False, False
        for a in range(action.shape[1]):
            if sums[m, 0] > 0:
                sums[m, 1] += abs(action[m, a] - last[m, a])
                sums[m, 2] += action[m, a] * last[m, a] < 0
            last[m, a] = action[m, a]
            saturated |= abs(action[m, a]) >= 1
        for s in range(observed.shape[1]):
            outside |= observed[m, s] < low[s] or observed[m, s] > high[s]
        sums[m, 0] += 1
        sums[m, 3] += saturated
        sums[m, 4] += outside
        for j in range(places.shape[0]):
            response, state, target = responses[m, j], observed[m, places[j, 0]], observed[m, places[j, 1]]
            error = response[_TARGET] - state
            error = wrap_angle(error) if angles[j] else error
            response[_TOTAL] += abs(error)
            response[_COUNT] += 1
            response[_ERROR] = error
            response[_PEAK] = max(response[_PEAK], -error if response[_FIRST] > 0 else error)
            if abs(error) > _BAND * abs(response[_FIRST]):
                response[_OUTSIDE] = response[_COUNT]
            if target != response[_TARGET]:
                _end_response(response)
                first = target - state
                response[_TARGET], response[_FIRST] = target, wrap_angle(first) if angles[j] else first
                response[_PEAK] = response[_OUTSIDE] = response[_COUNT] = 0.0
