"""Comparison of recorded steps with a plant's equations, which shows wrong delays and wrong signs.

A velocity that is the difference quotient of two readings of a position is half a control period old. With such
velocities, every delay would seem half a period too long. The comparison uses central differences of the position
instead, which are not late. Their change in a step is the average change of the true velocity in three steps, with the
weights 1/4, 1/2 and 1/4. The changes that the equations predict are therefore averaged in the same way.
"""

import contextlib
import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from replaybench.envs.interface.signals import wrap
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.ode.rk4 import simulate
from replaybench.runtime.arrays import Bools, Floats, Integers
from replaybench.runtime.errors import UserError

_CLEARLY: Final = 0.8
"""Ratio of model errors below which another delay or another sign fits clearly better."""
_FURTHER: Final = 5
"""Number of control periods beyond the stated delay that are tried as delays."""
_EQUAL: Final = 0.5
"""Ratio of the distances of a velocity from a difference quotient and from central differences, below which the
velocity is that quotient."""
_ROUNDING: Final = 1e-9
"""Model error that counts as rounding, as a fraction of the scale of the states."""


def steps_before(episode: Integers) -> Integers:
    """Return the number of earlier steps in the episode of each step. The numbers of episodes `[N]` do not decrease."""
    return np.arange(len(episode)) - np.searchsorted(episode, episode)


