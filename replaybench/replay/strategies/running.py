"""Running forms of a strategy's parts: they hold a population's state."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from replaybench.replay.arrays import Indices, State
from replaybench.replay.strategies.view import BufferView


class Running:
    """A part of a strategy at work; by default it holds no state."""

    def stored(self, slots: Indices) -> None:
        """Called after an experience was stored in `slots[m]` of each member (−1: none)."""

    def state_dict(self, stored: int) -> State:
        """Return the arrays that a resumed run needs, those per slot cut to the `stored` slots in use."""
        return {}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from `state_dict`: what comes next is identical."""


class Drawing(Running):
    """A part that draws at random, from a stream of its own for each member.

    Args:
        view: the buffer.
        purpose: what the draws are for; it names the stream.
    """

    def __init__(self, view: BufferView, purpose: str) -> None:
        self.stream = view.stream(purpose)
        self._key = f"{purpose}_stream"

    def state_dict(self, stored: int) -> State:
        """Return the stream."""
        return {self._key: self.stream.state}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from `state_dict`."""
        self.stream.state[:] = state[self._key]
