"""Orders by rank, age and priority against sorted arrays, and the law of ranks."""

import functools
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from replaybench.replay.orders import episode_sums, priority_sums, rank_order
from replaybench.replay.orders.priority_sums import AgeLog, SumState, cover_range, cover_search, make_sums, new_cover
from replaybench.replay.orders.rank_law import first_sums, partial_sum, ranks_below, segment_edges
from replaybench.replay.orders.rank_order import INNER, LEAF, NODES, SIZE, RankOrder, order_select
from replaybench.runtime.kernel import kernel
from tests.helpers.naive import rank_segments
from tests.helpers.tiers import slow


@kernel
def select_all(state: Any, m: int) -> NDArray[np.int64]:
    found = np.empty(state.head[m, SIZE], np.int64)
    for rank in range(found.size):
        found[rank] = order_select(state, m, rank)
    return found


def assert_order(order: RankOrder, keys: NDArray[np.float32], arrived: NDArray[np.integer] | None = None) -> None:
    """Compare with sorting: by key, then by slot or, given the numbers of their occupants, the newest first."""
    np.testing.assert_array_equal(order.keys(), keys)
    for m, row in enumerate(keys):
        present = np.flatnonzero(~np.isnan(row))
        ties = present if arrived is None else -arrived[m, present].astype(np.int64)
        expected = present[np.lexsort((ties, -row[present]))]
        assert order.state.head[m, SIZE] == expected.size
        np.testing.assert_array_equal(select_all(order.state, m), expected)
        assert order.state.head[m, NODES] <= order.state.bound.shape[1]
        assert order.state.head[m, NODES + 1] <= order.state.leaf.shape[1]


def change(keys: NDArray[np.float32], slots: NDArray[np.int64], new: NDArray[np.float32]) -> None:
    """Set keys one after the other, but for slots of −1."""
    for m, b in np.argwhere(slots >= 0):
        keys[m, slots[m, b]] = new[m, b]


WIDTHS = [1, 2, LEAF - 1, LEAF, LEAF + 1, 2 * LEAF, LEAF * INNER - 1, LEAF * INNER, LEAF * INNER + 1, 20_000]
PATTERNS = {
    "random": lambda rng, shape: rng.random(shape),
    "equal": lambda rng, shape: np.full(shape, rng.integers(3)),
    "ties": lambda rng, shape: rng.integers(0, 3, shape),
    "infinite": lambda rng, shape: rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], shape),
    "rising": lambda rng, shape: np.arange(np.prod(shape)).reshape(shape),
    "falling": lambda rng, shape: -np.arange(np.prod(shape)).reshape(shape),
    "near": lambda rng, shape: 1e3 + rng.random(1) + 1e-3 * rng.random(shape),
}


