"""Ranges and choices of a plant from the spaces of a Gymnasium task, and conversion of its actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space
from numpy.typing import NDArray

from replaybench.data.errors import UserError
from replaybench.envs.interface.plant import Vector

LARGEST_BOUND: Final = 1e6
"""Observations with wider bounds count as unbounded and are not normalised."""

TO_BOUND: Final = (
    "register it with bounds, as in additional_wrappers=(TransformAction.wrapper_spec("
    "func=lambda action: action, action_space=Box(-1, 1, (1,))),) for one action"
)
"""How to bound actions: Gymnasium's ClipAction and RescaleAction do not."""

LARGEST_SEEN: Final = 1e6
"""Unbounded observations are clipped to this, so that the observation space is finite."""

Floats = tuple[float, ...]


class ActionRange(NamedTuple):
    """The physical actions of a task, `[A]` each; `choices` is empty where they are continuous."""

    low: Floats
    high: Floats
    choices: tuple[int, ...] = ()

    def nothing(self) -> Floats:
        """Return the action nearest to 0; of choices the middle one, the lower of two."""
        if self.choices:
            return tuple(low + (count - 1) // 2 for low, count in zip(self.low, self.choices, strict=True))
        return tuple(min(max(0.0, low), high) for low, high in zip(self.low, self.high, strict=True))


def action_range(name: str, space: Space[Any]) -> ActionRange:
    """Return the range of the actions of the task `name`; raise `UserError` if they are not supported."""
    if isinstance(space, Discrete):
        return _choices(name, np.array([space.start]), np.array([space.n]))
    if isinstance(space, MultiDiscrete) and space.nvec.ndim == 1:
        return _choices(name, space.start, space.nvec)
    supported = (
        "supported are a one-dimensional Box (a flat vector of numbers), Discrete and MultiDiscrete; "
        "Gymnasium's wrapper TransformAction can turn one of these into it"
    )
    box = _vector(name, "action", space, supported)
    if not np.issubdtype(box.dtype, np.floating):
        raise UserError(f"{name}: its actions are whole numbers ({box.dtype}) in a Box; {supported}")
    if not (abs(box.low) < LARGEST_BOUND).all() or not (abs(box.high) < LARGEST_BOUND).all():
        raise UserError(f"{name}: its actions are unbounded; {TO_BOUND}")
    return ActionRange(_floats(box.low), _floats(box.high))


def _choices(name: str, start: NDArray[Any], counts: NDArray[Any]) -> ActionRange:
    if (counts < 2).any():
        raise UserError(f"{name}: its action has one choice only, so that there is nothing to control")
    return ActionRange(_floats(start), _floats(start + counts - 1), tuple(int(count) for count in counts))


def handed_over(space: Space[Any]) -> Callable[[Vector], Any]:
    """Return the function that turns a physical action `[A]` into one of the task's own type, within its bounds."""
    dtype: Any = space.dtype
    if isinstance(space, Discrete):
        return lambda action: dtype.type(np.rint(action[0]))
    if isinstance(space, MultiDiscrete):
        return lambda action: np.rint(action).astype(dtype)
    assert isinstance(space, Box)
    low, high = space.low, space.high
    # Rounding must not take an action out of the task's own bounds.
    return lambda action: np.clip(action.astype(dtype), low, high)


def normalisation(name: str, space: Space[Any]) -> tuple[Floats, Floats, Floats]:
    """Return center, scale and limit of each component of the observation; raise `UserError` unless it is a vector."""
    supported = "supported is a one-dimensional Box (a flat vector of numbers)"
    if space.is_np_flattenable:
        supported += "; register it with additional_wrappers=(FlattenObservation.wrapper_spec(),)"
    box = _vector(name, "observation", space, supported)
    low, high = box.low.astype(np.float64), box.high.astype(np.float64)
    bounded = (abs(low) < LARGEST_BOUND) & (abs(high) < LARGEST_BOUND) & (low < high)
    center = np.where(bounded, (np.where(bounded, low, 0) + np.where(bounded, high, 0)) / 2, 0.0)
    scale = np.where(bounded, (np.where(bounded, high, 2) - np.where(bounded, low, 0)) / 2, 1.0)
    return _floats(center), _floats(scale), _floats(np.where(bounded, 1.0, LARGEST_SEEN))


def _vector(name: str, what: str, space: Space[Any], supported: str) -> Box:
    if isinstance(space, Box) and len(space.shape) == 1:
        return space
    shown = f"a Box of shape {space.shape}" if isinstance(space, Box) else f"of kind {type(space).__name__}"
    raise UserError(f"{name}: its {what} is {shown}; {supported}")


def _floats(values: NDArray[Any]) -> Floats:
    return tuple(float(value) for value in values)
