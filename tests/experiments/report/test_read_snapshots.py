"""Damaged snapshots are refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_results import made_results
from made_snapshots import ROUNDS, add_snapshots

from replaybench.data.record import write_record
from replaybench.experiments.results_file import write_results
from replaybench.reports.page.report import make_report
from replaybench.runtime.errors import UserError

CELL = {"plant": "none", "parameters": {}, "fingerprint": ""}


@pytest.mark.parametrize(
    ("cell", "origin", "words"),
    [(CELL, (3,), "origin is not of shape"), (CELL, (), "origin is not of shape"), (3, (1, 3, 10), "is missing")],
)
def test_damaged_snapshots_are_one_line(cell: Any, origin: tuple[int, ...], words: str, tmp_path: Path) -> None:
    data = made_results(
        ["Magman"], ["DDPG"], ["FULL[Uniform]"], [0.0], [100.0], seeds=2, episodes=60, ends=lambda *_: 0.5, exact=False
    )
    add_snapshots(tmp_path, data)
    write_results(tmp_path / "results.nc", data)
    arrays = {"origin": np.zeros(origin, np.int64), "collected": np.zeros((1, 10)), "exploration": np.zeros((1, 3))}
    (path,) = tmp_path.glob("cells/*/snapshots.h5")
    write_record(path, "snapshots", {"cell": cell, "rounds": ROUNDS}, arrays)
    with pytest.raises(UserError, match=words):
        make_report(tmp_path)
