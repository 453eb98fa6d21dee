"""The base class of learners: networks, normalisation, saving and loading.

A learner's module has its settings, its networks, its policy and one compiled update. The base class has the parts
that learners share: `memory` (recurrence), `exploration`, and `refer` with `density` (ReF-ER).
"""

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.interface.agent import Actions, Batch, LearnerSetting, Normaliser
from replaybench.controllers.interface.exploration import BEHAVIOUR, Density, make_exploration, need_density
from replaybench.controllers.interface.noise import Explored, PolicyDraws
from replaybench.controllers.interface.recurrence import FIELD, Memory
from replaybench.controllers.losses.refer import ReFER
from replaybench.controllers.losses.temporal_difference import Experiences
from replaybench.controllers.networks.adam import make_adam
from replaybench.controllers.networks.mlp import PopulationMLP, Shape
from replaybench.controllers.networks.network import PolicyHead, TrainState, make_network
from replaybench.runtime.arrays import AnyFloats, Bools, Floats
from replaybench.runtime.errors import UserError

MOST = 1000
"""Largest number of combinations of levels; each is an output of a network, and some learners store its probability."""

USUAL = 15
"""Default levels per dimension of continuous actions: those of de Bruin et al. (2018)."""


class ActionLevels:
    """Levels spread evenly over [−1, 1] in each dimension, both ends included.

    Args:
        levels: number of levels in each dimension; None means the plant's choices, or `USUAL` if it has none.
        actions: number of dimensions A.
        choices: number of values that the plant takes in each dimension; empty if actions are continuous.

    Attributes:
        counts: int64 `[A]`, levels of each dimension.
        table: float32 `[n, A]`, the actions; the last dimension changes fastest.

    Raises:
        UserError: fewer than 2 levels, more than `MOST` combinations, or levels that differ from the plant's choices.
    """

    def __init__(self, levels: int | None, actions: int, choices: Sequence[int] = ()) -> None:
        counts = tuple(choices) or (USUAL if levels is None else levels,) * actions
        product = " × ".join(map(str, counts))
        if levels is not None and set(counts) != {levels}:
            raise UserError(f"levels = {levels}, but the plant takes {product} choices; leave levels out")
        if min(counts) < 2:
            raise UserError(f"levels must be at least 2, not {min(counts)}")
        if (combinations := prod(counts)) > MOST and choices:
            what = f"the plant's {product} choices are {combinations} actions"
            raise UserError(f"{what}; no learner takes more than {MOST}")
        if combinations > MOST:
            fitting = int(np.floor(MOST ** (1 / actions) + 1e-9))
            remedy = f"set levels to at most {fitting}" if fitting > 1 else "take a learner with continuous actions"
            raise UserError(f"levels = {counts[0]} in {actions} dimensions are {combinations} actions; {remedy}")
        self.counts = np.array(counts, np.int64)
        grid = np.meshgrid(*[np.linspace(-1.0, 1.0, count, dtype=np.float32) for count in counts], indexing="ij")
        self.table: AnyFloats = np.stack(grid, axis=-1).reshape(-1, actions)


Arrays = dict[str, NDArray[Any]]


