"""Gymnasium environments as plants."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.wrappers import (
    ClipAction,
    FlattenObservation,
    RescaleAction,
    TimeAwareObservation,
    TransformAction,
)

from replaybench.envs.foreign.gymnasium_plant import GymnasiumPlant, _plant_of
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import make_plant, plant_class
from replaybench.evidence.contracts import difference, rollout
from replaybench.runtime.errors import UserError
from replaybench.runtime.streams import Stream
from tests.helpers.refusals import refuses

TASKS = ("gymnasium:Pendulum-v1", "gymnasium:MountainCarContinuous-v0", "gymnasium:Hopper-v5")
CHOICES = ("gymnasium:CartPole-v1", "gymnasium:Acrobot-v1")


def actions_for(env: PopulationEnv, steps: int) -> np.ndarray:
    rng = np.random.Generator(np.random.PCG64(3))
    return rng.uniform(-1, 1, (steps, *env.action_space.shape)).astype(np.float32)


@pytest.mark.parametrize("name", [*TASKS, *CHOICES])
def test_members_equal_gymnasiums_environment(name: str) -> None:
    """Equal seed and actions give equal observations, rewards and ends, through a whole episode of Gymnasium's."""
    env = PopulationEnv(name, 2, seed=5)
    plant = env.plant
    observation, _ = env.reset()
    own = gymnasium.make(name.removeprefix("gymnasium:"))
    draw = Stream(5, (0, 1), "initial state").uniform(1)[1, 0]
    expected, _ = own.reset(seed=int(draw * 2**32))
    np.testing.assert_array_equal(observation[1], plant.normalise_state(expected).astype(np.float32))
    over = False
    for action in actions_for(env, env.steps_per_episode):
        physical = plant.denormalise_action(action[1])
        command = int(physical[0]) if plant.action_choices else physical.astype(own.action_space.dtype)
        expected, reward, terminated, truncated, _ = own.step(command)
        observation, rewards, ended, cut, _ = env.step(action)
        np.testing.assert_array_equal(observation[1], plant.normalise_state(expected).astype(np.float32))
        assert (rewards[1], ended[1], cut[1]) == (reward, terminated, truncated)
        over = terminated or truncated
        if over:
            break
    assert over
    env.close()


def test_declarations_are_read_from_the_task() -> None:
    pendulum, hopper = plant_class(TASKS[0]), plant_class(TASKS[2])
    assert pendulum is plant_class(TASKS[0])
    assert issubclass(pendulum, GymnasiumPlant)
    plant = make_plant(TASKS[0])
    assert plant.name == TASKS[0]
    assert (plant.action_low, plant.action_high) == ((-2.0,), (2.0,))
    assert (plant.state_scale, plant.observation_limit) == ((1.0, 1.0, 8.0), (1.0, 1.0, 1.0))
    assert (plant.frequency, plant.episode_seconds, plant.steps_per_episode(20)) == (20.0, 10.0, 200)
    assert make_plant(TASKS[2]).frequency == 125.0  # 4 steps of 2 ms
    assert set(make_plant(TASKS[2]).observation_limit) == {1e6}  # bounded by nothing
    assert make_plant(TASKS[1]).frequency == 30.0  # by its frames per second
    assert make_plant(TASKS[0]).fingerprint() != hopper().fingerprint()
    assert "mujoco" in hopper().made_of()
    assert "mujoco" not in pendulum().made_of()


STATES = Box(np.array([-np.inf, -2, 0]), np.array([np.inf, 3.4e38, 4]), dtype=np.float64)
ACTIONS = Box(np.array([-1.0, 0.0]), np.array([1.0, 4.0]), dtype=np.float64)


