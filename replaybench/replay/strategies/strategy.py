"""Replay strategies, which combine rules for entry, retention, sampling and weighting with the settings of ReF-ER."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from replaybench.data.batch import TraceRule
from replaybench.replay.storage.columns import Indices
from replaybench.replay.storage.schema import KINDS
from replaybench.replay.storage.slots import Unit
from replaybench.replay.strategies.entry import Drop, Synth
from replaybench.replay.strategies.interface import (
    FEEDBACK,
    Retention,
    RunningRetention,
    RunningSampling,
    Sampling,
    Term,
    Weighting,
)
from replaybench.replay.strategies.mixed import Mix
from replaybench.runtime.errors import UserError, unknown
from replaybench.runtime.user_file import name_in_file


@dataclass(frozen=True)
class ReFER1(Term):
    """Rule 1 of ReF-ER alone, which masks the gradients of far-policy steps (Novati & Koumoutsakos, 2019).

    A step is far-policy if its importance weight ρ is outside the interval from 1/c_max to c_max. After t updates,
    c_max = 1 + C / (1 + A·t) (eq. 13). The divergence from past behaviour policies is not penalised.

    Attributes:
        c: C, the initial value of c_max − 1.
        anneal: A, the annealing of c_max per update.
        rules: Numbers of the rules that apply.
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
    """Remember and forget experience replay, ReF-ER (Novati & Koumoutsakos, 2019).

    Rule 1 masks the gradients of far-policy steps, whose importance weights are outside of [1/c_max, c_max]. Rule 2
    penalises the divergence from past behaviour policies with the coefficient 1 − β (eq. 10 and 11). β decreases while
    more than a fraction D of the stored steps is far-policy. Otherwise it increases (eq. 12).

    Attributes:
        far: D, the target fraction of far-policy steps.
        beta: Initial β.
        beta_rate: Step size of β per update, or None for the learner's learning rate.
        kl: Penalised divergence between the policy π and the past behaviour μ. `mu_pi` is D_KL(μ‖π), as in the paper.
            `pi_mu` is D_KL(π‖μ), as in the authors' public code.
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
    """Rule 2 of ReF-ER alone, which penalises the divergence from past behaviour (Novati & Koumoutsakos, 2019).

    Steps with a very large or small importance weight are not masked. Importance weights are clipped instead.
    """

    name = "ReFER-2"
    rules: ClassVar[tuple[int, ...]] = (2,)


@dataclass(frozen=True)
class Newest(Term):
    """Combined experience replay: one sample of each batch is the newest stored experience (Zhang & Sutton, 2017).

    It replaces the last of the B samples that the sampling rule draws, and has the importance weight of an experience
    that is drawn uniformly.
    """


@dataclass(frozen=True)
class Strategy:
    """A replay strategy, which combines rules for entry, retention, sampling and weighting.

    Attributes:
        retention: Rule that chooses which experience a full buffer overwrites.
        sampling: Rule that chooses the experiences of each batch.
        weighting: Rule for the weights of samples in the loss, or None for the default of `sampling`.
        drop: Random discarding of new experiences, or None.
        synth: Replacement of new experiences by synthetic ones, or None.
        refer: Rules of ReF-ER that the learner applies, or None.
        newest: Whether each batch contains the newest experience (`Newest`), or None.
        mix: Share of each batch that is from a fixed file, or None.

    Raises:
        UserError: The weighting or `mix` makes no sense with the sampling.
    """

    retention: Retention
    sampling: Sampling
    weighting: Weighting | None = None
    drop: Drop | None = None
    synth: Synth | None = None
    refer: ReFER1 | None = None
    newest: Newest | None = None
    mix: Mix | None = None

    def __post_init__(self) -> None:
        if self.mix and self.sampling.critic_loss.separate:
            raise UserError(
                f"Mix makes no sense with {self.sampling.written_name()}, which draws other samples for the actor than "
                "for the critic; leave Mix out"
            )
        if self.weighting and self.weighting.by_probability and self.sampling.importance_undefined:
            weighting, sampling = self.weighting.written_name(), self.sampling.written_name()
            why = self.sampling.importance_undefined
            raise UserError(f"{weighting} makes no sense with {sampling}: {why}; leave +{weighting} out")

    @property
    def weights(self) -> Weighting | None:
        """The rule for sample weights. A strategy without such a rule has that of its sampling, which may be None."""
        return self.weighting or self.sampling.weighting

    @property
    def anneals(self) -> bool:
        """Whether the sampling, the weights or the share of `Mix` can depend on the progress of the run."""
        fades = self.mix is not None and self.mix.anneal is not None
        return fades or not (self.sampling.steady and (self.weights is None or self.weights.steady))

    @property
    def in_turn(self) -> bool:
        """Whether buffer slots are filled and overwritten in turn, as a ring in order of age."""
        return self.retention.in_turn and (self.synth is None or self.synth.refresh == 1)

    def capacity_or(self, default: int) -> int:
        """Return the capacity that the retention rule sets, in experiences, or `default` if it sets none."""
        return self.retention.capacity or default

    @property
    def orders(self) -> tuple[str, ...]:
        """The metrics (`td_error`, `exploration`) by which the buffer must rank the experiences."""
        return tuple(dict.fromkeys((*self.retention.orders, *self.sampling.orders)))

    @property
    def by_td_error(self) -> bool:
        """Whether the strategy needs TD errors from the learner."""
        return "td_error" in self.orders or "td_error" in self.sampling.feedback

    def at(self, frequency: float) -> Strategy:
        """Return the strategy for a control rate in Hz.

        The result differs only with `Drop(rate)`, whose probability of discarding experiences depends on the rate.
        """
        return self if self.drop is None else dataclasses.replace(self, drop=self.drop.at(frequency))

    @property
    def entry_share(self) -> float:
        """Expected fraction of new experiences that `Drop` keeps. `Drop(rate)` needs the strategy that `at` returns."""
        return 1.0 if self.drop is None else 1.0 - float(self.drop.probability)

    @property
    def slot_bytes(self) -> int:
        """Approximate memory per buffer slot in bytes. The memory of the experience itself is not included."""
        weights = self.weights.slot_bytes if self.weights else 0
        parts = self.retention.slot_bytes + self.sampling.slot_bytes(self.in_turn) + weights
        return 4 + 20 * len(self.orders) + parts

    @property
    def terms(self) -> tuple[Term, ...]:
        """The parts of the strategy in the order of the notation."""
        parts = (
            self.mix,
            self.drop,
            self.synth,
            self.retention,
            self.sampling,
            self.newest,
            self.weighting,
            self.refer,
        )
        return tuple(part for part in parts if part is not None)

    def __str__(self) -> str:
        entries = "".join(f"{entry}*" for entry in (self.mix, self.drop, self.synth) if entry)
        modifiers = "".join(f"+{term}" for term in (self.newest, self.weighting, self.refer) if term)
        return f"{entries}{self.retention}[{self.sampling}{modifiers}]"


def check_fits(
    strategy: Strategy, fields: Mapping[str, int], unit: Unit, traces: TraceRule | None, window: int
) -> None:
    """Raise `UserError` if a strategy does not fit the stored fields, the unit of replay or the learner's traces."""
    if traces is not None and unit.steps > 1:
        raise UserError(f"the learner's traces follow single steps: replay steps, not units of {unit.steps}")
    if traces is not None and strategy.synth is not None:
        raise UserError(
            f"{strategy}: Synth alters single experiences, which breaks the trajectories that the learner's traces "
            "follow; leave Synth out"
        )
    if strategy.mix is not None and (unit.steps > 1 or window > 1 or (traces is not None and traces.names)):
        raise UserError(
            f"{strategy}: Mix replays single steps of a file, and this learner replays or annotates trajectories; "
            "leave Mix out, or use DDPG, TD3, SAC or DQN without memory"
        )
    for named, allowed in ((strategy.orders, ("td_error", "exploration")), (strategy.sampling.feedback, FEEDBACK)):
        for name in named:
            if name not in allowed:
                raise unknown(f"metric or feedback of {strategy}", name, allowed)
    kept = () if traces is None else traces.names
    for name in strategy.retention.traces:
        if name not in kept:
            raise UserError(
                f"{strategy} selects by the trace {name!r}, which this learner does not keep; "
                "use V-RACER, or add +ReFER"
            )
    if strategy.synth is not None and strategy.synth.refresh == 0 and strategy.retention.needs_observation:
        raise UserError(
            f"{strategy}: {strategy.retention} would choose a synthetic experience that stays again and again, and the "
            "buffer would no longer change; give refresh above 0, or use another retention"
        )
    if strategy.synth is not None and unit.steps > 1:
        raise UserError(
            f"{strategy}: Synth alters single experiences, which breaks the trajectory in a unit of {unit.steps} steps"
        )
    observes = strategy.sampling.needs_state or strategy.retention.needs_observation
    needs = {"exploration": "exploration" in strategy.retention.orders, "observation": observes}
    for name in needs:
        if needs[name] and name not in fields:
            raise UserError(f"{strategy} selects by {name}, which is not among the stored fields: {', '.join(fields)}")


