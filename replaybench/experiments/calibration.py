"""Estimate how long a study takes on this machine: cells, references, and compilation.

Each class of cells is tried for some seconds, and its speed is stored. Time is proportional to episodes, so cells that
differ in length, noise or seeds are of one class.
"""

from __future__ import annotations

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
from replaybench.data.documents import read_json
from replaybench.envs.interface.engine import thread_count
from replaybench.envs.ode.plant import OdePlant
from replaybench.experiments.cell import CellRun
from replaybench.experiments.plan import for_each
from replaybench.experiments.study import Cell, reference_cells
from replaybench.runtime.atomic import store_text
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import NotCompiledError, cache_dir, stored_kernels_only
from replaybench.runtime.provenance import this_code
from replaybench.runtime.quantities import duration
from replaybench.runtime.version import NUMERICS_VERSION, VERSION

TRIAL_SECONDS: Final = 5.0
"""Longest trial of a class of cells, apart from a single step, update or episode that takes longer."""
_ENOUGH: Final = 0.5
"""Seconds after which the speed of a part of a run is known."""
_STEPS: Final = 200
"""Least number of timed steps of a member, so that short episodes do not dominate."""
_COMPILING: Final = 25.0, 5.0, 10.0
"""Processor seconds of compilation: of a learner, of any further class of cells, and of references."""
_FLOPS: Final = 2e10
"""Assumed floating-point operations a second of a core in updates of small networks."""
_STEP: Final = 2e-6, 1e-4
"""Assumed seconds of a step of one member: of plants given by equations, and of others."""
_ON_DEVICE: Final = 5e12, 1e-8
"""The same two on a GPU, as one H200 had them with 1,024 members; cells on a device are not tried."""


class Estimate(NamedTuple):
    """Duration of a study [s].

    Attributes:
        seconds: from begin to end.
        parts: processor seconds of cells, references and compilation, by name.
        guessed: classes of cells that were not tried; their time is a guess from the size of their networks.
    """

    seconds: float
    parts: dict[str, float]
    guessed: int

    def in_words(self) -> str:
        """Return the durations of cells, references and compilation as text, with a note if some are guesses."""
        text = ", ".join(f"{name} {duration(seconds)}" for name, seconds in self.parts.items() if seconds >= 0.05)
        if self.guessed:
            kinds = f"{self.guessed} kind{'s' * (self.guessed != 1)} of cells"
            text += f"; a guess for {kinds} whose speed was not measured, or whose kernels are not compiled here yet"
        return f"in processor time: {text}" if text else "all is there"


def estimate(
    cells: Sequence[Cell],
    everyone: Sequence[Cell],
    rule: Rule | None,
    workers: int,
    measure: bool = True,
    compiles: bool = False,
    progress: Callable[[int, int], object] = lambda done, due: None,
) -> Estimate:
    """Estimate the duration of cells and of the references of `everyone`.

    If `measure`, classes of cells without a stored speed are tried, except those with missing kernels, unless it
    `compiles` these, too. `progress` is called with the number of classes tried so far, and of all.
    """
    classes = {_class(cell): cell for cell in cells}
    tried: dict[str, float | None] = {}
    with contextlib.nullcontext() if compiles else stored_kernels_only():
        for done, (key, cell) in enumerate(classes.items()):
            progress(done, len(classes))
            tried[key] = _kept(key) or (_measured(key, cell) if measure and cell.device == "cpu" else None)
    new = [cell for key, cell in classes.items() if tried[key] is None]
    per_step = {key: tried[key] or _guess(cell) for key, cell in classes.items()}
    references = []
    for (_, _, noise), cell in reference_cells(everyone).items() if cells else ():
        plant = cell.make_plant()
        known = kept_at(plant, cell.frequency, noise, rule).is_file()
        references.append(
            0.0
            if known
            else reference_seconds(plant, cell.frequency, noise, rule, _STEP[not isinstance(plant, OdePlant)])
        )
    first, further, solving = _COMPILING
    learners = len({cell.learner for cell in new})
    compiling = first * learners + further * (len(new) - learners) + (solving if new and any(references) else 0.0)
    steps = for_each(cells, attrgetter("total_steps"))
    work = [count * per_step[_class(cell)] for cell, count in zip(cells, steps, strict=True)]
    jobs = [*work, *references]
    alone = sum(seconds for cell, seconds in zip(cells, work, strict=True) if cell.device != "cpu")
    seconds = compiling + (max(sum(jobs) / workers, max(jobs), alone) if jobs else 0.0)
    return Estimate(seconds, {"cells": sum(work), "references": sum(references), "compiling": compiling}, len(new))