class Task(gymnasium.Env[Any, Any]):
    """A counter that stops by itself after 3 steps, without end in sight; or shows what it is told to, or raises it."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self, observation: Any = STATES, action: Any = ACTIONS, begins: float = 1e9, shown: Any = None
    ) -> None:
        self.observation_space, self.action_space = observation, action
        self.begins, self.shown = begins, shown

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return np.array([self.begins, -1.0, 0.0]), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        assert action.dtype == self.action_space.dtype
        self.count += 1
        if isinstance(self.shown, BaseException):
            raise self.shown
        shown = np.array([-1e9, 5.0, self.count]) if self.shown is None else self.shown
        return shown, float(action[1]), False, self.count == 3, {}


@pytest.fixture
def registered() -> Iterator[Any]:
    """Register tasks for one test: `registered("Name-v0", **how)`."""
    before = dict(gymnasium.registry)

    def register(identifier: str, **how: Any) -> str:
        gymnasium.register(identifier, **{"entry_point": Task, "max_episode_steps": 10, **how})
        return f"gymnasium:{identifier}"

    yield register
    gymnasium.registry.clear()
    gymnasium.registry.update(before)
    _plant_of.cache_clear()


def test_a_task_may_truncate_before_its_time_limit(registered: Any) -> None:
    name = registered("space/Counter-v0")
    env = PopulationEnv(name, 2)
    assert env.steps_per_episode == 10
    assert env.plant.frequency == 1.0
    env.reset()
    seen = rollout(env, np.ones((5, 2, 2), np.float32))
    np.testing.assert_array_equal(seen["truncated"][0], [False, False, True, True, True])
    assert not seen["terminated"].any()
    np.testing.assert_array_equal(seen["reward"][1], [4, 4, 4, 0, 0])
    # Unbounded ones are shown at the limit, bounds like 3.4e38 count as none, and [0, 4] becomes [-1, 1].
    np.testing.assert_array_equal(seen["observation"][0, 1], np.array([-1e6, 5.0, 0.0], np.float32))
    state = env.get_state()
    env.reset(options={"reset_mask": np.array([True, False])})
    flags = env.step(np.zeros((2, 2)))[3]
    np.testing.assert_array_equal(flags, [False, True])
    env.set_state(state)
    assert env.step(np.zeros((2, 2)))[3].all()


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        (np.zeros(1), r"step returns an observation of size 1; its observation_space declares 3$"),
        (np.zeros(4), r"step returns an observation of size 4"),
        (["far", 0.0, 0.0], "step fails: ValueError: could not convert string to float"),
        (RuntimeError("motor off\nand more"), "step fails: RuntimeError: motor off$"),
        (SystemExit("done"), "step fails: SystemExit: done$"),
    ],
)
def test_invalid_observations_and_exceptions_are_one_line_errors(registered: Any, shown: Any, told: str) -> None:
    name = registered("Broken-v0", kwargs={"shown": shown})
    env = PopulationEnv(name, 2)
    env.reset()
    with pytest.raises(UserError, match=told) as caught:
        env.step(np.zeros((2, 2)))
    assert str(caught.value).startswith(name)


def test_finite_bounds_of_any_size_scale(registered: Any) -> None:
    states = Box(np.array([0, -1e30, -1]), np.array([2e7, 1e30, 3.4e38]), dtype=np.float64)
    plant = make_plant(registered("Vessel-v0", kwargs={"observation": states}))
    assert plant.state_center == (1e7, 0.0, 0.0)
    assert plant.state_scale == (1e7, 1e30, 1.0)
    assert plant.observation_limit == (1.0, 1.0, 1e6)
    whole = Box(np.array([0, -(2**63)]), np.array([2**40, 2**63 - 1]), dtype=np.int64)
    assert make_plant(registered("Whole-v0", kwargs={"observation": whole})).state_scale == (2.0**39, 1.0)


class Leaving(Task):
    """Leaves its bounds in one of `every` steps, and in every terminal state."""

    def __init__(self, every: int) -> None:
        super().__init__(Box(-1.0, 1.0, (1,), np.float64))
        self.every, self.steps = every, 0

    def reset(self, **how: Any) -> tuple[np.ndarray, dict[str, Any]]:
        return super().reset(**how)[0][1:2], {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        over = self.steps % 5 == 0
        return np.array([1.5 if over or self.steps % self.every == 1 else 0.5]), 0.0, over, False, {}


def test_observations_beyond_the_bounds_are_reported_and_many_are_refused(registered: Any) -> None:
    told = r"of its observations lie outside the bounds of its observation_space.* and are clipped"
    some, many = (make_plant(registered(f"Leaving{n}-v0", entry_point=Leaving, kwargs={"every": n})) for n in (211, 52))
    assert re.fullmatch(rf"gymnasium:Leaving211-v0: 0\.\d% {told}", some.trial_warning())
    refuses(rf"^gymnasium:Leaving52-v0: 1\.\d% {told}; declare bounds", many.trial_warning)
    env = PopulationEnv(many, 1)  # what the trial has not shown, a run finds
    with pytest.raises(UserError, match=told):
        for step in range(2000):
            if step % 5 == 0:
                env.reset()
            env.step(np.zeros((1, 2)))
    assert step > 700


class Unclosed(Task):
    def close(self) -> None:
        raise RuntimeError("cannot close")


def test_a_task_that_cannot_be_closed_is_refused_in_one_line(registered: Any) -> None:
    name = registered("Unclosed-v0", entry_point=Unclosed)
    refuses(f"^{name}: close fails: RuntimeError: cannot close$", make_plant, name)


def test_tasks_and_wrappers_see_the_time_limit(registered: Any) -> None:
    wrapped = {"additional_wrappers": (TimeAwareObservation.wrapper_spec(),)}
    env = PopulationEnv(registered("Aware-v0", entry_point=Leaving, kwargs={"every": 3}, **wrapped), 1)
    env.reset()
    seen = [env.plant.denormalise_state(env.step(np.zeros((1, 2)))[0])[0, 1] for _ in range(3)]
    np.testing.assert_allclose(seen, [1, 2, 3], rtol=1e-6)


@pytest.mark.parametrize(
    ("task", "finite"),
    [
        ({"shown": np.array([0.0, np.nan, 1.0])}, False),
        ({"shown": np.zeros(3), "begins": np.nan}, False),
        ({"shown": np.array([[0.1, 0.2, 0.3]])}, True),  # another shape of the same size
    ],
)
def test_a_run_fails_where_an_observation_is_not_a_number(registered: Any, task: Any, finite: bool) -> None:
    env = PopulationEnv(registered("Lost-v0", kwargs=task), 2)
    env.reset()
    assert np.isnan(env.step(np.zeros((2, 2)))[1]).all() != finite


class Echo(Task):
    """Shows the choices that it gets."""

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        super().step(action)
        return action.astype(np.float64), float(np.sum(action)), False, False, {}


def test_each_of_several_choices_is_an_action_of_its_own(registered: Any) -> None:
    choices = MultiDiscrete([2, 4, 7], dtype=np.int32, start=[0, -3, 1])
    spaces = {"observation": Box(-100.0, 100.0, (3,), np.float64), "action": choices}
    env = PopulationEnv(registered("Echo-v0", entry_point=Echo, max_episode_steps=50, kwargs=spaces), 3)
    plant: Any = env.plant
    assert (plant.action_low, plant.action_high) == ((0, -3, 1), (1, 0, 7))
    assert (plant.action_choices, plant.zero_action) == ((2, 4, 7), (0, -2, 4))
    env.reset()
    seen = []
    for action in np.concatenate([actions_for(env, 40), np.full((1, 3, 3), -1), np.ones((1, 3, 3))]):
        observation, reward, *_ = env.step(action)
        chosen = plant.denormalise_action(action)
        np.testing.assert_array_equal(chosen, np.rint(chosen))
        np.testing.assert_allclose(100 * observation, chosen, atol=1e-5)
        np.testing.assert_array_equal(reward, chosen.sum(axis=1))
        step = 2 / (np.array(plant.action_choices) - 1)
        assert (np.abs(plant.normalise_action(chosen) - action) <= step / 2 + 1e-7).all()
        seen.append(chosen)
    assert [len(np.unique(np.concatenate(seen)[:, a])) for a in range(3)] == [2, 4, 7]


VECTOR, UNBOUNDED = Box(-1.0, 1.0, (2,)), Box(-np.inf, np.inf, (1,))
CLIPPED = {"additional_wrappers": (ClipAction.wrapper_spec(),)}
RESCALED = {"additional_wrappers": (RescaleAction.wrapper_spec(min_action=-1.0, max_action=1.0),)}
REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"action": Dict({"a": VECTOR})}, {}, "its action is of kind Dict; supported are a one-dimensional Box"),
    ({"action": Box(0, 3, (2,), np.int64)}, {}, "its actions are whole numbers (int64) in a Box; supported are"),
    ({"action": Discrete(1)}, {}, "its action has one choice only"),
    ({"action": MultiDiscrete([3, 1])}, {}, "its action has one choice only"),
    ({"action": MultiDiscrete(np.full((2, 2), 2))}, {}, "its action is of kind MultiDiscrete; supported are a one"),
    ({"action": MultiBinary(2)}, {}, "is of kind MultiBinary; supported are a one-dimensional Box"),
    ({}, {"max_episode_steps": None}, "has no time limit; register it with max_episode_steps"),
    ({"colour": "red"}, {}, "cannot be made: TypeError: "),
]
ADVISED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"observation": Box(0, 255, (96, 96, 3), np.uint8)}, {}, "its observation is a Box of shape (96, 96, 3)"),
    ({"observation": Dict({"a": VECTOR})}, {}, "its observation is of kind Dict; supported is a one-dimensional Box"),
    ({"observation": Dict({"a": VECTOR, "b": Discrete(3)}), "action": Discrete(2)}, {}, "of kind Dict"),
    ({"observation": Tuple((VECTOR,)), "action": Discrete(2)}, {}, "its observation is of kind Tuple"),
    ({"observation": Discrete(5), "action": Discrete(2)}, {}, "its observation is of kind Discrete"),
    *(({"action": UNBOUNDED}, how, "its actions are unbounded; register it with bounds") for how in ({}, CLIPPED)),
    ({"action": UNBOUNDED}, RESCALED, "RescaleAction takes bounded actions: register it with bounds"),
]


@pytest.mark.parametrize(("kwargs", "how", "told"), REFUSED + ADVISED)
def test_unsupported_tasks_are_refused_in_one_line(registered: Any, kwargs: Any, how: Any, told: str) -> None:
    """And registering them with the wrappers of the advice, where the line gives one, works."""
    name = registered("Refused-v0", kwargs=kwargs, **how)
    with pytest.raises(UserError, match=re.escape(told)) as caught:
        make_plant(name)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(name)
    written = re.search(r"additional_wrappers=(\(.*,\))", str(caught.value))
    assert (written is not None) == ((kwargs, how, told) in ADVISED)
    if written:
        known = {"Box": Box, "FlattenObservation": FlattenObservation, "TransformAction": TransformAction}
        advised = eval(written.group(1), known)
        assert make_plant(registered("Advised-v0", kwargs=kwargs, additional_wrappers=advised)).action_names


def test_missing_packages_are_named_with_gymnasiums_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium.envs.mujoco.half_cheetah_v5", None)
    _plant_of.cache_clear()
    refuses(re.escape("pip install 'gymnasium[mujoco]'"), make_plant, "gymnasium:HalfCheetah-v5")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Pendulum", "unknown Gymnasium task 'Pendulum'; did you mean Pendulum-v1?"),
        ("Pendulum-v7", "unknown Gymnasium task 'Pendulum-v7'; did you mean Pendulum-v1?"),
        ("HalfChetah-v5", "unknown Gymnasium task 'HalfChetah-v5'; did you mean HalfCheetah-v5 or "),
        ("xyzzy", "unknown Gymnasium task 'xyzzy'; gymnasium.pprint_registry() lists them"),
        ("no_such:Name-v0", "gymnasium:no_such:Name-v0: the module no_such cannot be imported: "),
        ("no_such.py:Name-v0", "no plant file 'no_such.py' in "),
    ],
)
def test_unknown_tasks_raise_one_line_errors(name: str, told: str) -> None:
    refuses(f"^{re.escape(told)}", make_plant, f"gymnasium:{name}")


def test_other_rates_and_parameters_are_refused() -> None:
    with pytest.raises(UserError, match=r"^gymnasium:Pendulum-v1 runs at 20 Hz and no other rate, not at 50 Hz$"):
        PopulationEnv(TASKS[0], frequency=50)
    refuses("^gymnasium:Pendulum-v1 has no parameters, so that g cannot", make_plant, TASKS[0], g=1.0)


OWN_TASK = """
import gymnasium
import numpy as np
from gymnasium.spaces import Box

