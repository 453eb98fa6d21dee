"""Checks of the settings of a population; each mistake is one line with a remedy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from replaybench.data.bounds import HERTZ, NOISE, STEPS
from replaybench.data.errors import UserError, unknown

Role = Literal["training", "evaluation"]
"""The noise streams of a population."""

NanActions = Literal["raise", "fail"]
"""The response to a NaN action."""


def check_population(
    num_envs: int, members: Sequence[int], sensor_noise: float, actuator_noise: float, role: str, nan_actions: str,
    render_mode: str | None,
) -> None:  # fmt: skip
    """Raise `UserError` for settings that make no population."""
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
    """Return the indices of the observed states, all if `observe` is empty; raise `UserError` for unknown names."""
    for name in observe:
        if name not in states:
            raise unknown(f"state of {plant} to observe:", name, states)
    if len(set(observe)) != len(observe):
        raise UserError(f"observe names a state of {plant} twice: {', '.join(observe)}")
    return [states.index(name) for name in observe or states]


def check_seed(seed: int) -> int:
    """Return the seed as an `int`, or raise `UserError`."""
    if seed < 0 or int(seed) != seed:
        raise UserError(f"the seed is {seed}; give an integer of 0 or more")
    return int(seed)


def whole_steps(plant: str, seconds: float, frequency: float) -> int:
    """Return the samples in an episode of `seconds`, or raise `UserError` if they are no whole number."""
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
    """Return the physics steps of `seconds` in a sample at `frequency` [Hz], of `episode` in an episode.

    Raises:
        UserError: that is no whole number, or does not divide the episode.
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
    """Return which members to reset, bool `[M]`, from the options of Gymnasium's `reset`."""
    unused = set(options or ()) - {"reset_mask"}
    if unused:
        raise unknown("reset option", min(unused), ["reset_mask"])
    if options is None or "reset_mask" not in options:
        return np.ones(num_envs, np.bool_)
    mask = np.asarray(options["reset_mask"])
    if mask.shape != (num_envs,) or mask.dtype != np.bool_:
        raise UserError(f"reset_mask must be bool of shape ({num_envs},), not {mask.dtype} of shape {mask.shape}")
    return mask.copy()
