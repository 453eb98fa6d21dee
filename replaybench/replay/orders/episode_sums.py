"""Sums of priorities over episodes, and over the steps of an episode up to one of them.

The steps of an episode are neighbours in the age log of a buffer. For each node of sixteen entries, the sum over the
earlier entries of the episode is stored. A changed priority only marks its episode. The sums of a marked episode are
computed before the next use, from the priorities alone. Rounding errors therefore do not accumulate.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from replaybench.replay.orders.priority_sums import FAN, AgeState, SumState
from replaybench.runtime.arrays import Floats, Floats32, Integers, Integers32
from replaybench.runtime.kernel import kernel

_NONE: Final = np.int32(2**31 - 1)


class EpisodeSums(NamedTuple):
    """The sums of M buffers with C slots, whose age logs have P entries.

    Attributes:
        episode: Index of the episode of each slot's experience; int32, shape `[M, C]`.
        first: First entry of each episode or of later ones, or the largest int32; int32, shape `[M, E + 1]` for at most
            E episodes.
        whole: Sum over each episode, or NaN if its priorities have changed; float64, shape `[M, E + 1]`.
        before: For each node of sixteen entries, the sum over earlier entries of the episode that the node continues;
            float64, shape `[M, P / 16]`. It is undefined while `whole` is NaN.
    """

    episode: Integers32
    first: Integers32
    whole: Floats
    before: Floats


def make_episode_sums(ages: AgeState) -> EpisodeSums:
    """Return the sums of empty buffers, with space for no episode."""
    members, places = ages.slot_at.shape
    first, whole = np.full((members, 1), _NONE, np.int32), np.full((members, 1), np.nan)
    return EpisodeSums(np.zeros(ages.place_of.shape, np.int32), first, whole, np.zeros((members, places // FAN)))


def with_space(sums: EpisodeSums, episodes: int) -> EpisodeSums:
    """Return the sums with space for at least this number of episodes."""
    more = (0, 0), (0, episodes + 1 - sums.first.shape[1])
    if more[1][1] <= 0:
        return sums
    first, whole = np.pad(sums.first, more, constant_values=_NONE), np.pad(sums.whole, more, constant_values=np.nan)
    return sums._replace(first=first, whole=whole)


@kernel
def _begin(sums: EpisodeSums, m: int, episode: int, place: int) -> None:
    while episode >= 0 and sums.first[m, episode] > place:
        sums.first[m, episode] = place
        episode -= 1


@kernel
def find_episodes(sums: EpisodeSums, ages: AgeState, m: int) -> None:
    """Find the first entry of each episode from the m-th age log and `episode`, and mark all episodes as changed."""
    sums.first[m], sums.whole[m] = _NONE, np.nan
    for place in range(ages.end[m]):
        slot = ages.slot_at[m, place]
        if ages.place_of[m, slot] == place:
            _begin(sums, m, sums.episode[m, slot], place)


@kernel
def append_steps(sums: EpisodeSums, ages: AgeState, slots: Integers, ends: Integers, known: Integers) -> None:
    """Add the new experience in slot `slots[m]` (−1: none) to the last of `known[m]` episodes.

    `ends[m]` is the number of entries of the age log before the experience was added.
    """
    for m in range(slots.size):
        if slots[m] >= 0:
            sums.whole[m, sums.episode[m, slots[m]]] = np.nan
            sums.episode[m, slots[m]] = known[m] - 1
            sums.whole[m, known[m] - 1] = np.nan
            if ages.end[m] == ends[m] + 1:
                _begin(sums, m, known[m] - 1, ends[m])
            else:  # unused entries were removed
                find_episodes(sums, ages, m)


@kernel
def add_up_episode(sums: EpisodeSums, priority: SumState, end: int, m: int, episode: int) -> None:
    """Compute the sums of an episode after its priorities have changed.

    `end` is the number of entries of the m-th age log. Of the sums in `priority`, only the lowest level is read.
    """
    first: Any = np.int64(sums.first[m, episode])
    stop: Any = min(np.int64(sums.first[m, episode + 1]), end)
    while first < stop and priority.leaf[m, first] == 0:  # sums must not depend on the number of unused entries
        first += 1
    while first < stop and priority.leaf[m, stop - 1] == 0:
        stop -= 1
    sums.first[m, episode] = first
    total, head = 0.0, min(-(-first // FAN) * FAN, stop)
    for place in range(first, head):
        total += np.float64(priority.leaf[m, place])
    for node in range(head // FAN, stop // FAN):
        sums.before[m, node] = total
        total += priority.sums[m, node]
    tail = max(head, stop // FAN * FAN)
    if tail < stop:
        sums.before[m, tail // FAN] = total
    for place in range(tail, stop):
        total += np.float64(priority.leaf[m, place])
    sums.whole[m, episode] = total


@kernel
def sum_before(sums: EpisodeSums, leaf: Floats32, m: int, place: int, episode: int) -> float:
    """Return the sum over the entries of an episode before `place`, after `add_up_episode`."""
    node, first = place // FAN * FAN, int(sums.first[m, episode])
    total = sums.before[m, node // FAN] if node > first else 0.0
    for i in range(max(node, first), place):
        total += np.float64(leaf[m, i])
    return total


@kernel
def largest_sum(sums: EpisodeSums, priority: SumState, end: int, m: int, known: int) -> float:
    """Return the largest sum over any of the m-th buffer's `known` episodes."""
    largest, episode = 0.0, known - 1
    while episode >= 0 and sums.first[m, episode + 1] > 0:
        if np.isnan(sums.whole[m, episode]):
            add_up_episode(sums, priority, end, m, episode)
        largest = max(largest, sums.whole[m, episode])
        episode -= 1
    return largest
