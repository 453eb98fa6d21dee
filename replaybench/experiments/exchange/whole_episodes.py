"""Reassemble the whole episodes of a replay buffer; episodes with missing steps are left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.data.errors import UserError
from replaybench.data.formats.minari_dataset import Episode
from replaybench.envs.interface.checks import seen_states
from replaybench.experiments.offline.recording import Recording
from replaybench.replay.storage.episode_starts import episode_and_step

Slots = NDArray[np.int64]

CARRIED: Final = ("exploration",)
"""Further arrays of a buffer that become an episode's infos."""


def whole_episodes(recording: Recording, index: int, limit: int | None) -> Iterator[tuple[int, Slots]]:
    """Yield the member and the slots `[T]` of each of a recording's whole episodes, in order.

    An episode is whole if its steps are 0 … T − 1, each follows from the one before, and it ended: by termination, at
    the time limit, or with its log.

    Args:
        index: place among the sound recordings.
        limit: steps after which an episode is truncated, None if it has no such limit.
    """
    arrays, member = recording.arrays, recording.members[index]
    slots = recording.orders[index]
    episode, step = _places(recording, member, slots)
    order = np.lexsort((step, episode))
    slots, episode, step = slots[order], episode[order], step[order]
    recorded_elsewhere = recording.facts.source == "import"
    cuts = np.flatnonzero(np.diff(episode)) + 1
    for mine, place in zip(np.split(slots, cuts), np.split(step, cuts), strict=True):
        observation, follows = arrays["observation"][member, mine], arrays["next_observation"][member, mine]
        terminated = arrays["terminated"][member, mine, 0] != 0
        ended = bool(terminated[-1]) or len(mine) == limit or recorded_elsewhere
        in_order = np.array_equal(place, np.arange(len(mine))) and not terminated[:-1].any()
        if ended and in_order and np.array_equal(observation[1:], follows[:-1]):
            yield member, mine


def step_columns(recording: Recording, indices: Sequence[int]) -> dict[str, list[Any]]:
    """Return the steps of recordings as columns by name, in physical units, in the order of collection."""
    plant, arrays = recording.plant, recording.arrays
    seen = seen_states(plant.name, plant.state_names, recording.facts.observe)
    center, scale = (np.array(values, np.float64)[seen] for values in (plant.state_center, plant.state_scale))
    columns: dict[str, list[Any]] = {}
    for index in indices:
        member, slots = recording.members[index], recording.orders[index]
        episode, step = _places(recording, member, slots)
        rows: dict[str, Any] = {
            "recording": np.full(len(slots), member),
            "serial": arrays["serial"][member, slots],
            "episode": episode,
            "step": step,
            "time [s]": step / recording.frequency,
        }
        for prefix, name in (("", "observation"), ("next ", "next_observation")):
            states = center + scale * arrays[name][member, slots]
            rows |= {
                f"{prefix}{plant.state_names[place]} [{plant.state_units[place]}]": states[:, column]
                for column, place in enumerate(seen)
            }
        actions = plant.denormalise_action(arrays["action"][member, slots])
        names = zip(plant.action_names, plant.action_units, strict=True)
        rows |= {f"{name} [{unit}]": actions[:, column] for column, (name, unit) in enumerate(names)}
        rows |= {name: arrays[name][member, slots, 0] for name in ("reward", "terminated")}
        for name, values in rows.items():
            columns.setdefault(name, []).extend(values.tolist())
    return columns


def _places(recording: Recording, member: int, slots: Slots) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return episode and step `[N]` of the experiences in a member's slots."""
    arrays = recording.arrays
    serial, starts = arrays["serial"], arrays.get("episode_starts")
    if all(name in arrays and arrays[name].shape == serial.shape for name in ("episode", "step")):
        return arrays["episode"][member, slots], arrays["step"][member, slots]
    if starts is None or starts.ndim != 2 or len(starts) != len(serial) or not starts.size:
        raise UserError(
            f"{recording.path}, of an older version, does not say to which episode and step its experiences belong; "
            "make it again"
        )
    return episode_and_step(starts[member], serial[member, slots])


def as_episode(recording: Recording, member: int, slots: Slots, limit: int | None) -> Episode:
    """Return the episode in a member's slots `[T]`; truncated unless it terminated."""
    arrays = recording.arrays
    rows = {name: arrays[name][member, slots] for name in ("observation", "action", "reward", "terminated")}
    terminated = rows["terminated"][:, 0] != 0
    truncated = np.zeros(len(slots), np.bool_)
    truncated[-1] = not terminated[-1] or len(slots) == limit
    carried = {name: arrays[name][member, slots] for name in CARRIED if name in arrays}
    return Episode(
        observations=np.concatenate([rows["observation"], arrays["next_observation"][member, slots[-1:]]]),
        actions=np.clip(rows["action"], -1.0, 1.0),  # as the plant did with samples of an unbounded policy
        rewards=rows["reward"][:, 0],
        terminations=terminated,
        truncations=truncated,
        infos={name: np.concatenate([np.zeros_like(row[:1]), row]) for name, row in carried.items()},
    )
