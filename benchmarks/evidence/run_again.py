"""Run cells of stored results again after a correction, and put them in place of the old ones.

    python -m benchmarks.evidence.run_again --study STUDY --learner DDPG --strategy "FIFO[Uniform+ReFER]" --work FOLDER

runs those cells of `benchmarks/results/STUDY`, variants of the learner included, with the stored settings and seeds.
The sweep in FOLDER/STUDY can be interrupted and continued. When it is complete, its cells replace the old ones in
`results.nc` and `provenance.json`, where each cell has its own version, commit and processor.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from benchmarks.evidence.redraw import RESULTS, redraw
from replaybench.api import sweep
from replaybench.data.run_folder import RunFolder
from replaybench.experiments.dataset import AXES, add_scores
from replaybench.experiments.results_file import read_results, write_results
from replaybench.experiments.study import Grid, Study, read_study
from replaybench.experiments.study_record import provenance_text
from replaybench.runtime.atomic import write_text


def only(study: Study, learner: str, strategies: tuple[str, ...]) -> Study:
    """Return the study of those cells alone."""
    meant = [c for c in study.cells() if c.learner.split(":")[0] == learner and c.strategy in strategies]
    points = dict.fromkeys(tuple(getattr(cell, axis) for axis in AXES) for cell in meant)
    grid = [Grid(plants=(p,), learners=(x,), strategies=(s,), noise=(n,), frequency=(f,)) for p, x, s, n, f in points]
    used = {"plant": {point[0] for point in points}, "learner": {point[1] for point in points}}
    tables: dict[str, Any] = {
        kind: {name: table for name, table in getattr(study, kind).items() if name in names}
        for kind, names in used.items()
    }
    return dataclasses.replace(study, grid=tuple(grid), **tables)


def replace(stored: RunFolder, new: RunFolder) -> None:
    """Put the cells of a complete sweep in place of those at the same points of stored results."""
    old, found = read_results(stored.results), read_results(new.results)
    there = found["reward"].notnull().any(("seed", "episode")).transpose(*AXES)
    for place in np.argwhere(there.values):
        point = {axis: found[axis].values[index] for axis, index in zip(AXES, place, strict=True)}
        for name, array in found.variables.items():
            if name in old.variables and {*AXES} < set(array.dims):
                old[name].loc[point] = found[name].sel(point).transpose(*old[name].sel(point).dims).values
    add_scores(old)
    facts, newer = (json.loads(folder.provenance.read_text(encoding="utf-8")) for folder in (stored, new))
    others = {cell: told for cell, told in facts["cells"].items() if cell in old["cell"].values}
    write_results(stored.results, old)
    write_text(stored.provenance, provenance_text({**facts, "cells": {**others, **newer["cells"]}}))
    redraw(stored)


def main(study: str, learner: str, strategy: tuple[str, ...], work: Path, workers: int = 1) -> None:
    """Run the cells again and replace the old ones.

    Args:
        study: name of a folder in `benchmarks/results`.
        learner: name of the learner.
        strategy: full names of the strategies.
        work: folder for the sweep's own folder.
        workers: worker processes.
    """
    stored = RunFolder(RESULTS / study)
    part = only(read_study(stored.study), learner, strategy)
    sweep(part, work / study, workers=workers)
    replace(stored, RunFolder(work / study))


if __name__ == "__main__":
    tyro.cli(main)
