"""The contract of every learner: all that are registered, of single steps, of segments, recurrent and with traces."""

import re
from typing import Any

import numpy as np
import pytest

from replaybench.controllers.registry import LEARNERS, load_learner
from replaybench.evidence.contract_checks import LEARNER, learner_cell
from replaybench.evidence.contracts import checked, difference
from replaybench.experiments.cell import CellRun
from replaybench.experiments.study import Cell
from replaybench.replay.buffer import Replay
from tests.helpers.cells import advanced, small_study
from tests.helpers.refusals import refuses
from tests.helpers.tiers import slow

STRATEGIES = ("FIFO[ERE]", "FIFO[AER]", "Resv[ERE+PER]", "TDE[Uniform+FIS]", "Expl[PERprop+IS]")
MEMORY: dict[str, Any] = {"layers": 1, "units": 4, "window": 4}
VARIANTS: dict[str, dict[str, Any]] = {
    "DDPG:normalised": {
        "layer_norm": True, "output_bound": 3e-3, "normalise": {"observations": True, "clip": 5.0, "rewards": True},
    },
    "DDPG:gaussian": {"exploration": {"form": "gaussian", "last_sigma": 0.1, "decay_episodes": 2, "truncate": 3.0}},
    "DDPG:parameter": {"exploration": {"form": "parameter", "recent": 8}},
    "DDPG:stored": {"memory": MEMORY},
    "NAF:burn-in": {"memory": {**MEMORY, "start": "burn-in", "burn_in": 2}},
    "V-RACER:stored": {"memory": MEMORY},
    "V-RACER:zero": {"memory": {**MEMORY, "start": "zero"}, "sigma": "network"},
}  # fmt: skip
"""Learners of other networks, of other exploration, and recurrent ones."""
FAST = ("DDPG", "V-RACER", "DQN")
"""One learner of each type: with exploration noise, with a stochastic policy, for choices."""
every_learner = pytest.mark.parametrize("learner", slow((*LEARNERS, *VARIANTS), but=FAST))
CHUNKED = [name for name in LEARNERS if load_learner(name)[0].supports_chunks]


def cell_of(learner: str, strategy: str = "FULL[PER+IS]", updating: int = 2) -> Cell:
    soon = {"warmup_episodes": 1} if getattr(load_learner(learner)[1], "warmup_episodes", 0) > 1 else {}
    return learner_cell(learner, strategy, {**soon, **VARIANTS.get(learner, {})}, updating)


@pytest.mark.parametrize("learner", LEARNERS.own)
def test_a_plant_of_discrete_actions_is_learned_or_refused_before_compute(learner: str) -> None:
    """The refusal names learner, plant, and the learners that fit."""
    plant = "gymnasium:CartPole-v1"
    settings: dict[str, Any] = {"seeds": 2, "episodes": 1, "update_every": 250, "capacity": 600, "noise": (0.01,)}
    study = small_study(plants=(plant,), learners=(learner,), **settings)
    fitting = [name for name in LEARNERS.own if load_learner(name)[0].discrete]
    if learner not in fitting:
        refuses(f"^{re.escape(learner)} .*{plant}.*{'.*'.join(fitting)}$", study.cells)
        return
    run = CellRun(study.cells()[0])
    run.advance()
    assert np.isfinite(run.reward).all()
    states = np.random.Generator(np.random.PCG64(0)).normal(size=(2, 500, 4)).astype(np.float32)
    assert set(np.unique(run.agent.policy(states))) == {-1.0, 1.0}


@every_learner
def test_every_learner_keeps_its_promises(learner: str) -> None:
    assert not [result for result in checked(LEARNER, cell_of(learner)) if result[1]]


@every_learner
def test_every_sampling_can_feed_it(learner: str) -> None:
    for strategy in STRATEGIES:
        run = advanced(cell_of(learner, strategy, updating=1))
        assert np.isfinite(run.reward).all(), strategy
        for name, array in run.agent.weights().items():
            assert np.isfinite(array).all() or name == "observation.bound", (strategy, name)
        assert all(np.isfinite(values).all() for values in run.metrics.values()), strategy


@pytest.mark.parametrize("learner", slow(CHUNKED, but=("DDPG", "DQN")))
def test_updates_done_at_once_are_those_done_one_by_one(learner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = cell_of(learner, "FULL[Uniform]")
    many = advanced(cell)
    monkeypatch.setattr(Replay, "max_chunk", 1)
    one = advanced(cell)
    np.testing.assert_array_equal(many.reward, one.reward)
    assert not difference(many.agent.state_dict(), one.agent.state_dict())
