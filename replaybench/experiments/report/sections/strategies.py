"""Map of strategies: retention × sampling, a square for each."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from replaybench.experiments.figures.style import Series
from replaybench.experiments.report.comparison import Standing
from replaybench.experiments.report.look import MU, Panel, Section
from replaybench.experiments.report.material import Material, Point
from replaybench.experiments.report.squares import Square, colour_span, same_colours, square_panel


def strategies_section(material: Material, standings: dict[Point, list[Standing]]) -> Section:
    """Draw a map for each condition and learner in which two retentions were combined with the same two samplings."""
    panels = []
    for point, ranked in standings.items():
        for learner in dict.fromkeys(one.learner for one in material.series):
            mine = [one for one in ranked if one.series.learner == learner and parts(one.series) is not None]
            if crossed([one.series for one in mine]):
                panels.append(_panel(material, point, mine))
    lead = f"Mean final scores by retention (vertical) and sampling (horizontal). {same_colours(material)}"
    return Section("strategies", "Retention × sampling", [lead], panels)


def crossed(series: Sequence[Series]) -> bool:
    """Tell whether two retentions were run with the same two samplings."""
    samplings: dict[str, set[str]] = {}
    for names in filter(None, map(parts, series)):
        samplings.setdefault(names[0], set()).add(names[1])
    return any(len(one & other) > 1 for one, other in itertools.combinations(samplings.values(), 2))


def parts(series: Series) -> tuple[str, str] | None:
    """Return the retention and the sampling of a strategy; None if it is not `Retention[Sampling]`."""
    retention, bracket, sampling = series.strategy.partition("[")
    return (retention, sampling[:-1]) if bracket and sampling.endswith("]") else None


def _panel(material: Material, point: Point, ranked: list[Standing]) -> Panel:
    scored = {one.series: one for one in ranked}
    named = [names for one in material.series if one in scored and (names := parts(one))]  # in the order of the study
    retentions, samplings = (list(dict.fromkeys(names[part] for names in named)) for part in (0, 1))
    squares = []
    for one in ranked:
        retention, sampling = parts(one.series) or ("", "")
        place = samplings.index(sampling), len(retentions) - 1 - retentions.index(retention)
        meta = {"strategy": material.places(one.series)["strategy"]}
        squares.append(Square(*place, one.score, one.series.strategy, meta))
    title = material.title(point)
    if material.data.sizes["learner"] > 1:
        title = f"{title}, {ranked[0].series.learner}"
    words = f"Final {MU if material.normalised(point) else 'reward'} by retention and sampling, {title}, best first:"
    span = colour_span(material, point.plant, material.normalised(point))
    places = {**point._asdict(), "learner": material.places(ranked[0].series)["learner"]}
    return square_panel(title, words, squares, (samplings, retentions[::-1]), ("sampling", "retention"), span, places)
