"""Worker processes change no number, and end with the process that started them, however it ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pybullet")

from replaybench.envs.population import PopulationEnv


def gone(processes: list[int], seconds: float = 10.0) -> bool:
    """Wait until processes have ended, and say whether they have."""
    end = time.monotonic() + seconds
    while processes and time.monotonic() < end:
        processes = [number for number in processes if alive(number)]
        time.sleep(0.02)
    return not processes


def worlds_of(env: PopulationEnv) -> Any:
    """What steps the worlds of a population: processes, or itself."""
    engine: Any = env._engine
    return engine._worlds


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/stat")  # where there is one: what waits for its parent only is gone
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")


def experience(name: str) -> tuple[list[np.ndarray], list[int]]:
    """Return all that a population of three shows, and its worker processes."""
    env = PopulationEnv(name, 3, sensor_noise=0.01, actuator_noise=0.05, seed=3, render_mode="rgb_array")
    rng = np.random.Generator(np.random.PCG64(0))
    shown: list[np.ndarray] = [env.reset()[0]]
    for _ in range(30):
        observation, reward, terminated, truncated, infos = env.step(rng.uniform(-1, 1, env.action_space.shape))
        shown += [observation, reward, terminated, truncated, *infos.values()]
        if (ended := terminated | truncated).any():
            shown.append(env.reset(options={"reset_mask": ended})[0])
    shown += list(env.render() or ())
    state = env.get_state()
    env.reset()
    env.set_state(state)
    env.dt = env.dt  # told to the workers again
    shown.append(env.step(np.ones(env.action_space.shape))[0])
    workers = [worker.pid for worker in getattr(worlds_of(env), "_workers", [])]
    assert all(alive(number) for number in workers)
    env.close()
    env.close()
    return shown, workers


@pytest.mark.parametrize("name", ["BulletHopper", "BulletReacher"])
def test_three_processes_show_what_one_shows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here, none = experience(name)
    monkeypatch.setenv("REPLAYBENCH_THREADS", "3")
    there, workers = experience(name)
    assert (len(none), len(workers)) == (0, 2)
    assert len(here) == len(there)
    for left, right in zip(here, there, strict=True):
        np.testing.assert_array_equal(left, right)
    assert gone(workers, 0.1)  # `close` has waited for them


def test_a_dropped_population_leaves_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLAYBENCH_THREADS", "3")
    env = PopulationEnv("BulletReacher", 3)
    workers = [worker.pid for worker in worlds_of(env)._workers]
    file = worlds_of(env)._shared.file
    del env
    assert gone(workers)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)


def test_workers_notice_that_their_population_was_killed() -> None:
    code = (
        "from replaybench.envs.population import PopulationEnv\n"
        "env = PopulationEnv('BulletReacher', 3)\n"
        "env.reset()\n"
        "print(*(worker.pid for worker in env._engine._worlds._workers), flush=True)\n"
        "input()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "REPLAYBENCH_THREADS": "3"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    workers = [int(word) for word in parent.stdout.readline().split()]
    assert len(workers) == 2
    assert all(alive(number) for number in workers)
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    assert gone(workers)


def test_a_worker_that_dies_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLAYBENCH_THREADS", "3")
    env = PopulationEnv("BulletReacher", 3)
    env.reset()
    worker = worlds_of(env)._workers[1]
    worker.kill()
    worker.wait()
    with pytest.raises(RuntimeError, match="a worker process of a PyBullet population has ended"):
        env.step(np.zeros((3, 2)))
    env.close()


def test_no_answer_is_left_unread_after_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be taken for the answer to the next order, before that has been carried out."""
    monkeypatch.setenv("REPLAYBENCH_THREADS", "3")
    env = PopulationEnv("BulletReacher", 3)
    env.reset()
    worlds = worlds_of(env)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(worlds._here, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            env.step(np.zeros((3, 2)))
    assert not select.select([worker.stdout for worker in worlds._workers], [], [], 0.5)[0]
    env.reset()
    env.step(np.zeros((3, 2)))
    env.close()
