"""Phases of updates in one call: the numbers of a call for each batch, for whatever strategy draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from replaybench.data.compilation.sequence import Call, Each, Whole, count_from, run
from replaybench.data.kernel import kernel
from replaybench.experiments.training import loop
from replaybench.experiments.training.cell import CellRun
from replaybench.experiments.training.study import Study
from replaybench.replay.phase import sampling_calls

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


def test_an_array_without_members_is_refused() -> None:
    """It would be read beyond its end."""
    with pytest.raises(ValueError, match=r"\(3,\) does not begin with 2 members"):
        run([Call(_note, ((2.0, np.arange(3)), np.zeros((2, 3), np.float32), 1, np.zeros(2), np.zeros(2)))], 2, 1)
