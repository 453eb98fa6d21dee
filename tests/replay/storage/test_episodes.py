"""Every stored experience knows its episode and its step in it."""

from __future__ import annotations

import numpy as np
from buffers import FIELDS, make, saved

from replaybench.replay.buffer import Replay
from replaybench.replay.storage.episode_starts import EpisodeStarts, episode_and_step


def offer(replay: Replay, active: list[bool], ended: list[bool]) -> None:
    members = len(active)
    experience = {name: np.zeros((members, width), np.float32) for name, width in FIELDS.items()}
    replay.add(experience, np.array(active), np.array(ended))


def places(replay: Replay, m: int) -> list[tuple[int, int]]:
    """Return (episode, step) by slot."""
    episode, step = episode_and_step(replay.episodes.starts[m], replay.columns.serial[m, : replay.count[m]])
    return list(zip(episode.tolist(), step.tolist(), strict=True))


def test_episodes_of_different_length() -> None:
    """Member 0 ends after 3 steps, waits for the other, and begins its second episode with it."""
    replay = make("FULL[Uniform]", members=2, capacity=20)
    for t in range(5):
        offer(replay, [t < 3, True], [t == 2, t == 4])
    for t in range(2):
        offer(replay, [True, True], [t == 1, False])
    assert places(replay, 0) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert places(replay, 1) == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 0), (1, 1)]


def test_an_inactive_member_begins_and_ends_nothing() -> None:
    replay = make("FULL[Uniform]", members=2, capacity=20)
    for active in ([False, True], [True, True], [True, False]):
        offer(replay, active, [True, True])
    assert places(replay, 0) == places(replay, 1) == [(0, 0), (1, 0)]


def test_experiences_that_are_dropped_count_as_steps() -> None:
    replay = make("Drop(0.5)*FULL[Uniform]", capacity=200)
    for t in range(100):
        offer(replay, [True], [t % 10 == 9])
    serial = replay.columns.serial[0, : replay.count[0]].astype(int)
    assert 20 < len(serial) < 80
    assert places(replay, 0) == [((number - 1) // 10, (number - 1) % 10) for number in serial]


def test_a_ring_that_has_turned_over_many_times() -> None:
    """Episodes of growing length, far more than there was room for at first; saved and loaded on the way."""
    replay, expected = make("FIFO[Uniform]", capacity=64), []
    for number in range(60):
        for step in range(1 + number % 7):
            offer(replay, [True], [step == number % 7])
            expected.append((number, step))
        if number == 30:
            copy = make("FIFO[Uniform]", capacity=64)
            copy.load_state_dict(saved(replay))
            replay = copy
    assert sorted(places(replay, 0)) == expected[-64:]


def test_empty_slots_are_episode_zero() -> None:
    starts = EpisodeStarts(1)
    episode, step = episode_and_step(starts.starts[0], np.zeros(3, np.uint32))
    assert episode.tolist() == step.tolist() == [0, 0, 0]
