"""Trees of sums against plain addition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replaybench.replay.orders.priority_sums import (
    SumState,
    cover_range,
    cover_search,
    make_sums,
    new_cover,
    sum_find,
    sum_rebuild,
    sum_search,
    sum_set,
    sum_total,
    sum_update,
)
from replaybench.runtime.kernel import kernel

SIZES = [1, 2, 15, 16, 17, 255, 256, 257, 4095, 4097, 70_000]


def assert_sums(state: SumState, m: int, leaf: np.ndarray, rng: np.random.Generator) -> None:
    """Check totals and what is found, for `leaf` `[P]`."""
    np.testing.assert_array_equal(state.leaf[m, : leaf.size], leaf)
    cumulative = np.cumsum(leaf.astype(np.longdouble))
    total = float(cumulative[-1])
    assert sum_total(state, m) == pytest.approx(total, rel=1e-14)
    if total == 0:
        return
    targets = np.r_[0.0, rng.random(40) * total, np.nextafter(total, 0), total, total * 1.001]
    searched = np.full(targets.size, -1, np.int64)
    sum_search(state, m, targets.copy(), searched)
    for target, together in zip(targets, searched, strict=True):
        found = sum_find(state, m, target)
        assert found == together
        assert leaf[found] > 0
        low, high = np.searchsorted(cumulative, [target - 1e-12 * total, target + 1e-12 * total], side="right")
        last = np.flatnonzero(leaf)[-1]
        assert min(low, last) <= found <= min(high, last)


@pytest.mark.parametrize("size", SIZES)
def test_everything_after_random_changes(size: int) -> None:
    """One at a time and in batches, with repeats and positions to skip; members apart; zeros at both ends."""
    rng = np.random.Generator(np.random.PCG64(size))
    state, leaf = make_sums(3, size), np.zeros((3, size), np.float32)
    for turn in range(6):
        for m in range(3):
            for position in rng.integers(0, size, 40):
                leaf[m, position] = rng.choice([0.0, rng.exponential(), 1e-6, 1e6])
                sum_set(state, m, position, leaf[m, position])
            batch = rng.integers(-1, size, 64 if turn % 2 else 5)
            priority = rng.exponential(size=batch.size).astype(np.float32)
            sum_update(state, m, batch, priority)
            for position, new in zip(batch, priority, strict=True):
                if position >= 0:
                    leaf[m, position] = new
        for m in range(3):
            assert_sums(state, m, leaf[m], rng)


@given(
    st.integers(1, 600),
    st.lists(st.tuples(st.integers(0, 599), st.floats(0, 2.0**100, width=32)), max_size=60),
)
@settings(deadline=None, max_examples=60)
def test_sums_depend_on_the_leaves_alone(size: int, changes: list[tuple[int, float]]) -> None:
    """Bit for bit: a tree that was changed is the tree that is added up from its leaves."""
    changed, rebuilt = make_sums(1, size), make_sums(1, size)
    for position, priority in changes:
        sum_set(changed, 0, position % size, priority)
    positions = np.array([position % size for position, _ in changes], np.int64)
    together = make_sums(1, size)
    sum_update(together, 0, positions, np.array([priority for _, priority in changes], np.float32))
    rebuilt.leaf[:] = changed.leaf
    sum_rebuild(rebuilt, 0)
    for one, other, third in zip(changed, rebuilt, together, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, third)


@kernel
def _search_within(
    state: SumState, m: int, ranges: np.ndarray, share: np.ndarray, position: np.ndarray
) -> tuple[float, int]:
    """Find the positions at these shares of the sum of `ranges` `[1 or 2, 2]`; return that sum and how many nodes."""
    cover, count = new_cover(state), 0
    for r in range(ranges.shape[0]):
        count = cover_range(state, m, ranges[r, 0], ranges[r, 1], cover, count)
    total = cover.upto[count]
    cover_search(state, m, cover, count, share * total, position)
    return total, count


@pytest.mark.parametrize("size", SIZES)
def test_ranges_are_as_if_nothing_lay_outside(size: int) -> None:
    """Exact sums of whole numbers, and what is found in them, beside 1e30 everywhere else; ends at all places."""
    rng = np.random.Generator(np.random.PCG64(size))
    state, share = make_sums(2, size), np.sort(np.r_[0.0, rng.random(60), 1.0])
    for turn in range(40):
        first, last = sorted(rng.integers(0, size, 2).tolist())
        inside = np.arange(first, last + 1)
        ranges = [[first, last + 1]]
        if turn % 2 and first and last < size - 1:  # past the end of a ring
            inside = np.r_[last:size, 0 : first + 1]
            ranges = [[last, size], [0, first + 1]]
        state.leaf[1, :size] = 1e30
        state.leaf[1, inside] = rng.integers(0, 3, inside.size) if turn % 3 else 1
        state.leaf[1, inside[rng.integers(inside.size)]] = 2
        sum_rebuild(state, 1)
        position = np.empty(share.size, np.int64)
        total, nodes = _search_within(state, 1, np.array(ranges), share, position)
        cumulative = np.cumsum(state.leaf[1, inside], dtype=np.float64)
        assert total == cumulative[-1]
        assert nodes <= 32 * (state.level.size + 1) * len(ranges)
        places = np.searchsorted(cumulative, share * total, side="right")
        places[-1] = np.flatnonzero(state.leaf[1, inside])[-1]  # of a target that rounding has put at the end
        np.testing.assert_array_equal(position, inside[places])
