"""The results of a sweep or of an offline replay as one HTML file.

The page contains Plotly's library, its figures as data, a style sheet and a script for the filters. Its content
security policy allows only these scripts, by their hashes.
"""

import base64
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs
from plotly.utils import PlotlyJSONEncoder

from replaybench.data.run_folder import AUTHOR, refuse_foreign
from replaybench.exchange.offline_scores import read_scores
from replaybench.reports.figures.all_figures import offline_series
from replaybench.reports.figures.style import PALETTE, RAW_LABELS, plant_name
from replaybench.reports.page import curves, theme
from replaybench.reports.page.claims import claims_section, provenance_section
from replaybench.reports.page.policies import policies_section, read_snapshots
from replaybench.reports.page.report_data import ReportData, read_report_data
from replaybench.reports.page.robustness import robustness_section
from replaybench.reports.page.scores import responses_section, scores_section, strategies_section
from replaybench.reports.page.summary import Conclusion, Summary, amount, summarise
from replaybench.reports.page.theme import MU, Panel, Row, Section, Table
from replaybench.runtime.atomic import new_path, write_text
from replaybench.runtime.quantities import decimals
from replaybench.runtime.user_file import shortened
from replaybench.runtime.version import VERSION

LARGEST: Final = 8_000_000
"""Size from which pictures are left out of a page [bytes]."""


@dataclass(frozen=True)
class Option:
    """One choice in a filter of the report page, such as one strategy, with the colour or line style of its curves."""

    place: int
    label: str
    color: str = ""
    line: str = ""


@dataclass(frozen=True)
class Filter:
    """A filter of the page, which selects one or all values of an axis or, if `several`, any number of values."""

    axis: str
    title: str
    options: Sequence[Option]
    several: bool


@dataclass(frozen=True)
class Page:
    """The contents of a report, where `missing` holds a sentence about each part that could not be shown."""

    name: str
    summary: Summary
    filters: Sequence[Filter]
    sections: Sequence[Section]
    missing: Sequence[str]


def write_report(run: Path, output: Path | None) -> Path:
    """Write the report of a sweep or of an offline replay, and return the path of the HTML file.

    If `output` is None, the file is `report.html` in the run folder.
    """
    target = output or (run if run.is_dir() else run.parent) / "report.html"
    place = target.absolute() if output is None else new_path(output)
    refuse_foreign(place)  # only a report, in the run folder, may be replaced
    offline = run / "scores.h5"
    write_text(place, make_offline_report(offline) if offline.is_file() else make_report(run))
    return target


def make_report(run: Path) -> str:
    """Return the report of a run folder or a results file as HTML.

    Pictures of policies and buffers are left out if the page would otherwise have more than `LARGEST` bytes.
    """
    report = read_report_data(run)
    kept = list(read_snapshots(report))
    sections = [
        scores_section(report), curves.curves_section(report), responses_section(report), robustness_section(report),
        strategies_section(report), policies_section(report, kept), curves.buffers_section(report, kept),
        claims_section(report), curves.resources_section(report), provenance_section(report),
    ]  # fmt: skip
    page = Page(report.name, summarise(report), filters(report), [], report.missing)
    html = _with(page, sections)
    for heavy in ("policies", "buffers"):
        if len(html.encode()) < LARGEST:
            break
        note = f"Its pictures are left out, so that the page has less than {LARGEST / 1e6:g} MB."
        sections = [replace(one, panels=(), steps=(), notes=[note]) if one.key == heavy else one for one in sections]
        html = _with(page, sections)
    return html


_WHY: Final = {
    "responses": "No plant was run at several noise levels, control rates or delays, so there are no response "
    "surfaces.",
    "strategies": "In no condition were two retentions combined with the same two samplings, so there is no map of "
    "strategies.",
    "claims": "None of the published claims in replaybench compares cells of this study.",
    "policies": "There are no snapshots of policies. Runs keep them for plants with two states, equations and a grid, "
    "and learners whose action depends on the present state alone.",
    "buffers": "The contents of buffers are not known: the cells' folders are missing.",
    "resources": "The results do not hold the computing time of cells.",
}


def _with(page: Page, sections: Sequence[Section]) -> str:
    """Return a page with the sections that have content, and with the reason why each other section is missing."""
    shown = [section for section in sections if section.panels or section.tables]
    empty = [section for section in sections if section not in shown]
    why = [_WHY[section.key] for section in empty if not section.notes and section.key in _WHY]
    why += [f"{section.title}: {note}" for section in empty for note in section.notes]
    return render(replace(page, sections=shown, missing=[*page.missing, *why]))


