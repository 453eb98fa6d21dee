"""Policies of dynamic programming over the state space and in an episode, for comparison with learned ones.

A sweep stores them in its run folder, because the plant may be in somebody else's Python file, or may have changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.baselines.grid_choice import Rule, reference_solution
from replaybench.data.errors import UserError
from replaybench.data.formats.run_folder import RunFolder
from replaybench.data.records.record import open_record, write_record
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import OdePlant
from replaybench.experiments.snapshots.surfaces import PIXELS, follow, has_surfaces, pixel_states

_KIND: Final = "solved"

Floats = NDArray[np.float64]


class Solved(NamedTuple):
    """A greedy policy of dynamic programming, float64.

    Attributes:
        value: (1 − γ) times the value, `[X, Y]`.
        action: physical, `[X, Y, A]`.
        path: physical states of an episode without noise `[T + 1, 2]`.
        reward: its mean per step.
    """

    value: Floats
    action: Floats
    path: Floats
    reward: float


def solved_surfaces(plant: Plant, frequency: float, rule: Rule | None, pixels: int = PIXELS) -> Solved | None:
    """Solve a plant, or read the cached solution; return None for plants without surfaces."""
    if not isinstance(plant, OdePlant) or not has_surfaces(plant):
        return None
    solution = reference_solution(plant, frequency, rule).solution
    states = pixel_states(plant, pixels).reshape(-1, 2)
    paths = follow(plant, frequency, 1, solution.greedy)
    action = plant.denormalise_action(solution.greedy(states)).reshape(pixels, pixels, -1)
    value = (1 - solution.discount) * solution.value(states).reshape(pixels, pixels)
    return Solved(value, action, paths.states[0], float(paths.reward[0]))


def write_solved(folder: RunFolder, fingerprint: str, frequency: float, solved: Solved) -> None:
    """Store a solution in a run folder, by plant and rate."""
    arrays: dict[str, Any] = {"value": solved.value, "action": solved.action, "path": solved.path}
    write_record(_place(folder, fingerprint, frequency), _KIND, {"reward": solved.reward}, arrays)


def read_solved(folder: RunFolder, fingerprint: str, frequency: float) -> Solved | None:
    """Return the solution that a run folder holds for a plant and rate, or None.

    Raises:
        UserError: the file is damaged, or holds something else.
    """
    path = _place(folder, fingerprint, frequency)
    if not fingerprint.isalnum() or not path.is_file():
        return None
    with open_record(path, _KIND) as record:
        shapes, reward = record.header.shapes, record.header.facts.get("reward")
        path_shape, action_shape = shapes.get("path", ()), shapes.get("action", ())
        due = {"value": (PIXELS, PIXELS), "action": (PIXELS, PIXELS, *action_shape[2:3]), "path": (*path_shape[:1], 2)}
        if not isinstance(reward, float) or shapes != due or not all(map(all, due.values())):
            raise UserError(f"{path} does not hold a policy over two states; the same sweep again writes it")
        value, action, path_states = (record.read(name).astype(np.float64) for name in ("value", "action", "path"))
    return Solved(value, action, path_states, reward)


def _place(folder: RunFolder, fingerprint: str, frequency: float) -> Path:
    return folder.path / "solved" / f"{fingerprint[:16]}-{frequency:g}Hz.h5"
