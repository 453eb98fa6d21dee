"""How long the rest of a sweep takes, at the pace of what was seen of it."""

from __future__ import annotations

from collections.abc import Iterable

from replaybench.experiments.training.study import Cell


def seconds_left(
    seen: Iterable[tuple[Cell, float, int]], still: Iterable[tuple[Cell, int]], processes: int
) -> float | None:
    """Estimate how long the rest takes [s]: rounds cost what those of the same plant, learner and rate cost so far.

    Args:
        seen: of cells that were watched, how long [s], and how many rounds they did meanwhile.
        still: of cells that are not complete, how many rounds are done.
        processes: how many cells run at once.

    Returns:
        None before anything is known.
    """
    spent: dict[tuple[str, str, float], list[float]] = {}
    for cell, seconds, rounds in seen:
        entry = spent.setdefault(_kind(cell), [0.0, 0.0])
        entry[0] += seconds
        entry[1] += rounds * cell.members
    costs = {kind: seconds / episodes for kind, (seconds, episodes) in spent.items() if episodes > 0}
    if not costs or not processes:
        return None
    mean = sum(costs.values()) / len(costs)
    rest = [costs.get(_kind(cell), mean) * cell.members * (cell.episodes - done) for cell, done in still]
    return max(sum(rest) / processes, max(rest, default=0.0))


def _kind(cell: Cell) -> tuple[str, str, float]:
    return cell.plant, cell.learner, cell.frequency
