"""What is kept against what is replayed: retention × sampling, a square for each strategy."""

from __future__ import annotations

from replaybench.experiments.figures.style import Series, plant_name
from replaybench.experiments.report.comparison import Standing
from replaybench.experiments.report.look import MU, Panel, Section, number, worded
from replaybench.experiments.report.material import Material, Point
from replaybench.experiments.report.squares import Square, square_figure


def strategies_section(material: Material, standings: dict[Point, list[Standing]]) -> Section:
    """Draw a map of strategies for each condition and learner with two ways at least of keeping, and of replaying.

    Args:
        standings: the ranking at each condition.
    """
    panels = []
    for point, ranked in standings.items():
        for learner in dict.fromkeys(one.learner for one in material.series):
            mine = [one for one in ranked if one.series.learner == learner and parts(one.series) is not None]
            retentions = in_order(material, [one.series for one in mine], 0)
            samplings = in_order(material, [one.series for one in mine], 1)
            if len(mine) > min(len(retentions), len(samplings)) > 1:
                panels.append(_panel(material, point, mine, retentions, samplings))
    lead = (
        "Mean final scores by what is kept (up) and what is replayed (across). Lighter is better in each map by itself."
    )
    return Section("strategies", "Retention × sampling", [lead], panels)


def parts(series: Series) -> tuple[str, str] | None:
    """Return what a strategy keeps and what it replays, as written; None where it is not `Retention[Sampling]`."""
    kept, bracket, replayed = series.strategy.partition("[")
    return (kept, replayed[:-1]) if bracket and replayed.endswith("]") else None


def in_order(material: Material, chosen: list[Series], part: int) -> list[str]:
    """Return the ways of keeping (0) or replaying (1) of the chosen series, in the order of the study."""
    found = (parts(one) for one in material.series if one in chosen)
    return list(dict.fromkeys(each[part] for each in found if each is not None))


def _panel(
    material: Material, point: Point, standings: list[Standing], retentions: list[str], samplings: list[str]
) -> Panel:
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
    means = [one.score.mean for one in standings]
    figure = square_figure(squares, samplings, retentions[::-1], ("replayed", "kept"), (min(means), max(means)))
    title = f"{plant_name(material.plants[point.plant])}, {material.condition(point)}"
    if material.data.sizes["learner"] > 1:
        title = f"{title}, {standings[0].series.learner}"
    kind = MU if material.normalised(point) else "reward"
    words = f"Final {kind} by what is kept and what is replayed, {title}, best first: {'; '.join(told)}."
    return Panel(title, words, figure, {**point._asdict(), "learner": learner})