def untried(cells: Sequence[Cell]) -> int:
    """Return how many classes of cells were not tried here before, and can be."""
    return sum(_kept(key) is None for key in {_class(cell) for cell in cells if cell.device == "cpu"})


def _class(cell: Cell) -> str:
    """Return a key of cells whose steps cost the same on this machine, with this version."""
    same: dict[str, Any] = {"noise": 0.0, "root_seed": 0, "first_member": 0, "episodes": 0, "greedy_every": 0}
    code = this_code()
    about = [dataclasses.asdict(dataclasses.replace(cell, **same)), VERSION, NUMERICS_VERSION, code.commit]
    return hashlib.sha256(json.dumps([*about, code.processor, code.target]).encode()).hexdigest()[:16]


def _measured(key: str, cell: Cell) -> float | None:
    """Measure and store the time of a step of one member, updates included; None if that would compile something."""
    try:
        found = _tried(cell)
    except NotCompiledError:
        return None
    store_text(_path(key), json.dumps({"cell": cell.label, "seconds_per_step": found}) + "\n")
    return found


def _kept(key: str) -> float | None:
    with contextlib.suppress(UserError):
        kept: Any = read_json(_path(key)).get("seconds_per_step")
        if isinstance(kept, float) and kept > 0:
            return kept
    return None


def _path(key: str) -> Path:
    return cache_dir() / "calibration" / f"{key}.json"


def _tried(cell: Cell) -> float:
    """Time the steps and some updates of the beginning of a cell; learners learn at once."""
    # Process time excludes other processes, but counts all threads, so it is used with one thread only.
    clock = time.process_time if thread_count() == 1 else time.perf_counter
    eager = {name: 0 for name in cell.settings if name == "warmup_episodes"}
    steps = max(_STEPS, cell.steps_per_episode, cell.settings["batch_size"] * cell.settings.get("segment", 1))
    episodes = 2 + 2 * steps // cell.steps_per_episode
    short = dataclasses.replace(cell, episodes=episodes, settings={**cell.settings, **eager})
    with contextlib.closing(CellRun(short)) as run:
        acting = _seconds_each(run.act, clock, steps, 2 * steps)
        learning = _seconds_each(run.learn, clock)
        learning *= run.updates_per_phase / (cell.update_every or cell.steps_per_episode)
    return (acting + learning) / cell.members


def _seconds_each(
    do: Callable[[int], int], clock: Callable[[], float], at_least: int = 1, at_most: float = math.inf
) -> float:
    """Return the time of one item of `do`, which does a number of items and returns how many it did.

    The first item, which loads or compiles kernels, is not timed; `at_least` items are done if there is time.
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
        samples = run.agent.batch_size * run.agent.segment
        updates = run.updates_per_phase / (cell.update_every or cell.steps_per_episode)
    # Per weight and sample: two operations forwards, four backwards, two of targets; some forty for the step.
    equations, per_update = isinstance(cell.make_plant(), OdePlant), weights * (4 * samples + 40)
    if cell.device != "cpu":
        flops, step = _ON_DEVICE
        return step + updates * per_update / flops
    return _STEP[not equations] + updates * per_update / _FLOPS
