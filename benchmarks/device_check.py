"""Check and time cells on a GPU, store the results, and print a table: `python -m benchmarks.device_check`.

It needs `pip install "replaybench[gpu]"` and NVIDIA's driver, and takes less than ten minutes; `--only rates figure12`
runs some parts. `--host` compiles the same source for this processor. It makes all parts small except `curves`, which
takes about three hours of a core. Part `processor` needs no GPU: it computes what `curves` compares with, in half an
hour of a core.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import contextlib
import dataclasses
import itertools
import json
import multiprocessing
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_ind_from_stats

from benchmarks.speed.peers.learn import EPISODES, SETTINGS
from replaybench.baselines.references import normalise, reference
from replaybench.device import build
from replaybench.device.gpu import check_gpu, machine_code
from replaybench.device.program import Host
from replaybench.envs.ode.magman import Magman
from replaybench.envs.ode.pendulum import PendulumDCSC
from replaybench.envs.ode.plant import OdePlant
from replaybench.evidence.preset import read_preset
from replaybench.experiments import device_cell
from replaybench.experiments.cell import CellRun
from replaybench.experiments.device_cell import DEVICE_CELLS
from replaybench.experiments.study import Cell, Study
from replaybench.runtime.provenance import this_code

Row = dict[str, Any]
PEERS: Final = Path(__file__).parent / "speed" / "peers"
SECONDS: Final = 6.0
"""Duration of a rate's measurement, besides its first launch."""
RATES: Final = (
    *(("FIFO[Uniform]", members) for members in (132, 1024, 4096)),
    *((strategy, 1024) for strategy in ("FULL[PER]", "FIFO[PER]", "TDE[Uniform]", "Expl[Uniform]", "FIFO[PERprop]")),
)
_STRATEGIES: Final = (
    "FIFO[Uniform]", "FULL[PER]", "TDE[Uniform]", "Expl[PERprop]", "Resv[PER+IS]", "FIFO[Uniform+FIS]",
)  # fmt: skip
CURVES: Final = tuple(itertools.product((PendulumDCSC(), Magman()), _STRATEGIES))
SEEDS: Final = {"PendulumDCSC": 128, "Magman": 512}
"""Number of seeds of a curve. Scores differ more between seeds on Magman."""
HOST_OPTIONS: Final = "-O3 -march=x86-64-v3 -fno-math-errno -fno-trapping-math -fno-signed-zeros -fassociative-math"
PROCESSOR: Final = Path(__file__).parent / "results" / "device_curves.json"
"""What part `processor` has found."""
MARGIN: Final = 0.02
"""Smallest difference of interest of μ_r."""


def cell_of(strategy: str, members: int, episodes: int, **changes: Any) -> Cell:
    """Return a cell of DDPG of de Bruin et al. (2018) on their pendulum."""
    usual = {"plants": ("PendulumDCSC",), "seeds": members, "episodes": episodes, "device": "cuda"}
    return Study(**{"name": "check", "strategies": (strategy,)} | usual | changes).cells()[0]


def pendulum_v1(members: int) -> Cell:
    """Return SAC on Pendulum-v1's equations from its lowest point, an update a step, for 10,000 steps."""
    plant = Path(tempfile.mkdtemp()) / "hanging.py"
    plant.write_text(
        "from dataclasses import dataclass\n\nfrom benchmarks.speed.peers.pendulum_v1 import PendulumV1\n"
        "from replaybench.envs.ode.plant import OdePlant\n\n\n@dataclass(frozen=True, kw_only=True)\n"
        "class Hanging(PendulumV1):\n    engine = OdePlant.engine\n"
    )
    return cell_of(
        "FIFO[Uniform]", members, EPISODES, plants=(f"{plant}:Hanging",), learners=("SAC",), update_every=1,
        learner={"SAC": SETTINGS}, greedy_every=EPISODES + 1,
    )  # fmt: skip


def advanced(cell: Cell, seconds: float) -> Row:
    """Run a cell for some seconds, or to its end; return its rate and scores."""
    began = time.perf_counter()
    with contextlib.closing(CellRun(cell)) as run:
        run.advance()
        started, first = time.perf_counter(), run.episode
        while run.episode < cell.episodes and time.perf_counter() - started < seconds:
            run.advance()
        elapsed, rounds = time.perf_counter() - started, run.episode - first
        phases = cell.steps_per_episode // cell.update_every if cell.update_every else 1
        updates = cell.members * rounds * phases * run.updates_per_phase
        curve = run.reward[:, : run.episode]
    return {
        "members": cell.members, "rounds": run.episode, "first_launch_seconds": started - began, "seconds": elapsed,
        "member_updates_per_second": updates / elapsed, "score_first": float(np.nanmean(curve[:, :5])),
        "score_last": float(np.nanmean(curve[:, -5:])), "failed": int((~np.isfinite(curve[:, -1])).sum()),
    }  # fmt: skip


