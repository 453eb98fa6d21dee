"""Functions that find the signals, the control rate, the episodes and the empty cells in the columns of a log.

If empty cells are to be filled, states are interpolated linearly, and angles along the shorter arc. An empty cell of an
action gets the action of the previous row. Empty cells of rewards and termination flags are not filled. In each
episode, cells of a column before its first or after its last number are not filled either.
"""

import contextlib
import difflib
import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

import numpy as np

from replaybench.data.logs.log import GAP, ROUNDING, Log, round_rate, sampling_rate, time_column
from replaybench.data.logs.table import agrees, split_title
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import OdePlant
from replaybench.runtime.arrays import Bools, Floats, Integers
from replaybench.runtime.configuration import HERTZ, STEPS
from replaybench.runtime.errors import Problems, UserError, unknown

OPTIONAL: Final = ("reward", "terminated")
EPISODE: Final = "episode"
"""Name of the column whose number changes where an episode begins."""
TRUNCATED: Final = "truncated"
"""Name of the column that is nonzero in the last row of a truncated episode."""
_COUNTS: Final = re.compile(
    r"(episode|ep|run|trial|rollout|trajectory|traj)s?(ids?|index|idx|indices|numbers?|num|no|nr|count|counter)?"
)
"""Names, without case and spaces, of columns whose number changes where an episode begins."""
_LASTS: Final = re.compile(
    r"(is)?(done|terminal|timeout|truncated|truncation|termination|finished)s?|is(last|end|terminated|timedout)"
    r"|(episode|ep|run|trial)s?(end|ends|ended|done|over)|endof(episode|run|trial)"
)
"""Names of columns that are nonzero in the last row of an episode."""
_FIRSTS: Final = re.compile(
    r"isfirst|isreset|resets?|(episode|ep|run|trial)s?(start|starts|begin)|startof(episode|run|trial)"
)
"""Names of columns that are nonzero in the first row of an episode."""
_FEW_CHANGES: Final = 0.5
"""Largest share of rows at which a number of episodes changes. A number that changes more often counts steps."""
_LISTED: Final = 5
"""Largest number of columns that a note lists."""


def parse_columns(tokens: Iterable[str]) -> dict[str, str]:
    """Parse tokens such as `angle=theta`, and return the log column of each signal by the name of the signal."""
    mapping = {}
    for token in tokens:
        name, equals, column = token.partition("=")
        if not (name and equals and column):
            raise UserError(f"--columns takes NAME=COLUMN, as in angle=theta, not {token!r}")
        if name in mapping:
            raise UserError(f"--columns gives {name!r} twice")
        mapping[name] = column
    return mapping


def reserved_names(plant: Plant, columns: Mapping[str, str]) -> set[str]:
    """Return the signals of the plant and the columns that the user assigned, which cannot contain sample times."""
    return {*plant.state_names, *plant.action_names, *columns.values()}


