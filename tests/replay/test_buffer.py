"""The buffer itself: what it stores and hands out, under every strategy, and that it resumes."""

from __future__ import annotations

import numpy as np
import pytest
from buffers import FIELDS, chi_square, fill, make, saved

from replaybench.data.errors import UserError
from replaybench.replay.buffer import Replay
from replaybench.replay.newest import newest_batch
from replaybench.replay.strategies.notation import parse
from replaybench.replay.strategies.view import Context

STRATEGIES = ("FIFO[Uniform]", "FULL[Uniform]", "Resv[Uniform]", "FIFO[PER]", "FULL[PER+IS]", "Resv[PER(1.2)+IS]")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_batches_hold_live_experiences_only(strategy: str) -> None:
    replay = make(strategy, members=3, capacity=32 if "FULL" not in strategy else 200)
    for start in range(0, 60, 20):
        fill(replay, 20, start)
        batch = replay.sample(Context())
        live = [set(replay.columns.serial[m, : replay.count[m]].tolist()) for m in range(3)]
        for m in range(3):
            assert set(batch.serial[m].tolist()) <= live[m]
            np.testing.assert_array_equal(batch.reward[m, :, 0], batch.serial[m] - 1.0)
        replay.annotate(batch, {"td_error": np.ones(batch.weight.shape, np.float32)})


def test_a_buffer_is_not_larger_than_its_strategy_says() -> None:
    assert make("FIFO(20)[Uniform]", capacity=20).slots == 20
    with pytest.raises(UserError, match=r"FIFO\(20\)\[Uniform\] has room for 20 experiences, not 21"):
        make("FIFO(20)[Uniform]", capacity=21)


def test_uniform_draws_are_uniform_and_reach_the_last_slot() -> None:
    replay = make("FULL[Uniform]", capacity=20, batch=1000)
    fill(replay, 20)
    drawn = np.concatenate([replay.sample(Context()).idx[0].copy() for _ in range(50)])
    counts = np.bincount(drawn, minlength=20)
    chi_square(counts, np.full(20, 50 * 1000 / 20))


def test_batches_hold_every_field_by_its_name() -> None:
    replay = Replay(parse("FIFO[Uniform]"), {**FIELDS, "extra": 3}, 8, 0, range(2), 4)
    experience = {name: np.random.default_rng(0).random((2, width)) for name, width in replay.columns.fields.items()}
    replay.add(experience, np.ones(2, np.bool_))
    batch = replay.sample()
    for name, given in experience.items():
        np.testing.assert_array_equal(batch.columns[name], np.repeat(given.astype(np.float32)[:, None], 4, axis=1))
    for name in ("observation", "action", "reward", "next_observation", "terminated"):
        np.testing.assert_array_equal(getattr(batch, name), batch.columns[name])
    with pytest.raises(KeyError, match="action"):
        replay.add({"observation": experience["observation"]}, np.ones(2, np.bool_))


def test_annotation_of_an_overwritten_experience_is_dropped() -> None:
    """The batch is drawn, its slots get new occupants, then the learner answers: the new ones stay unused (∞)."""
    replay = make("FIFO[PER]", capacity=8, batch=4)
    fill(replay, 8)
    batch = replay.sample(Context())
    fill(replay, 8, 8)
    replay.annotate(batch, {"td_error": np.zeros((1, 4), np.float32)})
    assert np.isinf(saved(replay)["td_error"]).all()


def test_duplicates_in_a_batch_leave_one_priority() -> None:
    replay = make("FULL[PER]", capacity=8, batch=8)
    fill(replay, 2)
    batch = replay.sample(Context())
    assert len(set(batch.idx[0].tolist())) == 2
    td_error = np.where(batch.idx == 0, -3.0, 5.0).astype(np.float32)
    replay.annotate(batch, {"td_error": td_error})
    np.testing.assert_array_equal(saved(replay)["td_error"], [[3.0, 5.0]])


