"""How many processes or threads one population may use: a property of the machine, never of a result."""

from __future__ import annotations

import os
from typing import Final

from replaybench.data.errors import UserError

VARIABLE: Final = "REPLAYBENCH_THREADS"


def threads() -> int:
    """Return the number that the environment variable `REPLAYBENCH_THREADS` gives; 1 where it is not set.

    Raises:
        UserError: it is no whole number of 1 or more.
    """
    text = os.environ.get(VARIABLE, "1").strip()
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise UserError(f"{VARIABLE} is {text!r}; give a whole number of 1 or more, or unset it")
    return int(text)
