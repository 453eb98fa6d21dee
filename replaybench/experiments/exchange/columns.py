"""Match the columns of a log to a plant's signals: as the user states it, or by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from replaybench.data.errors import Problems, UserError, unknown
from replaybench.data.logs.log import Log
from replaybench.data.logs.units import agrees, contradicts, split_title
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import OdePlant

OPTIONAL: Final = ("reward", "terminated")
EPISODE: Final = "episode"
"""Column of numbers that change where an episode begins."""
TRUNCATED: Final = "truncated"
"""Column that is not 0 in the last row of an episode that was cut."""


def parse_columns(tokens: Iterable[str]) -> dict[str, str]:
    """Return the column of each name in `NAME=COLUMN` tokens."""
    mapping = {}
    for token in tokens:
        name, equals, column = token.partition("=")
        if not (name and equals and column):
            raise UserError(f"--columns takes NAME=COLUMN, as in angle=theta, not {token!r}")
        if name in mapping:
            raise UserError(f"--columns gives {name!r} twice")
        mapping[name] = column
    return mapping


def claimed(plant: Plant, columns: Mapping[str, str]) -> set[str]:
    """Return the names of a plant's signals, and the columns that the user assigned."""
    return {*plant.state_names, *plant.action_names, *columns.values()}


def match_columns(log: Log, plant: Plant, columns: Mapping[str, str], problems: Problems) -> dict[str, str]:
    """Return the log's column for every state and action of a plant, and for `reward`, `terminated` and the like.

    Names without a usable column are left out, and added to the `problems`.
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
            column = stated.get(name) or _called(log, name, units.get(name), titles)
            if column is None:
                absent += [name] if name in units else []
                continue
            if column in log.unusable:
                log.column(column)  # raises why
            if contradicts(log.unit(column), units.get(name, "")):
                unit = f"{log.unit(column)}, {plant.name} has {name} in {units[name]}"
                raise UserError(f"column {column!r} is in {unit}; give it in {units[name]}, or mend the unit if it is")
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
        proposed = {name: _proposed(log, name, units[name], free) for name in absent}
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
    """Return the column that the user states for each name, spelled as in plant and log; empty if there is none."""
    by_fold = {_fold(name): name for name in names}
    stated = dict[str, str]()
    for name, column in columns.items():
        with problems.collected():
            if _fold(name) not in by_fold:
                raise unknown("state or action", name, names)
            if by_fold[_fold(name)] in stated:
                raise UserError(f"--columns names {by_fold[_fold(name)]} twice; say which column it is once")
            stated[by_fold[_fold(name)]] = ""  # so that a wrong statement is one problem
            if column not in titles:
                same = [title for title in titles if _fold(title) == _fold(column)]
                if len(same) != 1:
                    raise unknown("column", column, titles)
                column = same[0]
            stated[by_fold[_fold(name)]] = column
    return stated


def _called(log: Log, name: str, unit: str | None, titles: Sequence[str]) -> str | None:
    """Return the column of a name, with or without a unit behind it; raise if two fit and neither exactly."""
    found = [title for title in titles if _fold(title) == _fold(name)]
    if not found and unit is not None:
        bare = [title for title in titles if _fold(split_title(title)[0]) == _fold(name)]
        found = [title for title in bare if agrees(log.unit(title), unit)]
        found = found or [title for title in bare if contradicts(log.unit(title), unit)]
    if len(found) > 1 and name not in found:
        raise UserError(
            f"the columns {' and '.join(map(repr, found))} may each be {name}; "
            f"choose one with --columns '{name}={found[0]}'"
        )
    return name if name in found else next(iter(found), None)


def _proposed(log: Log, name: str, unit: str, free: Sequence[str]) -> str | None:
    """Return the column to propose for a name: the nearest title, else the only one of its unit."""
    of_unit = [column for column in free if agrees(log.unit(column), unit)]
    return nearest(name, free) or (of_unit[0] if len(of_unit) == 1 else None)


def _fold(name: str) -> str:
    return name.casefold().translate({ord(mark): None for mark in " _-"})


def nearest(name: str, columns: Iterable[str]) -> str | None:
    """Return the column with the nearest title, apart from units."""
    bare = {_fold(split_title(column)[0]): column for column in columns}
    return next((bare[match] for match in difflib.get_close_matches(_fold(name), bare, n=1)), None)