@settings(deadline=None, max_examples=60)
@given(
    capacity=st.sampled_from(WIDTHS),
    members=st.sampled_from([1, 3]),
    batches=st.lists(
        st.tuples(st.sampled_from(sorted(PATTERNS)), st.sampled_from([0, 1, 16, 64, 700, 9000]), st.booleans()),
        min_size=1,
        max_size=12,
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_batches_match_sorting(capacity: int, members: int, batches: list[tuple[str, int, bool]], seed: int) -> None:
    """Batches hold slots twice or thrice, absent ones, ones to be skipped, and ones that keep their key."""
    rng = np.random.default_rng(seed)
    order = RankOrder(members, capacity)
    keys = np.full((members, capacity), np.nan, np.float32)
    if seed % 2:
        keys[rng.random(keys.shape) < 0.8] = 0.5
        order.load_keys(keys, keys)
    for pattern, width, close in batches:
        slots = rng.integers(-1, capacity, (members, width))
        if close:
            slots = np.minimum(slots, rng.integers(0, 5))
        new = PATTERNS[pattern](rng, slots.shape).astype(np.float32)
        rank_order.order_update_all(order.state, slots, new)
        change(keys, slots, np.where(np.isnan(new), np.float32(np.inf), new))
    assert_order(order, keys)


@pytest.mark.parametrize("capacity", [1_000, 30_000])
def test_nodes_last_under_adversarial_workloads(capacity: int) -> None:
    """Reserved nodes are enough where all keys gather at one place, ascend, descend, or are random; and after loading.

    Growth of three levels and many rebuilds.
    """
    rng = np.random.default_rng(3)
    order, keys = RankOrder(2, capacity), np.zeros((2, capacity), np.float32)
    slots = np.tile(np.arange(capacity), (2, 1))
    for turn in range(12):
        slots = rng.permuted(slots, axis=1) if turn % 3 else slots
        kind = [np.full(slots.shape, turn), rng.random(slots.shape), np.sort(slots, 1) * (-1.0) ** turn, slots // 5000]
        new = kind[turn % 4].astype(np.float32)
        rank_order.order_update_all(order.state, slots, new)
        np.put_along_axis(keys, slots, new, axis=1)
        assert_order(order, keys)
        if turn == 7:
            order.load_keys(keys, keys)
            assert_order(order, keys)


@pytest.mark.parametrize("shape", [(2, 5), (3, 4), (2,), (2, 4, 1)])
def test_load_keys_refuses_another_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=rf"keys have shape {re.escape(str(shape))}, this order \(2, 4\)"):
        RankOrder(2, 4).load_keys(np.zeros(shape), np.zeros(shape))


@pytest.mark.parametrize("capacity", [1_000, 10_000, 100_000, 10_000_000])
def test_reserved_memory_is_below_24_bytes_per_experience(capacity: int) -> None:
    order = RankOrder(2, capacity)
    assert sum(array.nbytes for array in order.state) <= 24 * 2 * capacity


@pytest.mark.parametrize("capacity", [1, 2, 5, 65, 1000])
def test_where_ties_go_by_age_the_newest_is_first(capacity: int) -> None:
    """Against sorting by key, then arrival; many ties, members apart, saved and loaded on the way."""
    rng = np.random.Generator(np.random.PCG64(capacity))
    order, members = RankOrder(3, capacity, by_age=True), np.arange(3)
    keys, arrived = np.full((3, capacity), np.nan, np.float32), np.zeros((3, capacity), np.uint32)
    few = np.array([-1, 0, 0, 0, 0, 2, np.inf], np.float32)
    for turn in range(8):
        for number in range(capacity):
            slots, new = rng.integers(-1, capacity, 3), rng.choice(few, 3)
            rank_order.order_arrive_all(order.state, slots, new)
            stored = slots >= 0
            keys[members[stored], slots[stored]] = new[stored]
            arrived[members[stored], slots[stored]] = turn * capacity + number + 1
        slots, new = rng.integers(-1, capacity, (3, 40)), rng.choice(few, (3, 40))
        slots[np.isnan(np.take_along_axis(keys, slots, axis=1))] = -1
        change(keys, slots, new)
        rank_order.order_update_all(order.state, slots, new)
        assert_order(order, keys, arrived)
        np.testing.assert_array_equal(order.column(capacity)[1:, : capacity // 2], keys[1:, : capacity // 2])
        if turn % 3 == 2:
            order = RankOrder(3, capacity, by_age=True)
            order.load_keys(keys, arrived)
            assert_order(order, keys, arrived)


@given(
    capacity=st.sampled_from([1, 2, 5, 16, 40, 100]),
    weighted=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
    runs=st.lists(st.tuples(st.integers(1, 150), st.sampled_from(["any", "few", "turn", "load"])), max_size=5),
)
@settings(deadline=None, max_examples=60)
def test_renewed_ages_equal_naive_ones(capacity: int, weighted: bool, seed: int, runs: list[tuple[int, str]]) -> None:
    """Renewals everywhere, of a few slots again and again, and in turn: many squeezes; saved and loaded between."""
    rng = np.random.Generator(np.random.PCG64(seed))
    log = AgeLog(2, capacity, weighted)
    naive: list[dict[int, float]] = [{}, {}]  # priorities by slot, in order of arrival
    for length, kind in runs:
        if kind == "load":
            leaves, copy = log.state.priority.leaf.copy(), AgeLog(2, capacity, weighted)
            copy.state.priority.leaf[:] = leaves
            copy.load_state_dict({name: array.copy() for name, array in log.state_dict(capacity).items()})
            log = copy
        for i in range(length):
            m = int(rng.integers(2))
            reach = min(2, capacity) if kind == "few" else capacity
            slot = i % capacity if kind == "turn" else int(rng.integers(reach))
            priority_sums.age_renew(log.state, m, slot)
            priority = float(np.float32(rng.exponential()))
            if weighted:
                priority_sums.sum_set(log.state.priority, m, log.state.place_of[m, slot], priority)
            naive[m].pop(slot, None)
            naive[m][slot] = priority
        for m, stored in enumerate(naive):
            places = [priority_sums.age_place(log.state, m, len(stored), r) for r in range(len(stored))]
            assert [int(log.state.slot_at[m, place]) for place in places] == [*stored][::-1]
            if weighted:
                own = [*stored.values()]
                np.testing.assert_allclose(priority_sums.sum_total(log.state.priority, m), sum(own), rtol=1e-12)
                np.testing.assert_array_equal(log.state.priority.leaf[m, places[::-1]], np.array(own, np.float32))


@kernel
def sums_at(sums: Any, ages: Any, m: int, slot: int) -> tuple[float, float]:
    place: Any = np.int64(ages.place_of[m, slot])
    episode: Any = np.int64(sums.episode[m, slot])
    if np.isnan(sums.whole[m, episode]):
        episode_sums.add_up_episode(sums, ages.priority, ages.end[m], m, episode)
    return episode_sums.sum_before(sums, ages.priority.leaf, m, place, episode), sums.whole[m, episode]


@pytest.mark.parametrize(("capacity", "length"), [(40, 3), (300, 10), (300, 100), (300, 1000)])
@pytest.mark.parametrize("in_turn", [True, False])
def test_sums_of_episodes_equal_naive_ones(capacity: int, length: int, in_turn: bool) -> None:
    """Whole numbers as priorities, so that sums are exact. Slots are overwritten in turn or anywhere."""
    rng = np.random.Generator(np.random.PCG64(length))
    log, known = AgeLog(2, capacity, weighted=True), np.zeros(2, np.int64)
    ages, sums, tree = log.state, episode_sums.make_episode_sums(log.state), log.state.priority
    naive: list[dict[int, tuple[int, int]]] = [{}, {}]  # episode and priority by slot, in order of arrival
    for number in range(4 * capacity):
        known += 1 if number == 0 else rng.random(2) < 1 / length
        sums = episode_sums.with_space(sums, int(known.max()))
        anywhere = rng.integers(0, capacity, 2)
        slots = np.full(2, number % capacity) if in_turn or number < capacity else np.where(anywhere % 3, anywhere, -1)
        ends, priority = ages.end.copy(), rng.integers(1, 1000, 2)
        for m in np.flatnonzero(slots >= 0).tolist():
            priority_sums.age_renew(ages, m, slots[m])
            priority_sums.sum_set(tree, m, ages.place_of[m, slots[m]], priority[m])
            naive[m].pop(slots[m], None)
            naive[m][slots[m]] = int(known[m]) - 1, int(priority[m])
        episode_sums.append_steps(sums, ages, slots, ends, known)
        for m, stored in enumerate(naive):
            slot, new = int(rng.choice([*stored])), int(rng.integers(1, 1000))
            stored[slot] = stored[slot][0], new
            tree.leaf[m, ages.place_of[m, slot]] = new
            priority_sums.sum_lowest(tree, m, ages.place_of[m, slot] // 16)
            sums.whole[m, stored[slot][0]] = np.nan
            slot = int(rng.choice([*stored]))
            own = [(other, size) for other, (episode, size) in stored.items() if episode == stored[slot][0]]
            place = [other for other, _ in own].index(slot)
            expected = sum(size for _, size in own[:place]), sum(size for _, size in own)
            assert sums_at(sums, ages, m, slot) == expected
        if number % 20 == 0:
            for m, stored in enumerate(naive):
                wholes = np.bincount(*np.array([*stored.values()]).T)
                assert episode_sums.largest_sum(sums, tree, ages.end[m], m, int(known[m])) == wholes.max()


SIZES = [1, 2, 15, 16, 17, 255, 256, 257, 4095, 4097, 70_000]


@pytest.mark.parametrize("size", SIZES)
def test_everything_after_random_changes(size: int) -> None:
    """What is stored, totals, and what is found; members apart, zeros at both ends."""
    rng = np.random.Generator(np.random.PCG64(size))
    state, leaf = make_sums(3, size), np.zeros((3, size), np.float32)
    for _ in range(6):
        for m in range(3):
            for position in rng.integers(0, size, 40):
                leaf[m, position] = rng.choice([0.0, rng.exponential(), 1e-6, 1e6])
                priority_sums.sum_set(state, m, position, leaf[m, position])
        for m in range(3):
            np.testing.assert_array_equal(state.leaf[m, :size], leaf[m])
            cumulative = np.cumsum(leaf[m].astype(np.longdouble))
            total, present = float(cumulative[-1]), np.flatnonzero(leaf[m])
            assert priority_sums.sum_total(state, m) == pytest.approx(total, rel=1e-14)
            targets = np.r_[0.0, rng.random(40) * total, np.nextafter(total, 0), total, total * 1.001]
            for target in targets if total > 0 else ():
                found = priority_sums.sum_find(state, m, target)
                assert found in present
                low, high = np.searchsorted(cumulative, [target - 1e-12 * total, target + 1e-12 * total], side="right")
                assert min(low, present[-1]) <= found <= min(high, present[-1])


@given(st.integers(1, 600), st.lists(st.tuples(st.integers(0, 599), st.floats(0, 2.0**100, width=32)), max_size=60))
@settings(deadline=None, max_examples=60)
def test_sums_depend_on_the_leaves_alone(size: int, changes: list[tuple[int, float]]) -> None:
    """Bit for bit: a tree that was changed is the tree that is added up from its leaves."""
    changed, rebuilt = make_sums(1, size), make_sums(1, size)
    for position, priority in changes:
        priority_sums.sum_set(changed, 0, position % size, priority)
    rebuilt.leaf[:] = changed.leaf
    priority_sums.sum_rebuild(rebuilt, 0)
    for one, other in zip(changed, rebuilt, strict=True):
        np.testing.assert_array_equal(one, other)


@kernel
def _search(state: SumState, m: int, ranges: np.ndarray, share: np.ndarray, position: np.ndarray) -> tuple[float, int]:
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
        priority_sums.sum_rebuild(state, 1)
        position = np.empty(share.size, np.int64)
        total, nodes = _search(state, 1, np.array(ranges), share, position)
        cumulative = np.cumsum(state.leaf[1, inside], dtype=np.float64)
        assert total == cumulative[-1]
        assert nodes <= 32 * (state.level.size + 1) * len(ranges)
        places = np.searchsorted(cumulative, share * total, side="right")
        places[-1] = np.flatnonzero(state.leaf[1, inside])[-1]  # of a target that rounding has put at the end
        np.testing.assert_array_equal(position, inside[places])


ALPHAS = [0.0, 1e-9, 0.3, 0.5, 0.7, 1.0 - 1e-10, 1.0, 1.0 + 1e-6, 1.2, 2.0, 3.3, 5.0]
MANY = 1_000_000
each_alpha = pytest.mark.parametrize("alpha", slow(ALPHAS, but=(0.3, 1.0, 2.0)))


@functools.cache
def exact(alpha: float) -> np.ndarray:
    """Return Σ_{r ≤ k} r^−α for k = 0 … 10⁶ in extended precision."""
    ranks = np.arange(1, MANY + 1).astype(np.longdouble)
    return np.concatenate([np.zeros(1, np.longdouble), np.cumsum(ranks ** -np.longdouble(alpha))])


@each_alpha
def test_partial_sums_are_exact_however_many_ranks(alpha: float) -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    head = first_sums(alpha)
    counts = np.unique(np.r_[0, 1, 2, 1023:1028, MANY, np.exp(rng.uniform(0, np.log(MANY), 300)).astype(int)])
    sums = np.array([partial_sum(head, alpha, k) for k in counts])
    np.testing.assert_allclose(sums, exact(alpha)[counts].astype(float), rtol=2e-13)


@pytest.mark.parametrize("count", [2**21 + 1, 2**22, 10**9])
def test_partial_sums_of_more_ranks_than_cubes_fit_into_64_bits(count: int) -> None:
    """A sum grows by its last term, and between α = 0 and 1 its terms are integrals of r^−α to second order."""
    head = first_sums(0.5)
    growth = partial_sum(head, 0.5, count) - partial_sum(head, 0.5, count // 2)
    integral = 2 * (np.sqrt(count) - np.sqrt(count // 2)) + (count**-0.5 - (count // 2) ** -0.5) / 2
    assert growth == pytest.approx(integral, rel=1e-11)


@each_alpha
@pytest.mark.parametrize("count", [1, 2, 1024, 1025, 40_000, MANY])
def test_ranks_below_a_mass_are_those_of_the_exact_sums(alpha: float, count: int) -> None:
    """The count of ranks is that of the exact sums, or the next one where the mass is within rounding of a sum."""
    rng = np.random.Generator(np.random.PCG64(1))
    head, sums = first_sums(alpha), exact(alpha)[1 : count + 1]
    masses = np.r_[0.0, rng.uniform(0, 1, 200) * float(sums[-1]), float(sums[-1]) * (1 - 1e-13), float(sums[-1]) * 2]
    for mass in masses:
        found = ranks_below(head, alpha, count, mass)
        low, high = np.searchsorted(sums, [mass * (1 - 4e-13), mass * (1 + 4e-13)], side="right")
        assert low <= found <= high


def segments_of(alpha: float, count: int, segments: int) -> list[int]:
    edges = np.full(segments + 1, -1, np.int64)
    segment_edges(first_sums(alpha), alpha, count, edges)
    return edges.tolist()


@given(st.floats(0, 5), st.integers(0, 300), st.integers(1, 32))
@settings(deadline=None)
def test_segments_are_those_of_naive_sums(alpha: float, more: int, segments: int) -> None:
    edges = segments_of(alpha, segments + more, segments)
    assert edges == [0, *(ranks.stop for ranks in rank_segments(alpha, segments + more, segments))]
