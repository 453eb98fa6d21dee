"""Reference scores: golden values, noise, normalisation and the cache."""

import dataclasses
import math
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from replaybench.baselines import controllers, references
from replaybench.baselines.controllers import RandomController, zero_control
from replaybench.baselines.fuzzy_q_iteration import solve
from replaybench.baselines.references import Reference, no_score, normalise, reference
from replaybench.data.record import write_record
from replaybench.envs.foreign.python_plant import PythonPlant
from replaybench.envs.interface.plant import Params, Vector
from replaybench.envs.ode.magman import Magman
from replaybench.envs.ode.pendulum import Pendulum, PendulumDCSC
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.population import PopulationEnv
from replaybench.runtime.streams import Stream
from tests.helpers.declared import declared
from tests.helpers.episodes import episode_rewards
from tests.helpers.refusals import refuses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Small(PendulumDCSC):
    name = "Small"
    grid_nodes, action_levels, refine_grid = (41, 31), (3,), False
    reference_episodes = 40


_AT_SPEED = Small.rhs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slowed(Small):
    """The same with all that happens taking `times` as long."""

    times: float = 1.0

    name = "Slowed"

    @property
    def frequency(self) -> float:  # type: ignore[override]
        return 50.0 / self.times

    @property
    def episode_seconds(self) -> float:  # type: ignore[override]
        return 4.0 * self.times

    @property
    def max_substep(self) -> float:  # type: ignore[override]
        return 0.01 * self.times

    @staticmethod
    def rhs(x: Vector, u: Vector, p: Params) -> tuple[float, float]:
        angle, speed = _AT_SPEED(x, u, p[:7])
        return angle / p[7], speed / p[7]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resting(PythonPlant):
    """Anything stays where its episode begins, and is rewarded by its place."""

    name = "Resting"
    state_names, state_units, state_center, state_scale = ("place",), ("m",), (0.0,), (1.0,)
    action_names, action_units, action_low, action_high = ("nothing",), ("1",), (-1.0,), (1.0,)
    initial_state = (0.0,)
    frequency = 1.0
    reference_episodes = 7

    def start(self, uniform: Vector) -> Vector:
        return uniform

    def step(self, x: Vector, u: Vector, dt: float) -> tuple[Vector, float, bool]:
        return x, float(x[0]), False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Driven(Resting):
    """The same, rewarded by the square of the applied action."""

    name = "Driven"
    reference_episodes = 400

    def step(self, x: Vector, u: Vector, dt: float) -> tuple[Vector, float, bool]:
        return x, float(u[0] ** 2), False


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer repetitions, for what does not depend on how many there are."""
    monkeypatch.setattr(references, "REPETITIONS", 3)


# FACTS, reference values: mean reward per step over 4 s at 50 Hz. Magman, there between -0.33 and -0.30 over grids
# of 57×41 to 141×101 nodes, is -0.284 on the latter; the interpolated policies are -44.6 and -0.21 here.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "dp", "interpolated", "random", "random_sd", "zero", "sweeps"),
    [
        (Pendulum(), -49.1, -44.6, -163.5, 3.3, -157.08, 198),
        (PendulumDCSC(), -20.5, -157.08, -160.3, 3.3, -157.08, 89),
        (Magman(), -0.284, -0.213, -5.05, 1.2, -3.5, 171),
        (Magman(first_magnet_at=0.0), -0.259, -0.24, -3.64, 0.33, -3.5, 78),
    ],
    ids=["pendulum", "pendulum DCSC", "magman", "magman from the first magnet"],
)
def test_reference_values(
    plant: OdePlant, dp: float, interpolated: float, random: float, random_sd: float, zero: float, sweeps: int
) -> None:
    found = reference(plant, rule="paper")
    assert found.dp == found.dp_mean == pytest.approx(dp, rel=0.05)
    assert found.interpolated == pytest.approx(interpolated, rel=0.05)
    assert found.random == pytest.approx(random, rel=0.05)
    assert found.random_sd == pytest.approx(random_sd, rel=0.1)
    assert found.zero == pytest.approx(zero, rel=1e-4)
    assert found.sweeps <= 10
    assert solve(plant, variant="synchronous").sweeps == sweeps
    assert (found.nodes, found.discount, found.rule) == (plant.grid_nodes, 0.95, "paper")
    assert found.usable
    np.testing.assert_allclose(normalise([found.random, found.dp], found), [0.0, 1.0])


@pytest.mark.usefixtures("few")
def test_with_noise_the_reference_is_the_mean_of_the_best_episodes() -> None:
    plant = Small()
    found = reference(plant, noise=0.02)
    rewards = episode_rewards(solve(plant).greedy, plant, 50.0, 0.02, range(120), seed=1)
    assert found.dp_mean == pytest.approx(rewards.mean(), abs=4 * rewards.std() / math.sqrt(120) * math.sqrt(2))
    best = rewards.reshape(3, 40).max(axis=1)
    assert found.dp == pytest.approx(best.mean(), abs=4 * best.std(ddof=1))
    assert found.dp > found.dp_mean + rewards.std()


@pytest.mark.usefixtures("few", "empty_cache")
def test_only_noise_needs_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it every episode of dynamic programming is the same one."""
    played: list[str] = []

    def counted(controller: Any, env: PopulationEnv) -> NDArray[np.float64]:
        played.append(controller.__name__)
        return np.zeros(env.num_envs)

    monkeypatch.setattr(controllers, "run_episode", counted)
    for noise, episodes in ((0.0, 2), (0.02, 3 + 2)):  # one interpolated, and one in values averaged over the noise
        played.clear()
        reference(Small(), noise=noise)
        assert played.count("greedy") + played.count("interpolated") == episodes


