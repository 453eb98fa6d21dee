"""Offline replay: learning from recordings, its scores, and extrapolation."""

import dataclasses
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from replaybench.baselines.controllers import run_episode
from replaybench.baselines.references import Reference
from replaybench.controllers.algorithms.acer import ACERConfig
from replaybench.controllers.algorithms.ddpg import DDPG, DDPGConfig
from replaybench.controllers.algorithms.dqn import DQNConfig
from replaybench.controllers.algorithms.sac import SAC, SACConfig
from replaybench.controllers.algorithms.td3 import TD3Config
from replaybench.controllers.interface.agent import LearnerConfig, LearnerSetting, NormaliseConfig, Schedule, Task
from replaybench.controllers.learner import Learner
from replaybench.data.logs.log import Log
from replaybench.data.record import write_record
from replaybench.envs.ode.pendulum import Pendulum
from replaybench.envs.registry import make_plant
from replaybench.exchange import offline as replaying
from replaybench.exchange import offline_scores
from replaybench.exchange.logs_to_buffer import convert
from replaybench.exchange.offline import Changes, Outcome, offer, replay_offline
from replaybench.exchange.offline_scores import OfflineScores, extrapolation, read_scores, return_bounds, unlearned
from replaybench.experiments.cell import run_cell
from replaybench.experiments.comparison import NONE_BEATS_RANDOM
from replaybench.experiments.recorded_buffer import Recording, read_recording, recorded_rewards
from replaybench.experiments.study import Study
from replaybench.replay.buffer import Replay
from replaybench.replay.strategies.notation import parse
from replaybench.reports.page.report import write_report
from replaybench.runtime.configuration import merged
from tests.helpers.cells import small_study
from tests.helpers.commands import Patch
from tests.helpers.drawn_studies import UNKNOWN, USABLE
from tests.helpers.recorded import buffer, collect
from tests.helpers.refusals import refuses


def replayed(recording: Recording, strategy: str, updates: int = 3, learner: str = "DDPG", **options: Any) -> Outcome:
    shared: dict[str, Any] = {"learners": 1, "capacity": None, "root_seed": 0, "progress": lambda _: None}
    return replay_offline(recording, parse(strategy), updates=updates, learner=learner, **shared | options)


def recorded(folder: Path, **study: Any) -> Recording:
    """Return the buffer of a cell that ran: of one seed and one episode of FULL[Uniform] if not given."""
    plain: dict[str, Any] = {"plants": ("Pendulum",), "strategies": ("FULL[Uniform]",), "seeds": 1, "episodes": 1}
    assert run_cell(Study(name="t", **plain | study).cells()[0], folder, buffers="final")
    return read_recording(folder / "buffer.h5")


