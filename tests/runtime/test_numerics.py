"""Random streams, sine and cosine, nearest levels, and equality on all processors."""

import ast
import math
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import llvmlite.binding
import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
from numba import njit
from numpy._core import _multiarray_umath as umath  # type: ignore[attr-defined]

from replaybench.runtime import trigonometry
from replaybench.runtime.elementwise import nearest_level
from replaybench.runtime.streams import PURPOSES, Stream
from tests.helpers.naive import Random


@pytest.mark.parametrize("purpose", PURPOSES)
def test_draws_equal_numpys_generator(purpose: str) -> None:
    drawn = Stream(7, [0, 5, 123], purpose).uniform(1000)
    for row, member in zip(drawn, (0, 5, 123), strict=True):
        np.testing.assert_array_equal(row, Random(7, member, purpose).double(1000))


@njit(error_model="numpy")
def of_all(x: Any) -> Any:
    sines, cosines = np.empty_like(x), np.empty_like(x)
    for i in range(x.size):
        sines[i], cosines[i] = trigonometry.sin(x[i]), trigonometry.cos(x[i])
    return sines, cosines


def angles(reach: float, count: int) -> np.ndarray:
    """Angles everywhere up to `reach`, small ones, and those nearest to multiples of π/2, where digits cancel."""
    rng = np.random.Generator(np.random.PCG64(2))
    quarters = rng.integers(1, int(reach / 1.58), count)
    with mpmath.workprec(200):
        near = [float(int(q) * mpmath.pi / 2) for q in quarters]
    return np.concatenate([rng.uniform(-reach, reach, count), rng.uniform(-2, 2, count), near])


def units_off(found: np.ndarray, x: np.ndarray, exact: Any) -> float:
    """Return the largest error in units in the last place of the exact value."""
    worst = 0.0
    with mpmath.workprec(200):
        for value, angle in zip(found.tolist(), x.tolist(), strict=True):
            true = exact(mpmath.mpf(angle))
            worst = max(worst, float(abs(value - true) / math.ulp(float(true))))
    return worst


@pytest.mark.parametrize("reach", [10.0, 1e5, trigonometry.LARGEST])
def test_both_are_right_to_two_units_in_the_last_place(reach: float) -> None:
    x = angles(reach, 1500)
    sines, cosines = of_all(x)
    assert units_off(sines, x, mpmath.sin) < 2.0
    assert units_off(cosines, x, mpmath.cos) < 2.0


def test_the_ends_and_the_bits_of_a_number_alone_as_among_others() -> None:
    x = angles(100.0, 40)
    for function, among_others in zip((trigonometry.sin, trigonometry.cos), of_all(x), strict=True):
        assert [function(value) for value in x] == among_others.tolist()
    assert trigonometry.sin(0.0) == 0.0
    assert trigonometry.cos(0.0) == 1.0
    assert trigonometry.sin(5e-324) == 5e-324
    assert math.isfinite(trigonometry.sin(-trigonometry.LARGEST))
    for beyond in (math.nextafter(trigonometry.LARGEST, math.inf), -1e300, math.inf, math.nan):
        assert math.isnan(trigonometry.sin(beyond))
        assert math.isnan(trigonometry.cos(beyond))


@pytest.mark.parametrize("count", [2, 3, 4, 5, 15, 1000])
def test_the_nearest_of_all_is_found(count: int) -> None:
    values = np.linspace(-1.0, 1.0, count)
    for value in np.random.Generator(np.random.PCG64(count)).uniform(-1.2, 1.2, 200):
        assert nearest_level(value, count) == np.argmin(np.abs(values - value))
    rounded: list[Any] = [np.float32(value) for value in values]  # what kernels pass
    assert [nearest_level(value, count) for value in rounded] == list(range(count))


def test_of_two_that_are_equally_near_it_is_the_lower_and_every_number_has_a_place() -> None:
    assert [nearest_level(value, 3) for value in (-0.5, -0.49, 0.5, 0.51)] == [0, 1, 1, 2]
    assert [nearest_level(0.0, count) for count in (2, 4)] == [0, 1]
    assert [nearest_level(value, 4) for value in (np.nan, -np.inf, np.inf, 1e300)] == [0, 0, 3, 3]


