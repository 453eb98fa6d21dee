"""The base class of learners: networks, acting, batches and saving.

A learner's page has its settings, networks, policy and one compiled update. Recurrence, ReF-ER and exploration are
parts that the base class holds: `memory`, `refer` with `density`, and `exploration`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.agent import Actions, Batch, Floats
from replaybench.controllers.device import check_device
from replaybench.controllers.experiences import Experiences
from replaybench.controllers.exploration.forms import make_exploration
from replaybench.controllers.exploration.process_noise import Explored, PolicyDraws
from replaybench.controllers.memory.memory import FIELD, Memory
from replaybench.controllers.networks.adam import make_adam
from replaybench.controllers.networks.greedy_form import PolicyForm
from replaybench.controllers.networks.mlp import PopulationMLP, Shape
from replaybench.controllers.networks.network import Learned, make_network
from replaybench.controllers.normaliser import Normaliser
from replaybench.controllers.refer.density import BEHAVIOUR, Density, need_density
from replaybench.controllers.refer.rules import ReFER
from replaybench.controllers.setting import LearnerSetting
from replaybench.data.errors import UserError

Arrays = dict[str, NDArray[Any]]


class Learner:
    """Base class of learners; each is a population of M members.

    Args:
        config: the learner's settings; `betas`, `epsilon` and `clip` are Adam's.
        setting: the task, and who the members are.
        shapes: of the networks by name, in the order in which their weights are drawn; the first holds the policy.
        rates: the learning rate of each network.
        targets: names of the networks that have target networks.
        initial: how weights are drawn; see `PopulationMLP.initialise`.

    Raises:
        UserError: this learner does not support ReF-ER, or the device.

    Attributes:
        networks: kept in policy files, by name.
        targets: target networks, under the names of the networks that they follow.
        adams: optimisers of networks, and of other learned numbers.
        normaliser: scales observations and rewards, if the settings ask for it.
        memory: state of recurrent networks; empty for feed-forward networks.
        exploration: turns the policy's actions into those that are tried; a stochastic policy's random numbers.
        refer, density: rules of ReF-ER, and the density of exploration.
        on_device: computes updates on a GPU; None on the CPU.
        steps: int64 `[1]`, number of updates done.
        fields: widths of further fields to store with each experience ⟨s, a, r, s′⟩.
        segment: number of successive steps that are stored and replayed together.
        window: largest number of steps, ending with a sample, that are replayed with it.
        traces: the rule for numbers that are derived along stored episodes; None if there are none.
        on_policy: whether an update on the newest experiences precedes those on replayed ones.
        several_at_once: whether `update` takes batches for several updates; see `Batch`. Not inherited.
        warmup_episodes: number of episodes, or rounds of steps, before the first update.
        warming_up: whether the present episode is one of these; the training loop sets it.
        discrete: whether actions are chosen from a finite set.
        supports_refer: whether ReF-ER is supported.
        metric_names: names of the numbers that `metrics` returns.
    """

    segment = 1
    on_policy = False
    several_at_once = False
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
    on_device: Any = None
    config: Any

    def __init_subclass__(cls, **words: Any) -> None:
        """Reset capability flags, which are not inherited."""
        super().__init_subclass__(**words)
        cls.several_at_once = vars(cls).get("several_at_once", False)

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
        self.check(config, actions, setting.refer is not None, setting.device)
        check_device(setting.device)
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
        self.exploration = PolicyDraws(setting, task.action_size)
        if hasattr(config, "exploration"):
            self.exploration = make_exploration(config.exploration, setting, self.networks[policy])
        self.refer = ReFER(setting.refer, members, rates[policy])
        self.density = Density(setting, self.exploration if self.supports_refer else None, self.steps, self.refer)
        self.fields = {**self.density.fields, **self.memory.fields}
        self.traces = self.density.traces
        if self.supports_refer:
            self.metric_names = self.memory.metric_names(self.density.names)

    @classmethod
    def check(cls, config: Any, actions: Actions, refer: bool = False, device: str = "cpu") -> None:
        """Check that this learner, with these settings, supports the actions, the device, and ReF-ER if it is used.

        Raises:
            UserError: it does not; says what to do instead.
        """
        if actions.choices and not cls.discrete:
            raise UserError(
                f"{_name(cls)} acts continuously, and {actions.plant} takes choices; use DQN or ACER-discrete"
            )
        if device != "cpu":
            raise UserError(f'{_name(cls)} runs on the CPU only; set device = "cpu"')
        if refer and not cls.supports_refer:
            raise UserError(f"{_name(cls)} does not support ReF-ER; use it with DDPG, NAF or V-RACER")
        if refer and hasattr(config, "exploration"):
            need_density(_name(cls), config.exploration)

    def learned(self, name: str, samples: int | None = None) -> Learned:
        """Return the arrays that an update of this network uses, for so many samples or for a batch."""
        network, tape = self.networks[name], self.memory.tape(name, samples or self.batch_size)
        return Learned(network.network, self.targets.get(name, network).network, self.adams[name], tape)

    def free_numbers(self, first: float, size: int = 1) -> PopulationMLP:
        """Return learned numbers `[M, size]` that do not depend on the state, `first` at first.

        They are the bias of a network without inputs, which Adam and policy files treat like any other.
        """
        numbers = PopulationMLP(Shape((0, size)), len(self.setting.members), self.setting.dtype)
        numbers.parameters[:] = first
        return numbers

    # Acting

    def seen(self, observation: Floats) -> Floats:
        """Return observations `[M, …, S]` normalised, as networks take them."""
        return self.normaliser.observations(observation)

    def start_episode(self, episode: int, members: NDArray[np.bool_]) -> None:
        """Begin training episode `episode` (from 0) of the chosen `members` `[M]`; the others continue theirs."""
        self.memory.forget(members)
        self.exploration.start_episode(episode, members)

    def explore(self, observation: Floats, active: NDArray[np.bool_]) -> Explored:
        """Return the actions to try, `[M, A]`, for observations `[M, S]`; they may exceed ±1.

        Members that are not `active` `[M]` wait for the others and draw no random numbers.
        """
        self.normaliser.observations.update(observation, active)
        self._advance(observation, active)
        return self.re_explore(observation)

    def _advance(self, observation: Floats, active: NDArray[np.bool_]) -> None:
        """Draw this step's random numbers for the `active` members."""
        seen = self.seen(observation)
        self.memory.advance(seen, active)
        self.exploration.advance(seen, active)

    def re_explore(self, observation: Floats) -> Explored:
        """Return the result of `explore` for another observation `[M, S]`, without drawing random numbers."""
        mean = self.mean(observation[:, None], self.memory.state)[:, 0]
        return self.memory.with_memory(self.exploration.disturb(mean, self.seen(observation)))

    def mean(self, observation: Floats, state: Floats | None = None) -> Floats:
        """Return the actions `[M, N, A]` that exploration disturbs, for observations `[M, N, S]`."""
        return self.policy(observation) if state is None else self.policy(observation, state)

    def policy(self, observation: Floats, *args: Any, **kwargs: Any) -> Floats:
        """Return the greedy actions `[M, N, A]` for observations `[M, N, S]`.

        Recurrent policies also take their state `[M, N, H]`; without it, an episode begins with each observation.
        """
        raise NotImplementedError

    def policy_form(self) -> PolicyForm:
        """Return how the greedy action is computed from a network."""
        raise NotImplementedError

    def value(self, observation: Floats) -> Floats:
        """Return the value `[M, N]` of observations `[M, N, S]` under each member's policy.

        Its unit is that of the reward times the task's `reward_scale`.
        """
        raise NotImplementedError

    def value_bonus(self) -> NDArray[np.float64]:
        """Return the largest term, such as an entropy, that `value` adds to the scaled reward of a step, `[M]`."""
        return np.zeros(len(self.setting.members))

    def sample(self, observation: Floats, state: Floats | None = None) -> Floats:
        """Return actions `[M, N, A]` of the policy itself; a stochastic policy draws them."""
        return self.policy(observation) if state is None else self.policy(observation, state)

    def act(self, observation: Floats) -> Floats:
        """Return the greedy actions `[M, A]` for observations `[M, S]`."""
        return self.policy(observation[:, None])[:, 0]

    def greedy(self) -> Any:
        """Return an object whose `act(observation [M, S]) -> [M, A]` acts without exploration for one episode."""
        return Evaluation(self) if self.memory.size else self

    def remember(self, observation: Floats, state: Floats) -> Floats:
        """Return the state `[M, N, H]` of recurrent networks after observations `[M, N, S]`."""
        return self.memory.next(self.seen(observation), state)

    def on_step(
        self,
        reward: NDArray[np.float64],
        successor: Floats,
        terminated: NDArray[np.bool_],
        ended: NDArray[np.bool_],
        active: NDArray[np.bool_],
    ) -> Mapping[str, Floats]:
        """Process the result of a step, `[M]` each, successor `[M, S]`; return further fields to store."""
        self.normaliser.rewards.update(reward, active)
        return {}

    def on_recorded_step(
        self, experience: Mapping[str, Floats], ended: NDArray[np.bool_], active: NDArray[np.bool_]
    ) -> Mapping[str, Floats]:
        """Process a recorded experience `[M, width]`, which others chose; return further fields to store."""
        self.normaliser.observations.update(experience["observation"], active)
        self.normaliser.rewards.update(experience["reward"], active)
        self.memory.advance(self.seen(experience["observation"]), active)
        remembered = self.memory.remembered()
        self.memory.forget(ended)
        return remembered

    def metrics(self, stored: Mapping[str, Floats]) -> Mapping[str, NDArray[Any]]:
        """Return numbers `[M]` that describe learning, given a sample `[M, n, width]` of stored experiences."""
        return self.density.metrics(stored, lambda observation: self.mean(observation, stored.get(FIELD)))

    # Learning

    def experiences(self, batch: Batch, first: int = 1) -> Experiences:
        """Return a batch of single experiences, as kernels take it, for updates from number `first` (from 1)."""
        observation, next_observation = self.memory.inputs(batch, self.seen)
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
        """Count the updates that a batch is for; return the number of the first of them, from 1."""
        first = int(self.steps[0]) + 1
        self.steps += self._updates_of(batch)
        return first

    def annotations(self, batch: Batch) -> Floats:
        """Return an array for one number of each sample, `[M·U, B]`."""
        return np.empty(batch.weight.shape, self.setting.dtype)

    def update(self, batch: Batch) -> Mapping[str, Floats]:
        """Learn from a batch; return annotations `[M·U, B]` of its experiences: `td_error`, and those of traces."""
        raise NotImplementedError

    def update_all(self, batches: Iterable[Batch]) -> None:
        """Learn from one batch after the other, each drawn when it is needed, without returning annotations."""
        if self.on_device is not None:
            self.on_device.update_all(batches)
            return
        for batch in batches:
            self.update(batch)

    # Saving

    def fetch(self, *names: str) -> None:
        """Copy `trained` arrays of these names, or all of them, from the device, if there is one."""
        if self.on_device is not None:
            self.on_device.fetch(*names)

    def weights(self) -> dict[str, NDArray[np.generic]]:
        """Return the networks layer by layer: weights `[M, in, out]`, biases `[M, out]`; and what normalises.

        Where observations are normalised, networks take clip((s − mean) · scale, ±bound) of `observation.mean`,
        `observation.scale` `[M, S]` and `observation.bound` `[M]`.
        """
        self.fetch()
        named: dict[str, NDArray[np.generic]] = {}
        for name, network in self.networks.items():
            named.update(network.named_weights(name))
        return {**named, **self.normaliser.state_dict()}

    def load_weights(self, weights: Mapping[str, NDArray[np.generic]]) -> None:
        """Load `weights` of as many members, also into target networks; optimisers and exploration do not change.

        Raises:
            UserError: the weights are those of other networks.
        """
        mine = self.weights()
        if {name: array.shape for name, array in mine.items()} != {name: a.shape for name, a in weights.items()}:
            raise UserError(
                f"these weights do not fit the networks of this {_name(type(self))}; "
                "build it with the settings they had"
            )
        for name, array in mine.items():
            array[...] = weights[name]
        self._aim_targets()
        self._push()

    def _aim_targets(self) -> None:
        for name, target in self.targets.items():
            target.parameters[:] = self.networks[name].parameters

    def _push(self) -> None:
        if self.on_device is not None:
            self.on_device.push()

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
        self.fetch()
        return {**self.trained(), "steps": self.steps, **self.normaliser.state_dict(), **self._further()}

    def _further(self) -> Arrays:
        """Return further arrays that change, such as random streams; loading overwrites them in place."""
        exploration = {f"exploration_{name}": array for name, array in self.exploration.state_dict().items()}
        return {**exploration, **self.density.state_dict(), **self.memory.state_dict()}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state_dict`, bit for bit."""
        for name, array in self.state_dict().items():
            array[...] = state[name]
        self._push()


class Evaluation:
    """A recurrent learner in one evaluation episode, whose state is separate from that of training."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.state: Floats = np.zeros_like(learner.memory.before[:, None])

    def act(self, observation: Floats) -> Floats:
        """Return the greedy actions `[M, A]` for the next observations `[M, S]`."""
        row = observation[:, None]
        action = self.learner.policy(row, self.state)[:, 0]
        self.state = self.learner.remember(row, self.state)
        return action


def _name(kind: type[Learner]) -> str:
    from replaybench.controllers.registry import name_of  # for errors only

    return name_of(kind)
