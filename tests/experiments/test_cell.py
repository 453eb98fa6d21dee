"""One cell: resumption, schedules, evaluations, recurrent policies, ReF-ER, warm-up, forged checkpoints."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from replaybench.cli.options import EXAMPLES
from replaybench.controllers.algorithms.ddpg import DDPG
from replaybench.controllers.learner import Learner
from replaybench.controllers.losses.refer import FAR, FarCount
from replaybench.data.record import read_record, write_record
from replaybench.exchange.offline import replay_offline
from replaybench.experiments.cell import CellRun, make_agent, run_cell
from replaybench.experiments.dataset import assemble
from replaybench.experiments.loop import training_episode
from replaybench.experiments.recorded_buffer import read_recording
from replaybench.experiments.study import STUDIES, Cell, read_study
from replaybench.replay.buffer import Replay
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.errors import UserError
from replaybench.runtime.streams import Stream
from tests.helpers.cells import DRIFTING, advanced, assert_reads_back, assert_resumes, small_cell, updates_of
from tests.helpers.tiers import slow


def make_cell(strategy: str = "FULL[PER+IS]", **changes: Any) -> Cell:
    usual = {"noise": (0.02,), "seeds": 3, "episodes": 10, "capacity": 700, "greedy_every": 3}
    return small_cell(**{"strategies": (strategy,)} | usual | changes)


SCALED = {"normalise": {"observations": True, "clip": 5.0, "rewards": True}}


@pytest.mark.parametrize("every", [*slow([0]), 50])
def test_schedules_run_over_as_many_steps_as_asked(every: int) -> None:
    """A run of 4 episodes whose schedules take 6 is the beginning of a run of 6; beyond them they stay at their end."""

    def rewards(**changes: int) -> np.ndarray:
        return advanced(make_cell("FIFO[AER(4, 1)]", learners=("TD3",), update_every=every, **changes)).reward

    longer = rewards(episodes=6)[:, :4]
    assert np.array_equal(rewards(episodes=4, horizon_steps=1200), longer)
    assert not np.array_equal(rewards(episodes=4), longer)
    assert np.isfinite(rewards(episodes=6, horizon_steps=600)).all()


@pytest.mark.parametrize("learner", ["DDPG", "TD3", "SAC", "DQN"])
def test_rewards_of_a_batch_are_summed_over_the_steps_of_the_learner(learner: str) -> None:
    run = advanced(make_cell("FULL[Uniform]", learners=(learner,), learner={learner: {"n_step": 3}}, episodes=2))
    stored = run.replay.columns.rows[:, :, run.replay.columns.spans["reward"]].squeeze(-1).astype(np.float64)
    batch, gamma = run.replay.sample(), run.agent.task.discount
    assert gamma < 1
    length = stored.shape[1] // 2
    whole = batch.idx % length < length - 2  # the next two steps are of the same episode
    assert whole.any()
    rows = np.arange(len(batch.idx))[:, None]
    summed = sum(gamma**k * stored[rows, np.minimum(batch.idx + k, stored.shape[1] - 1)] for k in range(3))
    np.testing.assert_allclose(batch.columns["reward"].squeeze()[whole], summed[whole], rtol=1e-5)


def test_evaluations_are_stored_and_change_no_training(tmp_path: Path) -> None:
    """Each is the mean of its episodes, and those that a stopped run has had are there when it goes on."""
    cell = make_cell(episodes=6, evaluate_every_steps=500, evaluation_episodes=4)
    assert_resumes(cell, tmp_path, [4])
    assert run_cell(make_cell(episodes=6), tmp_path / "plain", "final")
    plain, told = (read_record(tmp_path / name / "scores.h5", "scores")[1] for name in ("plain", "whole"))
    assert np.array_equal(plain["reward"], told["reward"])
    assert "reward_evaluation" not in plain
    evaluations = assemble([cell], {}, {cell.id: tmp_path / "whole"})["reward_evaluation"]
    assert evaluations["evaluation_step"].values.tolist() == [500, 1000]
    assert np.array_equal(evaluations.values.squeeze(), told["reward_evaluation"])
    assert (told["reward_evaluation"] != told["reward"][:, [2, 4]]).all()


def test_each_evaluation_episode_begins_with_an_empty_memory() -> None:
    """Without noise, all episodes of an evaluation are then equal to the greedy episode."""
    memory = {"DDPG": {"memory": {"units": 8, "window": 8}}}
    cell = make_cell(
        "FIFO[Uniform]", learner=memory, noise=(0.0,), episodes=1, greedy_every=1, capacity=400,
        evaluate_every_steps=200, evaluation_episodes=3,
    )  # fmt: skip
    run = advanced(cell)
    np.testing.assert_allclose(run.reward_evaluation, run.reward_greedy, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("learner", "frequency", "settings"),
    [("ACER", 10.0, {}), ("ACER-discrete", 12.5, {"segment": 40}), ("ACER", 50.0, {"segment": 150, "batch_size": 2})],
)
def test_short_segments_are_replayed_as_often(learner: str, frequency: float, settings: dict[str, Any]) -> None:
    """Episodes have 40, 50 and 200 steps. With updates for whole segments there were too few: 12.8 in place of 16."""
    learners = {learner: {**settings, "on_policy": False}}
    cell = make_cell("FULL[Uniform]", learners=(learner,), frequency=(frequency,), learner=learners)
    run, replayed = CellRun(cell), 0
    update = run.agent.update

    def counted(batch: Any) -> Any:
        nonlocal replayed
        replayed += int(batch.length.astype(int).sum())
        return update(batch)

    run.agent.update = counted  # type: ignore[method-assign]
    while run.episode < cell.episodes:
        run.advance()
    stepped = cell.members * cell.episodes * run.env.steps_per_episode
    assert replayed / stepped == pytest.approx(run.agent.schedule.replays_per_experience, rel=0.1)


def test_a_learner_need_not_say_what_form_its_policy_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only exports ask for it, and altered actions where there are choices."""
    monkeypatch.setattr(DDPG, "policy_head", Learner.policy_head)
    CellRun(make_cell("Synth(action=0.5)*FIFO[Uniform]")).advance()


