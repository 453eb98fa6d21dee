"""A strategy: entry, retention, sampling, weighting and ReF-ER (Novati & Koumoutsakos 2019)."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from replaybench.replay.storage.columns import Indices
from replaybench.replay.storage.schema import KINDS
from replaybench.replay.strategies.entry import Drop, Synth
from replaybench.replay.strategies.interface import (
    Retention,
    RunningRetention,
    RunningSampling,
    Sampling,
    Term,
    Weighting,
)
from replaybench.runtime.errors import UserError
from replaybench.runtime.user_file import name_in_file


@dataclass(frozen=True)
class ReFER1(Term):
    """ReF-ER's Rule 1 alone: far-policy steps are masked; the divergence is not penalised.

    Attributes:
        c: C, the initial bound on the deviation of ρ from 1; anneal: A, its annealing per update.
        rules: whether Rule 1 and Rule 2 apply.
    """

    c: float = 4.0
    anneal: float = 5e-7
    name = "ReFER-1"
    rules: ClassVar[tuple[int, ...]] = (1,)

    def __post_init__(self) -> None:
        if not 0 < self.c < float("inf"):
            raise UserError(f"ReFER: c must be a finite number > 0, not {self.c}")
        if not 0 <= self.anneal < float("inf"):
            raise UserError(f"ReFER: anneal must be a finite number ≥ 0, not {self.anneal}")


@dataclass(frozen=True)
class ReFER(ReFER1):
    """Mask far-policy steps (Rule 1) and penalise the divergence from past behaviours (Rule 2).

    Attributes:
        far: D, the target fraction of far-policy steps.
        beta: initial β; beta_rate: its step per update, the learner's learning rate if None.
        kl: `mu_pi`, D_KL(μ‖π) as printed, or `pi_mu`, D_KL(π‖μ) as the authors' public code has it.
    """

    far: float = 0.1
    beta: float = 1.0
    beta_rate: float | None = None
    kl: Literal["mu_pi", "pi_mu"] = "mu_pi"
    name = "ReFER"
    rules: ClassVar[tuple[int, ...]] = (1, 2)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.far < 1:
            raise UserError(f"ReFER: far is a fraction, in (0, 1), not {self.far}")
        if not 0 <= self.beta <= 1:
            raise UserError(f"ReFER: beta must lie in [0, 1], not {self.beta}")
        if self.beta_rate is not None and not 0 <= self.beta_rate <= 1:
            raise UserError(f"ReFER: beta_rate must lie in [0, 1] or be none, not {self.beta_rate}")
        if self.kl not in ("mu_pi", "pi_mu"):
            raise UserError(f"ReFER: kl is mu_pi or pi_mu, not {self.kl}")


@dataclass(frozen=True)
class ReFER2(ReFER):
    """ReF-ER's Rule 2 alone: penalise the divergence from past behaviours; far-policy steps count with clipped ρ."""

    name = "ReFER-2"
    rules: ClassVar[tuple[int, ...]] = (2,)


