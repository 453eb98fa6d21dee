"""Networks with optimiser and target network, for feed-forward and recurrent policies.

`evaluate` and `differentiate` call the functions of the network's type: `forward` and `backward` of `mlp`, or
`recurrent_forward` and `recurrent_backward` of `recurrent`. So a learner's update is written once. Feed-forward
networks are evaluated on observations, recurrent ones on the segments that end with these. Parameters and gradient of
both are one flat row per member.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numba.extending import overload
from numpy.typing import DTypeLike, NDArray

from replaybench.controllers.networks.adam import Adam
from replaybench.controllers.networks.lstm import LSTMShape
from replaybench.controllers.networks.mlp import Network, PopulationMLP, Shape, Tape, backward, forward
from replaybench.controllers.networks.recurrent import (
    Histories,
    PopulationRecurrent,
    RecurrentNetwork,
    RecurrentShape,
    RecurrentTape,
    recurrent_backward,
    recurrent_forward,
)
from replaybench.runtime.arrays import AnyFloats
from replaybench.runtime.configuration import Number, Settings, Units, Within


@dataclass(frozen=True, kw_only=True)
class MemoryConfig(Settings):
    """LSTMs for partially observed plants, with the numbers of Novati & Koumoutsakos (2019): 2 layers of 32 units.

    They come before the layers of each network; a critic's action joins after them. The paper has LSTMs only:
    `hidden = []`. Errors are propagated back over `window` steps.

    The paper does not state in which state a window starts. `stored`: in the state at which the step was collected,
    2 · layers · units numbers of each recurrent network, stored with every experience. `burn-in`: in zero, `burn_in`
    steps earlier, without learning from these (both in Kapturowski et al. 2019). `zero`: in zero.

    At first an LSTM keeps the share 1/(1 + exp(−`forget_bias`)) of its cells from step to step. At 1 it keeps much, as
    long lags need. −4 is better where a controller has to react to the latest observation and first episodes are short.
    """

    layers: Number = 2
    units: Units = 32
    window: Annotated[int, Within(2, 10**6, "steps")] = 16
    start: Literal["stored", "burn-in", "zero"] = "stored"
    burn_in: Number = 8
    forget_bias: Annotated[float, Within(-10, 10)] = 1.0

    @property
    def steps(self) -> int:
        """Number of steps that are replayed with each sample, its own included."""
        return self.window + (self.burn_in if self.start == "burn-in" else 0)


Approximator = Network | RecurrentNetwork
AnyTape = Tape | RecurrentTape
Population = PopulationMLP | PopulationRecurrent
Inputs = AnyFloats | Histories
"""Observations `[M, B, S]`, or segments that end with them; of one member, without M."""


class TrainState(NamedTuple):
    """The arrays that a compiled update of one network, of all members, uses.

    Attributes:
        network, target: the network and its target network, an `Approximator` each; `target` is the network itself if
            there is no target network.
        adam: the optimiser.
        tape: work space of one member's pass.
    """

    network: Any
    target: Any
    adam: Adam
    tape: Any


def make_network(config: MemoryConfig | None, shape: Shape, members: int, dtype: DTypeLike) -> Population:
    """Return networks of a shape; recurrent ones have an LSTM before it, after which the action joins."""
    if config is None:
        return PopulationMLP(shape, members, dtype)
    trunk = LSTMShape(shape.sizes[0], config.layers, config.units, config.forget_bias)
    head = dataclasses.replace(shape, sizes=(0, *shape.sizes[1:]), actions=config.units + shape.actions, inject=0)
    return PopulationRecurrent(RecurrentShape(trunk, head), members, dtype)


def evaluate(net: Approximator, m: int, tape: AnyTape, x: Inputs, action: AnyFloats, out: AnyFloats) -> None:
    """Evaluate member m: its inputs of B samples, action `[B, A]` (`[B, 0]` where none joins) → out `[B, out]`.

    Only compiled code can call this function and those below; Numba replaces them (`overload`).
    """
    raise NotImplementedError


def differentiate(
    net: Approximator, m: int, tape: AnyTape, d_out: AnyFloats, want_weights: bool, d_action: AnyFloats
) -> None:
    """Propagate the loss gradient d_out `[B, out]` of member m back through its last `evaluate`.

    With `want_weights` the member's `gradient` is overwritten; d_action `[B, A]` is filled, `[B, 0]` skips it.
    """
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
    return lambda net, m, tape, x, action, out: recurrent_forward(net, m, tape, x, action, out)


@overload(differentiate, strict=False)
def _differentiate(net: Any, m: Any, tape: Any, d_out: Any, want_weights: Any, d_action: Any) -> Any:
    if _is(net, Network):
        return lambda net, m, tape, d_out, want_weights, d_action: backward(net, m, tape, d_out, want_weights, d_action)
    return lambda net, m, tape, d_out, want_weights, d_action: recurrent_backward(
        net, m, tape, d_out, want_weights, d_action
    )


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
    """Return whether `kind`, one of Numba's types, stands for the class `named`."""
    return getattr(kind, "instance_class", None) is named


Squash = Literal["none", "tanh", "clip"]


class PolicyHead(NamedTuple):
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
