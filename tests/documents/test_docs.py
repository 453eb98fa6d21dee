"""Documents and the site: links, numbers, pages."""

import ast
import dataclasses
import re
import runpy
import shlex
import shutil
import subprocess
import tomllib
import typing
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import replaybench
from benchmarks.tables.marks import markdown, prose
from replaybench.cli.main import COMMANDS
from replaybench.controllers.registry import LEARNERS, load_learner
from replaybench.envs.registry import PLANTS
from replaybench.experiments.plan import plan_warnings
from replaybench.experiments.study import Study
from replaybench.runtime.configuration import build
from replaybench.runtime.user_file import import_file
from tests.helpers.commands import Patch, call

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks/README.md",
    ROOT / "replaybench/examples/from_python.ipynb",
    *sorted((ROOT / "docs").rglob("*.md")),
]
GUIDES = {
    "plant": "tutorials/own-plant.md",
    "rig": "tutorials/your-rig.md",
    "strategy": "how-to/add-a-strategy.md",
    "learner": "how-to/add-a-learner.md",
}
LIMITS = {"README.md": 800, "docs/explanation/architecture.md": 800}
"""Words of prose that a page may have, 1500 by default; tables and code are not counted."""
GROWING = {"CHANGELOG.md"}
UNWANTED_ANYWHERE = r"""surely|heeds?|beside|alike|flipped\ signs|dead\ (?:runs?|learners?|seeds?)|what\ matters
    |by\ a\ share|what\ is\ (?:kept|replayed|learned)|what\ came\ of|slow\ cop(?:y|ies)|the\ newest\ alone
    |heading\ off|sharp\ edges?"""
UNWANTED = re.compile(
    rf"""\b({UNWANTED_ANYWHERE}|(?:not|is|are)\ told|tells?\ (?:how|that|whether|which|what)|surprise|as\ it\ comes
    |(?:runs?|learners?)\ (?:is|are)\ dead|(?:other|altered)\ (?:states|actions)|what\ was\ surprising)\b""",
    re.IGNORECASE | re.VERBOSE,
)
"""Words of this project that readers do not know; plain ones stand in their place."""
UNWANTED_IN_CODE = re.compile(
    rf"""\b({UNWANTED_ANYWHERE}|(?<!too\ near\ to\ )tells?|told|heeded|handful|came\ of\ it|surpris(?:e|es|ed|ing)
    |a\ stranger's|for\ people)\b""",
    re.IGNORECASE | re.VERBOSE,
)
"""The same in messages and help, in any sense; stored pictures contain "too near to tell"."""
TARGETS = {line.split(":")[0] for line in (ROOT / "Makefile").read_text().splitlines() if re.match(r"[a-z-]+:", line)}


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", markdown(page), re.DOTALL)


