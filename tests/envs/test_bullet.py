"""Roboschool's tasks on PyBullet: sizes, rewards from readings set by hand, and physics that forgets nothing or all."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from replaybench.envs.bullet.double_pendulum import BulletInvertedDoublePendulum
from replaybench.envs.bullet.engine import INTERVAL, BulletPlant, Readings, World, pace
from replaybench.envs.bullet.reacher import BulletReacher
from replaybench.envs.bullet.walkers import BulletAnt, BulletHalfCheetah, BulletHopper, BulletWalker2d, Walker
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import make_plant
from tests.helpers.refusals import refuses

pytest.importorskip("pybullet")


TASKS = {  # observations, actions, steps, torques
    "InvertedDoublePendulum": (9, 1, 1000, [200.0]),
    "Reacher": (9, 2, 150, [0.05, 0.05]),
    "Hopper": (15, 3, 1000, [75.0] * 3),
    "Walker2d": (22, 6, 1000, [40.0, 40.0, 12.0] * 2),
    "HalfCheetah": (26, 6, 1000, [108.0, 81.0, 54.0, 126.0, 54.0, 27.0]),
    "Ant": (28, 8, 1000, [250.0] * 8),
}
WALKERS = (BulletHopper, BulletWalker2d, BulletHalfCheetah, BulletAnt)


def bullet_plant(name: str, **parameters: float) -> BulletPlant:
    plant = make_plant(f"Bullet{name}", **parameters)
    assert isinstance(plant, BulletPlant)
    return plant


def readings(plant: BulletPlant, **columns: Any) -> Readings:
    """Return one member's readings: 0 but for the columns given."""
    found = Readings(plant.model, np.zeros((1, plant.model.width)))
    for name, value in columns.items():
        getattr(found, name)[0] = value
    return found


def judged(plant: BulletPlant, before: Readings, now: Readings, action: Any) -> tuple[dict[str, float], bool]:
    terms, ended = plant.reward(before, now, np.array([action], np.float64))
    return dict(zip(plant.terms, terms[0].tolist(), strict=True)), bool(ended[0])


def standing(plant: Walker, *, forward: float = 0.0, **columns: Any) -> Readings:
    """Return readings at the start, all bodies moved `forward` [m], joints in the middle of their ranges."""
    low, high, _ = np.array(list(plant.joints.values())).T
    place = np.full((len(plant.model.parts), 3), [forward, 0.0, 0.0])
    usual = {"root": [forward, 0.0, plant.start_height], "place": place, "position": (low + high) / 2}
    return readings(plant, **(usual | columns))


@pytest.mark.parametrize("name", TASKS)
def test_sizes_torques_and_times(name: str) -> None:
    states, actions, steps, torques = TASKS[name]
    plant = bullet_plant(name)
    assert (len(plant.state_names), len(plant.action_names)) == (states, actions)
    np.testing.assert_allclose(plant.action_high, torques)
    assert plant.steps_per_episode(plant.frequency) == steps
    assert (plant.discount, plant.update_every, plant.episode_metric) == (0.99, 100, "return")


@pytest.mark.parametrize("plant", [kind() for kind in WALKERS], ids=lambda plant: plant.name)
def test_ranges_and_heights_are_those_of_the_files(plant: Walker) -> None:
    world = World(plant.model)
    infos = [world._call(world._bullet.getJointInfo, *joint) for joint in world._placed]
    assert [info[1].decode() for info in infos] == list(plant.joints)
    np.testing.assert_allclose([info[8:10] for info in infos], [ends[:2] for ends in plant.joints.values()], atol=1e-6)
    now = Readings(plant.model, np.array([world.read()]))
    assert now.root[0, 2] == pytest.approx(plant.start_height)
    world.close()


