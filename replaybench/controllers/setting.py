"""What every learner is built with beside its own configuration: the plant it is for, its members, and ReF-ER."""

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
    """Where a population of learners is set.

    Attributes:
        task: sizes, discount and reward scale.
        root, members: seed of the study and member numbers `[M]`.
        frequency: control rate in Hz, for exploration with `per_second`.
        dtype: of networks: float32; float64 for comparisons in tests.
        refer: ReF-ER as the strategy states it (Novati & Koumoutsakos 2019); None without.
        device: `cpu`, or `cuda` (`cuda:1`), where updates are computed in PyTorch; acting stays here.
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
