"""The sections of a report, and the command `report`."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from replaybench.reports.page.claims import claims_section, provenance_section
from replaybench.reports.page.comparison import at_point
from replaybench.reports.page.curves import buffers_section, curves_section, resources_section
from replaybench.reports.page.page import LARGEST, Filter, Option, Page, render
from replaybench.reports.page.policies import policies_section, read_snapshots
from replaybench.reports.page.report_data import ReportData, read_report_data
from replaybench.reports.page.scores import responses_section, scores_section, strategies_section
from replaybench.reports.page.summary import summarise
from replaybench.reports.page.theme import Section, dash
from replaybench.runtime.atomic import write_text
from replaybench.runtime.errors import UserError
from replaybench.runtime.user_file import shortened


def make_report(run: Path) -> str:
    """Return the report of a run folder or results file, as HTML."""
    material = read_report_data(run)
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
    page = Page(material.name, summarise(material, standings), filters(material), [], material.missing)
    html = _with(page, sections)
    for heavy in ("policies", "buffers"):
        if len(html.encode()) < LARGEST:
            break
        note = f"Its pictures are left out, so that the page has less than {LARGEST / 1e6:g} MB."
        sections = [replace(one, panels=(), steps=(), notes=[note]) if one.key == heavy else one for one in sections]
        html = _with(page, sections)
    return html


def _with(page: Page, sections: Sequence[Section]) -> str:
    """Return a page with these sections; it lists those without content."""
    shown = [section for section in sections if section.panels or section.tables]
    empty = [section for section in sections if not (section.panels or section.tables)]
    why = [_WHY[section.key] for section in empty if not section.notes and section.key in _WHY]
    why += [f"{section.title}: {note}" for section in empty for note in section.notes]
    return render(replace(page, sections=shown, missing=[*page.missing, *why]))


_WHY: Final = {
    "responses": "No plant was run at several noise levels or control rates, so there are no response surfaces.",
    "strategies": "In no condition were two retentions combined with the same two samplings, so there is no map of "
    "strategies.",
    "claims": "None of the published claims that replaybench knows compares cells that are in this study.",
    "policies": "There are no snapshots of policies. Runs keep them for plants with two states, equations and a grid, "
    "and learners whose action depends on the present state alone.",
    "buffers": "The contents of buffers are not known: the cells' folders are missing, or of an earlier version.",
    "resources": "The results do not hold the computing time of cells.",
}


def filters(material: ReportData) -> list[Filter]:
    """Return a filter for each axis with more than one value."""
    points, data, found = list(material.points()), material.data, []
    plants = shortened(material.plants)
    labels = {
        "plant": [plants[name] for name in material.plants],
        "noise": [f"{value:g}" for value in data["noise"].values],
        "frequency": [f"{value:g} Hz" for value in data["frequency"].values],
    }
    for axis, title in (("plant", "Plant"), ("noise", "Noise"), ("frequency", "Rate")):
        there = {getattr(point, axis) for point in points}
        options = [Option(place, label) for place, label in enumerate(labels[axis]) if place in there]
        found.append(Filter(axis, title, options, False))
    for axis, title in (("strategy", "Strategy"), ("learner", "Learner")):
        names = shortened([str(name) for name in data[axis].values])
        used = dict.fromkeys(getattr(one, axis) for one in material.series)
        found.append(Filter(axis, title, [_swatch(material, axis, name, names[name]) for name in used], True))
    return [each for each in found if len(each.options) > 1]


def _swatch(material: ReportData, axis: str, name: str, label: str) -> Option:
    """Return an option with the colour or the dashes that distinguish it in figures."""
    one = next(one for one in material.series if getattr(one, axis) == name)
    place = material.places(one)[axis]
    if (axis == "learner") == (material.data.sizes["learner"] > material.data.sizes["strategy"]):
        return Option(place, label, color=one.color)
    return Option(place, label, line=dash(one).replace("px", "").replace("solid", "none"))


def show_report(run: Path, output: Path | None) -> Path:
    """Write the report of a run or an offline replay; print and return its path."""
    for library in ("jinja2", "plotly"):
        if importlib.util.find_spec(library) is None:
            raise UserError(f"a report needs {library}; pip install 'replaybench[report]'")
    from replaybench.reports.page.page import make_offline_report
    from replaybench.runtime.atomic import refuse_existing

    if output is not None:  # the report in the run folder is replaced
        refuse_existing(output)
    target = output or (run if run.is_dir() else run.parent) / "report.html"
    began = time.perf_counter()
    offline = run / "scores.h5"
    html = make_offline_report(offline) if offline.is_file() else make_report(run)
    write_text(target, html)
    print(f"report   {target} ({len(html.encode()) / 1e6:.1f} MB, {time.perf_counter() - began:.0f} s)")
    return target
