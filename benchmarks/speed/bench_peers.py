"""SAC and TD3 beside the hardest peers: RLtools with MKL and plain JAX populations; Stable-Baselines3 for the picture.

All sides take turns on one core, with one thread each; rates are member-updates per CPU second. A section is a
learner and its batch: `SAC:64` has 64-64 units, `SAC:256` 256-256. RLtools' rate includes its environment's steps,
one an update; JAX's is that of the population, of 1, 8 or 32 members, that is fastest. `python
benchmarks/speed/bench_peers.py`, with names of sections for some only; `pip install -c constraints.txt -e '.[bench]'`
brings the peers. Without them it says so and ends.
"""

# First: it fixes the number of threads.
from timings import Timing, compared, interleaved, main, timed  # isort: skip

import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench_learners import LEARNERS, PEER, our_updates, peer_of
from peers import rltools
from peers.process import Peer

PLANT = f"{Path(__file__).parent / 'peers' / 'pendulum_v1.py'}:PendulumV1"
POPULATIONS = (1, 8, 32)
TURN = 1000
"""Updates of one member of 64-64 units at batch 64 that a turn is worth."""


def pin() -> None:
    """Keep this process and all that it starts on one core."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def beside(name: str, batch: int, units: int, members: int, targets: tuple[float, float, float]) -> list[Timing]:
    """Time one learner of ours, M = 1 and a population, beside its peers.

    Args:
        name: of the learner.
        batch, units: sizes; there are two hidden layers.
        members: of our population.
        targets: least ratios asked for: of the population to RLtools and to JAX, of one member to RLtools.
    """
    learner = next(each for each in LEARNERS if each.name == name)
    amount, hidden = TURN * 64**3 / (batch * units**2), (units, units)

    def count(many: int) -> int:
        return max(2, 2 * round(amount / many / 2))  # TD3's actor learns at every other one

    def ours(many: int) -> Callable[[], float]:
        work = our_updates(learner, hidden, batch, many, count(many), PLANT)[0]
        return lambda: timed(work, many * count(many), time.process_time)

    model, few = peer_of(name, hidden, batch), count(20)
    script = Path(__file__).parent / "peers" / "jax_population.py"
    with contextlib.ExitStack() as running:
        c = running.enter_context(Peer([str(rltools.built(name, batch, units)), "rate", "0"]))
        words = [sys.executable, str(script), name, str(batch), str(units)]
        jax = [
            running.enter_context(Peer([*words, str(many), str(rltools.peers_folder() / "jax")]))
            for many in POPULATIONS
        ]
        sides = [ours(many) for many in (1, members)]
        sides.append(lambda: c.rate(count(1)))
        sides += [functools.partial(peer.rate, count(m), m) for peer, m in zip(jax, POPULATIONS, strict=True)]
        sides.append(lambda: timed(lambda: model.train(few, batch), few, time.process_time))
        one, many, their_c, *their_jax, sb3 = interleaved(*sides)
    where = {"units": units, "batch": batch}
    facts = {f"JAX, M = {m}": rate for m, rate in zip(POPULATIONS, their_jax, strict=True)}
    single, population = {**where, "members": 1}, {**where, "members": members}
    row = functools.partial(compared, f"{name} updates", unit="/s")
    return [
        row(many, their_c, rival="RLtools", least_ratio=targets[0], at=population),
        row(many, max(their_jax), rival="JAX", least_ratio=targets[1], at=population, more=facts),
        row(one, their_c, rival="RLtools", least_ratio=targets[2], at=single),
        row(many, sb3, rival=PEER, at=population),
    ]


SECTIONS = {
    **{
        f"{name}:{batch}": functools.partial(beside, name, batch, 64, 32, (1.3, 1.5, 1.0))
        for name in ("SAC", "TD3")
        for batch in (16, 64, 100)
    },
    **{f"{name}:256": functools.partial(beside, name, 256, 256, 4, (1.0, 1.0, 1.0)) for name in ("SAC", "TD3")},
}

if __name__ == "__main__":
    if lacking := rltools.missing():
        print(f"peers left out: {lacking}")
    else:
        pin()
        main("bench_peers.py", SECTIONS)
