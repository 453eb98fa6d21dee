"""Time whole members on a GPU, store the rates, and print a table: `python -m benchmarks.device_check`.

It has not run on a GPU yet. It needs the packages cuda-core and numba-cuda and NVIDIA's driver. It takes less than ten
minutes: each case runs for `SECONDS`. `--host` runs the same source on this processor with a few members, as a trial.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from replaybench.controllers.algorithms.ddpg import DDPG, DDPGConfig
from replaybench.controllers.interface.agent import LearnerSetting
from replaybench.device.buffers import DeviceBuffers
from replaybench.device.gpu import GPU
from replaybench.device.plants import DevicePlant
from replaybench.device.program import Host, Program, Schedule
from replaybench.envs.ode.pendulum import PendulumDCSC
from replaybench.experiments.cell import stored_fields
from replaybench.experiments.schedule import make_task, updates_after
from replaybench.replay.strategies.notation import parse

SECONDS: Final = 25.0
CASES: Final = (
    *(("FIFO[Uniform]", members, 10_000) for members in (132, 1024, 4096)),
    *((strategy, 1024, 10_000) for strategy in ("FIFO[PER]", "TDE[PER]", "Expl[Uniform]", "FIFO[PERprop]")),
    *((strategy, 900, 600_000) for strategy in ("FULL[Uniform]", "FULL[PER]", "FULL[PER+IS]", "FULL[Uniform+FIS]")),
)


def made(strategy: str, members: int, capacity: int) -> Program:
    """Return DDPG of de Bruin et al. (2018) on their pendulum."""
    plant, parsed = PendulumDCSC(), parse(strategy)
    learner = DDPG(DDPGConfig(), LearnerSetting(make_task(plant, 50.0, "fixed"), 0, range(members)))
    steps = plant.steps_per_episode(50.0)
    due = updates_after(steps, steps, parsed, learner)
    changes = round(steps + due * learner.batch_size)
    buffers = DeviceBuffers(parsed, stored_fields(plant), capacity, learner.batch_size, changes)
    return Program(DevicePlant(plant, 50.0), learner, buffers, Schedule(due, 3000.0))


def timed(strategy: str, members: int, capacity: int, host: bool, seconds: float) -> dict[str, Any]:
    """Run a case for some seconds; return its rate and its scores."""
    begun = time.perf_counter()
    program = made(strategy, members, capacity)
    device: Any = Host(program) if host else GPU(program)
    first = device.advance(1)
    started, rounds, scores = time.perf_counter(), 0, [first.reward]
    while time.perf_counter() - started < seconds and rounds < 2999:
        found = device.advance(1 if host else 10)
        scores.append(found.reward)
        rounds += found.reward.shape[1]
    elapsed = time.perf_counter() - started
    curve = np.concatenate(scores, axis=1)
    updates = members * rounds * program.settings.updates_per_phase
    return {
        "strategy": strategy, "members": members, "capacity": capacity, "episodes": rounds + 1,
        "first_episode_seconds": started - begun, "member_updates_per_second": updates / elapsed,
        "score_first": float(np.nanmean(curve[:, :5])), "score_last": float(np.nanmean(curve[:, -5:])),
    }  # fmt: skip


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", action="store_true", help="run on this processor, with two members")
    parser.add_argument("--out", type=Path, default=Path("device_check.json"), help="the file of results")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for strategy, members, capacity in CASES[:1] if options.host else CASES:
        try:
            given = (2, 1000, True, 1.0) if options.host else (members, capacity, False, SECONDS)
            rows.append(timed(strategy, *given))
        except Exception as error:  # one case that fails must not cost the others
            rows.append({"strategy": strategy, "members": members, "error": f"{type(error).__name__}: {error}"})
        options.out.write_text(json.dumps(rows, indent=1) + "\n")
        row = rows[-1]
        rate = row.get("member_updates_per_second", 0) / 1e6
        print(f"{strategy:20} {row['members']:5} members  {rate:8.3f} M updates/s  {row.get('error', '')}", flush=True)


if __name__ == "__main__":
    main()