def choose_slots(running: RunningRetention, offers: Indices, capacity: int, slots: Indices) -> None:
    """Choose the slots to overwrite in full buffers by a retention rule, and check the choice of a user's rule.

    `slots[m]` is −2 if the m-th buffer is full. The rule replaces −2 by a slot, or by −1 to discard the new experience.

    Raises:
        UserError: The rule chose a slot that does not exist, or changed another entry.
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


def check_feedback(rule: Sampling, running: RunningSampling) -> None:
    """Raise `UserError` if a user's sampling rule has a method `annotate`, but no feedback `td_error`."""
    own = not is_built_in(running) and type(running).annotate is not RunningSampling.annotate
    if own and "td_error" not in rule.feedback:
        name = rule.written_name()
        raise UserError(f'{name} has annotate, which is called only with feedback = ("td_error",) in its class')


def check_drawn(running: RunningSampling, idx: Indices, stored: Indices) -> None:
    """Raise `UserError` if a user's sampling rule drew a buffer slot that holds no experience."""
    drawn = idx.reshape(len(stored), -1)
    beyond = (drawn < 0) | (drawn >= stored[:, None])
    if beyond.any():
        member = int(beyond.any(axis=1).argmax())
        wrong, last = drawn[member][beyond[member]][0], stored[member] - 1
        raise UserError(f"{_class_name(running)}: draw chose slot {wrong} of a member that has 0 to {last}")


def check_state_dict(running: object, state: Mapping[str, Any], taken: Collection[str], members: int) -> None:
    """Raise `UserError` if an entry of a user's `state_dict` cannot be stored in a buffer file.

    An entry must be an array whose first axis has the length `members`. Its name must not be in `taken`, or in `KINDS`
    with another dtype.
    """
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


def is_built_in(part: object) -> bool:
    """Return whether a part of a strategy, or an object that executes the part, is of a class of this package."""
    return type(part).__module__.startswith("replaybench.")


def _class_name(running: object) -> str:
    return name_in_file(type(running)) or type(running).__name__
