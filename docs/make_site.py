"""Make the pages of the documentation site in build/site-pages: those of docs, and those made from the package.

Run by `make docs`, before mkdocs. Help of commands, settings, plants and the interface are read from the package. Links
to files that are no page become links to the page that shows them, or plain words.
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

import numpy as np

import replaybench
from benchmarks.tables.marks import markdown
from replaybench.cli.main import COMMANDS, main
from replaybench.cli.options import EXAMPLES
from replaybench.controllers.registry import LEARNERS, load_learner
from replaybench.envs.registry import PLANTS, is_installed, make_plant, plant_class
from replaybench.experiments.study import STUDIES, Study

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build" / "site-pages"
WRITTEN = {path: path.relative_to(ROOT / "docs").as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))} | {
    EXAMPLES / "from_python.ipynb": "tutorials/from-python.md",
    ROOT / "README.md": "index.md",
    ROOT / "CONTRIBUTING.md": "contributing.md",
    ROOT / "CHANGELOG.md": "changelog.md",
    ROOT / "benchmarks/README.md": "results/measure-again.md",
}
"""Written pages, and their paths on the site."""
PICTURES = (".png", ".webp", ".svg", ".jpg")
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]*)(#[^)\s]*)?\)")


def stage() -> None:
    """Write all pages anew."""
    shutil.rmtree(PAGES, ignore_errors=True)
    (PAGES / "assets").mkdir(parents=True)
    for name in ("site.css", "iframe-worker.js"):
        shutil.copyfile(ROOT / "docs" / name, PAGES / "assets" / name)
    made = {
        "reference/commands.md": commands(),
        "reference/settings.md": settings(),
        "reference/api.md": interface(),
        "reference/examples.md": examples(),
        "reference/gallery.md": gallery(),
    }
    made |= {f"reference/plants/{name}.md": plant_page(name) for name in PLANTS.own if is_installed(name)}
    made |= {name: linked(markdown(source), source) for source, name in WRITTEN.items()}
    for notebook in EXAMPLES.glob("*.ipynb"):
        shutil.copyfile(notebook, PAGES / "assets" / notebook.name)
        made[WRITTEN[notebook]] += (
            f"\n[Download this page as a notebook](../assets/{notebook.name}), with its outputs.\n"
        )
    for name, text in made.items():
        (PAGES / name).parent.mkdir(parents=True, exist_ok=True)
        (PAGES / name).write_text(text, encoding="utf-8")


def linked(text: str, source: Path) -> str:
    """Return a page's text with links that hold on the site, and copy its pictures."""
    folder = Path(WRITTEN[source]).parent

    def to(name: str) -> str:
        return Path(os.path.relpath(name, folder)).as_posix()

    def moved(match: re.Match[str]) -> str:
        picture, words, target, anchor = match[1], match[2], match[3], match[4] or ""
        if target.startswith(("http", "mailto")) or not target:
            return match[0]
        place = (source.parent / target).resolve()
        if place.suffix in PICTURES:
            name = "-".join(place.relative_to(ROOT).parts[-3:])
            shutil.copyfile(place, PAGES / "assets" / name)
            return f"{picture}[{words}]({to(f'assets/{name}')})"
        if place in WRITTEN:
            return f"[{words}]({to(WRITTEN[place])}{anchor})"
        if place.parent == EXAMPLES:
            return f"[{words}]({to('reference/examples.md')}#{heading_id(place.name)})"
        return words

    return _LINK.sub(moved, text)


def heading_id(heading: str) -> str:
    """Return the id that a heading gets."""
    return re.sub(r"[^\w-]+", "", heading.lower().replace(" ", "-"))


def help_of(*words: str) -> str:
    """Return the help of a command."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        main([*words, "--help"])
    return re.sub(r"\x1b\[[\d;]*m", "", output.getvalue()).strip("\n")


def commands() -> str:
    """Return a page with the help of every command."""
    parts = [
        "# Commands",
        "This is the output of `replaybench COMMAND --help`. See [what each command does](../how-to/run-a-study.md).",
    ]
    parts += [f"```text\n{help_of()}\n```"]
    for name in COMMANDS:
        parts += [f"## {name}", f"```text\n{help_of(name)}\n```"]
    return "\n\n".join(parts) + "\n"


def settings_table(config: Any) -> str:
    """Return a table of a data class's fields with their defaults."""
    rows = ["| key | default |", "| --- | --- |"]
    for field in dataclasses.fields(config):
        default = field.default
        if default is dataclasses.MISSING:
            made = field.default_factory
            default = "needed" if made is dataclasses.MISSING else made()
        shown = str(default) if default is not None else "–"
        rows.append(f"| `{field.name}` | `{shown}` |".replace("``", "–"))
    return "\n".join(rows)


