"""Tune ACER and each of its variants alone, with as many settings, and store the scores of all.

Wang et al. (2017, appendix E.1) try 30 random settings of the learning rates and δ with every method and every task.
Here all variants try the same settings, 20 on the pendulum and the first 12 of these on magman. The first setting is
the default. The others are from a Latin hypercube. A variant without trust region has no δ. The root seed is not that
of the results.

    python benchmarks/evidence/acer_settings.py runs/acer-settings

The presets of Figures 3 and 4 have the setting of each variant and plant with the highest mean score.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from scipy.stats import qmc

from replaybench.controllers.algorithms.acer import ACERConfig
from replaybench.data.documents import read_json
from replaybench.evidence.advice.probes import run
from replaybench.evidence.preset import read_preset
from replaybench.experiments.study import Study
from replaybench.experiments.sweep import cores
from replaybench.runtime.configuration import build
from replaybench.runtime.provenance import this_code

RESULTS: Final = Path(__file__).parents[1] / "results" / "acer_settings.json"
DEFAULT: Final = {key: float(getattr(ACERConfig(), key)) for key in ("policy_rate", "critic_rate", "delta")}
LOW, HIGH = (1e-4, 5e-4, 1.0), (2e-3, 6e-3, 100.0)
COUNTS: Final = {"PendulumDCSC": 20, "Magman": 12}


def settings() -> list[dict[str, float]]:
    """Return the settings that every variant tries, the default first."""
    drawn = qmc.LatinHypercube(d=3, rng=np.random.default_rng(2017)).random(max(COUNTS.values()) - 1)
    logs = qmc.scale(drawn, np.log(LOW), np.log(HIGH))
    return [DEFAULT, *(dict(zip(DEFAULT, [float(f"{x:.2g}") for x in np.exp(row)], strict=True)) for row in logs)]


def variants() -> dict[str, dict[str, Any]]:
    """Return the settings of the learners of Figures 3 and 4 that are not tuned, by label."""
    tables: dict[str, dict[str, Any]] = {"ACER": {}}
    for figure in ("fig3", "fig4"):
        tables |= read_preset(f"wang2017/{figure}").figure.study["learner"]
    return {label: {k: v for k, v in table.items() if k not in DEFAULT} for label, table in tables.items()}


def name(label: str, index: int) -> str:
    """Return the name of a variant with one of the settings."""
    return f"{label if ':' in label else f'{label}:intact'}-{index}"


def study() -> Study:
    """Return the study of all variants with all settings."""
    tables = {name(label, i): table | row for label, table in variants().items() for i, row in enumerate(settings())}
    grid = [
        {"plants": [plant], "learners": [name(label, i) for label in variants() for i in range(count)]}
        for plant, count in COUNTS.items()
    ]
    table: dict[str, Any] = {"name": "acer-settings", "plants": [], "learner": tables, "grid": grid}
    table |= {"strategies": ["FIFO[Uniform]"], "seeds": 3, "episodes": 600, "root_seed": 30, "buffers": "none"}
    return build(Study, table, "settings of ACER")


def stored() -> Iterator[tuple[str, str, dict[str, float], float, float]]:
    """Yield plant, label, best setting, its mean score and that of the default, where failed runs count as 0."""
    found = read_json(RESULTS)
    for plant, scores in found["scores"].items():
        for label, tried in scores.items():
            means = np.nan_to_num(np.asarray(tried, np.float64)).mean(axis=1)
            yield plant, label, found["settings"][int(means.argmax())], float(means.max()), float(means[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a run folder, whose cells are continued")
    scores = run(study(), parser.parse_args().run, cores(), Console())["mu_final"]
    found: dict[str, dict[str, list[list[float]]]] = {}
    for plant, count in COUNTS.items():
        for label in variants():
            chosen = [scores.sel(plant=plant, learner=name(label, i)).squeeze().values for i in range(count)]
            found.setdefault(plant, {})[label] = np.round(chosen, 4).tolist()
    facts = {"commit": this_code().commit, "settings": settings(), "scores": found}
    RESULTS.write_text(json.dumps(facts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
