"""Modifiers of new experiences, `Drop` and `Synth` (de Bruin et al., 2018, sections 6.2 to 6.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from replaybench.replay.storage.columns import Indices, State
from replaybench.replay.strategies.interface import BufferView, Drawing, Term
from replaybench.runtime.arrays import Bools, Floats, Floats32
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import next_double

BASE_FREQUENCY: Final = 50.0


@dataclass(frozen=True)
class Drop(Term):
    """Random discarding of new experiences before retention (de Bruin et al., 2018, section 6.4).

    Attributes:
        probability: Probability of discarding an experience. The value `rate` means 1 − 50/f at a control rate of f >
            50 Hz, and 0 at lower rates.
    """

    probability: float | Literal["rate"] = "rate"
    always_written = True  # without its probability, `Drop` would be ambiguous

    def __post_init__(self) -> None:
        if self.probability != "rate" and not (isinstance(self.probability, int | float) and 0 <= self.probability < 1):
            raise UserError(f"Drop({self.probability}): give a probability in [0, 1), or rate for 1 − 50/f")

    def at(self, frequency: float) -> Drop:
        """Return the modifier with the number that `rate` means at a control rate in Hz as its probability."""
        if self.probability != "rate":
            return self
        return Drop(max(0.0, 1.0 - BASE_FREQUENCY / frequency))


class RunningDrop(Drawing):
    """The object that discards new experiences during a run, as `Drop` describes."""

    def __init__(self, description: Drop, view: BufferView) -> None:
        if isinstance(description.probability, str):
            raise UserError("Drop(rate) needs the control rate: write parse(…).at(frequency)")
        super().__init__(view, "drop")
        self.probability = description.probability

    def filter(self, offered: Bools) -> None:
        """Set `offered[m]` to False if an experience is discarded. No number is drawn where it is False already."""
        _drop(self.stream.state, self.probability, offered)


@kernel
def _drop(stream: NDArray[np.uint64], probability: float, offered: Bools) -> None:
    for m in range(offered.size):
        if offered[m] and next_double(stream[m]) < probability:
            offered[m] = False


class Model(Protocol):
    """The interface through which `Synth` computes synthetic experiences from a plant's model and a policy."""

    def possible(self, action: Floats32) -> Floats32:
        """Map actions that are uniform in [−1, 1], shape `[M, A]`, to random actions that the learner can take."""

    def simulate(self, observation: Floats32, action: Floats32) -> tuple[Floats, Floats, Bools]:
        """Simulate a step without noise, and return next observation `[M, S]`, reward `[M]` and termination `[M]`."""

    def explore(self, observation: Floats32) -> tuple[Floats32, Floats32, Mapping[str, Floats32]]:
        """Return the exploring action that each member's agent would now take at a given observation.

        Returns:
            The action a `[M, A]`, the distance ‖a − π(s)‖₁ `[M]` from the policy's action, and the other fields that
            the learner stores, `[M, width]` by name.
        """

    def deviation(self, observation: Floats32, action: Floats32) -> Floats32:
        """Return the distance ‖a − π(s)‖₁ of each member's action from the policy's action, shape `[M]`."""


@dataclass(frozen=True)
class Synth(Term):
    """Random replacement of new experiences by synthetic ones (de Bruin et al., 2018, section 6.2.1).

    The model of the plant computes next state and reward of a synthetic experience, without noise.

    Attributes:
        state: Probability of replacing the state by a uniformly random one. The action is then that of the policy in
            this state, with exploration.
        action: Probability of replacing the action by a uniformly random one that the learner can take.
        refresh: Probability that a synthetic experience is replaced by a new synthetic one when its slot is due to be
            overwritten (section 6.3.1). Otherwise the old one stays. If `refresh` is below 1, synthetic experiences
            replace only synthetic ones in a full buffer. Their fraction is then constant.
    """

    state: float = 0.0
    action: float = 0.0
    refresh: float = 1.0
    keywords = True

    def __post_init__(self) -> None:
        for name in ("state", "action", "refresh"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"Synth: {name} is a probability, not {getattr(self, name):g}")
        if not 0 < self.state + self.action <= 1:
            raise UserError(
                "Synth: state and action are probabilities, e.g. Synth(state=0.1); their sum lies in (0, 1]"
            )