def test_altered_actions_are_those_that_a_learner_can_take() -> None:
    """All 15 of DQN's, as often; drawn from the box and put down to the nearest, both ends came half as often."""
    run = advanced(make_cell("Synth(action=1.0)*FULL[Uniform]", learners=("DQN",)))
    stored = run.replay.columns.column("action")[:, : int(run.replay.count.max()), 0].ravel()
    values, counts = np.unique(stored, return_counts=True)
    np.testing.assert_array_equal(values, np.linspace(-1, 1, 15, dtype=np.float32))
    assert stats.chisquare(counts).pvalue > 1e-4


def test_statistics_are_those_of_what_each_member_collected() -> None:
    """The buffer holds every step, and nothing of it is counted twice or left out; episodes of cart-poles end apart."""
    plants = (f"{EXAMPLES / 'cart_pole.py'}:CartPole",)
    run = CellRun(make_cell("FIFO[Uniform]", plants=plants, capacity=10_000, learner={"DDPG": SCALED}))
    for _ in range(2):
        run.advance()
    count, column = run.replay.count, run.replay.columns.column
    assert len(set(count.tolist())) > 1
    weights = run.agent.weights()
    np.testing.assert_array_equal(weights["observation.count"], count)
    np.testing.assert_array_equal(weights["reward.count"], count)
    for m, stored in enumerate(count):
        observation, reward = (column(name)[m, :stored].astype(np.float64) for name in ("observation", "reward"))
        np.testing.assert_allclose(weights["observation.mean"][m], observation.mean(axis=0), rtol=1e-6)
        np.testing.assert_allclose(weights["reward.mean_square"][m], np.square(reward).mean(), rtol=1e-6)


GAUSSIAN = {"exploration": {"form": "gaussian", "truncate": 3.0}}
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("V-RACER", {"warmup_episodes": 1}, "FarPol[Uniform+ReFER(c=0.05, beta_rate=0.01)]"),
    ("NAF", GAUSSIAN, "Resv[PER+IS+ReFER-2(0.05)]"),
    ("DDPG", GAUSSIAN, "FIFO[Uniform+ReFER-1(0.05)]"),
]
FIRST, *FURTHER = (
    make_cell(strategy, learners=(learner,), learner={learner: settings}, noise=(0.0,), seeds=2, episodes=6)
    for learner, settings, strategy in CASES
)
WITH_REFER = [FIRST, *slow(FURTHER)]