def filters(report: ReportData) -> list[Filter]:
    """Return a filter for each axis of the study with more than one value."""
    data, chosen = report.data, []
    plants = shortened(report.plants)
    labels = {
        "plant": [plants[name] for name in report.plants],
        "noise": [f"{value:g}" for value in data["noise"].values],
        "frequency": [f"{value:g} Hz" for value in data["frequency"].values],
    }
    for axis, title in (("plant", "Plant"), ("noise", "Noise"), ("frequency", "Rate")):
        present = {getattr(point, axis) for point in report.points}
        options = [Option(place, label) for place, label in enumerate(labels[axis]) if place in present]
        chosen.append(Filter(axis, title, options, False))
    colored = "learner" if data.sizes["learner"] > data.sizes["strategy"] else "strategy"  # the other has dashes
    for axis, title in (("strategy", "Strategy"), ("learner", "Learner")):
        names = shortened([str(name) for name in data[axis].values])
        first = {getattr(one, axis): one for one in reversed(report.series)}
        options = []
        for name in dict.fromkeys(getattr(one, axis) for one in report.series):
            one = first[name]
            line = theme.dash(one).replace("px", "").replace("solid", "none")  # a ninth name has the first colour again
            options.append(Option(report.places(one)[axis], names[name], one.color if axis == colored else "", line))
        chosen.append(Filter(axis, title, options, True))
    return [each for each in chosen if len(each.options) > 1]


def render(page: Page) -> str:
    """Return a page as HTML, in which the template engine escapes all text."""
    loader = PackageLoader("replaybench.reports.page", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style, page_script = (loader.get_source(environment, name)[0] for name in ("style.css", "page.js"))
    scripts = [f"\n{text.strip()}\n".replace("\r\n", "\n") for text in (get_plotlyjs(), page_script)]
    assert not any("</script" in script.lower() for script in scripts)
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    policy = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:"

    def data(content: Mapping[str, Any]) -> Markup:
        text = json.dumps(content, cls=PlotlyJSONEncoder, separators=(",", ":"), ensure_ascii=False)
        return Markup(text.replace("<", "\\u003c"))  # the only character that could end the element

    return environment.get_template("page.html").render(
        page=page,
        author=AUTHOR,
        made=f"replaybench {VERSION}, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC",
        library=Markup(scripts[0]),
        script=Markup(scripts[1]),
        style=Markup(style),
        policy=policy,
        colors=theme.dark_colors(),
        data=data,
    )


def make_offline_report(path: Path) -> str:
    """Return the report of an offline replay as HTML, given the path of its `scores.h5`."""
    scores = read_scores(path)
    head, *rows = scores.rows()
    failed = int((~np.isfinite(scores.reward[:, -1])).sum())
    headlines = scores.headlines() or [f"{scores.label} ends at {head[1]}"]
    sentences = [f"{headline}." for headline in headlines[1:]] + [f"{why}." for why in [scores.no_score()] if why]
    plant, reference = plant_name(str(scores.about["plant"])), scores.reference
    summary = Summary(
        f"{amount(len(scores.reward), 'learner')} ({scores.label}) learned offline from {scores.about['buffer']} in "
        f"{scores.updates[-1]:,} updates and were evaluated on {plant} at {reference.frequency:g} Hz with noise "
        f"{reference.noise:g}, without exploration.",
        [Conclusion(plant, headlines[0], sentences)],
        f"{amount(failed, 'learner')} failed." if failed else "No learner failed.",
        "The 95 % intervals hold for other seeds of the learners, not for another recording.",
    )
    cells = [Row(row, {}) for row in (head, *rows)]
    heads = ("", RAW_LABELS[reference.episode_metric], MU)
    table = Table("Learners, the recording and controllers that learn nothing", heads, cells, 1, open=True)
    about = [Row((name, json.dumps(value)[:400]), {}) for name, value in scores.about.items()]
    last = int(scores.updates[-1])
    series, runs, curve, levels, known = offline_series(scores)
    references = theme.in_reach(known, *((runs.min(), runs.max()) if curve else (-np.inf, np.inf)))
    digits = decimals([*references.values(), *runs.ravel()])
    traces = curves.reference_traces(references, last, digits)
    for (name, level), color in zip(levels.items(), PALETTE[1:], strict=False):
        traces.append(curves.level_trace(name, level.mean, last, {"color": color, "width": 1.3}))
    if curve:
        traces += curves.curve_traces({}, series, curve, digits)
    unit = MU if reference.usable else RAW_LABELS[reference.episode_metric]
    figure = theme.new_figure(traces, "updates", unit, hovermode="x")
    title = f"{plant}, {reference.frequency:g} Hz, noise {reference.noise:g}"
    lead = f"Greedy episodes: the mean over learners and its band. {theme.REFERENCE_WORDS}."
    lead += f" Coloured lines: {'; '.join(levels)}." if levels else ""
    curve_panel = Panel(title, f"Rewards over updates of {title}.", figure, {})
    sections = [
        Section("scores", "Scores", ["Means over runs, with intervals if there are several."], tables=[table]),
        Section("curves", "Learning curve", [lead], [curve_panel]),
        Section("provenance", "Provenance", [], tables=[Table("Settings", ("what", "value"), about, 2, open=True)]),
    ]
    return render(Page(f"{scores.label}, offline on {plant}", summary, [], sections, []))