PACKAGE = Path(__file__).parents[2] / "replaybench"
VECTORISED = {
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "power", "float_power", "cbrt", "logaddexp"),
    *("sin", "cos", "tan", "arcsin", "arccos", "arctan", "arctan2"),
    *("sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh"),
}
"""Functions for which NumPy has, or had in some release, codes of its own for a processor's vectors."""

BY_C_LIBRARY = {"ndtr", "ndtri", "nctdtr", "stdtrit"}
"""Of `scipy.special`, those that call the C library's functions and not NumPy's."""

PROGRAM = """
import hashlib
import numpy as np
from replaybench.controllers.losses.refer import importance_weights
from replaybench.controllers.networks.mlp import PopulationMLP, Shape
from replaybench.runtime.streams import Stream
from replaybench.envs.ode import rk4
from replaybench.envs.ode.pendulum import Pendulum
from replaybench.envs.ode.magman import Magman

state, u = np.random.Generator(np.random.PCG64(0)).normal(size=(2, 2800))
state, u = state[:1400].reshape(-1, 2), u.reshape(-1, 4)
pendulum, _, _ = rk4.simulate(Pendulum(), state * [3.0, 20.0], u[:, :1], 0.02)
magman, _, _ = rk4.simulate(Magman(), state * 0.05, abs(u), 0.02)
normals = Stream(0, range(2), "exploration").normal(5000)
action, mean, log_sigma, mu_mean, mu_log_sigma = np.split(normals[:, :5000].reshape(5, -1, 1).astype(np.float32), 5)
rho = np.zeros(2000, np.float32)
importance_weights(action[0], mean[0], log_sigma[0] / 4, mu_mean[0], mu_log_sigma[0] / 4, rho)
network = PopulationMLP(Shape((3, 30, 20, 2), tanh=True), 2)
network.parameters[:] = normals.astype(np.float32)[:, : network.parameters.shape[1]]
out = network(normals.astype(np.float32)[:, :300].reshape(2, 100, 3))
for array in (pendulum, magman, normals, rho, out):
    assert np.isfinite(array).all()
    print(hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest())
for plant in (Pendulum(), Magman()):
    compiled = rk4.kernel(plant)
    print(compiled.inspect_llvm(compiled.signatures[0]).count("fmul <"))
"""

ACTING = """
import hashlib
from types import SimpleNamespace
import numpy as np
from replaybench.controllers.interface.agent import Task
from replaybench.controllers.registry import load_learner
from replaybench.controllers.interface.agent import LearnerSetting
from replaybench.runtime.streams import Stream
from replaybench.replay.orders.rank_law import first_sums
from replaybench.replay.strategies.weighting import IS

def say(name, array):
    assert np.isfinite(array).all()
    print(name, hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16])

observation = Stream(1, range(64), "evaluation sensor").normal(90).reshape(64, 30, 3).astype(np.float32)
for name, options in (
    ("V-RACER", {}), ("V-RACER", {"sigma": "network", "bounded": True}), ("SAC", {}), ("NAF", {}), ("DDPG", {}),
    ("TD3", {}), ("TD3+BC", {}), ("ACER", {}), ("ACER-discrete", {}),
):
    learner, config = load_learner(name)
    task = Task(observation_size=3, action_size=2, discount=0.9, reward_scale=1.0)
    agent = learner(config(**options), LearnerSetting(task, 0, range(64)))
    for network in agent.networks.values():
        moved = Stream(3, range(64), "evaluation actuator").normal(network.parameters.shape[1])
        network.parameters += (0.1 * moved).astype(np.float32)
    say(name, agent.policy(observation))
    if hasattr(agent, "probability"):
        say(name, agent.probability(observation))
    if hasattr(agent, "sample"):
        say(name, agent.sample(observation))
probability = Stream(2, range(2), "evaluation sensor").uniform(5000)
weight = np.zeros(probability.shape)
usage, draws = SimpleNamespace(stored=np.array([7, 900])), SimpleNamespace(probability=probability)
IS().start(None).weigh(SimpleNamespace(progress=0.4), usage, draws, weight)
say("IS", weight)
say("ranks", first_sums(0.7))
"""


