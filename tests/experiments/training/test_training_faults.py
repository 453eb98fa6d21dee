"""Known faults of the authors' public code that only a training run shows."""

from __future__ import annotations

import numpy as np

from replaybench.experiments.cell import CellRun
from replaybench.experiments.loop import training_episode
from replaybench.experiments.study import Study
from replaybench.replay.buffer import Replay


def first_episode() -> CellRun:
    study = Study(name="t", plants=("PendulumDCSC",), strategies=("Expl[Uniform]",), seeds=2, episodes=2, capacity=500)
    run = CellRun(study.cells()[0])
    training_episode(run.env, run.agent, run.replay, 0)
    return run


def test_the_exploration_of_every_step_is_stored() -> None:
    """‖a − π(s)‖₁ of the action that was taken, by the policy that took it; it decides which slots are overwritten."""
    run = first_episode()
    column, steps = run.replay.columns.column, run.env.steps_per_episode
    policy = np.stack([run.agent.act(column("observation")[:, slot]) for slot in range(steps)], axis=1)
    expected = np.abs(column("action")[:, :steps] - policy).sum(axis=2)
    np.testing.assert_allclose(column("exploration")[:, :steps, 0], expected, atol=1e-6)
    assert (expected > 0.1).mean() > 0.5
    np.testing.assert_array_equal(run.replay.orders["exploration"].keys(steps), column("exploration")[:, :steps, 0])


def test_the_density_that_drew_an_action_is_stored_with_it_unclipped() -> None:
    settings = {"DDPG": {"exploration": {"form": "gaussian", "sigma": 0.6}}}
    study = Study(name="t", plants=("Magman",), strategies=("FIFO[Uniform]",), seeds=2, episodes=2, learner=settings)
    run = CellRun(study.cells()[0])
    fields = {**run.replay.columns.fields, "behaviour_mean": 4, "behaviour_log_sigma": 4}
    replay = Replay(run.strategy, fields, 500, 0, range(2), 16)
    training_episode(run.env, run.agent, replay, 0)
    column, steps = replay.columns.column, run.env.steps_per_episode
    policy = np.stack([run.agent.act(column("observation")[:, slot]) for slot in range(steps)], axis=1)
    np.testing.assert_allclose(column("behaviour_mean")[:, :steps], policy, atol=1e-6)
    np.testing.assert_allclose(column("behaviour_log_sigma")[:, :steps], np.log(0.6), rtol=1e-6)
    noise = (column("action")[:, :steps] - policy) / 0.6
    # 1600 draws: six standard errors of mean and variance.
    assert abs(noise.mean()) < 6 / 40
    assert abs(noise.var() - 1) < 6 * np.sqrt(2) / 40
    assert np.abs(column("action")).max() > 1


def test_a_time_limit_is_not_terminal() -> None:
    """The last step of an episode that is cut has its true successor and does not end the task."""
    run = first_episode()
    column, steps = run.replay.columns.column, run.env.steps_per_episode
    assert not column("terminated")[:, :steps].any()
    observation, successor = column("observation")[:, :steps], column("next_observation")[:, :steps]
    np.testing.assert_array_equal(successor[:, :-1], observation[:, 1:])
    assert (successor[:, -1] != observation[:, 0]).any(axis=1).all()
