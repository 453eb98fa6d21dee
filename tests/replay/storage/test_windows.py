"""Windows of replayed steps against an account in plain Python, wherever retention puts and evicts the steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from buffers import FarRule

from replaybench.data.record import write_record
from replaybench.replay.batch import ReplayBatch
from replaybench.replay.buffer import Replay, step_fields
from replaybench.replay.buffer_file import load_replay, replay_arrays, replay_facts
from replaybench.replay.storage.slots import episode
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.errors import UserError

M, B, W, H = 3, 40, 4, 2
FIELDS = {**step_fields(2, 1), "memory": H}
FORMS = ("FIFO[Uniform]", "Resv[Uniform]", "FULL[PER]", "Drop(0.3)*FIFO[Uniform]", "Resv[PER]")


class Account:
    """Every step that was collected, by its serial number: its episode, its observation and its memory."""

    def __init__(self, replay: Replay, seed: int) -> None:
        self.replay, self.rng = replay, np.random.Generator(np.random.PCG64(seed))
        self.steps: list[dict[int, tuple[int, np.ndarray, np.ndarray]]] = [{} for _ in range(M)]
        self.episode = np.zeros(M, np.int64)

    def add(self, count: int) -> None:
        for _ in range(count):
            row = {name: self.rng.normal(size=(M, width)).astype(np.float32) for name, width in FIELDS.items()}
            active, ended = self.rng.random(M) < 0.9, self.rng.random(M) < [0.02, 0.2, 0.5]
            self.replay.add(row, active, ended)
            for m in np.flatnonzero(active):
                step = (int(self.episode[m]), row["observation"][m], row["memory"][m])
                self.steps[m][int(self.replay.collected[m])] = step
            self.episode += active & ended

    def compare(self, batch: ReplayBatch) -> None:
        window = batch.window
        assert window is not None
        for m, b in np.ndindex(M, B):
            held = set(self.replay.columns.serial[m, : self.replay.count[m]].tolist())
            own = int(batch.serial[m, b])
            steps = [own]
            while len(steps) < W and steps[0] - 1 in held and self.steps[m][steps[0] - 1][0] == self.steps[m][own][0]:
                steps.insert(0, steps[0] - 1)
            assert window.length[m, b] == len(steps)
            expected = np.zeros((W, 2), np.float32)
            expected[: len(steps)] = [self.steps[m][serial][1] for serial in steps]
            np.testing.assert_array_equal(window.observation[m, b], expected)
            np.testing.assert_array_equal(window.memory[m, b], self.steps[m][steps[0]][2])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("traced", [False, True])
def test_windows_are_the_steps_that_led_to_a_sample(form: str, traced: bool) -> None:
    """Through wrap-around, eviction at random, steps that were never kept, and the starts of episodes."""
    strategy = parse(form)
    capacity = 30 if strategy.retention.bounded else 200
    rule = FarRule() if traced else None
    account = Account(Replay(strategy, FIELDS, capacity, 0, range(M), B, traces=rule, window=W), 1)
    lengths = set()
    for count in (20, 30, 60):
        account.add(count)
        batch = account.replay.sample()
        account.compare(batch)
        assert (batch.traces is not None) == traced
        assert batch.window is not None
        lengths |= set(batch.window.length.ravel().tolist())
        account.replay.annotate(batch, {"td_error": np.ones((M, B), np.float32)})
    assert lengths == set(range(1, W + 1))


def test_a_member_without_experiences_gets_a_window_of_nothing() -> None:
    window = Replay(parse("FIFO[Uniform]"), FIELDS, 5, 0, range(M), B, window=W).sample().window
    assert window is not None
    assert (window.length == 1).all()
    assert not window.observation.any()
    assert not window.memory.any()


def test_what_is_not_stored_is_not_remembered() -> None:
    replay = Replay(parse("FIFO[Uniform]"), step_fields(2, 1), 5, 0, range(M), B, window=W)
    window = replay.sample().window
    assert window is not None
    assert window.memory.shape == (M, B, 0)
    plain = Replay(parse("FIFO[Uniform]"), FIELDS, 5, 0, range(M), B)
    assert plain.traces is None
    assert plain.sample().window is None


def test_a_loaded_buffer_goes_on_with_its_windows(tmp_path: Path) -> None:
    account = Account(Replay(parse("Resv[Uniform]"), FIELDS, 30, 0, range(M), B, window=W), 2)
    account.add(50)
    path = tmp_path / "buffer.h5"
    write_record(path, "buffer", replay_facts(account.replay), replay_arrays(account.replay))
    first = account.replay.sample().window
    account.replay = load_replay(path)
    batch = account.replay.sample()
    account.compare(batch)
    assert first is not None
    assert batch.window is not None
    for one, other in zip(first, batch.window, strict=True):
        np.testing.assert_array_equal(one, other)
    account.add(20)
    account.compare(account.replay.sample())


@pytest.mark.parametrize(
    ("form", "more", "words"),
    [
        ("Synth(state=0.1)*FIFO[Uniform]", {}, "Synth alters single experiences, which breaks the trajectories"),
        ("FIFO[Uniform]", {"unit": episode(9)}, "follow single steps"),
    ],
)
def test_what_has_no_windows_is_refused(form: str, more: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Replay(parse(form), FIELDS, 90, 0, range(1), 2, window=W, **more)
