"""Score stored results against the references of today: python -m benchmarks.evidence.rescore [STUDY …]

Rewards stay what they are; references, μ_r and all that follows from them are computed anew, the results say so in
their attribute `rescored`, and the figures of curves and scores are drawn again (not those of policies, which are not
stored). Without arguments, all studies under `benchmarks/results` whose plants have a dynamic-programming reference.
"""

import datetime
import sys

import numpy as np
import xarray as xr

from benchmarks.evidence.redraw import RESULTS, redraw
from replaybench.data.run_folder import RunFolder
from replaybench.experiments.results_file import read_results, rescore, write_results
from replaybench.runtime.version import NUMERICS_VERSION


def rescored(old: xr.Dataset) -> xr.Dataset:
    """Return results with the references of today, and a note of that."""
    new = rescore(old)
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
