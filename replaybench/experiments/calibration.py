"""Estimates of how long a study takes on this machine.

Cells that differ only in noise, seeds and number of episodes form a class, because their steps take equally long. One
cell of each class runs for a few seconds, and the measured speed is stored.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from replaybench.baselines.grid_choice import Rule, reference_seconds
from replaybench.baselines.references import kept_at
from replaybench.baselines.rivals import Rivals
from replaybench.data.documents import read_json
from replaybench.envs.interface.engine import thread_count
from replaybench.envs.ode.plant import OdePlant
from replaybench.experiments.cell import CellRun
from replaybench.experiments.plan import for_each
from replaybench.experiments.study import Cell, reference_cells
from replaybench.replay.strategies.notation import parse
from replaybench.replay.strategies.strategy import is_built_in
from replaybench.runtime.atomic import store_text
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import NotCompiledError, cache_dir, stored_kernels_only
from replaybench.runtime.provenance import this_code
from replaybench.runtime.quantities import duration
from replaybench.runtime.version import NUMERICS_VERSION, VERSION

TRIAL_SECONDS: Final = 5.0
"""Longest trial run of a class of cells, in seconds. A trial may take longer if a single episode or update does."""
_ENOUGH: Final = 0.5
"""Seconds of acting, and seconds of updates, after which a measured speed is accurate enough."""
_STEPS: Final = 200
"""Smallest number of timed steps of each member, so that short episodes do not dominate."""
_COMPILING: Final = 25.0, 5.0, 10.0
"""Assumed processor seconds to compile a learner, each further class of cells, and the reference controllers."""
_FLOPS: Final = 2e10
"""Assumed floating-point operations per second of one core in updates of small networks."""
_STEP: Final = 2e-6, 1e-4
"""Assumed seconds of one member's control step, for plants given by equations and for other plants."""
_ON_DEVICE: Final = 5e12, 1e-8
"""Assumed operations per second, and seconds of one member's step, on a GPU (H200, 1,024 members)."""


class Speed(NamedTuple):
    """The speed of a class of cells.

    Attributes:
        seconds_per_step: Seconds of one member's step, updates included, while the buffer is nearly empty.
        more_when_full: Additional seconds of a step when the buffer is full.
    """

    seconds_per_step: float
    more_when_full: float = 0.0

    def of(self, cell: Cell) -> float:
        """Return the mean seconds of one member's step in a run of a cell."""
        full = 1 - cell.capacity / (cell.steps_per_episode * cell.episodes) if self.more_when_full else 0.0
        return self.seconds_per_step + max(0.0, full) * self.more_when_full


class Estimate(NamedTuple):
    """The estimated duration of a study.

    Attributes:
        seconds: Wall-clock time in seconds.
        parts: Processor seconds for training (`cells`), reference controllers (`references`), and compilation
            (`compiling`).
        guessed: Number of classes of cells (equally fast combinations of settings) whose speed was not measured, but
            guessed from the size of their networks.
    """

    seconds: float
    parts: dict[str, float]
    guessed: int

    def in_words(self) -> str:
        """Return the processor times as text, with a note if some times are guesses."""
        text = ", ".join(f"{name} {duration(seconds)}" for name, seconds in self.parts.items() if seconds >= 0.05)
        if self.guessed:
            types = f"{self.guessed} type{'s' * (self.guessed != 1)} of cells"
            text += f"; a guess for {types} whose speed was not measured, or whose kernels are not compiled here yet"
        return f"in processor time: {text}" if text else "nothing is left to compute"


def estimate(
    cells: Sequence[Cell],
    everyone: Sequence[Cell],
    rule: Rule | None,
    workers: int,
    measure: bool = True,
    compiles: bool = False,
    progress: Callable[[int, int], object] = lambda done, due: None,
) -> Estimate:
    """Estimate how long the unfinished cells of a study take on this machine.

    Args:
        cells: The cells that are still to be computed.
        everyone: All cells of the study. Reference controllers are needed for all plants.
        rule: Rule for the grid of dynamic programming, which is one of the reference controllers.
        workers: Number of worker processes.
        measure: Whether to measure unknown speeds of CPU cells in trial runs of a few seconds.
        compiles: Whether to measure also cells whose functions must first be compiled.
        progress: Called with the number of finished classes of cells and the number of all classes. A class contains
            equally fast cells.
    """
    classes = {_class(cell): cell for cell in cells}
    tried: dict[str, Speed | None] = {}
    with contextlib.nullcontext() if compiles else stored_kernels_only():
        for done, (key, cell) in enumerate(classes.items()):
            progress(done, len(classes))
            tried[key] = _stored_speed(key) or (_measured(key, cell) if measure and cell.device == "cpu" else None)
    new = [cell for key, cell in classes.items() if tried[key] is None]
    speeds = {key: tried[key] or Speed(_guess(cell)) for key, cell in classes.items()}
    references = []
    for (_, _, noise), cell in reference_cells(everyone).items() if cells else ():
        plant = cell.make_plant()
        known = kept_at(plant, cell.frequency, noise, rule).is_file()
        step = _STEP[not isinstance(plant, OdePlant)]
        rivals = Rivals().seconds(plant, cell.frequency, noise)
        references.append(rivals + (0.0 if known else reference_seconds(plant, cell.frequency, noise, rule, step)))
    first, further, solving = _COMPILING
    learners = len({cell.learner for cell in new})
    compiling = first * learners + further * (len(new) - learners) + (solving if new and any(references) else 0.0)
    steps = for_each(cells, attrgetter("total_steps"))
    work = [count * speeds[_class(cell)].of(cell) for cell, count in zip(cells, steps, strict=True)]
    jobs = [*work, *references]
    alone = sum(seconds for cell, seconds in zip(cells, work, strict=True) if cell.device != "cpu")
    seconds = compiling + (max(sum(jobs) / workers, max(jobs), alone) if jobs else 0.0)
    return Estimate(seconds, {"cells": sum(work), "references": sum(references), "compiling": compiling}, len(new))


