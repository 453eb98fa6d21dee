"""The report as one HTML file, also of an offline replay.

The page contains Plotly's library, its figures as data, a style sheet and a script for the filters. Its content
security policy allows these scripts by their hashes and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs
from plotly.utils import PlotlyJSONEncoder

from replaybench.exchange.offline_scores import OfflineScores, read_scores
from replaybench.reports.figures.all_figures import offline_series
from replaybench.reports.figures.style import PALETTE, RAW_LABELS, plant_name
from replaybench.reports.page.curves import curve_traces, level_trace, reference_traces
from replaybench.reports.page.summary import Conclusion, Summary, amount
from replaybench.reports.page.theme import (
    MU,
    REFERENCE_WORDS,
    Panel,
    Row,
    Section,
    Table,
    dark_colors,
    in_reach,
    new_figure,
)
from replaybench.runtime.quantities import decimals
from replaybench.runtime.version import VERSION

LARGEST: Final = 8_000_000
"""Upper limit of a page [bytes]."""


@dataclass(frozen=True)
class Option:
    """One value of a filter; a strategy or learner has a colour or dashes."""

    place: int
    label: str
    color: str = ""
    line: str = ""


@dataclass(frozen=True)
class Filter:
    """A filter by one axis of the study: one of its values or all, or, if `several`, some of them."""

    axis: str
    title: str
    options: Sequence[Option]
    several: bool


@dataclass(frozen=True)
class Page:
    """A report; `missing` lists what could not be shown, a sentence each."""

    name: str
    summary: Summary
    filters: Sequence[Filter]
    sections: Sequence[Section]
    missing: Sequence[str]


def render(page: Page) -> str:
    """Return a page as HTML; the template engine escapes all text."""
    loader = PackageLoader("replaybench.reports.page", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style, page_script = (loader.get_source(environment, name)[0] for name in ("style.css", "page.js"))
    scripts = [f"\n{text.strip()}\n".replace("\r\n", "\n") for text in (get_plotlyjs(), page_script)]
    assert not any("</script" in script.lower() for script in scripts)
    policy = f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; style-src 'unsafe-inline'; img-src data:"
    return environment.get_template("page.html").render(
        page=page,
        made=f"replaybench {VERSION}, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC",
        library=Markup(scripts[0]),
        script=Markup(scripts[1]),
        style=Markup(style),
        policy=policy,
        colors=dark_colors(),
        data=_data,
    )


def _data(content: Mapping[str, Any]) -> Markup:
    """Return JSON that is safe within an HTML element."""
    text = json.dumps(content, cls=PlotlyJSONEncoder, separators=(",", ":"), ensure_ascii=False)
    return Markup(text.replace("<", "\\u003c"))  # the only character that could end the element


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def make_offline_report(path: Path) -> str:
    """Return the report of an offline replay's `scores.h5`, as HTML."""
    scores = read_scores(path)
    head, *rows = scores.rows()
    failed = int((~np.isfinite(scores.reward[:, -1])).sum())
    headlines = scores.headlines() or [f"{scores.label} ends at {head[1]}"]
    sentences = [f"{headline}." for headline in headlines[1:]] + [f"{why}." for why in [scores.no_score()] if why]
    plant, found = plant_name(str(scores.about["plant"])), scores.reference
    summary = Summary(
        f"{amount(len(scores.reward), 'learner')} ({scores.label}) learned offline from {scores.about['buffer']} in "
        f"{scores.updates[-1]:,} updates and were evaluated on {plant} at {found.frequency:g} Hz with noise "
        f"{found.noise:g}, without exploration.",
        [Conclusion(plant, headlines[0], sentences)],
        f"{amount(failed, 'learner')} failed." if failed else "No learner failed.",
        "The 95 % intervals hold for other seeds of the learners, not for another recording.",
    )
    cells = [Row(row, {}) for row in (head, *rows)]
    heads = ("", RAW_LABELS[found.episode_metric], MU)
    table = Table("Learners, the recording and controllers that learn nothing", heads, cells, 1, open=True)
    about = [Row((name, json.dumps(value)[:400]), {}) for name, value in scores.about.items()]
    sections = [
        Section("scores", "Scores", ["Means over runs, with intervals if there are several."], tables=[table]),
        _curves(scores, plant),
        Section("provenance", "Provenance", [], tables=[Table("Settings", ("what", "value"), about, 2, open=True)]),
    ]
    return render(Page(f"{scores.label}, offline on {plant}", summary, [], sections, []))


def _curves(scores: OfflineScores, plant: str) -> Section:
    found, last = scores.reference, int(scores.updates[-1])
    series, runs, curve, levels, known = offline_series(scores)
    references = in_reach(known, *((runs.min(), runs.max()) if curve else (-np.inf, np.inf)))
    digits = decimals([*references.values(), *runs.ravel()])
    traces = reference_traces(references, last, digits)
    for (name, level), color in zip(levels.items(), PALETTE[1:], strict=False):
        traces.append(level_trace(name, level.mean, last, {"color": color, "width": 1.3}))
    if curve:
        traces += curve_traces({}, series, curve, digits)
    unit = MU if found.usable else RAW_LABELS[found.episode_metric]
    figure = new_figure(traces, "updates", unit, hovermode="x")
    title = f"{plant}, {found.frequency:g} Hz, noise {found.noise:g}"
    lead = f"Greedy episodes: the mean over learners and its band. {REFERENCE_WORDS}."
    lead += f" Coloured lines: {'; '.join(levels)}." if levels else ""
    return Section("curves", "Learning curve", [lead], [Panel(title, f"Rewards over updates of {title}.", figure, {})])
