"""The greedy policy of any learner in one form, from which it can be rebuilt outside this package."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.networks.network import Population

Squash = Literal["none", "tanh", "clip"]


class PolicyForm(NamedTuple):
    """How a learner's greedy action comes from a network: what to take of its outputs, and what to do with it.

    Attributes:
        network: the network, of one member; where it is recurrent, the action depends on its memory, too.
        first, width: where its outputs that matter begin, and how many they are.
        squash: what brings them into [−1, 1]; they are there already where it is "none".
        table: where actions are discrete, `[width, A]`: the action of each output; the largest output chooses.
    """

    network: Population
    first: int
    width: int
    squash: Squash = "none"
    table: NDArray[np.float32] | None = None
