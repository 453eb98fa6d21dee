"""The contract of every strategy: all registered retentions × samplings × weightings × entries × units.

Short episodes through small buffers, without learners: batches hold live experiences only, an annotation reaches
nothing but what was drawn, and a buffer that is saved and loaded goes on with identical draws. What cannot work is
refused with the reason. A new strategy is picked up from the registries by itself; only `EXAMPLES` must name what its
defaults lack. Retentions that go by a learner's traces are given them, `far` at random.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from replaybench.data.errors import UserError
from replaybench.replay.batch import ReplayBatch
from replaybench.replay.buffer import Replay, step_fields
from replaybench.replay.storage.units import STEP, Unit, episode, segment
from replaybench.replay.strategies.notation import parse
from replaybench.replay.strategies.registry import ENTRIES, REFER, RETENTIONS, SAMPLINGS, WEIGHTINGS
from replaybench.replay.strategies.strategy import Strategy
from replaybench.replay.strategies.view import Context

MEMBERS, CAPACITY, BATCH, STEPS, EPISODES, UPDATES = 2, 64, 8, 20, 30, 2
SAVED_AFTER = 24

EXAMPLES = {"Drop": "Drop(0.3)", "Synth": "Synth(state=0.2, action=0.2)"}
"""Entries that have no default of their own."""
ENTRY_FORMS = ["", *(f"{EXAMPLES.get(name, name)}*" for name in ENTRIES), "Drop(0.2)*Synth(state=0.4, refresh=0.3)*"]
SAMPLING_FORMS = [*SAMPLINGS]
UNITS = {"steps": STEP, "segments": segment(7), "episodes": episode(STEPS)}

FAR_ABOVE = 0.7  # so that some episodes stray more than others
FIELDS = {**step_fields(2, 1), "exploration": 1, "label": 1}
REFUSED = {("Uniform", "IS"), ("Annealed", "IS"), ("AER", "IS"), ("ERE", "IS")}
"""Pairs of sampling and weighting that make no sense."""


class Model:
    """A plant and a policy."""

    def possible(self, action: Any) -> Any:
        return action

    def simulate(self, observation: Any, action: Any) -> tuple[Any, Any, Any]:
        return observation * 0.5, observation[:, 0] + action[:, 0], observation[:, 0] > 0.9

    def explore(self, observation: Any) -> tuple[Any, Any, Any]:
        return observation[:, :1] * 0.1, np.abs(observation[:, 0]), {}

    def deviation(self, observation: Any, action: Any) -> Any:
        return np.abs(action[:, 0])


class Rule:
    """A learner's traces: `far`, which annotations renew, and `successor`, the |reward| of the step that follows."""

    names = ("far", "successor")

    def followed(self, values: Any, last: Any, experience: Any) -> None:
        there = np.flatnonzero(last >= 0)
        values[there, last[there], 1] = experience["reward"][there, 0]

    def evicting(self, values: Any, previous: Any, next: Any, slots: Any) -> None:
        """The successor's reward stays with the step before."""

    def stored(self, values: Any, previous: Any, next: Any, slots: Any, ended: Any) -> None:
        """Nothing is swept."""

    def annotated(self, values: Any, previous: Any, next: Any, idx: Any, annotations: Any) -> None:
        for m in range(MEMBERS):
            live = idx[m] >= 0
            values[m, idx[m, live], 0] = annotations["td_error"][m, live] > 0


