"""The task, the members, and ReF-ER, with which every learner is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from replaybench.controllers.agent import Task
from replaybench.controllers.refer.rules import ReFERSettings
from replaybench.data.streams import Stream


@dataclass(frozen=True)
class LearnerSetting:
    """The task of a population of learners, and its members.

    Attributes:
        task: sizes, discount and reward scale.
        root, members: seed of the study and member numbers `[M]`.
        frequency: control rate in Hz, for exploration with `per_second`.
        dtype: of networks; float64 for comparisons in tests.
        refer: ReF-ER as the strategy states it (Novati & Koumoutsakos 2019); None without.
        device: `cpu`, or `cuda` (`cuda:1`), where PyTorch computes updates; acting stays on the CPU.
    """

    task: Task
    root: int
    members: Sequence[int]
    frequency: float = 50.0
    dtype: DTypeLike = np.float32
    refer: ReFERSettings | None = None
    device: str = "cpu"

    def stream(self, name: str) -> Stream:
        """Return the random streams of the members under this name, at their beginning."""
        return Stream(self.root, self.members, name)
