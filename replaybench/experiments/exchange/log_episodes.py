"""Logs that number their episodes in a column: time may begin anew with each."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from replaybench.data.logs.log import Log

_APART: Final = 10.0
"""Sample periods between one episode and the next, far more than make a gap."""


def set_apart(log: Log, column: str | None, frequency: float | None) -> Log:
    """Return a log with a gap in time wherever `column` changes, as if it had been recorded so.

    Args:
        log: the recording.
        column: what numbers its episodes; None where nothing does.
        frequency: the stated sampling frequency [Hz], which makes times where there are none.

    Raises:
        UserError: the column is not a number everywhere.
    """
    if column is None or (log.time is None and frequency is None):
        return log
    number = log.column(column)
    begins = np.append(True, np.diff(number) != 0)
    time = np.arange(len(number)) / (frequency or 1.0) if log.time is None else log.time
    steps = np.diff(time)
    within = steps[~begins[1:] & (steps > 0)]
    steps[begins[1:]] = _APART * (float(np.median(within)) if within.size else 1.0)
    return replace(log, time=time[0] + np.append(0.0, steps.cumsum()))
