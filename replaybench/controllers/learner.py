"""What all learners share, so that a learner's page is the algorithm: which networks, how to act, what an update does.

The base makes `networks` (learned and kept in policy files) and `targets` (slow copies, under the names of the networks
that they follow), and hands batches to kernels. Where a page has further arrays that change, it overrides `_further`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.action_table import ActionLevels
from replaybench.controllers.agent import Actions, Batch, Floats
from replaybench.controllers.device import check_device
from replaybench.controllers.experiences import Experiences
from replaybench.controllers.exploration.process_noise import Explored
from replaybench.controllers.memory.config import MemoryConfig
from replaybench.controllers.networks.adam import Adam, make_adam
from replaybench.controllers.networks.greedy_form import PolicyForm
from replaybench.controllers.networks.mlp import PopulationMLP, Shape
from replaybench.controllers.networks.network import AnyTape, Inputs, Learned, make_network
from replaybench.controllers.normaliser import Normaliser
from replaybench.controllers.registry import name_of
from replaybench.controllers.saving import SavedLearner
from replaybench.controllers.setting import LearnerSetting
from replaybench.data.errors import UserError


class Learner(SavedLearner):
    """Base of the learners' pages.

    Args:
        config: the learner's settings.
        setting: what it learns, and who its members are.
        shapes: of its networks by name, in the order in which their weights are drawn.
        slow: names of those that have slow copies.
        memory: of all its networks, if any.
        initial: how weights are drawn; see `PopulationMLP.initialise`.

    Raises:
        UserError: ReF-ER is asked for, or a device, and learners of this kind cannot do with that.

    Attributes:
        fields: widths of what must be stored with each experience beside ⟨s, a, r, s′⟩.
        segment: successive steps that are stored and replayed as one; 1 for single steps.
        window: steps of its episode that end with it, so many at most, which each replayed one comes with.
        traces: numbers that the learner derives along stored episodes, None if it derives none.
        on_policy: whether an update on the newest experiences precedes those on replayed ones.
        several_at_once: whether `update` takes batches for several updates; see `Batch`.
        warmup_episodes: episodes, or rounds of steps, before the first update.
        warming_up: whether the present one is among them, as whoever trains the learner says.
        discrete: whether its actions are choices out of a finite set.
        supports_refer: whether it can learn with a strategy's ReF-ER.
        metric_names: what `metrics` returns.
    """

    fields: Mapping[str, int] = {}
    segment = 1
    window = 1
    traces: Any = None
    on_policy = False
    several_at_once = False
    warmup_episodes = 0
    warming_up = False
    discrete = False
    supports_refer = False
    metric_names: tuple[str, ...] = ()
    config: Any

    def __init_subclass__(cls, **words: Any) -> None:
        """Capability flags are not inherited."""
        super().__init_subclass__(**words)
        cls.several_at_once = vars(cls).get("several_at_once", False)

    def __init__(
        self,
        config: Any,
        setting: LearnerSetting,
        shapes: Mapping[str, Shape],
        slow: Iterable[str] = (),
        memory: MemoryConfig | None = None,
        **initial: Any,
    ) -> None:
        self.check_runs_on(setting.device, config, setting.refer is not None)
        check_device(setting.device)
        if setting.refer is not None:
            self.check_refer(config)
        self.config, self.setting, self.task = config, setting, setting.task
        self.batch_size, self.replays_per_experience = config.batch_size, config.replays_per_experience
        self.segment = getattr(config, "segment", self.segment)
        self.on_policy = getattr(config, "on_policy", self.on_policy)
        self.warmup_episodes = getattr(config, "warmup_episodes", self.warmup_episodes)
        members, task, dtype = len(setting.members), setting.task, setting.dtype
        self.normaliser = Normaliser(config.normalise, members, task.observation_size, task.reward_scale, dtype)
        self.steps = np.zeros(1, np.int64)
        self._nothing = np.empty((members, config.batch_size, 0), np.float32)
        self.networks = {name: make_network(memory, shape, members, dtype) for name, shape in shapes.items()}
        self.targets = {name: make_network(memory, shapes[name], members, dtype) for name in slow}
        stream = setting.stream("initialisation")
        for network in self.networks.values():
            network.initialise(stream, **initial)
        self._aim_targets()

    def _make_adams(self, rates: Mapping[str, float], **settings: Any) -> dict[str, Adam]:
        """Return an optimiser for each of the networks, with its learning rate."""
        return {name: make_adam(network, rates[name], **settings) for name, network in self.networks.items()}

    def _numbers(self, first: Any, size: int = 1) -> PopulationMLP:
        """Return learned numbers `[M, size]` that do not depend on anything, and what they are at first.

        They are the bias of a network without inputs, which Adam, policy files and checkpoints treat like any other.
        """
        numbers = PopulationMLP(Shape((0, size)), len(self.setting.members), self.setting.dtype)
        numbers.parameters[:] = first
        return numbers

    def learned(self, name: str, samples: int | None = None) -> Learned:
        """Return what an update of this network works on, with room for so many samples, else for a batch."""
        return self._with_tape(name, self.networks[name].tape(samples or self.batch_size))

    def _with_tape(self, name: str, tape: AnyTape) -> Learned:
        network = self.networks[name]
        return Learned(network.network, self.targets.get(name, network).parameters, self.adams[name], tape)

    def seen(self, observation: Floats) -> Floats:
        """Return observations `[M, …, S]` as networks are given them."""
        return self.normaliser.observations(observation)

    def start_episode(self, episode: int, members: NDArray[np.bool_]) -> None:
        """Begin a training episode of the chosen `members` `[M]`; nothing lasts for one unless a page says so."""

    def explore(self, observation: Floats, active: NDArray[np.bool_]) -> Explored:
        """Return the action to try, `[M, A]`, for observations `[M, S]`; only `active` `[M]` members draw."""
        self.normaliser.observations.update(observation, active)
        self._advance(observation, active)
        return self.re_explore(observation)

    def _advance(self, observation: Floats, active: NDArray[np.bool_]) -> None:
        """Draw what `re_explore` makes of a policy in this step, for the `active` members."""
        raise NotImplementedError

    def re_explore(self, observation: Floats) -> Explored:
        """Return what `explore` would have returned for another observation `[M, S]`; nothing is drawn."""
        raise NotImplementedError

    def policy(self, observation: Floats) -> Floats:
        """Return the greedy actions `[M, N, A]` for observations `[M, N, S]`."""
        raise NotImplementedError

    def policy_form(self) -> PolicyForm:
        """Return how the greedy action comes from a network."""
        raise NotImplementedError

    def sample(self, observation: Floats) -> Floats:
        """Return what the policy would do without further exploration; a stochastic one draws, with its own stream."""
        return self.policy(observation)

    @classmethod
    def check(cls, config: Any, actions: Actions, refer: bool) -> None:
        """Check that learners of this kind can do with these settings, these actions, and ReF-ER if it is asked for.

        Raises:
            UserError: they cannot; says what to do instead.
        """
        if actions.choices and not cls.discrete:
            raise UserError(
                f"{name_of(cls)} acts continuously, and {actions.plant} takes choices; use DQN or ACER-discrete"
            )
        if cls.discrete and hasattr(config, "levels"):
            ActionLevels(config.levels, actions.size, actions.choices)
        if refer:
            cls.check_refer(config)

    @classmethod
    def check_refer(cls, config: Any) -> None:
        """Check that learners of this kind, with these settings, can learn with ReF-ER.

        Raises:
            UserError: they cannot.
        """
        if not cls.supports_refer:
            raise UserError(f"{name_of(cls)} does not heed ReF-ER; use it with DDPG, NAF or V-RACER")

    @classmethod
    def check_runs_on(cls, device: str, config: Any, refer: bool) -> None:
        """Check that learners of this kind, with these settings, can be updated on `device`, should it be there.

        Raises:
            UserError: they cannot.
        """
        if device != "cpu":
            raise UserError(f'{name_of(cls)} runs on the CPU only; set device = "cpu"')

    def value_bonus(self) -> NDArray[np.float64]:
        """Return the most that `value` counts beside the scaled reward of a step, `[M]`; an entropy, for example."""
        return np.zeros(len(self.setting.members))

    def inputs(self, batch: Batch) -> tuple[Inputs, Inputs]:
        """Return what networks are evaluated on, for the samples of a batch and for their successors."""
        return self.seen(batch.observation), self.seen(batch.next_observation)

    def behaviours(self, batch: Batch) -> tuple[Floats, Floats]:
        """Return mean and log σ of what chose each action, `[M, B, A]`; `[M, B, 0]` where that is not known."""
        return self._nothing, self._nothing

    def rate_factor(self, batch: Batch, first: int) -> Floats:
        """Return the factor on each member's learning rates in update number `first`, `[M]`."""
        return batch.rate_factor

    def experiences(self, batch: Batch, first: int = 1) -> Experiences:
        """Return a batch of single experiences, as kernels see it; it is for updates from number `first` (from 1)."""
        observation, next_observation = self.inputs(batch)
        updates, scale = self.updates_of(batch), self.normaliser.rewards.factor
        return Experiences(
            observation, batch.action, batch.reward, next_observation, batch.terminated, batch.weight,
            batch.actor_weight, self.rate_factor(batch, first), *self.behaviours(batch),
            np.repeat(scale, updates) if updates > 1 else scale, self.task.discount,
        )  # fmt: skip

    def updates_of(self, batch: Batch) -> int:
        """Return U, the number of updates that a batch is for."""
        return len(batch.weight) // len(self.setting.members)

    def begin_updates(self, batch: Batch) -> int:
        """Count the updates that a batch is for; return the number of the first of them, from 1."""
        first = int(self.steps[0]) + 1
        self.steps += self.updates_of(batch)
        return first

    def annotations(self, batch: Batch) -> Floats:
        """Return room for a number of each sample, `[M·U, B]`."""
        return np.empty(batch.weight.shape, self.setting.dtype)

    def update(self, batch: Batch) -> Mapping[str, Floats]:
        """Learn from a batch; return annotations `[M, B]` for the experiences in it; `[M·U, B]` for U updates."""
        raise NotImplementedError

    def update_all(self, batches: Iterable[Batch]) -> None:
        """Learn from one batch after the other, each drawn when it is needed; nobody needs their annotations."""
        if self.on_device is not None:
            self.on_device.update_all(batches)
            return
        for batch in batches:
            self.update(batch)

    def greedy(self) -> Any:
        """Return what acts without exploration, `act(observation [M, S]) -> [M, A]`, in an episode that begins."""
        return self

    def on_step(
        self,
        reward: NDArray[np.float64],
        successor: Floats,
        terminated: NDArray[np.bool_],
        ended: NDArray[np.bool_],
        active: NDArray[np.bool_],
    ) -> Mapping[str, Floats]:
        """Learn of what an action led to, `[M]` each, successor `[M, S]`; return what is to be stored with it."""
        self.normaliser.rewards.update(reward, active)
        return {}

    def on_recorded_step(
        self, experience: Mapping[str, Floats], ended: NDArray[np.bool_], active: NDArray[np.bool_]
    ) -> Mapping[str, Floats]:
        """Learn of a recorded experience `[M, width]`, which it did not choose; return what is to be stored with it."""
        self.normaliser.observations.update(experience["observation"], active)
        self.normaliser.rewards.update(experience["reward"], active)
        return {}

    def metrics(self, stored: Mapping[str, Floats]) -> Mapping[str, NDArray[Any]]:
        """Return numbers `[M]` that tell how learning goes, given a sample `[M, n, width]` of what is stored."""
        return {}

    def act(self, observation: Floats) -> Floats:
        """Return the greedy actions `[M, A]` for observations `[M, S]`."""
        return self.policy(observation[:, None])[:, 0]