def match_columns(log: Log, plant: Plant, columns: Mapping[str, str], problems: Problems) -> dict[str, str]:
    """Return the log column of every state and action of a plant, and of the reward and the episode flags.

    `columns` has the assignments of the user, which are columns by the names of signals. Other columns are found by
    their titles. Signals without a usable column are left out and reported in `problems`.
    """
    signals = (*plant.state_names, *plant.action_names)
    units = dict(zip(signals, (*plant.state_units, *plant.action_units), strict=True))
    if len(units) < len(signals):
        twice = next(name for name in signals if signals.count(name) > 1)
        raise UserError(f"{plant.name} has two signals called {twice!r}, so that a log's columns cannot be assigned")
    folded = {_fold(name) for name in units}
    names = (*units, *(name for name in (*OPTIONAL, EPISODE, TRUNCATED) if _fold(name) not in folded))
    titles = (*log.columns, *log.unusable)
    stated = _stated(columns, names, titles, problems)
    mapping = dict[str, str]()
    absent = list[str]()
    for name in (name for name in names if stated.get(name) != ""):
        with problems.collected():
            column = stated.get(name) or _column_of(log, name, units.get(name), titles)
            if column is None:
                absent += [name] if name in units else []
                continue
            if column in log.unusable:
                log.column(column)  # raises the reason
            named = _fold(column) == _fold(name)
            if name in units and (other := log.other_unit(column, units[name], named)):
                other += f", {plant.name} has {name} in {units[name]}"
                raise UserError(f"column {column!r} {other}; give it in {units[name]}, or mend the unit if it is")
            mapping[name] = column
    if not isinstance(plant, OdePlant) and "reward" not in mapping:
        problems.append(
            f"{plant.name} has no equations here to compute rewards with; name the log's with --columns reward=COLUMN"
        )
    for column in {*mapping.values()}:
        if len(shared := [name for name in mapping if mapping[name] == column]) > 1:
            problems.append(
                f"column {column!r} is taken for {' and for '.join(shared)}; say with --columns which is which"
            )
    if log.time_from in mapping.values():
        problems.append(f"column {log.time_from!r} is taken for time and for a signal; name another with --time")
    if absent:
        free = [column for column in titles if column not in (*mapping.values(), log.time_from)]
        proposed: dict[str, str | None] = {}
        for name in absent:  # the nearest title, else the only one of the same unit
            of_unit = [column for column in free if agrees(log.unit(column), units[name])]
            proposed[name] = nearest(name, free) or (of_unit[0] if len(of_unit) == 1 else None)
        tokens = " ".join(f"'{name}={column or 'COLUMN'}'" for name, column in proposed.items())
        problems.append(
            f"no column is called {' or '.join(map(repr, absent))}, which {plant.name} needs; name "
            f"{'it' if len(absent) == 1 else 'them'} with --columns {tokens} (the log has: {', '.join(titles)})"
        )
        mapping |= {name: column for name, column in proposed.items() if column and column in log.columns}
    return mapping


def _stated(
    columns: Mapping[str, str], names: Sequence[str], titles: Sequence[str], problems: Problems
) -> dict[str, str]:
    """Return the column that the user assigned to each signal, spelled as in the log, or "" for a missing column."""
    by_fold = {_fold(name): name for name in names}
    stated = dict[str, str]()
    for name, column in columns.items():
        with problems.collected():
            if _fold(name) not in by_fold:
                raise unknown("state or action", name, names)
            if by_fold[_fold(name)] in stated:
                raise UserError(f"--columns names {by_fold[_fold(name)]} twice; say which column it is once")
            stated[by_fold[_fold(name)]] = ""  # so that a wrong column is only one problem
            if column not in titles:
                same = [title for title in titles if _fold(title) == _fold(column)]
                if len(same) != 1:
                    raise unknown("column", column, titles)
                column = same[0]
            stated[by_fold[_fold(name)]] = column
    return stated


def _column_of(log: Log, name: str, unit: str | None, titles: Sequence[str]) -> str | None:
    """Return the column whose title matches a name, also with a unit, and raise `UserError` if several match."""
    found = [title for title in titles if _fold(title) == _fold(name)]
    if not found and unit is not None:
        bare = [title for title in titles if _fold(split_title(title)[0]) == _fold(name)]
        found = [title for title in bare if agrees(log.unit(title), unit)]
        found = found or [title for title in bare if log.other_unit(title, unit)]
    if len(found) > 1 and name not in found:
        raise UserError(
            f"the columns {' and '.join(map(repr, found))} may each be {name}; "
            f"choose one with --columns '{name}={found[0]}'"
        )
    return name if name in found else next(iter(found), None)


def _fold(name: str) -> str:
    return name.casefold().translate({ord(mark): None for mark in " _-"})


def nearest(name: str, columns: Iterable[str]) -> str | None:
    """Return the column whose title, without the unit, is most similar to a name, or None if no title is similar."""
    bare = {_fold(split_title(column)[0]): column for column in columns}
    return next((bare[match] for match in difflib.get_close_matches(_fold(name), bare, n=1)), None)


