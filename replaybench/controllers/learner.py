"""What all learners share: names for their networks, what a policy file holds, what a checkpoint holds.

A learner's page sets `networks` (learned and kept in policy files), `targets` (slow copies, under the name of the
network that they follow), `adams` and, where it has further arrays that change, overrides `_further`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.agent import Actions, Batch, Floats, Task
from replaybench.controllers.device import OnDevice
from replaybench.controllers.networks.adam import Adam
from replaybench.controllers.networks.greedy_form import PolicyForm
from replaybench.controllers.networks.network import Population
from replaybench.controllers.normaliser import Normaliser
from replaybench.controllers.registry import name_of
from replaybench.data.errors import UserError

Arrays = dict[str, NDArray[Any]]


class Learner:
    """Base of the learners' pages.

    Attributes:
        fields: widths of what must be stored with each experience beside ⟨s, a, r, s′⟩.
        segment: successive steps that are stored and replayed as one; 1 for single steps.
        window: steps of its episode that end with it, so many at most, which each replayed one comes with.
        traces: numbers that the learner derives along stored episodes, None if it derives none.
        on_policy: whether an update on the newest experiences precedes those on replayed ones.
        warmup_episodes: episodes, or rounds of steps, before the first update.
        warming_up: whether the present one is among them, as whoever trains the learner says.
        normaliser: what scales observations and rewards, if asked to. `explore` is to tell it of
            observations, as `followed` does of rewards.
        chooses: whether its actions are choices out of a finite set.
        heeds_refer: whether the constructor takes a strategy's ReF-ER as `refer`.
        on_device: what updates the networks, where that is not done on the CPU.
        metric_names: what `metrics` returns.
        steps: int64 `[1]`, updates done.
    """

    fields: Mapping[str, int] = {}
    segment = 1
    window = 1
    traces: Any = None
    on_policy = False
    warmup_episodes = 0
    warming_up = False
    chooses = False
    heeds_refer = False
    on_device: OnDevice | None = None
    metric_names: tuple[str, ...] = ()
    normaliser: Normaliser
    task: Task
    networks: Mapping[str, Population]
    targets: Mapping[str, Population]
    adams: dict[str, Adam]
    steps: NDArray[np.int64]

    config: Any

    def policy(self, observation: Floats) -> Floats:
        """Return the greedy actions `[M, N, A]` for observations `[M, N, S]`."""
        raise NotImplementedError

    def policy_form(self) -> PolicyForm:
        """Return how the greedy action comes from a network.

        Raises:
            UserError: it depends on a memory, too.
        """
        raise NotImplementedError

    def sample(self, observation: Floats) -> Floats:
        """Return what the policy would do without further exploration; a stochastic one draws, with its own stream."""
        return self.policy(observation)

    @classmethod
    def check(cls, config: Any, actions: Actions, refer: bool) -> None:
        """Check that learners of this kind can do with these settings, these actions, and with ReF-ER if it is asked.

        Raises:
            UserError: they cannot; says what to do instead.
        """
        if actions.choices and not cls.chooses:
            raise UserError(
                f"{name_of(cls)} acts continuously, and {actions.plant} takes choices; use DQN or ACER-discrete"
            )
        if refer and not cls.heeds_refer:
            raise UserError(f"{name_of(cls)} does not heed ReF-ER; use it with DDPG, NAF or V-RACER")

    @classmethod
    def check_runs_on(cls, device: str, config: Any, refer: bool) -> None:
        """Check that learners of this kind, with these settings, can be updated on `device`, should it be there.

        Raises:
            UserError: they cannot.
        """
        if device != "cpu":
            raise UserError(f'{name_of(cls)} runs on the CPU only; set device = "cpu"')

    def update(self, batch: Batch) -> Mapping[str, Floats]:
        """Learn from a batch; return annotations `[M, B]` for the experiences in it."""
        raise NotImplementedError

    def update_all(self, batches: Iterable[Batch]) -> None:
        """Learn from one batch after the other, each drawn when it is needed; nobody needs their annotations."""
        if self.on_device is not None:
            self.on_device.update_all(batches)
            return
        for batch in batches:
            self.update(batch)

    def fetch(self, *names: str) -> None:
        """Bring `trained` arrays of these names, or all of them, up to date, should they be kept on a device."""
        if self.on_device is not None:
            self.on_device.fetch(*names)

    def greedy(self) -> Any:
        """Return what acts without exploration, `act(observation [M, S]) -> [M, A]`, in an episode that begins."""
        return self

    def followed(
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

    def recalled(
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
        """Take over `weights` of as many members, the targets with them; optimisers and exploration stay as they are.

        Raises:
            UserError: the weights are those of other networks.
        """
        mine = self.weights()
        shapes, theirs = ({name: array.shape for name, array in named.items()} for named in (mine, weights))
        if shapes != theirs:
            kind = name_of(type(self))
            raise UserError(
                f"these weights do not fit the networks of this {kind}; build it with the settings they had"
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
        """Return the arrays `[M, P]` that updates change: networks, targets, Adam's moments."""
        return {
            **{name: network.parameters for name, network in self.networks.items()},
            **{f"{name}_target": target.parameters for name, target in self.targets.items()},
            **{f"{name}_first": adam.first for name, adam in self.adams.items()},
            **{f"{name}_second": adam.second for name, adam in self.adams.items()},
        }

    def state_dict(self) -> Arrays:
        """Return networks, targets, optimisers, and whatever else the next updates and actions depend on."""
        self.fetch()
        return {**self.trained(), "steps": self.steps, **self.normaliser.state_dict(), **self._further()}

    def _further(self) -> Arrays:
        """Return further arrays that change, such as random streams; they are overwritten in place on loading."""
        return {}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state_dict`, bit for bit."""
        for name, array in self.state_dict().items():
            array[...] = state[name]
        self._push()