class Walk(gymnasium.Env):
    observation_space = Box(-10.0, 10.0, (1,))
    action_space = Box(-1.0, 1.0, (1,))
    dt = 0.5

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.x, {}

    def step(self, action):
        self.x = self.x + self.dt * action + self.np_random.normal(0, 0.1, 1).astype(np.float32)
        return self.x, -abs(float(self.x[0])), bool(abs(self.x[0]) > 5), False, {}

gymnasium.register("own/Walk-v0", Walk, max_episode_steps=8)
"""


def test_a_task_from_a_file_is_restored_with_its_noise(tmp_path: Path, registered: Any) -> None:
    path = tmp_path / "walk.py"
    path.write_text(OWN_TASK)
    name = f"gymnasium:{path}:own/Walk-v0"
    env = PopulationEnv(name, 2)
    assert (env.plant.frequency, env.steps_per_episode) == (2.0, 8)
    assert "walk.py" in env.plant.made_of()
    env.reset()
    actions = actions_for(env, 8)
    rollout(env, actions[:3])
    state = env.get_state()
    expected = rollout(env, actions[3:])
    env.set_state(state)
    assert not difference(expected, rollout(env, actions[3:]))
    assert expected["truncated"][:, -1].all()
    before = env.plant.fingerprint()
    path.write_text(OWN_TASK.replace("dt = 0.5", "dt = 0.25"))
    with pytest.warns(UserWarning, match="Overriding environment own/Walk-v0"):
        edited = make_plant(name)
    assert edited.frequency == 4.0
    assert edited.fingerprint() != before


FACTORY = """
import gymnasium
from gymnasium.wrappers import TransformReward

