"""Compiled kernels say the same, bit for bit, for every x86-64 processor with fused multiply-adds (AVX2 or AVX-512)."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import hashlib
import numpy as np
from replaybench.controllers.losses.gaussian import importance_weights
from replaybench.controllers.networks.mlp import PopulationMLP, Shape
from replaybench.data.streams import Stream

normals = Stream(0, range(2), "exploration").normal(5000)
action, mean, log_sigma, mu_mean, mu_log_sigma = np.split(normals[:, :5000].reshape(5, -1, 1).astype(np.float32), 5)
rho = np.zeros(2000, np.float32)
importance_weights(action[0], mean[0], log_sigma[0] / 4, mu_mean[0], mu_log_sigma[0] / 4, rho)
network = PopulationMLP(Shape((3, 30, 20, 2), tanh=True), 2)
network.parameters[:] = normals.astype(np.float32)[:, : network.parameters.shape[1]]
out = network(normals.astype(np.float32)[:, :300].reshape(2, 100, 3))
for array in (normals, rho, out):
    assert np.isfinite(array).all()
    print(hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest())
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the targets are those of x86-64")
def test_other_targets_give_the_same_bits(tmp_path: Path) -> None:
    said = []
    for target in ("haswell", "skylake-avx512"):
        environment = {**os.environ, "NUMBA_CPU_NAME": target, "NUMBA_CPU_FEATURES": "+avx2,+fma"}
        environment["REPLAYBENCH_CACHE"] = str(tmp_path)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, text=True, check=False, env=environment
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.split())
    assert len(said[0]) == 3
    assert said[0] == said[1]
