"""What learners do that are dead at the end: how much of the state space gets an action at its limit, and on one side.

    replaybench reproduce debruin2018/fig13 --output runs/fig13
    python benchmarks/evidence/dead_learners.py runs/fig13 --output benchmarks/results/dead_learners.json

Final policies of all learners are asked for their greedy actions on a grid over the normalised states. At the limit is
an action of more than 0.99 in size; on one side is the share of those that have the sign that most of them have.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import replaybench
from replaybench.data.run_folder import RunFolder
from replaybench.experiments.cell_lookup import cells_of
from replaybench.experiments.results_file import read_results
from replaybench.experiments.statistics import DEAD_LEVEL
from replaybench.runtime.provenance import this_code

NODES, LIMIT = 31, 0.99


def actions(path: Path, member: int, states: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the greedy actions `[N, A]` of one learner."""
    found: NDArray[np.float64] = np.asarray(replaybench.load_policy(path, member).predict(states)[0], np.float64)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a run folder with its cells")
    parser.add_argument("--plant", default="PendulumDCSC")
    parser.add_argument("--output", type=Path, required=True)
    chosen = parser.parse_args()
    folder, axis = RunFolder(chosen.run), np.linspace(-1, 1, NODES)
    states = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2).astype(np.float32)
    results = read_results(folder.results)
    rows: dict[str, dict[str, list[float]]] = {}
    for cell in cells_of(folder):
        if cell.plant != chosen.plant:
            continue
        place = {axis: getattr(cell, axis) for axis in ("plant", "learner", "strategy", "noise", "frequency")}
        for index, seed in enumerate(cell.seeds):
            found = actions(folder.cell(cell.id) / "policy.safetensors", index, states)
            limited = np.abs(found) > LIMIT
            side = max((found[limited] > 0).mean(), (found[limited] < 0).mean()) if limited.any() else 0.5
            row = rows.setdefault(cell.strategy, {"score": [], "limited": [], "side": []})
            for name, value in zip(
                row, (results["mu_final"].sel(place | {"seed": seed}), limited.mean(), side), strict=True
            ):
                row[name].append(round(float(value), 4))
    told = {
        "command": f"python benchmarks/evidence/dead_learners.py RUN --plant {chosen.plant}",
        "commit": this_code().commit,
        "run": folder.path.name,
        "dead_below": DEAD_LEVEL,
        "strategies": rows,
    }
    chosen.output.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