def test_statistics_are_the_recordings(tmp_path: Path) -> None:
    """Of all that was recorded, whatever is kept of it; a stream, which is not read through, is refused."""
    settings = {"DDPG": {"normalise": {"observations": True, "rewards": True}, "exploration": {"form": "parameter"}}}
    recording = recorded(tmp_path, seeds=2, episodes=2, learner=settings)
    agent = replayed(recording, "FIFO[PER]", learners=2, capacity=100).agent
    assert isinstance(agent, DDPG)
    observations, rewards = agent.normaliser.observations, agent.normaliser.rewards
    np.testing.assert_array_equal(observations.count, 400)
    arrays = {name: recording.arrays[name][:, :400].astype(np.float64) for name in ("observation", "reward")}
    np.testing.assert_allclose(observations.mean, arrays["observation"].mean(axis=1), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(rewards.mean_square, np.square(arrays["reward"]).mean(axis=(1, 2)), rtol=1e-9)
    streamed = read_recording(tmp_path / "buffer.h5", whole=False)
    refuses("normalises by all that was collected", replayed, streamed, "FIFO[PER]", learners=2, capacity=100)


def test_recordings_of_a_plant_with_a_spread_and_a_channel_are_read(tmp_path: Path) -> None:
    plant = make_plant("Pendulum", spread={"mass": 0.2}, channel={"noise": {"angle": 0.01}})
    path = buffer(tmp_path / "buffer.h5", collect(plant, 1, members=1), plant, parameters=plant.settings())
    assert read_recording(path).plant == plant


def test_each_evaluation_begins_with_an_empty_memory(tmp_path: Path, monkeypatch: Patch) -> None:
    acting = []

    def noted(act: Any, env: Any) -> Any:
        assert not act.__self__.state.any()
        acting.append(act.__self__)
        return run_episode(act, env)

    monkeypatch.setattr(replaying, "run_episode", noted)
    changes = Changes({"memory": {"units": 4, "window": 4}})
    replayed(recorded(tmp_path), "FULL[Uniform]", 2, changes=changes)
    assert len(acting) == 3
    assert acting[-1].state.any(), "it remembers within an episode"


def test_ere_without_a_phase_is_refused(tmp_path: Path) -> None:
    """Phases are those after an episode, here of a single update; named ones hold offline too."""
    recording = recorded(tmp_path, learner={"DDPG": {"replays_per_experience": 0.1}})
    refuses(r"^FIFO\[ERE\] narrows .* are followed by 1\.2; name the length", replayed, recording, "FIFO[ERE]")
    assert np.isfinite(replayed(recording, "FIFO[ERE(phase=2)]").reward).all()


@pytest.mark.parametrize("whole", [True, False])
def test_actions_that_are_no_choices_are_refused(whole: bool, tmp_path: Path) -> None:
    plant = make_plant("gymnasium:CartPole-v1")
    columns = {name: np.zeros(9) for name in (*plant.state_names, "reward")} | {"action 0": np.arange(9.0) % 2}
    arrays, facts, _ = convert(Log(tmp_path / "x.npz", columns, {}, None, None), plant, frequency=50.0)
    write_record(tmp_path / "sound.h5", "buffer", facts, arrays)
    assert read_recording(tmp_path / "sound.h5", whole=whole).plant.name == plant.name
    arrays["action"][0, 3] = 0.37
    write_record(tmp_path / "odd.h5", "buffer", facts, arrays)
    refuses(r"experience 3: action 0 is 0.37, .* choices \(0, 1 ", read_recording, tmp_path / "odd.h5", whole=whole)


@pytest.mark.parametrize("strategy", ["FIFO(5)[Uniform]", "Drop(0.9999)*FULL[Uniform]"])
def test_less_than_a_batch_is_refused(strategy: str, tmp_path: Path) -> None:
    recording = recorded(tmp_path)
    refuses(r"keeps \d experiences of .* a batch has 16: keep more, or", replayed, recording, strategy)


@pytest.mark.parametrize(("strategy", "settings"), [("FULL[Uniform]", {"n_step": 3}), ("FULL[ReaPER]", {})])
def test_a_recording_without_episodes_is_no_place_to_follow_them(
    strategy: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    recording = recorded(tmp_path)
    assert np.isfinite(replayed(recording, strategy, changes=Changes(settings=settings)).reward).all()
    del recording.arrays["episode"]
    refuses("does not say to which episode", replayed, recording, strategy, changes=Changes(settings=settings))
    assert np.isfinite(replayed(recording, "FULL[PER]").reward).all()


def test_another_form_of_a_table_keeps_nothing_of_the_old() -> None:
    settings = {"tau": 0.1, "exploration": {"form": "process", "diffusion": 5.0}}
    assert merged(settings, {"exploration": {"form": "gaussian"}})["exploration"] == {"form": "gaussian"}
    same = merged(settings, {"exploration": {"form": "process", "friction": 0.2}, "tau": 0.2})
    assert same == {"tau": 0.2, "exploration": {"form": "process", "diffusion": 5.0, "friction": 0.2}}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["FULL[Uniform]", "FIFO[Uniform]"])
def test_every_step_is_kept_in_segments_of_another_length(strategy: str, tmp_path: Path, monkeypatch: Patch) -> None:
    """What retention dropped leaves gaps, at which segments end: there are more of them than episodes let expect."""
    recording = recorded(
        tmp_path, plants=("PendulumDCSC",), learners=("ACER",), strategies=("Resv[Uniform]",), seeds=2, episodes=40,
        capacity=2000,
    )  # fmt: skip
    filled: list[Replay] = []

    def watched(recording: Recording, replay: Replay, agent: Learner) -> None:
        filled.append(replay)
        offer(recording, replay, agent)

    monkeypatch.setattr(replaying, "offer", watched)
    replayed(recording, strategy, 1, "ACER", learners=2, changes=Changes(settings={"segment": 49}))
    assert (filled[0].count == filled[0].offers).all()
    assert (filled[0].count > 2000 / 49).all()


ABOUT: dict[str, Any] = {"learner": "TD3+BC", "strategy": "FULL[Uniform]", "noise": 0}
ABOUT |= {"buffer": "logs/<rig>.h5", "plant": "rig.py:<b>Rig"}


def scores(final: float, recorded: float = -60.0, reference: Reference = USABLE) -> OfflineScores:
    reward = final + np.zeros((8, 3))
    online = {"online: FIFO[Uniform]": [-30.0, -35.0]}
    return OfflineScores(ABOUT, np.array([0, 10, 20]), reward, np.array([recorded]), online, reference)


def test_the_recording_and_controllers_that_learn_nothing_are_rows() -> None:
    rows = {name: (reward, score) for name, reward, score in scores(-55.0).rows()}
    assert rows["the recording itself: <rig>.h5"][0] == "-60.00"
    assert rows["random control"] == (f"{USABLE.random:.2f}", "0.00")
    assert rows["doing nothing"][0] == f"{USABLE.zero:.2f}"
    assert rows["dynamic programming"][1] == "1.00"
    assert "online: FIFO[Uniform]" in rows
    assert {score for *_, score in scores(-55.0, reference=UNKNOWN).rows()} == {"–"}


def test_what_is_below_random_control_or_the_recording_is_the_headline() -> None:
    assert scores(-55.0).headlines() == []
    (below,) = scores(-65.0).headlines()
    assert "below the recording" in below
    assert scores(USABLE.random - 1).headlines() == [NONE_BEATS_RANDOM, below]
    assert scores(-65.0, np.nan).headlines() == []


@pytest.mark.parametrize("whole", [True, False], ids=["read", "streamed"])
def test_the_reward_of_a_recording_is_that_of_its_steps(whole: bool, tmp_path: Path) -> None:
    arrays = collect(Pendulum(), 3)
    path = buffer(tmp_path / "b.h5", arrays)
    expected = arrays["reward"].astype(np.float64).mean(axis=(1, 2))
    np.testing.assert_allclose(recorded_rewards(read_recording(path, whole=whole)), expected, rtol=1e-6)
    forgot = buffer(tmp_path / "f.h5", arrays | {"collected": arrays["collected"] * 2})
    np.testing.assert_allclose(recorded_rewards(read_recording(forgot, whole=whole)), expected, rtol=1e-6)


def test_the_return_of_episodes_that_are_not_whole_is_not_known(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(Pendulum, "episode_metric", "return")
    arrays = collect(Pendulum(), 3)
    path = buffer(tmp_path / "b.h5", arrays)
    sums = arrays["reward"].astype(np.float64).sum(axis=(1, 2)) / 3
    np.testing.assert_allclose(recorded_rewards(read_recording(path)), sums, rtol=1e-6)
    assert recorded_rewards(read_recording(path, whole=False)).size == 0


def test_a_report_of_an_offline_replay(tmp_path: Path) -> None:
    """It escapes what files say, and its figure is one of Plotly's."""
    told = scores(-65.0)
    told.write(tmp_path / "scores.h5")
    again = read_scores(tmp_path / "scores.h5")
    assert (again.rows(), again.headlines()) == (told.rows(), told.headlines())
    assert write_report(tmp_path, None) == tmp_path / "report.html"
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "below the recording itself" in html
    assert not re.search("<b>Rig|<rig>", html)
    (figure,) = re.findall(r'<script type="application/json">(.*?)</script>', html, re.DOTALL)
    traces = go.Figure(json.loads(figure)).data
    assert len(traces) == 7
    assert not any("<" in (trace.name or "") for trace in traces)


def test_scores_that_are_no_comparison_are_told_in_a_line(tmp_path: Path) -> None:
    path, arrays = tmp_path / "scores.h5", {"updates": np.arange(2), "reward_greedy": np.zeros((3, 2))}
    write_record(path, offline_scores.KIND, ABOUT, arrays)
    refuses("does not hold all arrays", read_scores, path)
    compared = {"online": {}, "reference": dataclasses.asdict(USABLE)}
    write_record(path, offline_scores.KIND, ABOUT | compared, arrays | {"reward_recorded": np.zeros((2, 2))})
    refuses("do not belong together", read_scores, path)
    write_record(path, offline_scores.KIND, ABOUT | compared | {"online": 3}, arrays | {"reward_recorded": np.zeros(1)})
    refuses("online", read_scores, path)


LONG = 100_000
"""Updates after which nothing is left of where values began."""
TASK = Task(observation_size=2, action_size=1, discount=0.95, reward_scale=0.01)


class Believer:
    """Two learners, of which the second gives one value to every state."""

    task, schedule = TASK, Schedule(16, 1.0, target_rate=0.005)

    def __init__(self, value: float, share: float = 1.0, bonus: float = 0.0) -> None:
        self.believed, self.share, self.bonus = value, share, bonus

    def value(self, observation: np.ndarray) -> np.ndarray:
        value: np.ndarray = np.full(observation.shape[:2], -20.0, np.float32)
        value[1, : int(self.share * value.shape[1])] = self.believed * TASK.reward_scale
        return value

    def value_bonus(self) -> np.ndarray:
        return np.full(2, self.bonus)


@pytest.fixture(scope="module", params=["read", "streamed"])
def recording(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    path = tmp_path_factory.mktemp("recorded")
    study = small_study(strategies=("FULL[Uniform]",), seeds=2, episodes=2)
    assert run_cell(study.cells()[0], path, buffers="final")
    return read_recording(path / "buffer.h5", whole=request.param == "read")


def test_returns_are_bounded_by_rewards() -> None:
    rewards = np.array([-4.0, -1.0])
    assert return_bounds(rewards, False, 0.9) == pytest.approx((-40.0, -10.0))
    assert return_bounds(rewards, True, 0.9) == pytest.approx((-40.0, -1.0)), "an end stops the costs"
    assert return_bounds(-rewards, True, 0.9) == pytest.approx((1.0, 40.0))


def test_who_believes_the_impossible_is_told_of(recording: Recording) -> None:
    whole: Any = read_recording(recording.path)
    rewards = whole.arrays["reward"][whole.members[1], whole.orders[1], 0]  # those of the one that believes it
    believer: Any = Believer(500.0)
    found: Any = extrapolation(recording, believer, 2, LONG)
    assert (found.learners, found.of) == (1, 2)
    assert found.value == pytest.approx(500.0)
    assert found.low == pytest.approx(rewards.min() / 0.05)
    assert found.high == pytest.approx(rewards.max() / 0.05)
    assert "1 of 2 learners extrapolate: one predicts a discounted return of 500" in found.words("td3:slow")
    assert "--learner TD3+BC" in found.words("td3:slow")
    assert "alpha" in found.words("TD3+BC:near")
    assert "TD3+BC" not in found.words("DQN", choices=True)
    believer.believed = -9000.0
    low: Any = extrapolation(recording, believer, 2, LONG)
    assert low.value == pytest.approx(-9000.0)


@pytest.mark.parametrize(
    "believer",
    [
        Believer(-2000.0),
        Believer(500.0, share=0.04),
        Believer(500.0, bonus=2.0),
        SimpleNamespace(task=TASK, schedule=Schedule(16, 1.0, window=8)),
        SimpleNamespace(task=TASK._replace(discount=1.0), schedule=Schedule(16, 1.0)),
        SimpleNamespace(task=TASK, schedule=Schedule(16, 1.0)),
    ],
    ids=["sound", "few", "bonus", "remembering", "endless", "unknown rate"],
)
def test_who_does_not_or_cannot_be_told_is_not(recording: Recording, believer: Any) -> None:
    assert extrapolation(recording, believer, 2, LONG) is None


def test_who_has_not_learned_yet_is_not_warned_of(recording: Recording) -> None:
    """Rewards are costs: no return is as high as 0, where values begin."""
    fresh: Any = Believer(0.0)
    assert extrapolation(recording, fresh, 2, LONG) is not None
    assert extrapolation(recording, fresh, 2, 0) is None
    late: Any = Believer(-50.0)
    assert extrapolation(recording, late, 2, LONG) is not None
    assert extrapolation(recording, late, 2, 10_000) is None, "on its way, though little of 0 can be in it"
    hopeful: Any = Believer(500.0)
    assert unlearned(hopeful, 1000) == pytest.approx(0.99975**1000)
    assert extrapolation(recording, hopeful, 2, 100) is None, "no more than a whim of its first weights"
    found: Any = extrapolation(recording, hopeful, 2, 1000)
    assert found.high < 0.0, "what is told are the returns of the recording"


@pytest.mark.parametrize(
    ("config", "rate"),
    [
        (DDPGConfig(tau=0.01), 0.01),
        (TD3Config(tau=0.01, policy_delay=4), 0.0025),
        (DQNConfig(copy_every=50), 0.02),
        (ACERConfig(average=0.9), 0.1),
    ],
    ids=["DDPG", "TD3", "DQN", "ACER"],
)
def test_learners_leave_their_beginning_as_fast_as_their_copies_follow(config: LearnerConfig, rate: float) -> None:
    agent: Any = SimpleNamespace(schedule=config.schedule, task=TASK)
    assert unlearned(agent, 300) == pytest.approx((1 - 0.05 * rate) ** 300)


def test_the_entropy_bonus_has_the_unit_of_rewards() -> None:
    agent = SAC(SACConfig(first_temperature=0.5), LearnerSetting(TASK, 0, range(3)))
    np.testing.assert_allclose(agent.value_bonus(), 0.5 * np.log(2.0))
    config = SACConfig(first_temperature=0.5, normalise=NormaliseConfig(rewards=True))
    agent = SAC(config, LearnerSetting(TASK, 0, range(1)))
    agent.normaliser.rewards.update(np.array([-50.0]), np.ones(1, np.bool_))
    assert agent.normaliser.rewards.factor == pytest.approx(0.02)
    np.testing.assert_allclose(agent.value_bonus(), 0.25 * np.log(2.0))
