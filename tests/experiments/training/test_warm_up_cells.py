"""SAC and TD3 act at random in exactly the rounds before the first update, whichever schedule, killed or not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cells import updates_of

from replaybench.experiments.cell import CellRun
from replaybench.experiments.study import Cell, Study
from replaybench.runtime.streams import Stream

STEPS = 20
"""Of the plant's longest episode."""
DRIFTING = f"{Path(__file__).parents[2] / 'helpers' / 'drifting.py'}:Drifting"
WARM_UP = 2
SEEDS = 3
each = pytest.mark.parametrize("learner", ["SAC", "TD3"])
each_schedule = pytest.mark.parametrize("every", [0, 1, 50], ids=["episodes", "steps", "longer than a round"])


def make_cell(learner: str, every: int, warm_up: int = WARM_UP) -> Cell:
    return Study(
        name="t", plants=(DRIFTING,), strategies=("FIFO[Uniform]",),
        seeds=SEEDS, episodes=6, capacity=200, greedy_every=3, update_every=every, learners=(learner,),
        learner={learner: {"warmup_episodes": warm_up}},
    ).cells()[0]  # fmt: skip


def actions_of(run: CellRun, member: int) -> np.ndarray:
    """Return what a member did, in order."""
    done = run.replay.collected[member]
    order = np.argsort(run.replay.columns.serial[member, :done])
    return np.asarray(run.replay.columns.column("action")[member, order])


@each
@each_schedule
def test_random_are_the_actions_of_the_rounds_before_the_first_update(learner: str, every: int) -> None:
    """To the step, in the midst of an episode, too."""
    run = CellRun(make_cell(learner, every))
    for _ in range(WARM_UP):
        run.advance()
    assert updates_of(run) == 0
    if every:
        assert run.episodes.active.any()
    random = run.replay.collected.copy()
    run.advance()
    assert updates_of(run) > 0
    for member in range(SEEDS):
        count = random[member]
        actions = actions_of(run, member)
        uniform = Stream(0, [member], "warm-up").uniform(len(actions)).T
        expected = (2.0 * uniform - 1.0).astype(np.float32)
        np.testing.assert_array_equal(actions[:count], expected[:count])
        assert count == WARM_UP * STEPS or not every
        assert len(actions) > count
        assert not np.isin(actions[count:], expected).any()


@each
def test_without_warm_up_nothing_is_random(learner: str) -> None:
    run = CellRun(make_cell(learner, 1, warm_up=0))
    run.advance()
    uniform = Stream(0, [0], "warm-up")
    np.testing.assert_array_equal(run.agent.state_dict()["warm_up_stream"][:1], uniform.state)
    expected = (2.0 * uniform.uniform(2 * STEPS) - 1.0).astype(np.float32)
    assert not np.isin(actions_of(run, 0), expected).any()
