"""Checks of the attributes of plants and of the settings of environments.

The checks run before anything is compiled.
"""

import math
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from replaybench.runtime.configuration import HERTZ, NOISE, STEPS
from replaybench.runtime.errors import UserError, shown, unknown

Role = Literal["training", "evaluation"]
"""The purpose of an environment, which selects its random streams."""

NanActions = Literal["raise", "fail"]
"""The response to a NaN action: "raise" an error, or "fail", which makes the rewards NaN from here to the episode's
end."""


def check_population(
    num_envs: int, members: Sequence[int], sensor_noise: float, actuator_noise: float, role: str, nan_actions: str,
    render_mode: str | None,
) -> None:  # fmt: skip
    """Raise `UserError` if a setting of `PopulationEnv` is invalid."""
    if num_envs < 1:
        raise UserError(f"num_envs is {num_envs}; a population has at least 1 member")
    if len(members) != num_envs:
        raise UserError(f"{len(members)} member numbers for num_envs={num_envs}; give one for each member")
    if min(members) < 0 or len(set(members)) != num_envs:
        raise UserError(f"member numbers must be different and not negative, not {list(members)}")
    for name, sigma in (("sensor_noise", sensor_noise), ("actuator_noise", actuator_noise)):
        NOISE.check(sigma, name)
    if role not in get_args(Role):
        raise unknown("role", role, get_args(Role))
    if nan_actions not in get_args(NanActions):
        raise unknown("choice of nan_actions", nan_actions, get_args(NanActions))
    if render_mode not in (None, "rgb_array"):
        raise unknown("render mode", str(render_mode), ["rgb_array"])


def seen_states(plant: str, states: Sequence[str], observe: Sequence[str]) -> list[int]:
    """Return the indices of the observed states in the list `states`.

    `observe` contains the names of the observed states. If it is empty, all states are observed. A `UserError` is
    raised if a name is unknown or occurs twice. The error message contains the name of the `plant`.
    """
    for name in observe:
        if name not in states:
            raise unknown(f"state of {plant} to observe:", name, states)
    if len(set(observe)) != len(observe):
        raise UserError(f"observe names a state of {plant} twice: {', '.join(observe)}")
    return [states.index(name) for name in observe or states]


def check_seed(seed: int) -> int:
    """Return a seed as an `int`, or raise `UserError` if the seed is negative or not an integer."""
    if seed < 0 or int(seed) != seed:
        raise UserError(f"the seed is {seed}; give an integer of 0 or more")
    return int(seed)


def whole_steps(plant: str, seconds: float, frequency: float) -> int:
    """Return the number of control steps in an episode of `seconds` at the control rate `frequency` [Hz].

    A `UserError` is raised if the number is not whole or too large.
    """
    HERTZ.check(frequency, "frequency")
    exact = seconds * frequency
    STEPS.check(max(1.0, exact), f"an episode of {plant}, {seconds:g} s at {frequency:g} Hz,")
    steps = round(exact)
    if steps < 1 or abs(exact - steps) > 1e-9 * exact:
        near = sorted({max(1, math.floor(exact)), math.ceil(exact)})
        raise UserError(
            f"{frequency:g} Hz cuts the {seconds:g} s episode of {plant} into {exact:g} steps; "
            f"use {' or '.join(f'{count / seconds:.12g}' for count in near)} Hz"
        )
    return steps


def whole_substeps(plant: str, seconds: float, episode: int, frequency: float) -> int:
    """Return the number of physics steps in a control step at the control rate `frequency` [Hz].

    A physics step lasts `seconds`, and an episode consists of `episode` physics steps. A `UserError` is raised if the
    result is not whole or does not divide `episode`.
    """
    HERTZ.check(frequency, "frequency")
    exact = 1.0 / (frequency * seconds)
    count = round(exact)
    if count >= 1 and abs(exact - count) <= 1e-9 * exact and episode % count == 0:
        return count
    possible = [n for n in range(1, episode + 1) if episode % n == 0]
    near = [*[n for n in possible if n > exact][:1], *[n for n in possible if n < exact][-1:]]
    rates = " or ".join(f"{1.0 / (n * seconds):.12g}" for n in near)
    raise UserError(
        f"{plant} takes physics steps of {seconds:g} s, {episode} to an episode; "
        f"{frequency:g} Hz does not cut it into equal whole numbers of them: use {rates} Hz"
    )


