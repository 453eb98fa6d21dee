"""Results as a file: every point in its place, and a disk that is full."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from replaybench.experiments.cell import run_cell
from replaybench.experiments.dataset import assemble
from replaybench.experiments.study import Study

FULL_DISK = """
import resource, signal, sys
from pathlib import Path
import numpy as np, xarray as xr
from replaybench.runtime.errors import UserError
from replaybench.experiments.results_file import write_results
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    write_results(Path(sys.argv[1]), xr.Dataset({"reward": ("x", np.random.default_rng(0).random(50_000))}))
except UserError as error:
    print(error)
"""


def test_a_full_disk_is_one_line_and_no_crash(tmp_path: Path) -> None:
    """The HDF5 library crashes at exit when it cannot write what it holds, so it writes to memory only."""
    done = subprocess.run([sys.executable, "-c", FULL_DISK, tmp_path / "results.nc"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("no room to write")
    assert not list(tmp_path.iterdir())


def test_noise_is_told_of_the_states_that_are_observed(tmp_path: Path) -> None:
    cell = Study(
        name="t", plants=("PendulumDCSC",), strategies=("FIFO[Uniform]",), noise=(0.02,), seeds=2, episodes=3,
        capacity=300, observe=("angle",), replayed_noise=True,
    ).cells()[0]  # fmt: skip
    assert run_cell(cell, tmp_path, "none")
    noise = assemble([cell], {}, {cell.id: tmp_path})["replayed_noise"]
    assert noise["signal"].values.tolist() == ["angle", "voltage"]
    assert np.isfinite(noise.values).all()
