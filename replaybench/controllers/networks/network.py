"""`evaluate` and `differentiate`: one name for the passes of every kind of network, told apart when compiled.

A learner's update is then written once, for fully connected networks, evaluated on observations, and recurrent ones,
evaluated on the segments that end with these. What it needs beyond, parameters and gradient as one flat row a member,
both have.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from replaybench.controllers.networks.mlp import Floats, Network, PopulationMLP, Tape, backward, forward
from replaybench.controllers.networks.recurrent import (
    PopulationRecurrent,
    RecurrentNetwork,
    RecurrentTape,
    Segments,
    recurrent_backward,
    recurrent_forward,
)

Approximator = Network | RecurrentNetwork
AnyTape = Tape | RecurrentTape
Population = PopulationMLP | PopulationRecurrent
Inputs = Floats | Segments
"""Observations `[M, B, S]`, or segments that end with them; of one member, without M."""


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


@overload(of_member, strict=False)
def _of_member(x: Any, m: Any) -> Any:
    if _is(x, Segments):
        return lambda x, m: Segments(x.observation[m], x.length[m], x.memory[m])
    return lambda x, m: x[m]


@overload(of_samples, strict=False)
def _of_samples(x: Any, samples: Any) -> Any:
    if _is(x, Segments):
        return lambda x, samples: Segments(x.observation[samples], x.length[samples], x.memory[samples])
    return lambda x, samples: x[samples]


def _is(kind: Any, named: type) -> bool:
    """Whether `kind`, a type of Numba's, stands for the class `named`."""
    return getattr(kind, "instance_class", None) is named
