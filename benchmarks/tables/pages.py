"""Pages with generated tables and checked numbers, and the modules that these come from."""

import functools
import tomllib
from pathlib import Path

from benchmarks.tables import (
    advice,
    claims,
    coverage,
    delays,
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
    servo,
    speeds,
    strategies,
    tasks,
    transfer,
    walkers,
    when_map,
)
from benchmarks.tables.marks import filled

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", ROOT / "benchmarks/README.md", *sorted((ROOT / "docs").rglob("*.md")))
NUMBERS = ROOT / "docs/numbers.toml"
MODULES = (
    advice,
    claims,
    coverage,
    delays,
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
    servo,
    speeds,
    strategies,
    peers,
    when_map,
)


@functools.cache
def texts() -> dict[str, str]:
    """Return all tables and values by name."""
    return {name: text for module in MODULES for name, text in module.texts().items()}


@functools.cache
def patterns() -> dict[str, dict[str, str | list[str]]]:
    """Return, by page and by sentence with `{}` for its numbers, the names of their values."""
    return tomllib.loads(NUMBERS.read_text(encoding="utf-8"))


def sentences(page: Path) -> list[str]:
    """Return the checked sentences of a page as the stored files want them."""
    of = patterns().get(page.relative_to(ROOT).as_posix(), {})
    named = {pattern: [names] if isinstance(names, str) else names for pattern, names in of.items()}
    return [pattern.format(*(texts()[name] for name in names)) for pattern, names in named.items()]


def plain(text: str) -> str:
    """Return a page's text on one line, to look for sentences."""
    return " ".join(text.split())


def rewritten(page: Path) -> str:
    """Return a page as it should be."""
    return filled(page.read_text(encoding="utf-8"), texts())
