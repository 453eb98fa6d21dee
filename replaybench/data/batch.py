"""Types that buffers and learners share: sampled batches, and rules for values along stored episodes (traces)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.runtime.arrays import Bools, Floats, Floats32, Integers, Integers32
from replaybench.runtime.kernel import kernel


class CriticLoss(NamedTuple):
    """The loss of a critic's TD errors δ, which a sampling rule can require.

    The loss is δ²/2 for |δ| ≤ `limit`, and beyond it has the gradient sign(δ) · `limit` · (|δ| / `limit`)^`exponent`.
    An exponent of 0 gives Huber's loss. All learners scale their losses as before: those whose squared loss is δ²
    multiply this loss by 2, on which Adam does not depend.

    Attributes:
        limit: Largest |δ| whose loss is quadratic.
        exponent: Growth of the gradient beyond `limit`.
        averaged: Whether the loss is divided by the mean of max(|δ|, `limit`)^`exponent` over the batch.
        separate: Share of the batch, from its first sample on, that serves one network only. The first half of these
            samples is for the critic, with Huber's loss. The second half is for the actor. `averaged` and `exponent`
            apply to the samples after them, which serve both.
    """

    limit: float = math.inf
    exponent: float = 0.0
    averaged: bool = False
    separate: float = 0.0


SQUARED: Final = CriticLoss()
"""The loss of most sampling rules."""


@kernel
def separate_samples(loss: CriticLoss, batch: int) -> int:
    """Return the number of samples for the critic only, and as many for the actor only, in a batch of `batch`."""
    return min(int(0.5 * loss.separate * batch + 0.5), batch // 2)


def network_weights(loss: CriticLoss, batch: int) -> tuple[Floats32, Floats32]:
    """Return the weights of a batch's samples in the critic's and in the actor's loss, float32, shape `[B]` each.

    A sample that does not serve a network has the weight 0. The other samples share its weight, so the sum is B.
    """
    alone = separate_samples(loss, batch)
    critic, actor = np.full((2, batch), batch / (batch - alone), np.float32)
    critic[alone : 2 * alone], actor[:alone] = 0, 0
    return critic, actor


MEMORY: Final = "memory"
"""Name of the field in which a learner can store the state of its recurrent network before the step."""


class Window(NamedTuple):
    """The observations of each sampled step and of the steps before it, for recurrent policies.

    A window has up to W successive steps. M is the number of members, and B the batch size.

    Attributes:
        observation: Observations of each window, the oldest first; float32, shape `[M, B, W, S]`. Entries after the
            sampled step are zero.
        length: Number of steps in each window, at least 1; int64, shape `[M, B]`.
        memory: Recurrent state that was stored with the first step of each window; float32, shape `[M, B, H]`. H is 0
            if the buffer stores no recurrent state.
    """

    observation: Floats32
    length: Integers
    memory: Floats32


@dataclass(frozen=True)
class ReplayBatch:
    """A batch of B experiences that was sampled from the buffer of each of M members.

    Members are independent learners. The next call of `Replay.sample` overwrites all arrays. If a sample is a segment
    of successive steps, columns have the shape `[M, B, steps, width]`, and steps after the first `length` are zero. If
    a batch serves U successive updates, arrays have M·U rows instead of M, and row m·U + u is for update u of member m.

    Attributes:
        columns: Stored fields of the samples by name, such as `reward`; float32, shape `[M, B, width]`.
        idx: Index in the buffer of each sample; int64, shape `[M, B]`.
        serial: Number of each sample, or of its first step, in order of collection, from 1; uint32, shape `[M, B]`.
        probability: Probability with which each sample was drawn; float64, shape `[M, B]`. NaN means unknown.
        weight: Weight of each sample in the critic's loss; float32, shape `[M, B]`.
        actor_weight: Weight of each sample in the losses of the actor and of a value network; float32, shape `[M, B]`.
        rate_factor: Factor on the learning rates of each member; float32, shape `[M]`.
        length: Number of steps in each segment; uint16, shape `[M, B]`. None if samples are single steps.
        traces: Values that the learner's `TraceRule` maintains for each sample, if any; float32, shape `[M, B, K]`.
        window: Observations of the steps up to each sample. None if the learner needs single steps only.
        update: Index, from 0, of the batch's first update in its update phase (the updates after an episode or
            rollout).
        updates_in_phase: Number of updates in the update phase.
        critic_loss: Loss of the TD errors.
        steps: Number of steps whose rewards `reward` sums, shape `[M, B]`; int64. `next_observation` and `terminated`
            then belong to the last of these steps. None if each sample is one step.
    """

    columns: Mapping[str, Floats32]
    idx: Integers
    serial: NDArray[np.uint32]
    probability: Floats
    weight: Floats32
    actor_weight: Floats32
    rate_factor: Floats32
    length: NDArray[np.uint16] | None = None
    traces: Floats32 | None = None
    window: Window | None = None
    update: int = 0
    updates_in_phase: int = 1
    critic_loss: CriticLoss = SQUARED
    steps: Integers | None = None

    @property
    def observation(self) -> Floats32:
        """The observations before the sampled steps, as collected; float32, shape `[M, B, S]`."""
        return self.columns["observation"]

    @property
    def action(self) -> Floats32:
        """The commanded actions of the sampled steps; float32, shape `[M, B, A]`."""
        return self.columns["action"]

    @property
    def reward(self) -> Floats32:
        """The unscaled rewards of the sampled steps; float32, shape `[M, B, 1]`."""
        return self.columns["reward"]

    @property
    def next_observation(self) -> Floats32:
        """The observations after the sampled steps; float32, shape `[M, B, S]`.

        After the last step of an episode, this is the final observation, not that of the next reset.
        """
        return self.columns["next_observation"]

    @property
    def terminated(self) -> Floats32:
        """Whether the states after the sampled steps are terminal, as 1 or 0; float32, shape `[M, B, 1]`."""
        return self.columns["terminated"]


Links = Integers32
Slots = Integers


class TraceRule:
    """Callbacks by which a learner maintains K values, called traces, for each step in the buffer.

    A trace may depend on later steps of the episode, as the return estimate of Retrace does. The callbacks of this base
    class do nothing. A slot is an index in the buffer, and −1 stands for no slot. M is the number of members,
    and N the capacity of the buffer.

    Most callbacks have these arguments:
        values: Traces of all stored steps, in the order of `names`; float32, shape `[M, N, K]`. A callback may write
            to this array only.
        previous: Slot of the preceding step of the same episode, if that step is stored; int32, shape `[M, N]`.
        next: Slot of the following step of the same episode, if that step is stored; int32, shape `[M, N]`.
    """

    names: tuple[str, ...] = ()
    """Names of the K values that the rule maintains for each step."""

    def followed(self, values: Floats32, last: Slots, experience: Mapping[str, np.ndarray]) -> None:
        """Update traces for the new experience of each member, before the buffer stores or discards the experience.

        Args:
            last: Slot of the preceding step of each member, or −1 if that step is not stored; int64, shape `[M]`. The
                rule may keep this array until `stored` is called.
            experience: Fields of the new experience by name, shape `[M, width]`.
        """

    def evicting(self, values: Floats32, previous: Links, next: Links, slots: Slots) -> None:
        """Update traces before the steps in `slots` are overwritten, while the links of these steps are still valid.

        `slots` contains one buffer index for each member, or −1 for none.
        """

    def stored(self, values: Floats32, previous: Links, next: Links, slots: Slots, ended: Bools) -> None:
        """Update traces after the new step of each member was stored and linked to the preceding step.

        The trace of a new step is 0, unless the experience contains a field of that name.

        Args:
            slots: Buffer index of the new step of each member, or −1 if the step was discarded;
                int64, shape `[M]`. If the step was discarded, the preceding step remains without a next step.
            ended: Whether the episode of each member ends with the new step, stored or not; bool, shape `[M]`.
        """

    def annotated(
        self, values: Floats32, previous: Links, next: Links, idx: Slots, annotations: Mapping[str, np.ndarray]
    ) -> None:
        """Update traces from the values that the learner returns for sampled steps, such as TD errors.

        Args:
            idx: Buffer indices of the B sampled steps, or −1 for a step that was replaced in the meantime; int64, shape
                `[M, B]`.
            annotations: Values of the learner for each sampled step, by name.
        """

    def loaded(self, values: Floats32, count: Slots) -> None:
        """Update the rule after a saved buffer was loaded into the first `count[m]` slots of each member m."""
