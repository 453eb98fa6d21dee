"""Every measurement in the documents equals the stored files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.tables import claims_picture, coverage, pages
from benchmarks.tables.marks import filled, names, prose
from benchmarks.tables.text import number, significant
from replaybench.evidence.preset import preset_names

MEASUREMENT = re.compile(
    r"−\d+\.?\d* \[|\d \[[−\d]|\d+(\.\d+)?× (as|faster|slower|cheaper)|\d (updates|steps|actions|items|M)?/s\b"
)
"""How measurements look: means with intervals, factors, rates."""


EVERY_PAGE = pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.relative_to(pages.ROOT).as_posix())


@EVERY_PAGE
def test_tables_and_sentences_are_as_the_stored_files_say(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == pages.rewritten(page), "run `make tables`"
    assert [sentence for sentence in pages.sentences(page) if sentence not in pages.plain(text)] == []


def test_a_changed_number_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    readme = pages.ROOT / "README.md"
    pattern = next(pattern for pattern, name in pages.patterns()["README.md"].items() if name == "findings.furthest")
    monkeypatch.setattr(pages, "patterns", lambda: {"README.md": {pattern: "findings.furthest"}})
    for value, found in (("0.020", True), ("0.021", False)):
        monkeypatch.setattr(pages, "texts", lambda value=value: {"findings.furthest": value})
        (sentence,) = pages.sentences(readme)
        assert (sentence in pages.plain(readme.read_text(encoding="utf-8"))) is found


def test_the_pictures_of_claims_show_what_their_tables_say() -> None:
    assert not claims_picture.outdated(), "run `make tables`"


def test_every_preset_of_the_five_papers_is_on_the_page_of_coverage() -> None:
    named = {
        paper: {entry for entries in found.values() for entry in entries} for paper, found in coverage.parts().items()
    }
    for preset in preset_names():
        paper = preset.partition("/")[0]
        assert preset in named.get(paper, {preset}), f"add {preset} to benchmarks/tables/coverage.toml"
    assert set(named) == {"debruin2018", "novati2019", "wang2017", "sun2020", "wang2019"}


def test_every_text_is_shown_somewhere() -> None:
    shown = set().union(*(names(page.read_text(encoding="utf-8")) for page in pages.PAGES))
    for sentences in pages.patterns().values():
        shown |= {name for of in sentences.values() for name in ([of] if isinstance(of, str) else of)}
    assert set(pages.texts()) == shown
    assert set(pages.patterns()) <= {page.relative_to(pages.ROOT).as_posix() for page in pages.PAGES}


@EVERY_PAGE
def test_no_measurement_stands_outside_tables_and_checked_sentences(page: Path) -> None:
    text = pages.plain(prose(page.read_text(encoding="utf-8")))
    for sentence in pages.sentences(page):
        text = text.replace(pages.plain(prose(sentence)), "")
    assert not MEASUREMENT.findall(text)


def test_marked_tables_are_filled_and_missing_ones_named() -> None:
    page = "a b\n<!-- table: two -->\nold\n<!-- end -->\n"
    done = filled(page, {"two": "| x |"})
    assert done == "a b\n<!-- table: two -->\n\n| x |\n\n<!-- end -->\n"
    assert filled(done, {"two": "| x |"}) == done
    with pytest.raises(KeyError, match="two"):
        filled(page, {})
    with pytest.raises(ValueError, match="no other end"):
        filled("<!-- table: two --> b", {})


@pytest.mark.parametrize(
    ("value", "text"), [(0.0436, "0.044"), (1630.0, "1,600"), (26.4, "26"), (-0.5, "−0.50"), (2.1e22, "above 10²²")]
)
def test_numbers_keep_their_significant_digits(value: float, text: str) -> None:
    assert significant(value) == text


def test_numbers_are_written_with_signs_and_separators() -> None:
    assert [number(-1234.56, 1), number(-0.001), number(float("nan"))] == ["−1,234.6", "0.00", "–"]