def easier():
    return TransformReward(gymnasium.make("Pendulum-v1").unwrapped, lambda reward: 0.5 * reward)

gymnasium.register("own/Easier-v0", easier, max_episode_steps=200)
"""


def test_fingerprints_are_of_code_not_folders(tmp_path: Path, registered: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What makes it counts, too, though neither its class nor its wrapper is the user's."""

    def fingerprint(folder: str, source: str) -> str:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "easier.py").write_text(source)
        monkeypatch.chdir(tmp_path / folder)
        gymnasium.registry.pop("own/Easier-v0", None)
        _plant_of.cache_clear()
        return make_plant("gymnasium:easier.py:own/Easier-v0").fingerprint()

    here = fingerprint("here", FACTORY)
    assert fingerprint("there", FACTORY) == here
    assert fingerprint("elsewhere", FACTORY.replace("0.5", "0.25")) != here
    scaled = [
        registered(f"Scaled-v{i}", additional_wrappers=(RescaleAction.wrapper_spec(min_action=low, max_action=1.0),))
        for i, low in enumerate((-1.0, -2.0, -1.0))
    ]
    made = [make_plant(name).made_of().replace(name[-9:], "") for name in scaled]
    assert made[0] == made[2] != made[1]


def test_no_log_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    _plant_of.cache_clear()
    make_plant("gymnasium:HalfCheetah-v5")
    assert not list(tmp_path.iterdir())
    assert "WARNING" not in capfd.readouterr().err
