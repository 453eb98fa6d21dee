"""Plants of MuJoCo against their references."""

import math
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest
from scipy import stats

from replaybench.envs.mujoco.arms import LINKS, AcerReacher3
from replaybench.envs.mujoco.plant import BLOWN_UP, MujocoEngine, MujocoPlant, gymnasium_assets, load_model
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import make_plant
from replaybench.evidence.contracts import difference
from replaybench.runtime.errors import UserError
from replaybench.runtime.streams import Stream
from tests.helpers.refusals import refuses
from tests.helpers.tiers import slow

TASKS = ("Hopper", "Walker2d", "HalfCheetah", "Swimmer", "Ant", "Humanoid", "Reacher", "InvertedDoublePendulum")
CAN_FALL = ("Hopper", "Walker2d", "Humanoid", "InvertedDoublePendulum")
STATE = mujoco.mjtState.mjSTATE_INTEGRATION
every_task = pytest.mark.parametrize("task", TASKS)


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gymnasium's HalfCheetah makes MuJoCo write a log into the working folder."""
    monkeypatch.chdir(tmp_path)


def plant_of(task: str, **parameters: float) -> MujocoPlant:
    made = make_plant(f"Mujoco{task}", **parameters)
    assert isinstance(made, MujocoPlant)
    return made


def peer_of(task: str, **settings: Any) -> Any:
    return gymnasium.make(f"{task}-v5", **settings).unwrapped


def started(plant: MujocoPlant, members: int, threads: int = 1, seed: int = 0) -> MujocoEngine:
    engine = MujocoEngine(plant, members, plant.frequency, threads)
    restart(engine, seed)
    return engine


def restart(engine: MujocoEngine, seed: int) -> None:
    members = len(engine.data)
    engine.terminated[:] = False
    engine.restart(np.ones(members, np.bool_), Stream(seed, range(members), "initial state"))


def random_actions(plant: MujocoPlant, steps: int, members: int = 1) -> np.ndarray:
    rng = np.random.Generator(np.random.PCG64(3))
    return rng.uniform(plant.action_low, plant.action_high, (steps, members, len(plant.action_names)))


def step(engine: MujocoEngine, action: np.ndarray) -> None:
    engine.reward[:] = 0.0
    engine.event[:] = 0
    engine.advance(action, ~engine.terminated)


def full_state(model: Any, data: Any) -> np.ndarray:
    state = np.empty(mujoco.mj_stateSize(model, STATE))
    mujoco.mj_getState(model, data, state, STATE)
    return state


def synchronise(peer: Any, engine: MujocoEngine) -> None:
    """Give a peer the first member's full state, and the places that it remembers from its last step."""
    data = engine.data[0]
    mujoco.mj_setState(peer.model, peer.data, full_state(engine.model, data), STATE)
    peer.data.xpos[:], peer.data.xipos[:] = data.xpos, data.xipos


def step_both(engine: MujocoEngine, peer: Any, action: np.ndarray) -> bool:
    """Step the first member and a peer, compare what they say, and return whether they have terminated."""
    step(engine, action)
    observation, reward, terminated, _, infos = peer.step(action[0])
    np.testing.assert_allclose(engine.observed[0], observation, rtol=0, atol=1e-9)
    assert engine.reward[0] == pytest.approx(reward, rel=0, abs=1e-9)
    assert engine.terminated[0] == terminated
    assert engine.infos().keys() == infos.keys() - {"tendon_length", "tendon_velocity"}
    for name, values in engine.infos().items():
        assert values[0] == pytest.approx(infos[name], rel=0, abs=1e-9), name
    return bool(terminated)


