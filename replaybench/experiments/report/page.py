"""Render a report as one HTML file without external resources.

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
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs
from plotly.utils import PlotlyJSONEncoder

from replaybench.data.numerics import VERSION
from replaybench.experiments.report.look import Section, dark_colors
from replaybench.experiments.report.summary import Summary

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
    loader = PackageLoader("replaybench.experiments.report", "templates")
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
    """Return JSON that can stand within an element of a page."""
    text = json.dumps(content, cls=PlotlyJSONEncoder, separators=(",", ":"), ensure_ascii=False)
    return Markup(text.replace("<", "\\u003c"))  # the only character that could end the element


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
