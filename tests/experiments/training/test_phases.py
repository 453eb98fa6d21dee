"""Phases of updates in one call: the numbers of a call for each batch, for whatever strategy draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from replaybench.controllers.agent import Task
from replaybench.controllers.algorithms.dqn import DQN, DQNConfig
from replaybench.controllers.setting import LearnerSetting
from replaybench.data.compilation.sequence import Call, Each, Whole, count_from, run, stride_of
from replaybench.data.kernel import kernel
from replaybench.experiments.training import loop
from replaybench.experiments.training.cell import CellRun
from replaybench.experiments.training.study import Study
from replaybench.replay.buffer import Replay, step_fields
from replaybench.replay.phase import annotation_calls, sampling_calls
from replaybench.replay.strategies.notation import parse
from replaybench.replay.strategies.view import Context

GAUSSIAN = {"exploration": {"form": "gaussian"}}
CASES = [
    ("FULL[PER]", "DDPG", {}),
    ("TDE[PERprop+IS]", "DDPG", {}),
    ("FIFO[AER]", "DDPG", {}),
    ("Resv[ERE+PER]", "DDPG", {}),
    ("FIFO[PER+FIS]", "DDPG", {}),
    ("FIFO[Uniform+ReFER]", "DDPG", GAUSSIAN),
    ("FIFO[Uniform+ReFER]", "V-RACER", {"warmup_episodes": 1}),
]


def states(strategy: str, learner: str, settings: dict[str, Any]) -> dict[str, NDArray[Any]]:
    study = Study(
        name="t", plants=("PendulumDCSC",), learners=(learner,), strategies=(strategy,), learner={learner: settings},
        seeds=3, block=3, episodes=3, greedy_every=3, capacity=300,
    )  # fmt: skip
    cell = CellRun(study.cells()[0])
    for _ in range(3):
        cell.advance()
    return {**cell.agent.state_dict(), **cell.replay.state_dict()}


@pytest.mark.parametrize(("strategy", "learner", "settings"), CASES)
def test_a_phase_gives_the_bits_of_a_call_for_each_batch(
    strategy: str, learner: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    phases: list[bool] = []

    def watched(*args: Any) -> Any:
        phases.append((found := sampling_calls(*args)) is not None)
        return found

    monkeypatch.setattr(loop, "sampling_calls", watched)
    in_phases = states(strategy, learner, settings)
    assert phases
    assert all(phases)
    monkeypatch.setattr(loop, "sampling_calls", lambda *_: None)
    one_by_one = states(strategy, learner, settings)
    assert in_phases.keys() == one_by_one.keys()
    for name, array in one_by_one.items():
        np.testing.assert_array_equal(in_phases[name], array, err_msg=name)


@kernel
def _note(
    settings: tuple[float, NDArray[np.int64]], x: NDArray[np.float32], step: int, each: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:  # fmt: skip
    for m in range(out.shape[0]):
        out[m] = 10 * out[m] + settings[0] * x[m, 1] * step + settings[1][2] + each[m]


def test_members_and_updates_get_their_own_arguments() -> None:
    """Arrays that are not contiguous, numbers and arrays of each update, and what belongs to no member."""
    x = np.arange(12, dtype=np.float32).reshape(2, 6)[:, 1::2]
    each, out, expected = np.array([[0.25, 0.5], [0.0, 1.0]]), np.zeros(2), np.zeros(2)
    settings = (2.0, np.array([7, 8, 9]))
    for u in range(2):
        _note(settings, x, 5 + u, each[u], expected)
    run([Call(_note, (Whole(settings), x, count_from(5, 2), Each(each), out))], 2, 2)
    np.testing.assert_array_equal(out, expected)
    assert out[0] != out[1]


def test_who_has_no_further_updates_gets_none() -> None:
    """As the calls themselves may say."""
    counts, going = np.zeros(3, np.int64), np.array([True, False, True])
    run([Call(_stop_at_four, (counts, going))], 3, 9, going)
    assert counts.tolist() == [4, 0, 4]
    assert not going.any()


@kernel
def _stop_at_four(counts: NDArray[np.int64], going: NDArray[np.bool_]) -> None:
    for m in range(counts.size):
        counts[m] += 1
        going[m] = counts[m] < 4


@pytest.mark.parametrize(
    ("steps", "members", "together"), [(200, 1, 200), (10**6, 1, 2048), (200, 48, 42), (200, 49, 0), (7, 1, 0)]
)
def test_a_row_is_worth_its_preparation_and_can_be_interrupted(steps: int, members: int, together: int) -> None:
    assert stride_of(steps, members) == together


def test_an_array_without_members_is_refused() -> None:
    """It would be read beyond its end."""
    with pytest.raises(ValueError, match=r"\(3,\) does not begin with 2 members"):
        run([Call(_note, ((2.0, np.arange(3)), np.zeros((2, 3), np.float32), 1, np.zeros(2), np.zeros(2)))], 2, 1)


def replay(strategy: str) -> Replay:
    """Two members that store eight experiences each."""
    fields = step_fields(2, 1)
    made = Replay(parse(strategy), fields, 16, 0, range(2), 4)
    for _ in range(8):
        made.add({name: np.ones((2, width), np.float32) for name, width in fields.items()}, np.ones(2, np.bool_))
    return made


CONTEXTS = [Context(update, 3, 0.0) for update in range(3)]


@pytest.mark.parametrize(("part", "changed"), [("sampling", "draw"), ("sampling", "annotate"), ("weighting", "weigh")])
def test_what_changes_a_part_of_the_package_is_not_passed_over(part: str, changed: str) -> None:
    """Its calls are inherited, and know nothing of the change."""
    store = replay("FIFO[PERprop+IS]")
    assert sampling_calls(store, CONTEXTS) is not None
    running = getattr(store, part)
    own = type("Own", (type(running),), {changed: lambda self, *arguments: None})
    running.__class__ = own
    assert sampling_calls(store, CONTEXTS) is None


def test_weightings_are_told_how_many_updates_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    store = replay("FIFO[PERprop+IS]")
    kind: Any = type(store.weighting)
    told: list[int] = []
    calls = kind.calls

    def watched(self: Any, contexts: Any, *further: Any) -> Any:
        told.extend(context.updates_before for context in contexts)
        return calls(self, contexts, *further)

    monkeypatch.setattr(kind, "calls", watched)
    for context in CONTEXTS:
        store.sample(context)
    sampling_calls(store, CONTEXTS)
    assert told == [0, 1, 2, 3, 4, 5]


def test_errors_that_a_strategy_needs_are_missed() -> None:
    store = replay("FIFO[PERprop]")
    with pytest.raises(ValueError, match="needs td_error from the learner"):
        annotation_calls(store, store.sample(), {}, 3)


def test_a_learner_whose_update_does_more_than_its_call_learns_batch_by_batch() -> None:
    class Own(DQN):
        def call_for(self, batch: Any, first: Any) -> Any:
            return super().call_for(batch, first)

    class Counting(Own):
        def call_for(self, batch: Any, first: Any) -> Any:
            return super().call_for(batch, first)

        def update(self, batch: Any) -> Any:
            return super().update(batch)

    setting = LearnerSetting(Task(2, 1, 0.95, 1.0), 0, range(1), 50.0)
    config = DQNConfig(hidden=(4,), batch_size=4)
    assert DQN(config, setting).learns_in_phases
    assert Own(config, setting).learns_in_phases
    assert not Counting(config, setting).learns_in_phases