APART = Reference("p", 50.0, 0.0, -10.0, 1.0, -9.0, math.nan, -7.9, -7.9, -7.9, 0.95, (9, 7), 3, 1)


def test_the_grid_text_reports_convergence() -> None:
    grids = [dataclasses.replace(APART, rule="converged", change=change).grid for change in (0.0021, 0.0062, math.nan)]
    said = ("converged (last change 0.21 %)", "not converged (last change 0.62 %)", "not converged")
    assert grids == [f"9 × 7 nodes, 3 actions, {words}" for words in said]
    assert dataclasses.replace(APART, nodes=()).grid == ""


def test_random_actions_are_uniform_and_zero_is_no_voltage_and_no_current() -> None:
    nothing = np.zeros((5000, 2), np.float32)
    actions = RandomController(Magman(), range(5000)).act(nothing)
    assert actions.dtype == np.float32
    # Standard error of the mean 0.0041 and of the variance 0.0021, five of each.
    np.testing.assert_allclose(actions.mean(axis=0), 0.0, atol=5 * 0.0082 / 2)
    np.testing.assert_allclose(actions.var(axis=0), 1 / 3, atol=5 * 0.0042)
    assert np.abs(actions).max() <= 1.0
    np.testing.assert_array_equal(zero_control(Magman())(nothing[:3]), np.full((3, 4), -1.0, np.float32))
    np.testing.assert_array_equal(zero_control(Pendulum())(nothing[:3]), np.zeros((3, 1), np.float32))


def test_random_control_takes_each_choice_equally_often_and_zero_is_one_of_them() -> None:
    """χ² over the 12 combinations, p = 0.001."""
    actions = {"action_names": ("a", "b"), "action_units": ("1", "1"), "action_choices": (3, 4)}
    ends = {"action_low": (0.0, -1.0), "action_high": (2.0, 2.0), "zero_action": (1.0, 0.0)}
    plant, observation = declared(Resting, **actions, **ends)(), np.zeros((5000, 1), np.float32)
    drawn = RandomController(plant, range(5000), seed=1).act(observation)
    assert drawn.dtype == np.float32
    chosen = plant.denormalise_action(drawn)
    np.testing.assert_allclose(plant.normalise_action(chosen), drawn, atol=1e-6)
    found, counted = np.unique(chosen, axis=0, return_counts=True)
    assert len(found) == 12
    assert stats.chisquare(counted).pvalue > 0.001
    zero = zero_control(plant)(observation)
    np.testing.assert_array_equal(plant.denormalise_action(zero[:1]), [plant.zero_action])


def test_references_too_close_to_random_give_no_score() -> None:
    close = dataclasses.replace(APART, dp=-8.1)
    assert APART.usable
    assert not close.usable
    np.testing.assert_allclose(normalise([-10.0, -8.95, -7.9], APART), [0.0, 0.5, 1.0])
    assert np.isnan(normalise([-10.0, -8.1], close)).all()
    assert not dataclasses.replace(APART, random=0.0, dp=0.0).usable


