"""Time replaybench against its peers: both sides in this run, interleaved, one thread; ratios are of medians.

Run `python benchmarks/speed/bench_core.py`, with the names of SECTIONS for some only. The peers get their best form:
newest versions, one thread, no logging, no evaluation, real buffers, lengths fixed to 200-step episodes.
"""

# First: it fixes the number of threads.
from timings import Timing, compared, interleaved, main, timed  # isort: skip

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium
import numpy as np

EPISODE = 200
UPDATES = 100
BATCH = 16
PEER = "Stable-Baselines3"


class FixedLength(gymnasium.Env[Any, Any]):
    """A task of the pendulum's sizes that costs next to nothing, so that the peer's own loop is what is timed."""

    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.full(2, self.steps / 200, np.float32), float(-action[0]), False, self.steps >= EPISODE, {}


def peer_ddpg(env: Any) -> Any:
    import torch
    from stable_baselines3 import DDPG
    from stable_baselines3.common.logger import Logger

    torch.set_num_threads(1)
    model = DDPG(
        "MlpPolicy", env, learning_rate=1e-3, batch_size=BATCH, tau=0.01, gamma=0.95, learning_starts=0,
        train_freq=(1, "episode"), gradient_steps=UPDATES, buffer_size=10_000, device="cpu",
        policy_kwargs={"net_arch": {"pi": [50, 50], "qf": [50, 50, 20]}},
    )  # fmt: skip
    model.set_logger(Logger(folder=None, output_formats=[]))
    model.learn(2 * EPISODE)
    return model


def our_run(strategy: str, members: int, episodes: int = 4000) -> Any:
    from replaybench.experiments.cell import CellRun
    from replaybench.experiments.study import Study

    study = Study(
        name="speed", plants=("PendulumDCSC",), strategies=(strategy,), seeds=members, block=members,
        episodes=episodes, greedy_every=episodes,
    )  # fmt: skip
    run = CellRun(study.cells()[0])
    for _ in range(2):
        run.advance()
    return run


