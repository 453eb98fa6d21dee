"""Response of final scores to noise and control rate: a plane for each series, a square for each condition."""

from __future__ import annotations

import numpy as np

from replaybench.experiments.figures.style import RAW_LABELS, plant_name
from replaybench.experiments.report.look import MU, Panel, Section
from replaybench.experiments.report.material import Material, Point
from replaybench.experiments.report.squares import Square, colour_span, same_colours, square_panel
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
            raw = RAW_LABELS[episode_metric(material.of_plants[plant])]
            notes.append(f"{plant_name(name)}: {MU} is not defined in every condition, so squares show the {raw}.")
    lead = f"Mean final score, of {material.late}, at each noise level and control rate. {same_colours(material)}"
    return Section("responses", "Response to noise and rate", [lead], panels, notes=notes)


def _panels(material: Material, points: list[Point], normalised: bool) -> list[Panel]:
    span = colour_span(material, points[0].plant, normalised)
    noise, rates = (sorted({getattr(point, axis) for point in points}) for axis in ("noise", "frequency"))
    across = [f"{rate:g}" for rate in material.data["frequency"].values[rates]]
    up = [f"{level:g}" for level in material.data["noise"].values[noise]]
    panels = []
    for series in material.series:
        squares = []
        for point in points:
            score = material.mean_final(point, series, normalised)
            if np.isfinite(score.mean):
                place = rates.index(point.frequency), noise.index(point.noise)
                squares.append(Square(*place, score, material.condition(point), point._asdict()))
        if len(squares) > 1:
            title = f"{plant_name(material.plants[points[0].plant])}, {series.label}"
            words = f"Final {MU if normalised else 'reward'} of {title}, by noise and control rate."
            places, axes = {"plant": points[0].plant, **material.places(series)}, ("control rate [Hz]", "noise")
            panels.append(square_panel(title, words, squares, (across, up), axes, span, places))
    return panels
