"""A plant that declares nonsense is refused when it is made, in one line that names the declaration."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import pytest

from replaybench.envs.ode.pendulum import PendulumDCSC
from replaybench.runtime.errors import UserError


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("action_levels", 9, "action_levels must be a tuple, as in (9,), not 9"),
        ("action_levels", (9.5,), "each entry of action_levels must be a whole number from 2, not 9.5"),
        ("action_levels", (1,), "each entry of action_levels must be a whole number from 2, not 1"),
        ("action_levels", (), "action_levels has 0 entries, action_names has 1"),
        ("grid_nodes", 41, "grid_nodes must be a tuple, as in (41, 41), not 41"),
        ("grid_nodes", (41, True), "each entry of grid_nodes must be a whole number from 2, not True"),
        ("grid_low", (4.0, -30.0), "grid_low must be below grid_high"),
        ("action_names", "voltage", "action_names must be a tuple, as in ('voltage',), not 'voltage'"),
        ("action_low", -3.0, "action_low must be a tuple, as in (-3.0,), not -3.0"),
        ("action_low", (3.0,), "action_low must be below action_high, but they are (3.0,) and (3.0,)"),
        ("state_scale", (1.0, 0.0), "each entry of state_scale must be a positive number, not 0.0"),
        ("state_units", ("rad", 2), "each entry of state_units must be a unit, empty where there is none, not 2"),
        ("initial_state", (0.0, math.nan), "each entry of initial_state must be a finite number, not nan"),
        ("periodic", True, "periodic must be a tuple, as in (True, True), not True"),
        ("frequency", "50", "frequency must be a positive number, not '50'"),
        ("max_substep", 0, "max_substep must be a positive number, not 0"),
        ("episode_seconds", -1.0, "episode_seconds must be a positive number, not -1.0"),
        ("reward_scale", math.inf, "reward_scale must be a positive number, not inf"),
        ("discount", 1.5, "discount must be a number from 0 to 1, not 1.5"),
        ("reference_episodes", 1, "reference_episodes must be a whole number from 2, not 1"),
        ("reference_episodes", 2.5, "reference_episodes must be a whole number from 2, not 2.5"),
        ("zero_action", (4.0,), "must lie within -3 … 3, not 4; declare zero_action = (…,)"),
        ("grid_low", (-1.0, -30.0), "the grid of angle, which is periodic, goes from -1 to 3.14159"),
        ("update_every", 1.5, "update_every must be a whole number from 0, not 1.5"),
        ("episode_metric", "sum", "valid: mean reward, return"),
        ("name", 3, "name must be a name, not 3"),
        ("positive", "mass", "positive must be a tuple of its parameters"),
        ("positive", ("weight",), "positive must be a tuple of its parameters"),
    ],
)
def test_invalid_declarations_are_named(name: str, value: Any, told: str) -> None:
    made: Any = type("Wrong", (PendulumDCSC,), {name: value})
    with pytest.raises(UserError, match=re.escape(told)) as refusal:
        dataclasses.dataclass(frozen=True, kw_only=True)(made)()
    assert "Wrong" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_units_may_be_empty() -> None:
    made: Any = type("Unitless", (PendulumDCSC,), {"state_units": ("", "")})
    assert dataclasses.dataclass(frozen=True, kw_only=True)(made)().state_units == ("", "")
