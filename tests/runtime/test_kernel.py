"""The kernel cache: a second process compiles nothing, no edit is missed, and damage is as good as absence."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import replaybench
from replaybench.controllers.networks import adam
from replaybench.controllers.registry import load_learner
from replaybench.runtime.atomic import store_text
from replaybench.runtime.kernel import cache_dir, kernel_digest

PROGRAM = """
import numpy as np
from replaybench.runtime.own import scaled
print(scaled(np.full(1, 2.0)), sum(scaled.stats.cache_hits.values()), sum(scaled.stats.cache_misses.values()))
"""
DAMAGE = """
import hashlib, importlib, os, sys
import numpy as np
from pathlib import Path
from replaybench.runtime import own

def found():
    importlib.reload(own)
    assert own.scaled(np.full(1, 2.0)) == 4
    return sum(own.scaled.stats.cache_hits.values()) == 1

assert not found() and found()
for ending in ("nbi", "nbc"):
    (file,) = Path(os.environ["REPLAYBENCH_CACHE"]).rglob(f"*.{ending}")
    whole = file.read_bytes()
    half = len(whole) // 2
    flipped = whole[:half] + bytes([whole[half] ^ 85]) + whole[half + 1 :]
    others = (b"creplaybench.runtime.kernel\\nGone\\n.", b"creplaybench.gone\\nClass\\n.")  # pickles of other versions
    sealed = (content + hashlib.sha256(content).digest() for content in others)
    for damaged in (b"", b"no pickle", whole[:half], flipped, *sealed):
        file.write_bytes(damaged)
        assert not found(), (ending, damaged[:20])
        assert found(), (ending, damaged[:20])
print(0, 0, 0)
"""
LIMIT = 300.0
"""Seconds after which a process that does not answer fails a test."""
CONCURRENT = f"""
import os, time
from pathlib import Path
import replaybench.runtime.own
Path(f"ready-{{os.getpid()}}").touch()
while not Path("go").exists():
    time.sleep(0.005)
{PROGRAM}"""
SLOW = """
    import time
    from pathlib import Path
    if Path("hang").exists():
        Path("compiling").touch()
        time.sleep(1000)
    time.sleep(0.5)
    return types.float64(types.float64), codegen
"""
NESTED = """
import numpy as np
from replaybench.runtime.nested import inner, outer

def machine_code(function):
    return [type(found.library).__name__ for found in function.overloads.values()]

print(outer(np.full(1, 2.0)), sum(inner.stats.cache_hits.values()), sum(inner.stats.cache_misses.values()))
assert machine_code(inner) in ([], ["_Bitcode"]), machine_code(inner)
for called in (outer, inner):
    try:
        called(np.full(1, -1.0))
    except ValueError as error:
        assert str(error) == "negative"
    else:
        raise AssertionError
assert inner(np.full(1, 2.0)) == 4
assert machine_code(inner) == ["JITCodeLibrary"], machine_code(inner)
assert outer(np.full(1, 2.0)) == 5
"""
NESTED_KERNELS = """
from replaybench.runtime.kernel import kernel

@kernel
def inner(x):
    if x[0] < 0:
        raise ValueError("negative")
    return x[0] * x[0]

@kernel
def outer(x):
    return 1 + inner(x)

@kernel
def another(x):
    return 2 + inner(x)
"""
KERNEL = """
from replaybench.runtime.generated import twice
from replaybench.runtime.kernel import kernel
from replaybench.runtime.own_constants import GAIN

@kernel
def scaled(x):
    return GAIN * twice(x[0])
"""
GENERATOR = """
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

def _twice(context, value):
    def codegen(context, builder, signature, args):
        return builder.fmul(args[0], ir.Constant(args[0].type, 2.0))
    return types.float64(types.float64), codegen

