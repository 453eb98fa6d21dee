"""Recurrent networks of M members, with an LSTM over observations before fully connected layers.

Recurrent networks are used if the plant is partially observed (Novati & Koumoutsakos 2019). Forward and backward pass
correspond to those of `mlp`, but each sample is a segment of successive observations. An action joins after the LSTM.
The parameters of a member are one row of an array.
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
    differentiate_lstm,
    evaluate_lstm,
    lstm_state,
)
from replaybench.controllers.networks.mlp import (
    MOST_TAPES,
    Network,
    PopulationMLP,
    Shape,
    Tape,
    differentiate_mlp,
    evaluate_mlp,
)
from replaybench.runtime.arrays import AnyFloats
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import Stream


class RecurrentNetwork(NamedTuple):
    """The arrays of M recurrent networks, for compiled functions.

    `trunk` are the LSTM layers and `head` the fully connected layers. The arrays `parameters` and `gradient` `[M, P]`
    contain the P parameters of each network, and the gradient of a loss, for all these layers.
    """

    parameters: AnyFloats
    gradient: AnyFloats
    trunk: LSTMNetwork
    head: Network


class Histories(NamedTuple):
    """The inputs of a recurrent network, B segments of at most T steps for each member.

    Each sample is the last step of its segment. For one member, the axis M is missing.

    Attributes:
        observation: Observations, oldest first, shape `[M, B, T, S]`. Entries after the end of a segment must be
            finite.
        length: Number of steps of each segment, shape `[M, B]`.
        memory: State before the first step, with H numbers; shape `[M, B, H]`. H = 0 means a zero state.
    """

    observation: AnyFloats
    length: Lengths
    memory: AnyFloats


class RecurrentTape(NamedTuple):
    """The intermediate results of a recurrent network's forward pass over B segments, for the backward pass.

    `trunk` has the work arrays of an LSTM with L layers of U units. `head` has those of the fully connected layers.
    `place` is the first column of this network's state in `Histories.memory`. `initial` `[B, 2 · L · U]` is the state
    before the first step, and `length` `[B]` is the number of steps of each segment. `joined` `[B, U + A]` contains the
    outputs of the LSTM and the action, and `d_joined` contains the gradient with respect to `joined`.
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
    """The shape of a recurrent network, with an LSTM of U units as `trunk` and fully connected layers as `head`.

    The head is `Shape((0, …), actions=U + A, inject=0)`, because its inputs are the outputs of the LSTM and an action.
    """

    trunk: LSTMShape
    head: Shape

    @property
    def actions(self) -> int:
        """Size of the action that joins after the LSTM."""
        return self.head.actions - self.trunk.units

    @property
    def parameter_count(self) -> int:
        """Number of weights and biases of one network with this shape."""
        return self.trunk.parameter_count + self.head.parameter_count

    @property
    def state_size(self) -> int:
        """Size of the recurrent state of one network."""
        return self.trunk.state_size


class PopulationRecurrent:
    """The recurrent networks of M members, all of the same shape.

    Attributes:
        parameters: P parameters of each member, shape `[M, P]`, first of the LSTM, then of the fully connected layers.
        gradient: Gradient of a loss with respect to the parameters, shape `[M, P]`.
        network: A tuple for compiled functions. It shares memory with `parameters` and `gradient`.
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

    def initialise(self, stream: Stream) -> None:
        """Draw the weights of the LSTM, then those of the fully connected layers as `PopulationMLP.initialise` does."""
        self._trunk.initialise(stream)
        self._head.initialise(stream)

    def named_weights(self, name: str) -> dict[str, AnyFloats]:
        """Return views of the LSTM's parameters, named `{name}.trunk.…`, and of the others, named `{name}.head.…`."""
        return self._trunk.named_weights(f"{name}.trunk") | self._head.named_weights(f"{name}.head")

    def tape(self, segments: int, steps: int = 1, reach: int | None = None, place: int = 0) -> RecurrentTape:
        """Allocate the work arrays of passes over a number of segments with at most `steps` steps.

        Gradients flow through the last `reach` steps, by default through all steps. `place` is the first column of this
        network's state in `Histories.memory`.
        """
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
        """Return the outputs `[M, N, out]` and next states for one step of N sequences of each member.

        The inputs `x` have shape `[M, N, in]`. The states before and after the step have shape `[M, N, 2 · L · U]`, for
        L layers of U units. Actions `[M, N, A]` do not influence the next states.
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
        """Return the outputs `[M, N, out]` for N inputs `[M, N, in]` of each network, each with a zero state."""
        return self.step(x, np.zeros((*x.shape[:2], self.shape.state_size), self.parameters.dtype), action)[0]


@kernel
def evaluate_recurrent(
    net: RecurrentNetwork, m: int, tape: RecurrentTape, x: Histories, action: AnyFloats, out: AnyFloats
) -> None:
    """Compute the outputs of the m-th recurrent network at the end of B segments, and write them to `out` `[B, out]`.

    `action` has shape `[B, A]`, or `[B, 0]` if the network takes no action. `tape` stores the intermediate results that
    `differentiate_recurrent` needs.
    """
    joined, units, batch = tape.joined[: x.length.size], net.trunk.units, x.length.size
    tape.initial[:] = 0
    if x.memory.shape[1] > 0:
        for b in range(batch):
            for k in range(tape.initial.shape[1]):
                tape.initial[b, k] = x.memory[b, tape.place + k]
    tape.length[:batch] = x.length
    evaluate_lstm(net.trunk, m, tape.trunk, x.observation, x.length, tape.initial, joined)
    for b in range(batch):
        for a in range(action.shape[1]):
            joined[b, units + a] = action[b, a]
    evaluate_mlp(net.head, m, tape.head, np.empty((batch, 0), joined.dtype), joined, out)


@kernel
def differentiate_recurrent(
    net: RecurrentNetwork, m: int, tape: RecurrentTape, d_out: AnyFloats, want_weights: bool, d_action: AnyFloats
) -> None:
    """Propagate the gradient of a loss back through the last `evaluate_recurrent` of the m-th network.

    The arguments are those of `differentiate`. The number of samples must be the number of segments of `tape`.
    """
    d_joined, units = tape.d_joined, net.trunk.units
    differentiate_mlp(net.head, m, tape.head, d_out, want_weights, d_joined)
    for row in range(d_action.shape[0]):
        for a in range(d_action.shape[1]):
            d_action[row, a] = d_joined[row, units + a]
    if want_weights:
        differentiate_lstm(net.trunk, m, tape.trunk, tape.length, d_joined)


@kernel
def _step_all(
    net: RecurrentNetwork, tape: RecurrentTape, x: AnyFloats, state: AnyFloats, action: AnyFloats, out: AnyFloats,
    next_state: AnyFloats,
) -> None:  # fmt: skip
    length = np.ones(x.shape[1], np.int64)
    for m in range(x.shape[0]):
        one = x[m].reshape(x.shape[1], 1, x.shape[2])
        evaluate_recurrent(net, m, tape, Histories(one, length, state[m]), action[m], out[m])
        lstm_state(net.trunk, tape.trunk, length, next_state[m])
