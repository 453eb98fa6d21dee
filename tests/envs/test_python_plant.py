"""Plants in Python and of the DeepMind Control Suite."""

import importlib.util
import math
import re
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import expm

from replaybench.envs import registry
from replaybench.envs.foreign.dm_suite import SuiteMember, SuitePlant
from replaybench.envs.foreign.python_plant import PythonPlant
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import make_plant, missing, plant_class
from replaybench.runtime.errors import UserError
from replaybench.runtime.streams import Stream
from tests.helpers.refusals import refuses
from tests.helpers.tiers import slow

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


EXAMPLE = Path(__file__).parents[2] / "replaybench" / "examples" / "two_tank.py"


def two_tank(folder: Path, original: str, replacement: str) -> str:
    """Write the example with an edit, and return the plant's name."""
    source = EXAMPLE.read_text(encoding="utf-8")
    assert original in source
    (folder / "own.py").write_text(source.replace(original, replacement, 1), encoding="utf-8")
    return f"{folder / 'own.py'}:TwoTank"


@pytest.mark.parametrize(
    ("original", "replacement", "told"),
    [
        ("out = self", "out = 1 / 0 * self", r"step from x = \[.*\] under u = \[.*\] fails: own.py, line \d+: Z"),
        ("return 0.05 + 0.2 * uniform", "return 0.2 * uniforms", r"start fails: own.py, line \d+: NameError"),
        (
            "return 0.05 + 0.2 * uniform",
            "return uniform[:1]",
            r"start returns a state of shape \(1,\); state_names has",
        ),
        ("return after, -abs(after[1] - WANTED)", "return after[:1], -1.0", r"step returns a state of shape \(1,\)"),
        ("return after, -abs(after[1] - WANTED)", "return after, np.nan", "is not finite at the initial state"),
        ("return after, -abs", "return -abs", "step from x = .* fails: own.py, ValueError: not enough values"),
        ("def step(", "def _stride(", "plant TwoTank does not define the method step"),
        ("initial_state = (0.1, 0.05)", "initial_state = (0.1,)", "initial_state has 1 entries, state_names has 2"),
    ],
)
def test_a_bug_is_one_line_that_names_file_and_line(tmp_path: Path, original: str, replacement: str, told: str) -> None:
    refuses(told, make_plant, two_tank(tmp_path, original, replacement))


def test_a_later_bug_is_one_line_too(tmp_path: Path) -> None:
    env = PopulationEnv(two_tank(tmp_path, "overflows = ", "assert after[1] < 0.3\n        overflows = "))
    env.reset()
    told = r"^plant TwoTank: step from x = \[0.3.*fails: own.py, line \d+: AssertionError"
    with pytest.raises(UserError, match=told):
        for _ in range(env.steps_per_episode):
            env.step([[1.0]])


def test_edits_of_imported_files_change_the_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "wanted_level.py").write_text("WANTED = 0.15\n")
    name = two_tank(tmp_path, "WANTED = 0.15", "import wanted_level\nWANTED = wanted_level.WANTED")
    first = make_plant(name)
    assert "wanted_level.py" in first.made_of()
    assert "scipy" in first.made_of()
    before = first.fingerprint()
    assert make_plant(name).fingerprint() == before
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
    refuses(r"^plant Typed: start fails: its definition, ValueError: oh$", PopulationEnv(vars(cell)["Typed"]()).reset)


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


NAMES = ("AcerCartpole", "AcerCheetah", "AcerFish", "AcerWalker", "AcerHumanoid")
needs_suite = pytest.mark.skipif(bool(missing(NAMES[0])), reason="dm_control does not run here")


def own(plant: SuitePlant, seed: int) -> Any:
    """Return dm_control's own environment."""
    SuiteMember(plant).close()  # imports it, quietly
    from dm_control import suite

    return suite.load(*plant.task, task_kwargs={"random": seed})