twice = intrinsic(_twice)
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with one kernel, a plain call of `intrinsic` and a constant in files of their own, and an empty one."""
    folder = tmp_path / "package" / "replaybench" / "runtime"
    folder.mkdir(parents=True)
    for name in ("kernel.py", "errors.py"):
        shutil.copy(Path(replaybench.__file__).parent / "runtime" / name, folder)
    files = {"own": KERNEL, "generated": GENERATOR, "own_constants": "GAIN = 1.0\n", "other": "", "__init__": ""}
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    (folder.parent / "__init__.py").write_text("")
    return folder


def process(package: Path, program: str) -> subprocess.Popen[str]:
    root = package.parent.parent
    environment = {"PYTHONPATH": str(root), "REPLAYBENCH_CACHE": str(root / "cache"), "PATH": ""}
    command = [sys.executable, "-W", "error", "-c", program]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=root)


def run(package: Path, program: str = PROGRAM) -> tuple[float, int, int]:
    """Return what the kernel says, and whether it was found and missed in the cache."""
    started = process(package, program)
    said, hits, misses = said_by(started)
    assert started.returncode == 0
    return float(said), int(hits), int(misses)


def start(package: Path) -> subprocess.Popen[str]:
    """Start a process that compiles once there is a file `go`; return it when it is ready to."""
    started = process(package, CONCURRENT)
    wait_for(package.parent.parent / f"ready-{started.pid}")
    return started


def wait_for(path: Path) -> None:
    end = time.monotonic() + LIMIT
    while not path.exists():
        assert time.monotonic() < end, path
        time.sleep(0.005)


def hang(package: Path) -> subprocess.Popen[str]:
    """Start a process that hangs while it compiles; others will not."""
    root = package.parent.parent
    edit(package / "generated.py", "    return types.float64(types.float64), codegen\n", SLOW)
    (root / "hang").touch()
    (root / "go").touch()
    hung = start(package)
    wait_for(root / "compiling")
    (root / "hang").unlink()
    return hung


def said_by(process: subprocess.Popen[str]) -> list[str]:
    said, _ = process.communicate(timeout=LIMIT)
    return said.split()


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_second_process_compiles_nothing_and_no_edit_is_missed(package: Path) -> None:
    assert run(package) == (4, 0, 1)
    edit(package / "other.py", "", "# the kernel does not reach this file\n")
    assert run(package) == (4, 1, 0)
    edit(package / "own_constants.py", "1.0", "3.0")
    assert run(package) == (12, 0, 1)
    edit(package / "generated.py", "2.0", "5.0")
    assert run(package) == (30, 0, 1)
    assert run(package) == (30, 1, 0)


@pytest.mark.slow
def test_a_package_that_lies_elsewhere_compiles_nothing(package: Path) -> None:
    """An environment was moved, or a checkout is used next to an installation: files of the same content are enough."""
    assert run(package) == (4, 0, 1)
    root = package.parent.parent
    shutil.copytree(root, root.parent / "elsewhere", ignore=shutil.ignore_patterns("__pycache__"))
    for file in (root.parent / "elsewhere").rglob("*.py"):  # as after an installation
        os.utime(file, (1, 1))
    assert run(root.parent / "elsewhere" / "replaybench" / "runtime") == (4, 1, 0)


def test_an_example_is_a_users_file_wherever_it_lies() -> None:
    """Its machine code names a module that is named by its path: another copy's would not be found."""
    learner, _ = load_learner(f"{Path(replaybench.__file__).parent / 'examples' / 'own_learner.py'}:ActorCritic")
    own = vars(sys.modules[learner.__module__])["_update"]._cache.cache_path
    assert Path(own).name.startswith("examples_")
    assert Path(vars(adam)["adam_step"]._cache.cache_path).name == "replaybench.controllers.networks"


def test_damage_is_a_miss_and_is_mended(package: Path) -> None:
    run(package, DAMAGE)


def test_a_folder_that_cannot_be_written_costs_only_time(package: Path) -> None:
    (package.parent.parent / "cache").write_text("a file where a folder is wanted")
    assert run(package) == (4, 0, 1)
    assert not list(package.rglob("*.nb?"))


def test_processes_that_start_together_compile_once(package: Path) -> None:
    edit(package / "generated.py", "    return types.float64(types.float64), codegen\n", SLOW)
    both = [start(package), start(package)]
    (package.parent.parent / "go").touch()
    assert sorted(said_by(process) for process in both) == [["4.0", "0", "1"], ["4.0", "1", "0"]]


@pytest.mark.slow
def test_who_waits_goes_on_when_the_one_that_compiles_is_killed(package: Path) -> None:
    hung = hang(package)
    waiting = start(package)
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(2)
    hung.kill()
    said_by(hung)
    assert said_by(waiting) == ["4.0", "0", "1"]


