"""Weights by the chances of draws (eq. 8) and by replay counts (section 7.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from buffers import fill, make, saved, set_errors
from scipy.stats import binom

from replaybench.replay.buffer import Replay
from replaybench.replay.strategies.interface import Context
from replaybench.replay.strategies.weighting import FIS, IS, binomial_tails
from replaybench.runtime.errors import UserError


@pytest.mark.parametrize(("progress", "beta"), [(0.0, 0.5), (0.5, 0.75), (1.0, 1.0)])
def test_importance_weights_are_equation_8(progress: float, beta: float) -> None:
    replay = make("FULL[PER+IS]", capacity=64, batch=8)
    fill(replay, 50)
    batch = replay.sample(Context(progress=progress))
    np.testing.assert_allclose(batch.weight, (1 / (50 * batch.probability)) ** beta, rtol=1e-6)
    assert batch.weight.std() > 0
    assert (batch.actor_weight == 1).all()


def test_weights_make_up_for_the_draws() -> None:
    """With β = 1 the weighted mean of any quantity over many batches is its mean over the buffer."""
    replay = make("FULL[PER+IS(1.0)]", capacity=40, batch=8)
    fill(replay, 40)
    values = np.random.Generator(np.random.PCG64(0)).random(40)
    set_errors(replay, np.linspace(0, 9, 40)[None])
    means = []
    for _ in range(4000):
        batch = replay.sample()
        means.append(float((batch.weight[0] * values[batch.idx[0]]).mean()))
    error = np.std(means) / np.sqrt(len(means))
    assert abs(np.mean(means) - values.mean()) < 4.9 * error  # false alarms: 1e-6
    assert error < 0.01


@pytest.mark.parametrize("retention", ["FIFO", "Resv"])
def test_ere_with_priorities_weighs_as_algorithm_2(retention: str) -> None:
    """Wang and Ross (2019): β₁ = β₂ = 0.6, normalised by the maximum, on the actor's loss too."""
    replay = make(f"{retention}[ERE(0.9999, c_min=20)+PER]", capacity=64)
    fill(replay, 64)
    for number in range(4):
        batch = replay.sample(Context(number, 4))
        replay.annotate(batch, {"td_error": (batch.idx / 10).astype(np.float32)})
    batch = replay.sample(Context(0, 4, progress=1.0))
    relative = batch.probability / batch.probability.min()
    np.testing.assert_allclose(batch.weight, relative**-0.6, rtol=1e-6)
    np.testing.assert_array_equal(batch.actor_weight, batch.weight)
    assert batch.weight.std() > 0


GOLDEN = {1: 1.162, 4: 1.113, 8: 0.636, 12: 0.130, 16: 0.010}
"""Weights of the K-th replay for C = 10⁴, B = 16, np = 8: by hand from the definition (`FACTS.md`)."""


def full_buffer(weighting: str = "FIS") -> tuple[Replay, Any, Context]:
    """A full buffer of 10⁴ after 20,000 offers, before the first update of phase 101 of 100 updates."""
    replay = make(f"FIFO[Uniform+{weighting}]", capacity=10_000, batch=16)
    fill(replay, 10_000)
    replay.offers[:], replay.updates = 20_000, 9_900
    running: Any = replay.weighting
    running.before[:] = 200, 100
    return replay, replay.weighting, Context(0, 100)


def test_golden_weights_by_replay_count() -> None:
    replay, weighting, context = full_buffer()
    for count in GOLDEN:
        weighting.replays[:] = count - 1
        replay.updates = 9_900
        batch = replay.sample(context)
        once = np.unique(batch.idx[0], return_index=True)[1]  # a second draw of the same batch has K + 1
        np.testing.assert_allclose(batch.weight[0, once], GOLDEN[count], atol=5e-4)


def test_golden_weights_are_the_definition() -> None:
    """n = 5000 updates of a FIFO lifetime, p = 16 / 10⁴, Pr(X ≥ K) over its mean."""
    reached = binom(5000, 16 / 10_000).sf(np.arange(17) - 1)
    for count, golden in GOLDEN.items():
        assert reached[count] / (reached[1:9].sum() / 8) == pytest.approx(golden, abs=5e-4)


def test_replays_of_one_batch_are_counted_in_turn_and_a_new_occupant_begins_anew() -> None:
    replay = make("FIFO[Uniform+FIS]", capacity=3, batch=6)
    fill(replay, 3)
    batch = replay.sample()
    counts = np.bincount(batch.idx[0], minlength=3)
    assert counts.max() > 1
    assert saved(replay)["replays"][0].tolist() == counts.tolist()
    for slot in range(3):
        assert (np.diff(batch.weight[0, batch.idx[0] == slot]) <= 0).all()
    fill(replay, 1)
    assert saved(replay)["replays"][0].tolist() == [0, counts[1], counts[2]]