@pytest.mark.parametrize("plant", [kind() for kind in WALKERS], ids=lambda plant: plant.name)
def test_rewards_and_observations_of_walkers_by_hand(plant: Walker) -> None:
    joints, feet = len(plant.joints), len(plant.feet)
    before = standing(plant)
    action = np.zeros(joints)
    none = {"alive": 1.0, "progress": 0.0, "electricity": 0.0, "joints_at_limit": 0.0, "feet_collision": 0.0}
    assert judged(plant, before, before, action) == (none, False)

    # 0.033 m towards the flag, half a torque at 20 rad/s on one motor, another at the end of its range.
    position = before.position[0].copy()
    position[-1] = list(plant.joints.values())[-1][1]
    velocity, action[0] = np.zeros(joints), 0.5
    velocity[0] = -20.0
    now = standing(plant, forward=0.033, position=position, velocity=velocity, on_other=np.eye(feet)[0])
    terms, ended = judged(plant, before, now, action)
    electricity = (-2.0 * 0.5 * 2.0 - 0.1 * 0.25) / joints
    expected = [1.0, 2.0, electricity, -0.2, -1.0]
    assert terms == pytest.approx(dict(zip(none, expected, strict=True)), abs=1e-9)
    assert not ended

    # Facing 90° to the left of the flag: what moves along x moves to the right of the robot.
    now = standing(plant, attitude=[0.1, 0.2, math.pi / 2], speed=[2.0, 0.0, 1.0], on_ground=np.eye(feet)[-1])
    seen = plant.normalise_state(plant.observe(now))[0]
    np.testing.assert_allclose(seen[:8], [0.0, -1.0, 0.0, 0.0, -0.6, 0.3, 0.1, 0.2], atol=1e-12)
    np.testing.assert_allclose(seen[8 : 8 + 2 * joints], 0.0, atol=1e-12)
    assert seen[-feet:].tolist() == np.eye(feet)[-1].tolist()
    high = [ends[1] for ends in plant.joints.values()]
    seen = plant.normalise_state(plant.observe(standing(plant, position=high, velocity=np.full(joints, 3.0))))[0]
    np.testing.assert_allclose(seen[8 : 8 + 2 * joints], [1.0, 0.3] * joints)
    assert set(plant.observation_limit) == {5.0}


@pytest.mark.parametrize(
    ("plant", "columns", "alive"),
    [
        (BulletHopper(), {"root": [0, 0, 0.81], "attitude": [0, 0.99, 0]}, True),
        (BulletHopper(), {"root": [0, 0, 0.80]}, False),
        (BulletWalker2d(), {"attitude": [0, -1.0, 0]}, False),
        (BulletWalker2d(), {"attitude": [1.5, 0.9, 0]}, True),
        (BulletHalfCheetah(), {"root": [0, 0, 0.1], "on_ground": [1, 0, 0, 1, 0, 0]}, True),
        (BulletHalfCheetah(), {"on_ground": [0, 1, 0, 0, 0, 0]}, False),
        (BulletHalfCheetah(), {"on_ground": [0, 0, 0, 0, 0, 1]}, False),
        (BulletHalfCheetah(), {"attitude": [0, 1.0, 0]}, False),
        (BulletHalfCheetah(), {"attitude": [0, math.nan, 0]}, False),
        (BulletAnt(), {"root": [0, 0, 0.27], "attitude": [0, 1.4, 0]}, True),
        (BulletAnt(), {"root": [0, 0, 0.26]}, False),
        (BulletAnt(), {"root": [0, 0, math.nan]}, False),
    ],
)
def test_when_a_walker_falls(plant: Walker, columns: dict[str, Any], alive: bool) -> None:
    now = standing(plant, **columns)
    terms, ended = judged(plant, now, now, np.zeros(len(plant.joints)))
    assert terms["alive"] == (1.0 if alive else -1.0)
    assert ended is not alive


