"""Numbers may change only together with NUMERICS_VERSION, which is part of every cell's identity.

If this fails, results made before the change must not be mixed with new ones: raise `replaybench.NUMERICS_VERSION` and
store the new numbers with `python tests/golden/test_numerics_version.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from replaybench import NUMERICS_VERSION
from replaybench.baselines.scores import reference
from replaybench.envs.registry import make_plant
from replaybench.experiments.cell import CellRun
from replaybench.experiments.study import Study

GOLDEN = Path(__file__).with_name("numerics.json")
CASES = [("PendulumDCSC", "FULL[PER+IS]"), ("Magman", "Resv[Uniform]"), ("Pendulum", "FIFO[PER]")]


def measure() -> dict[str, list[float]]:
    """Rewards of a few episodes of each plant with noise, and its references."""
    found = {}
    for plant, strategy in CASES:
        study = Study(
            name="golden", plants=(plant,), strategies=(strategy,), noise=(0.02,), seeds=2, episodes=5, capacity=500,
            greedy_every=5,
        )  # fmt: skip
        run = CellRun(study.cells()[0])
        while run.episode < 5:
            run.advance()
        found[f"{plant} {strategy}"] = [*run.reward.mean(axis=0), run.reward_greedy.mean()]
        known = reference(make_plant(plant))
        found[f"{plant} references"] = [known.random, known.zero, known.lqr, known.dp, known.interpolated]
    return found


def test_numbers_are_those_of_this_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # References must be computed by the code as it is now, not fetched.
    monkeypatch.setenv("REPLAYBENCH_CACHE", str(tmp_path))
    stored = json.loads(GOLDEN.read_text())
    assert str(NUMERICS_VERSION) in stored, "store this version's numbers: see the top of this file"
    for name, values in measure().items():
        # Processors round differently in the last place, which five episodes of learning amplify.
        np.testing.assert_allclose(values, stored[str(NUMERICS_VERSION)][name], rtol=1e-3, err_msg=name)


if __name__ == "__main__":
    versions = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    versions[str(NUMERICS_VERSION)] = {name: [float(v) for v in values] for name, values in measure().items()}
    GOLDEN.write_text(json.dumps(versions, indent=1) + "\n")
