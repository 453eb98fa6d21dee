"""Sums of rewards over several steps, from which n-step targets are computed."""

from collections.abc import Mapping

import numpy as np

from replaybench.data.batch import Links, Slots
from replaybench.replay.storage.columns import Columns
from replaybench.runtime.arrays import Floats32, Integers
from replaybench.runtime.kernel import kernel


def n_step_returns(
    columns: Columns, following: Links, idx: Slots, n: int, discount: float
) -> tuple[Mapping[str, Floats32], Integers]:
    """Return the rewards of up to n steps from each sampled step on, and the outcome of the last of these steps.

    A sum is shorter if the episode ends, or if the next step is not stored. For k steps, the target of a value is then
    Σ_{i<k} γ^i r_{t+i} + γ^k Q(s_{t+k}), without the last term after termination (Sutton & Barto, 2018, section 7.1).

    Args:
        following: Slot of the next step of the same episode, or −1; int32, shape `[M, N]` for N slots.
        idx: Slots of the B sampled steps of each of M members; int64, shape `[M, B]`.
        discount: Discount γ of a control step.

    Returns:
        The fields `reward`, `next_observation` and `terminated`, float32, shape `[M, B, width]`, and the number of
        steps k, int64, shape `[M, B]`.
    """
    names = "reward", "next_observation", "terminated"
    found = {name: np.empty((*idx.shape, columns.fields[name]), np.float32) for name in names}
    steps = np.empty(idx.shape, np.int64)
    reward, successor, terminated = (columns.spans[name].start for name in names)
    _sum_rewards(
        columns.rows, following, idx, n, discount, (reward, successor, terminated),
        found["reward"], found["next_observation"], found["terminated"], steps,
    )  # fmt: skip
    return found, steps


@kernel
def _sum_rewards(
    rows: Floats32, following: Links, idx: Slots, n: int, discount: float, firsts: tuple[int, int, int],
    reward: Floats32, next_observation: Floats32, terminated: Floats32, steps: Integers,
) -> None:  # fmt: skip
    for m in range(idx.shape[0]):
        for b in range(idx.shape[1]):
            slot, factor, total, k = idx[m, b], 1.0, 0.0, 0
            while True:
                total += factor * np.float64(rows[m, slot, firsts[0]])
                k += 1
                if k == n or following[m, slot] < 0:
                    break
                slot, factor = np.int64(following[m, slot]), factor * discount
            reward[m, b, 0], terminated[m, b, 0], steps[m, b] = total, rows[m, slot, firsts[2]], k
            for s in range(next_observation.shape[2]):
                next_observation[m, b, s] = rows[m, slot, firsts[1] + s]
