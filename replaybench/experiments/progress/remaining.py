"""How long the rest of a sweep takes, at the pace of what was seen of it."""

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
    """Estimate how long the rest takes [s]: a step costs what it has cost so far in the cells that are most alike.

    Args:
        seen: of cells that were watched, how long [s], and how many rounds they did meanwhile.
        still: of cells that are not complete, how many rounds are done.
        processes: how many cells run at once.
        length: of an episode of a cell, in steps or in proportion to them.

    Returns:
        None before anything is known.
    """
    spent: dict[_Kind, tuple[float, float]] = {}
    for cell, seconds, rounds in seen:
        steps = rounds * cell.members * length(cell)
        if seconds > 0 and steps > 0:
            for kind in _from_alike_to_any(_kind(cell)):
                before, done = spent.get(kind, (0.0, 0.0))
                spent[kind] = before + seconds, done + steps
    if not spent or not processes:
        return None

    @functools.cache
    def cost(kind: _Kind) -> float:
        seconds, steps = next(spent[alike] for alike in _from_alike_to_any(kind) if alike in spent)
        return seconds / steps

    rest = [cost(_kind(cell)) * cell.members * length(cell) * (cell.episodes - done) for cell, done in still]
    return max(sum(rest) / processes, max(rest, default=0.0))


def _kind(cell: Cell) -> _Kind:
    """Return what decides the cost of a step, the most first."""
    return cell.learner, cell.plant, cell.frequency, cell.strategy, cell.noise


def _from_alike_to_any(kind: _Kind) -> list[_Kind]:
    """Return what other cells may share with one of a kind: all of it first, at last nothing."""
    return [kind[:length] for length in range(len(kind), -1, -1)]
