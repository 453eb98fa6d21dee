"""What is kept: contents of full buffers, and victims as distributions."""

from __future__ import annotations

import numpy as np
import pytest
from buffers import chi_square, fill, make, saved, set_errors
from naive import rank_segments

from replaybench.replay.buffer import Replay
from replaybench.replay.strategies.notation import RETENTIONS, parse
from replaybench.runtime.errors import UserError


def victims(replay: Replay, offers: int, draws: int) -> np.ndarray:
    """Return how often each slot is the victim, were one taken `draws` times; the last count is that of 'none'."""
    capacity, members = replay.slots, len(replay.count)
    counts = np.zeros(capacity + 1, np.int64)
    for _ in range(draws):
        slots = np.full(members, -2)
        replay.retention.slots(np.full(members, offers), capacity, slots)
        counts += np.bincount(np.where(slots < 0, capacity, slots), minlength=capacity + 1)
    return counts


def test_fifo_keeps_the_newest() -> None:
    replay = make("FIFO[Uniform]", capacity=10)
    fill(replay, 10)
    for offered in range(11, 38):
        fill(replay, 1, offered - 1)
        assert sorted(replay.columns.column("reward")[0, :, 0]) == list(range(offered - 10, offered))
        assert sorted(replay.columns.serial[0]) == list(range(offered - 9, offered + 1))


def test_full_keeps_everything_and_refuses_more_than_it_was_made_for() -> None:
    replay = make("FULL[Uniform]", capacity=37)
    fill(replay, 37)
    assert list(replay.columns.column("reward")[0, :, 0]) == list(range(37))
    with pytest.raises(OverflowError, match="more experiences or units than it has room for"):
        fill(replay, 1)


def test_a_reservoir_includes_every_offer_with_equal_probability() -> None:
    """2000 members, capacity 10, 40 offers: each offer is kept with probability 1/4."""
    replay = Replay(parse("Resv[Uniform]"), {"reward": 1}, 10, 0, range(2000), 1)
    fill(replay, 40)
    kept = np.bincount(replay.columns.rows[:, :, 0].astype(int).ravel(), minlength=40)
    chi_square(kept, np.full(40, 500.0))


def test_a_reservoir_overwrites_a_uniform_victim() -> None:
    replay = make("Resv[Uniform]", members=100, capacity=10)
    fill(replay, 10)
    chi_square(victims(replay, 20, 400), 40_000 * np.r_[np.full(10, 0.05), 0.5])


@pytest.mark.parametrize("alpha", [0.0, 1.0, 2.0])
def test_exact_victims_follow_the_rank_law_from_the_smallest_error(alpha: float) -> None:
    capacity, draws = 12, 1000
    replay = make(f"TDE({alpha}, segments=none)[Uniform]", members=50, capacity=capacity)
    fill(replay, capacity)
    errors = np.random.Generator(np.random.PCG64(0)).permutation(capacity)
    set_errors(replay, np.tile(errors, (50, 1)))
    law = np.arange(1, capacity + 1) ** -alpha
    expected = 50 * draws * (law / law.sum())[errors]
    chi_square(victims(replay, capacity, draws)[:capacity], expected)


@pytest.mark.parametrize(("segments", "parts"), [("authors", 3), ("5", 5), ("1", 1), ("100", 12)])
def test_victims_by_segments(segments: str, parts: int) -> None:
    """Each part of equal probability gives as many victims; inside it all ranks do alike."""
    capacity, draws = 12, 1000
    replay = make(f"Expl(1.2, segments={segments})[Uniform]", members=50, capacity=capacity)
    exploration = np.random.Generator(np.random.PCG64(1)).permutation(capacity)
    for value in exploration:
        fill(replay, 1, exploration=value)
    chance = np.concatenate([np.full(len(r), 1 / len(r) / parts) for r in rank_segments(1.2, capacity, parts)])
    chi_square(victims(replay, capacity, draws)[:capacity], 50 * draws * chance[exploration])


@pytest.mark.parametrize(("capacity", "parts"), [(100, 3), (1999, 3), (5000, 10)])
def test_the_authors_cut_capacity_by_500_but_at_least_in_three(capacity: int, parts: int) -> None:
    """The first part is as wide as that of so many parts, and a third (tenth) of the victims come from it."""
    replay = make("Expl(1.0)[Uniform]", members=200, capacity=capacity)
    for value in range(capacity):
        fill(replay, 1, exploration=value)
    counts = victims(replay, capacity, 100)[:capacity]
    by_part = [counts[ranks.start : ranks.stop].sum() for ranks in rank_segments(1.0, capacity, parts)]
    chi_square(np.array(by_part), np.full(parts, 20_000 / parts))
    first = counts[: len(rank_segments(1.0, capacity, parts)[0])]
    if len(first) > 1:
        chi_square(first, np.full(len(first), first.sum() / len(first)))


def test_of_equal_metrics_the_oldest_goes_first() -> None:
    """With α = 100 the first rank is as good as certain; errors that are not known yet are infinite, so go last."""
    replay = make("TDE(100.0, segments=none)[Uniform]", capacity=5)
    fill(replay, 5)
    set_errors(replay, np.array([[2, 1, np.inf, 1, 2]]))
    assert victims(replay, 5, 50).tolist() == [0, 50, 0, 0, 0, 0]
    fill(replay, 1)  # in slot 1, and unknown
    assert victims(replay, 6, 50).tolist() == [0, 0, 0, 50, 0, 0]
    set_errors(replay, np.array([[2, 1, np.inf, 1, 2]]))  # slot 1 is the newest now
    assert victims(replay, 6, 50).tolist() == [0, 0, 0, 50, 0, 0]


@pytest.mark.parametrize("text", ["Expl(100.0, segments=none)", "TDE(100.0, segments=none)"])
def test_where_all_metrics_are_equal_the_newest_stay(text: str) -> None:
    """As FIFO keeps them, over many turns, and from a saved buffer too."""
    one, two = (make(f"{text}[Uniform]", members=3, capacity=21) for _ in range(2))
    fill(one, 200, exploration=0.0)
    two.load_state_dict(saved(one))
    for number in range(200, 300):
        for replay in (one, two):
            fill(replay, 1, number, exploration=0.0)
            assert sorted(replay.columns.serial[0].tolist()) == list(range(number - 19, number + 2))


def test_every_retention_says_whether_it_is_bounded() -> None:
    assert [name for name, kind in RETENTIONS.items() if not kind().bounded] == ["FULL"]
    assert [name for name, kind in RETENTIONS.items() if kind().in_turn] == ["FIFO", "FULL"]


@pytest.mark.parametrize(
    "text", ["TDE(-1)", "TDE(nan)", "Expl(inf)", "TDE(1, segments=0)", "TDE(1, segments=2.5)", "Expl(1, segments=all)"]
)
def test_parameters_are_checked(text: str) -> None:
    with pytest.raises(UserError, match="α must be|segments"):
        parse(f"{text}[Uniform]")
