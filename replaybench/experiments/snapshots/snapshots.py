"""Snapshots of a running cell, and their file `snapshots.h5`, which the report shows.

They do not influence learning: no random number is drawn for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.learner import Learner
from replaybench.data.records.record import write_record
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import OdePlant
from replaybench.experiments.snapshots.contents import Contents
from replaybench.experiments.snapshots.surfaces import Surfaces, axes_facts, has_surfaces
from replaybench.experiments.snapshots.times import snapshot_rounds
from replaybench.experiments.training.study import FINAL_EPISODES
from replaybench.replay.buffer import Replay

KIND = "snapshots"


class Snapshots:
    """Contents of the buffers, and policies, along a run of so many `rounds`.

    Policies are stored for plants of two states that are both observed, in their order (`observe`, all if empty), and
    for learners that have values and whose greedy action depends on the state only.
    """

    def __init__(
        self, plant: Plant, frequency: float, agent: Learner, members: int, rounds: int, observe: Sequence[str] = ()
    ) -> None:
        self.rounds = rounds
        self.contents = Contents(members, rounds)
        self.plant = plant if isinstance(plant, OdePlant) and has_surfaces(plant) else None
        self.surfaces: Surfaces | None = None
        seen = tuple(observe or plant.state_names) == plant.state_names and hasattr(agent, "value")
        if self.plant is not None and agent.greedy() is agent and seen:
            self.surfaces = Surfaces(self.plant, frequency, members, rounds)

    def look(self, done: int, agent: Learner, replay: Replay) -> None:
        """Take a snapshot after `done` rounds, if one is due."""
        with np.errstate(over="ignore", invalid="ignore"):  # from failed members
            self.contents.look(done, replay)
            if self.surfaces is not None:
                self.surfaces.look(done, agent)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return all arrays by name, for a checkpoint; a resumed run writes into them."""
        return self.contents.arrays() | ({} if self.surfaces is None else self.surfaces.arrays())

    def write(self, path: Path, facts: Mapping[str, Any], reward: NDArray[np.float64], first: int) -> None:
        """Write the snapshots; of the policies only those of the run of median final reward.

        Args:
            facts: of the cell.
            reward: of all training episodes, `[M, E]`.
            first: number of the first member.
        """
        header: dict[str, Any] = {**facts, "rounds": snapshot_rounds(self.rounds)}
        arrays: dict[str, NDArray[np.generic]] = dict(self.contents.arrays())
        if self.surfaces is not None and self.plant is not None:
            chosen = median_seed(reward[: len(self.surfaces.value)])
            if chosen is not None:
                header |= {"seed": first + chosen, **axes_facts(self.plant)}
                arrays |= {name: array[chosen : chosen + 1] for name, array in self.surfaces.arrays().items()}
        write_record(path, KIND, header, arrays)


def median_seed(rewards: NDArray[np.float64]) -> int | None:
    """Return the run of median final reward among `[seeds, E]`, the lower of two; None if all have failed."""
    final = rewards[:, -FINAL_EPISODES:].mean(axis=1)
    ranked = np.argsort(final)[: np.isfinite(final).sum()]  # NaN is sorted to the end
    return int(ranked[(len(ranked) - 1) // 2]) if len(ranked) else None
