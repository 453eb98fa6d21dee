"""The number of threads that step the members of one population."""

from __future__ import annotations

import os
from typing import Final

from replaybench.data.errors import UserError

VARIABLE: Final = "REPLAYBENCH_THREADS"


def thread_count() -> int:
    """Return the threads of a simulator's engine, from `REPLAYBENCH_THREADS`; 1 if it is not set.

    They change no number. Sweeps keep every core busy anyway; threads serve a single population.

    Raises:
        UserError: it is not a whole number of 1 or more.
    """
    text = os.environ.get(VARIABLE, "1").strip()
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise UserError(f"{VARIABLE} is {text!r}; give a whole number of 1 or more, or unset it")
    return int(text)
