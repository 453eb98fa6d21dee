"""Updates after every so many steps: episodes of members end apart; against a plain loop for one member."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replaybench.baselines.controllers import run_episode
from replaybench.experiments.calibration import estimate
from replaybench.experiments.cell import CellRun
from replaybench.experiments.study import Cell, Study
from replaybench.replay.strategies.interface import Context
from replaybench.replay.strategies.recent import ERE
from replaybench.runtime.errors import UserError
from tests.helpers.cells import DRIFTING, advanced, assert_reads_back, assert_resumes, small_study, updates_of

STEPS = 20
"""Of the plant's longest episode."""


def make_study(strategy: str = "FULL[PER+IS]", **changes: Any) -> Study:
    usual = {"noise": (0.02,), "seeds": 3, "episodes": 6, "capacity": 100, "greedy_every": 3}
    return small_study(**{"plants": (DRIFTING,), "strategies": (strategy,)} | usual | changes)


def make_cell(strategy: str = "FULL[PER+IS]", **changes: Any) -> Cell:
    return make_study(strategy, **changes).cells()[0]


def naive(cell: Cell) -> tuple[CellRun, list[float], list[float], int]:
    """Train one member step by step with the parts of a run, none of its loop; rewards and lengths of each round."""
    run = CellRun(cell)
    env, agent, replay, everyone = run.env, run.agent, run.replay, np.ones(1, np.bool_)
    per_phase = cell.update_every * agent.schedule.replays_per_experience / agent.schedule.batch_size
    phases = STEPS * cell.episodes // cell.update_every
    seen: list[np.ndarray] = []
    told: list[float] = []
    lengths: list[float] = []
    now, ended, total, length, updates = np.zeros((1, 2), np.float32), True, 0.0, 0, 0
    for round_ in range(cell.episodes):
        returns, lasted = [], []
        for step in range(round_ * STEPS, (round_ + 1) * STEPS):
            if ended:
                agent.start_episode(round_, everyone)
                now, info = env.reset()
                total, length = 0.0, 0
            seen.append(now)
            tried, sensor_noise = agent.explore(now, everyone), info["sensor_noise"]
            after, reward, terminated, truncated, info = env.step(tried.action)
            ended = bool(terminated[0] or truncated[0])
            row: dict[str, np.ndarray] = {"observation": now, "action": tried.action, "next_observation": after}
            row |= {"terminated": terminated[:, None], "exploration": tried.deviation[:, None], **tried.extras}
            row |= {"reward": reward[:, None], "sensor_noise": sensor_noise, "actuator_noise": info["actuator_noise"]}
            row |= agent.on_step(reward, after, terminated, np.array([ended]), everyone)
            replay.add(row, everyone, np.array([ended]))
            total, length, now = total + float(reward[0]), length + 1, after
            if ended:
                returns.append(total)
                lasted.append(length)
            if (step + 1) % cell.update_every == 0:
                phase = step // cell.update_every
                due = int((phase + 1) * per_phase) - int(phase * per_phase)
                for update in range(due):
                    attended = seen[update * len(seen) // due]
                    batch = replay.sample(Context(update, due, phase / (phases - 1), attended))
                    replay.annotate(batch, agent.update(batch))
                updates, seen = updates + due, []
        told.append(float(np.mean(returns)))
        lengths.append(float(np.mean(lasted)))
        if (round_ + 1) % cell.greedy_every == 0:
            run_episode(agent.greedy().act, run.evaluation)
    return run, told, lengths, updates


@pytest.mark.parametrize("every", [1, 7, 50])
@pytest.mark.parametrize("strategy", ["FULL[PER+IS]", "FIFO[AER]"])
def test_one_member_does_what_a_plain_loop_does(strategy: str, every: int) -> None:
    """The same buffer, networks and lengths, bit for bit; a phase may be longer than a round, or cut by one."""
    cell = make_cell(strategy, seeds=1, update_every=every)
    run = advanced(cell)
    expected, told, lengths, updates = naive(cell)
    np.testing.assert_allclose(run.reward[0], told, rtol=1e-12)
    np.testing.assert_array_equal(run.episode_steps[0], lengths)
    assert min(lengths) < STEPS
    assert updates_of(run) == updates == int(STEPS * 6 // every * every * 8 / 16)
    ours, theirs = run.replay.state_dict(), expected.replay.state_dict()
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)
    weights = expected.agent.weights()
    for name, array in run.agent.weights().items():
        np.testing.assert_array_equal(array, weights[name], err_msg=name)


@pytest.mark.parametrize(
    ("learner", "strategy", "every"),
    [("DDPG", "FIFO[AER]", 50), ("ACER", "FIFO[Uniform]", 3), ("DQN", "Resv[ERE+PER]", 1)],
)
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path, learner: str, strategy: str, every: int) -> None:
    """From the midst of episodes, of segments and of phases."""
    cell = make_cell(strategy, learners=(learner,), update_every=every, capacity=200)
    assert_resumes(cell, tmp_path, range(1, 6))