def settings() -> str:
    """Return a page with every key of study files and of each learner's table, with defaults."""
    parts = ["# Settings and defaults", "See [what the keys mean](study-files.md).", "## Study", settings_table(Study)]
    parts += [
        "## Learners",
        "These are keys of `[learner.NAME]`; nested tables are written `[learner.NAME.exploration]`.",
    ]
    for name in LEARNERS.own:
        _, config = load_learner(name)
        parts += [f"### {name}", inspect.cleandoc(config.__doc__ or ""), settings_table(config)]
    return "\n\n".join(parts) + "\n"


def plant_page(name: str) -> str:
    """Return the page of a plant: description, film, states, actions and parameters."""
    plant = make_plant(name)
    parts = [f"# {name}", inspect.cleandoc(type(plant).__doc__ or "")]
    film = ROOT / "docs" / "images" / "plants" / f"{name}.webp"
    if film.is_file():
        shutil.copyfile(film, PAGES / "assets" / film.name)
        parts.append(f"![{name} under random actions](../../assets/{film.name})")
    low, high = (np.broadcast_to(bound, len(plant.action_names)) for bound in (plant.action_low, plant.action_high))
    rows = zip(plant.action_names, plant.action_units, low, high, strict=True)
    parts += ["## Actions", "| action | unit | lowest | highest |\n| --- | --- | --- | --- |"]
    parts[-1] += "".join(f"\n| {action} | {unit or '–'} | {a:g} | {b:g} |" for action, unit, a, b in rows)
    states = zip(plant.state_names, plant.state_units, plant.state_center, plant.state_scale, strict=True)
    parts += [
        "## Observations",
        "Learners observe the normalised states (state − centre) / scale.",
        "| state | unit | centre | scale |",
    ]
    parts[-1] += "\n| --- | --- | --- | --- |"
    parts[-1] += "".join(f"\n| {state} | {unit or '–'} | {c:g} | {s:g} |" for state, unit, c, s in states)
    if dataclasses.fields(plant):
        parts += ["## Parameters", f"These are the keys of `[plant.{name}]`.", settings_table(type(plant))]
    return "\n\n".join([*parts, "See [all plants](../plants.md)."]) + "\n"


def interface() -> str:
    """Return the page of the interface for Python programs, from docstrings."""
    parts = [
        "# Python interface",
        "This is the public interface. See [all names](python.md) and [how to use them](../tutorials/from-python.md).",
    ]
    for name in replaybench.__all__:
        place = replaybench._PLACES[name].replace(":", ".")
        parts += [f"## {name}", f"::: replaybench.{place}"]
    return "\n\n".join(parts) + "\n"


def examples() -> str:
    """Return a page with the examples and studies of the package."""
    parts = ["# Examples", "`replaybench examples` copies these files into a folder."]
    for path in (*sorted(EXAMPLES.glob("*.py")), *sorted(EXAMPLES.glob("*.toml")), *sorted(STUDIES.glob("*.toml"))):
        parts += [f"## {path.name}", f"```{path.suffix[1:]}\n{path.read_text(encoding='utf-8').strip()}\n```"]
    return "\n\n".join(parts) + "\n"


def gallery() -> str:
    """Return a page with every plant that has a film."""
    parts = [
        "# Gallery",
        "Each film shows a plant under random actions. `replaybench show PLANT --output FILE.gif` makes such a film.",
    ]
    films = ROOT / "docs" / "images" / "plants"
    for name in PLANTS.own:
        film = films / f"{name}.webp"
        if film.is_file():
            shutil.copyfile(film, PAGES / "assets" / film.name)
            described = inspect.cleandoc(plant_class(name).__doc__ or "").split("\n\n")[0]
            parts += [f"## {name}", f"![{name} under random actions](../assets/{film.name})", described]
            parts += [f"See its [observations and parameters](plants/{name}.md)."] if is_installed(name) else []
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    os.environ |= {"COLUMNS": "100", "NO_COLOR": "1"}
    stage()
    print(f"{len(list(PAGES.rglob('*.md')))} pages in {PAGES}")
