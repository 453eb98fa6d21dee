"""Steps, segments and whole episodes as units of replay."""

from __future__ import annotations

import numpy as np
import pytest
from buffers import FIELDS, make, saved

from replaybench.replay.buffer import Replay, newest_batch
from replaybench.replay.storage.slots import STEP, Unit, episode, mean_over_steps, segment
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.errors import UserError


def offer(replay: Replay, lengths: list[int], first: int = 1, exploration: float | None = None) -> int:
    """Offer one episode after the other; every field holds the number of the step."""
    number = first
    for length in lengths:
        for step in range(length):
            experience = {name: np.full((1, width), number, np.float32) for name, width in FIELDS.items()}
            if exploration is not None:
                experience["exploration"][:] = exploration
            replay.add(experience, np.ones(1, np.bool_), np.array([step == length - 1]))
            number += 1
    return number


def stored(replay: Replay) -> list[list[int]]:
    """Return the steps of each stored unit."""
    assert replay.assembly is not None
    reward, length = replay.columns.column("reward")[0, ..., 0], replay.assembly.length[0]
    return [reward[slot, : length[slot]].astype(int).tolist() for slot in range(int(replay.count[0]))]


def test_segments_never_span_episodes_and_the_last_one_is_short() -> None:
    replay = make("FIFO[Uniform]", capacity=100, unit=segment(4))
    offer(replay, [6, 4, 1, 9])
    assert stored(replay) == [[1, 2, 3, 4], [5, 6], [7, 8, 9, 10], [11], [12, 13, 14, 15], [16, 17, 18, 19], [20]]
    assert replay.columns.serial[0, :7].tolist() == [1, 5, 7, 11, 12, 16, 20]
    batch = replay.sample()
    assert batch.length is not None
    for b, slot in enumerate(batch.idx[0]):
        own = stored(replay)[slot]
        assert batch.length[0, b] == len(own)
        assert batch.reward[0, b, :, 0].tolist() == own + [0] * (4 - len(own))
        assert batch.observation.shape == (1, 8, 4, 2)


def test_the_newest_units_and_nothing_in_place_of_those_that_there_are_not() -> None:
    """Four slots for a batch of eight, three of them in use: what fills up has neither weight nor steps."""
    replay = make("FIFO[Uniform]", capacity=16, unit=segment(4))
    offer(replay, [6, 3])
    batch = newest_batch(replay)
    assert batch.serial[0, :3].tolist() == [7, 5, 1]
    assert batch.weight[0].tolist() == batch.actor_weight[0].tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    assert batch.length is not None
    assert batch.length[0].tolist() == [3, 2, 4, 0, 0, 0, 0, 0]


def test_whole_episodes_are_evicted_whole() -> None:
    replay = make("FIFO[Uniform]", capacity=20, unit=episode(6))
    offer(replay, [3, 6, 1, 2])
    assert stored(replay) == [[11, 12], [4, 5, 6, 7, 8, 9], [10]]


def test_an_episode_that_is_too_long_is_refused() -> None:
    replay = make("FIFO[Uniform]", capacity=20, unit=episode(6))
    with pytest.raises(OverflowError, match="longer than the 6 steps"):
        offer(replay, [7])


def test_the_priority_of_a_unit_is_the_mean_over_its_own_steps() -> None:
    """What a learner says of the steps that a short unit does not have counts nothing."""
    replay = make("FULL[PER]", capacity=40, batch=2, unit=segment(4))
    offer(replay, [4, 2])
    batch = replay.sample()
    td_error = np.array([[[1, -2, 3, 6], [4, -6, 1000, np.nan]]], np.float32)
    replay.annotate(batch, {"td_error": td_error[:, np.argsort(np.argsort(batch.idx[0]))]})
    np.testing.assert_array_equal(saved(replay)["td_error"], [[3.0, 5.0]])


def test_the_exploration_of_a_unit_is_the_mean_over_its_own_steps() -> None:
    """The unit of least exploration per step goes first, not that of least sum."""
    replay = make("Expl(100.0, segments=none)[Uniform]", capacity=12, unit=segment(4))
    number = offer(replay, [4], exploration=0.5)
    number = offer(replay, [1], number, exploration=1.0)
    number = offer(replay, [4], number, exploration=0.25)
    np.testing.assert_array_equal(replay.orders["exploration"].keys(), [[0.5, 1.0, 0.25]])
    offer(replay, [4], number, exploration=2.0)
    assert stored(replay) == [[1, 2, 3, 4], [5], [10, 11, 12, 13]]


def test_full_has_room_for_whole_segments_also_for_short_ones() -> None:
    """30 episodes of 20 steps are 600 steps and, with their short last ones, 90 segments with the room of 7 each."""
    replay = make("FULL[Uniform]", capacity=630, unit=segment(7))
    offer(replay, [20] * 30)
    assert replay.count.tolist() == [90]
    with pytest.raises(OverflowError, match="more experiences or units than it has room for"):
        offer(replay, [20])


@pytest.mark.parametrize("steps", [0, -1, 65536])
def test_the_length_of_a_unit(steps: int) -> None:
    with pytest.raises(UserError, match=f"not {steps}"):
        Unit(steps)
    assert STEP.steps == 1


def test_a_buffer_has_room_for_a_unit() -> None:
    with pytest.raises(UserError, match="at least 50, the steps of its unit, not 49"):
        Replay(parse("FIFO[Uniform]"), FIELDS, 49, 0, range(1), 4, segment(50))


def test_mean_over_steps() -> None:
    values = np.array([[[1, 2, 6], [1, 2, 6], [1, np.inf, np.nan]]], np.float32)
    np.testing.assert_array_equal(mean_over_steps(values, np.array([[3, 2, 1]], np.uint16)), [[3, 1.5, 1]])
