"""Strides: the bits of step by step for whatever plant, learner and strategy, and none where more is to be done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from replaybench.baselines import reference_controllers
from replaybench.controllers.algorithms.ddpg import DDPG
from replaybench.controllers.algorithms.sac import SAC, SACConfig
from replaybench.controllers.registry import LEARNERS
from replaybench.data.compilation import sequence
from replaybench.envs.ode.engine import RungeKutta
from replaybench.envs.ode.pendulum import PendulumDCSC
from replaybench.envs.population import PopulationEnv
from replaybench.experiments.training import cell as cells
from replaybench.experiments.training import loop, strides
from replaybench.experiments.training.cell import CellRun
from replaybench.experiments.training.episodes import LiveEpisodes
from replaybench.experiments.training.study import Study
from replaybench.replay.strategies.sampling.uniform import Uniform
from replaybench.replay.strategies.weighting.importance import IS

SMALL = {"actor_hidden": [8], "critic_hidden": [8], "batch_size": 16}
GAUSSIAN = {"exploration": {"form": "gaussian"}}
ONE = {"update_every": 1}
"""With as many replays per experience as a batch has: one update after each step."""

Taken = list[int]


@dataclass(frozen=True, kw_only=True)
class Falling(PendulumDCSC):
    """Its episodes end early."""

    @staticmethod
    def terminated(x_next: Any, event: int, p: Any) -> bool:
        """Return whether it is fast."""
        return bool(abs(x_next[1]) > 5.0)


class Pushing(RungeKutta):
    """Does more than its class when it advances."""

    def advance(self, action: Any, running: Any) -> None:
        """Push, and advance."""
        super().advance(action + 0.1, running)


@dataclass(frozen=True, kw_only=True)
class Pushed(PendulumDCSC):
    """Has an engine of its own."""

    def engine(self, num_envs: int, frequency: float) -> Pushing:
        """Return it."""
        return Pushing(self, num_envs, frequency)


@dataclass(frozen=True, kw_only=True)
class Named(Falling):
    """Its functions have a word and a table, of as many numbers as there are members."""

    form: str = "table"

    def params(self) -> Any:
        """Return them behind the numbers."""
        return (*super().params(), np.array([1.0, 2.0, 3.0]))

    @staticmethod
    def rhs(x: Any, u: Any, p: Any) -> tuple[float, float]:
        """Return the rates of a mass on a spring."""
        return x[1], p[8][2] * (u[0] - x[0])

    @staticmethod
    def reward(x: Any, u: Any, x_next: Any, event: int, p: Any) -> float:
        """Return how far away it is."""
        return float(-abs(x[0]))

    @staticmethod
    def project(x: Any, p: Any) -> int:
        """Leave it where it is."""
        return 0


@dataclass(frozen=True, kw_only=True)
class Raising(PendulumDCSC):
    """Its equations say what is wrong."""

    @staticmethod
    def reward(x: Any, u: Any, x_next: Any, event: int, p: Any) -> float:
        """Refuse to go fast."""
        if abs(x_next[1]) > 5.0:
            raise ValueError("too fast")
        return 0.0


class Rewarding(PopulationEnv):
    """A population that rewards otherwise."""

    def step(self, actions: Any) -> Any:
        """Add a thousand."""
        observation, reward, *further = super().step(actions)
        return observation, reward + 1000.0, *further


def run(learner: str, strategy: str, settings: dict[str, Any], **study: Any) -> CellRun:
    """Run three rounds of three members whose buffers are soon full."""
    known: dict[str, Any] = {"plants": ("PendulumDCSC",), "seeds": 3, "episodes": 3, "noise": (0.02,), **study}
    made = Study(
        name="t", learners=(learner,), strategies=(strategy,), learner={learner: settings}, block=known["seeds"],
        greedy_every=2, capacity=300, **known,
    )  # fmt: skip
    return CellRun(made.cells()[0])


def states(cell: CellRun) -> dict[str, NDArray[Any]]:
    for _ in range(cell.cell.episodes):
        cell.advance()
    return {**cell.state_dict(), **{f"replay.{name}": array for name, array in cell.replay.state_dict().items()}}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Taken:
    """Note the steps of every stride."""
    found: Taken = []

    def watched(calls: Any, members: int, steps: int, going: Any = None) -> None:
        found.append(steps)
        runner(calls, members, steps, going)

    runner = sequence.run
    monkeypatch.setattr(strides, "run", watched)
    return found


def one_by_one(cell: CellRun, monkeypatch: pytest.MonkeyPatch) -> dict[str, NDArray[Any]]:
    """Return the states of a run without strides."""
    with monkeypatch.context() as patch:
        patch.setattr(loop, "act_in_strides", lambda *_: False)
        patch.setattr(cells, "learning_stride", lambda *_: 0)
        patch.setattr(reference_controllers, "_in_a_row", lambda *_: False)
        return states(cell)


def assert_same(strode: dict[str, NDArray[Any]], stepped: dict[str, NDArray[Any]]) -> None:
    assert strode.keys() == stepped.keys()
    for name, array in stepped.items():
        np.testing.assert_array_equal(strode[name], array, err_msg=name)


@pytest.mark.parametrize(
    ("learner", "strategy", "settings", "study"),
    [
        ("DDPG", "FULL[Uniform]", SMALL, {}),
        ("DDPG", "FIFO[Uniform]", SMALL, {"seeds": 1}),
        ("DDPG", "Resv[PER]", SMALL, {"plants": ("Magman",)}),
        ("DDPG", "TDE[PERprop+IS]", SMALL, {}),
        ("DDPG", "Expl[ERE]", SMALL, {}),
        ("DDPG", "FIFO[ERE+PER]", SMALL, {"noise": (0.0,)}),
        ("DDPG", "Resv[ERE+PER+FIS]", SMALL, {"replayed_noise": True}),
        ("DDPG", "FIFO[Uniform]", SMALL | GAUSSIAN, {}),
        ("TD3", "Resv[Uniform]", SMALL | {"warmup_episodes": 1}, {}),
        ("SAC", "Expl[Uniform]", SMALL | {"warmup_episodes": 1}, {}),
        ("SAC", "FIFO[Uniform]", SMALL | {"version": "first", "temperature": 0.2}, {}),
        ("DQN", "Expl[Uniform]", {"hidden": [8], "batch_size": 16, "levels": 3}, {"plants": ("Magman",)}),
        ("DDPG", "FIFO[Uniform]", SMALL | {"normalise": {"observations": True, "clip": 1.0, "rewards": True}}, {}),
        ("NAF", "FIFO[PER]", {"hidden": [8], "batch_size": 16}, {}),
        ("NAF", "FIFO[PER]", {"hidden": [8], "batch_size": 16, "bounded": False} | GAUSSIAN, {}),
        ("DDPG", "FIFO[Uniform]", SMALL, {"update_every": 70}),
    ],
)  # fmt: skip
def test_acting_in_strides_gives_the_bits_of_step_by_step(
    learner: str, strategy: str, settings: Any, study: Any, taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    strode = states(run(learner, strategy, settings, **study))
    rounds = 3 - settings.get("warmup_episodes", 0)
    # All steps; of two hundred each where nothing follows in their midst.
    assert sum(taken) == rounds * 200 if "update_every" not in study else sum(taken) > 500
    assert_same(strode, one_by_one(run(learner, strategy, settings, **study), monkeypatch))


@pytest.mark.parametrize(
    ("learner", "strategy", "settings", "seeds"),
    [
        ("SAC", "FIFO[Uniform]", {"warmup_episodes": 1}, 1),
        ("DDPG", "FULL[Uniform]", {}, 3),
        ("TD3", "Resv[PER]", {"warmup_episodes": 1}, 3),
        ("DDPG", "TDE[PERprop+IS]", {}, 3),
        ("DDPG", "FIFO[Uniform]", {"normalise": {"rewards": True}}, 2),
    ],
)
def test_learning_in_strides_gives_the_bits_of_step_by_step(
    learner: str, strategy: str, settings: Any, seeds: int, taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = SMALL | {"replays_per_experience": 16.0} | settings
    strode = states(run(learner, strategy, wanted, seeds=seeds, **ONE))
    assert sum(taken) >= 398, "but for the first step, of which nothing is stored, and for warming up"
    assert_same(strode, one_by_one(run(learner, strategy, wanted, seeds=seeds, **ONE), monkeypatch))


@pytest.mark.parametrize(("seeds", "update_every"), [(3, 0), (40, 0), (3, 45), (40, 45)])
def test_episodes_that_end_early_do_so_for_each_member(
    seeds: int, update_every: int, taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty have theirs in several strides; where updates follow steps all go as many, from one to the next."""

    def falling() -> CellRun:
        study = {"plants": (f"{__file__}:Falling",), "seeds": seeds, "episodes": 4, "update_every": update_every}
        return run("DDPG", "Resv[PER]", SMALL, **study)

    strode = states(cell := falling())
    assert taken
    lasted = cell.episode_steps
    assert lasted.min() < 100
    assert len(np.unique(lasted[:, 0])) > 1
    assert lasted.max() <= 200
    assert_same(strode, one_by_one(falling(), monkeypatch))


