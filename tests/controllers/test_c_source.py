"""Policies in C: compiled without a warning, they act as `predict` does, to the last place; nothing is allocated."""

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from replaybench.controllers.policies.c_header import Recorded, Units
from replaybench.controllers.policies.c_source import c_source
from replaybench.controllers.policies.policy import cost_of
from tests.helpers.made_policies import SETTINGS, policy_of, predicted
from tests.helpers.tiers import slow

COMPILER = ["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
MICROCONTROLLER = ["-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard", "-mthumb"]
EXPERIENCES = 10_000
RECURRENT = ("DDPG, remembering", "V-RACER, remembering")
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc here")
needs_arm = pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="no arm-none-eabi-gcc here")

PROGRAM = """#include "p.h"
void all(int n, const float *seen, float *memory, float *action);
void all(int n, const float *seen, float *memory, float *action) {
    for (int i = 0; i < n; i++) {
#if P_MEMORY
        p_predict(seen + i * P_STATES, memory, action + i * P_ACTIONS);
#else
        (void)memory;
        p_predict(seen + i * P_STATES, action + i * P_ACTIONS);
#endif
    }
}
"""


def built(text: str, path: Path, *words: str) -> Path:
    """Compile a header and what calls it."""
    path.with_name("p.h").write_text(text)
    path.with_name("p.c").write_text(PROGRAM)
    subprocess.run([*words, path.with_name("p.c"), "-o", path, "-lm"], check=True)
    return path


def compiled(text: str, folder: Path) -> Any:
    """The header's functions, as a library."""
    return ctypes.CDLL(str(built(text, folder / "p.so", *COMPILER, "-O2", "-shared", "-fPIC")))


def acted(library: Any, observations: NDArray[np.float32], actions: int) -> NDArray[np.float32]:
    memory, action = np.zeros(4096, np.float32), np.empty((len(observations), actions), np.float32)
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (observations, memory, action)]
    library.all(len(observations), *pointers)
    return action


@needs_gcc
@pytest.mark.parametrize("case", slow(SETTINGS, only=RECURRENT))
def test_it_acts_as_predict_does_bit_for_bit(case: str, tmp_path: Path) -> None:
    policy = policy_of(case)
    library = compiled(c_source(policy, "p", ["test"], None), tmp_path)
    observations = np.random.Generator(np.random.PCG64(0)).normal(size=(EXPERIENCES, 3)).astype(np.float32)
    ours, theirs = predicted(policy, observations[:, None])[:, 0], acted(library, observations, 2)
    assert len(np.unique(ours)) > (1 if policy.agent.policy_head().table is not None else 5000)
    np.testing.assert_array_equal(ours, theirs)


@needs_gcc
@pytest.mark.parametrize("case", ["DQN", "ACER-discrete"])
def test_choices_of_a_plant_are_taken_and_what_is_no_number_stays_none(case: str, tmp_path: Path) -> None:
    policy = policy_of(case, (2, 3))
    library = compiled(c_source(policy, "p", ["test"], None), tmp_path)
    observations = np.random.Generator(np.random.PCG64(0)).normal(size=(500, 3)).astype(np.float32)
    np.testing.assert_array_equal(policy.predict(observations)[0], acted(library, observations, 2))
    observations[:, 1] = np.nan
    assert np.isnan(acted(library, observations, 2)).all()


LIMIT = np.array([10.0, 10.0, 2.0])
UNITS = Units(
    state_names=("angle", "speed", "level"),
    state_units=("rad", "rad/s", "m"),
    center=np.array([0.0, 1.0, 0.3]),
    scale=np.array([np.pi, 40.0, 0.7]),
    limit=LIMIT,
    periodic=(True, False, False),
    action_names=("voltage", "valve"),
    action_units=("V", ""),
    middle=np.array([0.5, 0.0]),
    half=np.array([3.5, 1.0]),
    choices=(),
    neutral=np.array([0.5, -1.0]),
    history=0,
)


@needs_gcc
def test_physical_units_go_in_and_come_out(tmp_path: Path) -> None:
    policy = policy_of("DDPG")
    text = c_source(policy, "p", ["of a pendulum"], UNITS)
    for told in ("Control rate: 50 Hz", "angle in rad, an angle in [-pi, pi)", "voltage in V = 0.5 + 3.5 * action"):
        assert told in text.replace("\n * ", " ")
    library = compiled(text + "void step(const double *x, double *u) { p_step(x, u); }\n", tmp_path)
    states = np.random.Generator(np.random.PCG64(0)).normal(size=(200, 3)) * 3
    states[0], states[1, 2] = 1e9, -np.inf
    seen = np.clip((states - UNITS.center) / UNITS.scale, -LIMIT, LIMIT).astype(np.float32)
    due = UNITS.middle + UNITS.half * policy.predict(seen)[0].astype(np.float64)
    command = np.empty(2)
    for state, expected in zip(states, due, strict=True):
        library.step(*(array.ctypes.data_as(ctypes.c_void_p) for array in (np.ascontiguousarray(state), command)))
        np.testing.assert_array_equal(command, expected)


