"""A worker process: the worlds of a block of members, moved on order until the pipe that orders come through closes.

Started as `python -m replaybench.envs.bullet.worker_process FILE MEMBERS FIRST LAST MODEL`. It ends with the process
that started it, however that ends: the pipe closes then.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from replaybench.envs.bullet.local_worlds import LocalWorlds
from replaybench.envs.bullet.model import Model
from replaybench.envs.bullet.shared_memory import DONE, Request, SharedMemory


def serve(shared: SharedMemory, worlds: LocalWorlds, first: int, last: int, orders: int, answers: int) -> None:
    """Carry out orders, which are read from one descriptor and acknowledged on another, until there are no more."""
    mine = slice(first, last)
    while letter := os.read(orders, 1):
        request = Request(letter)
        if request is Request.STEP:
            worlds.step(shared.torques[mine], shared.chosen[mine])
        elif request is Request.RESTART:
            worlds.restart(shared.chosen[mine], shared.positions[mine])
        elif request is Request.PACE:
            worlds.pace(float(shared.pace[0]), int(shared.pace[1]))
        elif request is Request.PICTURE:
            shared.image[:] = worlds.picture(int(shared.wanted[0]) - first)
        os.write(answers, DONE)


def main(arguments: Sequence[str]) -> None:
    """Serve until the end of orders."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that orders decides what an interruption means
    file, members, first, last = map(int, arguments[:4])
    model = Model.from_text(arguments[4])
    orders, answers = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # what a library prints is no answer
    shared = SharedMemory(model, members, file)
    worlds = LocalWorlds(model, shared.rows[first:last])
    os.write(answers, DONE)
    serve(shared, worlds, first, last, orders, answers)


if __name__ == "__main__":
    main(sys.argv[1:])
