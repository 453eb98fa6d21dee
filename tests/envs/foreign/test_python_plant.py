"""Plants whose simulator is a Python function."""

from __future__ import annotations

import math
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import expm

from replaybench.envs.foreign.python_plant import PythonPlant
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import make_plant
from replaybench.runtime.errors import UserError
from replaybench.runtime.streams import Stream

Vector = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Mass(PythonPlant):
    """A mass on a spring, stepped by its exact solution under a held force."""

    stiffness: float = 4.0

    name = "Mass"
    state_names = ("position", "velocity")
    state_units = ("m", "m/s")
    action_names = ("force",)
    action_units = ("N",)
    state_center = (0.0, 0.0)
    state_scale = (1.0, 2.0)
    action_low = (-2.0,)
    action_high = (2.0,)
    initial_state = (0.5, 0.0)

    def start(self, uniform: Vector) -> Vector:
        return uniform - 0.5

    def step(self, x: Vector, u: Vector, dt: float) -> tuple[Vector, float, bool]:
        rest = np.array([u[0] / self.stiffness, 0.0])
        after = rest + expm(np.array([[0.0, 1.0], [-self.stiffness, 0.0]]) * dt) @ (x - rest)
        x[:], u[:] = np.nan, np.nan  # they are the function's own
        return after, -abs(float(after[0])), bool(after[0] > 1.5)


def test_it_moves_as_its_function_says_at_any_rate() -> None:
    """At rest under a held force: x(t) = u/k (1 − cos √k t) + x₀ cos √k t + v₀/√k sin √k t."""
    for frequency in (10, 50, 200):
        env = PopulationEnv(Mass(), 3, frequency=frequency, seed=2)
        env.reset()
        x0 = env.get_state()["observed"]
        np.testing.assert_array_equal(x0, Stream(2, range(3), "initial state").uniform(2) - 0.5)
        for _ in range(frequency):
            _, reward, _, _, _ = env.step(np.full((3, 1), 0.5))  # 1 N
        cos, sin = math.cos(2.0), math.sin(2.0)
        expected = 0.25 * (1 - cos) + x0[:, 0] * cos + x0[:, 1] / 2 * sin
        np.testing.assert_allclose(env.get_state()["observed"][:, 0], expected, atol=1e-12)
        np.testing.assert_allclose(reward, -abs(expected), atol=1e-12)


EXAMPLE = Path(__file__).parents[3] / "replaybench" / "examples" / "two_tank.py"
BUGS = [
    (
        "out = self.outlet",
        "out = 1 / 0 * self.outlet",
        r"step from x = \[.*\] under u = \[.*\] fails: own.py, line \d+: Z",
    ),
    ("return 0.05 + 0.2 * uniform", "return 0.2 * uniforms", r"start fails: own.py, line \d+: NameError"),
    ("return 0.05 + 0.2 * uniform", "return uniform[:1]", r"start returns a state of shape \(1,\); state_names has 2"),
    ("return after, -abs(after[1] - WANTED)", "return after[:1], -1.0", r"step returns a state of shape \(1,\)"),
    ("return after, -abs(after[1] - WANTED)", "return after, np.nan", "is not finite at the initial state"),
    ("return after, -abs", "return -abs", "step from x = .* fails: own.py, ValueError: not enough values"),
    ("def step(", "def stride(", "plant TwoTank does not define the method step"),
    ("initial_state = (0.1, 0.05)", "initial_state = (0.1,)", "initial_state has 1 entries, state_names has 2"),
]


@pytest.mark.parametrize(("original", "replacement", "told"), BUGS, ids=[bug[1][:30] for bug in BUGS])
def test_a_bug_is_one_line_that_names_file_and_line(tmp_path: Path, original: str, replacement: str, told: str) -> None:
    source = EXAMPLE.read_text(encoding="utf-8")
    assert original in source
    path = tmp_path / "own.py"
    path.write_text(source.replace(original, replacement, 1), encoding="utf-8")
    with pytest.raises(UserError, match=told) as caught:
        make_plant(f"{path}:TwoTank")
    assert "\n" not in str(caught.value)