@dataclass(frozen=True)
class Strategy:
    """A strategy: entry, retention, sampling, weighting and, for the learner, ReF-ER.

    Raises:
        UserError: the parts are incompatible.
    """

    retention: Retention
    sampling: Sampling
    weighting: Weighting | None = None
    drop: Drop | None = None
    synth: Synth | None = None
    refer: ReFER1 | None = None

    def __post_init__(self) -> None:
        if self.weighting and self.weighting.by_probability and self.sampling.importance_undefined:
            weighting, sampling = self.weighting.written_name(), self.sampling.written_name()
            why = self.sampling.importance_undefined
            raise UserError(f"{weighting} makes no sense with {sampling}: {why}; leave +{weighting} out")

    @property
    def weights(self) -> Weighting | None:
        """The named weighting, else the default of the sampling, if any."""
        return self.weighting or self.sampling.weighting

    @property
    def anneals(self) -> bool:
        """Whether sampling or weights may depend on the progress of the run."""
        return not (self.sampling.steady and (self.weights is None or self.weights.steady))

    @property
    def in_turn(self) -> bool:
        """Whether slots are filled and overwritten in turn, so that slot order is age order."""
        return self.retention.in_turn and (self.synth is None or self.synth.refresh == 1)

    def capacity_or(self, default: int) -> int:
        """Return the capacity in experiences: the retention's own, else `default`."""
        return self.retention.capacity or default

    @property
    def orders(self) -> tuple[str, ...]:
        """The metrics for which rank orders are needed."""
        return tuple(dict.fromkeys((*self.retention.orders, *self.sampling.orders)))

    @property
    def by_td_error(self) -> bool:
        """Whether it needs TD errors from the learner."""
        return "td_error" in self.orders or "td_error" in self.sampling.feedback

    def at(self, frequency: float) -> Strategy:
        """Return the strategy at a control rate [Hz], on which `Drop(rate)` depends."""
        return self if self.drop is None else dataclasses.replace(self, drop=self.drop.at(frequency))

    @property
    def entry_share(self) -> float:
        """Share of the offers that reach the retention strategy."""
        return 1.0 if self.drop is None else 1.0 - float(self.drop.probability)

    @property
    def slot_bytes(self) -> int:
        """The approximate bytes per slot in addition to the row."""
        weights = self.weights.slot_bytes if self.weights else 0
        parts = self.retention.slot_bytes + self.sampling.slot_bytes(self.in_turn) + weights
        return 4 + 20 * len(self.orders) + parts

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms, in the order of the notation."""
        parts = (self.drop, self.synth, self.retention, self.sampling, self.weighting, self.refer)
        return tuple(part for part in parts if part is not None)

    def __str__(self) -> str:
        entries = "".join(f"{entry}*" for entry in (self.drop, self.synth) if entry)
        modifiers = "".join(f"+{term}" for term in (self.weighting, self.refer) if term)
        return f"{entries}{self.retention}[{self.sampling}{modifiers}]"


def choose_slots(running: RunningRetention, offers: Indices, capacity: int, slots: Indices) -> None:
    """Let a retention fill `slots` `[M]` where they are −2; check the result of a user's retention.

    Raises:
        UserError: it chose a slot that does not exist, or changed another entry.
    """
    if is_built_in(running):
        running.slots(offers, capacity, slots)
        return
    before, full = slots.copy(), slots == -2
    running.slots(offers, capacity, slots)
    if (slots[~full] != before[~full]).any():
        raise UserError(f"{_class_name(running)}: slots changed an entry that was not -2")
    if ((slots < -1) | (slots >= capacity))[full].any():
        wrong = slots[full][(slots[full] < -1) | (slots[full] >= capacity)][0]
        raise UserError(f"{_class_name(running)}: slots chose {wrong}, not -1 or a slot from 0 to {capacity - 1}")


def check_drawn(running: RunningSampling, idx: Indices, stored: Indices) -> None:
    """Raise `UserError` if a user's sampling drew slots `[M, …]` beyond the `stored` ones `[M]`."""
    drawn = idx.reshape(len(stored), -1)
    beyond = (drawn < 0) | (drawn >= stored[:, None])
    if beyond.any():
        member = int(beyond.any(axis=1).argmax())
        wrong, last = drawn[member][beyond[member]][0], stored[member] - 1
        raise UserError(f"{_class_name(running)}: draw chose slot {wrong} of a member that has 0 to {last}")


def check_state_dict(running: object, state: Mapping[str, Any], taken: Collection[str], members: int) -> None:
    """Raise `UserError` if a user's `state_dict` has an entry that a file cannot hold, or a name that is `taken`."""
    if is_built_in(running):
        return
    for name, array in state.items():
        entry = f"{_class_name(running)}: {name!r} of state_dict"
        if name in taken:
            raise UserError(f"{entry} has the name of an array of the buffer; give it another name")
        if not isinstance(array, np.ndarray) or array.shape[:1] != (members,):
            raise UserError(f"{entry} must be an array that begins with M = {members}")
        kind = array.dtype.str[1:]
        if KINDS.get(name, kind) != kind:
            raise UserError(f"{entry} is of type {kind}, and of {KINDS[name]} in buffer files; give it another name")


def is_built_in(running: object) -> bool:
    """Return whether a running form comes with the package."""
    return type(running).__module__.startswith("replaybench.")


def _class_name(running: object) -> str:
    return name_in_file(type(running)) or type(running).__name__