def without_numpys_own() -> str:
    """Return the features by which NumPy chooses codes of its own here, as its variable takes them."""
    return " ".join(name for name in umath.__cpu_dispatch__ if umath.__cpu_features__[name])


def said_by(program: str, **variables: str) -> list[str]:
    environment = {**os.environ, **variables}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def numpys(tree: ast.AST) -> list[str]:
    """Return the calls of NumPy's transcendental functions outside kernels, where they are the C library's."""
    found = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef) and any("kernel" in ast.unparse(one) for one in node.decorator_list):
            continue
        if isinstance(node, ast.Attribute) and node.attr in VECTORISED and ast.unparse(node.value) in ("np", "numpy"):
            found.append(f"line {node.lineno}: np.{node.attr}")
        if isinstance(node, ast.ImportFrom) and node.module in ("numpy", "scipy.special"):
            others = {name.name for name in node.names} - BY_C_LIBRARY
            if node.module == "scipy.special" or others & VECTORISED:
                found += [f"line {node.lineno}: {name}" for name in sorted(others)]
        found += numpys(node)
    return found


def test_numbers_come_from_no_vector_codes_of_numpys() -> None:
    """For processors that cannot be had here: NumPy has codes for AVX-512 that no switch imitates."""
    shown = {PACKAGE / part for part in ("examples", "evidence", "reports")}
    files = [path for path in PACKAGE.rglob("*.py") if not shown & set(path.parents)]
    assert len(files) > 150
    found = {str(path): numpys(ast.parse(path.read_text(encoding="utf-8"))) for path in files}
    assert not {path: calls for path, calls in found.items() if calls}
    assert numpys(ast.parse("def f(x):\n    return np.tanh(x)\n")) == ["line 2: np.tanh"]
    assert numpys(ast.parse("from scipy.special import softmax, ndtr")) == ["line 1: softmax"]
    assert not numpys(ast.parse("@kernel\ndef f(x):\n    return np.tanh(x)\n"))


@pytest.mark.slow
@pytest.mark.skipif(not without_numpys_own(), reason="NumPy has no codes of its own for this processor")
def test_what_acts_and_weighs_is_the_same_without_numpys_vector_codes() -> None:
    said = said_by(ACTING)
    assert len(said) >= 15
    assert said == said_by(ACTING, NPY_DISABLE_CPU_FEATURES=without_numpys_own())


def another_target() -> tuple[str, str]:
    """Return a target and features, with AVX-512 where the processor has it: its code ends with SIGILL elsewhere."""
    features = llvmlite.binding.get_host_cpu_features()
    wide = all(features.get(f"avx512{part}", False) for part in ("f", "bw", "cd", "dq", "vl"))
    target, further = ("skylake-avx512", ",+avx512f") if wide else (str(llvmlite.binding.get_host_cpu_name()), "")
    return target, f"+avx2,+fma{further}"


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the targets are those of x86-64")
def test_other_targets_give_the_same_bits_and_plants_also_without_fused_multiply_adds(tmp_path: Path) -> None:
    said = []
    for target, features in (("haswell", "+avx2,+fma"), another_target(), ("nehalem", "-fma,-avx2,-avx")):
        variables = {"NUMBA_CPU_FEATURES": features, "REPLAYBENCH_CACHE": str(tmp_path)}
        said.append(said_by(PROGRAM, NUMBA_CPU_NAME=target, **variables))
    assert len(said[0]) == 7
    assert said[0][:5] == said[1][:5]
    assert said[0][:2] == said[2][:2]
    assert min(map(int, said[0][5:])) > 20, "members no longer stand in vectors: what was a product is a call, say"
