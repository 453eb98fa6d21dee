"""Snapshots of cells that were never run, with results that were made up."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from replaybench.data.record import write_record
from replaybench.data.run_folder import RunFolder
from replaybench.experiments.dataset import AXES
from replaybench.experiments.snapshots import PIXELS, Solved, write_solved

ROUNDS = [1, 30, 60]


def add_snapshots(folder: Path, data: xr.Dataset) -> None:
    """Name the cells of `data`, and write snapshots for those without noise; policies for the first plant's.

    At step k the value of every state is −k, and the action is that of the number of the strategy, of 0 … 3. Dynamic
    programming is there at 100 Hz only.
    """
    shape = tuple(data.sizes[axis] for axis in AXES)
    names = np.full((*shape, 1), "", object)
    state = {"unit": "rad", "low": -3.0, "high": 3.0, "periodic": False, "initial": 0.0, "reference": 1.0}
    for place in itertools.product(*map(range, shape)):
        names[place] = "c" + "".join(map(str, place))
        if place[3]:
            continue
        origin = np.zeros((1, len(ROUNDS), 10), np.int64)
        origin[0, :, 0], origin[0, 1:, 4], origin[0, 2, 9] = 10, 10, 20
        facts: dict[str, Any] = {"cell": {"fingerprint": "ab" * 32}, "rounds": ROUNDS}
        arrays = {
            "origin": origin,
            "collected": np.arange(10, 110, 10)[None],
            "exploration": np.array([[0.9, 0.5, 0.1]]),
        }
        if place[0] == 0:
            facts |= {
                "seed": 4,
                "states": [{"name": "angle", **state}, {"name": "speed", **state}],
                "actions": [{"name": "voltage", "unit": "V", "low": 0.0, "high": 3.0}],
            }
            value = np.zeros((1, len(ROUNDS), PIXELS, PIXELS), np.float32)
            value -= np.arange(len(ROUNDS), dtype=np.float32)[:, None, None]
            path = np.linspace(0, 1, 50, dtype=np.float32)[None, None, :, None]
            arrays |= {
                "value": value,
                "action": np.full((*value.shape, 1), place[2], np.float32),
                "path": np.tile(path, (1, len(ROUNDS), 1, 2)),
                "greedy": np.array([[-3.0, -2.0, -1.0]]),
            }
        write_record(RunFolder(folder).cell(names[place][0]) / "snapshots.h5", "snapshots", facts, arrays)
    data.coords["cell"] = (*AXES, "block"), names
    square = np.zeros((PIXELS, PIXELS))
    write_solved(RunFolder(folder), "ab" * 32, 100.0, Solved(square, square[..., None], np.zeros((50, 2)), -1.5))
