"""Repeat the demo with ten root seeds, and store its verdicts in benchmarks/results/demo_verdicts.json.

Settings of the demo were chosen by benchmarks/results/when-map, whose 50 seeds (root seed 14) have the same plant,
learner, capacity and number of episodes. There, both strategies that keep all experiences end significantly higher than
FIFO[Uniform] in each of the demo's four conditions.

Tested, and written down before the ten runs: in at least nine of ten repetitions, FULL[Uniform] ends significantly
higher than FIFO[Uniform] in at least three of four conditions, and no strategy ends significantly lower in any.

    python benchmarks/evidence/demo_verdicts.py runs/demo-verdicts
"""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any, Final

import replaybench
from replaybench.experiments.comparison import first_comparison, verdict
from replaybench.experiments.study import read_study

ROOT_SEEDS: Final = range(1001, 1011)
LEAST_CONDITIONS: Final = 3
STORED: Final = Path(__file__).parents[1] / "results" / "demo_verdicts.json"


def repeat(root_seed: int, folder: Path) -> dict[str, Any]:
    """Run the demo with another root seed, and return its verdict and each comparison."""
    study = dataclasses.replace(read_study("demo"), root_seed=root_seed, buffers="none")
    data = replaybench.sweep(study, folder / f"{root_seed}").data.isel(plant=0)
    found = first_comparison(data)
    assert found is not None
    rows = [row for row in found[0] if row.effect is not None]
    comparisons = [
        {
            "strategy": row.strategy,
            "noise": row.noise,
            "frequency": row.frequency,
            "difference": round(row.effect.estimate, 4),
            "p": round(row.chance, 5),
            "sign": row.sign,
        }
        for row in rows
        if row.effect is not None
    ]
    higher = sum(row.sign > 0 for row in rows if row.strategy == "FULL[Uniform]")
    holds = higher >= LEAST_CONDITIONS and all(row.sign >= 0 for row in rows)
    return {
        "root_seed": root_seed,
        "verdict": verdict(data, found),
        "holds": holds,
        "seconds": round(float(data["seconds"].sum()), 1),
        "comparisons": comparisons,
    }


def main() -> None:
    """Run all repetitions, and store them after each."""
    folder, repetitions = Path(sys.argv[1]), list[dict[str, Any]]()
    for root_seed in ROOT_SEEDS:
        repetitions.append(repeat(root_seed, folder))
        holding = sum(each["holds"] for each in repetitions)
        STORED.write_text(json.dumps({"holding": holding, "repetitions": repetitions}, indent=1) + "\n")
        print(repetitions[-1]["verdict"], repetitions[-1]["holds"], flush=True)


if __name__ == "__main__":
    main()
