"""The rate of a log: measured or stated, one that the plant can have, and what to do where it is neither."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from replaybench.data.logs.log import Log
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.pendulum import Pendulum
from replaybench.envs.registry import make_plant
from replaybench.exchange.log_columns import control_rate
from replaybench.runtime.errors import UserError


def clocked(time: NDArray[np.float64]) -> Log:
    return Log(Path("rig.csv"), {"time": time}, {}, time, None)


def at(frequency: float) -> Log:
    return clocked(np.arange(100) / frequency)


def refusal(log: Log, stated: float | None = None, plant: Plant | None = None) -> str:
    with pytest.raises(UserError) as told:
        control_rate(log, plant or Pendulum(), stated)
    return str(told.value)


@pytest.mark.parametrize(("measured", "rate"), [(50.0, 50.0), (49.93, 50.0), (33.25, 33.25), (49.70, 49.75)])
def test_a_measured_rate_is_rounded_to_one_of_the_plant(measured: float, rate: float) -> None:
    assert control_rate(at(measured), Pendulum(), None) == rate


def test_a_stated_rate_is_taken_as_stated() -> None:
    for frequency in (49.75, 50.0, 50.25):
        assert control_rate(at(50.0), Pendulum(), frequency) == frequency
        assert control_rate(Log(Path("rig.csv"), {}, {}, None, None), Pendulum(), frequency) == frequency


def test_a_rate_that_the_plant_cannot_have_says_which_fits_the_log() -> None:
    jittering = 49.395
    cut = "49.4 Hz cuts the 4 s episode of Pendulum into 197.6 steps; use 49.25 or 49.5 Hz "
    for stated in (None, 49.4):
        assert refusal(at(jittering), stated) == cut + "(--frequency 49.5 fits the log)"
    assert refusal(at(jittering), 50.0).endswith("not at 50 Hz: use --frequency 49.5")
    assert control_rate(at(jittering), Pendulum(), 49.5) == 49.5
    assert refusal(at(10 / 3)).endswith("use 3.25 or 3.5 Hz (resample the log)")
    untimed = Log(Path("rig.csv"), {}, {}, None, None)
    assert refusal(untimed, 49.4).endswith("into 197.6 steps; use 49.25 or 49.5 Hz")


def test_a_plant_of_one_rate_takes_no_other() -> None:
    plant = make_plant("gymnasium:CartPole-v1")
    assert control_rate(at(50.04), plant, None) == 50.0
    assert refusal(at(49.7), plant=plant).endswith(
        "runs at 50 Hz and no other rate, not at 49.7 Hz (--frequency 50 fits the log)"
    )
    assert refusal(at(25.0), plant=plant).endswith("not at 25 Hz (resample the log)")


@pytest.mark.parametrize(
    ("unit", "factor"), [("ms", 1e3), ("µs", 1e6), ("ns", 1e9), ("min", 1 / 60), ("h", 1 / 3600), ("d", 1 / 86400)]
)
def test_a_wrong_unit_of_time_is_named(unit: str, factor: float) -> None:
    for frequency in (50.0, 49.395, 200.0, 10.0) if factor > 1 else (50.0,):
        message = rf"the log is sampled at \S+ Hz, Pendulum at 50 Hz: give time in s, not {unit}"
        assert re.match(message, refusal(at(frequency / factor)))
    assert refusal(at(50.0 / factor), 50.0).endswith(f"not at 50 Hz: give time in s, not {unit}")


def test_a_plant_that_really_is_so_slow_or_fast_takes_its_rate() -> None:
    assert refusal(at(0.25)).endswith("give time in s, not ms, or --frequency 0.25 if it is in s")
    for rate in (0.25, 3000.0):
        assert control_rate(at(rate), Pendulum(), rate) == rate


def test_a_wrong_rate_says_what_to_type() -> None:
    for wrong in (50.0 / 1.011, 50.0 * 1.011, 100.0):
        assert re.search(r"is sampled at 50 Hz, not at .* Hz: use --frequency 50$", refusal(at(50.0), wrong))
    for nonsense in (0.0, -50.0, float("nan"), float("inf")):
        assert "--frequency must be above 0 and at most 100000 Hz" in refusal(at(50.0), nonsense)
    assert refusal(at(1e13)).endswith("(resample the log)")


def test_a_time_column_that_cannot_be_used_says_why() -> None:
    log = Log(Path("rig.csv"), {"angle": np.zeros(3)}, {"Time": "line 7 holds '1.234,5'"}, None, None)
    assert refusal(log) == ("column 'Time' cannot be used: line 7 holds '1.234,5'; mend it, or give --frequency")
    assert control_rate(log, Pendulum(), 50.0) == 50.0
