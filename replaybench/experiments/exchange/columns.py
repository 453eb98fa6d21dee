"""Which column of a log holds what of a plant: as the user states it, or by its name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from replaybench.data.errors import UserError, unknown
from replaybench.data.logs.log import Log
from replaybench.envs.interface.plant import Plant

OPTIONAL: Final = ("reward", "terminated")
EPISODE: Final = "episode"
"""A column of numbers that change where an episode begins."""
_UNIT: Final = re.compile(r"\s*[\[(/][^\[\](),:]*[\])]?$")


def parse_columns(tokens: Iterable[str]) -> dict[str, str]:
    """Return the mapping that `NAME=COLUMN` tokens state, where NAME is a state, action, or what else is recorded."""
    mapping = {}
    for token in tokens:
        name, equals, column = token.partition("=")
        if not (name and equals and column):
            raise UserError(f"--columns takes NAME=COLUMN, as in angle=theta, not {token!r}")
        if name in mapping:
            raise UserError(f"--columns gives {name!r} twice")
        mapping[name] = column
    return mapping


def match_columns(log: Log, plant: Plant, columns: Mapping[str, str]) -> dict[str, str]:
    """Return the log's column for every state and action of a plant, and for what else of it is recorded."""
    needed = (*plant.state_names, *plant.action_names)
    if twice := [name for name in dict.fromkeys(needed) if needed.count(name) > 1]:
        raise UserError(
            f"{plant.name} has two signals called {twice[0]!r}, so that a log's columns cannot be told apart"
        )
    names = (*needed, *dict.fromkeys(name for name in (*OPTIONAL, EPISODE) if name not in needed))
    by_fold = {_fold(name): name for name in names}
    stated = {}
    for name, column in columns.items():
        if _fold(name) not in by_fold:
            raise unknown("state or action", name, names)
        if column not in (*log.columns, *log.unusable):
            alike = [title for title in (*log.columns, *log.unusable) if _fold(title) == _fold(column)]
            column = alike[0] if len(alike) == 1 else column
        if column not in log.columns and column not in log.unusable:
            raise unknown("column", column, log.columns)
        if by_fold[_fold(name)] in stated:
            raise UserError(f"--columns names {by_fold[_fold(name)]} twice; say which column it is once")
        stated[by_fold[_fold(name)]] = column
    titles = (*log.columns, *log.unusable)  # what is unusable says why when it is named
    mapping = {name: stated.get(name) or _called(log.path, name, titles) for name in names}
    if absent := [name for name in needed if mapping[name] is None]:
        free = [column for column in titles if column not in mapping.values()]
        tokens = " ".join(f"'{name}={nearest(name, free) or 'COLUMN'}'" for name in absent)
        raise UserError(
            f"{log.path} has no column called {' or '.join(map(repr, absent))}, which {plant.name} needs; "
            f"name {'it' if len(absent) == 1 else 'them'} with --columns {tokens} (it has: {', '.join(titles)})"
        )
    chosen = {name: column for name, column in mapping.items() if column is not None}
    for column in chosen.values():
        if column in log.unusable:
            log.column(column)  # says why
    return chosen


def _called(path: Path, name: str, titles: Sequence[str]) -> str | None:
    """Return the column called so, if there is one; raises where two are and neither exactly."""
    found = [title for title in titles if _fold(title) == _fold(name)]
    if len(found) > 1 and name not in found:
        raise UserError(
            f"{path} has the columns {' and '.join(map(repr, found))}, and each may be {name}; "
            f"choose one with --columns '{name}={found[0]}'"
        )
    return name if name in found else next(iter(found), None)


def _fold(name: str) -> str:
    return name.casefold().translate({ord(mark): None for mark in " _-"})


def nearest(name: str, columns: Iterable[str]) -> str | None:
    """Return the column that is nearly called so but for its unit, to be proposed: its unit may be another."""
    bare = {_fold(_UNIT.sub("", column)): column for column in columns}
    return next((bare[match] for match in difflib.get_close_matches(_fold(name), bare, n=1)), None)
