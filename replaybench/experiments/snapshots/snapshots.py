"""The snapshots of a running cell, and their file: `snapshots.h5`, which the report is drawn from.

What is kept does not enter anything that is learned: no random number is drawn for it.
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
from replaybench.experiments.results.statistics import median_seed
from replaybench.experiments.snapshots.contents import Contents
from replaybench.experiments.snapshots.surfaces import Surfaces, axes_facts, has_surfaces
from replaybench.experiments.snapshots.times import snapshot_rounds
from replaybench.replay.buffer import Replay

KIND = "snapshots"


class Snapshots:
    """What buffers held and policies did along a run of so many `rounds`.

    Policies are kept of plants of two states that are both observed, in their order (`observe`, all if empty), and of
    learners that tell values and whose greedy action depends on nothing else.
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
        """Note what there is after `done` rounds, if it is time."""
        with np.errstate(over="ignore", invalid="ignore"):  # of members that have failed
            self.contents.look(done, replay)
            if self.surfaces is not None:
                self.surfaces.look(done, agent)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return what has been noted so far, by name, for a checkpoint; they may be written into."""
        return self.contents.arrays() | ({} if self.surfaces is None else self.surfaces.arrays())

    def write(self, path: Path, facts: Mapping[str, Any], reward: NDArray[np.float64], first: int) -> None:
        """Write them, of the policies only those of the run of median final reward.

        Args:
            facts: of the cell.
            reward: of all training episodes `[M, E]`, whose last ones decide.
            first: number of the first member.
        """
        told: dict[str, Any] = {**facts, "rounds": snapshot_rounds(self.rounds)}
        arrays: dict[str, NDArray[np.generic]] = dict(self.contents.arrays())
        if self.surfaces is not None and self.plant is not None:
            chosen = median_seed(reward[: len(self.surfaces.value)])
            if chosen is not None:
                told |= {"seed": first + chosen, **axes_facts(self.plant)}
                arrays |= {name: array[chosen : chosen + 1] for name, array in self.surfaces.arrays().items()}
        write_record(path, KIND, told, arrays)
