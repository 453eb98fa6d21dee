"""Buffers: what they hold, and their size in memory."""

import contextlib
from typing import Any

import numpy as np
import pytest

from replaybench.evidence.contracts import difference
from replaybench.replay.buffer import Replay, newest_batch
from replaybench.replay.orders.priority_sums import AgeLog
from replaybench.replay.orders.rank_order import RankOrder
from replaybench.replay.strategies.interface import Context
from replaybench.runtime.errors import UserError
from tests.helpers.buffers import FIELDS, fill, make, saved
from tests.helpers.tiers import slow


def test_strategies_that_go_by_error_ask_for_it() -> None:
    asking, others = ("FIFO[PER]", "TDE[Uniform]", "FIFO[PERprop]", "Resv[ERE+PER]"), ("FIFO[Uniform]", "FIFO[ERE]")
    for strategy in (*asking, *others, "Expl[AER]"):
        replay = make(strategy)
        fill(replay, 3)
        batch = replay.sample(Context(state=np.ones((1, 2), np.float32)))
        with pytest.raises(ValueError, match="needs td_error") if strategy in asking else contextlib.nullcontext():
            replay.annotate(batch, {})


def test_errors_known_in_advance_can_be_forgotten() -> None:
    replay = make("TDE[PER]", capacity=4)
    experience = {name: np.ones((1, width), np.float32) for name, width in FIELDS.items()}
    for error in (1.0, 0.5, np.nan):
        replay.add({**experience, "td_error": np.array([[error]])}, np.ones(1, np.bool_))
    np.testing.assert_array_equal(replay.orders["td_error"].keys(), [[1.0, 0.5, np.inf, np.nan]])
    replay.forget_errors()
    assert np.isinf(replay.orders["td_error"].keys()[0, :3]).all()


def test_batches_drawn_at_once_are_those_drawn_one_by_one() -> None:
    """One member stores nothing."""
    members, batch, updates = 3, 4, 5
    one, many = (make("FIFO[Uniform]", members=members, capacity=32, batch=batch) for _ in range(2))
    for replay in (one, many):
        fill(replay, 20)
        replay.count[1] = 0
    assert many.max_chunk > updates
    for first in (0, updates):
        drawn = many.sample(Context(first, 2 * updates, 0.5), updates)
        for update in range(updates):
            alone = one.sample(Context(first + update, 2 * updates, 0.5))
            for name in ("idx", "serial", "probability", "weight", "actor_weight", "rate_factor", "observation"):
                theirs = getattr(drawn, name)[update::updates]
                np.testing.assert_array_equal(getattr(alone, name), theirs, err_msg=name)
    assert one.updates == many.updates == 2 * updates
    assert not difference(one.state_dict(), many.state_dict())


def test_a_state_is_loaded_over_whatever_was_there() -> None:
    one, two = make("FIFO[Uniform]", capacity=50), make("FIFO[Uniform]", capacity=50)
    fill(one, 10)
    fill(two, 30)
    two.load_state_dict(saved(one))
    np.testing.assert_array_equal(newest_batch(two).serial, newest_batch(one).serial)


@pytest.mark.parametrize(
    ("strategy", "capacity", "batch", "words"),
    [
        ("FIFO[Uniform]", 0, 4, "capacity must be at least 1, not 0"),
        ("FIFO[Uniform]", 32, 0, "batch size must be at least 1, not 0"),
        ("FIFO(20)[Uniform]", 21, 4, r"FIFO\(20\)\[Uniform\] has room for 20 experiences, not 21"),
    ],
)
def test_what_cannot_work_is_refused(strategy: str, capacity: int, batch: int, words: str) -> None:
    with pytest.raises(UserError, match=words):
        make(strategy, capacity=capacity, batch=batch)


CAPACITY = 20_000


def churn(replay: Replay) -> None:
    """Fill the buffer twice over with random exploration, drawing and annotating all the while."""
    rng = np.random.Generator(np.random.PCG64(0))
    fields, one = replay.columns.fields, np.ones(1, np.bool_)
    for number in range(CAPACITY * (2 if replay.strategy.retention.bounded else 1)):
        experience = {name: rng.random((1, width), np.float32) for name, width in fields.items()}
        replay.add(experience, one, np.array([number % 200 == 199]))
        if number % 20 == 19:
            batch = replay.sample(Context(number % 3, 3, 0.5, np.ones((1, 2), np.float32)))
            replay.annotate(batch, {"td_error": rng.exponential(size=batch.idx.shape).astype(np.float32)})


def own_arrays(part: Any, known: set[int]) -> list[np.ndarray]:
    """Return every array that hangs on an object, each once, but for orders, whose nodes are counted apart."""
    if id(part) in known or isinstance(part, str | int | float | RankOrder):
        return []
    known.add(id(part))
    if isinstance(part, np.ndarray):
        return [part]
    named = part if isinstance(part, dict) else getattr(part, "__dict__", {})
    children = part if isinstance(part, tuple | list) else list(named.values())
    return [array for child in children for array in own_arrays(child, known)]


def bytes_per_experience(replay: Replay) -> float:
    """Return what is used beside the columns and beside what does not grow with the buffer."""
    known = {id(replay.columns), id(replay.columns.rows), id(replay.columns.serial)}
    for order in replay.orders.values():
        known |= {id(array) for array in order.state} | {id(order.state)}
    arrays = {array.ctypes.data: array for array in own_arrays(replay, known)}
    used = sum(array.nbytes for array in arrays.values() if array.size >= CAPACITY // 16)
    for order in replay.orders.values():
        used += sum(array.nbytes for array in order.state)
    return used / CAPACITY


def structures(replay: Replay) -> int:
    ages = getattr(replay.sampling, "ages", None)
    log = isinstance(ages, AgeLog) and ages.state.place_of.size > 0
    return len(replay.orders) + (log or hasattr(replay.sampling, "sums"))


FURTHER = ("Expl(1.2)[AER]", "FULL[ERE]", "Drop(0.3)*Resv[ERE]", "FULL[PER+IS]", "FIFO[PERprop]")


@pytest.mark.parametrize("strategy", ["FIFO[Uniform]", "Resv[ERE+PER]", *slow(FURTHER)])
def test_bytes_per_experience(strategy: str) -> None:
    replay = make(strategy, capacity=CAPACITY, batch=16)
    churn(replay)
    by_age = len(replay.strategy.retention.orders)
    assert bytes_per_experience(replay) <= 24 * structures(replay) + 10 * by_age
    assert replay.strategy.slot_bytes == pytest.approx(4 + bytes_per_experience(replay), rel=0.25)


def test_nothing_is_ordered_that_no_strategy_asks_for() -> None:
    """The bound above is not met by counting too much: nothing is ordered where nothing need be."""
    counts = {
        "FIFO[Uniform]": 0, "Resv[AER]": 0, "FULL[ERE]": 0, "Resv[ERE]": 1, "FIFO[PER]": 1, "TDE[PER]": 1,
        "Expl[PER]": 2, "FIFO[PERprop]": 1, "FULL[ERE+PER]": 1, "Resv[ERE+PER]": 1, "TDE[ERE+PER]": 2,
    }  # fmt: skip
    assert {text: structures(make(text)) for text in counts} == counts


def test_replay_counts_cost_two_bytes() -> None:
    replay = make("FIFO[Uniform+FIS]", capacity=CAPACITY)
    assert bytes_per_experience(replay) == 2
