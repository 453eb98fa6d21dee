"""Make the pages of the documentation site in build/site-pages: those of docs, and those that the package itself tells.

Run by `make docs`, before mkdocs. Commands are asked for their help, settings and the interface are read from the code,
and links to what is no page become links to the page that shows it, or plain words.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import os
import re
import shutil
from pathlib import Path
from typing import Any

import replaybench
from replaybench.controllers.registry import LEARNERS, load_learner
from replaybench.envs.registry import PLANTS, is_installed, plant_class
from replaybench.experiments.cli import COMMANDS, main
from replaybench.experiments.training.bundled import EXAMPLES, STUDIES
from replaybench.experiments.training.study import Study

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build" / "site-pages"
WRITTEN = {path: f"{path.stem}.md" for path in sorted((ROOT / "docs").glob("*.md"))} | {
    ROOT / "README.md": "index.md",
    ROOT / "CONTRIBUTING.md": "contributing.md",
    ROOT / "CHANGELOG.md": "changelog.md",
    ROOT / "benchmarks/README.md": "results.md",
}
"""Pages that people write, and what they are called on the site."""
PICTURES = (".png", ".gif", ".svg", ".jpg")
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]*)(#[^)\s]*)?\)")


def stage() -> None:
    """Write all pages anew."""
    shutil.rmtree(PAGES, ignore_errors=True)
    (PAGES / "assets").mkdir(parents=True)
    for source, name in WRITTEN.items():
        (PAGES / name).write_text(linked(source.read_text(encoding="utf-8"), source), encoding="utf-8")
    made = {
        "commands.md": commands(),
        "study-keys.md": study_keys(),
        "api.md": interface(),
        "examples.md": examples(),
        "gallery.md": gallery(),
    }
    for name, text in made.items():
        (PAGES / name).write_text(text, encoding="utf-8")


def linked(text: str, source: Path) -> str:
    """Return a page's text with links that hold on the site; pictures are copied to where they lead."""

    def moved(match: re.Match[str]) -> str:
        picture, words, target, anchor = match[1], match[2], match[3], match[4] or ""
        if target.startswith(("http", "mailto")) or not target:
            return match[0]
        place = (source.parent / target).resolve()
        if place.suffix in PICTURES:
            name = "-".join(place.relative_to(ROOT).parts[-3:])
            shutil.copyfile(place, PAGES / "assets" / name)
            return f"{picture}[{words}](assets/{name})"
        if place in WRITTEN:
            return f"[{words}]({WRITTEN[place]}{anchor})"
        if place.parent == EXAMPLES:
            return f"[{words}](examples.md#{heading_id(place.name)})"
        return words

    return _LINK.sub(moved, text)


def heading_id(heading: str) -> str:
    """Return the id that a heading gets."""
    return re.sub(r"[^\w-]+", "", heading.lower().replace(" ", "-"))


def help_of(*words: str) -> str:
    """Return what a command says of itself."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        main([*words, "--help"])
    return re.sub(r"\x1b\[[\d;]*m", "", said.getvalue()).strip("\n")


def commands() -> str:
    """Return a page with the help of every command."""
    parts = ["# Commands", "Each as it describes itself (`replaybench COMMAND --help`)."]
    parts += [f"```text\n{help_of()}\n```"]
    for name in COMMANDS:
        parts += [f"## {name}", f"```text\n{help_of(name)}\n```"]
    return "\n\n".join(parts) + "\n"


def settings_table(kind: Any) -> str:
    """Return a table of a data class's fields with their defaults."""
    rows = ["| key | default |", "| --- | --- |"]
    for field in dataclasses.fields(kind):
        default = field.default
        if default is dataclasses.MISSING:
            made = field.default_factory
            default = "needed" if made is dataclasses.MISSING else made()
        shown = str(default) if default is not None else "–"
        rows.append(f"| `{field.name}` | `{shown}` |".replace("``", "–"))
    return "\n".join(rows)


def study_keys() -> str:
    """Return a page with every key of study files, and of each learner's table."""
    parts = ["# Study keys", inspect.cleandoc(Study.__doc__ or ""), settings_table(Study)]
    parts += ["## Learners", "Keys of `[learner.NAME]`; tables within are written `[learner.NAME.exploration]`."]
    for name in LEARNERS.own:
        _, config = load_learner(name)
        parts += [f"### {name}", inspect.cleandoc(config.__doc__ or ""), settings_table(config)]
    parts += ["## Plants", "Keys of `[plant.NAME]`: physical parameters."]
    for name in (name for name in PLANTS.own if is_installed(name)):
        plant = plant_class(name)
        if dataclasses.fields(plant):
            parts += [f"### {name}", settings_table(plant)]
    return "\n\n".join(parts) + "\n"


def interface() -> str:
    """Return the page of the interface for Python programs, from docstrings."""
    parts = ["# Python interface", "All that is promised to stay; see [From Python](python.md) for how it is used."]
    for name in replaybench.__all__:
        place = replaybench._PLACES[name].replace(":", ".")
        parts += [f"## {name}", f"::: replaybench.{place}"]
    return "\n\n".join(parts) + "\n"


def examples() -> str:
    """Return a page with the examples and studies that come along."""
    parts = ["# Examples", "`replaybench examples` copies these into a folder."]
    for path in (*sorted(EXAMPLES.glob("*.py")), *sorted(EXAMPLES.glob("*.toml")), *sorted(STUDIES.glob("*.toml"))):
        parts += [f"## {path.name}", f"```{path.suffix[1:]}\n{path.read_text(encoding='utf-8').strip()}\n```"]
    return "\n\n".join(parts) + "\n"


def gallery() -> str:
    """Return a page with every plant that has a film, and what it is."""
    parts = ["# Gallery", "Every plant under random actions, as `replaybench show PLANT --output FILE.gif` draws it."]
    films = ROOT / "docs" / "images" / "plants"
    for name in PLANTS.own:
        film = films / f"{name}.gif"
        if film.is_file():
            shutil.copyfile(film, PAGES / "assets" / film.name)
            described = inspect.cleandoc(plant_class(name).__doc__ or "").split("\n\n")[0]
            parts += [f"## {name}", f"![{name} under random actions](assets/{film.name})", described]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    os.environ |= {"COLUMNS": "100", "NO_COLOR": "1"}
    stage()
    print(f"{len(list(PAGES.glob('*.md')))} pages in {PAGES}")
