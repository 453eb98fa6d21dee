"""Buffer files, whole and as streams."""

import copy
import itertools
import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from replaybench.data.record import read_record, write_record
from replaybench.evidence.contracts import Case, Run, difference, rows
from replaybench.replay.buffer import Replay
from replaybench.replay.buffer_file import load_replay, replay_arrays, replay_facts
from replaybench.replay.buffer_stream import BufferStream
from replaybench.replay.storage.slots import STEP, Unit, segment
from replaybench.replay.strategies.interface import Context
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.errors import UserError
from tests.helpers.buffers import ALARM, fill, make

MEMBERS = (4, 7, 9)
STRATEGIES = ("FULL[PER+IS]", "Drop(0.3)*TDE[ERE+PER]", "Resv[PERprop+FIS]", "Expl[AER]")


def write(path: Path, strategy: str, unit: Unit = STEP, **how: Any) -> Run:
    """Write the buffer of a run of eight episodes."""
    run = Run(Case(parse(strategy), unit), MEMBERS)
    for _ in run.history(8):
        pass
    write_record(path, "buffer", replay_facts(run.replay), replay_arrays(run.replay), **how)
    return run


def loaded(run: Run, path: Path, **which: Any) -> Run:
    """Return a run that continues with the buffer of a file."""
    other = copy.copy(run)
    other.replay = load_replay(path, **which)
    return other