RATE_TOLERANCE: Final = 0.01
"""Largest relative difference between the control rate that the user states and that of the time column."""
_TOO_SLOW: Final = 0.01
"""Fraction of the plant's default rate below which a measured rate indicates a wrong unit of time."""
_UNITS: Final = {"ms": 1e3, "µs": 1e6, "ns": 1e9}
_LONG_UNITS: Final = {"min": 1 / 60, "h": 1 / 3600, "d": 1 / 86400}
"""Number of units of time per second, by the unit's symbol."""


def control_rate(log: Log, plant: Plant, stated: float | None) -> float:
    """Return the control rate of a log of at least two rows, in Hz.

    Without a `stated` rate, the roundest number that fits the sample times is chosen. `UserError` is raised if the rate
    contradicts the sample times or is not supported by the plant.
    """
    if stated is not None:
        HERTZ.check(stated, "--frequency")
    if log.time is None:
        if stated is None:
            raise _no_rate(log)
        plant.steps_per_episode(stated)
        return stated
    measured = sampling_rate(log.time)
    possible = _possible(plant, measured)
    if stated is None:
        _refuse_wrong_unit(plant, measured, possible)
    elif abs(measured / stated - 1) > RATE_TOLERANCE:
        units = _fitting(measured, stated, {**_UNITS, **_LONG_UNITS})
        remedy = (
            f"give time in s, not {units[0]}" if units else f"use --frequency {possible or round_rate(measured):.12g}"
        )
        raise UserError(f"the time column is sampled at {measured:.5g} Hz, not at {stated:g} Hz: {remedy}")
    rate = stated or (possible if possible and abs(possible / measured - 1) <= ROUNDING else round_rate(measured))
    try:
        plant.steps_per_episode(rate)
    except UserError as error:
        remedy = f"--frequency {possible:.12g} fits the log" if possible else "resample the log"
        raise UserError(f"{error} ({remedy})") from error
    return rate


def _refuse_wrong_unit(plant: Plant, measured: float, possible: float | None) -> None:
    units = _fitting(measured, plant.frequency, _LONG_UNITS)
    if measured < _TOO_SLOW * plant.frequency:
        units = [min(_UNITS, key=lambda unit: abs(math.log(measured * _UNITS[unit] / plant.frequency)))]
    if units:
        otherwise = f", or --frequency {possible:.12g} if it is in s" if possible else ""
        raise UserError(
            f"the log is sampled at {measured:.5g} Hz, {plant.name} at {plant.frequency:g} Hz: "
            f"give time in s, not {units[0]}{otherwise}"
        )


def _fitting(measured: float, wanted: float, units: Mapping[str, float]) -> list[str]:
    return [unit for unit, factor in units.items() if abs(measured * factor / wanted - 1) <= RATE_TOLERANCE]


def _possible(plant: Plant, measured: float) -> float | None:
    """Return a rate in Hz near the measured one that the plant supports, or None if there is none."""
    exact = measured * plant.episode_seconds
    if exact > STEPS.high:
        return None
    counts = range(math.ceil(exact * (1 - RATE_TOLERANCE)), math.floor(exact * (1 + RATE_TOLERANCE)) + 1)
    near = sorted((count / plant.episode_seconds for count in counts), key=lambda rate: abs(rate - measured))
    for rate in (round_rate(measured), *near):
        with contextlib.suppress(UserError):
            plant.steps_per_episode(rate)
            return rate
    return None


def _no_rate(log: Log) -> UserError:
    named = log.time_from or time_column(log.unusable)
    if named and named in log.unusable:
        return UserError(f"column {named!r} cannot be used: {log.unusable[named]}; mend it, or give --frequency")
    near = nearest("time", (*log.columns, *log.unusable))
    how = f"--time {near!r}, if that is in s" if near else "--time"
    return UserError(f"no column is called time; name it with {how}, or give --frequency")