def test_an_episode_is_told_once() -> None:
    """Whatever follows before the next one ends."""
    episodes = LiveEpisodes(PopulationEnv("PendulumDCSC", 2))
    everybody = np.ones(2, np.bool_)
    episodes.begin(everybody)
    episodes.note(np.array([1.0, 2.0]), episodes.observation, episodes.sensor_noise, np.array([True, False]))
    assert episodes.active.tolist() == [False, True]
    episodes.begin(~episodes.active)
    episodes.settle(episodes.observation, episodes.sensor_noise)
    np.testing.assert_array_equal(episodes.reward, [1.0, np.nan])
    assert episodes.active.all()


def test_a_member_that_fails_is_seen_to(taken: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its actions are no numbers; the others go on."""

    def failing() -> CellRun:
        cell = run("DDPG", "FIFO[Uniform]", SMALL)
        cell.agent.networks["actor"].parameters[1] = np.nan  # type: ignore[attr-defined]
        return cell

    strode = states(cell := failing())
    assert taken
    assert np.isnan(cell.reward[1]).all()
    assert np.isfinite(cell.reward[[0, 2]]).all()
    assert_same(strode, one_by_one(failing(), monkeypatch))


@dataclass(frozen=True, kw_only=True)
class OwnConfig(SACConfig):
    """Its settings."""


class Own(SAC):
    """Does more in a step than its class."""

    def re_explore(self, observation: Any) -> Any:
        """Do what it did."""
        return super().re_explore(observation)


@pytest.mark.parametrize(
    ("learner", "strategy", "settings", "study"),
    [
        ("V-RACER", "FIFO[Uniform]", {"hidden": [8], "batch_size": 16}, {}),
        ("DDPG", "FIFO[AER]", SMALL, {}),
        ("DDPG", "FIFO[Uniform+ReFER]", SMALL | GAUSSIAN, {}),
        ("DDPG", "FIFO[Uniform]", SMALL | {"exploration": {"form": "gaussian", "truncate": 3.0}}, {}),
        ("DDPG", "FIFO[Uniform]", SMALL | {"exploration": {"form": "parameter"}}, {}),
        ("DDPG", "FIFO[Uniform]", SMALL, {"observe": ("angle",)}),
        ("DDPG", "Drop(0.5)*FIFO[Uniform]", SMALL, {}),
        ("DDPG", "FIFO[Uniform]", SMALL, {"plants": (f"{__file__}:Pushed",)}),
        ("DDPG", "FIFO[Uniform]", SMALL, {"plants": (f"{__file__}:Named",)}),
        (f"{__file__}:Own", "FIFO[Uniform]", SMALL, {}),
    ],
)
def test_where_more_than_kernels_is_to_be_done_it_is_done(
    learner: str, strategy: str, settings: Any, study: Any, taken: Taken
) -> None:
    states(run(learner, strategy, settings, episodes=1, **study))
    assert not taken


@pytest.mark.parametrize(("part", "method"), [("retention", "slots"), ("sampling", "stored")])
def test_what_changes_a_part_of_the_package_is_not_passed_over(part: str, method: str, taken: Taken) -> None:
    """Its calls are inherited, and know nothing of the change."""
    cell = run("DDPG", "FIFO[Uniform]", SMALL, episodes=1)
    running = getattr(cell.replay, part)
    running.__class__ = type("Changed", (type(running),), {method: lambda *_: None})
    states(cell)
    assert not taken


def test_draws_that_look_at_the_run_are_made_step_by_step(taken: Taken) -> None:
    """Annealed rates, ERE's counts: made for many steps ahead they would be those of the first.

    And episodes that end early, where members would be at different updates.
    """
    wanted = SMALL | {"replays_per_experience": 16.0}
    for strategy in ("FIFO[Annealed]", "FIFO[ERE]", "FIFO[PER+FIS]"):
        states(run("DDPG", strategy, wanted, episodes=1, **ONE))
    states(run("DDPG", "FIFO[Uniform]", wanted, episodes=1, plants=(f"{__file__}:Falling",), **ONE))
    assert not taken


def test_a_stride_ends_where_an_episode_does() -> None:
    cell = run("DDPG", "FIFO[Uniform]", SMALL | {"batch_size": 4, "replays_per_experience": 4.0}, seeds=1, **ONE)
    loop.training_steps(cell.agent, cell.replay, cell.episodes, 50, 0)
    done = strides.learning_stride(cell.agent, cell.replay, cell.episodes, 1000, lambda _: 0.5)
    assert done == 150
    assert not cell.episodes.active.any()
    assert cell.episodes.steps.tolist() == [200.0]


def test_what_a_plant_raises_is_what_is_said() -> None:
    with pytest.raises(ValueError, match="too fast"):
        states(run("DDPG", "FIFO[Uniform]", SMALL, plants=(f"{__file__}:Raising",)))


def test_a_population_that_does_more_in_a_step_does_it(taken: Taken) -> None:
    cell = run("DDPG", "FIFO[Uniform]", SMALL)
    env = Rewarding("PendulumDCSC", 3, nan_actions="fail")
    episodes = loop.training_episode(env, cell.agent, cell.replay, 0)
    assert not taken
    assert episodes.reward.min() > 500
    assert reference_controllers.run_episode(cell.agent.greedy(), env).min() > 500


@pytest.mark.parametrize("method", ["update", "update_all", "begin_updates", "explore", "on_step", "seen"])
def test_what_a_learner_does_beside_its_calls_is_done(method: str, taken: Taken) -> None:
    """Although the class declares them."""
    cell = run("DDPG", "FIFO[Uniform]", SMALL | {"replays_per_experience": 16.0}, episodes=1, **ONE)
    theirs = getattr(DDPG, method)
    own: dict[str, Any] = {method: lambda *arguments: theirs(*arguments)}
    own |= {name: vars(DDPG)[name] for name in ("call_for", "exploring", "several_at_once", "greedy_by_form")}
    cell.agent.__class__ = type("Own", (DDPG,), own)
    states(cell)
    assert not taken


def test_a_learner_whose_calls_come_and_go_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of its members have done steps that nobody could take back."""
    cell = run("DDPG", "FIFO[Uniform]", SMALL, plants=(f"{__file__}:Falling",), update_every=45)
    exploring, asked = DDPG.exploring, [0]

    def now_and_then(*arguments: Any) -> Any:
        asked[0] += 1
        return exploring(*arguments) if asked[0] < 3 else None

    monkeypatch.setattr(DDPG, "exploring", now_and_then)
    with pytest.raises(RuntimeError, match="DDPG: exploring returned None amid a round"):
        states(cell)


def test_a_refusal_that_stays_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refused(agent: Any, replay: Any, episodes: Any, due: int, progress: Any) -> int:
        asked.append(due)
        return 0

    monkeypatch.setattr(cells, "learning_stride", refused)
    states(run("DDPG", "FIFO[Uniform]", SMALL | {"replays_per_experience": 16.0}, **ONE))
    assert asked == [200, 199] * 3


def test_updates_on_what_is_newest_are_made_step_by_step(taken: Taken) -> None:
    cell = run("DDPG", "FIFO[Uniform]", SMALL | {"replays_per_experience": 16.0}, episodes=1, **ONE)
    cell.agent.on_policy = True
    states(cell)
    assert not taken


@pytest.mark.parametrize("kind", [Uniform, IS])
def test_what_is_derived_promises_for_itself(kind: Any) -> None:
    """That calls hold while experiences arrive."""
    assert kind.lasting
    for own, lasting in (({}, False), ({"lasting": True}, True)):
        mine: Any = type("Mine", (kind,), own)
        assert mine.lasting == lasting


@pytest.mark.parametrize("learner", LEARNERS.own)
def test_calls_act_as_a_learner_does(learner: str) -> None:
    """Bit for bit, also where a member has failed."""
    settings = {"warmup_episodes": 0} if learner in ("SAC", "TD3") else {}
    agent: Any = run(learner, "FIFO[Uniform]", settings).agent
    for network in agent.networks.values():
        network.parameters *= 3  # so that bounds are reached
        network.parameters[1, :1] = np.nan
    observation = np.random.default_rng(0).normal(0, 2, (3, 2)).astype(np.float32)
    acting = agent.acting(observation)
    assert (acting is None) == (learner == "TD3+BC")
    if acting is not None:
        action, calls = acting
        for call in calls:
            call.make()
        np.testing.assert_array_equal(action, agent.act(observation))
        assert np.isnan(action[1]).all()
        assert np.isfinite(action[[0, 2]]).all()