@pytest.mark.parametrize("unit", [STEP, segment(6)], ids=["step", "segment"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_loaded_buffer_continues_with_identical_draws(tmp_path: Path, strategy: str, unit: Unit) -> None:
    path = tmp_path / "buffer.h5"
    run = write(path, strategy, unit)
    runs = run, loaded(run, path), loaded(run, path, members=[7])
    for mine, theirs, alone in zip(*(each.history(4) for each in runs), strict=True):
        assert not difference(mine, theirs)
        assert not difference(rows(mine, [1]), alone)


def test_amid_a_unit_its_steps_stay_what_they_were(tmp_path: Path) -> None:
    """The order of the fields is that of the buffer, not of the alphabet; a file that does not tell it is refused."""
    path = tmp_path / "buffer.h5"
    replay = write(path, "FIFO[Uniform]", segment(6)).replay
    fields, everyone = replay.columns.fields, np.ones(len(MEMBERS), np.bool_)

    def add(buffer: Replay, first: int) -> None:
        for step in range(first, first + 4):
            numbers = enumerate(fields.items(), start=10 * step)
            buffer.add({name: np.full((3, width), number) for number, (name, width) in numbers}, everyone)

    add(replay, 0)
    write_record(path, "buffer", replay_facts(replay), replay_arrays(replay))
    again = load_replay(path)
    for buffer in (replay, again):
        add(buffer, 4)
    for name in fields:
        np.testing.assert_array_equal(again.columns.column(name), replay.columns.column(name), err_msg=name)
    facts = {name: value for name, value in replay_facts(replay).items() if name != "order"}
    for order, words in (
        ({}, "by a version that did not store their layout"),
        ({"order": ["action"]}, "order must name each"),
    ):
        write_record(path, "buffer", {**facts, **order}, replay_arrays(replay))
        with pytest.raises(UserError, match=words):
            load_replay(path)


def test_every_experience_knows_its_episode_and_step(tmp_path: Path) -> None:
    write(tmp_path / "buffer.h5", "Resv[Uniform]", compression="gzip")
    _, arrays = read_record(tmp_path / "buffer.h5", "buffer")
    for m, member in enumerate(MEMBERS):
        lengths = 20 - (np.arange(8) + member) % 3
        place = arrays["serial"][m].astype(int) - 1
        np.testing.assert_array_equal(arrays["episode"][m], np.repeat(np.arange(8), lengths)[place])
        np.testing.assert_array_equal(arrays["step"][m], np.concatenate([*map(np.arange, lengths)])[place])


def test_what_cannot_continue_says_so(tmp_path: Path) -> None:
    replay = write(tmp_path / "buffer.h5", "FIFO[Uniform]").replay
    with pytest.raises(UserError, match=r"^[^\n]*buffer.h5 holds members 4, 7, 9, not 5$"):
        load_replay(tmp_path / "buffer.h5", members=[5])
    facts = {name: value for name, value in replay_facts(replay).items() if name != "batch_size"}
    write_record(tmp_path / "foreign.h5", "buffer", facts, replay_arrays(replay))
    with pytest.raises(UserError, match="batch_size"):
        load_replay(tmp_path / "foreign.h5")


@pytest.mark.parametrize(
    ("strategy", "unit", "name", "change"),
    [
        ("FIFO[Uniform]", STEP, "count", 1000),
        ("FIFO[Uniform]", STEP, "count", -1),
        ("FIFO[ERE]", STEP, "offers", -1),
        ("FIFO[PER]", STEP, "td_error", np.nan),
        ("FIFO[PERprop]", STEP, "priority", np.nan),
        ("Resv[ERE+PER]", STEP, "priority", -1),
        ("Resv[ERE]", STEP, "age_place", 200),
        ("Resv[ERE]", STEP, "age_end", 10_000),
        ("FIFO[Uniform]", segment(6), "unit_filled", 7),
    ],
)
def test_misleading_files_are_refused(tmp_path: Path, strategy: str, unit: Unit, name: str, change: float) -> None:
    """Checksums say that a file is as it was written, not that its writer meant well."""
    path = tmp_path / "buffer.h5"
    write(path, strategy, unit)
    header, arrays = read_record(path, "buffer")
    arrays[name][..., -1] = change
    write_record(path, "buffer", header.facts, arrays)
    known = "member 2 stores" if name in ("count", "offers") else "does not say how to continue its buffer"
    with pytest.raises(UserError, match=f"buffer.h5.* {known}"):
        load_replay(path)


@pytest.mark.parametrize("strategy", ["FIFO[Uniform]", "FIFO[ERE]"])
def test_a_ring_of_another_size_is_refused(strategy: str) -> None:
    """Its oldest would not be where the next experience goes, nor its newest where ERE draws."""
    ten, twenty = (make(strategy, capacity=capacity) for capacity in (10, 20))
    fill(ten, 40)
    with pytest.raises(ValueError, match="20 slots were not filled in turn, or it had another number of them"):
        twenty.load_state_dict(ten.state_dict())


def test_a_buffer_runs_no_python_file_that_was_not_named(tmp_path: Path) -> None:
    """A file's word is not enough; named by the user, the buffer continues."""
    own, marker = tmp_path / "own.py", tmp_path / "ran"
    source = "from pathlib import Path\nfrom replaybench.replay.strategies.uniform import Uniform\n"
    source += "class Mine(Uniform): pass\n"
    own.write_text(source)
    run = write(tmp_path / "buffer.h5", f"FIFO[{own}:Mine]")
    own.write_text(f"{source}Path({str(marker)!r}).touch()\n")  # a stranger's, with whatever he likes
    with pytest.raises(UserError, match=r"run a Python file.*say so with --strategy"):
        load_replay(tmp_path / "buffer.h5")
    assert not marker.exists()
    again = loaded(run, tmp_path / "buffer.h5", strategy=f"FIFO[{own}:Mine]")
    assert marker.exists()
    for mine, theirs in zip(run.history(2), again.history(2), strict=True):
        assert not difference(mine, theirs)


STREAM_FIELDS = {"observation": 2, "action": 1, "reward": 1, "next_observation": 2, "terminated": 1}


def write_buffer(path: Path, counts: list[int], steps: int = 1, **changes: Any) -> Path:
    """Write a buffer whose numbers tell member and slot: 10⁶ · member + slot, and serial numbers one higher."""
    m, n = len(counts), max(counts)
    number = 1_000_000 * np.arange(m)[:, None] + np.arange(n)
    column = np.tile(number[..., None, None].astype(np.float32), (steps, 1)) if steps > 1 else number[..., None]
    arrays: dict[str, Any] = {
        name: np.repeat(column, width, axis=-1).astype(np.float32) for name, width in STREAM_FIELDS.items()
    }
    arrays["serial"] = np.tile(np.arange(1, n + 1, dtype=np.uint32), (m, 1))
    for name in ("count", "offers", "collected"):
        arrays[name] = np.array(counts)
    if steps > 1:
        arrays["length"] = (number % steps + 1).astype(np.uint16)
    arrays.update(changes)
    write_record(path, "buffer", {"fields": STREAM_FIELDS}, {k: a for k, a in arrays.items() if a is not None})
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_buffer(tmp_path_factory.mktemp("stream") / "b.h5", [1010, 1010, 1010])


def open_stream(path: Path, members: Any = range(3), batch: int = 16, **options: Any) -> BufferStream:
    return BufferStream(path, batch, 0, members, **{"block_rows": 50, "held": 4, **options})


def drawn(stream: BufferStream, batches: int) -> np.ndarray:
    return np.concatenate([stream.sample().idx.copy() for _ in range(batches)], axis=1)


def test_batches_are_those_of_a_buffer(path: Path) -> None:
    with open_stream(path) as stream:
        for batch in itertools.islice(stream, 200):
            assert batch.columns.keys() == STREAM_FIELDS.keys()
            for name, width in STREAM_FIELDS.items():
                column = batch.columns[name]
                assert column.shape == (3, 16, width)
                assert column.dtype == np.float32
                expected = 1_000_000 * np.arange(3)[:, None] + batch.idx
                np.testing.assert_array_equal(column, np.repeat(expected[:, :, None], width, axis=2))
            np.testing.assert_array_equal(batch.serial, batch.idx + 1)
            assert (batch.probability == 1 / 1010).all()
            for ones in (batch.weight, batch.actor_weight, batch.rate_factor):
                assert (ones == 1).all()
        batch = stream.sample(Context(update=3, updates_in_phase=7))
        assert (batch.update, batch.updates_in_phase, batch.length) == (3, 7, None)
        stream.annotate(batch, {"td_error": batch.weight})


@pytest.mark.parametrize("replays", [1.0, 4.0])
def test_over_passes_every_experience_is_drawn_equally_often(path: Path, replays: float) -> None:
    """χ² over all slots, false-alarm rate 1e-6; passes cut off at both ends add under 2 % to the statistic."""
    passes = int(60 / replays)
    with open_stream(path, members=range(6), batch=101, replays=replays) as stream:
        idx = drawn(stream, int(10 * replays * passes))
        begun = stream.passes.begun + stream.passes.place / stream.passes.blocks - 1
    np.testing.assert_allclose(begun, passes, atol=0.2)
    counts = np.bincount(idx.ravel(), minlength=1010)
    expected = 6 * replays * passes
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert chi2.ppf(ALARM, 1009) < statistic < chi2.isf(ALARM, 1009)


def test_batches_come_from_few_blocks_which_are_replaced_in_turn(path: Path) -> None:
    """Block-shuffled as documented: in one turn 4 blocks; each block stays for 4 turns of ~48 draws."""
    with open_stream(path, batch=12) as stream:
        edges, held = np.arange(22) * 1010 // 21, []
        for _ in range(101):
            idx = stream.sample().idx[0]
            held.append(set(stream._number[0].tolist()))
            assert set((np.searchsorted(edges, idx, side="right") - 1).tolist()) <= held[-1]
            assert len(held[-1]) in (3, 4)  # at the border of two passes, a block may be held for both
    changes = sum(now != then for then, now in itertools.pairwise(held))
    assert changes in (24, 25)


def test_draws_depend_on_root_and_member_only(path: Path) -> None:
    with open_stream(path) as all_members, open_stream(path, members=[2, 1]) as some, open_stream(path) as again:
        everyone, part = drawn(all_members, 100), drawn(some, 100)
        np.testing.assert_array_equal(part, everyone[[2, 1]])
        np.testing.assert_array_equal(drawn(again, 100), everyone)
    assert len(np.unique(everyone[:, :50], axis=0)) == 3
    with BufferStream(path, 16, 1, range(3), block_rows=50, held=4) as other:
        assert (drawn(other, 100) != everyone).any()


def test_learners_share_recordings_in_turn_or_as_told(path: Path) -> None:
    with open_stream(path, members=range(5)) as stream:
        assert stream.recordings == [0, 1, 2, 0, 1]
    with open_stream(path, members=range(2), recordings=[2, 2]) as stream:
        reward = stream.sample().reward
        assert (reward // 1_000_000 == 2).all()
        assert (reward[0] != reward[1]).any()


def test_a_resumed_stream_draws_the_same(path: Path) -> None:
    with open_stream(path) as stream, open_stream(path) as resumed:
        drawn(stream, 333)
        state = {name: array.copy() for name, array in stream.state_dict().items()}
        following = [stream.sample().reward.copy() for _ in range(100)]
        resumed.load_state_dict(state)
        for reward in following:
            np.testing.assert_array_equal(resumed.sample().reward, reward)


def test_recordings_of_unequal_length_and_empty_ones(tmp_path: Path) -> None:
    path = write_buffer(tmp_path / "b.h5", [700, 0, 120])
    with open_stream(path) as stream:
        idx = drawn(stream, 500)
        assert [int(of.max()) for of in idx] == [699, 0, 119]
        batch = stream.sample()
    for muted in (batch.weight, batch.actor_weight, batch.rate_factor[:, None]):
        assert [bool(of.any()) for of in muted] == [True, False, True]
    assert not batch.reward[1].any()


def test_units_of_several_steps_are_streamed_whole(tmp_path: Path) -> None:
    path = write_buffer(tmp_path / "b.h5", [300, 300], steps=5)
    with open_stream(path, members=range(2)) as stream:
        batch: Any = stream.sample()
        assert batch.observation.shape == (2, 16, 5, 2)
        np.testing.assert_array_equal(batch.reward[0, :, 4, 0], batch.idx[0])
        np.testing.assert_array_equal(batch.length[0], batch.idx[0] % 5 + 1)


def test_memory_stays_bounded_while_the_file_is_larger(tmp_path: Path) -> None:
    """64 MB of file: the stream holds under 4 MB of it."""
    path = write_buffer(tmp_path / "b.h5", [400_000] * 5)
    assert path.stat().st_size > 60e6
    with BufferStream(path, 16, 0, range(5), block_rows=256) as stream:
        stream.sample()
    tracemalloc.start()
    with BufferStream(path, 64, 0, range(5), block_rows=256) as stream:
        tracemalloc.reset_peak()
        for _ in range(400):
            stream.sample()
        peak = tracemalloc.get_traced_memory()[1]
        assert stream.passes.place.sum() > 100
    tracemalloc.stop()
    assert peak < 4.5e6


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"count": np.array([0, 0])}, "holds no experiences"),
        ({"count": np.array([5, 101])}, "member 1 stores 101 of 100 offers of 100 experiences in 100 slots"),
        ({"offers": np.array([100, 101])}, "member 1 stores 100 of 101 offers of 100 experiences"),
        ({"count": np.array([5.0, 6.0])}, "count is float64 of shape (2,), not int64 of shape (2,)"),
        ({"count": np.array([5])}, "count is int64 of shape (1,), not"),
        ({"serial": None}, "lacks serial, which a buffer file needs"),
        ({"serial": np.zeros((2, 100), np.int64)}, "serial is int64"),
        ({"reward": np.zeros((2, 99, 1), np.float32)}, "reward is float32 of shape (2, 99, 1), not"),
        ({"reward": None}, "lacks reward"),
        ({"reward": np.zeros((2, 100, 3, 1), np.float32)}, "columns of one form"),
        ({"exploration": np.zeros((2, 100, 1), np.float32)}, "does not name it among its fields"),
        ({"episode": np.zeros((2, 50), np.uint32)}, "episode is uint32 of shape (2, 50), not"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path: Path, changes: dict[str, Any], complaint: str) -> None:
    path = write_buffer(tmp_path / "b.h5", [100, 100], **changes)
    with pytest.raises(UserError, match=re.escape(complaint)):
        open_stream(path)


def test_wrong_arguments_are_named(path: Path) -> None:
    with pytest.raises(UserError, match="recordings 0 to 2, not 3"):
        open_stream(path, recordings=[0, 1, 3])
    with pytest.raises(UserError, match="above 0"):
        open_stream(path, replays=0.0)
    with pytest.raises(ValueError, match="one for each"):
        open_stream(path, recordings=[0])
