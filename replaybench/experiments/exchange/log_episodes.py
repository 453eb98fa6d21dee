"""Episodes in a log: time may begin anew with each, and no step leads from one into the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from replaybench.data.logs.log import Log
from replaybench.experiments.exchange.columns import EPISODE, TRUNCATED

_APART: Final = 10.0
"""Sample periods to put between episodes, more than make a gap."""


def set_apart(log: Log, mapping: Mapping[str, str], frequency: float | None, lenient: bool) -> Log:
    """Return a log with a gap in time wherever another episode begins.

    That is where time goes back, where the column `episode` changes, and behind a row that is `truncated`.

    Args:
        mapping: the log's column for each name.
        frequency: the stated sampling frequency [Hz], for logs without times.
        lenient: leave out rows without an episode, and cut where a flag is lost, instead of refusing them.

    Raises:
        UserError: an episode or a flag is not a number.
    """
    if log.time is None and (frequency is None or not {EPISODE, TRUNCATED} & mapping.keys()):
        return log
    time = np.arange(log.rows) / (frequency or 1.0) if log.time is None else log.time
    if EPISODE in mapping and lenient:
        numbered = np.isfinite(log.columns[mapping[EPISODE]])
        log, time = log.only(numbered, "belong to no episode"), time[numbered]
    steps = np.diff(time)
    begins = steps < 0
    if begins.any():
        row = int(begins.argmax()) + 1
        log = replace(log, notes=(*log.notes, f"time goes back {begins.sum()} times, first at {log.where(row)}: cut"))
    if EPISODE in mapping:
        begins |= np.diff(log.column(mapping[EPISODE])) != 0
    if TRUNCATED in mapping:
        flags = log.columns[mapping[TRUNCATED]] if lenient else log.column(mapping[TRUNCATED])
        begins |= flags[:-1] != 0  # or not known
    within = steps[~begins & (steps > 0)]
    steps[begins] = _APART * (float(np.median(within)) if within.size else 1.0)
    return replace(log, time=time[0] + np.append(0.0, steps.cumsum()) if begins.any() else time)