def reset_mask(options: dict[str, Any] | None, num_envs: int) -> NDArray[np.bool_]:
    """Return which of M copies of a plant restart, as a bool array `[M]`.

    `options` is the argument of Gymnasium's `reset`. `{"reset_mask": mask}` selects copies. By default all restart.
    """
    unused = set(options or ()) - {"reset_mask"}
    if unused:
        raise unknown("reset option", min(unused), ["reset_mask"])
    if options is None or "reset_mask" not in options:
        return np.ones(num_envs, np.bool_)
    mask = np.asarray(options["reset_mask"])
    if mask.shape != (num_envs,) or mask.dtype != np.bool_:
        raise UserError(f"reset_mask must be bool of shape ({num_envs},), not {mask.dtype} of shape {mask.shape}")
    return mask.copy()


class Domain(NamedTuple):
    """A set of valid values, given by a description in words, a function that tests a value, and an example."""

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
SPREAD: Final = Domain("a finite number from 0", lambda value: NUMBER.fits(value) and value >= 0, 0.5)
SHARE: Final = Domain("a number from 0 to 1", lambda value: _numeric(value) and 0 <= float(value) <= 1, 0.95)
WHOLE: Final = Domain("a whole number from 0", lambda value: _whole(value, 0), 0)
COUNT: Final = Domain("a whole number from 2", lambda value: _whole(value, 2), 11)

DOMAINS: Final[dict[str, Domain]] = {
    **dict.fromkeys(("name", "state_names", "action_names", "observed"), TEXT),
    **dict.fromkeys(("state_units", "action_units"), UNIT),
    **dict.fromkeys(("state_center", "action_low", "action_high", "zero_action"), NUMBER),
    **dict.fromkeys(("initial_state", "reference_state", "grid_low", "grid_high"), NUMBER),
    **dict.fromkeys(("state_scale", "episode_seconds", "frequency", "reward_scale", "max_substep"), POSITIVE),
    **dict.fromkeys(("action_choices", "action_levels", "grid_nodes", "reference_episodes"), COUNT),
    **dict.fromkeys(("periodic", "depends_on_rate"), FLAG),
    "start_spread": SPREAD,
    "observation_limit": BOUND,
    "discount": SHARE,
    "update_every": WHOLE,
}
"""Valid values of each attribute of a plant. Attributes with an entry per state or action are tuples of such values."""


def check_scalar(plant: Any, name: str) -> None:
    """Raise `UserError` if the attribute `name` of a plant has an invalid value."""
    domain, value = DOMAINS[name], getattr(plant, name)
    if not domain.fits(value):
        raise UserError(f"plant {type(plant).__name__}: {name} must be {domain.words}, not {shown(value)}")


def check_tuple(plant: Any, name: str, names: str | None = None) -> None:
    """Raise `UserError` if the attribute `name` of a plant is not a tuple of valid values.

    `names` is the name of another tuple of the plant, such as "state_names". If `names` is given, both tuples must have
    the same length.
    """
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
    """Raise `UserError` if a lower bound of a plant is not below the upper bound at the same position.

    `low` and `high` are the names of the attributes with the bounds.
    """
    below, above = getattr(plant, low), getattr(plant, high)
    if not all(first < last for first, last in zip(below, above, strict=True)):
        raise UserError(
            f"plant {type(plant).__name__}: {low} must be below {high}, but they are {shown(below)} and {shown(above)}"
        )
