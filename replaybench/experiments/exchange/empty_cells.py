"""Empty cells of a log, where samples were lost: their steps are left out, or the cells filled.

States are interpolated linearly, angles the short way round; an action holds until the next. Rewards and ends are not
filled, nor cells before the first or behind the last sample of a column in a stretch of one episode.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from replaybench.data.logs.log import Log
from replaybench.envs.interface.plant import Plant

Missing = Literal["refuse", "drop", "interpolate"]
"""What to do with empty cells."""


def complete_steps(log: Log, plant: Plant, mapping: Mapping[str, str]) -> NDArray[np.bool_]:
    """Return whether a step from each row, bool `[T]`, is complete, with the states in the next row."""
    finite = {name: np.isfinite(log.columns[column]) for name, column in mapping.items()}
    here = np.logical_and.reduce(list(finite.values()))
    seen = np.logical_and.reduce([finite[name] for name in plant.state_names if name in finite])
    whole: NDArray[np.bool_] = here & np.append(seen[1:], False)
    return whole


def interpolated(log: Log, plant: Plant, mapping: Mapping[str, str], pieces: Iterable[slice]) -> Log:
    """Return the log with empty cells of states and actions filled; `pieces` are stretches of rows without a gap."""
    columns, filled, longest = dict(log.columns), 0, 0
    angles = dict(zip(plant.state_names, plant.periodic, strict=True))
    stretches = list(_within_episodes(log, mapping, pieces))
    for name in (name for name in (*plant.state_names, *plant.action_names) if name in mapping):
        if np.isfinite(log.columns[mapping[name]]).all():
            continue
        values = log.columns[mapping[name]].copy()
        at = np.arange(len(values)) if log.time is None else log.time
        for rows in stretches:
            here = values[rows]
            known = np.flatnonzero(np.isfinite(here))
            empty = np.flatnonzero(~np.isfinite(here))
            empty = empty[(empty > known[0]) & (empty < known[-1])] if known.size else empty[:0]
            if not empty.size:
                continue
            if name in angles:
                sound = np.unwrap(here[known]) if angles[name] else here[known]
                here[empty] = np.interp(at[rows][empty], at[rows][known], sound)
            else:
                here[empty] = here[known[np.searchsorted(known, empty) - 1]]
            filled += empty.size
            longest = max(longest, int((known[1:] - known[:-1]).max()) - 1)
        columns[mapping[name]] = values
    if not filled:
        return log
    note = f"{filled} empty cells were filled, {longest} in a row at most"
    return replace(log, columns=columns, notes=(*log.notes, note))


def flagged_ends(log: Log, mapping: Mapping[str, str]) -> NDArray[np.int64]:
    """Return the rows `[ends]` of steps that ended an episode, or may have: a lost flag (NaN) counts."""
    return np.flatnonzero(log.columns[mapping["terminated"]] != 0) if "terminated" in mapping else np.empty(0, np.int64)


def _within_episodes(log: Log, mapping: Mapping[str, str], pieces: Iterable[slice]) -> Iterator[slice]:
    """Cut pieces behind the states in which episodes ended."""
    ends = flagged_ends(log, mapping) + 2
    for piece in pieces:
        cuts = [piece.start, *ends[(ends > piece.start) & (ends < piece.stop)].tolist(), piece.stop]
        yield from (slice(first, last) for first, last in itertools.pairwise(cuts))