@pytest.mark.parametrize("cell", WITH_REFER, ids=lambda cell: cell.strategy)
def test_counts_agree_with_what_is_stored(cell: Cell) -> None:
    run = advanced(cell)
    traces, rule = run.replay.traces, run.agent.traces
    assert traces is not None
    assert isinstance(rule, FarCount)
    np.testing.assert_array_equal(rule.stored_steps, run.replay.count)
    np.testing.assert_array_equal(rule.far, traces.values[:, :, FAR].sum(axis=1))
    assert (rule.far > 0).all()
    assert (run.metrics["kl"][:, -1] > 0).all()
    np.testing.assert_array_equal(run.metrics["far"][:, -1], rule.far / 700)
    if "ReFER-1" not in cell.strategy:
        assert (run.metrics["beta"][:, -1] < 1).all()


NOISY = make_cell("Synth(state=0.2)*FIFO[Uniform]", learner={"DDPG": {"exploration": {"form": "parameter"}} | SCALED})

SPREAD = make_cell("FIFO[Uniform]", plant={"PendulumDCSC": {"spread": {"mass": 0.2}}}, delay=(0.005,))


@pytest.mark.parametrize("cell", [NOISY, SPREAD, *WITH_REFER], ids=lambda cell: cell.strategy)
def test_stopped_and_resumed_equals_uninterrupted(tmp_path: Path, cell: Cell) -> None:
    """Further learners and strategies are resumed by their contract."""
    assert_resumes(cell, tmp_path, (2, 3, 5))


@pytest.mark.slow
@pytest.mark.parametrize(("start", "steps"), [("stored", 4), ("burn-in", 7)])
def test_a_recording_with_gaps_is_replayed_offline(tmp_path: Path, start: str, steps: int) -> None:
    """A reservoir keeps some steps only; which of them are linked is tested with traces of V-RACER."""
    settings = {"DDPG": {"memory": {"units": 4, "window": 4, "start": start, "burn_in": 3}}}
    usual: dict[str, Any] = {"seeds": 2, "episodes": 3, "capacity": 300, "observe": ("angle",)}
    made = small_cell(strategies=("Resv[Uniform]",), learner=settings, **usual)
    assert run_cell(made, tmp_path, "final")
    assert make_agent(made, made.make_plant()).schedule.window == steps

    def reward(whole: bool) -> np.ndarray:
        words: dict[str, Any] = {"updates": 2, "learner": "DDPG", "learners": 2, "capacity": None, "root_seed": 0}
        recording = read_recording(tmp_path / "buffer.h5", whole=whole)
        return replay_offline(recording, parse("FULL[Uniform]"), **words, progress=lambda done: None).reward

    assert np.isfinite(reward(whole=True)).all()
    with pytest.raises(UserError, match="follows experiences along their episodes, which --stream breaks up"):
        reward(whole=False)


def test_the_example_compares_learners_with_and_without_memory(tmp_path: Path) -> None:
    study = read_study(STUDIES / "partial.toml")
    first, *others = study.cells()
    assert {cell.settings["memory"] is not None for cell in others} == {True, False}
    assert_reads_back(study, tmp_path)
    run = CellRun(first)
    assert (run.replay.window, run.replay.columns.fields["memory"]) == (16, 128)


STEPS, WARM_UP, SEEDS = 20, 2, 3


def actions_of(run: CellRun, member: int) -> np.ndarray:
    """Return what a member did, in order."""
    done = run.replay.collected[member]
    order = np.argsort(run.replay.columns.serial[member, :done])
    return np.asarray(run.replay.columns.column("action")[member, order])


@pytest.mark.parametrize("learner", ["SAC", "TD3"])
@pytest.mark.parametrize("every", [0, 1, 50], ids=["episodes", "steps", "longer than a round"])
def test_random_are_the_actions_of_the_rounds_before_the_first_update(learner: str, every: int) -> None:
    """To the step, in the midst of an episode, too."""
    usual: dict[str, Any] = {"plants": (DRIFTING,), "seeds": SEEDS, "episodes": 6, "capacity": 200, "greedy_every": 3}
    settings = {learner: {"warmup_episodes": WARM_UP}}
    run = CellRun(small_cell(learners=(learner,), learner=settings, update_every=every, **usual))
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


