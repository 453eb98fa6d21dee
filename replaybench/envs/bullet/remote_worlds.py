"""Worlds in worker processes and in this one, which share memory: a step costs a short message each way per worker."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from replaybench.envs.bullet.local_worlds import LocalWorlds, Mask
from replaybench.envs.bullet.model import Floats, Model
from replaybench.envs.bullet.shared_memory import DONE, Request, SharedMemory
from replaybench.envs.interface.threads import VARIABLE


class WorkerWorlds:
    """Worlds in processes with a block of members each, the first of which is this one.

    Workers are started as programs of their own, not forked: Numba's and OpenMP's threads do not survive a fork, and
    a caller's script needs no guard around its main part. This process moves members, too: else it would wait
    for all others, on a core that one of them could use.

    Args:
        model: what each member is made of.
        num_envs: number of members M.
        processes: how many there are to be, at least two.
    """

    def __init__(self, model: Model, num_envs: int, processes: int) -> None:
        self._shared = shared = SharedMemory(model, num_envs)
        self.rows = shared.rows
        self._workers: list[subprocess.Popen[bytes]] = []
        bounds = [number * num_envs // processes for number in range(processes + 1)]
        self._mine, self._firsts = slice(bounds[1]), bounds[1:-1]
        self._close_workers = weakref.finalize(self, _close, self._workers, shared.file)
        for first, last in itertools.pairwise(bounds[1:]):
            self._workers.append(_start(shared.file, num_envs, first, last, model))
        self._here = LocalWorlds(model, shared.rows[self._mine])
        self._wait(self._workers)

    def pace(self, interval: float, substeps: int) -> None:
        """Let a step take `interval` seconds, in equal physics steps."""
        self._shared.pace[:] = interval, substeps
        with self._ordered(Request.PACE, self._workers):
            self._here.pace(interval, substeps)

    def restart(self, chosen: Mask, positions: Floats) -> None:
        """Bring the chosen members to rest, and read them."""
        self._shared.chosen[:], self._shared.positions[:] = chosen, positions
        with self._ordered(Request.RESTART, self._workers):
            self._here.restart(chosen[self._mine], positions[self._mine])

    def step(self, torques: Floats, running: Mask) -> None:
        """Advance the running members, and read them."""
        self._shared.chosen[:], self._shared.torques[:] = running, torques
        with self._ordered(Request.STEP, self._workers):
            self._here.step(torques[self._mine], running[self._mine])

    def picture(self, member: int) -> NDArray[np.uint8]:
        """Return an image uint8 `[480, 480, 3]`."""
        if member < self._firsts[0]:
            return self._here.picture(member)
        self._shared.wanted[0] = member
        holder = [self._workers[int(np.searchsorted(self._firsts, member, side="right")) - 1]]
        with self._ordered(Request.PICTURE, holder):
            pass
        return self._shared.image.copy()

    def close(self) -> None:
        """Free clients and processes; a second call does nothing."""
        self._close_workers()
        self._here.close()

    @contextlib.contextmanager
    def _ordered(self, request: Request, workers: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
        """Let workers carry out an order meanwhile, and wait for them, also after an error here or an interruption.

        An answer that nobody reads would be taken for that to the next order.
        """
        try:
            for worker in workers:
                os.write(_descriptor(worker.stdin), request.value)
        except BrokenPipeError:
            raise _ended() from None
        try:
            yield
        finally:
            self._wait(workers)

    def _wait(self, workers: Sequence[subprocess.Popen[bytes]]) -> None:
        for worker in workers:
            if os.read(_descriptor(worker.stdout), 1) != DONE:
                raise _ended()


def _start(file: int, members: int, first: int, last: int, model: Model) -> subprocess.Popen[bytes]:
    """Start a worker, which finds modules where this process does."""
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "replaybench.envs.bullet.worker_process"]
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