@pytest.mark.parametrize("learner", ["DDPG", "ACER"])
def test_no_members_schedule_depends_on_anothers(learner: str) -> None:
    """A member alone is the same bit for bit; and one that fails leaves the others as they are."""
    cell = make_cell("FIFO[PER]", episodes=4, learners=(learner,), update_every=3, capacity=200, greedy_every=4)
    together, ill = CellRun(cell), CellRun(cell)
    for array in ill.agent.weights().values():
        if array.dtype.kind == "f":  # counts are integers
            array[1] = np.nan
    for _ in range(cell.episodes):
        together.advance()
        ill.advance()
    alone = advanced(dataclasses.replace(cell, first_member=2, members=1))
    parts = (together.agent.weights(), alone.agent.weights(), ill.agent.weights())
    for whole, own, theirs in (parts, (together.history(), alone.history(), ill.history())):
        for name, array in whole.items():
            np.testing.assert_array_equal(array[2:], own[name], err_msg=name)
            np.testing.assert_array_equal(array[[0, 2]], theirs[name][[0, 2]], err_msg=name)
    assert np.isnan(ill.reward[1]).all()
    assert np.isfinite(together.reward).all()
    assert (together.episode_steps < STEPS).any()
    assert (together.episode_steps[0] != together.episode_steps[2]).any()


def test_segments_end_where_episodes_end() -> None:
    """Each stored unit holds successive steps of one episode, the last of which may have ended it."""
    settings = {"ACER": {"segment": 6, "batch_size": 2}}
    run = advanced(make_cell("FIFO[Uniform]", learners=("ACER",), learner=settings, capacity=2000, update_every=5))
    column, assembly = run.replay.columns.column, run.replay.assembly
    assert assembly is not None
    ends = 0
    for m, stored in enumerate(run.replay.count):
        steps = 0
        for slot in range(stored):
            length = int(assembly.length[m, slot])
            now, then = column("observation")[m, slot], column("next_observation")[m, slot]
            np.testing.assert_array_equal(then[: length - 1], now[1:length])
            terminated = column("terminated")[m, slot, :, 0]
            assert not terminated[: length - 1].any()
            ends += int(terminated[length - 1])
            steps += length
        assert steps + assembly.filled[m] == run.replay.collected[m] == 6 * STEPS
    assert ends > 6


def test_what_a_study_leaves_out_is_the_plants(tmp_path: Path) -> None:
    study = make_study()
    cells = study.cells()
    assert {(cell.frequency, cell.update_every) for cell in cells} == {(10.0, 7)}
    task = CellRun(cells[0]).agent.task
    assert (task.discount, task.reward_scale) == (0.9, 1.0)
    faster = CellRun(make_cell(frequency=(20.0,), discount="horizon")).agent.task
    assert faster.discount == pytest.approx(0.9**0.5)
    assert faster.reward_scale == 0.5
    assert_reads_back(study, tmp_path)
    assert make_cell(update_every=0).update_every == 0
    assert make_cell(update_every=1).id != cells[0].id
    both = make_study(plants=(DRIFTING, "Pendulum")).cells()
    assert [(cell.frequency, cell.update_every) for cell in both] == [(10.0, 7), (50.0, 0)]


def test_an_estimate_counts_updates_though_runs_warm_up_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probes: list[CellRun] = []

    def kept(cell: Cell) -> CellRun:
        probes.append(CellRun(cell))
        return probes[-1]

    monkeypatch.setenv("REPLAYBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr("replaybench.experiments.calibration.CellRun", kept)
    cell = make_cell("FIFO[Uniform]", learners=("V-RACER",), episodes=50)
    assert cell.settings["warmup_episodes"] > 3
    assert estimate([cell], (), None, 1, compiles=True).seconds > 0
    assert updates_of(probes[0]) > 0


@pytest.mark.parametrize(("every", "phase"), [(0, None), (1, 10), (7, 10), (50, None)])
def test_ere_acts_along_an_episodes_updates(every: int, phase: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few updates are done at once: 20 steps are followed by 10. More than an episode's are their own phase."""
    seen: list[int] = []
    newest = ERE.newest

    def kept(self: ERE, context: Context, capacity: int | None, count: Any) -> Any:
        found = newest(self, context, 10**6, np.array([10**6]))
        seen.append(int(found[0]))
        return newest(self, context, capacity, count)

    monkeypatch.setattr(ERE, "newest", kept)
    run = advanced(make_cell("FIFO[ERE(0.999, last=0.999)]", seeds=1, update_every=every, episodes=5))
    assert isinstance(run.strategy.sampling, ERE)
    assert run.strategy.sampling.phase == phase
    updates = 10 if every < 50 else 25
    expected = [int(1e6 * 0.999 ** (k * 1000 / updates)) for k in range(1, updates + 1)]
    assert seen == (expected * 5)[: len(seen)]
    assert len(seen) == updates_of(run) >= 45


def test_ere_without_a_phase_is_refused() -> None:
    seldom = {"DDPG": {"replays_per_experience": 1.0}}
    for every, steps in ((0, 20), (1, 20), (25, 25)):
        with pytest.raises(UserError, match=rf"^FIFO\[ERE\] narrows .* {steps} steps are followed by 1\.\d+; name the"):
            make_cell("FIFO[ERE]", update_every=every, learner=seldom)
        assert make_cell("FIFO[ERE(phase=30)]", update_every=every, learner=seldom).strategy == "FIFO[ERE(phase=30)]"
