"""Buffer files with wrong facts: every reader refuses them in one line that names the file, exit status 2."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replaybench.cli.main import main
from replaybench.data.record import read_record, write_record
from replaybench.exchange.recorded_buffer import read_recording
from replaybench.replay.buffer import Replay, step_fields
from replaybench.replay.buffer_file import load_replay, replay_arrays, replay_facts
from replaybench.replay.buffer_stream import BufferStream
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.errors import UserError

DEEP: list[Any] = []
for _ in range(300):
    DEEP = [DEEP]

NUMBERS = ["1", [], [[]], {}, True, math.nan, -1, 1e300, 10**400]
WHOLE = [*NUMBERS, 1.5, math.inf]
TEXTS = [5, True, [], [[]], {"a": {}}]

REFUSED: dict[str, list[Any]] = {
    "fields": [None, 5, "x", [], [[]], {}, {"reward": None}, {"reward": 0}, {"reward": 10**30}, {"reward": [1]}],
    "order": [5, "x", [[]], [None], {"reward": 1}, ["reward"], ["reward", "reward"]],
    "source": TEXTS,
    "plant": TEXTS,
    "parameters": [None, 5, "x", [1], [[]], {"mass": None}, {"mass": []}, {"mass": 10**400}, {"mass": {}}],
    "plant_fingerprint": TEXTS,
    "frequency": [*NUMBERS, 0, math.inf],
    "noise": [*NUMBERS, 11, math.inf],
    "observe": ["angle", 5, [[]], [None], {"angle": 1}],
    "strategy": TEXTS,
    "unit": [None, 5, "x", [], {"steps": 0}, {"steps": "x"}, {"steps": 10**9}, {"episode": 3}],
    "capacity": [*WHOLE, 0, 10**10],
    "batch_size": [*WHOLE, 0, 10**10],
    "root_seed": WHOLE,
    "members": [5, "x", [[]], [-1, 1], [0, 0], [0, 1, 2], [0.5, 1], [0, 10**400]],
    "traces": [5, "x", [[]], [None], {}],
    "window": [*WHOLE, 0],
    "cell": [5, "x", [], {}, {"learner": 5, "settings": {}}, {"learner": "DDPG", "settings": []},
             {"learner": "DDPG", "settings": {}, "discount": "x"}],
    "reward_final": [5, "x", [[]], [None], {}, ["x"], [10**400]],
    "reward_greedy": [5, "x", [[]], [None], {}, ["x"], [10**400]],
    "version": TEXTS,
    "anything": [DEEP],
}  # fmt: skip


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A buffer of two members, as a sweep would write it."""
    replay = Replay(parse("FIFO[PER]"), {**step_fields(2, 1), "exploration": 1}, 60, 0, range(2), 8)
    rng = np.random.default_rng(0)
    for step in range(80):
        rows = {name: rng.normal(size=(2, width)).astype(np.float32) for name, width in replay.columns.fields.items()}
        replay.add(rows, np.ones(2, np.bool_), np.full(2, step % 20 == 19))
    cell = {"learner": "DDPG", "settings": {}, "discount": "fixed"}
    facts: dict[str, Any] = {
        "source": "sweep",
        "plant": "Pendulum",
        "parameters": {"mass": 0.055},
        "plant_fingerprint": "x",
    }
    facts |= {"frequency": 50.0, "noise": 0.0, "observe": [], "cell": cell, **replay_facts(replay)}
    facts |= {"reward_final": [-1.0, math.nan], "reward_greedy": [], "version": "0.1.0"}
    path = tmp_path_factory.mktemp("sound") / "buffer.h5"
    write_record(path, "buffer", facts, replay_arrays(replay))
    return path


def inspect(path: Path) -> None:
    """Inspect with the command; raise its error."""
    with pytest.raises(SystemExit) as ended:
        main(["inspect", str(path), "--verify"])
    if ended.value.code:
        raise UserError(ended.value.code)


def stream(path: Path) -> None:
    with BufferStream(path, 4, 0, range(2)) as batches:
        batches.sample()


READERS: list[Callable[[Path], Any]] = [read_recording, load_replay, stream]


@contextlib.contextmanager
def one_line(path: Path, label: str) -> Iterator[None]:
    with pytest.raises(UserError) as caught:
        yield
    text = str(caught.value)
    assert "\n" not in text, label
    assert str(path) in text, label
    assert len(text) < 400, label


def test_all_readers_accept_a_sound_file_and_facts_of_a_later_version(sound: Path, tmp_path: Path) -> None:
    header, arrays = read_record(sound)
    assert set(header.facts) <= set(REFUSED), "every fact is forged below"
    write_record(tmp_path / "later.h5", "buffer", {**header.facts, "further": [1, {"a": None}]}, arrays)
    for read in (inspect, *READERS):
        read(sound)
        read(tmp_path / "later.h5")


@pytest.mark.parametrize("fact", REFUSED)
def test_a_wrong_fact_is_one_line_for_every_reader(
    fact: str, sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header, arrays = read_record(sound)
    path = tmp_path / "forged.h5"
    for value in REFUSED[fact]:
        write_record(path, "buffer", {**header.facts, fact: value}, arrays)
        label = f"{fact} = {str(value)[:40]}"
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["inspect", str(path)])
        text = capsys.readouterr()
        assert (ended.value.code, text.out) == (2, ""), label
        assert text.err.startswith("replaybench: "), label
        assert text.err.count("\n") == 1, label
        assert str(path) in text.err, label
        for read in READERS:
            with one_line(path, label):
                read(path)


def test_facts_that_contradict_the_arrays_are_one_line(sound: Path, tmp_path: Path) -> None:
    header, arrays = read_record(sound)
    for change in ({"fields": {**header.facts["fields"], "reward": 2}}, {"members": [0, 1, 2]}):
        write_record(tmp_path / "forged.h5", "buffer", {**header.facts, **change}, arrays)
        for read in READERS:
            with one_line(tmp_path / "forged.h5", str(change)):
                read(tmp_path / "forged.h5")


@pytest.mark.parametrize("change", [{"capacity": 59}, {"capacity": 10**9}, {"unit": {"steps": 2}}])
def test_a_buffer_that_cannot_be_continued_is_one_line(change: dict[str, Any], sound: Path, tmp_path: Path) -> None:
    header, arrays = read_record(sound)
    write_record(tmp_path / "forged.h5", "buffer", {**header.facts, **change}, arrays)
    with one_line(tmp_path / "forged.h5", str(change)):
        load_replay(tmp_path / "forged.h5")
