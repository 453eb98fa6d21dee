"""Learners that begin with a stored policy: whose weights they are, what of a cell's identity, and what is refused."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from cells import advanced

from replaybench.controllers.learner import Learner
from replaybench.data.policy_file import read_policy, write_policy
from replaybench.evidence.claims_evidence import Evidence
from replaybench.experiments.cell import CellRun, make_agent, run_cell
from replaybench.experiments.study import Cell, Study, read_study
from replaybench.experiments.study_record import resolved, write_toml
from replaybench.runtime.configuration import build
from replaybench.runtime.errors import UserError

SOON = {"SAC": {"warmup_episodes": 0}, "V-RACER": {"warmup_episodes": 1}}


def study(name: str = "DDPG", start: dict[str, Any] | None = None, **changed: Any) -> Study:
    words: dict[str, Any] = {
        "name": "t", "plants": ("PendulumDCSC",), "learners": (name,), "strategies": ("FIFO[Uniform]",), "seeds": 3,
        "episodes": 2, "greedy_every": 1, "capacity": 1000, "learner": {name: SOON[name]} if name in SOON else {},
    }  # fmt: skip
    return build(Study, {**words, **changed, "start": {name: start} if start else {}}, "test")


def learned(folder: Path, learner: str = "DDPG", **changed: Any) -> Path:
    """Leave the policy file of a short run of three members."""
    assert run_cell(study(learner, **changed).cells()[0], folder, "none")
    return folder / "policy.safetensors"


def begun(cell: Cell) -> dict[str, Any]:
    agent = make_agent(cell, cell.make_plant())
    assert isinstance(agent, Learner)
    return {name: array.copy() for name, array in agent.weights().items()}


@pytest.mark.parametrize("learner", ["DDPG", "SAC", "V-RACER"])
def test_seeds_take_the_members_of_the_file_in_turn(tmp_path: Path, learner: str) -> None:
    path = learned(tmp_path, learner)
    stored = read_policy(path)[1]
    cells = study(learner, {"policy": f"{path}"}, seeds=5, block=4).cells()
    for cell, members in zip(cells, ([0, 1, 2, 0], [1]), strict=True):
        for name, array in begun(cell).items():
            np.testing.assert_array_equal(array, stored[name][members], err_msg=name)
    cell = study(learner, {"policy": f"{path}", "member": 1}).cells()[0]
    for name, array in begun(cell).items():
        np.testing.assert_array_equal(array, stored[name][[1, 1, 1]], err_msg=name)
    agent = make_agent(cell, cell.make_plant())
    assert isinstance(agent, Learner)
    for name, target in agent.targets.items():
        np.testing.assert_array_equal(target.parameters, agent.networks[name].parameters)


def test_no_first_value_takes_the_place_of_a_stored_one(tmp_path: Path) -> None:
    """V of a V-RACER that begins anew is set to the mean return of its first episodes; here it has been learned."""
    path = learned(tmp_path, "V-RACER")
    still = {"learner": {"V-RACER": {**SOON["V-RACER"], "learning_rate": 1e-9}}}
    run = CellRun(study("V-RACER", {"policy": f"{path}"}, **still).cells()[0])
    seen = np.zeros((3, 1, 2), np.float32)
    before = run.agent.value(seen).copy()
    run = advanced(run.cell)
    assert isinstance(run.agent, Learner)
    assert run.agent.steps[0] > 0
    np.testing.assert_allclose(run.agent.value(seen), before, atol=1e-4)
    assert np.abs(before).min() > 1e-3


def test_what_a_cell_starts_with_is_part_of_its_identity_but_not_where_it_lies(tmp_path: Path) -> None:
    path = learned(tmp_path / "one")
    other = tmp_path / "elsewhere.safetensors"
    shutil.copy(path, other)

    def id_of(start: dict[str, Any] | None) -> str:
        return study(start=start).cells()[0].id

    assert id_of({"policy": f"{path}"}) == id_of({"policy": f"{other}"}) == id_of({"policy": f"{path.parent}"})
    facts, weights = read_policy(path)
    write_policy(other, {name: array + 1 for name, array in weights.items()}, facts)
    ids = [id_of(None), id_of({"policy": f"{path}"}), id_of({"policy": f"{path}", "member": 0})]
    assert len({*ids, id_of({"policy": f"{other}"})}) == 4


def test_a_study_says_what_it_starts_with(tmp_path: Path) -> None:
    path = learned(tmp_path)
    made = study("DDPG:tuned", {"policy": f"{path}"})
    cells = made.cells()
    file = tmp_path / "study.toml"
    file.write_text(write_toml(resolved(made, cells)), encoding="utf-8")
    again = read_study(file)
    assert [cell.id for cell in again.cells()] == [cell.id for cell in cells]
    facts, weights = read_policy(path)
    write_policy(path, {name: array + 1 for name, array in weights.items()}, facts)
    with pytest.raises(UserError, match="holds another policy than when this run began; restore it, or leave content"):
        again.cells()
    with pytest.raises(UserError, match="holds another policy"):
        make_agent(cells[0], cells[0].make_plant())
    assert made.cells()[0].id != cells[0].id


def test_a_run_that_began_with_a_policy_is_no_evidence_for_one_that_did_not(tmp_path: Path) -> None:
    path = learned(tmp_path)
    plain, started = study().cells()[0], study(start={"policy": f"{path}"}).cells()[0]
    assert started.start is not None
    table = {"start": {"DDPG": dataclasses.asdict(started.start)}}

    def told(run: dict[str, Any], cell: Cell) -> list[str]:
        coords = {"update_every": ("plant", [0]), "plant": ["PendulumDCSC"], "episode": [1, 2]}
        data = xr.Dataset(coords=coords)
        differences = Evidence(tmp_path, data, run).differences(cell)
        return [name for name in differences if name.startswith("start")]

    assert told(table, plain) == ["start.DDPG"]
    assert told({}, started) == ["start.DDPG"]
    assert not told(table, started)
    assert not told({}, plain)


def test_blocks_of_a_run_are_taken_together(tmp_path: Path) -> None:
    made = study(seeds=5, block=2)
    for number, cell in enumerate(made.cells()):
        assert run_cell(cell, tmp_path / "cells" / f"{9 - number}", "none")  # not in the order of their names
    whole = begun(study(start={"policy": f"{tmp_path}"}, seeds=7).cells()[0])
    for name, array in whole.items():
        parts = [read_policy(tmp_path / "cells" / f"{9 - number}" / "policy.safetensors")[1] for number in range(3)]
        stored = np.concatenate([part[name] for part in parts])
        np.testing.assert_array_equal(array, stored[[0, 1, 2, 3, 4, 0, 1]], err_msg=name)
    with pytest.raises(UserError, match="holds members 0 to 4, not 5"):
        study(start={"policy": f"{tmp_path}", "member": 5}).cells()
    assert run_cell(study(noise=(0.1,)).cells()[0], tmp_path / "cells" / "noisy", "none")
    with pytest.raises(UserError, match="policies of 2 grid points; name the file of one, as .*PendulumDCSC DDPG FIFO"):
        study(start={"policy": f"{tmp_path}"}).cells()
    with pytest.raises(UserError, match="holds no policies"):
        study(start={"policy": f"{tmp_path / 'cells'}"}).cells()


def test_a_diverged_member_is_refused_before_anything_runs(tmp_path: Path) -> None:
    path = learned(tmp_path)
    facts, weights = read_policy(path)
    weights["actor.0.bias"][2] = np.nan
    write_policy(path, weights, facts)
    with pytest.raises(UserError, match="member 2 .* NaN or infinite"):
        study(start={"policy": f"{path}"}, seeds=3).cells()
    study(start={"policy": f"{path}"}, seeds=2).cells()
    study(start={"policy": f"{path}", "member": 1}, seeds=3).cells()


def test_what_does_not_fit_is_refused_before_anything_runs(tmp_path: Path) -> None:
    path = learned(tmp_path)
    start = {"policy": f"{path}"}
    with pytest.raises(UserError, match=r"do not fit .* DDPG; .*\(actor_hidden = \[\d+, \d+\] there, \[8\] here\)"):
        study(start=start, learner={"DDPG": {"actor_hidden": [8]}}).cells()
    with pytest.raises(UserError, match=r"do not fit .* SAC; .*\(learner = \"DDPG\" there, \"SAC\" here"):
        study("SAC", start).cells()
    with pytest.raises(UserError, match="observation_size = 2 there, 1 here"):
        study(start=start, observe=("angle",)).cells()
    with pytest.raises(UserError, match="holds members 0 to 2, not 3"):
        study(start={**start, "member": 3}).cells()
    with pytest.raises(UserError, match=r"nowhere.safetensors"):
        study(start={"policy": "nowhere.safetensors"}).cells()
    with pytest.raises(UserError, match=r"name in table \[start\]: 'NAF'"):
        build(Study, {"name": "t", "plants": ("Pendulum",), "strategies": ("FIFO[Uniform]",),
                      "start": {"NAF": start}}, "test")  # fmt: skip
    with pytest.raises(UserError, match="policy"):
        study(start={"member": 0})
