"""`evaluate` and `differentiate`: one name for the passes of every kind of network, told apart when compiled.

A learner's update is then written once, for fully connected and recurrent networks. What it needs beyond, parameters
and gradient as one flat row a member, both have.
"""

from __future__ import annotations

from typing import Any

from numba.extending import overload

from replaybench.controllers.layers import Floats, Network, PopulationMLP, Tape, backward, forward
from replaybench.controllers.recurrent import (
    PopulationRecurrent,
    RecurrentNetwork,
    RecurrentTape,
    recurrent_backward,
    recurrent_forward,
)

Approximator = Network | RecurrentNetwork
AnyTape = Tape | RecurrentTape
Population = PopulationMLP | PopulationRecurrent


def evaluate(net: Approximator, m: int, tape: AnyTape, x: Floats, action: Floats, out: Floats) -> None:
    """Evaluate member m: x `[rows, in]`, action `[rows, A]` (`[rows, 0]` where none joins) → out `[rows, out]`.

    Only compiled code calls it. Rows of a recurrent network are those of segments: row t · B + b.
    """
    raise NotImplementedError


def differentiate(
    net: Approximator, m: int, tape: AnyTape, d_out: Floats, want_weights: bool, d_action: Floats
) -> None:
    """Propagate the loss gradient d_out `[rows, out]` of member m back through its last `evaluate`.

    With `want_weights` the member's `gradient` is overwritten; d_action `[rows, A]` is filled, `[rows, 0]` skips it.
    Only compiled code calls it.
    """
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


def _is(net: Any, kind: type) -> bool:
    """Whether `net`, a type of Numba's, stands for `kind`."""
    return getattr(net, "instance_class", None) is kind