@pytest.mark.slow
def test_nobody_waits_without_end(package: Path) -> None:
    edit(package / "kernel.py", "PATIENCE: Final = 180.0", "PATIENCE: Final = 0.1")
    hung = hang(package)
    assert run(package) == (4, 0, 1)
    hung.kill()
    said_by(hung)


@pytest.mark.slow
def test_a_kernel_that_only_kernels_call_has_no_machine_code_of_its_own(package: Path) -> None:
    """It gets some when Python calls it; errors come through; other processes find what was compiled for callers."""
    (package / "nested.py").write_text(NESTED_KERNELS)
    assert run(package, NESTED) == (5, 0, 1)
    assert run(package, NESTED) == (5, 0, 0)  # `outer` is found, with `inner` in it
    other = NESTED.replace("inner, outer", "inner, another as outer").replace("== 5", "== 6")
    assert run(package, other) == (6, 1, 0)


def test_what_kernels_are_made_of_is_named_where_they_are() -> None:
    """A kernel's file reaches by imports what it is made of: no relative imports, no overloads of others' functions."""
    for path in Path(replaybench.__file__).parent.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        assert not re.search(r"^\s*from\s+\.", source, re.MULTILINE), path
        for function in re.findall(r"^@overload\((\w+)", source, re.MULTILINE):
            assert re.search(rf"^def {function}\(", source, re.MULTILINE), (path, function)


def test_kernels_of_a_users_file_count_its_neighbours(tmp_path: Path) -> None:
    """A learner in a user's file may take kernels from the file next to it, which belongs to no package."""
    digests = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "own.py").write_text("from neighbour import GAIN\n")
        (folder / "neighbour.py").write_text(f"GAIN = {number}\n")
        (folder / "other.py").write_text(f"GAIN = {number}\n")
        digests.append([kernel_digest(folder / name) for name in ("own.py", "neighbour.py", "other.py")])
    (mine, *_), (theirs, *_) = digests
    assert mine != theirs
    (tmp_path / "1" / "other.py").write_text("GAIN = 3\n")
    kernel_digest.cache_clear()
    assert kernel_digest(tmp_path / "1" / "own.py") == mine


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
    print(json.dumps({"after": after[0], "compiled": len(recorder.buffer), "path": rk4.kernel(Mine())._cache.cache_path,
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
print(json.dumps({"after": float(observation[0, 0]), "path": rk4.kernel(mine.Mine())._cache.cache_path}))
"""


def run_plant(folder: Path, *arguments: str, script: str = "mine.py", **environment: str) -> dict[str, Any]:
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


@pytest.mark.slow
def test_a_second_process_compiles_nothing(folder: Path) -> None:
    first, second = run_plant(folder, "all"), run_plant(folder, "all")
    assert first["after"] == pytest.approx(0.02)
    assert first["compiled"] > 0
    assert second == {**first, "compiled": 0}


@pytest.mark.slow
def test_edits_in_any_file_are_noticed(folder: Path) -> None:
    first = run_plant(folder)
    # A constant two files away, of the same length, written within the same second
    edit(folder / "constants.py", "1.0", "3.0")
    second = run_plant(folder)
    assert second["after"] == pytest.approx(0.06)
    assert second["fingerprint"] != first["fingerprint"]
    edit(folder / "constants.py", "3.0", "1.0")
    edit(folder / "physics.py", "Say how much", "State how little")
    edit(folder / "mine.py", "p[0],)", "p[0],)  # as before")
    third = run_plant(folder)
    assert third["after"] == first["after"]
    assert third["fingerprint"] == first["fingerprint"], "comments and docstrings are not content"


@pytest.mark.slow
def test_kernels_work_without_a_writable_cache(folder: Path) -> None:
    (folder / "file").write_text("")
    answer = run_plant(folder, REPLAYBENCH_CACHE=str(folder / "file" / "cache"))
    assert answer["after"] == pytest.approx(0.02)
    assert answer["path"] is None


@pytest.mark.slow
def test_kernels_of_modules_outside_sys_modules_work(folder: Path) -> None:
    """Machine code would look for its module by name in the second process."""
    (folder / "load.py").write_text(LOAD)
    for _ in range(2):
        assert run_plant(folder, script="load.py") == {"after": pytest.approx(0.02), "path": None}


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