@needs_gcc
def test_past_actions_are_kept_between_steps(tmp_path: Path) -> None:
    """A policy of one state and the last action: `p_step` and the self-test, compared with `predict`."""
    policy, one = policy_of("DDPG"), slice(1)
    fields = ("state_names", "state_units", "center", "scale", "periodic")
    units = UNITS._replace(**{name: getattr(UNITS, name)[one] for name in fields}, limit=None, history=1)
    states = np.random.Generator(np.random.PCG64(0)).normal(size=(20, 1))
    past, commands = units.neutral.astype(np.float32), []
    for state in states:
        past = policy.predict(np.concatenate([(state / np.pi).astype(np.float32), past]))[0]
        commands.append(units.middle + units.half * past.astype(np.float64))
    text = c_source(policy, "p", [], units, Recorded(states, np.array(commands)))
    assert self_test(text, tmp_path) == (0, "40 commands: 40 equal")
    assert self_test(text.replace("? action[i] :", "? 0.0f :"), tmp_path)[0] == 1


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here")
def test_a_header_is_also_cpp_without_a_warning(tmp_path: Path) -> None:
    """The state has several members: past actions, last readings, and whether the episode runs."""
    units = UNITS._replace(state_names=("angle", "speed"), state_units=("rad", "rad/s"), periodic=(True, False))
    units = units._replace(**{name: getattr(UNITS, name)[:2] for name in ("center", "scale", "limit")}, history=1)
    units = units._replace(positions=(-1, 0), observed=(1,))
    header = tmp_path / "p.h"
    header.write_text(c_source(policy_of("DDPG"), "p", [], units, Recorded(np.zeros((4, 1)), np.zeros((4, 2)))))
    for compiler in (COMPILER, ["g++", "-std=c++11", *COMPILER[2:]]):
        language = "c++" if "g++" in compiler else "c"
        subprocess.run([*compiler, "-DP_MAIN", "-x", language, "-c", header, "-o", tmp_path / "p.o"], check=True)


def self_test(text: str, folder: Path) -> tuple[int, str]:
    """Compile the self-test of a header `p`, and return its exit status and the first words that it prints."""
    header, program = folder / "p.h", folder / "test"
    header.write_text(text)
    command = [*COMPILER, "-DP_MAIN", "-x", "c", str(header), "-o", str(program), "-lm"]
    subprocess.run(command, check=True)
    done = subprocess.run([program], check=False, capture_output=True, text=True)
    return done.returncode, done.stdout.partition(",")[0]


@needs_gcc
def test_where_the_plant_is_seen_everywhere_so_it_is_on_a_rig(tmp_path: Path) -> None:
    text = c_source(policy_of("DDPG"), "p", [], UNITS._replace(limit=None))
    library = compiled(text + "void see(const double *x, float *seen) { p_observe(x, seen); }\n", tmp_path)
    state, seen = np.array([100.0, np.nan, -1e9]), np.empty(3, np.float32)
    library.see(*(array.ctypes.data_as(ctypes.c_void_p) for array in (state, seen)))
    np.testing.assert_array_equal(seen, ((state - UNITS.center) / UNITS.scale).astype(np.float32))


@needs_gcc
@pytest.mark.parametrize("case", ["DDPG", "SAC", "DQN", *slow(RECURRENT[:1]), "DDPG, normalised"])
def test_it_tests_itself(case: str, tmp_path: Path) -> None:
    text = c_source(policy_of(case), "my_rig", ["test"], None)
    header, program = tmp_path / "my_rig.h", tmp_path / "test"
    build = [*COMPILER, "-DMY_RIG_MAIN", "-x", "c", str(header), "-o", str(program), "-lm"]
    header.write_text(text)
    subprocess.run(build, check=True)
    done = subprocess.run([program], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("32 actions: 32 equal")
    start = text.index("head_0_weight[")
    end = text.index("};", start)
    damaged = text[:start] + text[start:end].replace("0.0", "0.9") + text[end:]
    assert damaged != text
    header.write_text(damaged)
    subprocess.run(build, check=True)
    assert subprocess.run([program], check=False, capture_output=True).returncode == 1


def object_of(case: str, folder: Path, *compiler: str) -> Path:
    """A policy compiled for a machine without an operating system."""
    words = [*compiler, *COMPILER[1:], "-Os", "-ffreestanding", "-c"]
    return built(c_source(policy_of(case), "p", ["test"], None), folder / "p.o", *words)


def undefined(path: Path, nm: str) -> set[str]:
    told = subprocess.run([nm, "-u", path], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1].lstrip("_") for line in told.splitlines() if line.strip()}


ASKED = {"fmaf", "tanhf", "sqrtf", "GLOBAL_OFFSET_TABLE_", "stack_chk_fail"}


@needs_gcc
@pytest.mark.parametrize("case", ["DDPG", *slow(RECURRENT[:1]), "DDPG, normalised"])
def test_it_needs_no_operating_system(case: str, tmp_path: Path) -> None:
    """Of the C library it asks for three functions at most: nothing allocates."""
    assert undefined(object_of(case, tmp_path, "gcc"), "nm") <= ASKED


@needs_arm
@pytest.mark.parametrize("case", ["DDPG", *slow(RECURRENT[:1])])
def test_it_fits_a_microcontroller(case: str, tmp_path: Path) -> None:
    path = object_of(case, tmp_path, "arm-none-eabi-gcc", *MICROCONTROLLER)
    asked = {name for name in undefined(path, "arm-none-eabi-nm") if not name.startswith("aeabi_")}
    assert asked <= {"tanhf", "sqrtf", "memcpy", "memset"}, "fused multiply-adds are instructions of the processor"
    told = subprocess.run(["arm-none-eabi-size", path], check=True, capture_output=True, text=True).stdout
    text, data, bss = map(int, told.splitlines()[1].split()[:3])
    numbers = 4 * cost_of(policy_of(case).agent.policy_head()).parameters
    assert numbers < text < numbers + 2500
    assert data == bss == 0, "it has no state"
