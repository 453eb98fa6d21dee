"""The states of recurrent networks while acting, and the segments on which they are trained.

For feed-forward networks, the state is empty. Learners therefore need no separate code for recurrent networks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from replaybench.controllers.interface.agent import Batch, LearnerConfig, Schedule
from replaybench.controllers.interface.noise import Explored
from replaybench.controllers.networks.mlp import PopulationMLP
from replaybench.controllers.networks.network import AnyTape, Inputs, MemoryConfig, Population
from replaybench.controllers.networks.recurrent import Histories, PopulationRecurrent
from replaybench.runtime.arrays import AnyFloats, Bools

FIELD = "memory"
"""Name of the stored field with recurrent states. A sampled window contains the state before its first step."""


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(LearnerConfig):
    """Settings of learners whose networks can begin with LSTM layers."""

    memory: MemoryConfig | None = None

    @property
    def schedule(self) -> Schedule:
        return super().schedule._replace(window=1 if self.memory is None else self.memory.steps)


class Memory:
    """The states of a learner's recurrent networks in the current episodes of M members.

    The states of all networks of a member are concatenated to one row of H numbers.

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
        self.fields = {FIELD: self.size} if self.stored else {}

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

    def with_memory(self, explored: Explored) -> Explored:
        """Return exploring actions whose fields include the recurrent states to store."""
        return explored._replace(extras={**explored.extras, **self.remembered()}) if self.stored else explored

    def remembered(self) -> dict[str, AnyFloats]:
        """Return a copy of the states before the current step as a field, or {} if states are not stored."""
        return {FIELD: self.before.astype(np.float32)} if self.stored else {}

    def metric_names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the given names of metrics, without `kl` (divergence) if recurrent states are not stored."""
        return names if self.config is None or self.stored else tuple(name for name in names if name != "kl")

    def inputs(self, batch: Batch, normalise: Callable[[AnyFloats], AnyFloats]) -> tuple[Inputs, Inputs]:
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
