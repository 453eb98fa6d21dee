"""Which pages are filled, and from which modules."""

from __future__ import annotations

import functools
from pathlib import Path

from benchmarks.tables import (
    advice,
    claims,
    coverage,
    drafting,
    drafting_memory,
    endurance,
    findings,
    interval_coverage,
    learners,
    offline,
    orderings,
    peers,
    plants,
    published,
    refer_causes,
    roboschool,
    sac_rates,
    speeds,
    tasks,
    transfer,
    walkers,
    when_map,
)
from benchmarks.tables.marks import filled

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", ROOT / "benchmarks/README.md", *sorted((ROOT / "docs").glob("*.md")))
MODULES = (
    advice,
    claims,
    coverage,
    drafting,
    drafting_memory,
    transfer,
    endurance,
    findings,
    published,
    refer_causes,
    roboschool,
    walkers,
    sac_rates,
    interval_coverage,
    orderings,
    learners,
    offline,
    tasks,
    plants,
    speeds,
    peers,
    when_map,
)


@functools.cache
def texts() -> dict[str, str]:
    """Return all tables and values by name."""
    return {name: text for module in MODULES for name, text in module.texts().items()}


def rewritten(page: Path) -> str:
    """Return a page as it should be."""
    return filled(page.read_text(encoding="utf-8"), texts())
