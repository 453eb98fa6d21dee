"""MuJoCo steps per second: a population of 64 members on two threads against Gymnasium's vector environments.

Both sides in this run, interleaved, medians. The peers are what Gymnasium offers for as many members: `AsyncVectorEnv`
with shared memory, a process per member, all on the same two cores, and `SyncVectorEnv`; ratios are to the better one.
All take the same random actions; ended members start anew. `bookkeeping` is the share of a noisy step that is not the
simulator's. Run `python benchmarks/speed/bench_mujoco.py [TASK …]`.
"""

import os

os.environ["REPLAYBENCH_THREADS"] = "2"

import functools
import tempfile
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from timings import Timing, compared, interleaved, main, timed

from replaybench.envs.population import PopulationEnv

MEMBERS = 64
TARGETS = {
    "Hopper": 1.5, "HalfCheetah": 1.5, "Walker2d": 1.0, "Swimmer": 1.0, "Ant": 1.0, "Humanoid": 1.0, "Reacher": 1.0,
    "InvertedDoublePendulum": 1.0,
}  # fmt: skip
SECONDS = 0.2  # about, per timing
BOOKKEEPING = 10.0  # largest share of a step [%]


def steps(env: Any, actions: np.ndarray) -> None:
    """Take random steps in a Gymnasium vector environment, which starts ended members by itself."""
    for action in actions:
        env.step(action)


def our_steps(env: PopulationEnv, actions: np.ndarray) -> None:
    """Take random steps in a population, starting ended members."""
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        if (ended := terminated | truncated).any():
            env.reset(options={"reset_mask": ended})


def bookkeeping(task: str, actions: np.ndarray) -> float:
    """Return the share [%] of a noisy step's time that is spent outside the engine's `advance`."""
    env = PopulationEnv(f"Mujoco{task}", MEMBERS, sensor_noise=0.02, actuator_noise=0.02)
    env.reset(seed=0)
    engine, inside = env._engine, [0.0]
    advance = engine.advance

    def watched(*args: Any) -> None:
        began = time.perf_counter()
        advance(*args)
        inside[0] += time.perf_counter() - began

    engine.advance = watched  # type: ignore[method-assign]
    shares = []
    for _ in range(7):
        inside[0] = total = 0.0
        for action in actions:
            began = time.perf_counter()
            _, _, terminated, truncated, _ = env.step(action)
            total += time.perf_counter() - began
            if (ended := terminated | truncated).any():
                env.reset(options={"reset_mask": ended})
        shares.append(100.0 * (1.0 - inside[0] / total))
    env.close()
    return float(np.median(shares))


def compare(task: str, target: float) -> list[Timing]:
    """Time one task, in a folder that is removed: the peers make MuJoCo write a log into the working folder."""
    home = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return compare_here(task, target)
        finally:
            os.chdir(home)


def compare_here(task: str, target: float) -> list[Timing]:
    ours = PopulationEnv(f"Mujoco{task}", MEMBERS)
    makers = [lambda: gymnasium.make(f"{task}-v5")] * MEMBERS
    peers = {"async": AsyncVectorEnv(makers, shared_memory=True), "sync": SyncVectorEnv(makers)}
    space = peers["sync"].single_action_space
    rng = np.random.Generator(np.random.PCG64(0))
    unit = rng.uniform(-1.0, 1.0, (1000, MEMBERS, *space.shape)).astype(np.float32)
    physical = unit * space.high
    for env in (ours, *peers.values()):
        env.reset(seed=0)
    began = time.perf_counter()
    our_steps(ours, unit[:20])
    count = int(np.clip(SECONDS * 20 / (time.perf_counter() - began), 10, 1000))
    mine, *theirs = interleaved(
        lambda: timed(lambda: our_steps(ours, unit[:count]), count * MEMBERS),
        *(
            lambda env=env: timed(lambda: steps(env, physical[:count]), count * MEMBERS)  # type: ignore[misc]
            for env in peers.values()
        ),
    )
    for env in (ours, *peers.values()):
        env.close()
    found = dict(zip(peers, theirs, strict=True))
    best = max(found, key=lambda name: found[name])
    share = bookkeeping(task, unit[: max(10, count // 4)])
    where, rival = {"members": MEMBERS}, f"Gymnasium {best.capitalize()}VectorEnv"
    return [
        compared(f"Mujoco{task} steps", mine, found[best], "/s", rival, least_ratio=target, at=where, more=found),
        Timing(f"Mujoco{task} noise, scaling, bookkeeping", share, "% of a step", most=BOOKKEEPING, at=where),
    ]


SECTIONS = {task: functools.partial(compare, task, target) for task, target in TARGETS.items()}

if __name__ == "__main__":
    main("bench_mujoco.py", SECTIONS)
