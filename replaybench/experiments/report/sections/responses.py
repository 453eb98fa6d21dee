"""How final scores respond to noise and control rate: a plane for each series, a square for each condition."""

from __future__ import annotations

import numpy as np

from replaybench.experiments.figures.style import RAW_LABELS, plant_name
from replaybench.experiments.report.look import MU, Panel, Section, number, worded
from replaybench.experiments.report.material import Material, Point
from replaybench.experiments.report.squares import Square, colour_span, same_colours, square_figure
from replaybench.experiments.results.dataset import episode_metric


def responses_section(material: Material) -> Section:
    """Draw a response surface of every learner and strategy on each plant that was run in several conditions."""
    panels: list[Panel] = []
    notes = []
    for plant, name in enumerate(material.plants):
        points = [point for point in material.points() if point.plant == plant]
        if len(points) < 2:
            continue
        normalised = all(material.normalised(point) for point in points)
        panels += _panels(material, points, normalised)
        if not normalised:
            raw = RAW_LABELS[episode_metric(material.data.isel(plant=plant))]
            notes.append(f"{plant_name(name)}: {MU} is not defined in every condition, so squares show the {raw}.")
    lead = f"Mean final score, of {material.late}, at each noise level and control rate. {same_colours(material)}"
    return Section("responses", "Response to noise and rate", [lead], panels, notes=notes)


def _panels(material: Material, points: list[Point], normalised: bool) -> list[Panel]:
    """Return the planes of one plant."""
    found = {}
    for series in material.series:
        scores = {point: material.mean_final(point, series, normalised) for point in points}
        known = {point: score for point, score in scores.items() if np.isfinite(score.mean)}
        if len(known) > 1:
            found[series] = known
    span = colour_span(material, points[0].plant, normalised)
    noise, rates = (sorted({getattr(point, axis) for point in points}) for axis in ("noise", "frequency"))
    across, up = _labels(material, "frequency", rates), _labels(material, "noise", noise)
    panels = []
    for series, scores in found.items():
        squares = [
            Square(
                rates.index(point.frequency),
                noise.index(point.noise),
                score.mean,
                f"{material.condition(point)}: {worded(score)}",
                {"noise": point.noise, "frequency": point.frequency},
            )
            for point, score in scores.items()
        ]
        figure = square_figure(squares, across, up, ("control rate [Hz]", "noise"), span)
        learner, strategy = material.place(series)
        title = f"{plant_name(material.plants[points[0].plant])}, {series.label}"
        told = "; ".join(f"{material.condition(point)}: {number(score.mean)}" for point, score in scores.items())
        words = f"Final {MU if normalised else 'reward'} of {title}, by noise and control rate. {told}."
        places = {"plant": points[0].plant, "learner": learner, "strategy": strategy}
        panels.append(Panel(title, words, figure, places))
    return panels


def _labels(material: Material, axis: str, places: list[int]) -> list[str]:
    return [f"{material.data[axis].values[place]:g}" for place in places]
