"""All parts of a report, in the order in which they are read."""

from __future__ import annotations

import time
from pathlib import Path

from replaybench.data.numerics import VERSION
from replaybench.data.user_file import shortened
from replaybench.experiments.report.comparison import at_point
from replaybench.experiments.report.curves import curves_section
from replaybench.experiments.report.look import dash
from replaybench.experiments.report.material import Material, read_material
from replaybench.experiments.report.page import Choice, Filter, Page, render
from replaybench.experiments.report.scores import scores_section
from replaybench.experiments.report.summary import summarise


def make_report(run: Path) -> str:
    """Return the report of a run folder or results file, as HTML.

    Raises:
        UserError: it holds no results, or is damaged.
    """
    material = read_material(run)
    standings = {point: at_point(material, point) for point in material.points()}
    sections = [scores_section(material, standings), curves_section(material, standings)]
    made = f"replaybench {VERSION}, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC"
    page = Page(
        name=material.name,
        summary=summarise(material, standings),
        filters=filters(material),
        sections=[section for section in sections if section.panels or section.tables],
        missing=material.missing,
        made=made,
    )
    return render(page)


def filters(material: Material) -> list[Filter]:
    """Return a filter for each axis on which there is something to choose."""
    present = list(material.points())
    plants = shortened(material.plants)
    found = [
        Filter("plant", "Plant", [Choice(p, plants[name]) for p, name in enumerate(material.plants)], False),
        *(
            Filter(
                axis,
                title,
                [Choice(i, f"{value:g}{unit}") for i, value in enumerate(material.data[axis].values)],
                False,
            )
            for axis, title, unit in (("noise", "Noise", ""), ("frequency", "Rate", " Hz"))
        ),
    ]
    there = {axis: {getattr(point, axis) for point in present} for axis in ("plant", "noise", "frequency")}
    found = [Filter(f.axis, f.title, [c for c in f.choices if c.place in there[f.axis]], False) for f in found]
    for axis, title in (("strategy", "Strategy"), ("learner", "Learner")):
        names = shortened([str(name) for name in material.data[axis].values])
        used = list(dict.fromkeys(getattr(one, axis) for one in material.series))
        values = material.data[axis].values.tolist()
        choices = [_swatch(material, axis, values.index(name), names[name]) for name in used]
        found.append(Filter(axis, title, choices, True))
    return [each for each in found if len(each.choices) > 1]


def _swatch(material: Material, axis: str, place: int, label: str) -> Choice:
    """Return a choice with what tells it apart in figures: its colour, or its dashes where colours are the others'."""
    several = material.data.sizes["learner"] > material.data.sizes["strategy"]
    mine = [one for one in material.series if material.place(one)[axis == "strategy"] == place]
    if (axis == "learner") == several:
        return Choice(place, label, color=mine[0].color)
    return Choice(place, label, line=dash(mine[0]).replace("px", "").replace("solid", "none"))
