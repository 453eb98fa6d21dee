"""The documentation is true: its links lead somewhere, its studies and commands parse, its Python compiles."""

from __future__ import annotations

import re
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from replaybench.data.configuration import build
from replaybench.experiments.cli import COMMANDS, main
from replaybench.experiments.plan_warnings import plan_warnings
from replaybench.experiments.training.study import Study

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks/README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
TARGETS = {line.split(":")[0] for line in (ROOT / "Makefile").read_text().splitlines() if re.match(r"[a-z]+:", line)}


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def save_files(page: Path, folder: Path) -> bool:
    """Write the blocks that a page says how to save, and return whether there are any."""
    named = re.findall(r"as\s`([\w.]+)`:\n\n```\w+\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    for name, text in named:
        (folder / name).write_text(text, encoding="utf-8")
    return bool(named)


def anchors(page: Path) -> set[str]:
    """What links may name after ``#``: the headings in lower case, spaces as hyphens, other punctuation dropped."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)|<img[^>]*src=\"([^\"]+)\"", page.read_text(encoding="utf-8")):
        link, _, anchor = "".join(target).partition("#")
        if not link.startswith("http"):
            found = page.parent / link if link else page
            assert found.exists(), link
            assert not anchor or anchor in anchors(found), f"{link}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_blocks_are_valid(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_readme_shows_every_command() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for command in COMMANDS:
        assert f"replaybench {command}" in text


@pytest.mark.parametrize(("guide", "files"), [("plant", 7), ("strategy", 3), ("learner", 2)])
def test_the_guides_are_followed_literally(
    guide: str, files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their files are saved as they say, and their commands run where they are."""
    page = ROOT / "docs" / f"add-a-{guide}.md"
    assert save_files(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    saved = {path.name for path in tmp_path.iterdir()}
    assert len(saved) == len(blocks(page, "python")) + len(blocks(page, "toml")) == files
    ran = [shlex.split(line) for text in blocks(page, "sh") for line in text.splitlines()]
    for words in ran:
        assert words[0] == "replaybench"
        with pytest.raises(SystemExit) as ended:
            main(words[1:])
        assert not ended.value.code, words
    assert {word for words in ran for word in words} >= {name for name in saved if name.endswith(".toml")}
    results = {path.parent.name for path in tmp_path.glob("runs/*/results.nc")}
    assert results == {Path(words[2]).stem for words in ran if words[1] == "sweep" and "--dry-run" not in words}


@pytest.mark.parametrize(("guide", "example"), [("strategy", "newest_first.py"), ("learner", "own_learner.py")])
def test_the_guides_show_the_examples_as_they_are(guide: str, example: str) -> None:
    shown, *_ = blocks(ROOT / "docs" / f"add-a-{guide}.md", "python")
    assert shown == (ROOT / "replaybench" / "examples" / example).read_text(encoding="utf-8")