def test_strategies_that_go_by_error_ask_for_it() -> None:
    for strategy in ("FIFO[PER]", "TDE[Uniform]", "FIFO[PERprop]", "Resv[ERE+PER]"):
        replay = make(strategy)
        fill(replay, 3)
        with pytest.raises(ValueError, match="needs td_error"):
            replay.annotate(replay.sample(), {})
    for strategy in ("FIFO[Uniform]", "FIFO[ERE]", "Expl[AER]"):
        replay = make(strategy)
        fill(replay, 3)
        replay.annotate(replay.sample(Context(state=np.ones((1, 2), np.float32))), {})


def test_errors_known_in_advance_and_forgotten() -> None:
    replay = make("TDE[PER]", capacity=4)
    experience = {name: np.ones((1, width), np.float32) for name, width in FIELDS.items()}
    for error in (1.0, 0.5, np.nan):
        replay.add({**experience, "td_error": np.array([[error]])}, np.ones(1, np.bool_))
    replay.add(experience, np.ones(1, np.bool_))
    np.testing.assert_array_equal(replay.orders["td_error"].keys(), [[1.0, 0.5, np.inf, np.inf]])
    replay.forget_errors()
    assert np.isinf(replay.orders["td_error"].keys()).all()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_save_and_load_give_identical_next_draws(strategy: str) -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    capacity = 500 if "FULL" in strategy else 50
    one = make(strategy, members=2, capacity=capacity)
    fill(one, 80)
    for _ in range(20):
        batch = one.sample(Context())
        one.annotate(batch, {"td_error": rng.normal(size=batch.weight.shape).astype(np.float32)})
    two = make(strategy, members=2, capacity=capacity)
    two.load_state_dict(saved(one))
    for number in range(300):
        first, second = one.sample(Context()), two.sample(Context())
        np.testing.assert_array_equal(first.idx, second.idx)
        np.testing.assert_array_equal(first.columns["reward"], second.columns["reward"])
        td_error = rng.normal(size=first.weight.shape).astype(np.float32)
        for replay, batch in ((one, first), (two, second)):
            replay.annotate(batch, {"td_error": td_error})
            fill(replay, 1, 80 + number)


def test_a_saved_state_is_that_of_the_loaded_buffer() -> None:
    one = make("Drop(0.2)*Expl[ERE+PER+FIS]", members=2, capacity=20)
    fill(one, 50)
    one.annotate(one.sample(), {"td_error": np.full((2, 8), 2, np.float32)})
    two = make("Drop(0.2)*Expl[ERE+PER+FIS]", members=2, capacity=20)
    two.load_state_dict(saved(one))
    first, second = saved(one), saved(two)
    assert sorted(first) == sorted(second)
    for name, array in first.items():
        np.testing.assert_array_equal(second[name], array, err_msg=name)


def test_members_draw_the_same_in_any_population() -> None:
    together, alone = make("Resv[PER]", members=4), Replay(parse("Resv[PER]"), FIELDS, 32, 0, [2], 8)
    fill(together, 90)
    fill(alone, 90)
    for _ in range(10):
        np.testing.assert_array_equal(together.sample(Context()).idx[2], alone.sample(Context()).idx[0])


