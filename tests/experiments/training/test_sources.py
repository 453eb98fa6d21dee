"""A cell is named by what runs in it: others' strategies and learners count with their source, as plants do."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from replaybench.experiments.cell import CellRun
from replaybench.experiments.start import EXAMPLES
from replaybench.experiments.study import Cell, Study
from replaybench.runtime.errors import UserError

STRATEGY = "from replaybench.replay.strategies.uniform import Uniform\nclass Mine(Uniform): pass\n"
LEARNER = """
from replaybench.controllers.algorithms.dqn import DQN, DQNConfig
from neighbour import NUMBER
class Mine(DQN): pass
class MineConfig(DQNConfig): pass
"""


def cell(learner: str = "DQN", strategy: str = "FIFO[Uniform]", plant: str = "PendulumDCSC") -> Cell:
    study = Study(name="t", plants=(plant,), learners=(learner,), strategies=(strategy,), seeds=1, episodes=1)
    return study.cells()[0]


def test_cells_of_the_packages_own_do_not_depend_on_the_field() -> None:
    """Their ids are those that they had before there was one."""
    mine = cell("V-RACER", "Drop(0.3)*FIFO[PER+IS+ReFER]")
    assert mine.sources == ""
    assert dataclasses.replace(mine, sources="x").id != mine.id


@pytest.mark.parametrize("what", ["strategy", "learner"])
def test_an_edited_strategy_or_learner_is_another_cell(what: str, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    named = {"strategy": f"FIFO[{file}:Mine]", "learner": f"{file}:Mine:variant"}[what]

    def of(source: str) -> Cell:
        file.write_text(source)
        return cell(**{what: named})

    source = {"strategy": STRATEGY, "learner": LEARNER}[what]
    (tmp_path / "neighbour.py").write_text("NUMBER = 1\n")
    first, edited = of(source), of(source + "# edited\n")
    assert "own.py " in first.sources
    assert ("neighbour.py " in first.sources) == ("neighbour" in source)
    assert edited.id != first.id
    with pytest.raises(UserError, match=r"own\.py:Mine.* its source has changed"):
        CellRun(first)
    CellRun(edited).close()


def test_an_edited_plant_is_another_cell(tmp_path: Path) -> None:
    source, file = (EXAMPLES / "cart_pole.py").read_text(encoding="utf-8"), tmp_path / "own.py"
    file.write_text(source, encoding="utf-8")
    before = cell("DDPG", plant=f"{file}:CartPole").id
    file.write_text(source.replace("return ", "return 1.0 and ", 1), encoding="utf-8")
    assert cell("DDPG", plant=f"{file}:CartPole").id != before
