"""Items per second that the exact order draws and re-keys, beside cpprb's sum tree, and its growth with capacity.

An item is one draw and one priority update. The order selects a batch at stratified ranks and updates it
with new random keys, all members in one kernel call; cpprb samples and updates its buffers in turn, one Python
call each, and also gathers the transitions it draws. Both are full. Medians of interleaved repetitions.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")

import statistics
import time
from collections.abc import Callable

import numpy as np
from cpprb import PrioritizedReplayBuffer
from numpy.typing import NDArray

from replaybench.data.kernel import kernel
from replaybench.replay.order import Order, order_select, order_update
from replaybench.replay.order_tree import WIDTH, OrderState

BATCH = 16
REPETITIONS = 7
SIZES = [(32, 1_000), (32, 10_000), (32, 100_000), (32, 1_000_000), (1, 100_000), (1, 1_000_000), (1, 10_000_000)]
LARGEST_PEER = 4_000_000  # experiences in all; beyond, filling the peers takes longer than everything else


@kernel
def serve(state: OrderState, ranks: NDArray[np.int64], keys: NDArray[np.float32], slots: NDArray[np.int64]) -> None:
    """Draw `slots[M, B]` at `ranks[M, B]`, then give them their new `keys[M, B]`."""
    for m in range(ranks.shape[0]):
        for b in range(ranks.shape[1]):
            slots[m, b] = order_select(state, m, ranks[m, b])
        order_update(state, m, slots[m], keys[m])


def our_round(order: Order, rng: np.random.Generator) -> Callable[[int], None]:
    members, capacity = order.state.image.shape
    plans = 2000
    stratum = np.arange(BATCH) + rng.random((plans, members, BATCH))
    ranks = (stratum * (capacity / BATCH)).astype(np.int64)
    keys = rng.random((plans, members, BATCH), np.float32)
    slots = np.empty((members, BATCH), np.int64)

    def run(rounds: int) -> None:
        for plan in rng.integers(plans, size=rounds).tolist():
            serve(order.state, ranks[plan], keys[plan], slots)

    return run


def peer_round(members: int, capacity: int, rng: np.random.Generator) -> Callable[[int], None]:
    fields = {"obs": 2, "act": 1, "rew": 1, "next_obs": 2, "done": 1}
    buffers = []
    for _ in range(members):
        buffer = PrioritizedReplayBuffer(capacity, {name: {"shape": width} for name, width in fields.items()})
        data = {name: np.zeros((capacity, width), np.float32) for name, width in fields.items()}
        buffer.add(**data, priorities=rng.random(capacity) + 1e-3)
        buffers.append(buffer)
    priorities = rng.random((100, BATCH)) + 1e-3

    def run(rounds: int) -> None:
        for plan in rng.integers(100, size=rounds):
            for buffer in buffers:
                drawn = buffer.sample(BATCH, beta=0.4)
                buffer.update_priorities(drawn["indexes"], priorities[plan])

    return run


def million_per_second(run: Callable[[int], None], rounds: int, members: int) -> float:
    start = time.perf_counter()
    run(rounds)
    return rounds * members * BATCH / (time.perf_counter() - start) / 1e6


def bytes_per_experience(order: Order) -> float:
    """Bytes of the nodes ever used and of the keys, per experience."""
    members, capacity = order.state.image.shape
    inner, leaves = order.state.head[:, 5:7].sum(0)
    return float(4 + (16 * inner + 8 * leaves) * WIDTH / (members * capacity))


def compare(members: int, capacity: int) -> None:
    rng = np.random.default_rng(0)
    order = Order(members, capacity)
    order.load_keys(rng.random((members, capacity), np.float32))
    ours, peers = our_round(order, rng), None
    ours(8_000 // members)
    if members * capacity <= LARGEST_PEER:
        peers = peer_round(members, capacity, rng)
        peers(5)
    mine, theirs = [], []
    for _ in range(REPETITIONS):
        mine.append(million_per_second(ours, 6_400 // members, members))
        if peers:
            theirs.append(million_per_second(peers, 1_000 // members, members))
    speed, heights = statistics.median(mine), order.state.head[0, 1] + 1
    line = f"{members:3d} {capacity:11,d} {heights:7d} {bytes_per_experience(order):10.1f} {speed:8.2f}"
    if theirs:
        peer = statistics.median(theirs)
        line += f" {peer:8.2f} {speed / peer:7.1f}"
    print(line, flush=True)


def main() -> None:
    print(f"items drawn and re-keyed, batch {BATCH}, one thread (million per second)")
    print("  M    capacity  levels  bytes/exp    order    cpprb   ratio")
    for members, capacity in SIZES:
        compare(members, capacity)


if __name__ == "__main__":
    main()
