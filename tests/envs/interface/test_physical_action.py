"""Plants that take choices: tasks of Gymnasium do what they do there, and every engine gets the nearest choice."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from numpy.typing import NDArray
from scipy import stats

from replaybench.data.errors import UserError
from replaybench.data.streams import Stream
from replaybench.envs.foreign.gymnasium_plant import _plant_of
from replaybench.envs.foreign.python_plant import PythonPlant
from replaybench.envs.ode.pendulum import PendulumDCSC
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import make_plant

Vector = NDArray[np.float64]


def random_numbers(*shape: int) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(3)).uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("name", ["CartPole-v1", "Acrobot-v1"])
def test_a_member_is_gymnasiums_own_environment(name: str) -> None:
    """Equal seed and choices give equal observations, rewards and ends, bit for bit, through some episodes."""
    env, own = PopulationEnv(f"gymnasium:{name}", 2, seed=5), gymnasium.make(name)
    plant, seeds = env.plant, Stream(5, (0, 1), "initial state")
    count = plant.action_choices[0]
    mask, ends = np.array([False, True]), 0
    observation, _ = env.reset()
    seeds.uniform(1, ~mask)
    expected, _ = own.reset(seed=int(seeds.uniform(1, mask)[0, 0] * 2**32))
    for choice in np.random.Generator(np.random.PCG64(0)).integers(count, size=600):
        np.testing.assert_array_equal(observation[1], plant.normalise_state(expected).astype(np.float32))
        action = np.full((2, 1), 2 * choice / (count - 1) - 1, np.float32)
        observation, rewards, ended, cut, _ = env.step(action)
        expected, reward, terminated, truncated, _ = own.step(choice)
        np.testing.assert_array_equal(observation[1], plant.normalise_state(expected).astype(np.float32))
        assert (rewards[1], ended[1], cut[1]) == (reward, terminated, truncated)
        if terminated or truncated:
            ends += 1
            observation, _ = env.reset(options={"reset_mask": mask})
            expected, _ = own.reset(seed=int(seeds.uniform(1, mask)[0, 0] * 2**32))
    assert ends >= 1
    env.close()


class Echo(gymnasium.Env[Any, Any]):
    """Shows what was chosen."""

    observation_space: gymnasium.Space[Any] = Box(-100.0, 100.0, (3,), np.float64)
    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, action: Any) -> None:
        self.action_space = action

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Vector, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(3), {}

    def step(self, action: Any) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        assert np.asarray(action).dtype == self.action_space.dtype
        return np.resize(np.append(action, [0, 0]), 3).astype(np.float64), float(np.sum(action)), False, False, {}


@pytest.fixture
def echo() -> Iterator[Any]:
    """Register a task of given actions for one test."""
    before = dict(gymnasium.registry)

    entry: Any = Echo  # whose keywords are its own

    def register(action: Any) -> str:
        gymnasium.register("Echo-v0", entry, max_episode_steps=50, kwargs={"action": action})
        return "gymnasium:Echo-v0"

    yield register
    gymnasium.registry.clear()
    gymnasium.registry.update(before)
    _plant_of.cache_clear()


def test_each_of_several_choices_is_an_action_of_its_own(echo: Any) -> None:
    env = PopulationEnv(echo(MultiDiscrete([2, 4, 7], dtype=np.int32, start=[0, -3, 1])), 3)
    plant: Any = env.plant
    assert (plant.action_low, plant.action_high) == ((0, -3, 1), (1, 0, 7))
    assert plant.action_choices == (2, 4, 7)
    assert plant.zero_action == (0, -2, 4)
    env.reset()
    seen = []
    for action in np.concatenate([random_numbers(40, 3, 3), np.full((1, 3, 3), -1), np.ones((1, 3, 3))]):
        observation, reward, *_ = env.step(action)
        chosen = plant.denormalise_action(action)
        np.testing.assert_array_equal(chosen, np.rint(chosen))
        np.testing.assert_allclose(100 * observation, chosen, atol=1e-5)
        np.testing.assert_array_equal(reward, chosen.sum(axis=1))
        step = 2 / (np.array(plant.action_choices) - 1)
        assert (np.abs(plant.normalise_action(chosen) - action) <= step / 2 + 1e-7).all()
        seen.append(chosen)
    assert [len(np.unique(np.concatenate(seen)[:, a])) for a in range(3)] == [2, 4, 7]
    env.close()


@pytest.mark.parametrize(
    ("action", "told"),
    [
        (Discrete(1), "its action has one choice only"),
        (MultiDiscrete([3, 1]), "its action has one choice only"),
        (MultiDiscrete(np.full((2, 2), 2)), "is of kind MultiDiscrete; supported are a one-dimensional Box"),
        (gymnasium.spaces.MultiBinary(2), "is of kind MultiBinary; supported are a one-dimensional Box"),
    ],
)
def test_what_offers_no_choice_is_refused_in_one_line(echo: Any, action: Any, told: str) -> None:
    with pytest.raises(UserError, match=told) as caught:
        make_plant(echo(action))
    assert "\n" not in str(caught.value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Valve(PythonPlant):
    """Is where it is put: shut, half open, or open."""

    name = "Valve"
    state_names, state_units, state_center, state_scale = ("opening",), ("1",), (0.0,), (1.0,)
    action_names, action_units, action_low, action_high = ("command",), ("1",), (0.0,), (1.0,)
    action_choices: ClassVar[tuple[int, ...]] = (3,)
    initial_state = (0.0,)
    frequency = 1.0
    episode_seconds = 400.0

    def step(self, x: Vector, u: Vector, dt: float) -> tuple[Vector, float, bool]:
        return u, float(u[0]), False


@dataclasses.dataclass(frozen=True, kw_only=True)
class BangBang(PendulumDCSC):
    """The pendulum under two voltages."""

    name = "BangBang"
    action_choices = (2,)
    action_levels = (2,)


def test_actuator_noise_comes_before_the_choice() -> None:
    """Half a step from the next choice at each side, a command is lost by P(|noise| > 1/2): χ², p = 0.001."""
    members, steps, sigma = 50, 200, 0.4
    env = PopulationEnv(Valve(), members, actuator_noise=sigma)
    env.reset()
    counted = np.zeros(3)
    for _ in range(steps):
        observation, *_, infos = env.step(np.zeros((members, 1)))
        expected = np.select([infos["actuator_noise"] <= -0.5, infos["actuator_noise"] > 0.5], [0.0, 1.0], 0.5)
        np.testing.assert_array_equal(observation, expected)
        counted += [(observation == value).sum() for value in (0.0, 0.5, 1.0)]
    lost = stats.norm.sf(0.5 / sigma)
    probability = np.array([lost, 1 - 2 * lost, lost])
    assert stats.chisquare(counted, members * steps * probability).pvalue > 0.001
    assert set(observation.ravel()) <= {0.0, 0.5, 1.0}


def test_equations_get_the_nearest_choice_too() -> None:
    """Commands between the choices are those of the unrestricted plant's ends, in every way of stepping."""
    bang, free = PopulationEnv(BangBang(), 3), PopulationEnv(PendulumDCSC(), 3)
    bang.reset()
    free.reset()
    for action in random_numbers(50, 3, 1):
        np.testing.assert_array_equal(
            bang.simulate(np.zeros(2), action)[0], free.simulate(np.zeros(2), np.sign(action))[0]
        )
        for mine, theirs in zip(bang.step(action)[:4], free.step(np.sign(action))[:4], strict=True):
            np.testing.assert_array_equal(mine, theirs)


def wrong_plant(base: type, **facts: Any) -> None:
    made: Any = type("Wrong", (base,), facts)
    dataclasses.dataclass(frozen=True)(made)()


def test_choices_are_part_of_what_a_plant_is_and_checked() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Free(Valve):
        action_choices = ()

    assert Free().fingerprint() != Valve().fingerprint()
    for wrong, told in (((1,), "whole number from 2"), ((2.0,), "whole number from 2"), ((2, 2), "2 entries")):
        with pytest.raises(UserError, match=f"action_choices.*{told}"):
            wrong_plant(Valve, action_choices=wrong)
    with pytest.raises(UserError, match="action_levels must equal action_choices"):
        wrong_plant(BangBang, action_levels=(3,))
