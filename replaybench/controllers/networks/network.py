"""`evaluate` and `differentiate`: one name for the passes of every kind of network, told apart when compiled.

A learner's update is then written once, for fully connected networks, evaluated on observations, and recurrent ones,
evaluated on the segments that end with these. What it needs beyond, parameters and gradient as one flat row a member,
both have.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload
from numpy.typing import DTypeLike, NDArray

from replaybench.controllers.memory.config import MemoryConfig
from replaybench.controllers.networks.adam import Adam
from replaybench.controllers.networks.lstm import LSTMNetwork, LSTMShape
from replaybench.controllers.networks.mlp import Floats, Network, PopulationMLP, Shape, Tape, backward, forward
from replaybench.controllers.networks.recurrent import (
    Histories,
    PopulationRecurrent,
    RecurrentNetwork,
    RecurrentShape,
    RecurrentTape,
    recurrent_backward,
    recurrent_forward,
)
from replaybench.data.errors import UserError
from replaybench.data.kernel import kernel

Approximator = Network | RecurrentNetwork
AnyTape = Tape | RecurrentTape
Population = PopulationMLP | PopulationRecurrent
Inputs = Floats | Histories
"""Observations `[M, B, S]`, or segments that end with them; of one member, without M."""


class Learned(NamedTuple):
    """A network with all that its update works on.

    Attributes:
        network, tape: an `Approximator`, and room for one member's pass; which kind is known when kernels are compiled.
        slow: parameters `[M, P]` of its slow copy, its own where it has none; see `slow_copy`.
        adam: its optimiser.
    """

    network: Any
    slow: Floats
    adam: Adam
    tape: Any


def make_network(config: MemoryConfig | None, shape: Shape, members: int, dtype: DTypeLike) -> Population:
    """Return networks of a shape; with a memory behind an LSTM, the action joining right there."""
    if config is None:
        return PopulationMLP(shape, members, dtype)
    trunk = LSTMShape(shape.sizes[0], config.layers, config.units, config.forget_bias)
    head = dataclasses.replace(shape, sizes=(0, *shape.sizes[1:]), actions=config.units + shape.actions, inject=0)
    return PopulationRecurrent(RecurrentShape(trunk, head), members, dtype)


def feed_forward(network: Population, purpose: str) -> PopulationMLP:
    """Return a network that has no memory.

    Raises:
        UserError: it has; `purpose` says what needs one that has not.
    """
    if not isinstance(network, PopulationMLP):
        raise UserError(f"{purpose} needs a network without memory; leave memory out of the learner's settings")
    return network


def evaluate(net: Approximator, m: int, tape: AnyTape, x: Inputs, action: Floats, out: Floats) -> None:
    """Evaluate member m: its own inputs of B samples, action `[B, A]` (`[B, 0]` where none joins) → out `[B, out]`.

    Only compiled code calls it, as it does all functions here.
    """
    raise NotImplementedError


def differentiate(
    net: Approximator, m: int, tape: AnyTape, d_out: Floats, want_weights: bool, d_action: Floats
) -> None:
    """Propagate the loss gradient d_out `[B, out]` of member m back through its last `evaluate`.

    With `want_weights` the member's `gradient` is overwritten; d_action `[B, A]` is filled, `[B, 0]` skips it.
    """
    raise NotImplementedError


def outputs_of(net: Approximator) -> int:
    """Return how many numbers a network puts out."""
    raise NotImplementedError


def slow_copy(learned: Learned) -> Any:
    """Return the slow copy of a network, to be evaluated and never differentiated."""
    raise NotImplementedError


def of_member(x: Inputs, m: int) -> Inputs:
    """Return the inputs of member m, as views."""
    raise NotImplementedError


def of_samples(x: Inputs, samples: NDArray[np.int64]) -> Inputs:
    """Return a member's inputs of these samples only, as copies."""
    raise NotImplementedError


@overload(evaluate, strict=False)
def _evaluate(net: Any, m: Any, tape: Any, x: Any, action: Any, out: Any) -> Any:
    if _is(net, Network):
        return lambda net, m, tape, x, action, out: forward(net, m, tape, x, action, out)
    if _is(net, RecurrentNetwork):
        return lambda net, m, tape, x, action, out: recurrent_forward(net, m, tape, x, action, out)
    return None


@overload(differentiate, strict=False)
def _differentiate(net: Any, m: Any, tape: Any, d_out: Any, want_weights: Any, d_action: Any) -> Any:
    if _is(net, Network):
        return lambda net, m, tape, d_out, want_weights, d_action: backward(net, m, tape, d_out, want_weights, d_action)
    if _is(net, RecurrentNetwork):
        return lambda net, m, tape, d_out, want_weights, d_action: recurrent_backward(
            net, m, tape, d_out, want_weights, d_action
        )
    return None


@overload(outputs_of, strict=False)
def _outputs_of(net: Any) -> Any:
    if _is(net, Network):
        return lambda net: net.plan[-1, 0]
    if _is(net, RecurrentNetwork):
        return lambda net: net.head.plan[-1, 0]
    return None


@overload(slow_copy, strict=False)
def _slow_copy(learned: Any) -> Any:
    # One view more would cost a microsecond each update on its way into compiled code.
    if _is(learned.types[0], Network):
        return lambda learned: _with_parameters(learned.network, learned.slow)
    if _is(learned.types[0], RecurrentNetwork):
        return lambda learned: RecurrentNetwork(
            learned.slow,
            learned.network.gradient,
            LSTMNetwork(
                learned.slow, learned.network.gradient, learned.network.trunk.plan, learned.network.trunk.units
            ),
            _with_parameters(learned.network.head, learned.slow),
        )
    return None


@kernel
def _with_parameters(net: Network, parameters: Floats) -> Network:
    return Network(parameters, net.gradient, net.plan, net.inject, net.actions, net.activation, net.tanh)


@overload(of_member, strict=False)
def _of_member(x: Any, m: Any) -> Any:
    if _is(x, Histories):
        return lambda x, m: Histories(x.observation[m], x.length[m], x.memory[m])
    return lambda x, m: x[m]


@overload(of_samples, strict=False)
def _of_samples(x: Any, samples: Any) -> Any:
    if _is(x, Histories):
        return lambda x, samples: Histories(x.observation[samples], x.length[samples], x.memory[samples])
    return lambda x, samples: x[samples]


def _is(kind: Any, named: type) -> bool:
    """Whether `kind`, a type of Numba's, stands for the class `named`."""
    return getattr(kind, "instance_class", None) is named
