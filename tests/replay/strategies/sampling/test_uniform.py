"""Uniform replay: the law of its draws, and what it costs and keeps."""

from __future__ import annotations

import numpy as np
from buffers import chi_square, fill, make, saved

from replaybench.replay.strategies.attentive import AER
from replaybench.replay.strategies.prioritised import PER, PERprop
from replaybench.replay.strategies.uniform import Uniform


def test_every_experience_of_every_member_has_the_same_chance() -> None:
    members, stored, batch, rounds = 20, 30, 16, 100
    replay = make("FIFO[Uniform]", members, capacity=40, batch=batch)
    fill(replay, stored)
    counts = np.zeros((members, stored))
    for _ in range(rounds):
        drawn = replay.sample()
        np.testing.assert_array_equal(drawn.probability, 1 / stored)
        for m in range(members):
            counts[m] += np.bincount(drawn.idx[m], minlength=stored)
    chi_square(counts, np.full(counts.shape, rounds * batch / stored))


def test_what_only_draws_keeps_nothing_per_slot() -> None:
    for sampling in (Uniform(), PER(), AER()):
        assert sampling.slot_bytes(in_turn=True) == sampling.slot_bytes(in_turn=False) == 0
    assert PERprop().slot_bytes(in_turn=True) == 5  # a float32, and a byte of sums


def test_draws_are_a_members_own_and_go_on_after_saving() -> None:
    one, two = (make("FIFO[Uniform]", members=3) for _ in range(2))
    fill(one, 32)
    assert len({tuple(row) for row in one.sample().idx.tolist()}) == 3
    two.load_state_dict(saved(one))
    np.testing.assert_array_equal(one.sample().idx, two.sample().idx)
