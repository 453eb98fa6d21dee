"""The base class of learners, with networks, normalisation, saving and loading.

The modules in `algorithms` add the settings, networks, policy and compiled update of one learner each. The base class
contains the parts that learners share. These are recurrent networks (`memory`), exploration, and remember and forget
experience replay, ReF-ER (`refer` and `density`; Novati & Koumoutsakos 2019).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.interface.agent import (
    ActionLevels,
    Batch,
    DiscreteConfig,
    LearnerConfig,
    LearnerSetting,
    Normaliser,
    RecurrentConfig,
    Task,
)
from replaybench.controllers.interface.exploration import (
    BEHAVIOUR,
    Density,
    DeterministicConfig,
    make_exploration,
    need_density,
)
from replaybench.controllers.interface.noise import Exploration, Explored, PolicyDraws
from replaybench.controllers.losses.refer import ReFER
from replaybench.controllers.losses.temporal_difference import Experiences
from replaybench.controllers.networks.mlp import PopulationMLP, Shape
from replaybench.controllers.networks.network import Memory, Networks, PolicyHead, TrainState
from replaybench.controllers.registry import name_of
from replaybench.data.batch import MEMORY, SQUARED, CriticLoss, TraceRule
from replaybench.runtime.arrays import AnyFloats, Bools, Floats
from replaybench.runtime.errors import UserError

Arrays = dict[str, np.ndarray]
_ONE_STEP: Final = np.empty((0, 0), np.int64)


class Learner:
    """A base class for learners that train M independent members together.

    A member is one run, with its own networks and random numbers. The first axis of arrays has one entry per member.

    Args:
        config: Settings of the learner.
        setting: The task, the seed and the numbers of the members.
        shapes: Shape of each network by name. Weights are drawn in this order. The first network must be the policy's.
        rates: Learning rate of each network by name.
        targets: Names of the networks that have a target network.

    Raises:
        UserError: The learner does not support the plant's actions or ReF-ER.

    Attributes:
        networks: The networks by name, with their target networks and optimisers. Policy files contain their weights.
        memory: The states of recurrent networks. They are empty for feed-forward networks.
        exploration: The noise on a deterministic policy's actions, or the random numbers of a stochastic policy.
        density: The probability density of exploring actions, and the rules of ReF-ER that apply to it.
        schedule: The number and time of updates, and the experiences that an update needs.
        normaliser: The normalisation of observations and rewards.
        steps: Number of updates so far; int64, shape `[1]`.
        fields: Width of each field that is stored with an experience in addition to ⟨s, a, r, s′⟩, by name.
        traces: The rule that computes numbers along stored episodes, such as returns, or None.
        supports_chunks: Whether `update` accepts the batches of several updates at once. Subclasses do not inherit it.
        warming_up: Whether the current episode precedes the first update. The training loop sets this flag.
        discrete: Whether actions are chosen from a finite set.
        supports_refer: Whether the learner supports ReF-ER.
        supports_losses: Whether the learner supports critics' losses other than the squared TD error.
        metric_names: Names of the numbers that `metrics` returns.
    """

    config: LearnerConfig
    exploration: Exploration
    fields: Mapping[str, int]
    traces: TraceRule | None
    supports_chunks = False
    warming_up = False
    discrete = False
    supports_refer = False
    supports_losses = False
    metric_names: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        """Reset `supports_chunks`, because a subclass may override `update` without support for several batches."""
        super().__init_subclass__()
        cls.supports_chunks = vars(cls).get("supports_chunks", False)

    def __init__(
        self,
        config: LearnerConfig,
        setting: LearnerSetting,
        shapes: Mapping[str, Shape],
        rates: Mapping[str, float],
        targets: Iterable[str] = (),
    ) -> None:
        task, members, dtype = setting.task, len(setting.members), setting.dtype
        self.check(config, task, setting.refer is not None)
        self.config, self.setting, self.task, self.schedule = config, setting, task, config.schedule
        self.normaliser = Normaliser(config.normalise, members, task.observation_size, task.reward_scale, dtype)
        self.steps = np.zeros(1, np.int64)
        recurrent = config.memory if isinstance(config, RecurrentConfig) else None
        self.networks = Networks(recurrent, shapes, rates, targets, config.adam, members, dtype)
        stream = setting.stream("initialisation")
        for network in self.networks.values():
            network.initialise(stream)
        self.networks.copy_to_targets()
        self.memory = Memory(recurrent, self.networks)
        policy = next(iter(shapes))
        if isinstance(config, DeterministicConfig):
            self.exploration = make_exploration(config.exploration, setting, self.networks[policy])
        else:  # the policy itself is stochastic
            self.exploration = PolicyDraws(setting, task.action_size)
        refer = ReFER(setting.refer, members, rates[policy])
        self.density = Density(setting, self.exploration if self.supports_refer else None, self.steps, refer)
        self.fields = {**self.density.fields, **self.memory.fields}
        self.traces = self.density.traces
        if self.supports_refer:
            self.metric_names = self.memory.metric_names(self.density.names)

    @classmethod
    def check(cls, config: LearnerConfig, task: Task, refer: bool = False, plant: str = "this plant") -> None:
        """Raise `UserError` if the learner does not support the plant's actions, or ReF-ER if `refer` is true."""
        if task.action_choices and not cls.discrete:
            raise UserError(f"{name_of(cls)} acts continuously, and {plant} takes choices; use DQN or ACER-discrete")
        if refer and not cls.supports_refer:
            raise UserError(f"{name_of(cls)} does not support ReF-ER; use it with DDPG, NAF or V-RACER")
        if refer and isinstance(config, DeterministicConfig):
            need_density(name_of(cls), config.exploration)
        if isinstance(config, DiscreteConfig):
            ActionLevels(config.levels, task.action_size, task.action_choices)

    @classmethod
    def check_loss(cls, loss: CriticLoss, strategy: str) -> None:
        """Raise `UserError` if the learner does not support the critic's loss that a strategy requires."""
        if loss != SQUARED and not cls.supports_losses:
            raise UserError(
                f"{strategy} replaces the critic's squared loss, which {name_of(cls)} does not support; use it with "
                "DDPG, TD3, SAC or DQN"
            )

    def train_state(self, name: str, samples: int | None = None) -> TrainState:
        """Return the arrays that compiled updates of the network `name` need.

        The work arrays have space for passes over `samples` samples, by default the batch size.
        """
        network, tape = self.networks[name], self.memory.tape(name, samples or self.config.batch_size)
        target = self.networks.targets.get(name, network)
        return TrainState(network.network, target.network, self.networks.adams[name], tape)

    def free_numbers(self, first: float, size: int = 1) -> PopulationMLP:
        """Return a network without inputs, whose biases are trained parameters that do not depend on the state.

        Each member has `size` such parameters, which start at the value `first`. Because they are biases of a network,
        Adam and policy files need no special case.
        """
        numbers = PopulationMLP(Shape((0, size)), len(self.setting.members), self.setting.dtype)
        numbers.parameters[:] = first
        return numbers

    # Acting

    def normalised(self, observation: AnyFloats) -> AnyFloats:
        """Return the normalised observations `[M, …, S]` of each member, which are the inputs of the networks."""
        return self.normaliser.observations(observation)

    def start_episode(self, episode: int, members: Bools) -> None:
        """Begin training episode number `episode` (from 0) of the members for which `members` `[M]` is true."""
        self.memory.forget(members)
        self.exploration.start_episode(episode, members)

    def explore(self, observation: AnyFloats, active: Bools) -> Explored:
        """Return exploring actions `[M, A]` for the next observation `[M, S]` of each member.

        Actions may lie outside [−1, 1]. Only for members that are `active` `[M]`, statistics of observations are
        updated and random numbers are drawn.
        """
        self.normaliser.observations.update(observation, active)
        self._advance(observation, active)
        return self.perturb(observation)

    def _advance(self, observation: AnyFloats, active: Bools) -> None:
        normalised = self.normalised(observation)
        self.memory.advance(normalised, active)
        self.exploration.advance(normalised, active)

    def perturb(self, observation: AnyFloats) -> Explored:
        """Return an exploring action of each member at other observations `[M, S]` than `explore` received.

        The action uses the random numbers that `explore` drew in this step. No random numbers are drawn.
        """
        mean = self.mean(observation[:, None], self.memory.state)[:, 0]
        explored = self.exploration.disturb(mean, self.normalised(observation))
        return explored._replace(extras={**explored.extras, **self.memory.remembered()})

    def mean(self, observation: AnyFloats, state: AnyFloats | None = None) -> AnyFloats:
        """Return the actions to which exploration adds noise, by default the greedy actions of `policy`."""
        return self.policy(observation) if state is None else self.policy(observation, state)

    def policy(self, observation: AnyFloats, *args: Any, **kwargs: Any) -> AnyFloats:
        """Return greedy actions `[M, N, A]` in [−1, 1] for N observations `[M, N, S]` of each member.

        By default, they are the outputs of the first network. A recurrent policy also takes its states `[M, N, H]`,
        with H numbers each. Without states, each observation is the first of an episode.
        """
        return self.memory.evaluate(next(iter(self.networks)), self.normalised(observation), *args, **kwargs)

    def policy_head(self) -> PolicyHead:
        """Return the network that computes the greedy action, and the rule that maps its outputs to the action."""
        return PolicyHead(next(iter(self.networks.values())), 0, self.task.action_size)

    def value(self, observation: AnyFloats) -> AnyFloats:
        """Return the values `[M, N]` of N observations `[M, N, S]` under the policy of each member.

        The unit of values is that of rewards times the task's `reward_scale`.
        """
        raise NotImplementedError

    def value_bonus(self) -> Floats:
        """Return an upper bound `[M]` on the term that `value` adds to each scaled reward, such as an entropy."""
        return np.zeros(len(self.setting.members))

    def sample(self, observation: AnyFloats, state: AnyFloats | None = None) -> AnyFloats:
        """Return actions `[M, N, A]` without exploration noise. A stochastic policy draws them at random."""
        return self.policy(observation) if state is None else self.policy(observation, state)

    def act(self, observation: AnyFloats) -> AnyFloats:
        """Return the greedy actions `[M, A]` for one observation `[M, S]` of each member."""
        return self.policy(observation[:, None])[:, 0]

    def greedy(self) -> "Learner | Evaluation":
        """Return an object whose method `act` returns greedy actions during one evaluation episode."""
        return Evaluation(self) if self.memory.size else self

    def remember(self, observation: AnyFloats, state: AnyFloats) -> AnyFloats:
        """Return the recurrent states `[M, N, H]` after one observation `[M, N, S]` of each of N sequences.

        `state` `[M, N, H]` contains the states before the observations, with H numbers each.
        """
        return self.memory.next(self.normalised(observation), state)

    def on_step(
        self, reward: Floats, successor: AnyFloats, terminated: Bools, ended: Bools, active: Bools
    ) -> Mapping[str, AnyFloats]:
        """Process the result of one environment step, and return further fields to store with the experience.

        `reward` `[M]` is unscaled. `successor` `[M, S]` are the observations after the step. `ended` `[M]` is true
        after termination and after truncation. Only members that are `active` `[M]` did the step.
        """
        self.normaliser.rewards.update(reward, active)
        return {}

    def on_recorded_step(
        self, experience: Mapping[str, AnyFloats], ended: Bools, active: Bools
    ) -> Mapping[str, AnyFloats]:
        """Process an experience that another controller recorded, and return further fields to store with it.

        The fields of the experience are arrays `[M, width]` by name. Only members that are `active` `[M]` have an
        experience. If `ended` `[M]` is true, the experience is the last of its episode.
        """
        self.normaliser.observations.update(experience["observation"], active)
        self.normaliser.rewards.update(experience["reward"], active)
        self.memory.advance(self.normalised(experience["observation"]), active)
        remembered = self.memory.remembered()
        self.memory.forget(ended)
        return remembered

    def metrics(self, stored: Mapping[str, AnyFloats]) -> Mapping[str, np.ndarray]:
        """Return metrics of learning by name, such as divergences, with one number per member.

        `stored` contains the fields `[M, n, width]` of n stored experiences of each member, by name.
        """
        return self.density.metrics(stored, lambda observation: self.mean(observation, stored.get(MEMORY)))

    # Learning

    def experiences(self, batch: Batch, first: int = 1) -> Experiences:
        """Return a batch of single experiences in the form that compiled updates take.

        `first` is the number, from 1, of the first update that uses the batch.
        """
        observation, next_observation = self.memory.inputs(batch, self.normalised)
        updates, scale = self._updates_of(batch), self.normaliser.rewards.factor
        unknown = np.empty((*batch.weight.shape, 0), np.float32)
        known = BEHAVIOUR[1] in self.fields
        mean, log_sigma = (batch.columns[name] if known else unknown for name in BEHAVIOUR)
        return Experiences(
            observation, batch.action, batch.reward, next_observation, batch.terminated, batch.weight,
            batch.actor_weight, self.density.refer.slowed(batch.rate_factor, first), mean, log_sigma,
            np.repeat(scale, updates) if updates > 1 else scale, self.task.discount, batch.critic_loss,
            _ONE_STEP if batch.steps is None else batch.steps,
        )  # fmt: skip

    def _updates_of(self, batch: Batch) -> int:
        return len(batch.weight) // len(self.setting.members)

    def begin_updates(self, batch: Batch) -> int:
        """Add the number of updates on a batch to `steps`, and return the number (from 1) of the first update."""
        first = int(self.steps[0]) + 1
        self.steps += self._updates_of(batch)
        return first

    def empty_per_sample(self, batch: Batch) -> AnyFloats:
        """Return an uninitialised array with one entry for each sample of a batch.

        The shape is `[M, B]` for B samples of each member, or `[M·U, B]` if the batch is for U updates.
        """
        return np.empty(batch.weight.shape, self.setting.dtype)

    def update(self, batch: Batch) -> Mapping[str, AnyFloats]:
        """Update the networks on a batch, and return numbers to store with each sample, by name.

        The numbers are TD errors (`td_error`) and the inputs of the rule `traces`. They have the shape `[M·U, B]` for U
        updates of M members with B samples each.
        """
        raise NotImplementedError

    # Saving

    def weights(self) -> dict[str, NDArray[np.generic]]:
        """Return the weights `[M, in, out]` and biases `[M, out]` of all networks of M members, by name.

        If observations are normalised, networks receive clip((s − mean) · scale, ±bound). The result then also contains
        the arrays `observation.mean` and `observation.scale`, shape `[M, S]`, and `observation.bound`, shape `[M]`.
        """
        return {**self.networks.named_weights(), **self.normaliser.state_dict()}

    def load_weights(self, weights: Mapping[str, NDArray[np.generic]]) -> None:
        """Load `weights` of the same number of members into networks and target networks.

        Optimisers and exploration do not change.

        Raises:
            UserError: The names or shapes of the weights differ from those of this learner.
        """
        mine = self.weights()
        if {name: array.shape for name, array in mine.items()} != {name: a.shape for name, a in weights.items()}:
            raise UserError(
                f"these weights do not fit the networks of this {name_of(type(self))}; "
                "build it with the settings of the learner that saved them"
            )
        for name, array in mine.items():
            array[...] = weights[name]
        self.networks.copy_to_targets()

    def state_dict(self) -> Arrays:
        """Return all arrays on which the next updates and actions depend, by name."""
        return {**self.networks.trained(), "steps": self.steps, **self.normaliser.state_dict(), **self._extra_state()}

    def _extra_state(self) -> Arrays:
        """Return further arrays that change in training, such as random streams. Loading overwrites these arrays."""
        exploration = {f"exploration_{name}": array for name, array in self.exploration.state_dict().items()}
        return {**exploration, **self.density.state_dict(), **self.memory.state_dict()}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the arrays that `state_dict` returned, so that the learner continues with bit-identical results."""
        for name, array in self.state_dict().items():
            array[...] = state[name]


class Evaluation:
    """The greedy policy of a recurrent learner in one evaluation episode, with its own recurrent states."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.state: AnyFloats = np.zeros_like(learner.memory.before[:, None])

    def act(self, observation: AnyFloats) -> AnyFloats:
        """Return the greedy actions `[M, A]` for the next observation `[M, S]` of each member."""
        row = observation[:, None]
        action = self.learner.policy(row, self.state)[:, 0]
        self.state = self.learner.remember(row, self.state)
        return action
