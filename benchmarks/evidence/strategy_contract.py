"""Every strategy through real training: python benchmarks/evidence/strategy_contract.py [PART OF A NAME …]

Each legal retention × sampling × weighting pair, and a few modifiers of what enters, runs 100 episodes of the pendulum
(J = 1.91e-4 kg m², 50 Hz, 100 updates after each of 200 steps) with a population of two DDPG learners and buffers of
5000, which are full after 25 episodes. Checked on the way:

- live: every sample is what its slot holds, and the numbers that were stored there;
- annotations: what a learner says of a batch changes nothing but what was drawn (once every ten episodes), and nothing
  at all where no strategy heeds it: there nobody annotates, so that the script does;
- resume: a run that is saved to a file after 50 episodes and loaded goes on with identical rewards, and ends with an
  identical buffer, learner and plant.

Without arguments, writes `benchmarks/results/strategy_contract.md`. A pair that breaks a promise ends the script.
"""

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", NUMBA_NUM_THREADS="1")

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from replaybench.data.batch import ReplayBatch
from replaybench.data.record import open_record, write_record
from replaybench.experiments.cell import CellRun
from replaybench.experiments.study import Cell, Study
from replaybench.replay.buffer import Replay
from replaybench.replay.strategies.interface import Context
from replaybench.replay.strategies.notation import RETENTIONS, SAMPLINGS, WEIGHTINGS, parse
from replaybench.runtime.errors import UserError
from replaybench.runtime.provenance import this_code

EPISODES, MEMBERS, CAPACITY, EVERY = 100, 2, 5_000, 10
RESULT = Path(__file__).parents[1] / "results" / "strategy_contract.md"
ENTERING = (
    "Drop(0.5)*FIFO[Uniform]",
    "Drop(0.3)*Resv[PER+IS]",
    "Synth(state=0.1)*FIFO[Uniform]",
    "Synth(action=0.2, refresh=0.1)*FIFO[ERE+PER]",
    "Drop(0.2)*Synth(state=0.1, action=0.1, refresh=0.5)*TDE(1.2)[PER+FIS]",
    "Synth(action=0.2)*Expl(1.2)[AER]",
)


def strategies() -> list[str]:
    """Return every pair that is not refused, and the modifiers of what enters.

    Retentions that go by a learner's traces are left out: these learners keep none.
    """
    found = []
    for retention in (name for name, kind in RETENTIONS.items() if not kind().traces):
        for sampling in SAMPLINGS:
            for weighting in ("", *(f"+{name}" for name in WEIGHTINGS)):
                try:
                    found.append(str(parse(f"{retention}[{sampling}{weighting}]")))
                except UserError:
                    continue
    return [*found, *(str(parse(text)) for text in ENTERING)]


class Watched:
    """Stands between a run and its buffer, and checks what passes."""

    def __init__(self, replay: Replay) -> None:
        self.replay, self.samples, self.annotations = replay, 0, 0
        self.watch = False
        self._sample, self._annotate = replay.sample, replay.annotate
        replay.sample, replay.annotate = self.sample, self.annotate  # type: ignore[method-assign]

    def sample(self, context: Context | None = None, updates: int = 1) -> ReplayBatch:
        """Draw, and compare with what is stored."""
        batch, replay = self._sample(context, updates), self.replay
        members = np.repeat(np.arange(len(replay.count)), updates)[:, None]
        require((batch.idx >= 0).all() and (batch.idx < replay.count[members]).all(), "a slot that holds nothing")
        require((replay.columns.serial[members, batch.idx] == batch.serial).all(), "another occupant")
        for name, column in batch.columns.items():
            stored = replay.columns.column(name)[members, batch.idx]
            require(np.array_equal(stored, column, equal_nan=True), f"other numbers of {name}")
        require(bool(np.isfinite(batch.weight).all() and (batch.weight >= 0).all()), "a weight that is none")
        self.samples += batch.idx.size
        if self.watch and not replay.uses_feedback:
            self._unheeded(batch)
        return batch

    def _unheeded(self, batch: ReplayBatch) -> None:
        """Annotate what no learner does; nothing may change."""
        before = {name: np.array(array) for name, array in self.replay.state_dict().items()}
        self._annotate(batch, {"td_error": 1.0 + np.arange(batch.idx.size, dtype=np.float32).reshape(batch.idx.shape)})
        for name, array in self.replay.state_dict().items():
            require(np.asarray(array).tobytes() == before[name].tobytes(), f"{name} heeds errors that it does not need")
        self.annotations, self.watch = self.annotations + 1, False

    def annotate(self, batch: ReplayBatch, annotations: Mapping[str, Any]) -> None:
        """Annotate; where asked to, compare all that is kept per slot before and after."""
        if not self.watch:
            self._annotate(batch, annotations)
            return
        before = self.per_slot()
        self._annotate(batch, annotations)
        untouched = np.ones(before["serial"].shape, np.bool_)
        np.put_along_axis(untouched, batch.idx, False, axis=1)
        for name, array in self.per_slot().items():
            same = np.array_equal(array[untouched], before[name][untouched], equal_nan=array.dtype.kind == "f")
            require(same, f"{name} of an experience that was not drawn has changed")
        self.annotations, self.watch = self.annotations + 1, False

    def per_slot(self) -> dict[str, np.ndarray]:
        """Return a copy of what is saved of each stored experience."""
        shape = (len(self.replay.count), int(self.replay.count.max()))
        arrays = {name: np.array(array) for name, array in self.replay.state_dict().items()}
        return {name: array for name, array in arrays.items() if array.shape[:2] == shape}