class Run:
    """A buffer in use. `label` is the serial number of the step that a row holds; synthetic rows have none."""

    def __init__(self, strategy: Strategy, unit: Unit) -> None:
        capacity = CAPACITY
        if not strategy.retention.bounded:  # as many units as there are, each of the full length
            capacity = EPISODES * -(-STEPS // unit.steps) * unit.steps
        rule = Rule() if strategy.retention.traces else None
        self.replay = Replay(strategy, FIELDS, capacity, 0, range(MEMBERS), BATCH, unit, Model(), rule)
        self.rng = np.random.Generator(np.random.PCG64(0))
        self.number = 0

    def episode(self) -> Iterator[tuple[ReplayBatch, np.ndarray]]:
        """Collect an episode, member 1 a shorter one, and yield the batches of its updates with their TD errors."""
        for t in range(STEPS):
            step: dict[str, np.ndarray] = {
                name: self.rng.random((MEMBERS, width), np.float32) for name, width in FIELDS.items()
            }
            active = np.array([True, t < STEPS - self.number % 3])
            step["label"] = self.replay.collected[:, None] + 1
            step["far"] = step["reward"] > FAR_ABOVE
            self.replay.add(step, active, np.array([t == STEPS - 1, t == STEPS - 1 - self.number % 3]))
        self.number += 1
        for update in range(UPDATES):
            attended = self.rng.random((MEMBERS, 2), np.float32)
            batch = self.replay.sample(Context(update, UPDATES, self.number / EPISODES, attended))
            yield batch, self.rng.normal(size=batch.idx.shape).astype(np.float32)

    def copy(self) -> Run:
        """Save, and load into a fresh buffer."""
        fresh = Run(self.replay.strategy, self.replay.unit)
        fresh.replay.load_state_dict({name: np.array(array) for name, array in self.replay.state_dict().items()})
        fresh.rng.bit_generator.state = self.rng.bit_generator.state
        fresh.number = self.number
        return fresh


def check_live(run: Run, batch: ReplayBatch) -> None:
    """Every sample is what its slot holds at present, and what was collected under that number."""
    replay, members = run.replay, np.arange(MEMBERS)[:, None]
    assert (batch.idx >= 0).all()
    assert (batch.idx < replay.count[:, None]).all()
    np.testing.assert_array_equal(batch.serial, replay.columns.serial[members, batch.idx])
    assert (batch.serial > 0).all()
    assert (batch.serial <= replay.collected[:, None]).all()
    label = batch.columns["label"][..., 0]
    if batch.length is None:
        real = label > 0
        np.testing.assert_array_equal(label[real], batch.serial[real])
        assert real.all() or replay.strategy.synth
    else:
        steps = np.arange(label.shape[2])
        own = steps < batch.length[..., None]
        np.testing.assert_array_equal(label, np.where(own, batch.serial[..., None] + steps, 0))
        for m, starts in enumerate(replay.episodes.starts):
            first = np.searchsorted(starts, batch.serial[m], side="right")
            last = np.searchsorted(starts, batch.serial[m] + batch.length[m] - 1, side="right")
            np.testing.assert_array_equal(first, last)
    assert np.isfinite(batch.weight).all()
    assert (batch.weight >= 0).all()
    assert (batch.rate_factor >= 1).all()
    known = batch.probability[~np.isnan(batch.probability)]
    assert (known > 0).all()
    assert (known <= 1).all()


def per_slot(replay: Replay) -> dict[str, np.ndarray]:
    """Return what is saved of each stored experience, `[M, n, …]` by name."""
    stored = int(replay.count.max())
    arrays = {name: np.array(array) for name, array in replay.state_dict().items()}
    return {name: array for name, array in arrays.items() if array.ndim >= 2 and array.shape[:2] == (MEMBERS, stored)}


def check_annotation(run: Run, batch: ReplayBatch, td_error: np.ndarray) -> None:
    """An annotation changes nothing but what was drawn and is still there."""
    replay, members = run.replay, np.arange(MEMBERS)[:, None]
    before = per_slot(replay)
    replay.annotate(batch, {"td_error": td_error})
    after = per_slot(replay)
    there = replay.columns.serial[members, batch.idx] == batch.serial
    touched = np.zeros(before["serial"].shape, np.bool_)
    for m in range(MEMBERS):
        touched[m, batch.idx[m, there[m]]] = True
    for name, array in after.items():
        np.testing.assert_array_equal(array[~touched], before[name][~touched], err_msg=name)


def run_contract(strategy: Strategy, unit: Unit) -> None:
    run = Run(strategy, unit)
    copy: Run | None = None
    for number in range(EPISODES):
        if number == SAVED_AFTER:
            copy = run.copy()
        late = None
        others = copy.episode() if copy else itertools.repeat((None, None))
        for (batch, td_error), (other, _) in zip(run.episode(), others, strict=False):
            check_live(run, batch)
            late = batch, td_error
            if copy and other is not None:
                for name in ("idx", "serial", "probability", "weight", "actor_weight", "rate_factor"):
                    np.testing.assert_array_equal(getattr(other, name), getattr(batch, name), err_msg=name)
                for name, column in batch.columns.items():
                    np.testing.assert_array_equal(other.columns[name], column, err_msg=name)
                copy.replay.annotate(other, {"td_error": td_error})
            if number % 5 or copy:
                run.replay.annotate(batch, {"td_error": td_error})
        if not number % 5 and not copy and late:  # the learner answers after a whole episode more
            for _ in range(STEPS):
                step: dict[str, np.ndarray] = {
                    name: run.rng.random((MEMBERS, width), np.float32) for name, width in FIELDS.items()
                }
                step["label"] = run.replay.collected[:, None] + 1
                if run.replay.strategy.retention.bounded:
                    run.replay.add(step, np.ones(MEMBERS, np.bool_), np.full(MEMBERS, _ == STEPS - 1))
            check_annotation(run, *late)
    assert copy is not None
    first, second = (part.replay.state_dict() for part in (run, copy))
    for name, array in first.items():
        np.testing.assert_array_equal(np.array(second[name]), np.array(array), err_msg=name)


LEGAL = [
    (retention, sampling, weighting)
    for retention in RETENTIONS
    for sampling in SAMPLING_FORMS
    for weighting in (None, *WEIGHTINGS)
    if (sampling, weighting) not in REFUSED
]


def written(retention: str, sampling: str, weighting: str | None) -> str:
    return f"{retention}[{sampling}{f'+{weighting}' if weighting else ''}]"


@pytest.mark.parametrize(("retention", "sampling", "weighting"), LEGAL, ids=lambda part: str(part))
def test_every_legal_combination(retention: str, sampling: str, weighting: str | None) -> None:
    for entry in ENTRY_FORMS:
        strategy = parse(entry + written(retention, sampling, weighting))
        for unit in UNITS.values():
            if strategy.synth and (unit.steps > 1 or strategy.retention.traces):
                with pytest.raises(UserError, match="Synth alters single experiences|traces follow single steps"):
                    Run(strategy, unit)
            elif unit.steps > 1 and strategy.retention.traces:
                with pytest.raises(UserError, match="traces follow single steps"):
                    Run(strategy, unit)
            else:
                run_contract(strategy, unit)


@pytest.mark.parametrize(("retention", "sampling", "weighting"), LEGAL, ids=lambda part: str(part))
def test_refer_changes_nothing_in_the_buffer(retention: str, sampling: str, weighting: str | None) -> None:
    """It goes with every strategy, and draws, weights and victims are those without it."""
    without = written(retention, sampling, weighting)
    for name in REFER:
        strategy = parse(f"{without[:-1]}+{name}]")
        assert strategy == parse(str(strategy)) != parse(without)
        assert isinstance(strategy.refer, REFER[name])
    runs = Run(strategy, STEP), Run(parse(without), STEP)
    for _ in range(5):
        for (one, td_error), (other, _) in zip(*(run.episode() for run in runs), strict=True):
            np.testing.assert_array_equal(one.serial, other.serial)
            np.testing.assert_array_equal(one.weight, other.weight)
            for run, batch in zip(runs, (one, other), strict=True):
                run.replay.annotate(batch, {"td_error": td_error})


@pytest.mark.parametrize("retention", RETENTIONS)
def test_pairs_that_make_no_sense_are_refused_with_the_reason(retention: str) -> None:
    for sampling, weighting in REFUSED:
        with pytest.raises(UserError, match=f"{weighting} makes no sense with {sampling}: .*leave \\+{weighting} out"):
            parse(written(retention, sampling, weighting))
    for sampling, (one, other) in itertools.product(SAMPLING_FORMS, itertools.permutations(WEIGHTINGS, 2)):
        if (sampling, one) not in REFUSED:
            with pytest.raises(UserError, match="name one of them"):
                parse(f"{retention}[{sampling}+{one}+{other}]")


@pytest.mark.parametrize(("retention", "sampling", "weighting"), LEGAL, ids=lambda part: str(part))
def test_a_missing_field_is_named(retention: str, sampling: str, weighting: str | None) -> None:
    """A strategy works with nothing stored but rewards, or says what it selects by."""
    strategy = parse(written(retention, sampling, weighting))
    needed = {"exploration"} & set(strategy.orders) | ({"observation"} if strategy.sampling.needs_state else set())
    traces = {f"the trace '{name}'" for name in strategy.retention.traces}
    if needed | traces:
        words = f"selects by ({'|'.join(needed | traces)}), which (is not among|this learner does not keep)"
        with pytest.raises(UserError, match=words):
            Replay(strategy, {"reward": 1}, CAPACITY, 0, range(2), BATCH)
    else:
        Replay(strategy, {"reward": 1}, CAPACITY, 0, range(2), BATCH)
