"""Peers are left out with a word where they are not installed, and what stands in for their plant is their plant."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from benchmarks.speed.peers.process import Peer
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import make_plant

BENCHMARKS = Path(__file__).parents[1] / "benchmarks/speed"
WITHOUT = """
import importlib.metadata, runpy, sys
there = importlib.metadata.version
def version(name):
    if name in ("rltools", "jax"):
        raise importlib.metadata.PackageNotFoundError(name)
    return there(name)
importlib.metadata.version = version
script = sys.argv.pop(1)
sys.path.insert(0, script.rsplit("/", 1)[0])
runpy.run_path(script, run_name="__main__")
"""


def test_missing_peers_are_named_with_the_remedy() -> None:
    words = [sys.executable, "-c", WITHOUT, str(BENCHMARKS / "bench_peers.py")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("peers left out: rltools,")
    assert "jax not installed: pip install -c constraints.txt -e '.[bench]'" in done.stdout


def test_a_peers_rate_is_per_second_that_it_says_it_took() -> None:
    served = "import sys\nfor line in sys.stdin: print(int(line) / 64, flush=True)"
    with Peer([sys.executable, "-c", served]) as peer:
        assert peer.rate(10) == 64
        assert peer.rate(7, members=4) == 256
    with Peer([sys.executable, "-c", "raise SystemExit(3)"]) as peer, pytest.raises(RuntimeError, match="status 3"):
        peer.rate(10)


def test_the_peers_plant_is_gymnasiums_pendulum() -> None:
    """A fine Euler integration of Gymnasium's equations agrees; rewards are Gymnasium's own."""
    env = PopulationEnv(make_plant(f"{BENCHMARKS / 'peers' / 'pendulum_v1.py'}:PendulumV1"), 3, seed=5)
    observation, _ = env.reset()
    assert env.steps_per_episode == 200
    assert np.abs(observation[:, 2]).max() <= 1
    assert len(np.unique(observation[:, 0])) == 3
    peer = gymnasium.make("Pendulum-v1").unwrapped
    angle, speed = math.atan2(observation[0, 1], observation[0, 0]), float(observation[0, 2])
    rng = np.random.Generator(np.random.PCG64(0))
    for _ in range(60):
        action = rng.uniform(-1, 1)
        peer.state = np.array([angle, speed])  # type: ignore[attr-defined]
        expected = peer.step(np.array([2 * action], np.float32))[1]
        observation, reward, *_ = env.step(np.full((3, 1), action, np.float32))
        for _ in range(5000):
            speed += 1e-5 * (15 * math.sin(angle) + 6 * action)
            angle += 1e-5 * speed
        speed = min(max(speed, -8.0), 8.0)
        assert reward[0] == np.float32(expected) or abs(reward[0] - expected) < 2e-3
        np.testing.assert_allclose(observation[0], [math.cos(angle), math.sin(angle), speed], atol=5e-3)
        angle, speed = math.atan2(observation[0, 1], observation[0, 0]), float(observation[0, 2])


def test_a_seed_has_solved_it_at_the_end_of_its_first_five_good_episodes() -> None:
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from bench_solved import Curve
good, late, never = np.full(8, -150.0), np.array([-900.0, *[-150.0] * 7]), np.full(8, -201.0)
curve = Curve([200 * n for n in range(1, 9)], list(np.arange(1.0, 9.0)), np.stack([good, late, never]), 9.0)
print(*curve.solved)
"""
    done = subprocess.run([sys.executable, "-c", code, str(BENCHMARKS)], capture_output=True, text=True)
    assert done.stdout.split() == ["5.0", "6.0", "inf"], done.stderr
