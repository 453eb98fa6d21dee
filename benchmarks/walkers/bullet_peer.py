"""Our PyBullet tasks beside those of `pybullet_envs`, step by step through whole episodes from the same starts.

That package needs the abandoned `gym`, of which it uses no more than names: stand-ins are enough to run it here. Before
they are compared, its tasks are told what this project reads differently:

- its walkers' mean place counts the floor among their links, which Roboschool's does not; the floor is left out;
- joints at their limits cost it 0.1 each; Roboschool's 0.2 are used here;
- it reads the places of links as they were one physics step before;
- it shows foot contacts one sample late, and lets a half cheetah run on after its end;
- the reacher's shoulder angle, see `BulletReacher`, is left out of the comparison.

`python benchmarks/walkers/bullet_peer.py` prints a table and writes the first steps to `tests/golden/bullet_peer.json`.
"""

import json
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from replaybench.envs.bullet.walkers import Walker
from replaybench.envs.population import PopulationEnv

TASKS = {
    "InvertedDoublePendulum": ("gym_pendulum_envs", "InvertedDoublePendulumBulletEnv"),
    "Reacher": ("gym_manipulator_envs", "ReacherBulletEnv"),
    "Hopper": ("gym_locomotion_envs", "HopperBulletEnv"),
    "Walker2d": ("gym_locomotion_envs", "Walker2DBulletEnv"),
    "HalfCheetah": ("gym_locomotion_envs", "HalfCheetahBulletEnv"),
    "Ant": ("gym_locomotion_envs", "AntBulletEnv"),
}
EPISODES = 4
KEPT = 12  # steps of the first episode that are stored
STORED = Path(__file__).parents[2] / "tests" / "golden" / "bullet_peer.json"
STARTS: list[float] = []


class Given:
    """Where the peer expects a random generator: gives the starts of our episode, in turn."""

    def uniform(self, low: float, high: float, size: Any = None) -> Any:
        return STARTS.pop(0) if size is None else np.array([STARTS.pop(0) for _ in range(size[0])])


def stand_in_for_gym() -> None:
    """Give `pybullet_envs` the names that it imports."""
    names = ("gym", "gym.spaces", "gym.utils", "gym.utils.seeding", "gym.envs", "gym.envs.registration")
    modules: dict[str, Any] = {name: ModuleType(name) for name in (*names, "pkg_resources")}
    for name in names[1:]:
        parent, _, child = name.rpartition(".")
        setattr(modules[parent], child, modules[name])
    modules["gym"].Env, modules["gym"].__version__ = object, "0.26"
    modules["gym.spaces"].Box = lambda *args, **kwargs: None
    modules["gym.utils.seeding"].np_random = lambda seed=None: (Given(), seed)
    registration = modules["gym.envs.registration"]
    registration.registry = type("Registry", (dict,), {"env_specs": {}})()
    registration.register = registration.make = registration.spec = lambda *args, **kwargs: None
    modules["pkg_resources"].parse_version = lambda text: [int(part) for part in text.split(".")]
    sys.modules.update(modules)


def begin(peer: Any, env: PopulationEnv, member: int) -> None:
    """Start the peer's episode where a member's began."""
    start = env.get_state()["start"][member].tolist()
    places = {"BulletReacher": [2, 3, 0, 1], "BulletInvertedDoublePendulum": [1, 2]}
    STARTS[:] = [start[place] for place in places.get(env.plant.name, range(len(start)))]
    peer.reset()
    client: Any = peer._p
    client.getLinkState = partial(
        import_module("pybullet").getLinkState, computeForwardKinematics=1, physicsClientId=client._client
    )
    peer.robot.parts.pop("floor", None)
    peer.robot.calc_state()
    peer.potential = peer.robot.calc_potential()


def shown(env: PopulationEnv, peer: Any, observation: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the peer's observation with present contacts, and the places to compare."""
    found = np.array(observation, np.float64)
    if isinstance(env.plant, Walker):
        found[-len(env.plant.feet) :] = peer.robot.feet_contact
    return found, np.delete(np.arange(len(found)), [4, 5] if env.plant.name == "BulletReacher" else [])


def compare(task: str, peer: Any) -> tuple[str, dict[str, Any]]:
    """Return a line of the table, and the peer's first steps."""
    env = PopulationEnv(f"Bullet{task}", EPISODES)
    terms = env.plant.terms  # type: ignore[attr-defined]
    steps, worst, off, first = 0, 0.0, 0.0, {}
    for member in range(EPISODES):
        env.reset()
        begin(peer, env, member)
        kept: dict[str, Any] = {"start": env.get_state()["start"][member].tolist(), "terms": [], "observation": []}
        rng = np.random.Generator(np.random.PCG64(member))
        actions = rng.uniform(-1, 1, (env.steps_per_episode, *env.action_space.shape)).astype(np.float32)
        actions *= np.float32(0.3 if member % 2 else 1.0)
        for action in actions:
            observation, _, terminated, truncated, infos = env.step(action)
            theirs, places = shown(env, peer, peer.step(action[member].astype(np.float64))[0])
            rewards = np.array(peer.rewards[: len(terms)])
            if isinstance(env.plant, Walker):
                rewards[3] *= 2
            alive = slice(int(terminated[member] and task == "HalfCheetah"), None)
            ours = np.array([infos[name][member] for name in terms])
            worst = max(worst, float(np.abs(observation[member] - theirs)[places].max()))
            off, steps = max(off, float(np.abs(ours - rewards)[alive].max())), steps + 1
            kept["terms"].append(rewards.tolist())
            kept["observation"].append(theirs[places].tolist())
            if terminated[member] or truncated[member]:
                break
        if member == 0:
            first = {name: value if name == "start" else value[:KEPT] for name, value in kept.items()}
            first |= {"actions": actions[:KEPT, 0].tolist(), "places": places.tolist()}
    env.close()
    return f"| {task} | {steps} | {worst:.1e} | {off:.1e} |", first


def main() -> None:
    """Print the table and store the first steps."""
    stand_in_for_gym()
    sys.path.insert(0, str(Path(import_module("pybullet_data").__file__ or "").parents[1] / "pybullet_envs"))
    stored = {}
    print("| task | steps | observations differ by | terms of the reward differ by |\n| --- | --- | --- | --- |")
    for task, (module, name) in TASKS.items():
        line, stored[task] = compare(task, getattr(import_module(f"pybullet_envs.{module}"), name)())
        print(line, flush=True)
    STORED.write_text(json.dumps(stored) + "\n")


if __name__ == "__main__":
    main()