def compiled(cell: Cell) -> float:
    """Compile a cell's kernel for GPU 0; return the seconds."""
    from cuda.core import Device

    device = Device(0)
    device.set_current()
    began, capability = time.perf_counter(), device.compute_capability
    with contextlib.closing(CellRun(dataclasses.replace(cell, members=1, episodes=1, device="cpu"))) as run:
        small = dataclasses.replace(cell, members=1, episodes=1)
        machine_code(device_cell.device_program(small, run.parts()), (capability[0], capability[1]))
    return time.perf_counter() - began


def graphics_card() -> str:
    """Return the name of GPU 0, or raise `UserError`."""
    check_gpu("cuda")
    from cuda.core import Device

    return str(Device(0).name)


def whole_scores(cell: Cell) -> NDArray[np.float64]:
    """Run a cell; return each member's mean reward over all episodes."""
    with contextlib.closing(CellRun(cell)) as run:
        while run.episode < cell.episodes:
            run.advance()
        return run.reward.mean(axis=1)


def curve_study(plant: OdePlant, strategy: str, **changes: Any) -> Study:
    """Return a study of one curve of `CURVES`."""
    given: dict[str, Any] = {"plants": (plant.name,), "strategies": (strategy,), "episodes": 100, "greedy_every": 100}
    return Study(name="curves", seeds=SEEDS[plant.name], capacity=5_000, **given, **changes)


def curve(plant: OdePlant, strategy: str, device: str) -> Row:
    """Run one curve of `CURVES`; return mean and standard deviation over seeds of normalised scores."""
    cells = curve_study(plant, strategy, device=device, block=64).cells()
    found = normalise(np.concatenate(list(map(whole_scores, cells))), reference(plant))
    return {"mean": float(found.mean()), "sd": float(found.std(ddof=1)), "seeds": len(found)}


@contextlib.contextmanager
def shared_gpu() -> Iterator[bool]:
    """Run NVIDIA's multi-process service, with which processes use a GPU at the same time; yield whether it runs."""
    service = shutil.which("nvidia-cuda-mps-control")
    if service is None or subprocess.run([service, "-d"]).returncode:
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run([service], input="quit\n", text=True)


def use_host() -> None:
    """Replace the GPU by this processor."""
    build.HOST_OPTIONS = (*build.HOST_OPTIONS, *HOST_OPTIONS.split())
    device_cell.GPU = lambda program, number: Host(program)


