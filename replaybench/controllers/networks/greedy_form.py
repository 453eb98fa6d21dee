"""The greedy policy of any learner in one form, from which other programs can rebuild it."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.networks.network import Population

Squash = Literal["none", "tanh", "clip"]


class PolicyForm(NamedTuple):
    """How a learner's greedy action is computed from a network.

    Attributes:
        network: the network, of one member.
        first, width: the first of the outputs that are used, and their number.
        squash: how they are brought into [−1, 1]; "none" if they lie there.
        table: for discrete actions, `[width, A]`: the action of each output; the largest output chooses.
    """

    network: Population
    first: int
    width: int
    squash: Squash = "none"
    table: NDArray[np.float32] | None = None