@pytest.mark.parametrize("kind", WALKERS, ids=lambda kind: kind.__name__)
def test_a_walkers_place_is_the_mean_of_its_links(kind: type[Walker]) -> None:
    """Of every one that Bullet has, as in Roboschool; or of those with mass."""
    world = World(kind.model)
    world.pace(pace(INTERVAL / 4, 4), 4)
    rows = moved(world, 3, 40, list(kind().action_high))
    bullet, body, call = world._bullet, world._body, world._call
    links = range(call(bullet.getNumJoints, body))
    places = [call(bullet.getLinkState, body, link, 0, 1)[0][:2] for link in links]
    masses = [call(bullet.getDynamicsInfo, body, link)[0] for link in links]
    if b"torso" not in [call(bullet.getJointInfo, body, link)[12] for link in links]:
        # The base itself; of the others the base is fixed to the world.
        places.append(call(bullet.getBasePositionAndOrientation, body)[0][:2])
        masses.append(1.0)
    world.close()
    before, now = (Readings(kind.model, row[None]) for row in (rows[0], rows[-1]))
    for place, counted in (("links", np.ones(len(masses), bool)), ("bodies", np.array(masses) > 0)):
        x, y = np.array(places)[counted].mean(axis=0)
        plant = kind(place=place)
        ways = ((before, before), (before, now), (standing(plant), before))
        still, gained, first = (judged(plant, *way, np.zeros(len(plant.joints)))[0]["progress"] for way in ways)
        assert still == 0.0
        assert (first + gained) * INTERVAL == pytest.approx(1000.0 - math.hypot(1000.0 - x, y), abs=1e-7)
    refuses("place is 'feet'; give links or bodies", kind, place="feet")


def test_contacts_with_the_floor_and_with_other_bodies_differ() -> None:
    world = World(BulletAnt.model)
    bullet = world._bullet
    ball = world._call(bullet.createCollisionShape, bullet.GEOM_SPHERE, radius=0.2)
    world._call(bullet.createMultiBody, 0.0, ball, basePosition=[0.6, 0.6, 0.5])  # under a foot
    world.pace(INTERVAL / 4, 1)
    world.step([0.0] * 8)
    now = Readings(BulletAnt.model, np.array([world.read()]))
    assert now.on_other[0].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert now.on_ground[0].tolist() == [0.0] * 4
    world.close()


def test_rewards_and_observations_of_the_double_pendulum_by_hand() -> None:
    plant = BulletInvertedDoublePendulum()
    up = readings(plant, position=[0.5, 0.0, 0.0])
    assert judged(plant, up, up, [1.0]) == ({"alive": 10.0, "distance": pytest.approx(-0.0025 - 0.64)}, False)
    bent = math.acos(2 / 3)  # the lower pole, with the upper one upright: the tip at 1 m
    for angle, ended in ((bent - 1e-3, False), (bent + 1e-3, True), (math.nan, True)):
        assert judged(plant, up, readings(plant, position=[0.0, angle, -angle]), [0.0])[1] is ended
    now = readings(plant, position=[0.2, math.pi / 2, math.pi / 6], velocity=[1.0, 2.0, 3.0])
    place = 0.2 + 0.6 + 0.3 * math.cos(math.pi / 6)
    expected = [0.2, 1.0, place, 0.0, 1.0, 2.0, math.cos(math.pi / 6), 0.5, 3.0]
    np.testing.assert_allclose(plant.observe(now)[0], expected, atol=1e-15)


def test_rewards_and_observations_of_the_reacher_by_hand() -> None:
    plant = BulletReacher()
    far = readings(plant, place=[[0.2, 0.0, 0.01], [0.0, 0.1, 0.01]])
    near = readings(plant, place=[[0.03, 0.1, 0.01], [0.0, 0.1, 0.01]], position=[0.0, -2.98], velocity=[10.0, -20.0])
    terms, ended = judged(plant, far, near, [0.5, -1.0])
    progress = 100 * (math.hypot(0.2, 0.1) - 0.03)
    electricity = -0.1 * (0.5 * 1.0 + 1.0 * 2.0) - 0.01 * 1.5
    assert terms == pytest.approx({"progress": progress, "electricity": electricity, "stuck_joint": -0.1})
    assert not ended
    seen = plant.normalise_state(plant.observe(near))[0]
    np.testing.assert_allclose(seen, [0.0, 0.1, 0.03, 0.0, 1.0, 0.0, 1.0, -2.98 / 3.0, -2.0], atol=1e-12)
    assert judged(plant, near, readings(plant, position=[0.0, 2.96]), [0.0, 0.0])[0]["stuck_joint"] == 0.0


