"""All parts of a report, in the order in which they are read."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from replaybench.data.numerics import VERSION
from replaybench.data.user_code.user_file import shortened
from replaybench.experiments.report.comparison import at_point
from replaybench.experiments.report.look import Section, dash
from replaybench.experiments.report.material import Material, read_material
from replaybench.experiments.report.page import LARGEST, Filter, Option, Page, render
from replaybench.experiments.report.sections.buffers import buffers_section
from replaybench.experiments.report.sections.claims import claims_section
from replaybench.experiments.report.sections.curves import curves_section
from replaybench.experiments.report.sections.policies import policies_section
from replaybench.experiments.report.sections.provenance import provenance_section
from replaybench.experiments.report.sections.resources import resources_section
from replaybench.experiments.report.sections.responses import responses_section
from replaybench.experiments.report.sections.scores import scores_section
from replaybench.experiments.report.sections.strategies import strategies_section
from replaybench.experiments.report.snapshots import read_snapshots
from replaybench.experiments.report.summary import summarise


def make_report(run: Path) -> str:
    """Return the report of a run folder or results file, as HTML.

    Raises:
        UserError: it holds no results, or is damaged.
    """
    material = read_material(run)
    standings = {point: at_point(material, point) for point in material.points()}
    kept = list(read_snapshots(material))
    sections = [
        scores_section(material, standings),
        curves_section(material, standings),
        responses_section(material),
        strategies_section(material, standings),
        policies_section(material, kept),
        buffers_section(material, kept),
        claims_section(material),
        resources_section(material),
        provenance_section(material),
    ]
    page = Page(
        name=material.name,
        summary=summarise(material, standings),
        filters=filters(material),
        sections=[],
        missing=[],
        made=f"replaybench {VERSION}, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC",
    )
    html = _with(page, material, sections)
    for heavy in ("policies", "buffers"):
        if len(html.encode()) < LARGEST:
            break
        note = f"Its pictures are left out, so that the page stays below {LARGEST / 1e6:g} MB."
        sections = [replace(one, panels=(), steps=(), notes=[note]) if one.key == heavy else one for one in sections]
        html = _with(page, material, sections)
    return html


def _with(page: Page, material: Material, sections: Sequence[Section]) -> str:
    """Return a page with these parts, those without content left out and said."""
    shown = [section for section in sections if section.panels or section.tables]
    return render(replace(page, sections=shown, missing=[*material.missing, *_left_out(sections)]))


_WHY: Final = {
    "responses": "No plant was run at several noise levels or control rates, so there are no response surfaces.",
    "strategies": "There is no condition in which two ways of keeping met two ways of replaying, so they have no map.",
    "claims": "None of the published claims that replaybench knows compares cells that are in this study.",
    "policies": "There are no policies over time: they are kept in the run folder of plants of two states with "
    "equations and a grid, for learners whose action depends on the present state alone.",
    "buffers": "What buffers held is not known: the cells' folders are not here, or an earlier version made them.",
    "resources": "The results do not say how long cells took.",
}


def _left_out(sections: Sequence[Section]) -> list[str]:
    """Say which parts of a report this one does not have, and why."""
    empty = [section for section in sections if not section.panels and not section.tables]
    told = [f"{section.title}: {note}" for section in empty for note in section.notes]
    why = [_WHY[section.key] for section in empty if not section.notes and section.key in _WHY]
    return [*why, *told]


def filters(material: Material) -> list[Filter]:
    """Return a filter for each axis on which there is something to choose."""
    present = list(material.points())
    plants = shortened(material.plants)
    found = [
        Filter("plant", "Plant", [Option(p, plants[name]) for p, name in enumerate(material.plants)], False),
        *(
            Filter(
                axis,
                title,
                [Option(i, f"{value:g}{unit}") for i, value in enumerate(material.data[axis].values)],
                False,
            )
            for axis, title, unit in (("noise", "Noise", ""), ("frequency", "Rate", " Hz"))
        ),
    ]
    there = {axis: {getattr(point, axis) for point in present} for axis in ("plant", "noise", "frequency")}
    found = [Filter(f.axis, f.title, [c for c in f.options if c.place in there[f.axis]], False) for f in found]
    for axis, title in (("strategy", "Strategy"), ("learner", "Learner")):
        names = shortened([str(name) for name in material.data[axis].values])
        used = list(dict.fromkeys(getattr(one, axis) for one in material.series))
        values = material.data[axis].values.tolist()
        options = [_swatch(material, axis, values.index(name), names[name]) for name in used]
        found.append(Filter(axis, title, options, True))
    return [each for each in found if len(each.options) > 1]


def _swatch(material: Material, axis: str, place: int, label: str) -> Option:
    """Return a choice with what tells it apart in figures: its colour, or its dashes where colours are the others'."""
    several = material.data.sizes["learner"] > material.data.sizes["strategy"]
    mine = [one for one in material.series if material.place(one)[axis == "strategy"] == place]
    if (axis == "learner") == several:
        return Option(place, label, color=mine[0].color)
    return Option(place, label, line=dash(mine[0]).replace("px", "").replace("solid", "none"))