def flat(step: Any) -> np.ndarray:
    return np.concatenate([np.ravel(part) for part in step.observation.values()])


@needs_suite
@pytest.mark.parametrize("name", slow(NAMES, but=["AcerCartpole"]))
def test_members_equal_dm_controls_environment(name: str) -> None:
    env = PopulationEnv(name, 2, seed=5)
    plant = env.plant
    assert isinstance(plant, SuitePlant)
    observation, _ = env.reset()
    seed = int(Stream(5, (0, 1), "initial state").uniform(1)[1, 0] * 2**32)
    theirs = own(plant, seed)
    assert (env.steps_per_episode, plant.discount) == (500, 0.99)  # appendix E.1
    assert theirs.control_timestep() == pytest.approx(env.dt, rel=1e-12)
    assert theirs.physics.timestep() == plant.physics_step
    spec, model = theirs.action_spec(), theirs.physics.model
    assert tuple(model.actuator(i).name for i in range(model.nu)) == plant.action_names
    np.testing.assert_array_equal([spec.minimum, spec.maximum], [plant.action_low, plant.action_high])
    np.testing.assert_array_equal(observation[1], flat(theirs.reset()).astype(np.float32))
    rng = np.random.Generator(np.random.PCG64(1))
    for action in rng.uniform(-1, 1, (40, *env.action_space.shape)).astype(np.float32):
        expected = theirs.step(action[1].astype(np.float64))
        observation, reward, terminated, truncated, _ = env.step(action)
        np.testing.assert_array_equal(observation[1], flat(expected).astype(np.float32))
        assert reward[1] == expected.reward
        assert not (terminated | truncated).any()
    env.close()


@needs_suite
@pytest.mark.parametrize("name", NAMES)
def test_state_names_match_the_models_joints(name: str) -> None:
    """Joints, in the model's order, are found where their names stand."""
    plant = make_plant(name)
    assert isinstance(plant, SuitePlant)
    observed = SuiteMember(plant)
    observed.restart(3)
    for _ in range(5):
        row = observed.advance(np.full(len(plant.actuated), 0.5)).observed
    model, data = observed.physics.model, observed.physics.named.data
    joints = [model.joint(i).name for i in range(model.njnt)]
    moving = {name: data.qpos[name] for name in joints} | {f"velocity of {name}": data.qvel[name] for name in joints}
    shown = dict(zip(plant.state_names, row, strict=True))
    compared = shown.keys() & moving.keys()
    assert all(shown[name] == moving[name].item() for name in compared)
    assert len(compared) >= min(3, model.njnt)


@needs_suite
def test_a_simulation_that_blows_up_is_truncated() -> None:
    env = PopulationEnv("AcerCartpole", 2)
    env.reset()
    before = env.step(np.zeros((2, 1)))[0]
    env._engine._simulators[0].physics.data.qvel[:] = 1e30  # type: ignore[attr-defined]
    observation, reward, terminated, truncated, _ = env.step(np.zeros((2, 1)))
    np.testing.assert_array_equal(truncated, [True, False])
    assert not terminated.any()
    assert reward[0] == 0.0
    np.testing.assert_array_equal(observation[0], before[0])
    env.reset(options={"reset_mask": np.array([True, False])})
    assert np.isfinite(env.step(np.zeros((2, 1)))[0]).all()


def test_without_dm_control_the_error_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    told = 'plant AcerFish needs the package dm_control and mujoco before 4: pip install "replaybench[dm]"'
    for found, mujoco in (("dm_control", "4.0.0"), (None, "3.17.0")):
        monkeypatch.setattr(importlib.util, "find_spec", lambda package, found=found: found)
        monkeypatch.setattr(registry, "version", lambda package, mujoco=mujoco: mujoco)
        refuses(f"^{re.escape(told)}$", plant_class, "AcerFish")
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: "dm_control")
    assert not missing("AcerFish")
