"""Checks and descriptions of the channel between a plant and its controller."""

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from replaybench.envs.interface.channel import ROUNDING, whole_periods
from replaybench.envs.interface.plant import Plant, Vector, with_unit
from replaybench.runtime.errors import UserError, unknown

_COARSE: Final = 0.05
"""Largest plausible resolution, as a fraction of the normalisation range (twice the scale) of a state."""


def check_channel(plant: Plant, steps: int, dt: float) -> None:
    """Raise `UserError` if the settings of a plant's channel do not fit the plant.

    An episode consists of `steps` control periods of `dt` seconds.
    """
    channel, name, splits = plant.channel, plant.name, plant.splits_steps
    plant.positions_of(channel.differentiate)
    for key, named in (("noise", channel.noise), ("resolution", channel.resolution)):
        for state in named:
            if state not in plant.state_names:
                raise unknown(f"state of {name} in {key}:", state, plant.state_names)
    for state in channel.noise:
        if state in channel.differentiate:
            raise UserError(
                f"{state} of {name} is computed from its position, whose noise it has; leave it out of noise"
            )
    for key, delay, whole in (("delay", channel.delay, not splits), ("sensor_delay", channel.sensor_delay, True)):
        count, rest = whole_periods(delay, dt)
        if count + (rest > 0) + channel.jitter / dt >= steps:
            raise UserError(f"{key} = {delay:g} s is as long as an episode of {name}, {steps * dt:g} s; lower it")
        if whole and rest:
            why = "sensor_delay must be" if key == "sensor_delay" else f"{name} supports only delays of"
            near = " or ".join(f"{n * dt:.12g}" for n in (count, count + 1))
            raise UserError(f"{why} whole control periods of {dt:g} s; use {near} s instead of {delay:g} s")
    if channel.jitter and not splits:
        raise UserError(f"{name} supports only delays of whole control periods, without jitter; leave jitter out")
    if channel.rate_limit is not None and channel.rate_limit * steps * dt < 1.0:
        raise UserError(
            f"rate_limit = {channel.rate_limit:g} per second lets the command of {name} move by only "
            f"{channel.rate_limit * steps * dt:.2g} of ±1 in an episode; raise it to more than {1 / (steps * dt):.3g}"
        )
    if channel.hold and channel.hold < dt * (1 - ROUNDING):
        raise UserError(f"hold = {channel.hold:g} s is shorter than a control period of {dt:g} s; raise it")


def reading_limits(plant: Plant, noise: Vector) -> Vector:
    """Return bounds `[S]` on the absolute values of the normalised readings of a plant's states.

    `noise` is the largest sensor noise of each, `[S]`. Difference quotients have no bound.
    """
    limit: Vector = np.max([each.observation_limit for each in plant.extremes()], axis=0) + noise
    for i, name in enumerate(plant.state_names):
        limit[i] += plant.channel.resolution.get(name, 0.0) / 2 / plant.state_scale[i]
        limit[i] = math.inf if name in plant.channel.differentiate else limit[i]
    return limit


def describe_spread(plant: Plant) -> str:
    """Describe the parameters of a plant that are drawn for every episode, or return "" if there are none."""

    def ends(name: str, share: float) -> str:
        low, high = sorted(getattr(plant, name) * (1.0 + part) for part in (-share, share))
        return f"{name} within {low:.4g} … {high:.4g} (± {100 * share:.4g} %)"

    return "; ".join(ends(*each) for each in plant.spread)


def periods_under_way(plant: Plant, frequency: float) -> float:
    """Return the longest time from a reading to the action of its command, in control periods at a rate in Hz."""
    channel = plant.channel
    return (channel.delay + channel.jitter + channel.sensor_delay) * frequency


def coarse_readings(plant: Plant) -> Iterator[str]:
    """Yield a warning for each resolution that is coarse for its state, as if it were a number of encoder counts."""
    for name, step in plant.channel.resolution.items():
        place = plant.state_names.index(name)
        unit, width = plant.state_units[place], 2 * plant.state_scale[place]
        if step <= _COARSE * width:
            continue
        turn = 2 * math.pi  # a larger step of an angle is a number of counts
        counts = f": for an encoder of {step:g} counts per turn, write 2π / {step:g} = {turn / step:.6g}"
        yield (
            f"resolution of {name} is {with_unit(f'{step:.4g}', unit)}, more than {100 * _COARSE:g} % of the "
            f"normalisation range of {with_unit(f'{width:.4g}', unit)}; it is the step between two readings, not a "
            f"number of counts{counts if unit == 'rad' and step > turn else ''}"
        )


def describe_channel(plant: Plant) -> str:
    """Describe the channel of a plant in physical units, or return "" if it is off."""
    channel, (_, half) = plant.channel, plant.action_range()
    units = dict(zip(plant.state_names, plant.state_units, strict=True))

    def physical(share: float) -> str:
        values = (with_unit(f"{share * part:.4g}", each) for part, each in zip(half, plant.action_units, strict=True))
        return " or ".join(dict.fromkeys(values))

    parts = list[str]()
    if channel.delay or channel.jitter:
        spread = f" ± {1e3 * channel.jitter:.4g}" if channel.jitter else ""
        parts.append(f"commands act after {1e3 * channel.delay:.4g}{spread} ms")
    if channel.sensor_delay:
        parts.append(f"readings are {1e3 * channel.sensor_delay:.4g} ms old")
    parts += [f"noise of {with_unit(f'{sigma:.4g}', units[name])} on {name}" for name, sigma in channel.noise.items()]
    parts += [
        f"{name} in steps of {with_unit(f'{step:.4g}', units[name])}" for name, step in channel.resolution.items()
    ]
    parts += [f"{name} by differences" for name in channel.differentiate]
    if channel.dead_zone:
        parts.append(f"dead zone ±{physical(channel.dead_zone)}")
    if channel.rate_limit is not None:
        parts.append(f"commands change by at most {physical(channel.rate_limit)} per second")
    if channel.disturbance:
        parts.append(f"bias within ±{physical(channel.disturbance)}, held for {channel.hold:g} s")
    if channel.history:
        parts.append(f"{channel.history} past command{'s' * (channel.history > 1)} observed")
    return "; ".join(parts)
