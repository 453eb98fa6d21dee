"""Checks of what a plant class declares, before anything is compiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, Final, NamedTuple

from replaybench.data.errors import UserError, shown


class Domain(NamedTuple):
    """A set of valid values: in words, as a test, and an example."""

    words: str
    fits: Callable[[Any], bool]
    example: object


def _numeric(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _whole(value: Any, least: int) -> bool:
    return _numeric(value) and isinstance(value, Integral) and int(value) >= least


TEXT: Final = Domain("a name", lambda value: isinstance(value, str) and bool(value), "angle")
UNIT: Final = Domain("a unit, empty where there is none", lambda value: isinstance(value, str), "rad")
FLAG: Final = Domain("True or False", lambda value: isinstance(value, bool), True)
NUMBER: Final = Domain("a finite number", lambda value: _numeric(value) and math.isfinite(value), 1.5)
POSITIVE: Final = Domain("a positive number", lambda value: _numeric(value) and 0 < float(value) < math.inf, 1.5)
BOUND: Final = Domain("a positive number", lambda value: _numeric(value) and float(value) > 0, 10.0)
SHARE: Final = Domain("a number from 0 to 1", lambda value: _numeric(value) and 0 <= float(value) <= 1, 0.95)
WHOLE: Final = Domain("a whole number from 0", lambda value: _whole(value, 0), 0)
COUNT: Final = Domain("a whole number from 2", lambda value: _whole(value, 2), 11)

DOMAINS: Final[dict[str, Domain]] = {
    **dict.fromkeys(("name", "state_names", "action_names"), TEXT),
    **dict.fromkeys(("state_units", "action_units"), UNIT),
    **dict.fromkeys(("state_center", "action_low", "action_high", "zero_action"), NUMBER),
    **dict.fromkeys(("initial_state", "reference_state", "grid_low", "grid_high"), NUMBER),
    **dict.fromkeys(("state_scale", "episode_seconds", "frequency", "reward_scale", "max_substep"), POSITIVE),
    **dict.fromkeys(("action_choices", "action_levels", "grid_nodes", "reference_episodes"), COUNT),
    "periodic": FLAG,
    "observation_limit": BOUND,
    "discount": SHARE,
    "update_every": WHOLE,
}
"""Valid values of each declaration; those of states and of actions are tuples."""


def check_scalar(plant: Any, name: str) -> None:
    """Raise `UserError` unless a plant declares a valid value under this name."""
    domain, value = DOMAINS[name], getattr(plant, name)
    if not domain.fits(value):
        raise UserError(f"plant {type(plant).__name__}: {name} must be {domain.words}, not {shown(value)}")


def check_tuple(plant: Any, name: str, names: str | None = None) -> None:
    """Raise `UserError` unless a plant declares a tuple of valid values, one for each of its `names`."""
    domain, values, who = DOMAINS[name], getattr(plant, name), f"plant {type(plant).__name__}"
    if not isinstance(values, tuple):
        entry = values if domain.fits(values) else domain.example
        example = (entry,) * (1 if names is None else len(getattr(plant, names)))
        raise UserError(f"{who}: {name} must be a tuple, as in {shown(example)}, not {shown(values)}")
    if names is not None and len(values) != len(getattr(plant, names)):
        raise UserError(f"{who}: {name} has {len(values)} entries, {names} has {len(getattr(plant, names))}")
    for value in values:
        if not domain.fits(value):
            raise UserError(f"{who}: each entry of {name} must be {domain.words}, not {shown(value)}")


def check_range(plant: Any, low: str, high: str) -> None:
    """Raise `UserError` unless each entry of `low` is below that of `high`."""
    below, above = getattr(plant, low), getattr(plant, high)
    if not all(first < last for first, last in zip(below, above, strict=True)):
        raise UserError(
            f"plant {type(plant).__name__}: {low} must be below {high}, not {shown(below)} beside {shown(above)}"
        )
