"""The episodes that the members of a population are in, each for itself: one may begin while others go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel
from replaybench.envs.population import PopulationEnv

Bools = NDArray[np.bool_]
Floats = NDArray[np.float32]


class LiveEpisodes:
    """What lasts from step to step, what was seen since the last phase of updates, and a tally of ended episodes.

    Args:
        env: the population.
        attentive: whether to remember what was seen, to which updates may attend.

    Attributes:
        env: as given.
        observation: what each member sees now, float32 `[M, S]`.
        sensor_noise: the noise in it, float32 `[M, S]`.
        active: who is in an episode, bool `[M]`; at first nobody.
        total: float64 `[M]`, the rewards of the present episode so far.
        length: int64 `[M]`, its steps so far.
    """

    def __init__(self, env: PopulationEnv, attentive: bool = True) -> None:
        m, seen = env.num_envs, env.single_observation_space.shape or (0,)
        self.env, self._attentive = env, attentive
        self.observation, self.sensor_noise = (np.zeros((m, *seen), np.float32) for _ in range(2))
        self.active, self._over = np.zeros(m, np.bool_), np.zeros(m, np.bool_)
        self.total, self.length, self._collected = np.zeros(m), np.zeros(m, np.int64), np.zeros(m, np.int64)
        self._seen: list[Floats] = []
        self._told, self._lasted, self._ended = np.zeros(m), np.zeros(m), np.zeros(m, np.int64)

    @property
    def reward(self) -> NDArray[np.float64]:
        """Mean over each member's ended episodes of what the plant tells of them `[M]`; NaN where none has ended."""
        return self._mean(self._told)

    @property
    def steps(self) -> NDArray[np.float64]:
        """Mean length `[M]` of each member's ended episodes; NaN where none has ended."""
        return self._mean(self._lasted)

    def _mean(self, total: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(self._ended > 0, total, np.nan) / np.maximum(self._ended, 1)

    def begin(self, chosen: Bools) -> None:
        """Begin an episode of the chosen members `[M]`."""
        self.observation, info = self.env.reset(options={"reset_mask": chosen})
        self.sensor_noise = info["sensor_noise"]
        self.active = self.active | chosen
        self.total[chosen], self.length[chosen] = 0, 0

    def note(self, reward: NDArray[np.float64], successor: Floats, sensor_noise: Floats, ended: Bools) -> None:
        """Note what a step of the active members led to, `[M]` each, successor `[M, S]`."""
        if self._attentive:
            self._seen.append(self.observation)
        _count_step(self.active, ended, reward, self._collected, self.total, self.length, self._over)
        if self._over.any():
            told = self.env.plant.episode_score(self.total, np.maximum(self.length, 1))
            self._told += np.where(self._over, told, 0.0)
            self._lasted += np.where(self._over, self.length, 0)
            self._ended += self._over
            self.active = self.active & ~self._over
            self._over[:] = False
        self.observation, self.sensor_noise = successor, sensor_noise

    def attended(self, updates: int) -> Iterator[Floats]:
        """Yield what each of U updates attends to, `[M, S]`: number ⌊jT/U⌋ of the T observations of each member.

        They are those since `forget_seen`, and T is a member's own number of them.
        """
        seen, everyone = np.stack(self._seen), np.arange(len(self._collected))
        for update in range(updates):
            yield seen[update * self._collected // updates, everyone]

    def forget_seen(self) -> None:
        """Begin another phase of acting: what was seen before has been attended to."""
        self._seen.clear()
        self._collected[:] = 0

    def forget_tally(self) -> None:
        """Count ended episodes from here on."""
        for array in (self._told, self._lasted, self._ended):
            array[:] = 0

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return all but the tally, arrays `[M, …]`; `env` has a state of its own."""
        none_yet = np.zeros((len(self.total), 0, self.observation.shape[1]), np.float32)
        return {
            "observation": self.observation,
            "sensor_noise": self.sensor_noise,
            "active": self.active.view(np.uint8),
            "total": self.total,
            "length": self.length,
            "collected": self._collected,
            "seen": np.stack(self._seen, axis=1) if self._seen else none_yet,
        }

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state_dict`, bit for bit."""
        self.observation, self.sensor_noise = (np.array(state[n], np.float32) for n in ("observation", "sensor_noise"))
        self.active = np.asarray(state["active"]) != 0
        self.total[:], self.length[:], self._collected[:] = state["total"], state["length"], state["collected"]
        self._seen = [np.array(row, np.float32) for row in np.asarray(state["seen"]).transpose(1, 0, 2)]


@kernel
def _count_step(
    active: Bools,
    ended: Bools,
    reward: NDArray[np.float64],
    collected: NDArray[np.int64],
    total: NDArray[np.float64],
    length: NDArray[np.int64],
    over: Bools,
) -> None:
    """Count a step of the active members `[M]`; fill in whose episode is `over`."""
    for m in range(active.size):
        over[m] = active[m] and ended[m]
        if active[m]:
            collected[m] += 1
            length[m] += 1
            total[m] += reward[m]
