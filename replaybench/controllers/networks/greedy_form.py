"""The greedy policy of any learner in one form, from which it can be rebuilt outside this package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.networks.mlp import Floats, PopulationMLP
from replaybench.controllers.networks.network import Population
from replaybench.data.compilation.sequence import Call, Whole
from replaybench.data.kernel import kernel

Squash = Literal["none", "tanh", "clip"]
_TANH, _CLIP = (get_args(Squash).index(name) for name in ("tanh", "clip"))
_NO_TABLE: Final = np.zeros((0, 0), np.float32)


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

    def acting(self, observation: Floats) -> tuple[Floats, Sequence[Call]] | None:
        """Return the greedy actions `[M, A]` for contiguous observations `[M, S]`, and the calls that fill them in.

        None where the network is recurrent.
        """
        if not isinstance(self.network, PopulationMLP):
            return None
        evaluation, outputs = self.network.evaluating(observation[:, None])
        table = _NO_TABLE if self.table is None else self.table
        action = np.empty((len(outputs), self.width if self.table is None else table.shape[1]), outputs.dtype)
        squash = get_args(Squash).index(self.squash)
        return action, [evaluation, Call(_choose, (outputs, self.first, squash, Whole(table), action))]


@kernel
def _choose(outputs: Floats, first: int, squash: int, table: NDArray[np.float32], action: Floats) -> None:
    """Write the actions `[M, A]` that outputs `[M, 1, O]` stand for; NaN where one of them is, and passes."""
    for m in range(action.shape[0]):
        best, failed = first, False
        for k in range(first, first + table.shape[0]):
            failed |= np.isnan(outputs[m, 0, k])
            if outputs[m, 0, k] > outputs[m, 0, best]:
                best = k
        for a in range(action.shape[1]):
            if table.shape[0] > 0:
                action[m, a] = np.nan if failed else table[best - first, a]
            else:
                said = outputs[m, 0, first + a]
                if squash == _TANH:
                    said = np.tanh(said)
                elif squash == _CLIP:
                    said = 1 if said > 1 else -1 if said < -1 else said
                action[m, a] = said
