"""The channel between a plant and its controller: delays, and the limits of sensors and actuators.

Commands pass a dead zone, a rate limit, the actuator noise and a delay before they act. Readings pass a delay, the
sensor noise, rounding and differencing before they are observed.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np

from replaybench.runtime.configuration import Name, NonNegativeInt, Positive, Seconds, Settings, Share, Within
from replaybench.runtime.errors import UserError, unknown

if TYPE_CHECKING:
    from replaybench.envs.interface.plant import Plant, Vector

_ROUNDING: Final = 1e-9
"""Fraction of a control period below which a delay counts as a whole number of control periods."""


@dataclass(frozen=True, kw_only=True)
class Channel(Settings):
    """The settings of the channel between a plant and its controller. By default, every part is off.

    Attributes:
        delay: Time from the sample to the moment when the new command acts [s].
        jitter: Largest deviation of the delay of a command from `delay` [s]. Deviations are uniform. Delays below 0
            become 0, and commands do not overtake each other.
        sensor_delay: Age of the observed sample [s], a whole number of control periods.
        resolution: Steps to whose multiples readings are rounded, in units of the states, by name of the state.
        differentiate: Names of velocities that are not measured, but computed as difference quotients of the readings
            of their positions. The first reading of an episode is 0.
        dead_zone: Absolute value of a normalised command up to which the command acts as 0. Larger commands are shifted
            towards 0 by this value.
        rate_limit: Largest change of the acting command, in normalised units per second; None for no limit.
        disturbance: Largest bias on the acting command, in normalised units. The bias is uniform in ± this value.
        hold: Time for which a bias holds [s], rounded to whole control periods.
        history: Number of past commands that are appended to the observation, the newest first.
    """

    delay: Seconds = 0.0
    jitter: Seconds = 0.0
    sensor_delay: Seconds = 0.0
    resolution: dict[str, Positive] = field(default_factory=dict)
    differentiate: tuple[Name, ...] = ()
    dead_zone: Annotated[float, Within(0, 1 - 1e-9)] = 0.0
    rate_limit: Positive | None = None
    disturbance: Share = 0.0
    hold: Seconds = 0.0
    history: Annotated[NonNegativeInt, Within(0, 1000)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.disturbance > 0) != (self.hold > 0):
            raise UserError("Channel: disturbance and hold go together; set both, or leave both out")

    def __hash__(self) -> int:
        return hash(json.dumps(self.settings()))

    @property
    def is_off(self) -> bool:
        """Whether observations and commands pass the channel unchanged."""
        return not self.settings()

    def settings(self) -> dict[str, Any]:
        """Return the settings that differ from their defaults, as values that JSON supports."""
        default = {each.name: () if each.name == "differentiate" else each.default for each in dataclasses.fields(self)}
        default["resolution"] = {}
        own = {name: getattr(self, name) for name in default}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in own.items()
            if value != default[name]
        }

    def periods(self, dt: float) -> tuple[int, float]:
        """Return `delay` as a number of whole control periods of `dt` seconds, and the rest [s]."""
        return whole_periods(self.delay, dt)

    def sensor_periods(self, dt: float) -> int:
        """Return `sensor_delay` as a number of control periods of `dt` seconds."""
        return whole_periods(self.sensor_delay, dt)[0]

    def widen(self, plant: Plant, noise: float) -> Vector:
        """Return bounds `[S]` on the absolute values of the normalised readings of a plant's states.

        `noise` is the largest sensor noise. Difference quotients have no bound.
        """
        limit = np.array(plant.observation_limit) + noise
        for i, name in enumerate(plant.state_names):
            limit[i] += self.resolution.get(name, 0.0) / 2 / plant.state_scale[i]
            limit[i] = math.inf if name in self.differentiate else limit[i]
        return limit

    def check(self, plant: Plant, steps: int, dt: float) -> None:
        """Raise `UserError` if the settings do not fit a plant.

        An episode consists of `steps` control periods of `dt` seconds.
        """
        name, splits = plant.name, plant.splits_steps
        plant.positions_of(self.differentiate)
        for state in self.resolution:
            if state not in plant.state_names:
                raise unknown(f"state of {name} in resolution:", state, plant.state_names)
        for key, delay, whole in (("delay", self.delay, not splits), ("sensor_delay", self.sensor_delay, True)):
            count, rest = whole_periods(delay, dt)
            if count + (rest > 0) + self.jitter / dt >= steps:
                raise UserError(f"{key} = {delay:g} s is as long as an episode of {name}, {steps * dt:g} s; lower it")
            if whole and rest:
                why = "sensor_delay must be" if key == "sensor_delay" else f"{name} supports only delays of"
                near = " or ".join(f"{n * dt:.12g}" for n in (count, count + 1))
                raise UserError(f"{why} whole control periods of {dt:g} s; use {near} s instead of {delay:g} s")
        if self.jitter and not splits:
            raise UserError(f"{name} supports only delays of whole control periods, without jitter; leave jitter out")
        if self.rate_limit is not None and self.rate_limit * steps * dt < 1.0:
            raise UserError(
                f"rate_limit = {self.rate_limit:g} per second lets the command of {name} move by only "
                f"{self.rate_limit * steps * dt:.2g} of ±1 in an episode; raise it to more than {1 / (steps * dt):.3g}"
            )
        if self.hold and self.hold < dt * (1 - _ROUNDING):
            raise UserError(f"hold = {self.hold:g} s is shorter than a control period of {dt:g} s; raise it")


def whole_periods(seconds: float, dt: float) -> tuple[int, float]:
    """Return a time as a number of whole control periods of `dt` seconds, and the rest in seconds."""
    count = math.floor(seconds / dt + _ROUNDING)
    rest = seconds - count * dt
    return count, rest if rest > _ROUNDING * dt else 0.0
