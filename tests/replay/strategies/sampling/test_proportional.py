"""Proportional replay as a distribution, and the faults it is known for elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from buffers import chi_square, fill, make, saved

from replaybench.replay.buffer import Replay
from replaybench.replay.strategies.prioritised import PERprop
from replaybench.runtime.errors import UserError


def annotate_all(replay: Replay, errors: np.ndarray) -> None:
    """Give slot s of every member the TD error errors[s], until each has been drawn."""
    seen = np.zeros((len(replay.count), len(errors)), np.bool_)
    while not seen.all():
        batch = replay.sample()
        replay.annotate(batch, {"td_error": errors[batch.idx].astype(np.float32)})
        np.put_along_axis(seen, batch.idx, True, axis=1)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
def test_draws_are_proportional_to_priority(alpha: float) -> None:
    """P = (|δ| + ε)^α / Σ: the exponent counts once, however often priorities are set."""
    count, members = 30, 500
    replay = make(f"FULL[PERprop({alpha})]", members=members, capacity=count, batch=count)
    fill(replay, count)
    errors = np.linspace(0.7, 3, count) * np.where(np.arange(count) % 2, 1, -1)
    annotate_all(replay, errors)
    annotate_all(replay, errors)
    replay.batch_size = 1
    expected = (abs(errors) + 1e-6) ** alpha
    expected /= expected.sum()
    counts = np.zeros(count)
    for _ in range(100):
        batch = replay.sample()
        counts += np.bincount(batch.idx.ravel(), minlength=count)
        np.testing.assert_allclose(batch.probability, expected[batch.idx], rtol=1e-5)
    chi_square(counts, 100 * members * expected)


def test_one_draw_from_each_part_of_the_priority() -> None:
    replay = make("FULL[PERprop(1.0)]", capacity=64, batch=64)
    fill(replay, 64)
    for _ in range(20):
        assert replay.sample().idx[0].tolist() == list(range(64))


def test_new_experiences_get_the_largest_priority_so_far() -> None:
    """As it is, without another power; a smaller one later does not lower it."""
    replay = make("FIFO[PERprop(0.5)]", capacity=8, batch=4)
    fill(replay, 4)
    assert saved(replay)["priority"].tolist() == [[1.0] * 4]
    batch = replay.sample()
    replay.annotate(batch, {"td_error": np.full((1, 4), 9, np.float32)})
    replay.annotate(batch, {"td_error": np.full((1, 4), 4, np.float32)})
    fill(replay, 2)
    priority = saved(replay)["priority"]
    np.testing.assert_allclose(priority[0, batch.idx[0]], 2.0, rtol=1e-6)
    np.testing.assert_allclose(priority[0, 4:6], 3.0, rtol=1e-6)


@pytest.mark.parametrize("error", [np.nan, np.inf, -np.inf])
def test_an_error_that_is_not_finite_counts_as_the_largest(error: float) -> None:
    replay = make("FIFO[PERprop]", capacity=8, batch=4)
    fill(replay, 8)
    replay.annotate(replay.sample(), {"td_error": np.full((1, 4), 5, np.float32)})
    batch = replay.sample()
    replay.annotate(batch, {"td_error": np.full((1, 4), error, np.float32)})
    priority = saved(replay)["priority"][0]
    np.testing.assert_allclose(priority[batch.idx[0]], (5 + 1e-6) ** 0.6, rtol=1e-6)
    assert np.isfinite(replay.sample().probability).all()


@pytest.mark.parametrize("alpha", [0.6, 8.0, 40.0])
def test_an_error_of_zero_can_still_be_drawn(alpha: float) -> None:
    """Under a large α its priority would be too small for a float32; where all are 0, all are drawn alike."""
    replay = make(f"FIFO[PERprop({alpha})]", capacity=8, batch=8)
    fill(replay, 8)
    for _ in range(10):
        replay.annotate(replay.sample(), {"td_error": np.zeros((1, 8), np.float32)})
    batch = replay.sample()
    assert batch.idx[0].tolist() == list(range(8))
    np.testing.assert_allclose(batch.probability, 1 / 8)
    least = max((1e-6) ** alpha, 2.0**-126)  # the smallest normal number
    np.testing.assert_allclose(saved(replay)["priority"], least, rtol=1e-6)


@pytest.mark.parametrize("wrong", [-1.0, np.inf, np.nan])
def test_priorities_by_which_nothing_can_be_drawn_are_refused(wrong: float) -> None:
    replay = make("FIFO[PERprop]", capacity=8)
    fill(replay, 8)
    state = saved(replay)
    state["priority"][0, 3] = wrong
    with pytest.raises(ValueError, match="negative or not finite"):
        replay.load_state_dict(state)


def test_a_loaded_buffer_draws_as_the_one_that_was_saved() -> None:
    one, two = (make("FIFO[PERprop]", members=2, capacity=8, batch=4) for _ in range(2))
    fill(one, 20)
    for _ in range(10):
        batch = one.sample()
        one.annotate(batch, {"td_error": (1.0 + batch.idx).astype(np.float32)})
    two.load_state_dict(saved(one))
    for _ in range(10):
        first, second = one.sample(), two.sample()
        np.testing.assert_array_equal(first.idx, second.idx)
        np.testing.assert_array_equal(first.probability, second.probability)


def test_parameters_are_checked() -> None:
    for wrong in ({"alpha": -1}, {"alpha": np.nan}, {"epsilon": 0.0}, {"epsilon": np.inf}):
        with pytest.raises(UserError, match="finite number"):
            PERprop(**wrong)
