"""Worlds in worker processes, which share memory with this one: a step costs one short message each way per worker."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import weakref
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from replaybench.envs.bullet_board import DONE, PACE, PICTURE, RESTART, STEP, Board
from replaybench.envs.bullet_model import Floats, Model
from replaybench.envs.bullet_worlds import Mask
from replaybench.envs.threads import VARIABLE


class WorkerWorlds:
    """Worlds in worker processes, each with a block of members.

    Workers are started as programs of their own, not forked: Numba's and OpenMP's threads do not survive a fork, and
    a caller's script needs no guard around its main part.

    Args:
        model: what each member is made of.
        num_envs: number of members M.
        workers: number of processes.
    """

    def __init__(self, model: Model, num_envs: int, workers: int) -> None:
        self._board = Board(model, num_envs)
        self.rows = self._board.rows
        self._workers: list[subprocess.Popen[bytes]] = []
        self.close = weakref.finalize(self, _close, self._workers, self._board.file)
        bounds = [number * num_envs // workers for number in range(workers + 1)]
        self._firsts = bounds[:-1]
        for first, last in itertools.pairwise(bounds):
            self._workers.append(_start(self._board.file, num_envs, first, last, model))
        self._wait(self._workers)

    def pace(self, interval: float, substeps: int) -> None:
        """Let a step take `interval` seconds, in equal physics steps."""
        self._board.pace[:] = interval, substeps
        self._order(PACE, self._workers)

    def restart(self, chosen: Mask, positions: Floats) -> None:
        """Bring the chosen members to rest, and read them."""
        self._board.chosen[:], self._board.positions[:] = chosen, positions
        self._order(RESTART, self._workers)

    def step(self, torques: Floats, running: Mask) -> None:
        """Advance the running members, and read them."""
        self._board.chosen[:], self._board.torques[:] = running, torques
        self._order(STEP, self._workers)

    def picture(self, member: int) -> NDArray[np.uint8]:
        """Return an image uint8 `[480, 480, 3]`."""
        self._board.wanted[0] = member
        holder = int(np.searchsorted(self._firsts, member, side="right")) - 1
        self._order(PICTURE, [self._workers[holder]])
        return self._board.image.copy()

    def _order(self, order: bytes, workers: Sequence[subprocess.Popen[bytes]]) -> None:
        try:
            for worker in workers:
                os.write(_descriptor(worker.stdin), order)
        except BrokenPipeError:
            raise _ended() from None
        self._wait(workers)

    def _wait(self, workers: Sequence[subprocess.Popen[bytes]]) -> None:
        for worker in workers:
            if os.read(_descriptor(worker.stdout), 1) != DONE:
                raise _ended()


def _start(file: int, members: int, first: int, last: int, model: Model) -> subprocess.Popen[bytes]:
    """Start a worker, which finds modules where this process does."""
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "replaybench.envs.bullet_worker"]
        + [str(number) for number in (file, members, first, last)]
        + [model.to_text()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=(file,),
        env={**os.environ, "PYTHONPATH": paths, VARIABLE: "1"},
    )


def _descriptor(pipe: object) -> int:
    number: int = pipe.fileno()  # type: ignore[attr-defined]
    return number


def _ended() -> RuntimeError:
    return RuntimeError("a worker process of a PyBullet population has ended; its error stream says why")


def _close(workers: list[subprocess.Popen[bytes]], file: int) -> None:
    """End the workers by closing their pipes; one that does not listen is killed."""
    for worker in workers:
        for pipe in (worker.stdin, worker.stdout):
            if pipe is not None:
                pipe.close()
    while workers:
        worker = workers.pop()
        try:
            worker.wait(5.0)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
    os.close(file)
