"""What the exact order costs alone, from 10³ to 10⁷ experiences: draws with new keys, victims, and memory.

An item is a slot drawn at a stratified rank that then gets a random new key, a batch per member at a time. A victim is
drawn as `TDE` does, r^−1 from the small end, and gets a random key: what adding one experience to a full buffer costs
the order. Bytes count keys and nodes after every key was first infinite, then
set at random about twice. Medians over calls, one thread.
"""

# First: it fixes the number of threads.
from timings import Timing, main  # isort: skip

import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from replaybench.replay.orders.rank_law import first_sums, segment_edges
from replaybench.replay.orders.rank_order import (
    HEIGHT,
    INNER,
    LEAF,
    NODES,
    OrderState,
    RankOrder,
    order_select,
    order_update_all,
)
from replaybench.runtime.kernel import kernel

SIZES = [(32, 10**3), (32, 10**4), (32, 10**5), (32, 10**6), (1, 10**5), (1, 10**6), (1, 10**7)]
BATCHES = (16, 256)
ITEMS = 200_000  # per timing


@kernel
def serve(state: OrderState, ranks: NDArray[np.int64], keys: NDArray[np.float32], slots: NDArray[np.int64]) -> None:
    """Draw `slots[M, B]` at `ranks[M, B]`, then give them their new `keys[M, B]`."""
    for m in range(ranks.shape[0]):
        for b in range(ranks.shape[1]):
            slots[m, b] = order_select(state, m, ranks[m, b])
    order_update_all(state, slots, keys)


@kernel
def replace(
    state: OrderState,
    edges: NDArray[np.int64],
    chance: NDArray[np.float64],
    keys: NDArray[np.float32],
    slots: NDArray[np.int64],
) -> None:
    """Draw a victim per member into `slots[M, 1]` and give it a new key, for each of `chance` and `keys[N, M, 1]`."""
    segments, size = edges.size - 1, edges[-1]
    for n in range(chance.shape[0]):
        for m in range(slots.shape[0]):
            place = chance[n, m, 0] * segments
            low, high = edges[int(place)], edges[int(place) + 1]
            rank = low + int((place - int(place)) * (high - low))
            slots[m, 0] = order_select(state, m, size - 1 - rank)
        order_update_all(state, slots, keys[n])


def nanoseconds(call: Callable[[], None], items: int, calls: int) -> float:
    """Return the median time of a call per item."""
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) / items * 1e9


def item_cost(order: RankOrder, batch: int, rng: np.random.Generator) -> float:
    members, capacity = order.state.image.shape
    calls = max(ITEMS // (members * batch), 20)
    plans = np.arange(batch) + rng.random((calls, members, batch))
    ranks = iter((plans * (capacity / batch)).astype(np.int64))
    keys = iter(rng.random(plans.shape, np.float32))
    slots = np.empty((members, batch), np.int64)
    return nanoseconds(lambda: serve(order.state, next(ranks), next(keys), slots), members * batch, calls)


def victim_cost(order: RankOrder, rng: np.random.Generator) -> float:
    members, capacity = order.state.image.shape
    edges = np.zeros(max(3, capacity // 500) + 1, np.int64)
    segment_edges(first_sums(1.0), 1.0, capacity, edges)
    calls, turns = 200, ITEMS // 200 // members
    chance, keys = (iter(rng.random((calls, turns, members, 1), kind)) for kind in (np.float64, np.float32))
    slots = np.empty((members, 1), np.int64)
    return nanoseconds(lambda: replace(order.state, edges, next(chance), next(keys), slots), turns * members, calls)


def measure(members: int, capacity: int) -> list[Timing]:
    rng = np.random.default_rng(0)
    order = RankOrder(members, capacity)
    slots = np.arange(capacity)
    order_update_all(order.state, np.tile(slots, (members, 1)), np.full((members, capacity), np.inf, np.float32))
    for _ in range(2 * capacity // 500):
        slots = rng.integers(0, capacity, (members, 500))
        order_update_all(order.state, slots, rng.random(slots.shape, np.float32))
    where = {"members": members, "capacity": capacity}
    inner, leaves = order.state.head[:, NODES : NODES + 2].sum(axis=0)
    used = order.state.image.nbytes + inner * INNER * (8 + 4 + 4) + leaves * LEAF * 8
    facts = {
        "levels": int(order.state.head[0, HEIGHT]) + 1,
        "bytes per experience": used / (members * capacity),
    }
    costs = [
        Timing("draw and renew", item_cost(order, batch, rng), "ns per item", at={**where, "batch": batch}, more=facts)
        for batch in BATCHES
    ]
    return [*costs, Timing("victim", victim_cost(order, rng), "ns per victim", at=where)]


def sizes() -> Iterator[Timing]:
    """Every size, after one that compiles."""
    measure(1, 1000)
    for members, capacity in SIZES:
        yield from measure(members, capacity)


if __name__ == "__main__":
    main("bench_order.py", {"sizes": sizes})
