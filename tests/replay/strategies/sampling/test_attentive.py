"""AER: which candidates there are, and which of them are kept."""

from __future__ import annotations

import numpy as np
import pytest
from buffers import FIELDS, chi_square, fill, make

from replaybench.replay.buffer import Replay
from replaybench.replay.strategies.attentive import AER
from replaybench.replay.strategies.interface import Context
from replaybench.runtime.errors import UserError


def fill_states(replay: Replay, states: np.ndarray) -> None:
    """Store `states` `[n, 2]`, one after the other, for every member."""
    for state in states:
        fill(replay, 1, observation=state)


def attend(members: int, *state: float, progress: float = 0.0) -> Context:
    return Context(progress=progress, state=np.tile(np.array(state, np.float32), (members, 1)))


@pytest.mark.parametrize("progress", [0.0, 0.5, 1.0])
def test_without_widening_draws_are_those_of_uniform_sampling(progress: float) -> None:
    """λ = 1: the same slots in the same order from the same stream, where Uniform repeats none."""
    members, stored, batch = 200, 400, 8
    attentive, uniform = (make(f"FULL[{s}]", members, stored, batch) for s in ("AER(1.0)", "Uniform"))
    for replay in (attentive, uniform):
        fill(replay, stored)
    drawn = attentive.sample(attend(members, 1, 0, progress=progress)).idx
    plain = uniform.sample().idx
    distinct = np.array([len(set(row)) == batch for row in plain.tolist()])
    assert distinct.sum() > 150
    np.testing.assert_array_equal(drawn[distinct], plain[distinct])


@pytest.mark.parametrize(("stored", "batch"), [(30, 5), (30, 15), (30, 20)])
def test_without_widening_draws_are_uniform_and_distinct(stored: int, batch: int) -> None:
    members, rounds = 300, 40
    replay = make("FULL[AER(1.0)]", members, stored, batch)
    fill(replay, stored)
    counts = np.zeros(stored)
    for _ in range(rounds):
        idx = replay.sample(attend(members, 1, 0)).idx
        assert (np.diff(np.sort(idx, axis=1), axis=1) > 0).all()
        counts += np.bincount(idx.ravel(), minlength=stored)
    # Draws without replacement spread less by (N − B) / (N − 1).
    chi_square(counts, np.full(stored, rounds * members * batch / stored), (stored - 1) / (stored - batch))


@pytest.mark.parametrize("scale", [1.0, 1e-3, 50.0])
def test_where_all_are_candidates_the_nearest_are_picked(scale: float) -> None:
    """λB = everything stored: the B directions next to the attended one, however long the vectors."""
    angles = np.random.Generator(np.random.PCG64(0)).permutation(40) / 40 * 2 * np.pi
    replay = make("FULL[AER(5.0)]", capacity=40, batch=8)
    fill_states(replay, np.stack([np.cos(angles), np.sin(angles)], axis=1) * np.arange(1, 41)[:, None])
    for attended in (0.1, 2.0, -3.0):
        batch = replay.sample(attend(1, scale * np.cos(attended), scale * np.sin(attended)))
        distance = abs((angles - attended + np.pi) % (2 * np.pi) - np.pi)
        assert sorted(batch.idx[0]) == sorted(np.argsort(distance)[:8])


def test_a_zero_vector_is_like_nothing_and_unlike_nothing() -> None:
    """Its cosine counts as 0: behind what points the same way, ahead of what points the other way."""
    states = np.array([[-1, 0], [0, 0], [1, 0], [0, 0], [-1, 0], [1, 0]])
    replay = make("FULL[AER(1.5)]", capacity=6, batch=4)
    fill_states(replay, states)
    for _ in range(10):
        assert sorted(replay.sample(attend(1, 1, 0)).idx[0]) == [1, 2, 3, 5]
    for _ in range(10):
        assert len(set(replay.sample(attend(1, 0, 0)).idx[0])) == 4


def test_ties_go_by_draw_order() -> None:
    """Where all are alike, the batch is the first B of the candidates, and any of them can be in it."""
    replay = make("FULL[AER(3.0)]", capacity=60, batch=5)
    fill(replay, 60, observation=1)
    wide = [replay.sample(attend(1, 1, 1)).idx[0].copy() for _ in range(100)]
    assert len(set(np.concatenate(wide))) == 60
    one, other = make("FULL[AER(1.0)]", capacity=60, batch=15), make("FULL[AER(3.0)]", capacity=60, batch=5)
    for replay in (one, other):
        fill(replay, 60, observation=1)
    first, second = one.sample(attend(1, 1, 1)).idx[0], other.sample(attend(1, 1, 1)).idx[0]
    np.testing.assert_array_equal(first[:5], second)


def test_fewer_stored_than_asked_for() -> None:
    """The batch repeats what there is, in turn."""
    replay = make("FULL[AER]", capacity=10, batch=8)
    fill(replay, 3)
    idx = replay.sample(attend(1, 1, 0)).idx[0].tolist()
    assert sorted(idx[:3]) == [0, 1, 2]
    assert idx == (idx[:3] * 3)[:8]


@pytest.mark.parametrize(("progress", "widening"), [(0.0, 4.0), (0.25, 2.5), (0.5, 1.0), (0.75, 1.0), (1.0, 1.0)])
def test_widening_and_learning_rate(progress: float, widening: float) -> None:
    assert AER(4.0, alpha=0.5).factor(progress) == pytest.approx(widening)
    replay = make("FULL[AER(4.0, alpha=0.5)]", members=2, capacity=10)
    fill(replay, 10)
    np.testing.assert_allclose(replay.sample(attend(2, 1, 0, progress=progress)).rate_factor, widening)


def test_nan_has_no_likeness() -> None:
    replay = make("FULL[AER(2.0)]", capacity=8, batch=4)
    fill_states(replay, np.array([[np.nan, 0], [1, 0]] * 4))
    assert sorted(replay.sample(attend(1, 1, 0)).idx[0]) == [1, 3, 5, 7]
    assert len(set(replay.sample(attend(1, np.nan, 0)).idx[0])) == 4


def test_the_attended_state_is_needed() -> None:
    replay = make("FULL[AER]", capacity=8)
    fill(replay, 8)
    with pytest.raises(ValueError, match="the state that each agent attends to"):
        replay.sample()
    fields = {name: width for name, width in FIELDS.items() if name != "observation"}
    with pytest.raises(UserError, match="selects by observation"):
        Replay(replay.strategy, fields, 8, 0, range(1), 4)


def test_the_place_in_a_batch_says_nothing() -> None:
    """Which slot is drawn first is uniform, too: candidates come in draw order."""
    members, stored = 300, 20
    replay = make("FULL[AER(2.0)]", members, stored, 8)
    fill(replay, stored, observation=0)
    counts = np.zeros(stored)
    for _ in range(40):
        counts += np.bincount(replay.sample(attend(members, 1, 0)).idx[:, 0], minlength=stored)
    chi_square(counts, np.full(stored, 40 * members / stored))


@pytest.mark.parametrize("wrong", [{"first": 0.5}, {"first": np.inf}, {"alpha": 0.0}, {"alpha": 1.5}])
def test_parameters_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match="AER"):
        AER(**wrong)
