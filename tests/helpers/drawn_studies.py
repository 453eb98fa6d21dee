"""Studies with made-up rewards for tests of figures, and helpers that read figures."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from replaybench.baselines.references import Reference
from replaybench.data.record import write_record
from replaybench.data.run_folder import RunFolder
from replaybench.envs.measures import MEASURES
from replaybench.experiments.dataset import assemble
from replaybench.experiments.study import Cell, Study
from replaybench.runtime.provenance import Stopwatch, session_facts

ORIGIN = session_facts(Stopwatch().sessions())
RANDOM, DP, ZERO, LQR = -160.0, -20.0, -157.0, np.nan
USABLE = Reference("PendulumDCSC", 50.0, 0.0, RANDOM, 3.0, ZERO, LQR, DP, DP, DP, 0.95, (3, 3), 3, 9, "paper")
TOO_CLOSE = dataclasses.replace(USABLE, random=-30.0, dp=-28.0, zero=-31.0, lqr=-29.0)
UNKNOWN = dataclasses.replace(USABLE, random=np.nan, dp=np.nan, zero=np.nan, lqr=np.nan, nodes=(), rule="")
Rewards = Callable[[Cell], np.ndarray]


def without_measures(cell: Cell) -> dict[str, np.ndarray]:
    """Return the arrays of measures of runs in which nothing was measured."""
    return {name: np.full((cell.members, len(MEASURES)), np.nan) for name in ("measures", "measures_greedy")}


def stored(
    path: Path, study: Study, rewards: Rewards, reference: Reference, further: Mapping[str, Rewards] | None = None
) -> xr.Dataset:
    """Write the scores of all cells into folders of `path`, by id, and assemble them."""
    cells = study.cells()
    for cell in cells:
        reward = rewards(cell)
        arrays = {"reward": reward, "reward_greedy": reward[:, cell.greedy_every - 1 :: cell.greedy_every]}
        arrays |= {"episode_steps": np.full_like(reward, 200), **without_measures(cell)}
        arrays |= {name: make(cell) for name, make in (further or {}).items()}
        write_record(path / cell.id / "scores.h5", "scores", ORIGIN, arrays)
    references = {(cell.plant, cell.frequency, cell.noise): reference for cell in cells}
    return assemble(cells, references, {cell.id: path / cell.id for cell in cells})


def results(
    path: Path,
    missing: tuple[int, ...] = (),
    failing: tuple[int, ...] = (),
    lost: tuple[int, ...] = (),
    collapsed: tuple[int, ...] = (),
    reference: Reference = USABLE,
    **changes: object,
) -> tuple[xr.Dataset, RunFolder, list[Cell]]:
    """Return data, folder and cells of a study; by number, cells are `missing` or have runs of another kind."""
    settings = {"name": "t", "plants": ("PendulumDCSC",), "strategies": ("FIFO[Uniform]", "FULL[PER]"), "seeds": 4,
                "episodes": 30, "greedy_every": 5} | changes  # fmt: skip
    cells, folder = Study(**settings).cells(), RunFolder(path)  # type: ignore[arg-type]
    rng = np.random.Generator(np.random.PCG64(7))
    for number, cell in enumerate(cells):
        reward = np.linspace(RANDOM, -30.0, cell.episodes) + rng.normal(0.0, 5.0, (cell.members, cell.episodes))
        greedy = reward[:, cell.greedy_every - 1 :: cell.greedy_every] + 3.0
        if number in failing:
            reward[0, 20:] = greedy[0, 4:] = np.nan
            reward[1:2] = greedy[1:2] = np.nan  # failed before any episode ended
        if number in lost + collapsed:
            reward[:] = greedy[:] = np.nan if number in lost else RANDOM
        if number not in missing:
            arrays = {"reward": reward, "reward_greedy": greedy, "episode_steps": np.full_like(reward, 200)}
            arrays |= without_measures(cell)
            write_record(folder.cell(cell.id) / "scores.h5", "scores", ORIGIN, arrays)
    references = {(cell.plant, cell.frequency, cell.noise): reference for cell in cells}
    return assemble(cells, references, {cell.id: folder.cell(cell.id) for cell in cells}), folder, cells


def plant_results(path: Path, **changes: Any) -> xr.Dataset:
    """Return the data of `results` for its plant."""
    return results(path, **changes)[0].sel(plant="PendulumDCSC")


def line(axes: Any, label: str) -> np.ndarray:
    """Return the points of the one line of that label, `[2, P]`."""
    (found,) = [line for line in axes.lines if line.get_label() == label]
    return np.array(found.get_data())


def caption(figure: Any) -> str:
    """Return the caption of a figure."""
    return str(figure.texts[1].get_text()).replace("\n", " ").replace("\u00a0", " ")
