"""What a PyBullet population costs beside its physics: whole samples against bare `stepSimulation`, 64 members.

Ours is the time of `PopulationEnv.step` under random actions, with observations, rewards, terms and episode ends;
members that end are restarted outside the clock. The bare rate is that of a loop over the same clients on the same
trajectories that calls `stepSimulation` and nothing else: torques are set before, and readings taken after, outside
the clock. Sides take turns in one run; medians of rates, and of ratios of neighbouring timings.

`python benchmarks/speed/bench_bullet.py [TASK …]`
"""

# First: it fixes the number of threads.
from timings import Timing, main  # isort: skip

import functools
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from replaybench.envs.population import PopulationEnv

TASKS = ("InvertedDoublePendulum", "Reacher", "Hopper", "Walker2d", "HalfCheetah", "Ant")
MEMBERS = 64
STEPS = 40
REPETITIONS = 5
TARGET = 0.5


def whole(env: PopulationEnv) -> float:
    """Return member-samples per second of the whole step."""
    actions = np.random.Generator(np.random.PCG64(1)).uniform(-1, 1, (STEPS, *env.action_space.shape))
    ended, seconds = np.ones(env.num_envs, np.bool_), 0.0
    env.reset(seed=1)
    for action in actions:
        if ended.any():
            env.reset(options={"reset_mask": ended})
        began = time.perf_counter()
        _, _, terminated, truncated, _ = env.step(action)
        seconds += time.perf_counter() - began
        ended = terminated | truncated
    return STEPS * env.num_envs / seconds


def bare(env: PopulationEnv) -> float:
    """Return `stepSimulation` calls per second, on the trajectories of `whole`."""
    engine: Any = env._engine  # type: ignore[attr-defined]
    worlds = engine._worlds
    bullet, seconds, calls = worlds[0]._bullet, 0.0, 0

    def move(torques: np.ndarray, running: np.ndarray) -> None:
        nonlocal seconds, calls
        engine._before.rows[running] = engine._now.rows[running]
        members = np.flatnonzero(running).tolist()
        for member in members:
            world = worlds[member]
            bullet.setJointMotorControlArray(
                world._body,
                world._motors,
                bullet.TORQUE_CONTROL,
                forces=torques[member].tolist(),
                physicsClientId=world.client,
            )
        clients = [worlds[member].client for member in members]
        began = time.perf_counter()
        for client in clients:
            bullet.stepSimulation(client)
        seconds += time.perf_counter() - began
        calls += len(clients)
        if members:
            engine._now.rows[members] = [worlds[member].read() for member in members]

    engine._move = move
    whole(env)
    del engine._move
    return calls / seconds


def measured(task: str) -> Iterator[Timing]:
    """Time a task beside its bare steps."""
    env = PopulationEnv(f"Bullet{task}", MEMBERS)
    whole(env)
    ours, peer = zip(*((whole(env), bare(env)) for _ in range(REPETITIONS)), strict=True)
    env.close()
    ratio = statistics.median(mine / theirs for mine, theirs in zip(ours, peer, strict=True))
    middles = statistics.median(ours), "/s", statistics.median(peer), "bare stepSimulation"
    where = {"members": MEMBERS, "processes": 1}
    yield Timing(f"Bullet{task} steps", *middles, ratio, least_ratio=TARGET, at=where)


SECTIONS = {task: functools.partial(measured, task) for task in TASKS}

if __name__ == "__main__":
    main("bench_bullet.py", SECTIONS)