def test_the_lifetime_while_a_buffer_fills_is_that_so_far() -> None:
    """37 stored after 25 updates: n = 25, p = B / 37, so np = 5.4 and six terms; FULL likewise, whatever its room."""
    for strategy in ("FIFO[Uniform+FIS]", "FULL[Uniform+FIS]"):
        replay = make(strategy, capacity=100, batch=8)
        fill(replay, 37)
        replay.updates = 24
        reached = binom(25, 8 / 37).sf(np.arange(7) - 1)
        usual = reached[1:].sum() / (25 * 8 / 37)
        np.testing.assert_allclose(replay.sample().weight[0, 0], reached[1] / usual, rtol=1e-5)


def test_batches_larger_than_what_is_stored_do_not_mute_learning() -> None:
    """2 stored, B = 16: every experience is drawn 8 times a batch in the mean, and most weigh about 1."""
    replay = make("FIFO[Uniform+FIS]", capacity=100, batch=16)
    fill(replay, 2)
    weight = np.concatenate([replay.sample().weight[0] for _ in range(20)])
    assert 0.7 < weight.mean() < 1.3


@pytest.mark.parametrize("warm_up", [0, 40, 400])
def test_a_warm_up_leaves_lifetimes_as_they_are(warm_up: int) -> None:
    """Phases of 20 updates follow 40 offers each: n is the updates so far, then 200, and np = 8."""
    replay = make("FIFO[Uniform+FIS]", capacity=400, batch=16)
    running: Any = replay.weighting
    fill(replay, warm_up)
    for phase in range(12):
        fill(replay, 40)
        replay.sample(Context(0, 20))
        usage = replay._usage(Context(0, 20), replay.count)
        lifetime, expected = running._lifetime(usage, 16)
        n = 200 if phase >= 9 else replay.updates
        assert (lifetime[0], expected[0]) == (n, pytest.approx(16 * n / replay.count[0])), phase
        for update in range(1, 20):
            replay.sample(Context(update, 20))


def test_where_nothing_is_replaced_the_lifetime_is_that_so_far() -> None:
    """As offline, where a recording is offered at once: as if the buffer kept everything."""
    replay, whole = (make(f"{keep}[Uniform+FIS]", capacity=400, batch=16) for keep in ("FIFO", "FULL"))
    fill(replay, 4000)
    fill(whole, 400)
    for update in range(200):
        found = [each.sample(Context(update % 20, 20)) for each in (replay, whole)]
        first, second = (np.sort(each.weight) for each in found)
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("n", [1, 2, 8, 100, 5000, 200_000])
@pytest.mark.parametrize("mean", [1e-6, 0.3, 8.0, 300.0])
def test_binomial_tails(n: int, mean: float) -> None:
    p = min(1.0, mean / n)
    most = min(60, 2 * n + 3)
    expected = binom(n, p).sf(np.arange(most + 1) - 1)
    np.testing.assert_allclose(binomial_tails(n, p, most), expected, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize(("n", "p"), [(5000, 0.9), (3, 1.0), (3, 1.7), (10, 1 - 1e-12)])
def test_binomial_tails_of_the_nearly_certain(n: int, p: float) -> None:
    expected = binom(n, min(p, 1.0)).sf(np.arange(13) - 1)
    np.testing.assert_allclose(binomial_tails(n, p, 12), expected, rtol=1e-9, atol=1e-13)


def test_the_exponent_of_replay_weights() -> None:
    replay, weighting, context = full_buffer("FIS(0.5)")
    weighting.replays[:] = 3
    np.testing.assert_allclose(replay.sample(context).weight, np.sqrt(1.113), atol=5e-4)


def test_fewer_updates_than_a_lifetime_has() -> None:
    """400 offers to a buffer of 8 before the first update: n, at least 1, is not rounded to 0."""
    replay = make("FIFO[Uniform+FIS]", capacity=8, batch=4)
    fill(replay, 400)
    assert np.isfinite(replay.sample().weight).all()


@pytest.mark.parametrize(
    ("build", "words"),
    [(lambda: IS(1.2), "[0, 1]"), (lambda: IS(0.5, -0.1), "[0, 1]"), (lambda: FIS(2.0), "[0, 1]")],
)
def test_exponents_are_bounded(build: Callable[[], object], words: str) -> None:
    with pytest.raises(UserError) as caught:
        build()
    assert words in str(caught.value)