@pytest.mark.parametrize(
    ("task", "ours", "theirs"),
    slow([
        *((task, {}, {}) for task in TASKS),
        ("Hopper", {"healthy_z_min": 1.2, "healthy_angle_max": 0.3, "ctrl_cost_weight": 0.5, "healthy_reward": 3.0},
         {"healthy_z_range": (1.2, np.inf), "healthy_angle_range": (-0.3, 0.3), "ctrl_cost_weight": 0.5,
          "healthy_reward": 3.0}),
        ("Walker2d", {"healthy_z_min": 1.2, "healthy_z_max": 1.3, "forward_reward_weight": 2.0},
         {"healthy_z_range": (1.2, 1.3), "forward_reward_weight": 2.0}),
        ("Ant", {"healthy_z_min": 0.55, "contact_cost_weight": 0.1, "contact_force_max": 3.0},
         {"healthy_z_range": (0.55, 1.0), "contact_cost_weight": 0.1, "contact_force_range": (-3.0, 3.0)}),
        ("Humanoid", {"healthy_z_min": 0.2, "contact_cost_weight": 1e-3, "contact_cost_max": 2.0},
         {"healthy_z_range": (0.2, 2.0), "contact_cost_weight": 1e-3, "contact_cost_range": (-np.inf, 2.0)}),
        ("Reacher", {"reward_dist_weight": 3.0, "reward_control_weight": 0.5},
         {"reward_dist_weight": 3.0, "reward_control_weight": 0.5}),
    ], but=[("Hopper", {}, {}), ("InvertedDoublePendulum", {}, {})]),
)  # fmt: skip
def test_steps_from_equal_states_equal_gymnasiums(task: str, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    engine, peer = started(plant_of(task, **ours), 1), peer_of(task, **theirs)
    peer.reset(seed=1)
    falls = contact = 0.0
    for number, action in enumerate(random_actions(engine.plant, 60)):
        synchronise(peer, engine)
        if step_both(engine, peer, action):
            falls += 1
            restart(engine, number)
        contact = min(contact, engine.infos().get("reward_contact", np.zeros(1))[0])
    assert (falls > 0) == (task in CAN_FALL) if not ours else falls > 0 or task in ("Humanoid", "Reacher")
    assert contact < 0 or task not in ("Ant", "Humanoid")


@every_task
def test_declarations_are_the_models(task: str) -> None:
    plant, peer, spec = plant_of(task), peer_of(task), gymnasium.spec(f"{task}-v5")
    model = plant.model()
    assert plant.physics_step == model.opt.timestep
    assert plant.physics_steps(plant.frequency) == peer.frame_skip
    assert plant.steps_per_episode(plant.frequency) == spec.max_episode_steps
    assert len(plant.state_names) == peer.observation_space.shape[0]
    np.testing.assert_array_equal(model.actuator_ctrlrange.T, [plant.action_low, plant.action_high])
    motors = [model.joint(joint).name for joint in model.actuator_trnid[:, 0]]
    assert plant.action_names == tuple(f"control of {motor}" for motor in motors)
    if task in ("Reacher", "InvertedDoublePendulum"):
        return
    joints = [model.joint(j) for j in range(model.njnt) if model.jnt_type[j] != mujoco.mjtJoint.mjJNT_FREE]
    names = [joint.name for joint in joints]
    rates = [name.removeprefix("velocity of ") for name in plant.state_names if name.startswith("velocity of ")]
    assert rates == names
    seen = [name for name in plant.state_names if name in names]
    assert seen == names[-len(seen) :]
    units = dict(zip(plant.state_names, plant.state_units, strict=True))
    slides = [joint.name for joint in joints if joint.type[0] == mujoco.mjtJoint.mjJNT_SLIDE]
    assert all(units[f"velocity of {name}"] == ("m/s" if name in slides else "rad/s") for name in names)


@pytest.mark.parametrize("task", ["Hopper", "HalfCheetah", "Ant"])
def test_starts_are_spread_as_gymnasiums(task: str) -> None:
    """Kolmogorov and Smirnov's test at a fixed seed, false alarms below 1e-6 each."""
    plant = plant_of(task)
    rest = mujoco.MjData(plant.model())
    draws, everyone = Stream(4, range(400), "initial state"), np.ones(400, np.bool_)
    qpos, qvel = plant.start(draws, everyone, rest.qpos, rest.qvel)
    noise = {"Hopper": 5e-3}.get(task, 0.1)
    assert stats.kstest(((qpos - rest.qpos) / noise).ravel(), stats.uniform(-1, 2).cdf).pvalue > 1e-6
    shape = stats.uniform(-1, 2) if task == "Hopper" else stats.norm()
    assert stats.kstest((qvel / noise).ravel(), shape.cdf).pvalue > 1e-6


def test_goals_are_uniform_on_a_disc() -> None:
    plant = plant_of("Reacher")
    rest = mujoco.MjData(plant.model())
    qpos, qvel = plant.start(Stream(1, range(500), "initial state"), np.ones(500, np.bool_), rest.qpos, rest.qvel)
    radius, angle = np.hypot(*qpos[:, 2:].T), np.arctan2(*qpos[:, 2:].T)
    assert stats.kstest((radius / 0.2) ** 2, stats.uniform().cdf).pvalue > 1e-6
    assert stats.kstest(angle, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-6
    assert (qvel[:, 2:] == 0).all()


@every_task
def test_threads_change_no_number(task: str) -> None:
    engines = [started(plant_of(task), 5, threads) for threads in (1, 2, 3)]
    for action in random_actions(engines[0].plant, 12, 5):
        for engine in engines:
            step(engine, action)
    for engine in engines[1:]:
        assert not difference(engine.get_state(), engines[0].get_state())
        np.testing.assert_array_equal(engine.observed, engines[0].observed)
        np.testing.assert_array_equal(engine.reward, engines[0].reward)
        engine.close()


@pytest.mark.parametrize("task", ["HalfCheetah", "Ant"])
def test_a_member_that_blows_up_terminates_alone(task: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    env, other = (PopulationEnv(f"Mujoco{task}", 3) for _ in range(2))
    for population in (env, other):
        population.reset(seed=2)
        before = population.step(np.zeros(env.action_space.shape))[0]
    env._engine.data[1].qvel[3] = 1e12  # type: ignore[attr-defined]
    push = np.ones(env.action_space.shape)
    for event in ([0, BLOWN_UP, 0], [0, 0, 0]):
        (after, reward, terminated, _, infos), same = env.step(push), other.step(push)
        np.testing.assert_array_equal(terminated, [False, True, False])
        np.testing.assert_array_equal(after[1], before[1])
        assert reward[1] == 0
        np.testing.assert_array_equal(after[[0, 2]], same[0][[0, 2]])
        np.testing.assert_array_equal(reward[[0, 2]], same[1][[0, 2]])
        assert infos["event"].tolist() == event
    recovered, _ = env.reset(options={"reset_mask": terminated})
    assert np.isfinite(recovered).all()
    assert np.isfinite(env.step(push)[1]).all()
    assert not list(tmp_path.iterdir())
    assert capfd.readouterr().err == ""


def test_models_load_without_output_or_raise_one_line_errors(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    theirs = mujoco.get_mju_user_warning()
    copy = tmp_path / "cheetah.xml"
    copy.write_bytes((gymnasium_assets() / "half_cheetah.xml").read_bytes())
    assert load_model(copy).nq == 9
    assert [path.name for path in tmp_path.iterdir()] == ["cheetah.xml"]
    assert capfd.readouterr().err == ""
    copy = tmp_path / "broken.xml"
    for body in ("<body>", "<body><joint/></body>"):
        copy.write_text(f"<mujoco><worldbody>{body}</worldbody></mujoco>")
        refuses(r"^the MJCF file .*broken.xml does not load: [^\n]+$", load_model, copy)
    with pytest.raises(UserError, match=r"^no MJCF file '.*nowhere.xml'; give the path of a file that exists$"):
        load_model(tmp_path / "nowhere.xml")
    assert mujoco.get_mju_user_warning() is theirs


def engine_of(env: PopulationEnv) -> MujocoEngine:
    assert isinstance(env._engine, MujocoEngine)
    return env._engine


def test_observations_and_rewards_match_mujocos_kinematics() -> None:
    env = PopulationEnv("AcerReacher3", 40, seed=3)
    assert (env.steps_per_episode, env.plant.discount, env.action_space.shape[1]) == (500, 0.99, 3)
    env.reset()
    rewarded = set()
    for _ in range(10):
        for action in np.random.default_rng(2).uniform(-1, 1, (6, 40, 3)):
            observation, reward = env.step(action)[:2]
        for m, data in enumerate(engine_of(env).data):
            mujoco.mj_kinematics(engine_of(env).model, data)
            way = data.geom("target").xpos - data.geom("tip").xpos
            np.testing.assert_allclose(observation[m, 6:], way[:2], atol=1e-6)
            assert abs(way[2]) < 1e-12
            wrapped = np.arctan2(np.sin(data.qpos[:3]), np.cos(data.qpos[:3]))
            np.testing.assert_allclose(observation[m, :3], wrapped, atol=1e-6)
            np.testing.assert_allclose(observation[m, 3:6], data.qvel[:3], rtol=1e-6)
            assert reward[m] == float(np.hypot(*way[:2]) <= 0.05)
            rewarded.add(reward[m])
    assert rewarded == {0.0, 1.0}


def test_starts_are_spread_and_within_reach() -> None:
    env = PopulationEnv("AcerReacher3", 600, seed=1)
    env.reset()
    qpos = np.array([data.qpos for data in engine_of(env).data])
    radius, inner, outer = np.hypot(qpos[:, 3], qpos[:, 4]), 0.05, 0.28
    assert outer < sum(LINKS)
    spread = {
        "area": (radius**2 - inner**2) / (outer**2 - inner**2),
        "direction": (np.arctan2(qpos[:, 4], qpos[:, 3]) + math.pi) / (2 * math.pi),
        "shoulder": (qpos[:, 0] + math.pi) / (2 * math.pi),
        "elbow": (qpos[:, 1] + 2.6) / 5.2,
        "wrist": (qpos[:, 2] + 2.6) / 5.2,
    }
    for name, values in spread.items():
        assert stats.kstest(values, "uniform").pvalue > 1e-3 / len(spread), name  # by chance once in 1000
    assert not np.array([data.qvel for data in engine_of(env).data]).any()


def test_the_model_file_matches_the_declarations() -> None:
    plant = AcerReacher3()
    assert plant.path.is_file()
    model = plant.model()
    assert model.opt.timestep == plant.physics_step
    assert [model.actuator(i).name for i in range(model.nu)] == list(plant.actuated)
    ends = [model.body("fore").pos[0], model.body("hand").pos[0], model.geom("tip").pos[0]]
    np.testing.assert_array_equal(ends, LINKS)