def speed(cell: Cell) -> Speed:
    """Return the speed of a CPU cell, which is measured if it is not yet known."""
    key = _class(cell)
    if (known := _stored_speed(key) or _measured(key, cell)) is None:
        raise AssertionError("outside `stored_kernels_only`, every cell can be measured")
    return known


def untried(cells: Sequence[Cell]) -> int:
    """Count the classes of CPU cells (equally fast combinations of settings) without a stored speed."""
    return sum(_stored_speed(key) is None for key in {_class(cell) for cell in cells if cell.device == "cpu"})


def _class(cell: Cell) -> str:
    """Return a key that is equal for cells whose steps take equally long on this machine with this code."""
    same: dict[str, Any] = {"noise": 0.0, "root_seed": 0, "first_member": 0, "greedy_every": 0}
    same["episodes"] = int(_slows_down(cell))
    code = this_code()
    about = [dataclasses.asdict(dataclasses.replace(cell, **same)), VERSION, NUMERICS_VERSION, code.commit]
    return hashlib.sha256(json.dumps([*about, code.processor, code.target]).encode()).hexdigest()[:16]


def _measured(key: str, cell: Cell) -> Speed | None:
    """Measure and store the speed of a cell, or return None if kernels are not compiled."""
    try:
        speed = _time_cell(cell)
    except NotCompiledError:
        return None
    store_text(_path(key), json.dumps({"cell": cell.label, **speed._asdict()}) + "\n")
    return speed


def _stored_speed(key: str) -> Speed | None:
    with contextlib.suppress(UserError):
        stored: Any = read_json(_path(key))
        seconds, more = stored.get("seconds_per_step"), stored.get("more_when_full", 0.0)
        if isinstance(seconds, float) and isinstance(more, float) and seconds > 0 and more >= 0:
            return Speed(seconds, more)
    return None


def _path(key: str) -> Path:
    return cache_dir() / "calibration" / f"{key}.json"


def _time_cell(cell: Cell) -> Speed:
    """Measure the speed of a cell in a short run without warm-up.

    If the strategy has parts of a user, whose duration may depend on the number of stored experiences, the measurement
    is repeated with a full buffer.
    """
    # Process time excludes other processes, but counts all threads, so it is used with one thread only.
    clock = time.process_time if thread_count() == 1 else time.perf_counter
    eager = {name: 0 for name in cell.settings if name == "warmup_episodes"}
    steps = max(_STEPS, cell.steps_per_episode, cell.settings["batch_size"] * cell.settings.get("segment", 1))
    episodes = 2 + 2 * steps // cell.steps_per_episode
    short = dataclasses.replace(cell, episodes=episodes, settings={**cell.settings, **eager})
    with contextlib.closing(CellRun(short)) as run:

        def seconds_per_step() -> float:
            learning = run.updates_per_phase / (cell.update_every or cell.steps_per_episode)
            acting = _seconds_per_item(run.act, clock, steps, 2 * steps)
            return (acting + learning * _seconds_per_item(run.learn, clock)) / cell.members

        first, began = seconds_per_step(), time.monotonic()
        if not _slows_down(cell):
            return Speed(first)
        while (run.replay.count < run.replay.slots).any() and time.monotonic() - began < TRIAL_SECONDS:
            run.act(steps)
        return Speed(first, max(0.0, seconds_per_step() - first))


def _slows_down(cell: Cell) -> bool:
    """Return whether the buffers of a cell fill, and a part of the strategy is not of this package."""
    strategy = parse(cell.strategy)
    own = not all(map(is_built_in, strategy.terms))
    return own and strategy.retention.bounded and cell.capacity < cell.steps_per_episode * cell.episodes


def _seconds_per_item(
    do: Callable[[int], int], clock: Callable[[], float], at_least: int = 1, at_most: float = math.inf
) -> float:
    """Measure the processor or wall-clock seconds that one item, such as a step, takes.

    `do(n)` does about n items and returns the exact number. The first item, which loads or compiles kernels, is not
    timed.
    """
    before = do(1)
    seconds, counted, last, due = 0.0, 0, 0.0, 1
    while not counted or (
        (seconds < _ENOUGH or before + counted < at_least)
        and before + counted + due <= at_most
        and seconds + 2 * last < TRIAL_SECONDS / 2
    ):
        began = clock()
        did = do(due)
        last = clock() - began
        seconds, counted, due = seconds + last, counted + did, 2 * due
    return seconds / counted


def _guess(cell: Cell) -> float:
    with contextlib.closing(CellRun(dataclasses.replace(cell, members=1, episodes=1, device="cpu"))) as run:
        weights = sum(array.size for array in run.agent.weights().values())
        samples = run.agent.schedule.batch_size * run.agent.schedule.segment
        updates = run.updates_per_phase / (cell.update_every or cell.steps_per_episode)
    # Per weight: two operations forwards, four backwards and two of targets a sample; some forty of the optimiser.
    equations, per_update = isinstance(cell.make_plant(), OdePlant), weights * (4 * samples + 40)
    if cell.device != "cpu":
        flops, step = _ON_DEVICE
        return step + updates * per_update / flops
    return _STEP[not equations] + updates * per_update / _FLOPS
