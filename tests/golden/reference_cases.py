"""Golden scores of reference controllers, computed by the code as it is now and not taken from the cache."""

import os
import tempfile
from pathlib import Path
from unittest import mock

from replaybench.baselines.references import reference
from replaybench.envs.registry import make_plant
from replaybench.runtime.kernel import cache_dir
from tests.golden.golden_store import Measured

CASES = ("PendulumDCSC", "Magman", "Pendulum")


def measure(case: str) -> Measured:
    """Return a plant's references on its declared grid."""
    with tempfile.TemporaryDirectory() as folder:
        for kernels in ("kernels", "numba"):  # machine code is not what is tested
            (Path(folder) / kernels).symlink_to(cache_dir() / kernels)
        with mock.patch.dict(os.environ, REPLAYBENCH_CACHE=folder):
            known = reference(make_plant(case), rule="paper")
    return {name: [getattr(known, name)] for name in ("random", "zero", "lqr", "dp", "interpolated")}
