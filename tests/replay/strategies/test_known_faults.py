"""Faults of the authors' public code and of other libraries, which must not come back here.

Those that are a matter of one strategy's distribution are tested beside it as well; here each has a name.
"""

from __future__ import annotations

import numpy as np
import pytest
from buffers import fill, make, saved

from replaybench.replay.buffer import Replay
from replaybench.replay.strategies.interface import Context
from replaybench.replay.strategies.notation import RETENTIONS, SAMPLINGS

SAMPLED = [*SAMPLINGS]


def attend(replay: Replay) -> Context:
    """An update at the end of a run, when the range of ERE is the whole buffer and λ of AER is 1."""
    return Context(progress=1.0, state=np.ones((len(replay.count), 2), np.float32))


def test_exploration_reaches_the_buffer_and_decides() -> None:
    """Of the authors' code: the magnitude never arrived, so that `expl` discarded by chance."""
    replay = make("Expl(100.0, segments=none)[Uniform]", capacity=10)
    for number in range(10):
        fill(replay, 1, number, exploration=10 - number)
    np.testing.assert_array_equal(replay.columns.column("exploration")[0, :, 0], 10 - np.arange(10.0))
    fill(replay, 1, 10, exploration=5.5)
    assert sorted(replay.columns.column("exploration")[0, :, 0]) == [2, 3, 4, 5, 5.5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize("retention", RETENTIONS)
@pytest.mark.parametrize("sampling", SAMPLED)
def test_every_index_can_be_drawn(retention: str, sampling: str) -> None:
    """Of the authors' code: the last one never was. Here the chance to miss one of 20 is below 20·(19/20)^2000."""
    replay = make(f"{retention}[{sampling}]", capacity=20, batch=10)
    fill(replay, 20)
    drawn: set[int] = set()
    for _ in range(200):
        batch = replay.sample(attend(replay))
        drawn |= set(batch.idx[0].tolist())
        replay.annotate(batch, {"td_error": np.ones((1, 10), np.float32)})
    assert len(drawn) == 20


@pytest.mark.parametrize("retention", [name for name, kind in RETENTIONS.items() if kind().bounded])
def test_every_index_can_be_overwritten(retention: str) -> None:
    replay = make(f"{retention}[Uniform]", capacity=20)
    fill(replay, 20, exploration=1)
    before = replay.columns.serial.copy()
    fill(replay, 3000, exploration=1)
    assert (replay.columns.serial > before).all()


@pytest.mark.parametrize("sampling", ["PER", "PERprop", "ERE(1.0)+PER"])
def test_a_new_experience_is_drawn_soon(sampling: str) -> None:
    """Of other libraries: initial priorities of 0 or 1 among large ones. Here it is in the next batch or two."""
    replay = make(f"FULL[{sampling}]", capacity=101, batch=32)
    fill(replay, 100)
    for _ in range(30):
        batch = replay.sample(attend(replay))
        error = np.where(batch.idx == 7, 1e6, 1e-3).astype(np.float32)
        replay.annotate(batch, {"td_error": error})
    fill(replay, 1)
    assert 100 in np.concatenate([replay.sample(attend(replay)).idx[0].copy() for _ in range(2)])


def test_the_exponent_is_not_applied_twice() -> None:
    """Of other libraries: |δ|^α stored, and raised to α again at the draw, or when the largest is handed on."""
    replay = make("FULL[PERprop(0.5, epsilon=1e-30)]", capacity=3, batch=2)
    fill(replay, 2)
    for _ in range(30):
        batch = replay.sample()
        replay.annotate(batch, {"td_error": np.where(batch.idx == 0, 16, 1).astype(np.float32)})
    batch = replay.sample()
    np.testing.assert_allclose(batch.probability[batch.idx == 0], 4 / 5, rtol=1e-6)
    fill(replay, 1)
    np.testing.assert_allclose(saved(replay)["priority"], [[4, 1, 4]], rtol=1e-6)


@pytest.mark.parametrize("sampling", ["PERprop(1.0)", "ERE(1.0)+PER(1.0)", "PER"])
@pytest.mark.parametrize("retention", ["FIFO", "Resv"])
def test_duplicates_in_one_annotation(retention: str, sampling: str) -> None:
    """Of other libraries: a sum that counts both. The later one stands, and the probabilities still add up to 1."""
    replay = make(f"{retention}[{sampling}]", capacity=3, batch=32)
    fill(replay, 3)
    for turn in range(1, 5):
        batch = replay.sample(attend(replay))
        error = (np.arange(32)[None] + turn).astype(np.float32)
        last = {slot: error[0, b] for b, slot in enumerate(batch.idx[0].tolist())}
        assert len(last) == 3
        replay.annotate(batch, {"td_error": error})
        state = saved(replay)
        now = state["td_error" if sampling == "PER" else "priority"][0]
        np.testing.assert_allclose(now, [last[slot] for slot in range(3)], rtol=1e-5)
    batch = replay.sample(attend(replay))
    chance = dict(zip(batch.idx[0].tolist(), batch.probability[0].tolist(), strict=True))
    assert sum(chance.values()) == pytest.approx(1, rel=1e-6)
