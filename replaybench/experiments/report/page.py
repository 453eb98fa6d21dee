"""From the parts of a report to one HTML file that needs nothing else.

The page carries Plotly's library, its figures as data, a style sheet and a short script that chooses what is shown. Its
content security policy names the scripts by their hashes and forbids everything else: nothing is fetched, and whatever
a file might smuggle in does not run.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs
from plotly.utils import PlotlyJSONEncoder

from replaybench.experiments.report.look import Panel, Section, dark_colors
from replaybench.experiments.report.summary import Summary


@dataclass(frozen=True)
class Option:
    """One value of a filter; a strategy or learner has a colour, dashes and a marker.

    Attributes:
        swatch: the inline drawing that stands beside it, if any.
    """

    place: int
    label: str
    color: str = ""
    line: str = ""


@dataclass(frozen=True)
class Filter:
    """What a reader can choose by one axis of the study: one of its values or all, or (`several`) some of them."""

    axis: str
    title: str
    options: Sequence[Option]
    several: bool


@dataclass(frozen=True)
class Page:
    """A whole report.

    Attributes:
        missing: what could not be shown, a sentence each.
        made: who made the page, and when.
    """

    name: str
    summary: Summary
    filters: Sequence[Filter]
    sections: Sequence[Section]
    missing: Sequence[str]
    made: str


def render(page: Page) -> str:
    """Return a page as HTML; whatever comes from files is escaped by the template engine."""
    environment = Environment(
        loader=PackageLoader("replaybench.experiments.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sources = {name: _source(environment, name) for name in ("style.css", "page.js")}
    library = _script(get_plotlyjs())
    script = _script(sources["page.js"])
    policy = (
        f"default-src 'none'; script-src {_hash(library)} {_hash(script)}; style-src 'unsafe-inline'; img-src data:"
    )
    return environment.get_template("page.html").render(
        page=page,
        library=Markup(library),
        script=Markup(script),
        style=Markup(sources["style.css"]),
        policy=policy,
        colors=_data(dark_colors()),
        data=figure_data,
    )


def figure_data(panel: Panel) -> Markup:
    """Return a figure as JSON that can stand within an element of a page."""
    return _data(panel.figure)


def _source(environment: Environment, name: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _data(content: Mapping[str, Any]) -> Markup:
    text = json.dumps(content, cls=PlotlyJSONEncoder, separators=(",", ":"), ensure_ascii=False)
    return Markup(text.replace("<", "\\u003c"))  # the only character that could end the element


def _script(text: str) -> str:
    """Return a script as it stands in the page; its hash counts these very characters."""
    assert "</script" not in text.lower()
    return f"\n{text.strip()}\n".replace("\r\n", "\n")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


LARGEST: Final = 8_000_000
"""Bytes that a page stays below."""
