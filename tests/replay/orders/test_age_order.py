"""The order of age against a list of slots in order of arrival."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from replaybench.replay.orders.priority_sums import AgeLog, age_place, age_renew, sum_set, sum_total


class NaiveAges:
    """Slots in order of arrival, oldest first, each with its priority."""

    def __init__(self) -> None:
        self.slots: list[int] = []
        self.priority: dict[int, float] = {}

    def renew(self, slot: int, priority: float) -> None:
        self.slots = [other for other in self.slots if other != slot] + [slot]
        self.priority[slot] = priority


def assert_ages(log: AgeLog, m: int, naive: NaiveAges, weighted: bool) -> None:
    state, count = log.state, len(naive.slots)
    places = [age_place(state, m, count, r) for r in range(count)]
    assert [int(state.slot_at[m, place]) for place in places] == naive.slots[::-1]
    if weighted:
        own = [naive.priority[slot] for slot in naive.slots]
        np.testing.assert_allclose(sum_total(state.priority, m), sum(own), rtol=1e-12)
        np.testing.assert_array_equal(state.priority.leaf[m, places[::-1]], np.array(own, np.float32))


@given(
    capacity=st.sampled_from([1, 2, 5, 16, 40, 100]),
    weighted=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
    runs=st.lists(st.tuples(st.integers(1, 150), st.sampled_from(["any", "few", "turn", "load"])), max_size=5),
)
@settings(deadline=None, max_examples=60)
def test_ages_are_the_naive_ones_after_renewals(
    capacity: int, weighted: bool, seed: int, runs: list[tuple[int, str]]
) -> None:
    """Renewals everywhere, of a few slots again and again, and in turn: many squeezes; saved and loaded between."""
    rng = np.random.Generator(np.random.PCG64(seed))
    log, naive = AgeLog(2, capacity, weighted), [NaiveAges(), NaiveAges()]
    for length, kind in runs:
        if kind == "load":
            leaves, copy = log.state.priority.leaf.copy(), AgeLog(2, capacity, weighted)
            copy.state.priority.leaf[:] = leaves
            copy.load_state_dict({name: array.copy() for name, array in log.state_dict(capacity).items()})
            log = copy
        for i in range(length):
            m = int(rng.integers(2))
            slot = {"few": int(rng.integers(min(2, capacity))), "turn": i % capacity}.get(
                kind, int(rng.integers(capacity))
            )
            age_renew(log.state, m, slot)
            priority = float(np.float32(rng.exponential()))
            if weighted:
                sum_set(log.state.priority, m, log.state.place_of[m, slot], priority)
            naive[m].renew(slot, priority)
        for m in range(2):
            assert_ages(log, m, naive[m], weighted)
