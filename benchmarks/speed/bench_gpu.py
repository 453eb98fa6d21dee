"""DDPG's updates on a CUDA device: member-updates per second, beside this machine's CPU and beside the device's limits.

Run `python benchmarks/speed/bench_gpu.py [host | M …]`. `host` needs no device: it times all of a step of SAC but its
update, which bounds what updates on a device could gain. The others are left out where there is none. Their plant,
networks and batch are the defaults of a study (batch 16). Of each population size: `eager`, each operation started
from Python; `graph`, one graph an update, waiting for TD errors, as prioritised replay does; `phase`, graphs of many
updates; `drawn`, the same with batches drawn from real buffers meanwhile; `CPU`, the compiled kernels on one core,
with batches drawn too.
"""

from __future__ import annotations

# First: it fixes the number of threads.
from timings import Timing, interleaved, main, timed  # isort: skip

import functools
import math
import statistics
from collections.abc import Callable
from typing import Any

UPDATES = 100
HOST_STEPS = 20
SEEDS, STEPS = 4096, 10_000
"""What one run on a device is to do: so many SAC learners, so many steps of each."""
POPULATIONS = (64, 256, 1024, 4096)
PASSES = {"actor": 4, "critic": 6}
"""Multiples of a network's parameters that one update of one sample multiplies and adds."""
TRANSFERS = {"actor": 14, "critic": 16}
"""How often an update that keeps nothing but activations near must read or write parameters, moments, targets: passes
1 each and gradients 1 more, Adam 7 (four read, three written), tracking 3."""


def made(members: int, device: str) -> Any:
    """Return a run of a population whose buffers hold an episode, and that episode."""
    from replaybench.experiments.cell import CellRun
    from replaybench.experiments.loop import training_episode
    from replaybench.experiments.study import Study

    study = Study(
        name="gpu", plants=("PendulumDCSC",), strategies=("FIFO[Uniform]",), seeds=members, block=members,
        episodes=100, capacity=1000, greedy_every=100, device=device,
    )  # fmt: skip
    run = CellRun(study.cells()[0])
    return run, training_episode(run.env, run.agent, run.replay, 0)


def finished(work: Callable[[], object], amount: float) -> float:
    """Return amount per second of work that is over when the device is."""
    import torch

    def whole() -> None:
        work()
        torch.cuda.synchronize()

    return timed(whole, amount)


def median_seconds(work: Callable[[], object]) -> float:
    """Return how long work takes on the device, the median of twenty after one."""
    finished(work, 1)
    return statistics.median(1 / finished(work, 1) for _ in range(20))


@functools.cache
def limits() -> tuple[float, float]:
    """Return bytes read and written per second by a large copy, and operations per second of a large product."""
    import torch

    source = torch.zeros(1 << 28, device="cuda")
    target = torch.empty_like(source)
    copied = 2 * 4 * source.numel() / median_seconds(lambda: target.copy_(source))
    a = torch.rand(8192, 8192, device="cuda")
    return copied, 2 * 8192**3 / median_seconds(lambda: torch.mm(a, a))


