"""Is advice any good? On plants that its rules were not made on, judged by twelve strategies on seeds it never saw.

`python benchmarks/evidence/advice.py` runs advice and `advice.toml` under runs/advice (it continues where it
stopped), and stores `results/advice.json`, from which the table on the page of results is made, whatever it says. It
takes about 40 minutes of a core.
"""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr
from rich.console import Console

from replaybench.api import sweep
from replaybench.envs.registry import make_plant
from replaybench.evidence.advice.advise import advise
from replaybench.evidence.advice.probes import Question
from replaybench.evidence.advice.proposal import Advice, scores_of
from replaybench.experiments.effects import paired
from replaybench.experiments.study import Grid, Study, read_study
from replaybench.experiments.sweep import cores
from replaybench.reports.figures.style import plant_name
from replaybench.runtime.atomic import write_text
from replaybench.runtime.provenance import this_code

ROOT: Final = Path(__file__).resolve().parents[2]
STORED: Final = ROOT / "benchmarks" / "results" / "advice.json"
RUNS: Final = Path("runs") / "advice"
NEAR: Final = 0.03
"""How far from the best of twelve advice may be; in five plants of six it should not be further."""
_PROBES: Final = 4


def asked(study: Study, plant: str, noise: float) -> Advice:
    """Ask for advice on a plant, on other seeds than the judges'."""
    question = Question(
        plant=plant,
        learner=study.learners[0],
        frequency=make_plant(plant).frequency,
        noise=noise,
        seeds=study.seeds,
        root_seed=study.root_seed + 1,
        episodes=study.episodes,
        probes=_PROBES,
        minutes=600.0,
    )
    return advise(question, RUNS / plant_name(plant), cores(), Console())


def judged(study: Study, judges: xr.Dataset, advice: Advice) -> dict[str, Any]:
    """Run what was advised on the judges' seeds, and set it beside the best of the twelve."""
    assert advice.chosen is not None, advice.headline
    grid = Grid(plants=(advice.plant,), noise=(advice.noise,), strategies=(advice.chosen.name,))
    chosen = dataclasses.replace(study, name="chosen", plants=(), strategies=(), grid=(grid,))
    own = sweep(chosen, RUNS / f"{plant_name(advice.plant)}-chosen").data
    place = {axis: getattr(advice, axis) for axis in ("plant", "learner", "noise", "frequency")}
    both = xr.concat(
        [
            judges.sel(place).drop_vars(set(judges.variables) - _NEEDED, errors="ignore"),
            own.sel(place).drop_vars(set(own.variables) - _NEEDED, errors="ignore").assign_coords(strategy=["advised"]),
        ],
        "strategy",
        data_vars="minimal",
        coords="minimal",
        compat="override",
    )
    scores, _, unit = scores_of(both)
    advised = np.nan_to_num(scores.pop("advised"))
    means = {name: float(np.nan_to_num(values).mean()) for name, values in scores.items()}
    best = max(means, key=lambda name: means[name])
    behind = paired([np.nan_to_num(scores[best])], [advised])
    return {
        "plant": plant_name(advice.plant),
        "frequency": advice.frequency,
        "noise": advice.noise,
        "advised": advice.chosen.name,
        "score": float(advised.mean()),
        "best": best,
        "best_score": means[best],
        "behind": behind.estimate,
        "interval": list(behind.interval()),
        "near": behind.estimate <= NEAR,
        "strategies": means,
        "capacity": None if advice.capacity is None else advice.capacity.steps,
        "unit": unit,
    }


_NEEDED: Final = {
    "reward", "mu_final", "reference_dp", "reference_random", "strategy", "seed", "episode", "noise", "frequency",
    "learner", "plant", "update_every", "episode_metric",
}  # fmt: skip


def main() -> None:
    os.chdir(ROOT)
    study = read_study(ROOT / "benchmarks/studies/replay/advice.toml")
    judges = sweep(study, RUNS / "judges").data
    places = [(plant, noise) for grid in study.grids() for plant in grid.plants for noise in grid.noise]
    rows = [judged(study, judges, asked(study, plant, noise)) for plant, noise in places]
    told = {
        "command": "python benchmarks/evidence/advice.py",
        "commit": this_code().commit,
        "seeds": study.seeds,
        "episodes": study.episodes,
        "near": NEAR,
        "rows": rows,
    }
    write_text(STORED, json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    print(STORED)


if __name__ == "__main__":
    main()