def test_a_later_bug_is_one_line_too(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    text = EXAMPLE.read_text(encoding="utf-8").replace("overflows = ", "assert after[1] < 0.3\n        overflows = ")
    path.write_text(text, encoding="utf-8")
    env = PopulationEnv(f"{path}:TwoTank")
    env.reset()
    with pytest.raises(
        UserError, match=r"^plant TwoTank: step from x = \[0.3.*fails: own.py, line \d+: AssertionError"
    ):
        for _ in range(env.steps_per_episode):
            env.step([[1.0]])


def test_edits_of_imported_files_change_the_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "wanted_level.py").write_text("WANTED = 0.15\n")
    path = tmp_path / "own.py"
    text = EXAMPLE.read_text(encoding="utf-8").replace(
        "WANTED = 0.15", "import wanted_level\nWANTED = wanted_level.WANTED"
    )
    path.write_text(text, encoding="utf-8")
    first = make_plant(f"{path}:TwoTank")
    assert "wanted_level.py" in first.made_of()
    assert "scipy" in first.made_of()
    assert first.fingerprint() == make_plant(f"{path}:TwoTank").fingerprint()
    before = first.fingerprint()
    (tmp_path / "wanted_level.py").write_text("WANTED = 0.2\n")
    assert first.fingerprint() != before


NOTEBOOK = """
GAIN = {gain}
def pulled(x):
    return GAIN * x
@dataclass(frozen=True, kw_only=True)
class Typed(PythonPlant):
    name, state_names, state_units, state_center, state_scale = "Typed", ("x",), ("1",), (0.0,), (1.0,)
    action_names, action_units, action_low, action_high = ("u",), ("1",), (-1.0,), (1.0,)
    initial_state, episode_seconds, frequency, discount, reward_scale = (0.5,), 1.0, 10.0, 0.9, 1.0
    def step(self, x, u, dt):
        return pulled(x) + dt * u, {reward}, False
"""


def test_a_plant_without_a_file_is_hashed_by_its_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a notebook; there the same name stands for many versions of a plant."""
    cell = types.ModuleType("a_notebook")
    cell.__file__ = "<stdin>"  # in name only
    monkeypatch.setitem(sys.modules, "a_notebook", cell)

    def typed(gain: float, reward: float, more: str = "") -> str:
        exec(NOTEBOOK.format(gain=gain, reward=reward) + more, vars(cell))
        plant: PythonPlant = vars(cell)["Typed"]()
        return plant.fingerprint()

    vars(cell).update(dataclass=dataclass, PythonPlant=PythonPlant)
    assert typed(0.9, -1.0) == typed(0.9, -1.0)
    assert len({typed(0.9, -1.0), typed(0.8, -1.0), typed(0.9, -2.0)}) == 3
    vars(cell)["engine"] = object()
    with pytest.raises(UserError, match=r"^plant Typed: 'engine', a object .* or save the plant in a file$"):
        typed(0.9, -1.0, "    def other(self):\n        return engine\n")
    del cell.__file__
    typed(0.9, -1.0, "    def start(self, uniform):\n        raise ValueError('oh')\n")
    with pytest.raises(UserError, match=r"^plant Typed: start fails: its definition, ValueError: oh$"):
        PopulationEnv(vars(cell)["Typed"]()).reset()


@dataclass(frozen=True, kw_only=True)
class Fleeing(Mass):
    """It is ten times as far after each step, until it is nowhere."""

    def start(self, uniform: Vector) -> Vector:
        return np.array([3.0, 0.0])

    def step(self, x: Vector, u: Vector, dt: float) -> tuple[Vector, float, bool]:
        return np.array([x[0] * 10 if x[0] < 1000 else np.nan, 0.0]), -1.0, False


def test_observations_are_not_clipped_and_nan_fails_the_run() -> None:
    env = PopulationEnv(Fleeing(), 1, nan_actions="fail")
    observation, _ = env.reset()
    seen = []
    for _ in range(4):
        observation, reward, *_ = env.step(observation[:, :1] * 0)
        seen.append(observation[0, 0])
    np.testing.assert_array_equal(seen, [30.0, 300.0, 3000.0, np.nan])
    assert np.isnan(env.step(observation[:, :1])[1]).all()
    assert not np.isnan(reward).any()