def require(condition: bool, what: str) -> None:
    if not condition:
        raise SystemExit(f"broken promise: {what}")


def advance(run: CellRun, watched: Watched) -> None:
    """Run an episode; every so often its annotations are checked."""
    watched.watch = run.episode % EVERY == EVERY - 1
    run.advance()


def resumed(run: CellRun, cell: Cell) -> CellRun:
    """Return the run as a new process would find it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.h5"
        write_record(path, "checkpoint", {"id": cell.id, "episode": run.episode}, run.state_dict())
        fresh = CellRun(cell)
        with open_record(path, "checkpoint") as record:
            record.verify()
            fresh.load_state_dict(record, record.header.facts["episode"])
    return fresh


def everything(run: CellRun) -> dict[str, np.ndarray]:
    """Return all of a run's arrays, those included that are only computed for files."""
    stored = {f"replay.{name}": array for name, array in run.replay.state_dict().items()}
    return {name: np.asarray(array) for name, array in {**run.state_dict(), **stored}.items()}


def contract(cell: Cell) -> str:
    """Run a cell; return its line of the table."""
    run = CellRun(cell)
    watched = Watched(run.replay)
    while run.episode < EPISODES // 2:
        advance(run, watched)
    again = resumed(run, cell)
    while run.episode < EPISODES:
        advance(run, watched)
    while again.episode < EPISODES:
        again.advance()
    require(watched.annotations == EPISODES // EVERY, f"{watched.annotations} annotations were checked")
    first, second = everything(run), everything(again)
    require(sorted(first) == sorted(second), "other arrays after resuming")
    for name, array in first.items():
        require(array.tobytes() == second[name].tobytes(), f"{name} differs after resuming")
    final = run.reward[:, -20:].mean(axis=1)
    stored = int(run.replay.count.max())
    return (
        f"| `{cell.strategy}` | {final.mean():.1f} ({final.min():.1f} … {final.max():.1f}) | {stored:,} "
        f"| {watched.samples:,} live | {watched.annotations} right | bit for bit |"
    )


def main(parts: list[str]) -> None:
    torch.set_num_threads(1)
    chosen = [text for text in strategies() if not parts or any(part in text for part in parts)]
    study = Study(
        name="strategy contract",
        plants=("PendulumDCSC",),
        strategies=tuple(chosen),
        seeds=MEMBERS,
        episodes=EPISODES,
        capacity=CAPACITY,
    )
    code = this_code()
    lines = [
        f"# Every strategy through {EPISODES} real episodes",
        "",
        f"`python benchmarks/evidence/strategy_contract.py`: {MEMBERS} DDPG learners on PendulumDCSC, buffers of "
        f"{CAPACITY:,}.",
        "Reward: mean per step of the last 20 training episodes with exploration; mean (worst … best).",
        f"After {EPISODES} episodes most learners still learn: the table shows that each pair works, not how well.",
        f"Made at commit {(code.commit or 'unknown')[:7]}{', changed' * bool(code.dirty)}.",
        "",
        "| strategy | reward | stored | samples | annotations | resumed halfway |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    print("\n".join(lines))
    for cell in study.cells():
        lines.append(contract(cell))
        print(lines[-1], flush=True)
    if not parts:
        RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
