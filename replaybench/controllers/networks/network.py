"""Feed-forward and recurrent networks under one interface, with optimiser and target network.

The compiled functions `evaluate` and `differentiate` call those of `mlp` or `recurrent`. The update of a learner is
therefore written once. Feed-forward networks are evaluated on observations, recurrent networks on segments that end
with these observations. The parameters of each network are one row of an array.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numba.core.types import Type
from numba.extending import overload
from numpy.typing import DTypeLike

from replaybench.controllers.networks.adam import Adam, AdamSettings, make_adam
from replaybench.controllers.networks.lstm import LSTMShape
from replaybench.controllers.networks.mlp import Network, PopulationMLP, Shape, Tape, differentiate_mlp, evaluate_mlp
from replaybench.controllers.networks.recurrent import (
    Histories,
    PopulationRecurrent,
    RecurrentNetwork,
    RecurrentShape,
    RecurrentTape,
    differentiate_recurrent,
    evaluate_recurrent,
)
from replaybench.data.batch import MEMORY, ReplayBatch
from replaybench.runtime.arrays import AnyFloats, Bools, Floats32
from replaybench.runtime.configuration import Number, Settings, Units, Within


@dataclass(frozen=True, kw_only=True)
class MemoryConfig(Settings):
    """Settings of the LSTM layers at the input of networks, for partially observed plants.

    The action of a critic joins after the LSTM layers. The defaults of 2 layers with 32 units are those of Novati &
    Koumoutsakos (2019). Their networks have no other hidden layers (`hidden = []`). Gradients are propagated back over
    `window` steps.

    Their paper does not state an LSTM's state at the start of the window of steps that is replayed with each sample.
    `start` selects one of three states:

    - `stored`: The state in which the experience was collected (Kapturowski et al. 2019). Every experience then stores
      2 · layers · units numbers per network.
    - `burn-in`: A zero state, `burn_in` steps before the window (Kapturowski et al. 2019). These steps give no
      gradient.
    - `zero`: A zero state.

    Before training, an LSTM keeps the fraction 1/(1 + exp(−`forget_bias`)) of its cells from step to step. A bias of 1
    keeps most, which long delays require. A bias of −4 is better if a controller must react to the latest observation
    and the first episodes are short.
    """

    layers: Number = 2
    units: Units = 32
    window: Annotated[int, Within(2, 10**6, "steps")] = 16
    start: Literal["stored", "burn-in", "zero"] = "stored"
    burn_in: Number = 8
    forget_bias: Annotated[float, Within(-10, 10)] = 1.0

    @property
    def steps(self) -> int:
        """Number of steps that are replayed with each sample, including the sample itself."""
        return self.window + (self.burn_in if self.start == "burn-in" else 0)


Approximator = Network | RecurrentNetwork
AnyTape = Tape | RecurrentTape
Population = PopulationMLP | PopulationRecurrent
Inputs = AnyFloats | Histories
"""Inputs of networks, B observations `[M, B, S]` or `Histories` of B segments. For one member, axis M is missing."""


class TrainState(NamedTuple):
    """The arrays that compiled updates need to train a network, for all members.

    Attributes:
        network: Parameters and gradients of the network.
        target: The same arrays of the target network. Without a target network, they are those of `network`.
        adam: Moments and settings of the optimiser.
        tape: Work arrays of the forward and backward pass of one member's network.
    """

    network: Approximator
    target: Approximator
    adam: Adam
    tape: AnyTape


def make_network(config: MemoryConfig | None, shape: Shape, members: int, dtype: DTypeLike) -> Population:
    """Return `members` networks of the same shape. With `config`, each begins with LSTM layers."""
    if config is None:
        return PopulationMLP(shape, members, dtype)
    trunk = LSTMShape(shape.sizes[0], config.layers, config.units, config.forget_bias)
    head = dataclasses.replace(shape, sizes=(0, *shape.sizes[1:]), actions=config.units + shape.actions, inject=0)
    return PopulationRecurrent(RecurrentShape(trunk, head), members, dtype)


class Networks(dict[str, Population]):
    """The networks of a learner by name, with their target networks and optimisers.

    Attributes:
        targets: The target networks, each under the name of its network.
        adams: The Adam optimisers of the networks and of other trained parameters, by name.
    """

    def __init__(
        self, memory: MemoryConfig | None, shapes: Mapping[str, Shape], rates: Mapping[str, float],
        targets: Iterable[str], adam: AdamSettings, members: int, dtype: DTypeLike,
    ) -> None:  # fmt: skip
        super().__init__({name: make_network(memory, shape, members, dtype) for name, shape in shapes.items()})
        self.targets = {name: make_network(memory, shapes[name], members, dtype) for name in targets}
        self.adams = {name: make_adam(network.parameters, rates[name], adam) for name, network in self.items()}

    def copy_to_targets(self) -> None:
        """Set the parameters of target networks to those of their networks."""
        for name, target in self.targets.items():
            target.parameters[:] = self[name].parameters

    def named_weights(self) -> dict[str, AnyFloats]:
        """Return views of the weights `[M, in, out]` and biases `[M, out]` of all networks, by name."""
        return {key: array for name, network in self.items() for key, array in network.named_weights(name).items()}

    def trained(self) -> dict[str, AnyFloats]:
        """Return the arrays that updates change, by name.

        These are the P parameters of each network and target network, and the moments of Adam, with shape `[M, P]`.
        """
        return {
            **{name: network.parameters for name, network in self.items()},
            **{f"{name}_target": target.parameters for name, target in self.targets.items()},
            **{f"{name}_first": adam.first for name, adam in self.adams.items()},
            **{f"{name}_second": adam.second for name, adam in self.adams.items()},
        }


class Memory:
    """The states of a learner's recurrent networks in the current episodes of M members.

    For feed-forward networks, they are empty, so that learners need no separate code for recurrent networks. The states
    of all networks of a member are concatenated to one row of H numbers.

    Attributes:
        size: The number H. It is 0 for feed-forward networks.
        before: States before the current step of each member, shape `[M, H]`.
        after: States after the current step of each member, shape `[M, H]`.
        fields: Width of each field to store with an experience, by name. It is empty if states are not stored.
    """

    def __init__(self, config: MemoryConfig | None, networks: Mapping[str, Population]) -> None:
        self.config, self.networks = config, networks
        self.spans: dict[str, slice] = {}
        self.size = 0
        for name, network in networks.items():
            if isinstance(network, PopulationRecurrent):
                self.spans[name] = slice(self.size, self.size + network.shape.state_size)
                self.size += network.shape.state_size
        any_network = next(iter(networks.values()))
        self.dtype = any_network.parameters.dtype
        self.before, self.after = (np.zeros((len(any_network.parameters), self.size), self.dtype) for _ in range(2))
        self.stored = config is not None and config.start == "stored"
        self.fields = {MEMORY: self.size} if self.stored else {}

    @property
    def state(self) -> AnyFloats | None:
        """Recurrent state of each member before the current step, `[M, 1, H]`. None for feed-forward networks."""
        return self.before[:, None] if self.size else None

    def tape(self, name: str, segments: int) -> AnyTape:
        """Allocate the work arrays for forward and backward passes of the network `name` over B = `segments` samples.

        The samples of a recurrent network are segments of steps.
        """
        network = self.networks[name]
        if isinstance(network, PopulationMLP) or self.config is None:
            return network.tape(segments)
        return network.tape(segments, self.config.steps + 1, self.config.window, self.spans[name].start)

    def forget(self, members: Bools) -> None:
        """Reset the recurrent states of the chosen members `[M]`, whose next step is the first of an episode."""
        self.before[members], self.after[members] = 0, 0

    def advance(self, observation: AnyFloats, active: Bools) -> None:
        """Compute the next states from normalised observations `[M, S]`, for members that are `active` `[M]` only."""
        if self.size:
            self.before[active] = self.after[active]
            self.after[active] = self.next(observation[:, None], self.before[:, None])[active, 0]

    def next(self, observation: AnyFloats, state: AnyFloats) -> AnyFloats:
        """Return the states `[M, N, H]` after one normalised observation of each of N sequences of each member."""
        states = [
            network.step(observation, state[:, :, self.spans[name]])[1]
            for name, network in self.networks.items()
            if isinstance(network, PopulationRecurrent)
        ]
        return np.concatenate(states, axis=2)

    def evaluate(
        self, name: str, observation: AnyFloats, state: AnyFloats | None = None, action: AnyFloats | None = None
    ) -> AnyFloats:
        """Return the outputs `[M, N, out]` of the network `name` for N normalised observations `[M, N, S]` per member.

        Without states `[M, N, H]`, each observation is the first of an episode. Critics also take actions `[M, N, A]`.
        """
        network = self.networks[name]
        if isinstance(network, PopulationMLP) or state is None:
            return network(observation, action)
        return network.step(observation, state[:, :, self.spans[name]], action)[0]

    def remembered(self) -> dict[str, AnyFloats]:
        """Return a copy of the states before the current step as a field, or {} if states are not stored."""
        return {MEMORY: self.before.astype(np.float32)} if self.stored else {}

    def metric_names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the given names of metrics, without `kl` (divergence) if recurrent states are not stored."""
        return names if self.config is None or self.stored else tuple(name for name in names if name != "kl")

    def inputs(self, batch: ReplayBatch, normalise: Callable[[AnyFloats], AnyFloats]) -> tuple[Inputs, Inputs]:
        """Return the inputs of the networks at the sampled steps of a batch, and at the steps after them."""
        if not self.size:
            return normalise(batch.observation), normalise(batch.next_observation)
        window = batch.window
        assert window is not None
        members, samples, steps, size = window.observation.shape
        observation = np.zeros((members, samples, steps + 1, size), self.dtype)
        observation[:, :, :steps] = window.observation
        np.put_along_axis(observation, window.length[:, :, None, None], batch.next_observation[:, :, None], axis=2)
        histories = Histories(normalise(observation), window.length, window.memory.astype(self.dtype))
        return histories, histories._replace(length=window.length + 1)

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the states of the current episode by name, without copying."""
        return {"memory_before": self.before, "memory_after": self.after} if self.size else {}


def evaluate(net: Approximator, m: int, tape: AnyTape, x: Inputs, action: AnyFloats, out: AnyFloats) -> None:
    """Compute the outputs of the m-th network for B samples, and write them to `out` `[B, out]`.

    Only compiled code can call this function, because Numba selects the code for the type of the network. `action` has
    shape `[B, A]`, or `[B, 0]` if the network takes no action. `tape` stores the numbers that `differentiate` needs.
    """
    raise NotImplementedError


def differentiate(
    net: Approximator, m: int, tape: AnyTape, d_out: AnyFloats, want_weights: bool, d_action: AnyFloats
) -> None:
    """Propagate the gradient of a loss back through the last `evaluate` of the m-th network (compiled code only).

    `d_out` `[B, out]` is the gradient with respect to the outputs for B samples. With `want_weights`, the gradient with
    respect to the parameters overwrites row m of `net.gradient`. The gradient with respect to the action is written to
    `d_action` `[B, A]`, unless its shape is `[B, 0]`.
    """
    raise NotImplementedError


def of_member(x: Inputs, m: int) -> Inputs:
    """Return views of the inputs of the m-th network (compiled code only)."""
    raise NotImplementedError


@overload(evaluate, strict=False)
def _evaluate(net: Type, m: Type, tape: Type, x: Type, action: Type, out: Type) -> Callable[..., None]:
    chosen = evaluate_mlp if _is(net, Network) else evaluate_recurrent
    return lambda net, m, tape, x, action, out: chosen(net, m, tape, x, action, out)


@overload(differentiate, strict=False)
def _differentiate(
    net: Type, m: Type, tape: Type, d_out: Type, want_weights: Type, d_action: Type
) -> Callable[..., None]:
    chosen = differentiate_mlp if _is(net, Network) else differentiate_recurrent
    return lambda net, m, tape, d_out, want_weights, d_action: chosen(net, m, tape, d_out, want_weights, d_action)


@overload(of_member, strict=False)
def _of_member(x: Type, m: Type) -> Callable[..., Inputs]:
    if _is(x, Histories):
        return lambda x, m: Histories(x.observation[m], x.length[m], x.memory[m])
    return lambda x, m: x[m]


def _is(numba_type: Type, cls: type) -> bool:
    return getattr(numba_type, "instance_class", None) is cls


Squash = Literal["none", "tanh", "clip"]


class PolicyHead(NamedTuple):
    """A network with the rule that maps its outputs to the greedy action.

    Attributes:
        network: The network, with the parameters of each member.
        first: Index of the first output that is used.
        width: Number of outputs that are used.
        squash: Function that maps these outputs to [−1, 1], or "none" if they already lie in this range.
        table: Action `[width, A]` of each output if actions are discrete. The largest output selects the action.
    """

    network: Population
    first: int
    width: int
    squash: Squash = "none"
    table: Floats32 | None = None
