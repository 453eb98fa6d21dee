"""Coverage of the five papers: each part with its presets, its page, or the reason why it is missing."""

import os
import tomllib
from collections import Counter
from pathlib import Path

from benchmarks.tables.claims import judged_papers
from benchmarks.tables.text import table
from replaybench.evidence.preset import preset_names, read_preset

DATA = Path(__file__).with_suffix(".toml")
DOCS = Path(__file__).resolve().parents[2] / "docs"


def parts() -> dict[str, dict[str, list[str]]]:
    """Return by paper, and by figure, table, algorithm or task: presets, pages, and reasons why it is not here."""
    return tomllib.loads(DATA.read_text(encoding="utf-8"))


def texts() -> dict[str, str]:
    return {f"coverage.{paper}": _paper(paper, found) for paper, found in parts().items()}


def _paper(paper: str, found: dict[str, list[str]]) -> str:
    claims = Counter(
        preset for _, pairs in judged_papers().values() for v, _ in pairs for preset in {*v.claim.presets()}
    )
    undecided = Counter(
        preset
        for _, pairs in judged_papers().values()
        for v, f in pairs
        if f is None
        for preset in {*v.claim.presets()}
    )
    rows = []
    for part, entries in found.items():
        presets = [entry for entry in entries if entry in preset_names()]
        told = [
            f"{claims[name]}{f' ({undecided[name]} not run)' if undecided[name] else ''}"
            for name in presets
            if claims[name]
        ]
        rows.append([part, "; ".join(map(_shown, entries)), " + ".join(told)])
    return f"**{read_preset(next(n for n in preset_names() if n.startswith(paper))).paper.title}**\n\n" + table(
        ("part of the paper", "here", "claims"), rows
    )


def _shown(entry: str) -> str:
    if entry in preset_names():
        return f"`{entry}`"
    if entry.endswith(".md"):
        page = DOCS.parent / entry
        title = page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        return f"[{title}]({os.path.relpath(page, DOCS / 'results')})"
    return entry
