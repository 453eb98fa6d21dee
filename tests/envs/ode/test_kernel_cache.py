"""A second process compiles nothing, and no edit, in whatever file, is ever missed."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from replaybench.runtime.kernel import cache_dir, store_text

PLANT = """
import json, sys
from dataclasses import dataclass
from numba import njit
import physics
from replaybench.envs.ode.plant import OdePlant

SLOPE = 2.0

@dataclass(frozen=True, kw_only=True)
class Mine(OdePlant):
    mass: float = 2.0
    name = "Mine"
    state_names = state_units = action_names = action_units = ("x",)
    state_center = initial_state = reference_state = (0.0,)
    state_scale = action_high = (1.0,)
    action_low = (-1.0,)

    @staticmethod
    @njit
    def rhs(x, u, p):
        return (physics.push(u[0]) * SLOPE / p[0],)

    @staticmethod
    def reward(x, u, x_next, event, p):
        return 1.0 + x_next[0]

if __name__ == "__main__":
    from numba.core.event import install_recorder
    from replaybench.envs.ode import rk4
    with install_recorder("numba:compile") as recorder:
        after, _, _ = rk4.simulate(Mine(), [0.0], [1.0], 0.02)
        if len(sys.argv) > 1:
            from replaybench.envs.population import PopulationEnv
            env = PopulationEnv(Mine(), 2, sensor_noise=1e-9)
            env.reset()
            env.step([[1.0], [1.0]])
    print(json.dumps({"after": after[0], "compiled": len(recorder.buffer), "path": rk4.kernel(Mine()).path,
                      "fingerprint": Mine().fingerprint()}))
"""
PHYSICS = '''
from numba import njit
from constants import GAIN

@njit
def push(force):
    """Say how much a force pushes."""
    return GAIN * force
'''
LOAD = """
import importlib.util, json
from pathlib import Path
from replaybench.envs.ode import rk4
from replaybench.envs.population import PopulationEnv

spec = importlib.util.spec_from_file_location("mine", Path(__file__).with_name("mine.py"))
mine = importlib.util.module_from_spec(spec)
spec.loader.exec_module(mine)
env = PopulationEnv(mine.Mine(), 1)
env.reset()
observation, *_ = env.step([[1.0]])
print(json.dumps({"after": float(observation[0, 0]), "path": rk4.kernel(mine.Mine()).path}))
"""


def run(folder: Path, *arguments: str, script: str = "mine.py", **environment: str) -> dict[str, Any]:
    env = {**os.environ, "REPLAYBENCH_CACHE": str(folder / "cache"), **environment}
    command = [sys.executable, "-W", "error", str(folder / script), *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(PLANT)
    (tmp_path / "physics.py").write_text(PHYSICS)
    (tmp_path / "constants.py").write_text("GAIN = 1.0\n")
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_second_process_compiles_nothing(folder: Path) -> None:
    first, second = run(folder, "all"), run(folder, "all")
    assert first["after"] == pytest.approx(0.02)
    assert first["compiled"] > 0
    assert second == {**first, "compiled": 0}


def test_edits_in_any_file_are_noticed(folder: Path) -> None:
    first = run(folder)
    # A constant two files away, of the same length, written within the same second
    edit(folder / "constants.py", "1.0", "3.0")
    second = run(folder)
    assert second["after"] == pytest.approx(0.06)
    assert second["fingerprint"] != first["fingerprint"]

    edit(folder / "constants.py", "3.0", "1.0")
    edit(folder / "physics.py", "Say how much", "State how little")
    edit(folder / "mine.py", "p[0],)", "p[0] * 2.0,)")
    third = run(folder)
    assert third["after"] == pytest.approx(0.04)

    edit(folder / "mine.py", "p[0] * 2.0,)", "p[0],)  # as before")
    fourth = run(folder)
    assert fourth["after"] == first["after"]
    assert fourth["fingerprint"] == first["fingerprint"], "comments and docstrings are not content"


def test_damaged_machine_code_is_compiled_again(folder: Path) -> None:
    first = run(folder)
    machine_code = list((folder / "cache").rglob("*.nb?"))
    for path in machine_code:
        path.write_bytes(path.read_bytes()[:-100])
    second = run(folder)
    assert len(machine_code) == 2
    assert second["after"] == first["after"]
    assert second["compiled"] == first["compiled"]


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
@pytest.mark.parametrize("gone", ["replaybench.runtime.kernel\nGone", "replaybench.gone\nClass"])
def test_machine_code_of_other_versions_is_compiled_again(gone: str, kind: str, folder: Path) -> None:
    first = run(folder)
    (path,) = (folder / "cache").rglob(f"*.{kind}")
    content = f"c{gone}\n.".encode()  # a pickle of that class
    path.write_bytes(content + hashlib.sha256(content).digest())
    assert run(folder) == first


def test_kernels_work_without_a_writable_cache(folder: Path) -> None:
    (folder / "file").write_text("")
    answer = run(folder, REPLAYBENCH_CACHE=str(folder / "file" / "cache"))
    assert answer["after"] == pytest.approx(0.02)
    assert answer["path"] is None


def test_kernels_work_without_a_folder_for_machine_code(folder: Path) -> None:
    kernels = folder / "cache" / "kernels"
    kernels.mkdir(parents=True)
    (kernels / "__pycache__").write_text("a file where Numba wants a folder")
    nowhere = str(folder / "mine.py" / "nowhere")
    answer = run(folder, HOME=nowhere, XDG_CACHE_HOME=nowhere)
    assert answer["after"] == pytest.approx(0.02)
    assert answer["path"] is None


def test_kernels_of_modules_outside_sys_modules_work(folder: Path) -> None:
    """Machine code would look for its module by name in the second process."""
    (folder / "load.py").write_text(LOAD)
    for _ in range(2):
        assert run(folder, script="load.py") == {"after": pytest.approx(0.02), "path": None}


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("REPLAYBENCH_CACHE", raising=False)
    assert cache_dir() == Path("/home/someone/.cache/replaybench")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
    assert cache_dir() == Path("/var/cache/replaybench")
    monkeypatch.setenv("REPLAYBENCH_CACHE", "/fast/disk")
    assert cache_dir() == Path("/fast/disk")


def test_an_equal_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.py"
    assert store_text(path, "one")
    os.utime(path, (1, 1))
    assert store_text(path, "one")
    assert path.stat().st_mtime == 1
    assert store_text(path, "two")
    assert path.read_text() == "two"
    assert [entry.name for entry in path.parent.iterdir()] == ["b.py"]
    assert not store_text(path / "c.py", "a file is no folder")