class LogFit:
    """A comparison of N recorded steps with the equations of a plant.

    Attributes:
        derived: Velocities that are difference quotients of recorded positions, each with the name of its position.
    """

    def __init__(
        self, plant: OdePlant, x: Floats, u: Floats, x_next: Floats, episode: Integers, frequency: float
    ) -> None:
        """Find the velocities that are difference quotients.

        Args:
            plant: The plant.
            x, x_next: States before and after each step, in physical units, `[N, S]`.
            u: Actions recorded at the beginning of each step, in physical units, `[N, A]`.
            episode: Number of the episode of each step, `[N]`, which does not decrease.
            frequency: Control rate in Hz.
        """
        self.plant, self.derived, self._u, self._period = plant, dict[str, str](), u, 1 / frequency
        self._recorded, self._episode = (x, x_next), episode
        self._before, self._after = steps_before(episode), steps_before(-episode[::-1])[::-1]
        self._x, self._x_next = x.copy(), x_next.copy()
        inner = (self._before >= 1) & (self._after >= 1)
        forward = self._difference(x_next, x) * frequency
        if not inner[1:-1].any():
            return
        for velocity in plant.state_names[: plant.equations]:
            with contextlib.suppress(UserError):  # other states are no velocities
                position = plant.positions_of([velocity])[velocity]
                own, quotient = plant.state_names.index(velocity), forward[:, plant.state_names.index(position)]
                earlier = np.roll(quotient, 1)
                central = (earlier + quotient) / 2
                late, even, early = (_rms((x[:, own] - each)[inner]) for each in (earlier, central, quotient))
                if min(late, early) < _EQUAL * even:
                    self.derived[velocity] = position
                    self._x[:, own] = np.where(self._before >= 1, central, x[:, own])
                    self._x_next[:, own] = np.roll(self._x[:, own], -1)

    def errors(self, late: int) -> list[float] | None:
        """Return the RMS error of the equations for each state with an equation, in physical units.

        `late` is the delay in control periods. The result is None if no step can be compared.
        """
        rows = self._comparable(late)
        return [_rms(missed) for missed in self._missed(late)[rows].T] if rows.any() else None

    def warnings(self, late: int) -> Iterator[str]:
        """Yield warnings if a wrong sign or another delay than `late` control periods explains the steps better."""
        delays = range(late + _FURTHER + 1)
        errors = [self._error(each) for each in delays]
        still = self._still(late)
        best = int(np.argmin(errors))
        useless = errors[best] > still + _ROUNDING
        better = errors[best] < _CLEARLY * errors[late]
        if useless or better:
            signs = {name: [flipped._error(each) for each in delays] for name, flipped in self._flipped()}
            name = min(signs, key=lambda each: min(signs[each]))
            found = min(signs[name]) < _CLEARLY * min(errors[best], still)
            if useless or found:
                text = f"the plant's equations miss states by {errors[best]:.2g} of their scale or more"
                text += f", which is worse than no change ({still:.2g})" if useless else ""
                if found:
                    delay = signs[name].index(min(signs[name])) * self._period
                    text += (
                        f", but by {min(signs[name]):.2g} with the sign of {name} flipped and a delay of {delay:g} s"
                    )
                yield f"{text}: check the signs" + ("" if found else ", then the units and the plant's parameters")
                return
        if better:
            yield (
                f"the plant's equations fit a delay of {best * self._period:g} s better, and miss states by "
                f"{errors[best]:.2g} of their scale instead of {errors[late]:.2g}: check --delay"
            )
        between = min(self._between(each) for each in (best - 1, best) if each in delays[:-1])
        tenths = round(10 * between[1])
        if between[0] < _CLEARLY * errors[best] and tenths % 10:
            yield (
                f"of all delays, about {tenths / 10 * self._period:g} s fits best (error {between[0]:.2g}, and "
                f"{errors[best]:.2g} at {best * self._period:g} s): a log is shifted by whole control periods, but "
                "the delay of a study can be any time"
            )

    def _difference(self, one: Floats, other: Floats) -> Floats:
        """Return differences of physical states `[N, S]`, along the shorter arc for angles."""
        with np.errstate(invalid="ignore"):  # wrong equations may overflow
            shortest: Floats = np.where(self.plant.periodic, wrap(one - other), one - other)
        return shortest

    def _comparable(self, late: int) -> Bools:
        """Return which steps can be compared with the equations `[N]`, with a delay in control periods."""
        margin = 1 if self.derived else 0
        rows: Bools = (self._before >= max(late, margin) + margin) & (self._after >= margin)
        return rows

    def _missed(self, late: int) -> Floats:
        """Return recorded minus predicted states with an equation `[N, equations]`, in physical units."""
        predicted = simulate(self.plant, self._x, np.roll(self._u, late, axis=0), self._period)[0]
        change = self._difference(predicted, self._x)
        for velocity in self.derived:
            own = self.plant.state_names.index(velocity)
            change[:, own] = (np.roll(change[:, own], 1) + 2 * change[:, own] + np.roll(change[:, own], -1)) / 4
        return self._difference(self._x_next, self._x + change)[:, : self.plant.equations]

    def _scaled(self, differences: Floats) -> Floats:
        """Return differences of states in units of their scale, without the positions of derived velocities.

        Such positions show nothing that their velocities do not show.
        """
        names = self.plant.state_names[: self.plant.equations]
        chosen = [i for i, name in enumerate(names) if name not in self.derived.values()]
        scaled: Floats = differences[:, chosen] / np.array(self.plant.state_scale)[chosen]
        return scaled

    def _error(self, late: int) -> float:
        """Return the RMS error of the equations in units of the scale of the states, infinite if there is none."""
        return _rms(self._scaled(self._missed(late))[self._comparable(late)])

    def _still(self, late: int) -> float:
        """Return the RMS error, in units of the scale of the states, of the assumption that no state changes."""
        return _rms(self._scaled(self._difference(self._x_next, self._x))[self._comparable(late)])

    def _between(self, late: int) -> tuple[float, float]:
        """Return the least RMS error of delays between `late` and `late` + 1 control periods, and its delay in periods.

        Predictions are interpolated linearly. The delay then has the least squares of errors in closed form.
        """
        one, other = (self._scaled(self._missed(each))[self._comparable(late + 1)] for each in (late, late + 1))
        with np.errstate(all="ignore"):  # wrong equations may overflow
            share = float(np.clip((one * (one - other)).sum() / ((one - other) ** 2).sum(), 0.0, 1.0))
            return _rms(one + share * (other - one)), late + (share if math.isfinite(share) else 0.0)

    def _flipped(self) -> Iterator[tuple[str, "LogFit"]]:
        """Yield comparisons in which one action or state has the other sign, each with the name of the flipped signal.

        A derived velocity is flipped with its position.
        """
        plant, (x, x_next) = self.plant, self._recorded
        for i, name in enumerate(plant.action_names):
            u = self._u * np.where(np.arange(self._u.shape[1]) == i, -1.0, 1.0)
            if plant.action_low[i] <= u[:, i].min() and u[:, i].max() <= plant.action_high[i]:
                yield name, LogFit(plant, x, u, x_next, self._episode, 1 / self._period)
        for name in plant.state_names[: plant.equations]:
            if name not in self.derived:
                together = [name, *(velocity for velocity, position in self.derived.items() if position == name)]
                sign = np.where(np.isin(plant.state_names, together), -1.0, 1.0)
                flipped = LogFit(plant, sign * x, self._u, sign * x_next, self._episode, 1 / self._period)
                yield " and of ".join(together), flipped


def _rms(values: Floats) -> float:
    """Return the root mean square of an array, infinite if it is empty or not finite."""
    with np.errstate(all="ignore"):  # wrong equations may overflow
        result = float(np.sqrt(np.square(values).mean())) if values.size else math.inf
    return result if math.isfinite(result) else math.inf