def updates() -> list[Timing]:
    """DDPG updates of one learner per second and core, batches drawn from real buffers."""
    from replaybench.experiments.loop import training_episode, update_phase

    peer = peer_ddpg(FixedLength())
    rows = []
    for members, target in ((1, 60), (8, 60), (50, 120), (60, 120)):
        run = our_run("FIFO[Uniform]", members)
        count = max(50, 4000 // members)
        seen = training_episode(run.env, run.agent, run.replay, 2)
        ours, theirs = interleaved(
            lambda run=run, count=count, members=members, seen=seen: timed(
                lambda: update_phase(run.agent, run.replay, count, 0.0, seen), count * members
            ),
            lambda: timed(lambda: peer.train(300, BATCH), 300),
        )
        rows.append(compared("DDPG updates", ours, theirs, "/s", PEER, least_ratio=target, at={"members": members}))
    return rows


LOOPS = (("FIFO[Uniform]", 50, 110), ("FULL[PER]", 50, 95), ("FIFO[Uniform]", 8, 35), ("FIFO[Uniform]", 1, 30))
"""Strategy, members, and how many times as fast as the peer the whole loop is to be."""


def loop() -> list[Timing]:
    """The whole training loop: learner-episodes (200 steps and 100 updates) per second and core."""
    peer = peer_ddpg(FixedLength())
    rows = []
    for strategy, members, target in LOOPS:
        run = our_run(strategy, members)
        ours, theirs = interleaved(
            lambda run=run, members=members: timed(run.advance, members),
            lambda: timed(lambda: peer.learn(2 * EPISODE, reset_num_timesteps=False), 2),
        )
        what = f"training loop {strategy} (learner-episodes)"
        rows.append(compared(what, ours, theirs, "/s", PEER, least_ratio=target, at={"members": members}))
    return rows


STRATEGIES = (
    "FULL[PER]", "FIFO[PER+IS]", "FIFO[PERprop]", "FIFO[ERE]", "FIFO[ERE+PER]", "FIFO[AER]", "FIFO[Uniform+FIS]",
    "Resv[Uniform]", "TDE[Uniform]", "Expl[Uniform]",
)  # fmt: skip


def strategies() -> list[Timing]:
    """The whole training loop under each strategy, against that under FIFO[Uniform]."""
    members, plain = 50, our_run("FIFO[Uniform]", 50)
    rows = []
    for strategy in STRATEGIES:
        run = our_run(strategy, members)
        ours, theirs = interleaved(lambda run=run: timed(run.advance, members), lambda: timed(plain.advance, members))
        what, rival = f"training loop {strategy} (learner-episodes)", "FIFO[Uniform]"
        rows.append(compared(what, ours, theirs, "/s", rival, least_ratio=0.8, at={"members": members}))
    return rows


def plant_steps(plant: str, members: int, episodes: int = 1, delay: float = 0.0) -> Callable[[], None]:
    """Return a function that simulates episodes of `members` copies of a plant, with a delay of commands [s]."""
    from replaybench import Channel
    from replaybench.envs.population import PopulationEnv

    env = PopulationEnv(plant, members, channel=Channel(delay=delay))
    action = np.full((members, len(env.plant.action_names)), 0.5, np.float32)

    def steps() -> None:
        for _ in range(episodes):
            env.reset()
            for _ in range(EPISODE):
                env.step(action)

    return steps


def delays() -> list[Timing]:
    """Plant steps per second of CPU time with a delay of a quarter of a control period, against steps without it.

    A control step then has two parts with three Runge-Kutta steps together, instead of two.
    """
    rows = []
    for plant in ("Pendulum", "Magman"):
        for members in (50, 1000):
            episodes = 5000 // members
            sides = [plant_steps(plant, members, episodes, delay) for delay in (0.005, 0.0)]
            amount = members * EPISODE * episodes
            ours, theirs = interleaved(*(lambda f=f, n=amount: timed(f, n, time.thread_time) for f in sides))
            what = f"{plant} steps, a delay of a quarter of a step"
            rows.append(compared(what, ours, theirs, "/s", "no delay", least_ratio=1 / 1.5, at={"members": members}))
    return rows


def stepping() -> list[Timing]:
    """Plant steps per second on one core, against Gymnasium's Pendulum-v1."""
    members = 4096
    rows = []
    peer = gymnasium.make("Pendulum-v1")
    peer.reset(seed=0)

    def peer_steps() -> None:
        action = np.zeros(1, np.float32)
        for _ in range(1000):
            _, _, _, truncated, _ = peer.step(action)
            if truncated:
                peer.reset()

    for plant in ("Pendulum", "Magman"):
        steps = plant_steps(plant, members)
        ours, theirs = interleaved(lambda f=steps: timed(f, members * EPISODE), lambda: timed(peer_steps, 1000))
        what, rival = f"{plant} steps", "Gymnasium Pendulum-v1"
        rows.append(compared(what, ours, theirs, "/s", rival, least_ratio=100, at={"members": members}))
    return rows


def ranks() -> list[Timing]:
    """Rank-based PER, sample and priority update, per sampled item, against cpprb's proportional PER."""
    from cpprb import PrioritizedReplayBuffer

    from replaybench.replay.buffer import Replay, step_fields
    from replaybench.replay.strategies.interface import Context
    from replaybench.replay.strategies.notation import parse

    members, capacity, rounds = 32, 100_000, 40
    rng = np.random.Generator(np.random.PCG64(0))
    sizes = {"obs": {"shape": 2}, "act": {"shape": 1}, "rew": {}, "next_obs": {"shape": 2}, "done": {}}
    peers = []
    for _ in range(members):
        buffer = PrioritizedReplayBuffer(capacity, sizes, alpha=0.7)
        data = {"obs": 2, "act": 1, "rew": 1, "next_obs": 2, "done": 1}
        buffer.add(**{name: np.zeros((capacity, width), np.float32) for name, width in data.items()})
        buffer.update_priorities(np.arange(capacity), rng.random(capacity) + 1e-3)
        peers.append(buffer)
    replay = Replay(parse("FULL[PER]"), step_fields(2, 1), capacity, 0, range(members), BATCH)
    replay.count[:] = replay.offers[:] = capacity
    replay.columns.rows[:] = 0
    replay.columns.serial[:] = np.arange(1, capacity + 1)
    state = replay.state_dict()
    replay.load_state_dict({**state, "td_error": rng.random((members, capacity), np.float32)})
    errors = rng.random((members, BATCH), np.float32)

    def ours() -> None:
        for _ in range(rounds):
            replay.annotate(replay.sample(Context()), {"td_error": errors})

    def theirs() -> None:
        for _ in range(rounds):
            for buffer, error in zip(peers, errors, strict=True):
                drawn = buffer.sample(BATCH, 0.4)
                buffer.update_priorities(drawn["indexes"], error)

    amount = rounds * members * BATCH
    mine, peer = interleaved(lambda: timed(ours, amount), lambda: timed(theirs, amount))
    where = {"members": members, "capacity": capacity, "batch": BATCH}
    what, rival = "rank-based PER, sampling and priority update", "cpprb, proportional PER"
    return [compared(what, mine, peer, "/s", rival, least_ratio=1, at=where)]


def fuzzy() -> list[Timing]:
    """Fuzzy Q-iteration of the pendulum, 201 × 151 nodes and 15 actions, on one core after compilation."""
    from replaybench.baselines.fuzzy_q_iteration import solve
    from replaybench.baselines.grid import plant_grid
    from replaybench.envs.registry import make_plant

    plant = make_plant("PendulumDCSC")
    solve(plant, grid=plant_grid(plant, (21, 21)))
    before, seconds = dict(os.environ), []
    for _ in range(3):
        # Kernels are compiled in this process by now; solutions must be computed, not fetched.
        with tempfile.TemporaryDirectory() as empty:
            os.environ["REPLAYBENCH_CACHE"] = empty
            seconds.append(1 / timed(lambda: solve(plant, grid=plant_grid(plant, (201, 151))), 1))
    os.environ.clear()
    os.environ.update(before)
    return [Timing("fuzzy Q-iteration 201 × 151 × 15", statistics.median(seconds), "s", most=3)]


def start() -> list[Timing]:
    """Seconds from the shell: import and help, second start."""
    rows = []
    for what, words, limit in (
        ("import replaybench", ["-c", "import replaybench"], 0.3),
        ("replaybench --help", ["-m", "replaybench.cli.main", "--help"], 1.0),
    ):
        command = [sys.executable, *words]
        seconds = [
            1 / timed(lambda c=command: subprocess.run(c, check=True, stdout=subprocess.DEVNULL), 1) for _ in range(5)
        ]
        rows.append(Timing(what, statistics.median(seconds), "s", most=limit))
    return rows


_FILL = """
import sys, numpy as np
from replaybench.replay.buffer import Replay, step_fields
from replaybench.replay.strategies.notation import parse
strategy, actions, capacity = sys.argv[1], int(sys.argv[2]), 600_000
fields = {**step_fields(2, actions), "exploration": 1}
replay = Replay(parse(strategy), fields, capacity, 0, range(50), 16)
def resident():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))
before = resident()
rng = np.random.Generator(np.random.PCG64(0))
replay.columns.rows[:] = 0
replay.columns.serial[:] = np.arange(1, capacity + 1)
replay.count[:] = replay.offers[:] = capacity
if strategy.endswith("[PER]"):
    from replaybench.replay.orders.rank_order import order_update_all
    slots = np.broadcast_to(np.arange(capacity), (50, capacity))
    for keys in (np.full(slots.shape, np.inf, np.float32), rng.random(slots.shape, np.float32)):
        order_update_all(replay.orders["td_error"].state, slots, keys)
print(resident() - before)
"""


def memory() -> list[Timing]:
    """Resident bytes of 50 members × 6·10⁵ experiences, filled through the strategy's own structure."""

    def filled(point: tuple[str, int]) -> float:
        words = [sys.executable, "-c", _FILL, point[0], str(point[1])]
        return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout) / 1e9

    points = [(strategy, actions) for strategy in ("FULL[Uniform]", "FULL[PER]") for actions in (1, 4)]
    with ThreadPoolExecutor(2) as two_at_a_time:
        used = dict(zip(points, two_at_a_time.map(filled, points), strict=True))
    rows = []
    for plant, actions, limit in (("pendulum", 1, 1.2), ("magman", 4, 1.5)):
        plain = used["FULL[Uniform]", actions]
        rows.append(Timing(f"memory FULL[Uniform], 50 × 6·10⁵, {plant}", plain, "GB", most=limit))
        more = used["FULL[PER]", actions] - plain
        rows.append(Timing(f"additional memory of FULL[PER], {plant}", more, "GB", most=0.75))
    return rows


SECTIONS = {
    "updates": updates, "loop": loop, "strategies": strategies, "stepping": stepping, "delays": delays, "ranks": ranks,
    "fuzzy": fuzzy, "start": start, "memory": memory,
}  # fmt: skip


if __name__ == "__main__":
    main("bench_core.py", SECTIONS)
