"""What a PyBullet population costs beside its physics: whole samples against bare `stepSimulation`, 64 members.

Ours is the time of `PopulationEnv.step` under random actions, with observations, rewards, terms and episode ends;
members that end are restarted outside the clock. The bare rate is that of a loop over the same clients on the same
trajectories that calls `stepSimulation` and nothing else: torques are set before, and readings taken after, outside
the clock. With two processes, ours runs as one population in this process and a worker; the bare side is two processes
at once, each with half of the members, their rates added. Sides take turns in one run; medians of rates, and of ratios
of neighbouring timings.

`python benchmarks/speed/bench_bullet.py [TASK …]`
"""

from __future__ import annotations

# First: it fixes the number of threads.
from timings import Timing, main  # isort: skip

import os

os.environ["REPLAYBENCH_THREADS"] = "1"

import functools
import statistics
import subprocess
import sys
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
    local: Any = env._engine._worlds  # type: ignore[attr-defined]
    bullet, seconds, calls = local._worlds[0]._bullet, 0.0, 0

    def step(torques: np.ndarray, running: np.ndarray) -> None:
        nonlocal seconds, calls
        members = np.flatnonzero(running).tolist()
        for member in members:
            world = local._worlds[member]
            bullet.setJointMotorControlArray(
                world._body,
                world._motors,
                bullet.TORQUE_CONTROL,
                forces=torques[member].tolist(),
                physicsClientId=world.client,
            )
        clients = [local._worlds[member].client for member in members]
        began = time.perf_counter()
        for client in clients:
            bullet.stepSimulation(client)
        seconds += time.perf_counter() - began
        calls += len(clients)
        if members:
            local.rows[members] = [local._worlds[member].read() for member in members]

    local.step = step
    whole(env)
    del local.step
    return calls / seconds


def serve_bare(task: str, members: int) -> None:
    """Answer each line on the standard input with a bare rate."""
    env = PopulationEnv(f"Bullet{task}", members)
    bare(env)
    print("ready", flush=True)
    for _ in sys.stdin:
        print(bare(env), flush=True)


def together(helpers: list[subprocess.Popen[str]]) -> float:
    """Return the sum of the rates of helpers that run at once."""
    for helper in helpers:
        assert helper.stdin is not None
        helper.stdin.write("\n")
        helper.stdin.flush()
    return sum(float(helper.stdout.readline()) for helper in helpers if helper.stdout is not None)


def one_process(task: str) -> list[tuple[float, float]]:
    """Return pairs of rates: ours, and bare."""
    env = PopulationEnv(f"Bullet{task}", MEMBERS)
    whole(env)
    pairs = [(whole(env), bare(env)) for _ in range(REPETITIONS)]
    env.close()
    return pairs


def two_processes(task: str) -> list[tuple[float, float]]:
    """Return pairs of rates: ours with a worker, and two bare processes."""
    os.environ["REPLAYBENCH_THREADS"] = "2"
    env = PopulationEnv(f"Bullet{task}", MEMBERS)
    os.environ["REPLAYBENCH_THREADS"] = "1"
    command = [sys.executable, __file__, "--bare", task, str(MEMBERS // 2)]
    helpers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for helper in helpers:
        assert helper.stdout is not None
        assert helper.stdout.readline() == "ready\n"
    whole(env)
    pairs = [(whole(env), together(helpers)) for _ in range(REPETITIONS)]
    env.close()
    for helper in helpers:
        helper.communicate()
    return pairs


def both(task: str) -> Iterator[Timing]:
    """Time a task in one process and in two."""
    for processes, measure in ((1, one_process), (2, two_processes)):
        ours, peer = zip(*(pairs := measure(task)), strict=True)
        ratio = statistics.median(mine / theirs for mine, theirs in pairs)
        middles = statistics.median(ours), "/s", statistics.median(peer), "bare stepSimulation"
        where = {"members": MEMBERS, "processes": processes}
        yield Timing(f"Bullet{task} steps", *middles, ratio, least_ratio=TARGET, at=where)


SECTIONS = {task: functools.partial(both, task) for task in TASKS}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--bare"]:
        serve_bare(sys.argv[2], int(sys.argv[3]))
    else:
        main("bench_bullet.py", SECTIONS)
