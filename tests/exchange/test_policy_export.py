"""`export-policy` writes the best member's policy, says what it costs, and takes no file's word for a Python file."""

import ctypes
import dataclasses
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replaybench.baselines.controllers import Controller
from replaybench.baselines.rivals import Rival, Rivals, controller
from replaybench.controllers.interface.agent import LearnerSetting, Task
from replaybench.controllers.policies.policy import load_policy, policy_facts
from replaybench.controllers.registry import load_learner
from replaybench.data.policy_file import read_policy, write_policy
from replaybench.data.record import write_record
from replaybench.data.run_folder import RunFolder
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.pendulum import PendulumDCSC
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import make_plant
from replaybench.exchange.policy_export import ExportForm, export_policy
from replaybench.experiments.cell_lookup import find_file
from replaybench.runtime.errors import UserError
from tests.helpers.cells import small_study
from tests.helpers.commands import Capsys, Patch, call
from tests.helpers.refusals import refuses


def stored(folder: Path, plant: str = "PendulumDCSC") -> Path:
    """A policy file of three members, of whom the last is best but the second did best in its last greedy episode."""
    kind, config = load_learner("TD3")
    agent = kind(config(actor_hidden=(8,)), LearnerSetting(Task(1, 1, 0.95, 1.0), 0, range(3), 50.0))
    cell = {"plant": plant, "parameters": {}, "observe": ["angle"], "learner": "TD3", "strategy": "FULL[PER]"}
    facts = {"id": "abc", "cell": {**cell, "noise": 0.02, "first_member": 4}}
    path = folder / "policy.safetensors"
    for name, array in agent.weights().items():
        array[2] *= 10 if name.startswith("actor") else 1
    write_policy(path, agent.weights(), {**facts, "policy": policy_facts("TD3", agent, 50.0)})
    greedy = np.array([[-1.0, -9.0], [-5.0, -2.0], [-3.0, np.nan]])
    write_record(folder / "scores.h5", "scores", {}, {"reward_greedy": greedy})
    return path


def test_the_best_members_policy_in_c_with_units_and_cost(tmp_path: Path) -> None:
    told = "\n".join(export_policy(stored(tmp_path), None, "c", tmp_path / "my-rig.h", None, None))
    text = (tmp_path / "my-rig.h").read_text()
    assert "A policy for PendulumDCSC, learned by TD3" in text
    assert "Strategy FULL[PER], noise 0.02, seed 6." in text
    assert "[0] angle in rad, an angle in [-pi, pi)" in text
    assert "[0] (angle - 0) / 3.14159" in text
    assert "my_rig_predict" in text
    assert re.search(
        r"member 2 \(the best of 3 in 32 evaluation .*; mean reward -145.* \[-145.*\] in 32 others\)", told
    )
    assert "25 numbers" in told
    assert "16 multiply-adds; tanh, divisions and roots: 1" in told
    if shutil.which("cc"):
        command = told.partition("try it")[2].strip()
        done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert "64 commands: 64 equal" in done.stdout


CHANNEL: dict[str, Any] = {
    "delay": 0.03, "sensor_delay": 0.02, "resolution": {"angle": 2 * np.pi / 1024, "set point": 0.01},
    "differentiate": ["angular velocity"], "dead_zone": 0.05, "history": 2,
}  # fmt: skip
PROGRAM = """#include "rig.h"
rig_state state;
void start(void);
void step(const double *measured, double *command);
void start(void) { rig_start(&state); }
void step(const double *measured, double *command) { rig_step(&state, measured, command); }
"""


def through_channel(folder: Path, make: Callable[[], Controller], plant: Plant, observe: tuple[str, ...] = ()) -> int:
    """Compare `rig.h` with a controller in episodes through the channel; return how many of 200 commands differ.

    The C code gets what the sensors of a rig deliver: late states without the velocity, rounded or not.
    """
    (folder / "rig.c").write_text(PROGRAM)
    words = ["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2", "-shared", "-fPIC"]
    subprocess.run([*words, folder / "rig.c", "-o", folder / "rig.so", "-lm"], check=True)
    library, different = ctypes.CDLL(str(folder / "rig.so")), 0
    env, states = PopulationEnv(plant, 1, observe=observe, seed=3), list[Any]()
    for _ in range(2):
        (observation, _), act = env.reset(), make()
        library.start()
        states.clear()
        for step in range(100):
            states.append(env.get_state()["observed"][0])
            reading = states[max(0, step - plant.channel.sensor_periods(env.dt))].copy()
            if step % 2:  # as an encoder delivers it
                for name, size in plant.channel.resolution.items():
                    place = plant.state_names.index(name)
                    reading[place] = size * np.rint(reading[place] / size)
            command, action = np.zeros(len(plant.action_names)), act(observation)
            given = np.delete(reading, 1)
            library.step(*(array.ctypes.data_as(ctypes.c_void_p) for array in (given, command)))
            due = plant.denormalise_action(action[0])
            np.testing.assert_allclose(command, due, atol=1e-6 * plant.action_range()[1].max())
            different += bool((command != due).any())
            observation, *_ = env.step(action)
        assert np.ptp([state[0] for state in states]) > 0.1
    return different


