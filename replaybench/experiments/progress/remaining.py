"""Estimate of the remaining time of a sweep."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from replaybench.experiments.training.study import Cell

_Kind = tuple[str | float, ...]


def seconds_left(
    seen: Iterable[tuple[Cell, float, int]],
    still: Iterable[tuple[Cell, int]],
    processes: int,
    length: Callable[[Cell], float],
) -> float | None:
    """Estimate the remaining time [s]: a step costs what it has cost in the most similar cells.

    Args:
        seen: of observed cells, the time [s] and the rounds done in it.
        still: of incomplete cells, the finished rounds.
        processes: cells that run at once.
        length: of an episode of a cell, in steps or in proportion to them.

    Returns:
        None before anything is known.
    """
    spent: dict[_Kind, tuple[float, float]] = {}
    for cell, seconds, rounds in seen:
        steps = rounds * cell.members * length(cell)
        if seconds > 0 and steps > 0:
            for kind in _ever_less_similar(cell):
                before, done = spent.get(kind, (0.0, 0.0))
                spent[kind] = before + seconds, done + steps
    if not spent or not processes:
        return None

    @functools.cache
    def cost(kinds: tuple[_Kind, ...]) -> float:
        seconds, steps = next(spent[kind] for kind in kinds if kind in spent)
        return seconds / steps

    rest = [
        cost(_ever_less_similar(cell)) * cell.members * length(cell) * (cell.episodes - done) for cell, done in still
    ]
    return max(sum(rest) / processes, max(rest, default=0.0))


def _ever_less_similar(cell: Cell) -> tuple[_Kind, ...]:
    """Return the properties that decide the cost of a step, then ever fewer of them, at last none."""
    kind = cell.learner, cell.plant, cell.frequency, cell.strategy, cell.noise
    return tuple(kind[:length] for length in range(len(kind), -1, -1))
