"""Recurrent networks for a population: an LSTM over observations, then a fully connected head.

They replace fully connected networks under partial observability (Novati & Koumoutsakos 2019). Parameters and gradient
are one flat row per member. The passes correspond to `mlp.forward` and `mlp.backward`, but each sample is a segment of
successive observations instead of one observation. An action joins after the LSTM.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from replaybench.controllers.networks.lstm import (
    Lengths,
    LSTMNetwork,
    LSTMShape,
    LSTMTape,
    PopulationLSTM,
    lstm_backward,
    lstm_forward,
    lstm_state,
)
from replaybench.controllers.networks.mlp import (
    MOST_TAPES,
    Network,
    PopulationMLP,
    Scheme,
    Shape,
    Tape,
    backward,
    forward,
)
from replaybench.runtime.arrays import AnyFloats
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import Stream


class RecurrentNetwork(NamedTuple):
    """View for kernels: `trunk` and `head` in the same `parameters` and `gradient` `[M, P]`."""

    parameters: AnyFloats
    gradient: AnyFloats
    trunk: LSTMNetwork
    head: Network


class Histories(NamedTuple):
    """Inputs of a recurrent network: for each sample the observations that end with its own.

    `observation` `[M, B, T, S]` begins with the oldest; after the `length` `[M, B]` steps of a sample, values must be
    finite. `memory` `[M, B, H]` is the state before the first step; H = 0 means zero. For one member, M is missing.
    """

    observation: AnyFloats
    length: Lengths
    memory: AnyFloats


class RecurrentTape(NamedTuple):
    """Work space of one member's pass over B segments of at most T steps, read by its backward pass.

    `place` is the first column of this network's state in `Histories.memory`. `initial` `[B, 2 · L · U]` is the state
    before the first step, and `length` `[B]` the number of steps of each segment. `joined` `[B, U + A]` holds features
    and action, `d_joined` the gradient to them.
    """

    trunk: LSTMTape
    head: Tape
    place: int
    initial: AnyFloats
    length: Lengths
    joined: AnyFloats
    d_joined: AnyFloats


@dataclass(frozen=True)
class RecurrentShape:
    """An LSTM `trunk`, and a `head` `Shape((0, …), actions=U + A, inject=0)` for its features and an action."""

    trunk: LSTMShape
    head: Shape

    @property
    def actions(self) -> int:
        """Size of the action that joins after the trunk."""
        return self.head.actions - self.trunk.units

    @property
    def parameter_count(self) -> int:
        """Weights and biases of one member."""
        return self.trunk.parameter_count + self.head.parameter_count

    @property
    def state_size(self) -> int:
        """Size of the state of one member."""
        return self.trunk.state_size


class PopulationRecurrent:
    """M recurrent networks of one shape.

    Attributes:
        parameters, gradient: `[M, P]`, each member's trunk (as in `PopulationLSTM`), then head (`PopulationMLP`).
        network: the view for kernels; it shares memory with both arrays.
    """

    def __init__(self, shape: RecurrentShape, members: int, dtype: DTypeLike = np.float32) -> None:
        self.shape = shape
        self.parameters = np.zeros((members, shape.parameter_count), dtype)
        self.gradient = np.zeros_like(self.parameters)
        self._kept_tape = lru_cache(MOST_TAPES)(self.tape)
        self._trunk, self._head = PopulationLSTM(shape.trunk, members, dtype), PopulationMLP(shape.head, members, dtype)
        plan, offset = self._head.network.plan.copy(), shape.trunk.parameter_count
        plan[:, 2] += offset
        self.network = RecurrentNetwork(
            self.parameters,
            self.gradient,
            self._trunk.network._replace(parameters=self.parameters, gradient=self.gradient),
            self._head.network._replace(parameters=self.parameters, gradient=self.gradient, plan=plan),
        )
        self._trunk.parameters, self._head.parameters = self.parameters[:, :offset], self.parameters[:, offset:]

    def initialise(
        self, stream: Stream, scheme: Scheme = "fan_in", output_scale: float = 1.0, output_bound: float | None = None
    ) -> None:
        """Draw the weights of the trunk as an LSTM does, then those of the head as `PopulationMLP` does."""
        self._trunk.initialise(stream)
        self._head.initialise(stream, scheme, output_scale, output_bound)

    def named_weights(self, name: str) -> dict[str, AnyFloats]:
        """Return views of all weights: `{name}.trunk.…` (an LSTM) and `{name}.head.…`."""
        return self._trunk.named_weights(f"{name}.trunk") | self._head.named_weights(f"{name}.head")

    def tape(self, segments: int, steps: int = 1, reach: int | None = None, place: int = 0) -> RecurrentTape:
        """Allocate work space for segments of `steps` steps; gradients reach the last `reach` steps (None: all)."""
        dtype = self.parameters.dtype
        joined = np.zeros((segments, self.shape.head.actions), dtype)
        return RecurrentTape(
            self._trunk.tape(segments, steps, reach),
            self._head.tape(segments),
            place,
            np.zeros((segments, self.shape.state_size), dtype),
            np.ones(segments, np.int64),
            joined,
            np.zeros_like(joined),
        )

    def step(self, x: AnyFloats, state: AnyFloats, action: AnyFloats | None = None) -> tuple[AnyFloats, AnyFloats]:
        """Evaluate one step of N sequences per member: x `[M, N, in]`, state `[M, N, 2 · L · U]`, action `[M, N, A]`.

        Return the output `[M, N, out]`, and the next state, which does not depend on the action.
        """
        dtype, (members, sequences) = self.parameters.dtype, x.shape[:2]
        joined = np.zeros((members, sequences, self.shape.actions)) if action is None else action
        out = np.empty((members, sequences, self.shape.head.sizes[-1]), dtype)
        next_state = np.empty((members, sequences, self.shape.state_size), dtype)
        tape = self._kept_tape(sequences)
        inputs = [np.ascontiguousarray(array, dtype) for array in (x, state, joined)]
        _step_all(self.network, tape, inputs[0], inputs[1], inputs[2], out, next_state)
        return out, next_state

    def __call__(self, x: AnyFloats, action: AnyFloats | None = None) -> AnyFloats:
        """Evaluate all members in the first step of an episode: x `[M, N, in]`, action `[M, N, A]` → `[M, N, out]`."""
        return self.step(x, np.zeros((*x.shape[:2], self.shape.state_size), self.parameters.dtype), action)[0]


@kernel
def recurrent_forward(
    net: RecurrentNetwork, m: int, tape: RecurrentTape, x: Histories, action: AnyFloats, out: AnyFloats
) -> None:
    """Evaluate member m at the end of each of its segments: action `[B, A]` → out `[B, out]`."""
    joined, units, batch = tape.joined[: x.length.size], net.trunk.units, x.length.size
    tape.initial[:] = 0
    if x.memory.shape[1] > 0:
        for b in range(batch):
            for k in range(tape.initial.shape[1]):
                tape.initial[b, k] = x.memory[b, tape.place + k]
    tape.length[:batch] = x.length
    lstm_forward(net.trunk, m, tape.trunk, x.observation, x.length, tape.initial, joined)
    for b in range(batch):
        for a in range(action.shape[1]):
            joined[b, units + a] = action[b, a]
    forward(net.head, m, tape.head, np.empty((batch, 0), joined.dtype), joined, out)


@kernel
def recurrent_backward(
    net: RecurrentNetwork, m: int, tape: RecurrentTape, d_out: AnyFloats, want_weights: bool, d_action: AnyFloats
) -> None:
    """Propagate the loss gradient d_out `[B, out]` of member m back through its last `recurrent_forward`.

    With `want_weights`, overwrite the member's `gradient`. Write the gradient to the action to d_action `[B, A]`;
    `[B, 0]` skips it. B must be the tape's number of segments.
    """
    d_joined, units = tape.d_joined, net.trunk.units
    backward(net.head, m, tape.head, d_out, want_weights, d_joined)
    for row in range(d_action.shape[0]):
        for a in range(d_action.shape[1]):
            d_action[row, a] = d_joined[row, units + a]
    if want_weights:
        lstm_backward(net.trunk, m, tape.trunk, tape.length, d_joined)


@kernel
def _step_all(
    net: RecurrentNetwork, tape: RecurrentTape, x: AnyFloats, state: AnyFloats, action: AnyFloats, out: AnyFloats,
    next_state: AnyFloats,
) -> None:  # fmt: skip
    length = np.ones(x.shape[1], np.int64)
    for m in range(x.shape[0]):
        one = x[m].reshape(x.shape[1], 1, x.shape[2])
        recurrent_forward(net, m, tape, Histories(one, length, state[m]), action[m], out[m])
        lstm_state(net.trunk, tape.trunk, length, next_state[m])
