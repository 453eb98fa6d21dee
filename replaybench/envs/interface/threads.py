"""How many threads or processes may step the members of one population: the one place that reads it."""

from __future__ import annotations

import os
from typing import Final

from replaybench.data.errors import UserError

VARIABLE: Final = "REPLAYBENCH_THREADS"


def thread_count() -> int:
    """Return how many a simulator's engine may use, from `REPLAYBENCH_THREADS`; 1 where it is not set.

    It changes no number, only the time it takes, so it is no part of a study. Sweeps already keep every core busy with
    a worker of its own; more threads serve a single population on a machine that is otherwise idle.

    Raises:
        UserError: it is no whole number of 1 or more.
    """
    text = os.environ.get(VARIABLE, "1").strip()
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise UserError(f"{VARIABLE} is {text!r}; give a whole number of 1 or more, or unset it")
    return int(text)
