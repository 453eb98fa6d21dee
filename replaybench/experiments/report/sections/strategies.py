"""What is kept against what is replayed: retention × sampling, a square for each strategy."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from replaybench.experiments.figures.style import Series, plant_name
from replaybench.experiments.report.comparison import Standing
from replaybench.experiments.report.look import MU, Panel, Section, number, worded
from replaybench.experiments.report.material import Material, Point
from replaybench.experiments.report.squares import Square, colour_span, same_colours, square_figure


def strategies_section(material: Material, standings: dict[Point, list[Standing]]) -> Section:
    """Draw a map of strategies for each condition and learner in which two ways of keeping met two of replaying.

    Args:
        standings: the ranking at each condition.
    """
    panels = []
    for point, ranked in standings.items():
        for learner in dict.fromkeys(one.learner for one in material.series):
            mine = [one for one in ranked if one.series.learner == learner and parts(one.series) is not None]
            if crossed([one.series for one in mine]):
                panels.append(_panel(material, point, mine))
    lead = f"Mean final scores by what is kept (up) and what is replayed (across). {same_colours(material)}"
    return Section("strategies", "Retention × sampling", [lead], panels)


def crossed(series: Sequence[Series]) -> bool:
    """Tell whether two ways of keeping were run with the same two ways of replaying, all four of them."""
    kept: dict[str, set[str]] = {}
    for one in series:
        if (each := parts(one)) is not None:
            kept.setdefault(each[0], set()).add(each[1])
    return any(len(one & other) > 1 for one, other in itertools.combinations(kept.values(), 2))


def parts(series: Series) -> tuple[str, str] | None:
    """Return what a strategy keeps and what it replays, as written; None where it is not `Retention[Sampling]`."""
    kept, bracket, replayed = series.strategy.partition("[")
    return (kept, replayed[:-1]) if bracket and replayed.endswith("]") else None


def in_order(material: Material, chosen: list[Series], part: int) -> list[str]:
    """Return the ways of keeping (0) or replaying (1) of the chosen series, in the order of the study."""
    found = (parts(one) for one in material.series if one in chosen)
    return list(dict.fromkeys(each[part] for each in found if each is not None))


def _panel(material: Material, point: Point, standings: list[Standing]) -> Panel:
    retentions, samplings = (in_order(material, [one.series for one in standings], part) for part in (0, 1))
    squares, told = [], []
    for one in standings:
        names = parts(one.series)
        assert names is not None
        learner, strategy = material.place(one.series)
        place = samplings.index(names[1]), len(retentions) - 1 - retentions.index(names[0])
        squares.append(
            Square(*place, one.score.mean, f"{one.series.strategy}: {worded(one.score)}", {"strategy": strategy})
        )
        told.append(f"{one.series.strategy} {number(one.score.mean)}")
    span = colour_span(material, point.plant, material.normalised(point))
    figure = square_figure(squares, samplings, retentions[::-1], ("replayed", "kept"), span)
    title = f"{plant_name(material.plants[point.plant])}, {material.condition(point)}"
    if material.data.sizes["learner"] > 1:
        title = f"{title}, {standings[0].series.learner}"
    kind = MU if material.normalised(point) else "reward"
    words = f"Final {kind} by what is kept and what is replayed, {title}, best first: {'; '.join(told)}."
    return Panel(title, words, figure, {**point._asdict(), "learner": learner})
