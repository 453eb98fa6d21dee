"""`export-policy` writes the best member's policy, says what it costs, and takes no file's word for a Python file."""

import dataclasses
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from replaybench.controllers.interface.agent import LearnerSetting, Task
from replaybench.controllers.policies.policy import policy_facts
from replaybench.controllers.registry import load_learner
from replaybench.data.policy_file import read_policy, write_policy
from replaybench.data.record import write_record
from replaybench.data.run_folder import RunFolder
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


def test_the_best_members_policy_in_c_with_units_and_cost(tmp_path: Path, capsys: Capsys) -> None:
    export_policy(stored(tmp_path), None, "c", tmp_path / "my-rig.h", None, None)
    text = (tmp_path / "my-rig.h").read_text()
    assert "A policy for PendulumDCSC, learned by TD3" in text
    assert "Strategy FULL[PER], noise 0.02, seed 6." in text
    assert "[0] (angle - 0) / 3.14159, angle in rad, an angle in [-pi, pi)" in text
    assert "my_rig_predict" in text
    told = capsys.readouterr().out
    assert re.search(
        r"member 2 \(the best of 3 in 32 evaluation .*; mean reward -145.* \[-145.*\] in 32 others\)", told
    )
    assert "25 numbers" in told
    assert "16 multiply-adds; tanh, divisions and roots: 1" in told
    if shutil.which("cc"):
        command = told.partition("try it")[2].strip()
        done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert "16 actions: 16 equal" in done.stdout


@pytest.mark.parametrize("form", ["c", "torch", "onnx"])
def test_a_diverged_member_is_not_exported(form: ExportForm, tmp_path: Path) -> None:
    path = stored(tmp_path)
    facts, weights = read_policy(path)
    weights["actor.0.bias"][0] = np.nan
    write_policy(path, weights, facts)
    with pytest.raises(UserError, match="member 0 .* NaN or infinite"):
        export_policy(path, 0, form, tmp_path / "out.h" if form == "c" else None, None, None)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["policy.safetensors", "scores.h5"]


def test_what_a_program_takes_and_gives_is_told(tmp_path: Path, capsys: Capsys) -> None:
    path = stored(tmp_path)
    export_policy(path, None, "torch", None, None, None)
    told = capsys.readouterr().out
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
    assert found == {"frequency": 50.0, "states": [angle], "actions": [voltage]}
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
def test_a_policy_file_runs_no_code_it_names(plant: str, tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('it ran')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    path = stored(tmp_path, plant)
    export_policy(path, 0, "c", None, None, None)
    assert "its units are not in the policy's file" in (tmp_path / "policy.h").read_text().replace("\n * ", "")
    assert f"--plant {plant} if you trust that file" in capsys.readouterr().out
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
