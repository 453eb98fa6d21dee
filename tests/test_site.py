"""The site shows every command, setting, plant, example and public name, and its links lead to its own pages."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import replaybench
from replaybench.cli.main import COMMANDS
from replaybench.controllers.registry import LEARNERS
from replaybench.envs.registry import PLANTS
from replaybench.experiments.study import Study

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Return the script that makes the pages, after it has made them in a temporary folder."""
    for package in ("dm_control", "pybullet"):
        pytest.importorskip(package)
    spec = importlib.util.spec_from_file_location("make_site", ROOT / "docs" / "make_site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_site"] = module
    spec.loader.exec_module(module)
    vars(module)["PAGES"] = tmp_path_factory.mktemp("site")
    module.stage()
    return module


def text(site: ModuleType, name: str) -> str:
    return str((site.PAGES / "reference" / name).read_text(encoding="utf-8"))


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


def test_every_page_can_be_found(site: ModuleType) -> None:
    listed = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    pages = {path.relative_to(site.PAGES).as_posix() for path in site.PAGES.rglob("*.md")}
    assert listed == {page for page in pages if not page.startswith("reference/plants/")}


def test_links_stay_on_the_site(site: ModuleType) -> None:
    found = 0
    for page in site.PAGES.rglob("*.md"):
        plain = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#\s]+)", plain):
            if not target.startswith("http"):
                found += 1
                assert (page.parent / target).is_file(), f"{page.name}: {target}"
    assert found > 100
