"""What the training loop asks of a learner, and what a learner may expect of a batch.

Learners see plants only through array shapes and replay only through batches; they never learn which strategy
drew the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.exploration.process_noise import Explored
from replaybench.controllers.networks.greedy_form import PolicyForm
from replaybench.controllers.normaliser import Normaliser

Floats = NDArray[np.floating]


class Window(Protocol):
    """The successive steps of an episode that end with each sample."""

    @property
    def observation(self) -> Floats:
        """`[M, B, W, S]`, the oldest first, zero behind the sample's own."""

    @property
    def length(self) -> NDArray[np.int64]:
        """Steps of each window `[M, B]`, at least 1."""

    @property
    def memory(self) -> Floats:
        """What the learner stored as `memory` with the first step of each, `[M, B, H]`; H = 0 if nothing."""


class Batch(Protocol):
    """Replayed experiences of all members, float32; the arrays are overwritten by the next batch.

    For learners with `several_at_once` a batch may be for U successive updates, with M·U rows in the place of M: row
    m·U + u is what member m learns from in update u.
    """

    @property
    def observation(self) -> Floats:
        """`[M, B, S]`."""

    @property
    def action(self) -> Floats:
        """Commanded action, `[M, B, A]`."""

    @property
    def reward(self) -> Floats:
        """Unscaled reward, `[M, B, 1]`."""

    @property
    def next_observation(self) -> Floats:
        """True successor, `[M, B, S]`."""

    @property
    def terminated(self) -> Floats:
        """1 where the successor's value is zero, `[M, B, 1]`; a time limit does not count."""

    @property
    def columns(self) -> Mapping[str, Floats]:
        """Every stored field by name; `[M, B, steps, width]` where segments are replayed."""

    @property
    def length(self) -> NDArray[np.uint16] | None:
        """Steps of each segment `[M, B]`, the others are zero; None where single steps are replayed."""

    @property
    def traces(self) -> Floats | None:
        """The learner's traces of each sample as they are stored, `[M, B, K]`; None if it keeps none."""

    @property
    def window(self) -> Window | None:
        """What led to each sample; None where learners ask for single steps."""

    @property
    def weight(self) -> Floats:
        """Importance weight of each sample in the critic's loss, `[M, B]`."""

    @property
    def actor_weight(self) -> Floats:
        """Weight of each sample in the actor's loss, `[M, B]`."""

    @property
    def rate_factor(self) -> Floats:
        """Factor on the learning rate of each member, `[M]`."""


class Task(NamedTuple):
    """What a learner must know of its plant and schedule.

    Attributes:
        action_choices: how many values each action takes, evenly spaced in [−1, 1]; empty where actions are continuous.
    """

    observation_size: int
    action_size: int
    discount: float
    reward_scale: float
    action_choices: tuple[int, ...] = ()


class Actions(NamedTuple):
    """What a plant of this name lets a learner do, for checks before anything is computed.

    Attributes:
        size: number of actions A.
        choices: as in `Task`.
    """

    plant: str
    size: int
    choices: tuple[int, ...] = ()


class Agent(Protocol):
    """A population of learners of one algorithm; `replaybench.controllers.learner.Learner` says what the names mean."""

    config: Any
    normaliser: Normaliser
    task: Task
    batch_size: int
    replays_per_experience: float
    fields: Mapping[str, int]
    segment: int
    window: int
    traces: Any
    on_policy: bool
    several_at_once: bool
    discrete: bool
    warmup_episodes: int
    warming_up: bool
    metric_names: tuple[str, ...]

    def start_episode(self, episode: int, members: NDArray[np.bool_]) -> None:
        """Reset what lasts for one training episode (exploration, memory) of the chosen `members` `[M]`.

        Theirs begins in round `episode`, counted from 0. The others, in the midst of theirs, stay as they are.
        """

    def explore(self, observation: Floats, active: NDArray[np.bool_]) -> Explored:
        """Return the action to try, `[M, A]`, exploration included, for observation `[M, S]`; it may pass ±1.

        Members that are not `active` `[M]` wait for the others and must draw nothing.
        """

    def re_explore(self, observation: Floats) -> Explored:
        """Return what `explore` would have returned for another observation `[M, S]`; nothing is drawn."""

    def greedy(self) -> Any:
        """Return what acts without exploration, `act(observation [M, S]) -> [M, A]`, in an episode that begins."""

    def on_step(
        self,
        reward: NDArray[np.float64],
        successor: Floats,
        terminated: NDArray[np.bool_],
        ended: NDArray[np.bool_],
        active: NDArray[np.bool_],
    ) -> Mapping[str, Floats]:
        """Learn of what an action led to, `[M]` each, successor `[M, S]`; return what is to be stored with it."""

    def on_recorded_step(
        self, experience: Mapping[str, Floats], ended: NDArray[np.bool_], active: NDArray[np.bool_]
    ) -> Mapping[str, Floats]:
        """Learn of a recorded experience `[M, width]`, which it did not choose; return what is to be stored with it."""

    def metrics(self, stored: Mapping[str, Floats]) -> Mapping[str, NDArray[Any]]:
        """Return numbers `[M]` that tell how learning goes, given a sample `[M, n, width]` of what is stored."""

    def act(self, observation: Floats) -> Floats:
        """Return the greedy action `[M, A]`."""

    def value(self, observation: Floats) -> Floats:
        """Return the value `[M, N]` that each member gives to observations `[M, N, S]` under its policy."""

    def value_bonus(self) -> NDArray[np.float64]:
        """Return the most that `value` counts beside the scaled reward of a step, `[M]`; an entropy, for example."""

    def policy(self, observation: Floats) -> Floats:
        """Return the greedy actions `[M, N, A]` for observations `[M, N, S]`."""

    def sample(self, observation: Floats) -> Floats:
        """Return actions `[M, N, A]` for observations `[M, N, S]`: a stochastic policy draws them."""

    def policy_form(self) -> PolicyForm:
        """Return how the greedy action comes from a network."""

    def update(self, batch: Batch) -> Mapping[str, Floats]:
        """Learn from a batch; return annotations `[M, B]` for the experiences in it (`td_error`, and for traces).

        With `several_at_once` it may be one for U updates, and its arrays, and annotations, `[M·U, …]`.
        """

    def update_all(self, batches: Iterable[Batch]) -> None:
        """Learn from one batch after the other, each drawn when it is needed; nobody needs their annotations."""

    def weights(self) -> Mapping[str, NDArray[np.generic]]:
        """Return what has been learned, by name: the content of a policy file."""

    def load_weights(self, weights: Mapping[str, NDArray[np.generic]]) -> None:
        """Take over weights as `weights` returns them.

        Raises:
            UserError: they do not fit this learner.
        """

    def state_dict(self) -> Mapping[str, NDArray[Any]]:
        """Return everything that a resumed run needs, by name."""

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state_dict`, bit for bit."""