class Learner:
    """Base class of learners; each is a population of M members.

    Args:
        config: the learner's settings; `betas`, `epsilon` and `clip` are Adam's.
        setting: the task and the member numbers.
        shapes: shape of each network, in the order in which weights are drawn; the first network holds the policy.
        rates: the learning rate of each network.
        targets: names of the networks that have target networks.
        initial: arguments of `PopulationMLP.initialise`, which draws the weights.

    Raises:
        UserError: this learner does not support the plant's actions, or ReF-ER.

    Attributes:
        networks: the networks by name; policy files contain them.
        targets: target networks, under the names of the networks that they follow.
        adams: optimisers of networks, and of other learned numbers.
        normaliser: scales observations and rewards, if the settings ask for it.
        memory: state of recurrent networks; empty for feed-forward networks.
        exploration: disturbs a deterministic policy's actions, or draws a stochastic policy's random numbers.
        refer, density: rules of ReF-ER, and the probability density of exploring actions.
        steps: int64 `[1]`, number of updates done.
        fields: widths of further fields to store with each experience ⟨s, a, r, s′⟩.
        segment: number of successive steps that are stored and replayed together.
        window: largest number of steps, ending with a sample, that are replayed with it.
        traces: the rule that computes numbers along stored episodes; None if the learner needs none.
        on_policy: whether an update on the newest experiences precedes those on replayed ones.
        supports_chunks: whether `update` accepts the batches of several updates at once; see `Batch`. Not inherited.
        warmup_episodes: number of episodes, or iterations, before the first update.
        warming_up: whether the current episode is one of these; the training loop sets it.
        discrete: whether actions are chosen from a finite set.
        supports_refer: whether ReF-ER is supported.
        metric_names: names of the numbers that `metrics` returns.
    """

    segment = 1
    on_policy = False
    supports_chunks = False
    warmup_episodes = 0
    warming_up = False
    discrete = False
    supports_refer = False
    metric_names: tuple[str, ...] = ()
    batch_size: int
    replays_per_experience: float
    window: int
    fields: Mapping[str, int]
    traces: Any
    exploration: Any
    networks: Mapping[str, Any]
    targets: Mapping[str, Any]
    config: Any

    def __init_subclass__(cls, **words: Any) -> None:
        """Reset `supports_chunks`, which is not inherited: a subclass may have an `update` of its own."""
        super().__init_subclass__(**words)
        cls.supports_chunks = vars(cls).get("supports_chunks", False)

    def __init__(
        self,
        config: Any,
        setting: LearnerSetting,
        shapes: Mapping[str, Shape],
        rates: Mapping[str, float],
        targets: Iterable[str] = (),
        **initial: Any,
    ) -> None:
        task, members, dtype = setting.task, len(setting.members), setting.dtype
        actions = Actions("this plant", task.action_size, task.action_choices)
        self.check(config, actions, setting.refer is not None)
        self.config, self.setting, self.task = config, setting, task
        self.batch_size, self.replays_per_experience = config.batch_size, config.replays_per_experience
        for name in ("segment", "on_policy", "warmup_episodes"):
            setattr(self, name, getattr(config, name, getattr(self, name)))
        self.normaliser = Normaliser(config.normalise, members, task.observation_size, task.reward_scale, dtype)
        self.steps = np.zeros(1, np.int64)
        recurrent = getattr(config, "memory", None)
        self.networks = {name: make_network(recurrent, shape, members, dtype) for name, shape in shapes.items()}
        self.targets = {name: make_network(recurrent, shapes[name], members, dtype) for name in targets}
        stream = setting.stream("initialisation")
        for network in self.networks.values():
            network.initialise(stream, **initial)
        self._aim_targets()
        self._adam = {name: getattr(config, name) for name in ("betas", "epsilon", "clip") if hasattr(config, name)}
        self.adams = {name: make_adam(network, rates[name], **self._adam) for name, network in self.networks.items()}
        self.memory = Memory(recurrent, self.networks)
        self.window = self.memory.window
        policy = next(iter(shapes))
        if hasattr(config, "exploration"):
            self.exploration = make_exploration(config.exploration, setting, self.networks[policy])
        else:  # the policy itself is stochastic
            self.exploration = PolicyDraws(setting, task.action_size)
        self.refer = ReFER(setting.refer, members, rates[policy])
        self.density = Density(setting, self.exploration if self.supports_refer else None, self.steps, self.refer)
        self.fields = {**self.density.fields, **self.memory.fields}
        self.traces = self.density.traces
        if self.supports_refer:
            self.metric_names = self.memory.metric_names(self.density.names)

    @classmethod
    def check(cls, config: Any, actions: Actions, refer: bool = False) -> None:
        """Check that this learner, with these settings, supports the actions, and ReF-ER if it is used.

        Raises:
            UserError: it does not; the message names the remedy.
        """
        if actions.choices and not cls.discrete:
            raise UserError(
                f"{_name(cls)} acts continuously, and {actions.plant} takes choices; use DQN or ACER-discrete"
            )
        if refer and not cls.supports_refer:
            raise UserError(f"{_name(cls)} does not support ReF-ER; use it with DDPG, NAF or V-RACER")
        if refer and hasattr(config, "exploration"):
            need_density(_name(cls), config.exploration)

    def train_state(self, name: str, samples: int | None = None) -> TrainState:
        """Return the arrays for updates of a network; a pass evaluates `samples` rows, by default a batch."""
        network, tape = self.networks[name], self.memory.tape(name, samples or self.batch_size)
        return TrainState(network.network, self.targets.get(name, network).network, self.adams[name], tape)

    def free_numbers(self, first: float, size: int = 1) -> PopulationMLP:
        """Return learned numbers `[M, size]` that do not depend on the state and begin at `first`.

        They are the bias of a network without inputs, so that Adam and policy files need no special case.
        """
        numbers = PopulationMLP(Shape((0, size)), len(self.setting.members), self.setting.dtype)
        numbers.parameters[:] = first
        return numbers

    # Acting

    def normalised(self, observation: AnyFloats) -> AnyFloats:
        """Return observations `[M, …, S]` normalised, as networks receive them."""
        return self.normaliser.observations(observation)

    def start_episode(self, episode: int, members: Bools) -> None:
        """Begin training episode `episode` (from 0) of the chosen `members` `[M]`; the others continue theirs."""
        self.memory.forget(members)
        self.exploration.start_episode(episode, members)

    def explore(self, observation: AnyFloats, active: Bools) -> Explored:
        """Return the actions to try, `[M, A]`, for observations `[M, S]`; they may exceed ±1.

        Members that are not `active` `[M]` wait for the others and draw no random numbers.
        """
        self.normaliser.observations.update(observation, active)
        self._advance(observation, active)
        return self.perturb(observation)

    def _advance(self, observation: AnyFloats, active: Bools) -> None:
        """Draw this step's random numbers for the `active` members."""
        normalised = self.normalised(observation)
        self.memory.advance(normalised, active)
        self.exploration.advance(normalised, active)

    def perturb(self, observation: AnyFloats) -> Explored:
        """Return the result of `explore` for another observation `[M, S]`, without drawing random numbers."""
        mean = self.mean(observation[:, None], self.memory.state)[:, 0]
        return self.memory.with_memory(self.exploration.disturb(mean, self.normalised(observation)))

    def mean(self, observation: AnyFloats, state: AnyFloats | None = None) -> AnyFloats:
        """Return the actions `[M, N, A]` that exploration disturbs; by default those of the policy. See `policy`."""
        return self.policy(observation) if state is None else self.policy(observation, state)

    def policy(self, observation: AnyFloats, *args: Any, **kwargs: Any) -> AnyFloats:
        """Return the greedy actions `[M, N, A]` for observations `[M, N, S]`.

        Recurrent policies also take their state `[M, N, H]`; without it, each observation is the first of an episode.
        """
        raise NotImplementedError

    def policy_head(self) -> PolicyHead:
        """Return the network that computes the greedy action, and how the action follows from its outputs."""
        raise NotImplementedError

    def value(self, observation: AnyFloats) -> AnyFloats:
        """Return the value `[M, N]` of observations `[M, N, S]` under each member's policy.

        Its unit is that of the reward times the task's `reward_scale`.
        """
        raise NotImplementedError

    def value_bonus(self) -> Floats:
        """Return an upper bound `[M]` on the term, such as an entropy, that `value` adds to each scaled reward."""
        return np.zeros(len(self.setting.members))

    def sample(self, observation: AnyFloats, state: AnyFloats | None = None) -> AnyFloats:
        """Return actions `[M, N, A]` of the policy without added exploration; a stochastic policy draws them."""
        return self.policy(observation) if state is None else self.policy(observation, state)

    def act(self, observation: AnyFloats) -> AnyFloats:
        """Return the greedy actions `[M, A]` for observations `[M, S]`."""
        return self.policy(observation[:, None])[:, 0]

    def greedy(self) -> Any:
        """Return an object whose `act(observation [M, S]) -> [M, A]` acts without exploration for one episode."""
        return Evaluation(self) if self.memory.size else self

    def remember(self, observation: AnyFloats, state: AnyFloats) -> AnyFloats:
        """Return the state `[M, N, H]` of recurrent networks after observations `[M, N, S]`."""
        return self.memory.next(self.normalised(observation), state)

    def on_step(
        self, reward: Floats, successor: AnyFloats, terminated: Bools, ended: Bools, active: Bools
    ) -> Mapping[str, AnyFloats]:
        """Process the result of a step, `[M]` each, successor `[M, S]`; return further fields to store."""
        self.normaliser.rewards.update(reward, active)
        return {}

    def on_recorded_step(
        self, experience: Mapping[str, AnyFloats], ended: Bools, active: Bools
    ) -> Mapping[str, AnyFloats]:
        """Process a recorded experience `[M, width]` of another controller; return further fields to store."""
        self.normaliser.observations.update(experience["observation"], active)
        self.normaliser.rewards.update(experience["reward"], active)
        self.memory.advance(self.normalised(experience["observation"]), active)
        remembered = self.memory.remembered()
        self.memory.forget(ended)
        return remembered

    def metrics(self, stored: Mapping[str, AnyFloats]) -> Mapping[str, NDArray[Any]]:
        """Return numbers `[M]` that describe learning, given a sample `[M, n, width]` of stored experiences."""
        return self.density.metrics(stored, lambda observation: self.mean(observation, stored.get(FIELD)))

    # Learning

    def experiences(self, batch: Batch, first: int = 1) -> Experiences:
        """Return a batch of single experiences as the arrays that compiled updates take.

        `first` is the number, from 1, of the first update that uses the batch.
        """
        observation, next_observation = self.memory.inputs(batch, self.normalised)
        updates, scale = self._updates_of(batch), self.normaliser.rewards.factor
        unknown = np.empty((*batch.weight.shape, 0), np.float32)
        known = BEHAVIOUR[1] in self.fields
        mean, log_sigma = (batch.columns[name] if known else unknown for name in BEHAVIOUR)
        return Experiences(
            observation, batch.action, batch.reward, next_observation, batch.terminated, batch.weight,
            batch.actor_weight, self.refer.slowed(batch.rate_factor, first), mean, log_sigma,
            np.repeat(scale, updates) if updates > 1 else scale, self.task.discount,
        )  # fmt: skip

    def _updates_of(self, batch: Batch) -> int:
        return len(batch.weight) // len(self.setting.members)

    def begin_updates(self, batch: Batch) -> int:
        """Add the number of updates that use a batch to `steps`; return the number, from 1, of the first of them."""
        first = int(self.steps[0]) + 1
        self.steps += self._updates_of(batch)
        return first

    def annotations(self, batch: Batch) -> AnyFloats:
        """Allocate an array `[M·U, B]` for one number of each sample."""
        return np.empty(batch.weight.shape, self.setting.dtype)

    def update(self, batch: Batch) -> Mapping[str, AnyFloats]:
        """Do the updates of a batch; return annotations `[M·U, B]`: `td_error`, and the inputs of traces."""
        raise NotImplementedError

    def update_all(self, batches: Iterable[Batch]) -> None:
        """Do the updates of successive batches, each drawn only when it is needed; return no annotations."""
        for batch in batches:
            self.update(batch)

    # Saving

    def weights(self) -> dict[str, NDArray[np.generic]]:
        """Return weights `[M, in, out]` and biases `[M, out]` of all layers by name, and the normalisation.

        If observations are normalised, the networks receive clip((s − mean) · scale, ±bound), with `observation.mean`
        and `observation.scale` `[M, S]` and `observation.bound` `[M]`.
        """
        named: dict[str, NDArray[np.generic]] = {}
        for name, network in self.networks.items():
            named.update(network.named_weights(name))
        return {**named, **self.normaliser.state_dict()}

    def load_weights(self, weights: Mapping[str, NDArray[np.generic]]) -> None:
        """Load `weights` of equally many members, also into target networks; optimisers and exploration do not change.

        Raises:
            UserError: the names or shapes of the weights differ from those of this learner.
        """
        mine = self.weights()
        if {name: array.shape for name, array in mine.items()} != {name: a.shape for name, a in weights.items()}:
            raise UserError(
                f"these weights do not fit the networks of this {_name(type(self))}; "
                "build it with the settings of the learner that saved them"
            )
        for name, array in mine.items():
            array[...] = weights[name]
        self._aim_targets()

    def _aim_targets(self) -> None:
        for name, target in self.targets.items():
            target.parameters[:] = self.networks[name].parameters

    def trained(self) -> Arrays:
        """Return the arrays `[M, P]` that updates change: networks, target networks, Adam's moments."""
        return {
            **{name: network.parameters for name, network in self.networks.items()},
            **{f"{name}_target": target.parameters for name, target in self.targets.items()},
            **{f"{name}_first": adam.first for name, adam in self.adams.items()},
            **{f"{name}_second": adam.second for name, adam in self.adams.items()},
        }

    def state_dict(self) -> Arrays:
        """Return all arrays that the next updates and actions depend on, by name."""
        return {**self.trained(), "steps": self.steps, **self.normaliser.state_dict(), **self._extra_state()}

    def _extra_state(self) -> Arrays:
        """Return further arrays that change, such as random streams; loading overwrites them in place."""
        exploration = {f"exploration_{name}": array for name, array in self.exploration.state_dict().items()}
        return {**exploration, **self.density.state_dict(), **self.memory.state_dict()}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore a `state_dict`; the learner continues with identical bits."""
        for name, array in self.state_dict().items():
            array[...] = state[name]


class Evaluation:
    """A recurrent learner in one evaluation episode, whose state is separate from that of training."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.state: AnyFloats = np.zeros_like(learner.memory.before[:, None])

    def act(self, observation: AnyFloats) -> AnyFloats:
        """Return the greedy actions `[M, A]` for the next observations `[M, S]`."""
        row = observation[:, None]
        action = self.learner.policy(row, self.state)[:, 0]
        self.state = self.learner.remember(row, self.state)
        return action


def _name(kind: type[Learner]) -> str:
    from replaybench.controllers.registry import name_of

    return name_of(kind)