_EPISODE_GAP: Final = 10.0
"""Number of sample periods to insert between episodes. More than `GAP` periods separate episodes."""


def separate_episodes(
    log: Log,
    mapping: Mapping[str, str],
    frequency: float | None,
    allow_missing: bool,
    stated: Iterable[str] = (),
    problems: Problems | None = None,
) -> Log:
    """Return the log with a gap in time wherever an episode begins.

    An episode begins where time decreases, where the column `episode` changes, after a row whose `truncated` flag is
    set, and at the first row of a block. Columns with usual names for such numbers and flags are used, too, unless
    `stated` has `episode` or `truncated`. A note lists other columns that look like numbers or flags of episodes.
    Another note gives the number of gaps between rows of one episode.

    Args:
        log: The log.
        mapping: Log column of each signal and flag, by its name.
        frequency: Control rate in Hz, which is used if the log has no sample times.
        allow_missing: Whether empty cells are allowed. If they are, rows without an episode number are left out, and an
            empty `truncated` cell ends an episode. Otherwise, such rows and cells raise `UserError`.
        stated: Names of the signals and flags whose column the user assigned.
        problems: List of problems, to which unusable columns of episodes are added.
    """
    free = [name for name in log.columns if name not in (*mapping.values(), log.time_from)]
    usual = not {EPISODE, TRUNCATED} & {_fold(name) for name in stated}
    marks = [name for name in free if usual and _marks(name, log.columns[name])]
    if usual and problems is not None:
        for name in log.unusable:
            if name not in mapping.values() and _COUNTS.fullmatch(_fold(name)):
                problems.append(
                    f"column {name!r} seems to number the episodes, but {log.unusable[name]}; number the episodes, or "
                    "rename the column if it does not"
                )
    if other := [name for name in free if name not in marks and _looks_like_mark(log.columns[name])]:
        listed = ", ".join(map(repr, other[:_LISTED])) + (" …" if len(other) > _LISTED else "")
        note = f"unused columns that look like flags or counters: {listed}; if one marks episodes, name it with "
        note += "--columns truncated=COLUMN (set in an episode's last row) or episode=COLUMN (another in each episode)"
        log = replace(log, notes=(*log.notes, note))
    given = bool(marks) or log.blocks is not None or bool({EPISODE, TRUNCATED} & mapping.keys())
    if log.time is None and (frequency is None or not given):
        return log
    time = np.arange(log.rows) / (frequency or 1.0) if log.time is None else log.time
    if EPISODE in mapping and allow_missing:
        numbered = np.isfinite(log.columns[mapping[EPISODE]])
        log, time = log.only(numbered, "belong to no episode"), time[numbered]
    steps = np.diff(time)
    begins = steps < 0
    if begins.any():
        row = int(begins.argmax()) + 1
        log = replace(log, notes=(*log.notes, f"time goes back {begins.sum()} times, first at {log.where(row)}: cut"))
    if EPISODE in mapping:
        begins |= _changes(log.column(mapping[EPISODE]))
    if TRUNCATED in mapping:
        flags = log.columns[mapping[TRUNCATED]] if allow_missing else log.column(mapping[TRUNCATED])
        begins |= flags[:-1] != 0  # true also for an empty cell
    for name in marks:
        found = _marks(name, log.columns[name])
        assert found is not None
        begins |= found(log.columns[name])
        cuts, where = int(found(log.columns[name]).sum()), "changes" if found is _changes else "is set"
        log = replace(log, notes=(*log.notes, f"column {name!r} marks episodes: it {where} {cuts} times: cut"))
    if log.blocks is not None and (parted := np.diff(log.blocks) != 0).any():
        begins |= parted
        row = int(parted.argmax()) + 1
        parts = f"empty lines or repeated titles part the rows {parted.sum()} times, first above {log.where(row)}: cut"
        log = replace(log, notes=(*log.notes, parts))
    within = steps[~begins & (steps > 0)]
    period = float(np.median(within)) if within.size else 1.0
    gaps = ~begins & (steps > GAP * period)
    if gaps.any():
        row = int(gaps.argmax()) + 1
        note = f"gaps in time (missing rows) split the log {gaps.sum()} times, first at {log.where(row)}: cut"
        log = replace(log, notes=(*log.notes, note))
    steps[begins] = _EPISODE_GAP * period
    return replace(log, time=time[0] + np.append(0.0, steps.cumsum()) if begins.any() else time)


