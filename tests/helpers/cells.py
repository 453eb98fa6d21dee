"""What tests ask of a cell that runs."""

from __future__ import annotations

from replaybench.controllers.learner import Learner
from replaybench.experiments.training.cell import CellRun


def updates_of(run: CellRun) -> int:
    """Return the updates that its learner has done."""
    assert isinstance(run.agent, Learner)
    return int(run.agent.steps[0])
