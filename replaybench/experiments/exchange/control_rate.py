"""The control rate of a log, stated or measured: one that its plant can have, since evaluations run at it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import Final

from replaybench.data.bounds import HERTZ, STEPS
from replaybench.data.errors import UserError
from replaybench.data.logs.log import ROUNDING, Log, round_rate, sampling_rate, time_column
from replaybench.envs.interface.plant import Plant
from replaybench.experiments.exchange.columns import nearest

RATE_TOLERANCE: Final = 0.01
"""Relative difference allowed between the stated rate and that of the time column."""
_TOO_SLOW: Final = 0.01
"""A measured rate below this part of the plant's own shows a wrong unit of time."""
_UNITS: Final = {"ms": 1e3, "µs": 1e6, "ns": 1e9}
_LONG_UNITS: Final = {"min": 1 / 60, "h": 1 / 3600, "d": 1 / 86400}
"""How many of each make a second."""


def control_rate(log: Log, plant: Plant, stated: float | None) -> float:
    """Return the rate [Hz] of a log of two rows at least: the stated one, or the roundest that fits its times.

    Raises:
        UserError: neither is known, they differ by more than 1 %, or the plant cannot have that rate.
    """
    if stated is not None:
        HERTZ.check(stated, "--frequency")
    if log.time is None:
        if stated is None:
            raise _no_rate(log)
        plant.steps_per_episode(stated)
        return stated
    measured = sampling_rate(log.time)
    possible = _possible(plant, measured)
    if stated is None:
        _refuse_wrong_unit(plant, measured, possible)
    elif abs(measured / stated - 1) > RATE_TOLERANCE:
        units = _fitting(measured, stated, {**_UNITS, **_LONG_UNITS})
        remedy = (
            f"give time in s, not {units[0]}" if units else f"use --frequency {possible or round_rate(measured):.12g}"
        )
        raise UserError(f"the time column is sampled at {measured:.5g} Hz, not at {stated:g} Hz: {remedy}")
    rate = stated or (possible if possible and abs(possible / measured - 1) <= ROUNDING else round_rate(measured))
    try:
        plant.steps_per_episode(rate)
    except UserError as error:
        remedy = f"--frequency {possible:.12g} fits the log" if possible else "resample the log"
        raise UserError(f"{error} ({remedy})") from error
    return rate


def _refuse_wrong_unit(plant: Plant, measured: float, possible: float | None) -> None:
    units = _fitting(measured, plant.frequency, _LONG_UNITS)
    if measured < _TOO_SLOW * plant.frequency:
        units = [min(_UNITS, key=lambda unit: abs(math.log(measured * _UNITS[unit] / plant.frequency)))]
    if units:
        otherwise = f", or --frequency {possible:.12g} if it is in s" if possible else ""
        raise UserError(
            f"the log is sampled at {measured:.5g} Hz, {plant.name} at {plant.frequency:g} Hz: "
            f"give time in s, not {units[0]}{otherwise}"
        )


def _fitting(measured: float, wanted: float, units: Mapping[str, float]) -> list[str]:
    """Return the units of time in which the measured rate is the wanted one."""
    return [unit for unit, factor in units.items() if abs(measured * factor / wanted - 1) <= RATE_TOLERANCE]


def _possible(plant: Plant, measured: float) -> float | None:
    """Return the roundest, else nearest, rate within the tolerance of a measured one [Hz] that the plant can have."""
    exact = measured * plant.episode_seconds
    if exact > STEPS.high:
        return None
    counts = range(math.ceil(exact * (1 - RATE_TOLERANCE)), math.floor(exact * (1 + RATE_TOLERANCE)) + 1)
    near = sorted((count / plant.episode_seconds for count in counts), key=lambda rate: abs(rate - measured))
    for rate in (round_rate(measured), *near):
        with contextlib.suppress(UserError):
            plant.steps_per_episode(rate)
            return rate
    return None


def _no_rate(log: Log) -> UserError:
    named = log.time_from or time_column(log.unusable)
    if named and named in log.unusable:
        return UserError(f"column {named!r} cannot be used: {log.unusable[named]}; mend it, or give --frequency")
    near = nearest("time", (*log.columns, *log.unusable))
    how = f"--time {near!r}, if that is in s" if near else "--time"
    return UserError(f"no column is called time; name it with {how}, or give --frequency")
