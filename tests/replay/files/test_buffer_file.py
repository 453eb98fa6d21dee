"""A buffer file continues as the buffer that was written would have, whole or member by member."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from replaybench.data.record import read_record, write_record
from replaybench.replay.buffer import Replay, step_fields
from replaybench.replay.buffer_file import load_replay, replay_arrays, replay_facts
from replaybench.replay.storage.slots import STEP, Unit, segment
from replaybench.replay.strategies.interface import Context
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.errors import UserError

MEMBERS = (4, 7, 9)
FIELDS = {**step_fields(2, 1), "exploration": 1}
STRATEGIES = ("FULL[PER+IS]", "Drop(0.3)*TDE[ERE+PER]", "Resv[PERprop+FIS]", "Expl[AER]")


def use(replay: Replay, rounds: int, seed: int, unit: Unit = STEP) -> list[np.ndarray]:
    """Add an episode of 20 steps and replay twice, again and again; return all that was drawn, `[M, …]` each."""
    drawn: list[np.ndarray] = []
    for number in range(rounds):
        # One generator per member, so that a member does the same whoever is beside it.
        rngs = [np.random.Generator(np.random.PCG64([seed, number, member])) for member in replay.members]

        def random(*shape: int, rngs: list[np.random.Generator] = rngs) -> np.ndarray:
            return np.stack([rng.normal(size=shape).astype(np.float32) for rng in rngs])

        for step in range(20):
            experience = {name: np.abs(random(width)) for name, width in FIELDS.items()}
            replay.add(experience, np.ones(len(rngs), np.bool_), np.full(len(rngs), step == 19))
        for update in range(2):
            batch = replay.sample(Context(update, 2, 0.5, random(2)))
            drawn += [batch.idx.copy(), batch.serial.copy(), batch.weight.copy(), batch.reward.copy()]
            steps = (unit.steps,) if unit.steps > 1 else ()
            replay.annotate(batch, {"td_error": random(replay.batch_size, *steps)})
    return drawn


def write(path: Path, strategy: str, unit: Unit = STEP, compression: str | None = None) -> Replay:
    capacity = 2000 if "FULL" in strategy else 90
    replay = Replay(parse(strategy), FIELDS, capacity, 3, MEMBERS, 8, unit)
    use(replay, 8, seed=0, unit=unit)
    write_record(path, "buffer", replay_facts(replay), replay_arrays(replay), "gzip" if compression else None)
    return replay


@pytest.mark.parametrize("unit", [STEP, segment(6)], ids=["step", "segment"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_loaded_buffer_continues_with_identical_draws(tmp_path: Path, strategy: str, unit: Unit) -> None:
    replay = write(tmp_path / "buffer.h5", strategy, unit)
    whole, one = load_replay(tmp_path / "buffer.h5"), load_replay(tmp_path / "buffer.h5", members=[7])
    expected, found, alone = (use(each, 6, seed=1, unit=unit) for each in (replay, whole, one))
    for mine, theirs, single in zip(expected, found, alone, strict=True):
        np.testing.assert_array_equal(theirs, mine)
        np.testing.assert_array_equal(single[0], mine[1])


def test_amid_a_unit_its_steps_stay_what_they_were(tmp_path: Path) -> None:
    """The order of the fields is that of the buffer, not of the alphabet; a file that does not tell it is refused."""
    path = tmp_path / "buffer.h5"
    replay = write(path, "FIFO[Uniform]", segment(6))
    everyone = np.ones(len(MEMBERS), np.bool_)

    def add(buffer: Replay, steps: range) -> None:
        for step in steps:
            numbers = enumerate(FIELDS.items(), start=10 * step)
            buffer.add({name: np.full((3, width), number, np.float32) for number, (name, width) in numbers}, everyone)

    add(replay, range(4))
    write_record(path, "buffer", replay_facts(replay), replay_arrays(replay))
    again = load_replay(path)
    for buffer in (replay, again):
        add(buffer, range(4, 8))
    for name in FIELDS:
        np.testing.assert_array_equal(again.columns.column(name), replay.columns.column(name), err_msg=name)
    facts = {name: value for name, value in replay_facts(replay).items() if name != "order"}
    write_record(path, "buffer", facts, replay_arrays(replay))
    with pytest.raises(UserError, match="amid units by a version that did not note their layout"):
        load_replay(path)
    write_record(path, "buffer", {**facts, "order": ["action"]}, replay_arrays(replay))
    with pytest.raises(UserError, match="order must name each of the fields once"):
        load_replay(path)


def test_every_experience_knows_its_episode_and_step(tmp_path: Path) -> None:
    write(tmp_path / "buffer.h5", "Resv[Uniform]", compression="gzip")
    _, arrays = read_record(tmp_path / "buffer.h5", "buffer")
    number = arrays["serial"].astype(int) - 1
    np.testing.assert_array_equal(arrays["episode"], number // 20)
    np.testing.assert_array_equal(arrays["step"], number % 20)


def test_what_cannot_continue_says_so(tmp_path: Path) -> None:
    replay = write(tmp_path / "buffer.h5", "FIFO[Uniform]")
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
def test_a_file_that_would_lead_kernels_astray_is_refused(
    tmp_path: Path, strategy: str, unit: Unit, name: str, change: float
) -> None:
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
    ten, twenty = (Replay(parse(strategy), FIELDS, capacity, 3, MEMBERS, 8) for capacity in (10, 20))
    use(ten, 2, seed=0)
    with pytest.raises(ValueError, match="20 slots were not filled in turn, or it had another number of them"):
        twenty.load_state_dict(ten.state_dict())


def test_a_buffer_runs_no_python_file_that_was_not_named(tmp_path: Path) -> None:
    """A file's word is not enough; named by the user, the buffer continues."""
    own, marker = tmp_path / "own.py", tmp_path / "ran"
    source = "from pathlib import Path\nfrom replaybench.replay.strategies.uniform import Uniform\n"
    source += "class Mine(Uniform): pass\n"
    own.write_text(source)
    replay = write(tmp_path / "buffer.h5", f"FIFO[{own}:Mine]")
    own.write_text(f"{source}Path({str(marker)!r}).touch()\n")  # a stranger's, with whatever he likes
    with pytest.raises(UserError, match=r"run a Python file.*if you trust that file, say so with --strategy"):
        load_replay(tmp_path / "buffer.h5")
    assert not marker.exists()
    again = load_replay(tmp_path / "buffer.h5", strategy=f"FIFO[{own}:Mine]")
    assert marker.exists()
    for mine, theirs in zip(use(replay, 2, seed=1), use(again, 2, seed=1), strict=True):
        np.testing.assert_array_equal(theirs, mine)