def host(members: int = 256) -> list[Timing]:
    """Time what stays on the CPU of a step of SAC that is followed by an update, on one core."""
    from replaybench.experiments.cell import CellRun
    from replaybench.experiments.episodes import LiveEpisodes
    from replaybench.experiments.loop import training_steps
    from replaybench.experiments.study import Study
    from replaybench.replay.strategies.interface import Context

    study = Study(
        name="host", plants=("PendulumDCSC",), strategies=("FIFO[Uniform]",), learners=("SAC",), seeds=members,
        block=members, episodes=STEPS // 200, capacity=STEPS, greedy_every=100, update_every=1,
        learner={"SAC": {"batch_size": 100, "replays_per_experience": 100.0}},
    )  # fmt: skip
    run, amount = CellRun(study.cells()[0]), HOST_STEPS * members
    agent, replay, episodes = run.agent, run.replay, LiveEpisodes(run.env)
    training_steps(agent, replay, episodes, agent.batch_size, 0)

    def repeated(work: Callable[[], object]) -> float:
        return timed(lambda: [work() for _ in range(HOST_STEPS)], amount)

    whole, acting, drawing = (
        1e6 / rate
        for rate in interleaved(
            lambda: timed(lambda: training_steps(agent, replay, episodes, HOST_STEPS, 0), amount),
            lambda: repeated(lambda: agent.explore(episodes.observation, episodes.active)),
            lambda: repeated(lambda: replay.sample(Context())),
        )
    )
    facts = {
        "µs to act": acting,
        "µs to step and store": whole - acting,
        "µs to draw a batch": drawing,
        "core-seconds of all seeds": (whole + drawing) * SEEDS * STEPS / 1e6,
    }
    place = {"members": members, "batch": agent.batch_size}
    return [Timing("SAC, a learner's step without its update", whole + drawing, "µs", at=place, more=facts)]


def measure(members: int) -> list[Timing]:
    """Time one size of population; the ratio is that of drawn batches on the device to drawn batches on a core."""
    import torch

    from replaybench.controllers.cuda import DeviceDDPG
    from replaybench.experiments.loop import update_phase
    from replaybench.replay.strategies.interface import Context

    run, seen = made(members, "cuda")
    here, there = made(members, "cpu")
    agent, batch = run.agent, run.replay.sample(Context())
    graph, eager = agent.on_device, DeviceDDPG(agent, "cuda", graphs=False)
    amount, few = UPDATES * members, max(1, UPDATES * 64 // members)
    rates = interleaved(
        lambda: finished(lambda: eager.update_all([batch] * UPDATES), amount),
        lambda: finished(lambda: [graph.update(batch) for _ in range(UPDATES)], amount),
        lambda: finished(lambda: graph.update_all([batch] * UPDATES), amount),
        lambda: finished(lambda: update_phase(agent, run.replay, UPDATES, 0.0, seen), amount),
        lambda: timed(lambda: update_phase(here.agent, here.replay, few, 0.0, there), few * members),
    )
    floats = sum(math.prod(shape) for shape in graph.shapes.values())
    pinned = torch.zeros((UPDATES, floats), pin_memory=True)
    sent = median_seconds(lambda: pinned.to("cuda", non_blocking=True))
    fetched = median_seconds(lambda: (agent.update_all([]), agent.fetch("actor")))
    sizes = {name: network.shape.parameter_count for name, network in agent.networks.items()}
    operations = 2 * agent.batch_size * sum(sizes[name] * times for name, times in PASSES.items())
    traffic = 4 * sum(sizes[name] * times for name, times in TRANSFERS.items())
    best = max(rates[:3])
    bandwidth, peak = limits()
    facts = {
        **dict(zip(("eager", "graph", "phase"), rates[:3], strict=True)),
        "% of bandwidth": 100 * best * traffic / bandwidth,
        "% of arithmetic": 100 * best * operations / peak,
        "bandwidth [TB/s]": bandwidth / 1e12,
        "arithmetic [TFLOP/s]": peak / 1e12,
        f"ms to send {UPDATES} batches": 1e3 * sent,
        "ms to fetch actors": 1e3 * fetched,
    }
    what, rival = f"DDPG member-updates on {torch.cuda.get_device_name()}", "one core, drawn"
    place = {"members": members, "batch": agent.batch_size}
    return [Timing(what, rates[3], "/s", rates[4], rival, rates[3] / rates[4], at=place, more=facts)]


def sections() -> dict[str, Callable[[], list[Timing]]]:
    """Return what can be measured here."""
    import torch

    if not torch.cuda.is_available():
        print("no CUDA device: only `host` can be measured")
        return {"host": host}
    return {"host": host, **{str(members): functools.partial(measure, members) for members in POPULATIONS}}


if __name__ == "__main__":
    main("bench_gpu.py", sections())
