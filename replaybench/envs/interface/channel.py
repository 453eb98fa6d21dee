"""The channel between a plant and its controller: delays, and the limits of sensors and actuators.

Commands pass a dead zone, a rate limit, the actuator noise and a delay before they act. Readings pass a delay, the
sensor noise, rounding and differencing before they are observed.
"""

import dataclasses
import json
import math
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from replaybench.runtime.configuration import Name, NonNegativeInt, Positive, Seconds, Settings, Share, Within
from replaybench.runtime.errors import UserError

ROUNDING: Final = 1e-9
"""Fraction of a control period below which a delay counts as a whole number of control periods."""


@dataclass(frozen=True, kw_only=True)
class Channel(Settings):
    """The settings of the channel between a plant and its controller. By default, every part is off.

    Attributes:
        delay: Time from the sample to the moment when the new command acts [s].
        jitter: Largest deviation of the delay of a command from `delay` [s]. Deviations are uniform. Delays below 0
            become 0, and commands do not overtake each other.
        sensor_delay: Age of the observed sample [s], a whole number of control periods.
        noise: Standard deviations of the sensor noise on states, in units of the states, by name. The other
            states have the noise of the study.
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
    noise: dict[str, Annotated[float, Within(0, 1e9)]] = field(default_factory=dict)
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
        default |= {"noise": {}, "resolution": {}}
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


def whole_periods(seconds: float, dt: float) -> tuple[int, float]:
    """Return a time as a number of whole control periods of `dt` seconds, and the rest in seconds."""
    count = math.floor(seconds / dt + ROUNDING)
    rest = seconds - count * dt
    return count, rest if rest > ROUNDING * dt else 0.0