def channelled(path: Path, plant: Plant, channel: dict[str, Any], observe: tuple[str, ...] = ()) -> None:
    """Write an untrained policy of a plant with a channel."""
    kind, config = load_learner("TD3")
    task = Task(plant.observation_size(observe), 1, 0.95, 1.0)
    agent = kind(config(actor_hidden=(8,)), LearnerSetting(task, 0, range(1), 50.0))
    for array in agent.weights().values():
        array *= 3
    cell = {"plant": plant.name, "parameters": {"channel": channel}, "observe": list(observe), "learner": "TD3"}
    write_policy(path, agent.weights(), {"cell": cell, "policy": policy_facts("TD3", agent, 50.0)})


def test_models_keep_the_past_actions_and_state_the_channel(tmp_path: Path) -> None:
    import onnx
    import torch

    plant, path = make_plant("Servo", channel=CHANNEL), tmp_path / "p.safetensors"
    channelled(path, plant, CHANNEL)
    policy, readings = load_policy(path), np.random.Generator(np.random.PCG64(1)).uniform(-1, 1, (10, 3))
    due, past = [], np.zeros(2, np.float32)
    for reading in readings.astype(np.float32):
        action = policy.predict(np.concatenate([reading, past]))[0]
        due.append(action)
        past = np.concatenate([action, past])[:2]
    lines = export_policy(path, 0, "torch", None, None, None)
    assert "takes    observation [N, 3], normalised as the learner's, history [N, 2]" in lines
    module, kept = torch.export.load(tmp_path / "p.pt2").module(), torch.zeros(1, 2)
    for reading, expected in zip(readings, due, strict=True):
        acted, kept = module(torch.tensor(reading[None], dtype=torch.float32), kept)
        np.testing.assert_allclose(acted.detach().numpy()[0], expected, rtol=1e-4, atol=1e-5)
    export_policy(path, 0, "onnx", None, None, None)
    model = onnx.load(tmp_path / "p.onnx")
    assert [value.name for value in model.graph.input] == ["observation", "history"]
    assert [value.name for value in model.graph.output] == ["action", "history_after"]
    found = {entry.key: json.loads(entry.value) for entry in model.metadata_props}
    assert (found["delay"], found["history"], found["channel"]["sensor_delay"]) == (0.03, [0.0, 0.0], 0.02)
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    session, past = runtime.InferenceSession(model.SerializeToString()), np.zeros((1, 2), np.float32)
    for reading, expected in zip(readings.astype(np.float32), due, strict=True):
        acted, past = session.run(None, {"observation": reading[None], "history": past})
        np.testing.assert_allclose(acted[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc here")
@pytest.mark.parametrize(
    ("name", "observe"), [("Servo", ()), ("Servo", ("angular velocity", "set point")), ("PendulumDCSC", ())]
)
def test_c_acts_as_the_policy_through_the_channel(
    name: str, observe: tuple[str, ...], tmp_path: Path, monkeypatch: Patch
) -> None:
    """Differences, also across ±π, rounding, past commands and units. A policy need not observe the position itself."""
    monkeypatch.setattr(PendulumDCSC, "initial_state", (3.1, 9.0))
    channel = CHANNEL if name == "Servo" else {**CHANNEL, "resolution": {"angle": 0.01}}
    plant = make_plant(name, channel=channel)
    channelled(tmp_path / "p.safetensors", plant, channel, observe)
    lines = export_policy(tmp_path / "p.safetensors", 0, "c", tmp_path / "rig.h", None, None)
    text = (tmp_path / "rig.h").read_text().replace("\n * ", " ")
    for words in ("30 ms after the sample", "RIG_DELAY 0.03", "the difference quotient of angle"):
        assert words in text
    policy = load_policy(tmp_path / "p.safetensors")
    assert through_channel(tmp_path, lambda: lambda seen: policy.predict(seen)[0], plant, observe) < 10
    assert "64 commands: 64 equal" in self_test(tmp_path, lines[-1])


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc here")
@pytest.mark.parametrize("name", ["PID", "LQI"])
def test_rivals_in_c_act_as_in_python(name: str, tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    study = small_study(plants=("Servo",), strategies=("FULL[Uniform]", "FIFO[Uniform]"), seeds=1, episodes=1)
    channel = {key: value for key, value in CHANNEL.items() if key != "delay"}
    study = dataclasses.replace(study, channel=channel, delay=(0.03,))
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    run.study.write_text("")
    cells = study.cells()
    run.provenance.write_text(json.dumps({"cells": {cell.id: {"cell": dataclasses.asdict(cell)} for cell in cells}}))
    rival = Rival(-0.5, {}, "tuned", (4.0, 6.0, 0.05, 0.01))
    monkeypatch.setattr(Rivals, "score", lambda *given: rival)
    assert call("export-policy", run.path, "--rival", name, "--output", tmp_path / "rig.h") == 0
    assert "64 commands:" in self_test(tmp_path, capsys.readouterr().out)
    plant = cells[0].make_plant()
    through_channel(tmp_path, lambda: controller(plant, 50.0, name, rival, [0]), plant)


def test_mistakes_about_rivals_are_one_line(tmp_path: Path, capsys: Capsys) -> None:
    run = RunFolder(tmp_path)
    cells = small_study(plants=("Servo", "PendulumDCSC"), noise=(0.0, 0.1), seeds=1, episodes=1).cells()
    run.study.write_text("")
    run.provenance.write_text(json.dumps({"cells": {cell.id: {"cell": dataclasses.asdict(cell)} for cell in cells}}))
    for words, said in (
        ((), "4 cells of .* fit; say which: --plant Servo or PendulumDCSC; --noise 0 or 0.1"),
        (("--plant", "PendulumDCSC", "--noise", 0), "PendulumDCSC declares nothing in regulated, so it has no PID"),
        (("--strategy", "FIFO[Uniform]"), "does not depend on --strategy; leave it out"),
        (("--format", "onnx"), "does not depend on --format; leave it out"),
        (("--output", "pid.onnx", "--plant", "Servo", "--noise", 0), "--output must end in .h"),
    ):
        assert call("export-policy", tmp_path, "--rival", "PID", *words) == 2
        assert re.search(said, capsys.readouterr().err.replace("\n", " "))
    assert call("export-policy", stored(tmp_path), "--rival", "PID") == 2
    assert "is no run folder" in capsys.readouterr().err


def self_test(folder: Path, printed: str) -> str:
    """Run the command that an export has printed, and return what it prints."""
    command = printed.partition("try it")[2].strip()
    return subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("form", ["c", "torch", "onnx"])
def test_a_diverged_member_is_not_exported(form: ExportForm, tmp_path: Path) -> None:
    path = stored(tmp_path)
    facts, weights = read_policy(path)
    weights["actor.0.bias"][0] = np.nan
    write_policy(path, weights, facts)
    with pytest.raises(UserError, match="member 0 .* NaN or infinite"):
        export_policy(path, 0, form, tmp_path / "out.h" if form == "c" else None, None, None)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["policy.safetensors", "scores.h5"]


def test_what_a_program_takes_and_gives_is_told(tmp_path: Path) -> None:
    told = "\n".join(export_policy(stored(tmp_path), None, "torch", None, None, None))
    assert "takes    observation [N, 1]" in told
    assert "gives    action [N, 1]" in told
    assert "allocation" not in told  # that is said of C


def test_models_hold_names_units_scale_and_rate(tmp_path: Path) -> None:
    import onnx
    import torch

    path = stored(tmp_path)
    export_policy(path, 0, "onnx", None, None, None)
    found = {entry.key: json.loads(entry.value) for entry in onnx.load(tmp_path / "policy.onnx").metadata_props}
    angle = {"name": "angle", "unit": "rad", "center": 0.0, "scale": np.pi, "periodic": True}
    voltage = {"name": "voltage", "unit": "V", "center": 0.0, "scale": 3.0}
    assert found == {"frequency": 50.0, "states": [angle], "actions": [voltage], "delay": 0.0}
    export_policy(path, 0, "torch", None, None, None)
    extra: dict[str, str] = {"policy.json": ""}
    torch.export.load(tmp_path / "policy.pt2", extra_files=extra)
    assert json.loads(extra["policy.json"]) == found


def test_a_folder_that_no_sweep_wrote_names_its_files(tmp_path: Path) -> None:
    path = stored(tmp_path)
    told = re.escape(f"no study.toml); name a file of it: {path} or {tmp_path}/scores.h5")
    refuses(told, find_file, tmp_path, None, "policy")
    (tmp_path / "empty").mkdir()
    refuses("name the folder that a sweep wrote", find_file, tmp_path / "empty", None, "buffer")


@pytest.mark.parametrize("plant", ["none.py:Mine", "gymnasium:evil:Foo-v0", "gymnasium:evil.py:Foo-v0"])
def test_a_policy_file_runs_no_code_it_names(plant: str, tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('it ran')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    path = stored(tmp_path, plant)
    refuses(f"add --plant {plant} if you trust that file; --member 0", export_policy, path, None, "c", None, None, None)
    assert not (tmp_path / "policy.h").exists()
    lines = export_policy(path, 0, "c", None, None, None)
    assert "its units are not in the policy's file" in (tmp_path / "policy.h").read_text().replace("\n * ", "")
    assert any(f"--plant {plant} if you trust that file" in line for line in lines)
    if plant.startswith("none"):
        (tmp_path / "policy.h").unlink()
        refuses("no plant file", export_policy, path, 0, "c", None, plant, None)


@pytest.mark.parametrize(
    ("form", "name", "said"),
    [
        (None, "rig.bin", "--output must end in .h, .pt2 or .onnx, not be '.*rig.bin'"),
        ("torch", "rig", "must end in"),
        ("c", "rig.pt2", "--format c does not end in .pt2, as .*rig.pt2 does"),
        (None, "mine.h", "mine.h exists already; remove it or choose another --output"),
    ],
)
def test_wrong_or_existing_files_are_refused(form: ExportForm | None, name: str, said: str, tmp_path: Path) -> None:
    path, mine = stored(tmp_path), tmp_path / "mine.h"
    mine.write_text("mine")
    refuses(said, export_policy, path, 0, form, tmp_path / name, None, None)
    assert mine.read_text() == "mine"
    assert not list(tmp_path.glob("rig*"))


def test_the_suffix_chooses_the_form_and_a_files_learner_may_be_named(tmp_path: Path) -> None:
    assert call("export-policy", stored(tmp_path), "--learner", "TD3", "--output", tmp_path / "rig.PT2") == 0
    assert (tmp_path / "rig.PT2").read_bytes().startswith(b"PK")
    export_policy(tmp_path / "policy.safetensors", 0, None, None, None, None)
    assert (tmp_path / "policy.h").is_file()


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    path = stored(tmp_path)
    refuses("members 0 to 2, not 3", export_policy, path, 3, "c", None, None, None)
    for name in ("7.h", "int.h", "-.h"):
        refuses("is no name; choose --output", export_policy, path, 0, "c", tmp_path / name, None, None)
    refuses("state of Magman to observe", export_policy, path, 0, "c", None, "Magman", None)
    assert not list(tmp_path.glob("*.h"))


def test_a_run_finds_its_cells_by_any_path_of_a_file(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    cells = small_study(strategies=("FULL[PER]",), seeds=2, episodes=3).cells()
    [cell] = [dataclasses.replace(each, plant="plants/own.py:Mine") for each in cells]
    run.study.write_text("")
    run.provenance.write_text(json.dumps({"cells": {cell.id: {"cell": dataclasses.asdict(cell)}}}))
    buffer = run.cell(cell.id) / "buffer.h5"
    buffer.parent.mkdir(parents=True)
    buffer.touch()
    for path in ("plants/own.py", "./plants/own.py", "../plants/own.py", "own.py"):
        assert find_file(tmp_path, None, "buffer", plant=f"{path}:Mine") == (buffer, None)
    assert find_file(tmp_path, None, "buffer", plant="Mine") == (buffer, None), "as tables print it"
    for other in ("plants/other.py:Mine", "plants/own.py:Other", "Other"):
        refuses("has no cell of plant", find_file, tmp_path, None, "buffer", plant=other)
