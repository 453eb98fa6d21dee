"""Networks with optimiser and target network, for feed-forward and recurrent policies.

`evaluate` and `differentiate` call the functions of the network's type: `forward` and `backward` of `mlp`, or
`recurrent_forward` and `recurrent_backward` of `recurrent`. So a learner's update is written once. Feed-forward
networks are evaluated on observations, recurrent ones on segments that end with these observations. Parameters
and gradient of both are one flat row per member.
"""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from numba.extending import overload
from numpy.typing import DTypeLike

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
from replaybench.runtime.arrays import AnyFloats, Floats32, Integers
from replaybench.runtime.configuration import Number, Settings, Units, Within


@dataclass(frozen=True, kw_only=True)
class MemoryConfig(Settings):
    """LSTMs for partially observed plants, with the numbers of Novati & Koumoutsakos (2019): 2 layers of 32 units.

    Each network begins with its LSTM layers; a critic's action joins after them. The paper's networks have LSTM layers
    only (`hidden = []`). Errors are propagated back over `window` steps.

    The paper does not state an LSTM's state at the start of a window. `stored`: the state in which the step was
    collected; every experience then stores 2 · layers · units numbers per network. `burn-in`: zero, `burn_in` steps
    earlier; nothing is learned from these steps (both in Kapturowski et al. 2019). `zero`: zero.

    Before training, an LSTM keeps the fraction 1/(1 + exp(−`forget_bias`)) of its cells from step to step. A bias of 1
    keeps most, as long lags need. −4 is better if a controller must react to the latest observation and the first
    episodes are short.
    """

    layers: Number = 2
    units: Units = 32
    window: Annotated[int, Within(2, 10**6, "steps")] = 16
    start: Literal["stored", "burn-in", "zero"] = "stored"
    burn_in: Number = 8
    forget_bias: Annotated[float, Within(-10, 10)] = 1.0

    @property
    def steps(self) -> int:
        """Number of steps that are replayed with each sample, including its own."""
        return self.window + (self.burn_in if self.start == "burn-in" else 0)


Approximator = Network | RecurrentNetwork
AnyTape = Tape | RecurrentTape
Population = PopulationMLP | PopulationRecurrent
Inputs = AnyFloats | Histories
"""Observations `[M, B, S]`, or segments that end with them; for one member, without the axis M."""


class TrainState(NamedTuple):
    """The arrays of one network of all members, for compiled updates.

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
    """Return M networks of a shape; with a `config`, an LSTM comes first and the action joins after it."""
    if config is None:
        return PopulationMLP(shape, members, dtype)
    trunk = LSTMShape(shape.sizes[0], config.layers, config.units, config.forget_bias)
    head = dataclasses.replace(shape, sizes=(0, *shape.sizes[1:]), actions=config.units + shape.actions, inject=0)
    return PopulationRecurrent(RecurrentShape(trunk, head), members, dtype)


def evaluate(net: Approximator, m: int, tape: AnyTape, x: Inputs, action: AnyFloats, out: AnyFloats) -> None:
    """Evaluate member m: inputs of B samples, action `[B, A]` (`[B, 0]` if none joins) → out `[B, out]`.

    Only compiled code can call this function and those below; Numba replaces them (`overload`).
    """
    raise NotImplementedError


def differentiate(
    net: Approximator, m: int, tape: AnyTape, d_out: AnyFloats, want_weights: bool, d_action: AnyFloats
) -> None:
    """Propagate the loss gradient d_out `[B, out]` of member m back through its last `evaluate`.

    With `want_weights`, overwrite the member's `gradient`. Write the gradient to the action to d_action `[B, A]`;
    `[B, 0]` skips it.
    """
    raise NotImplementedError


def of_member(x: Inputs, m: int) -> Inputs:
    """Return the inputs of member m, as views."""
    raise NotImplementedError


def of_samples(x: Inputs, samples: Integers) -> Inputs:
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


def _is(numba_type: Any, cls: type) -> bool:
    return getattr(numba_type, "instance_class", None) is cls


Squash = Literal["none", "tanh", "clip"]


class PolicyHead(NamedTuple):
    """How a learner's greedy action is computed from a network.

    Attributes:
        network: the network of all members.
        first, width: index of the first output that is used, and number of used outputs.
        squash: the function that maps these outputs to [−1, 1]; "none" if they already lie there.
        table: for discrete actions, the action `[width, A]` of each output; the largest output selects its action.
    """

    network: Population
    first: int
    width: int
    squash: Squash = "none"
    table: Floats32 | None = None
