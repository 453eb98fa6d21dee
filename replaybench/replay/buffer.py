"""`Replay`: a population's experience buffer under one strategy.

It owns the columns, the retention and the sampling, and only it writes: strategies never touch each other, and
learners never know which strategy runs; they return annotations for the samples they were given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.data.errors import UserError
from replaybench.replay.columns import Columns, gather, write
from replaybench.replay.notation import Strategy
from replaybench.replay.sampling import Context

Floats = NDArray[np.float32]


def step_fields(observation_size: int, action_size: int) -> dict[str, int]:
    """Return the fields, and their widths, of one experience ⟨s, a, r, s′⟩ and whether s′ ended the task."""
    return {
        "observation": observation_size,
        "action": action_size,
        "reward": 1,
        "next_observation": observation_size,
        "terminated": 1,
    }


@dataclass(frozen=True)
class ReplayBatch:
    """One drawn batch: named columns `[M, B, width]`, and what the strategy says about each sample.

    All arrays are overwritten by the next `sample`.
    """

    columns: Mapping[str, Floats]
    idx: NDArray[np.int64]
    serial: NDArray[np.uint32]
    probability: NDArray[np.float64]
    weight: Floats
    rate_factor: Floats

    @property
    def observation(self) -> Floats:
        return self.columns["observation"]

    @property
    def action(self) -> Floats:
        return self.columns["action"]

    @property
    def reward(self) -> Floats:
        return self.columns["reward"]

    @property
    def next_observation(self) -> Floats:
        return self.columns["next_observation"]

    @property
    def terminated(self) -> Floats:
        return self.columns["terminated"]


class Replay:
    """Experience buffers of M members.

    Args:
        strategy: retention and sampling.
        fields: width of each stored field.
        capacity: slots of each member; for FULL the number of experiences that will be offered.
        root, members: seed of the study and member numbers.
        batch_size: B.

    Attributes:
        offers: int64 `[M]`, experiences offered so far; count: int64 `[M]`, experiences stored.
    """

    def __init__(
        self,
        strategy: Strategy,
        fields: Mapping[str, int],
        capacity: int,
        root: int,
        members: Sequence[int],
        batch_size: int,
    ) -> None:
        if capacity < 1:
            raise UserError(f"replay capacity must be at least 1, not {capacity}")
        m, b = len(members), batch_size
        self.strategy, self.capacity = strategy, capacity
        self.columns = Columns(m, capacity, fields)
        self.offers = np.zeros(m, np.int64)
        self.count = np.zeros(m, np.int64)
        self.retention = strategy.retention.start(root, members)
        self.sampling = strategy.sampling.start(root, members, capacity)
        self._gathered = np.zeros((m, b, self.columns.rows.shape[2]), np.float32)
        self._batch = ReplayBatch(
            columns=self.columns.views(self._gathered),
            idx=np.zeros((m, b), np.int64),
            serial=np.zeros((m, b), np.uint32),
            probability=np.ones((m, b)),
            weight=np.ones((m, b), np.float32),
            rate_factor=np.ones(m, np.float32),
        )

    def add(self, experience: Mapping[str, NDArray[Any]], active: NDArray[np.bool_]) -> None:
        """Offer one experience `[M, width]` per field of each active member (`[M]`)."""
        row = np.concatenate([experience[name] for name in self.columns.fields], axis=1, dtype=np.float32)
        self.offers += active
        slots = np.where(self.count < self.capacity, self.count, -2)
        slots[~active] = -1
        self.retention.slots(self.offers, self.capacity, slots)
        write(self.columns.rows, self.columns.serial, slots, self.offers, row)
        self.count += slots == self.count
        self.sampling.stored(slots)

    def sample(self, context: Context) -> ReplayBatch:
        """Draw a batch for every member; each must hold at least one experience."""
        batch = self._batch
        self.sampling.draw(self.count, batch.idx, batch.probability)
        gather(self.columns.rows, self.columns.serial, batch.idx, self._gathered, batch.serial)
        importance = self.strategy.sampling.importance
        if importance is not None:
            importance.weigh(self.count, batch.probability, context.progress, batch.weight)
        return batch

    def annotate(self, batch: ReplayBatch, annotations: dict[str, Floats]) -> None:
        """Hand what the learner returned (`[M, B]` each) to the strategy, for samples that were not replaced."""
        if self.sampling.annotations:
            now = np.take_along_axis(self.columns.serial, batch.idx, axis=1)
            self.sampling.annotate(batch.idx, now == batch.serial, annotations)

    def state_dict(self) -> dict[str, NDArray[np.generic]]:
        """Return the whole buffer by name, cut to the slots in use; columns `[M, n, width]` are views, not copies."""
        stored = int(self.count.max(initial=0))
        return {
            **{name: self.columns.column(name)[:, :stored] for name in self.columns.fields},
            "serial": self.columns.serial[:, :stored],
            "offers": self.offers,
            "count": self.count,
            **self.retention.state_dict(),
            **self.sampling.state_dict(stored),
        }

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from `state_dict`: the next draws are identical."""
        stored = state["serial"].shape[1]
        self.columns.serial[:, :stored] = state["serial"]
        for name in self.columns.fields:
            self.columns.column(name)[:, :stored] = state[name]
        self.offers[:], self.count[:] = state["offers"], state["count"]
        for name, array in self.retention.state_dict().items():
            array[...] = state[name]
        self.sampling.load_state_dict(state)