@pytest.mark.parametrize(
    "sampling", ["Uniform+FIS", "PER+IS", "PERprop+IS(normalise=true)", "ERE", "ERE+PER", "ERE+PER+IS", "AER"]
)
@pytest.mark.parametrize("retention", ["FIFO", "Resv", "TDE"])
def test_a_member_that_stores_nothing_yet_is_muted(retention: str, sampling: str) -> None:
    """Rows of zeros, weights and learning rate 0, no warning; when it stores something it takes part."""
    replay = make(f"{retention}[{sampling}]", members=2, capacity=16, batch=4)
    experience = {name: np.ones((2, width), np.float32) for name, width in FIELDS.items()}
    context = Context(state=np.ones((2, 2), np.float32))
    for _ in range(8):
        replay.add(experience, np.array([True, False]))
    for _ in range(3):
        batch = replay.sample(context)
        for muted in (batch.weight, batch.actor_weight, batch.rate_factor, batch.reward):
            assert (muted[1] == 0).all()
            assert (muted[0] > 0).any()
        replay.annotate(batch, {"td_error": np.full((2, 4), 5, np.float32)})
    if "td_error" in replay.orders:
        assert np.isnan(replay.orders["td_error"].keys()[1]).all()
    replay.add(experience, np.ones(2, np.bool_))
    batch = replay.sample(context)
    assert (batch.rate_factor >= 1).all()
    assert (batch.actor_weight > 0).any(axis=1).all()


def test_batches_may_change_in_size() -> None:
    replay = make("FIFO[Uniform+FIS]", batch=4)
    fill(replay, 9)
    replay.batch_size = 7
    batch = replay.sample(Context(2, 5))
    assert batch.idx.shape == batch.weight.shape == batch.reward.shape[:2] == (1, 7)
    assert (batch.update, batch.updates_in_phase) == (2, 5)


def test_capacity_must_be_positive() -> None:
    with pytest.raises(UserError, match="capacity"):
        make("FIFO[Uniform]", capacity=0)


def test_a_metric_must_be_stored() -> None:
    with pytest.raises(UserError, match="selects by exploration, which is not among the stored fields"):
        Replay(parse("Expl[Uniform]"), {"observation": 2}, 8, 0, range(1), 4)


@pytest.mark.parametrize("strategy", ["FIFO[Uniform]", "FULL[Uniform+FIS]", "FIFO[ERE]", "Resv[ERE]"])
def test_batches_drawn_at_once_are_those_drawn_one_by_one(strategy: str) -> None:
    """One member stores nothing; what must be noticed of its phase is where a second draw begins."""
    members, batch, updates = 3, 4, 5
    one, many = (make(strategy, members=members, capacity=32, batch=batch) for _ in range(2))
    for replay in (one, many):
        fill(replay, 20)
        replay.count[1] = 0
    assert many.at_once > updates
    for first in (0, updates):
        drawn = many.sample(Context(first, 2 * updates, 0.5), updates)
        for update in range(updates):
            alone = one.sample(Context(first + update, 2 * updates, 0.5))
            for name in ("idx", "serial", "probability", "weight", "actor_weight", "rate_factor", "observation"):
                theirs = getattr(drawn, name)[update::updates]
                np.testing.assert_array_equal(getattr(alone, name), theirs, err_msg=name)
    assert one.updates == many.updates == 2 * updates
    states = one.state_dict(), many.state_dict()
    for name, array in states[0].items():
        np.testing.assert_array_equal(array, states[1][name], err_msg=name)


def test_what_waits_for_a_learner_is_drawn_one_by_one() -> None:
    for strategy in ("FIFO[PER]", "TDE[Uniform]", "FIFO[AER]", "FULL[ERE+PER]"):
        assert make(strategy, capacity=20).at_once == 1
    large, small = (make("FIFO[Uniform]", members=m, capacity=20) for m in (50_000, 50))
    assert large.at_once == 1
    assert small.at_once > 10


def test_a_state_is_loaded_over_whatever_was_there() -> None:
    one, two = make("FIFO[Uniform]", capacity=50), make("FIFO[Uniform]", capacity=50)
    fill(one, 10)
    fill(two, 30)
    two.load_state_dict(saved(one))
    np.testing.assert_array_equal(newest_batch(two).serial, newest_batch(one).serial)


def test_a_batch_of_none_is_refused() -> None:
    with pytest.raises(UserError, match="batch size must be at least 1, not 0"):
        Replay(parse("FIFO[Uniform]"), FIELDS, 32, 0, [0], 0)
