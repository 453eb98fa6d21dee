"""Score stored results against the references of today: python -m benchmarks.evidence.rescore [STUDY …]

Rewards stay what they are; references, μ_r and all that follows from them are computed anew, the results say so in
their attribute `rescored`, and the figures of curves and scores are drawn again (not those of policies, which are not
stored). Without arguments, all studies under `benchmarks/results` whose plants have a dynamic-programming reference.
"""

import datetime
import itertools
import sys

import numpy as np
import xarray as xr

from benchmarks.evidence.redraw import RESULTS, redraw
from replaybench.baselines.grid_choice import Rule
from replaybench.baselines.references import reference
from replaybench.data.run_folder import RunFolder
from replaybench.envs.registry import make_plant
from replaybench.experiments.dataset import add_references, add_scores
from replaybench.experiments.results_file import read_results, write_results
from replaybench.runtime.user_file import imports_only
from replaybench.runtime.version import NUMERICS_VERSION


def rescored(old: xr.Dataset, rule: Rule | None = None) -> xr.Dataset:
    """Return results with the references of today, on grids that `rule` selects, and a note of that.

    No Python file that the results name is executed.
    """
    references = {}
    for plant in old["plant"].values.tolist():
        with imports_only():
            made = make_plant(plant)
        there = old["reward"].sel(plant=plant).notnull().any(["learner", "strategy", "seed", "episode"])
        for noise, frequency in itertools.product(old["noise"].values.tolist(), old["frequency"].values.tolist()):
            if there.sel(noise=noise, frequency=frequency):
                references[plant, frequency, noise] = reference(made, frequency, noise, rule)
    new = old.copy()
    add_references(new, references)
    add_scores(new)
    day = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    new.attrs["rescored"] = f"{day} by numerics version {NUMERICS_VERSION}"
    return new


def main() -> None:
    for name in sys.argv[1:] or sorted(path.parent.name for path in RESULTS.glob("*/results.nc")):
        folder = RunFolder(RESULTS / name)
        old = read_results(folder.results)
        if not np.isfinite(old["reference_dp"].values).any():
            continue
        new = rescored(old)
        write_results(folder.results, new)
        redraw(folder)
        print(
            f"{name}: dynamic programming {old['reference_dp'].values.ravel()} → {new['reference_dp'].values.ravel()}"
        )


if __name__ == "__main__":
    main()