def test_random_starts_are_averaged_over_reference_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """By every controller, each on the next start of each member; and another number of them is another reference."""
    for episodes in (7, 3):
        monkeypatch.setattr(Resting, "reference_episodes", episodes)
        draws = Stream(2018, range(episodes), "evaluation initial state")
        found, first, second = reference(Resting()), draws.uniform(1), draws.uniform(1)
        assert found.random == pytest.approx(first.mean(), rel=1e-12)
        assert found.random_sd == pytest.approx(first.std(ddof=1), rel=1e-12)
        assert found.zero == pytest.approx(second.mean(), rel=1e-12)


def test_references_are_measured_under_noise_of_the_actuator() -> None:
    quiet, noisy = (reference(Driven(), noise=noise) for noise in (0.0, 0.1))
    assert quiet.zero == 0
    assert noisy.zero == pytest.approx(0.1**2, rel=0.15)  # the mean of 1600 squares is 3.5 % off, as a rule
    assert noisy.random_sd != quiet.random_sd


@pytest.mark.slow
@pytest.mark.parametrize("times", [100.0, 0.01])
@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_a_plant_that_is_slowed_down_has_the_same_scores(times: float, rate: float) -> None:
    """Run at as much less of the rate, it is the same task: nothing may know how long a second is."""
    plain, slow = (reference(Slowed(times=t), 50.0 * rate / t) for t in (1.0, times))
    assert plain.usable
    for name in ("random", "random_sd", "zero", "lqr", "discount", "sweeps", "nodes"):
        assert getattr(slow, name) == pytest.approx(getattr(plain, name), rel=1e-6), name
    for name in ("dp", "dp_mean", "interpolated"):  # upright two actions are equally good, but for rounding
        assert getattr(slow, name) == pytest.approx(getattr(plain, name), rel=0.03), name
    solved = [solve(plant, plant.frequency * rate).theta for plant in (Slowed(), Slowed(times=times))]
    np.testing.assert_allclose(solved[1], solved[0], rtol=1e-6)
    np.testing.assert_allclose(normalise([-60.0, -30.0], slow), normalise([-60.0, -30.0], plain), atol=0.01)


def test_a_reference_no_better_than_random_is_unusable() -> None:
    found = reference(Small(torque_constant=0.0), 50.0)  # a motor without torque
    assert not found.usable
    assert np.isnan(normalise(found.dp, found))
    assert no_score(found.dp, found.random).startswith("no μ_r, because dynamic programming (-157.1) is hardly better")
    assert "no better" in no_score(-11.0, -10.0)
    assert no_score(-5.0, -10.0) == no_score(math.nan, -10.0) == ""


@pytest.mark.parametrize("changed", [{"grid_nodes": (31, 31)}, {"grid_high": (math.pi, 31.0)}, {"action_levels": (5,)}])
@pytest.mark.usefixtures("few", "empty_cache")
def test_another_grid_is_another_reference(changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Although it is no part of the plant's fingerprint."""
    before, solved = reference(Small()), solve(Small()).theta
    for name, value in changed.items():
        monkeypatch.setattr(Small, name, value)
    after = reference(Small())
    assert (after.nodes, after.actions) == (Small.grid_nodes, Small.action_levels[0])
    assert after.dp != before.dp
    assert not np.array_equal(solve(Small()).theta, solved)


@pytest.mark.usefixtures("few")
def test_a_reference_is_measured_once_per_content(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = mock.Mock(wraps=references._measure)
    monkeypatch.setattr(references, "_measure", measure)

    def again() -> dict[str, Any]:
        return dataclasses.asdict(reference(Small(), 50.0, 0.01))

    first = again()
    np.testing.assert_equal(again(), first)
    assert measure.call_count == 1
    reference(Small(inertia=2e-4), 50.0, 0.01)
    reference(Small(), 50.0, 0.0)
    reference(Small(), 25.0, 0.01)
    assert measure.call_count == 4
    for entry in (empty_cache / "references").iterdir():
        entry.write_bytes(entry.read_bytes()[:-1])
    np.testing.assert_equal(again(), first)
    assert measure.call_count == 5
    path = references.kept_at(Small(), 50.0, 0.01, None)
    for forged in ({**first, "dp": "x"}, {**first, "nodes": 5}, {**first, "episode_metric": []}, {}):
        write_record(path, "reference", forged, {})
        np.testing.assert_equal(again(), first)
    assert measure.call_count == 9


@pytest.mark.parametrize(("frequency", "noise", "message"), [(33.3, 0.0, "33.25 or 33.5"), (50.0, -0.1, "at least 0")])
def test_settings_out_of_range_are_refused(frequency: float, noise: float, message: str) -> None:
    refuses(message, reference, Pendulum(), frequency, noise)