def test_exploration_and_the_end_of_an_episode_are_stored() -> None:
    """‖a − π(s)‖₁ of the action that was taken, by the policy that took it: it decides which slots are overwritten.

    The last step of an episode that is cut has its true successor and does not end the task.
    """
    run = CellRun(small_cell(strategies=("Expl[Uniform]",), seeds=2, episodes=2, capacity=500))
    training_episode(run.env, run.agent, run.replay, 0)
    column, steps = run.replay.columns.column, run.env.steps_per_episode
    policy = np.stack([run.agent.act(column("observation")[:, slot]) for slot in range(steps)], axis=1)
    expected = np.abs(column("action")[:, :steps] - policy).sum(axis=2)
    np.testing.assert_allclose(column("exploration")[:, :steps, 0], expected, atol=1e-6)
    assert (expected > 0.1).mean() > 0.5
    np.testing.assert_array_equal(run.replay.orders["exploration"].keys(steps), column("exploration")[:, :steps, 0])
    assert not column("terminated")[:, :steps].any()
    observation, successor = column("observation")[:, :steps], column("next_observation")[:, :steps]
    np.testing.assert_array_equal(successor[:, :-1], observation[:, 1:])
    assert (successor[:, -1] != observation[:, 0]).any(axis=1).all()


def test_the_density_that_drew_an_action_is_stored_with_it_unclipped() -> None:
    settings = {"DDPG": {"exploration": {"form": "gaussian", "sigma": 0.6}}}
    run = CellRun(small_cell(plants=("Magman",), seeds=2, episodes=2, learner=settings))
    fields = {**run.replay.columns.fields, "behaviour_mean": 4, "behaviour_log_sigma": 4}
    replay = Replay(run.strategy, fields, 500, 0, range(2), 16)
    training_episode(run.env, run.agent, replay, 0)
    column, steps = replay.columns.column, run.env.steps_per_episode
    policy = np.stack([run.agent.act(column("observation")[:, slot]) for slot in range(steps)], axis=1)
    np.testing.assert_allclose(column("behaviour_mean")[:, :steps], policy, atol=1e-6)
    np.testing.assert_allclose(column("behaviour_log_sigma")[:, :steps], np.log(0.6), rtol=1e-6)
    assert np.abs(column("action")).max() > 1


REFUSED: dict[str, list[Any]] = {
    "id": [None, 5, "another"],
    "episode": [None, "1", True, 1.5, math.nan, -1, 2, 10**30],
    "sessions": [None, "x", [], {}, [5], [{}]],
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Cell, Path]:
    """A cell and its checkpoint after one of two episodes."""
    cell = small_cell(seeds=1, episodes=2, capacity=300)
    folder = tmp_path_factory.mktemp("cell")
    assert not run_cell(cell, folder, "none", report=lambda _: False)
    return cell, folder / "checkpoint.h5"


def forge(source: Path, folder: Path, key: str, value: Any) -> Path:
    header, arrays = read_record(source, "checkpoint")
    folder.mkdir(parents=True)
    write_record(folder / "checkpoint.h5", "checkpoint", {**header.facts, key: value}, arrays)
    return folder / "checkpoint.h5"


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in REFUSED.items() for value in values])
def test_wrong_facts_are_one_line_with_a_remedy(key: str, value: Any, sound: tuple[Cell, Path], tmp_path: Path) -> None:
    cell, source = sound
    path = forge(source, tmp_path / "cell", key, value)
    with pytest.raises(UserError, match=f": remove {path} to run this cell from its start$") as told:
        run_cell(cell, tmp_path / "cell", "none")
    assert "\n" not in str(told.value)


def test_what_was_forged_is_else_gone_on_from(sound: tuple[Cell, Path], tmp_path: Path) -> None:
    cell, source = sound
    forge(source, tmp_path / "cell", "more", 5)
    assert run_cell(cell, tmp_path / "cell", "none")