def save_files(page: Path, folder: Path) -> bool:
    """Write the blocks that a page says how to save, and return whether there are any."""
    named = re.findall(r"as\s`([\w.]+)`:\n\n```\w+\n(.*?)```", markdown(page), re.DOTALL)
    for name, text in named:
        (folder / name).write_text(text, encoding="utf-8")
    return bool(named)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page: its headings in lower case, spaces as hyphens, other punctuation dropped."""
    headings = re.findall(r"^#+ (.+)$", markdown(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in GROWING], ids=name_of)
def test_pages_are_short_and_plain(page: Path) -> None:
    text = prose(markdown(page))
    assert len(text.split()) <= LIMITS.get(name_of(page), 1500)
    assert not UNWANTED.findall(text)


def test_messages_and_help_use_plain_words() -> None:
    """Every text in the code but docstrings; those of commands are their help. Names and comments are free."""
    found = []
    for path in sorted((ROOT / "replaybench").rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        docstrings = (
            {id(node.value) for node in nodes if isinstance(node, ast.Expr)} if path.parent.name != "cli" else ()
        )
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                found += [f"{name_of(path)}:{node.lineno} {word}" for word in UNWANTED_IN_CODE.findall(node.value)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)|<img[^>]*src=\"([^\"]+)\"", markdown(page)):
        link, _, anchor = "".join(target).partition("#")
        if not link.startswith("http"):
            found = page.parent / link if link else page
            assert found.exists(), link
            assert not anchor or anchor in anchors(found), f"{link}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_blocks_are_valid(page: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    if save_files(page, tmp_path):
        monkeypatch.chdir(tmp_path)
    for text in blocks(page, "toml"):
        study = build(Study, {"name": "docs", **tomllib.loads(text)}, str(page))
        cells = replace(study, start={}).cells()  # policies that it starts with are the reader's
        assert cells
        assert not plan_warnings(cells)
    for text in blocks(page, "python"):
        compile(text, str(page), "exec")
    for text in blocks(page, "sh"):
        for line in text.splitlines():
            words = line.split()
            if words[:1] == ["make"]:
                assert words[1] in TARGETS, line
            elif words[:1] == ["replaybench"]:
                assert words[1] in COMMANDS or words[1] in ("--version", "--tyro-print-completion"), line
                for path in (word for word in words if word.startswith("examples/")):
                    assert (ROOT / "replaybench" / path).exists(), line


def test_every_command_is_shown_and_listed() -> None:
    shown = "".join(markdown(page) for page in PAGES)
    listed = markdown(ROOT / "docs/how-to/run-a-study.md").partition("## All commands")[2]
    for command in COMMANDS:
        assert f"replaybench {command}" in shown
        assert f"`{command}`" in listed


@pytest.mark.slow
@pytest.mark.parametrize(("guide", "files"), [("plant", 7), ("rig", 4), ("strategy", 3), ("learner", 2)])
def test_the_guides_are_followed_literally(guide: str, files: int, tmp_path: Path, monkeypatch: Patch) -> None:
    page = ROOT / "docs" / GUIDES[guide]
    assert save_files(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    saved = {path.name for path in tmp_path.iterdir()}
    assert len(saved) == len(blocks(page, "python")) + len(blocks(page, "toml")) == files
    ran = [shlex.split(line) for text in blocks(page, "sh") for line in text.splitlines()]
    for words in ran:
        if words[0] == "python":
            runpy.run_path(words[1])
        elif words[0] == "cc":
            if shutil.which("cc"):
                subprocess.run(" ".join(words), shell=True, check=True)
        else:
            assert words[0] == "replaybench"
            assert call(*words[1:]) == 0, words
    assert {word for words in ran for word in words} >= {name for name in saved if name.endswith(".toml")}
    results = {path.parent.name for path in tmp_path.glob("runs/*/results.nc")}
    assert results == {Path(words[2]).stem for words in ran if words[1] == "sweep" and "--dry-run" not in words}


@pytest.mark.parametrize(("guide", "example"), [("strategy", "newest_first.py"), ("learner", "own_learner.py")])
def test_the_guides_show_the_examples_as_they_are(guide: str, example: str) -> None:
    shown, *_ = blocks(ROOT / "docs" / GUIDES[guide], "python")
    assert shown == (ROOT / "replaybench" / "examples" / example).read_text(encoding="utf-8")


def keys(config: Any, prefix: str = "") -> Iterator[str]:
    """Yield the settings of a data class, and those of its tables as `table.key`."""
    for name, hint in typing.get_type_hints(config).items():
        yield prefix + name
        for kind in typing.get_args(hint) or (hint,):
            if dataclasses.is_dataclass(kind):
                yield from keys(kind, f"{prefix}{name}.")


def test_the_table_of_settings_names_the_learners_that_have_them() -> None:
    page = markdown(ROOT / "docs/reference/learners.md").partition("## Settings")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w.]+)` \| .+ \| ([^|]+) \|$", page, re.MULTILINE)
    assert len(rows) > 60
    for setting, words in rows:
        named = set(re.split(", ", words.removeprefix("all but "))) - {"all"}
        named = {*LEARNERS.own} - named if words.startswith("all") else named
        assert named == {name for name in LEARNERS.own if setting in keys(load_learner(name)[1])}, setting


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Return the script that makes the pages, after it has made them in a temporary folder."""
    for package in ("dm_control", "pybullet"):
        pytest.importorskip(package)
    module = import_file(ROOT / "docs" / "make_site.py", "Python", "make_site")
    vars(module)["PAGES"] = tmp_path_factory.mktemp("site")
    module.stage()
    return module


def text(site: ModuleType, name: str) -> str:
    return str((site.PAGES / "reference" / name).read_text(encoding="utf-8"))


@pytest.mark.slow
def test_everything_is_shown(site: ModuleType) -> None:
    commands = re.findall(r"^## (.+)$", text(site, "commands.md"), re.MULTILINE)
    assert commands == list(COMMANDS)
    assert text(site, "commands.md").count("usage: replaybench") == len(COMMANDS) + 1
    settings = text(site, "settings.md")
    assert all(f"| `{field.name}` |" in settings for field in dataclasses.fields(Study))
    assert all(f"### {name}\n" in settings for name in LEARNERS.own)
    assert all("## Observations" in text(site, f"plants/{name}.md") for name in PLANTS.own)
    assert all(f"## {name}\n" in text(site, "api.md") for name in replaybench.__all__)
    examples = {path.name for path in (ROOT / "replaybench/examples").glob("*.py")}
    assert all(f"## {name}\n" in text(site, "examples.md") for name in examples)


@pytest.mark.slow
def test_every_page_can_be_found(site: ModuleType) -> None:
    listed = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    pages = {path.relative_to(site.PAGES).as_posix() for path in site.PAGES.rglob("*.md")}
    assert listed == {page for page in pages if not page.startswith("reference/plants/")}


@pytest.mark.slow
def test_links_stay_on_the_site(site: ModuleType) -> None:
    found = 0
    for page in site.PAGES.rglob("*.md"):
        plain = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#\s]+)", plain):
            if not target.startswith("http"):
                found += 1
                assert (page.parent / target).is_file(), f"{page.name}: {target}"
    assert found > 100