class RunningSynth(Drawing):
    """The object that replaces experiences by synthetic ones during a run, as `Synth` describes.

    If `refresh` is below 1, the array `synthetic` marks slots with synthetic experiences; bool, shape `[M, N]` for N
    buffer slots.
    """

    def __init__(self, description: Synth, view: BufferView, model: Model | None) -> None:
        if model is None:
            raise UserError("Synth needs a plant with a model (simulate); this one has none: leave Synth out")
        super().__init__(view, "synthesis")
        self.description, self.model, self.columns = description, model, view.columns
        members = len(view.members)
        self.synthetic = np.zeros((members, view.capacity if description.refresh < 1 else 0), np.bool_)

    def alter(self, row: Floats32, slots: Indices, fresh: Bools) -> None:
        """Replace some of the members' new experiences by synthetic ones in place, before they are stored in `slots`.

        `row` contains the W values of each experience, shape `[M, W]`. `fresh` marks members whose buffer slot is
        empty. An entry of `slots` becomes −1 if the slot keeps its old experience.
        """
        views = {name: row[:, span] for name, span in self.columns.spans.items()}
        observation, action = views["observation"].copy(), views["action"].copy()
        kind = np.zeros(len(slots), np.int8)
        own = self.description
        _choose(
            self.stream.state, own.state, own.action, own.refresh, self.synthetic, slots, fresh, kind,
            observation, action,
        )  # fmt: skip
        if not kind.any():
            return
        explored, deviation, extras = self.model.explore(observation)
        of_state, of_action = kind == 1, kind == 2
        action[of_action] = self.model.possible(action)[of_action]
        action[of_state] = explored[of_state]
        deviation = np.where(of_state, deviation, self.model.deviation(observation, action))
        successor, reward, terminated = self.model.simulate(observation, action)
        new: dict[str, np.ndarray] = {
            "observation": observation, "action": action, "reward": reward[:, None], "next_observation": successor,
            "terminated": terminated[:, None], "exploration": deviation[:, None],
        }  # fmt: skip
        for name, view in views.items():
            if name in new:
                view[kind > 0] = new[name][kind > 0]
            elif name in extras:
                view[of_state] = extras[name][of_state]
            else:
                view[of_state if name == "sensor_noise" else kind > 0] = 0  # a model has no noise

    def state_dict(self, stored: int) -> State:
        kept = {"synthetic": self.synthetic[:, :stored].view(np.uint8)} if self.description.refresh < 1 else {}
        return {**super().state_dict(stored), **kept}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        super().load_state_dict(state)
        if self.description.refresh < 1:
            self.synthetic[:, : state["synthetic"].shape[1]] = state["synthetic"].astype(np.bool_)


@kernel
def _choose(
    stream: NDArray[np.uint64],
    of_state: float,
    of_action: float,
    refresh: float,
    synthetic: Bools,
    slots: Indices,
    fresh: Bools,
    kind: NDArray[np.int8],
    observation: Floats32,
    action: Floats32,
) -> None:
    """Choose the type of each experience, and draw the random state or action.

    The types are 0 (unchanged), 1 (random state) and 2 (random action).
    """
    for m in range(slots.size):
        if slots[m] < 0:
            continue
        draw = next_double(stream[m])
        if refresh < 1.0 and not fresh[m]:
            if not synthetic[m, slots[m]]:
                continue
            draw *= of_state + of_action  # one of the two types, in proportion to their probabilities
            if next_double(stream[m]) >= refresh:
                slots[m] = -1
                continue
        if draw < of_state:
            kind[m] = 1
            for s in range(observation.shape[1]):
                observation[m, s] = 2.0 * next_double(stream[m]) - 1.0
        elif draw < of_state + of_action:
            kind[m] = 2
            for a in range(action.shape[1]):
                action[m, a] = 2.0 * next_double(stream[m]) - 1.0
        if refresh < 1.0:
            synthetic[m, slots[m]] = kind[m] > 0