class Check:
    """The parts of the check; `host` replaces the GPU by this processor and makes everything small.

    Figure 12 is run into `folder`.
    """

    def __init__(self, host: bool, folder: Path) -> None:
        self.host, self.folder = host, folder
        cores = len(os.sched_getaffinity(0))
        context, begin = multiprocessing.get_context("spawn"), use_host if host else None
        self.pool = ProcessPoolExecutor(min(DEVICE_CELLS, cores), context, begin)

    def compiling(self) -> Iterable[tuple[str, Row]]:
        """The first kernel, alone; then those of Figure 12, some at once."""
        if self.host:
            return
        yield "first kernel", {"seconds": compiled(cell_of("FIFO[Uniform]", 1, 1))}
        figure = read_preset("debruin2018/fig12").study("paper", {"device": "cuda"}).cells()
        others = [cell for plant, strategy in CURVES for cell in curve_study(plant, strategy, device="cuda").cells()]
        for what, cells in (("kernels of Figure 12", figure), ("others", [*others, pendulum_v1(1)])):
            began = time.perf_counter()
            longest = max(self.pool.map(compiled, cells))
            yield what, {"cells": len(cells), "seconds": time.perf_counter() - began, "longest": longest}

    def rates(self) -> Iterable[tuple[str, Row]]:
        """Member-updates per second, plant and replay included."""
        for strategy, members in RATES[:1] if self.host else RATES:
            episodes = 8 if self.host else 400 if strategy.startswith("FULL") else 10_000  # 400: of 7 GB
            yield strategy, advanced(cell_of(strategy, 2 if self.host else members, episodes), SECONDS)

    def sac(self) -> Iterable[tuple[str, Row]]:
        """SAC, 10,000 steps and updates of each of 4,096 members."""
        cell = pendulum_v1(1 if self.host else 4096)
        yield "SAC, Pendulum-v1", advanced(dataclasses.replace(cell, episodes=2) if self.host else cell, 90.0)

    def figure12(self) -> Iterable[tuple[str, Row]]:
        """Figure 12 at the paper's scale, from the command to the figures; the run folder stays."""
        if self.host:
            return
        words = (
            "reproduce debruin2018/fig12 --scale paper --quiet --checkpoint-seconds 600 --set device=cuda buffers=none"
        )
        began = time.perf_counter()
        with shared_gpu() as shared:
            subprocess.run([sys.executable, "-m", "replaybench", *words.split(), "-o", f"{self.folder}"], check=True)
        yield "Figure 12", {"seconds": time.perf_counter() - began, "service": shared}

    def jax(self) -> Iterable[tuple[str, Row]]:
        """A plain JAX population on the same card."""
        if find_spec("jax") is None:
            yield "plain JAX", {"skipped": "jax is not installed"}
            return
        for members in (2,) if self.host else (1024, 4096):
            words = [sys.executable, f"{PEERS / 'jax_loop.py'}", str(members), "3" if self.host else "50"]
            done = subprocess.run(words, capture_output=True, text=True, timeout=90, check=True)
            yield "plain JAX", {"members": members, **json.loads(done.stdout)}

    def _curves(self, device: str) -> Iterable[tuple[str, Row]]:
        plants, strategies = zip(*CURVES, strict=True)
        rows = self.pool.map(curve, plants, strategies, itertools.repeat(device))
        yield from zip((f"{plant.name} {strategy}" for plant, strategy in CURVES), rows, strict=True)

    def processor(self) -> Iterable[tuple[str, Row]]:
        """Mean μ_r over all episodes of many seeds on the CPU, with which `curves` compares."""
        yield from self._curves("cpu")

    def curves(self) -> Iterable[tuple[str, Row]]:
        """The same on the GPU, compared with the stored ones of a CPU, with p of two one-sided tests."""
        stored = {row["what"]: row for row in json.loads(PROCESSOR.read_text())["rows"]}
        for what, here in self._curves("cuda"):
            there = stored[what]
            sides = [(row["mean"], row["sd"], row["seeds"]) for row in (here, there)]
            (mean, *spread), other = sides
            p = max(
                ttest_ind_from_stats(mean + MARGIN, *spread, *other, equal_var=False, alternative="greater").pvalue,
                ttest_ind_from_stats(mean - MARGIN, *spread, *other, equal_var=False, alternative="less").pvalue,
            )
            error = float(np.hypot(*(sd / seeds**0.5 for _, sd, seeds in sides)))
            yield what, {**here, "cpu": there["mean"], "standard_error": error, "p_equal": float(p)}


def main() -> None:
    """Run the parts in order; a part that fails does not stop the others."""
    order = ("compiling", "rates", "figure12", "sac", "curves", "jax", "processor")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", action="store_true", help="compile for this processor")
    parser.add_argument("--only", nargs="+", choices=order, default=order[:-1], help="parts to run")
    parser.add_argument("--out", type=Path, default=Path("device_check.json"), help="the file of results")
    options = parser.parse_args()
    own = options.host or options.only == ["processor"]
    check = Check(options.host, options.out.parent / "debruin2018-fig12")
    found = {"device": this_code().processor if own else graphics_card(), "rows": []}
    if options.host:
        use_host()
    for name in options.only:
        part: Callable[[], Iterable[tuple[str, Row]]] = getattr(check, name)
        began = time.perf_counter()
        try:
            for what, row in part():
                show(found, options.out, name, what, row)
        except Exception as error:
            show(found, options.out, name, "stopped", {"error": f"{type(error).__name__}: {error}"[:500]})
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
    check.pool.shutdown(cancel_futures=True)


def show(found: dict[str, Any], out: Path, part: str, what: str, row: Row) -> None:
    """Print a row, and store all rows so far."""
    found["rows"].append({"part": part, "what": what, **row})
    out.write_text(json.dumps(found, indent=1) + "\n")
    numbers = (f"{key} {value:,.5g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items())
    print(f"{part:10} {what:28} {', '.join(numbers)}", flush=True)


if __name__ == "__main__":
    main()
