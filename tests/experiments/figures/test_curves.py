"""Curves of other programs: reading them, and drawing them over a sweep's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from drawn_studies import DP, RANDOM, line, plant_results

from replaybench.reports.figures.curves import read_others
from replaybench.reports.figures.learning_curves import STEPS_LABEL, learning_curves
from replaybench.runtime.errors import UserError

MONITOR = '#{"t_start": 1.0, "env_id": "None"}\nr,l,t\n-20,2,0.1\n-40,4,0.2\n-30,3,0.3\n'


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_monitor_files_and_plain_csv_are_read(tmp_path: Path) -> None:
    monitor = write(tmp_path / "monitor.csv", MONITOR)
    plain = write(tmp_path / "plain.csv", "\ufeffSeed,Step,Return\n1,0,-5\n\n1,100,-4\n")
    first, second = read_others([f"SB3={monitor}", f"SB3={monitor}", f"own={plain}"])
    assert [len(first.runs), len(second.runs)] == [2, 1]
    steps, returns, lengths = first.runs[0]
    assert (steps.tolist(), returns.tolist()) == ([2.0, 6.0, 9.0], [-20.0, -40.0, -30.0])
    assert lengths is not None
    assert (second.runs[0][0].tolist(), second.runs[0][1].tolist()) == ([0.0, 100.0], [-5.0, -4.0])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "no column 'step'"),
        ("step,return\n", "no row of data"),
        ("step,return\n1,x\n", "'x' is no finite number"),
        ("step,return\n1\n", "is no finite number"),
        ("step,return\n5,1\n3,1\n", "do not ascend"),
        ("", "no column"),
    ],
)
def test_other_files_are_refused(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=words):
        read_others([f"x={write(tmp_path / 'x.csv', text)}"])


def test_they_are_drawn_in_the_unit_of_the_panel_over_steps(tmp_path: Path) -> None:
    middle = 10 * (RANDOM + DP) / 2  # of an episode of 10 steps, half-way between the references
    file = write(tmp_path / "monitor.csv", "r,l,t\n" + f"{middle},10,1\n" * 3)
    (axes,) = learning_curves(plant_results(tmp_path), others=read_others([f"SB3={file}"])).axes
    assert axes.get_xlabel() == STEPS_LABEL
    x, y = line(axes, "SB3")
    np.testing.assert_allclose(y, 0.5)
    assert (x[0], x[-1]) == (10.0, 30.0)


def test_own_curves_lie_at_the_steps_after_their_episodes(tmp_path: Path) -> None:
    data = plant_results(tmp_path)
    by_episode, by_steps = (line(learning_curves(data, steps).axes[0], "FULL[PER]")[0] for steps in (False, True))
    np.testing.assert_allclose(by_steps, by_episode * 200)  # the length of every episode
