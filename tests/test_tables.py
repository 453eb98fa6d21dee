"""Every measurement in the documents is what the stored files say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.tables import claims_picture, coverage, pages
from benchmarks.tables.marks import filled, names, unmarked
from benchmarks.tables.text import number, significant
from replaybench.experiments.presets.preset import preset_names

MEASUREMENT = re.compile(
    r"−\d+\.?\d* \[|\d \[[−\d]|\d+(\.\d+)?× (as|faster|slower|cheaper)|\d (updates|steps|actions|items|M)?/s\b"
)
"""How measurements look: means with intervals, factors, rates."""


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: f"{page.parent.name}-{page.name}")
def test_pages_are_as_the_stored_files_say(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == pages.rewritten(page), "run `make tables`"


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
    assert set(pages.texts()) == shown


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: f"{page.parent.name}-{page.name}")
def test_no_measurement_stands_outside_marked_places(page: Path) -> None:
    assert not MEASUREMENT.findall(unmarked(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: f"{page.parent.name}-{page.name}")
def test_no_line_begins_with_a_mark(page: Path) -> None:
    """To Markdown it would be a block of HTML, which cuts the paragraph in two."""
    assert not re.findall(r"^\s*<!--v:.*", page.read_text(encoding="utf-8"), re.MULTILINE)


def test_marked_places_are_filled_and_missing_ones_named() -> None:
    page = "a <!--v:one-->old<!--/--> b\n<!-- table: two -->\nold\n<!-- end -->\n"
    done = filled(page, {"one": "1.5", "two": "| x |"})
    assert done == "a <!--v:one-->1.5<!--/--> b\n<!-- table: two -->\n\n| x |\n\n<!-- end -->\n"
    assert filled(done, {"one": "1.5", "two": "| x |"}) == done
    with pytest.raises(KeyError, match="two"):
        filled(page, {"one": "1.5"})
    with pytest.raises(ValueError, match="no other end"):
        filled("a <!--v:one-->1.5 b", {"one": "1.5"})
    with pytest.raises(ValueError, match="is a table"):
        filled(page, {"one": "1\n2", "two": ""})


@pytest.mark.parametrize(
    ("value", "text"), [(0.0436, "0.044"), (1630.0, "1,600"), (26.4, "26"), (-0.5, "−0.50"), (2.1e22, "above 10²²")]
)
def test_numbers_keep_their_significant_digits(value: float, text: str) -> None:
    assert significant(value) == text


def test_numbers_are_written_with_signs_and_separators() -> None:
    assert [number(-1234.56, 1), number(-0.001), number(float("nan"))] == ["−1,234.6", "0.00", "–"]