def _changes(number: Floats) -> Bools:
    """Return whether an episode begins after each row but the last, for a number of the episode or of the step.

    A number that changes at most rows counts steps, and episodes begin where it decreases.
    """
    steps = np.diff(number)
    changes: Bools = steps != 0
    return changes if changes.mean() <= _FEW_CHANGES else steps < 0


def _after(flags: Floats) -> Bools:
    begins: Bools = flags[:-1] != 0
    return begins


def _before(flags: Floats) -> Bools:
    begins: Bools = flags[1:] != 0
    return begins


def _marks(name: str, column: Floats) -> Callable[[Floats], Bools] | None:
    """Return the function that finds where episodes begin, for a column of an episode's number or flag by its name."""
    folded = _fold(name.rpartition(".")[2])
    if _COUNTS.fullmatch(folded):
        return _changes if bool(_changes(column).any()) else None
    for pattern, found in ((_LASTS, _after), (_FIRSTS, _before)):
        if pattern.fullmatch(folded) and len(np.unique(column)) <= 2 and found(column).mean() <= _FEW_CHANGES:
            return found
    return None


def _looks_like_mark(column: Floats) -> bool:
    """Return whether a column looks like flags, or like a number of the episode or of its step."""
    steps = np.diff(column)
    if not steps.any() or not np.isfinite(column).all() or (column != np.round(column)).any():
        return False
    flags = set(np.unique(column)[:3].tolist()) <= {0.0, 1.0}
    counts = (np.isin(steps, (0, 1)) | (column[1:] <= 1)).all() and (steps <= 0).any()
    return flags or bool(counts)


Missing = Literal["refuse", "drop", "interpolate"]
"""How to treat empty cells: raise an error, leave out the steps, or fill the cells."""


def complete_steps(log: Log, plant: Plant, mapping: Mapping[str, str]) -> Bools:
    """Return whether a complete control step starts at each row of a log, bool `[rows]`.

    The row must have no empty cell in the columns of `mapping`, and the next row none in the columns of states.
    """
    finite = {name: np.isfinite(log.columns[column]) for name, column in mapping.items()}
    everywhere = np.ones(log.rows, np.bool_)  # also without any column
    here = np.logical_and.reduce([everywhere, *finite.values()])
    seen = np.logical_and.reduce([everywhere, *(finite[name] for name in plant.state_names if name in finite)])
    whole: Bools = here & np.append(seen[1:], False)
    return whole


def interpolated(log: Log, plant: Plant, mapping: Mapping[str, str], pieces: Iterable[slice]) -> Log:
    """Return the log with empty cells of states interpolated, and those of actions filled with the previous action.

    `mapping` contains the log column of each signal by the signal's name. `pieces` are ranges of rows without a gap in
    time.
    """
    columns, filled, longest = dict(log.columns), 0, 0
    angles = dict(zip(plant.state_names, plant.periodic, strict=True))
    ends, stretches = flagged_ends(log, mapping) + 2, list[slice]()
    for piece in pieces:  # cut after the states in which episodes ended
        cuts = [piece.start, *ends[(ends > piece.start) & (ends < piece.stop)].tolist(), piece.stop]
        stretches += (slice(first, last) for first, last in itertools.pairwise(cuts))
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


def flagged_ends(log: Log, mapping: Mapping[str, str]) -> Integers:
    """Return the rows at which a nonzero or empty cell of the column `terminated` ends an episode."""
    return np.flatnonzero(log.columns[mapping["terminated"]] != 0) if "terminated" in mapping else np.empty(0, np.int64)