@pytest.mark.parametrize("name", TASKS)
def test_the_first_steps_are_those_of_the_port_that_comes_with_pybullet(name: str) -> None:
    """Observations and each term of the reward; `benchmarks/walkers/bullet_peer.py` says what is read differently."""
    stored = json.loads((Path(__file__).parents[1] / "golden" / "bullet_peer.json").read_text())[name]
    env = PopulationEnv(f"Bullet{name}", 1)
    env.reset()
    state = env.get_state()
    env.set_state(state | {"start": np.array([stored["start"]])})
    for action, observation, terms in zip(stored["actions"], stored["observation"], stored["terms"], strict=False):
        seen, reward, _, _, infos = env.step([action])
        np.testing.assert_allclose(seen[0, stored["places"]], observation, rtol=0, atol=1e-4)
        ours = [infos[term][0] for term in cast(BulletPlant, env.plant).terms]
        np.testing.assert_allclose(ours, terms, rtol=0, atol=1e-3)
        assert reward[0] == pytest.approx(sum(ours))
    env.close()


def test_the_target_of_the_reacher_does_not_move() -> None:
    """Which is why its place is read once an episode."""
    world = World(BulletReacher.model)
    world.pace(INTERVAL, 1)
    world.restart([1.0, -2.0, 0.2, -0.1])
    for step in range(100):
        world.step([0.05, 0.05 * (-1) ** (step // 9)])
    ((body, (link,)),) = world._still
    place = world._call(world._bullet.getLinkState, body, link, computeForwardKinematics=1)[0]
    np.testing.assert_allclose(place[:2], [0.2, -0.1], atol=1e-12)
    assert world.read()[-3:] == list(place)
    world.close()


def moved(world: World, seed: int, steps: int, torques: list[float]) -> np.ndarray:
    """Restart, act at random, and return all readings `[T, R]`."""
    rng = np.random.Generator(np.random.PCG64(seed))
    world.restart(rng.uniform(-0.1, 0.1, len(torques)).tolist())
    rows = []
    for _ in range(steps):
        world.step((rng.uniform(-1, 1, len(torques)) * torques).tolist())
        rows.append(world.read())
    return np.array(rows)


@pytest.mark.parametrize("name", ["Walker2d", "HalfCheetah", "Ant"])
def test_episodes_are_independent_of_earlier_ones(name: str) -> None:
    """A used client, stopped in the middle of contacts, against a fresh one: bit for bit."""
    model, torques = bullet_plant(name).model, TASKS[name][3]
    used, fresh = World(model), World(model)
    for world in (used, fresh):
        world.pace(pace(INTERVAL / 4, 4), 4)
    for seed in range(4):
        moved(used, seed, 23 + 11 * seed, torques)
    assert used._call(used._bullet.getContactPoints, used._body)
    np.testing.assert_array_equal(moved(used, 9, 60, torques), moved(fresh, 9, 60, torques))
    used.restart([0.0] * len(torques))
    assert not Readings(model, np.array([used.read(touching=False)])).on_ground.any()
    used.close()
    fresh.close()


@pytest.mark.parametrize("count", [*range(1, 130), 250, 1000])
def test_bullet_cuts_a_sample_into_the_right_number_of_steps(count: int) -> None:
    """Bullet's own bookkeeping of time, over an episode."""
    for substeps in (1, 4, 7):
        step = INTERVAL / substeps
        interval = pace(step, count)
        assert interval == pytest.approx(step * count, rel=1e-12)
        left = 0.0
        for _ in range(20):
            left += interval
            taken = int(left / (interval / count))
            left -= taken * (interval / count)
            assert (taken, left) == (count, 0.0)


def test_substeps_make_physics_steps_finer() -> None:
    assert bullet_plant("Hopper").steps_per_episode(4 / INTERVAL) == 4000
    assert bullet_plant("Reacher", substeps=2).steps_per_episode(2 / INTERVAL) == 300
    for wrong in (0.0, 1.5, -4.0):
        refuses("give a whole number of 1 or more", bullet_plant, "Ant", substeps=wrong)


@pytest.mark.slow
def test_pybullet_is_imported_late_and_silently() -> None:
    code = """if True:
        import sys, replaybench.envs.bullet.engine as engine, replaybench.envs.registry as registry
        registry.make_plant("BulletAnt")
        assert "pybullet" not in sys.modules
        engine.pybullet()
        assert "pybullet" in sys.modules"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, capture_output=True)
    assert done.stdout == done.stderr == b""
