"""Tables in terminals of all widths: names stay whole, and other content gives way in order."""

from __future__ import annotations

import os

import pytest
from rich.console import Console

from replaybench.experiments.text_table import FittedTable

LONG = "Drop(0.5)*Synth(action=0.25)*FIFO(5000)[PERprop(0.65)+IS(0.45→0.95)]"


def table(*strategies: str) -> FittedTable:
    found = FittedTable(
        ("cell", "strategy", "noise", "state", "reward"), ("strategy",), ("reward",), ("state", "reward"), title="t"
    )
    for place, strategy in enumerate(strategies):
        found.add(f"{place:016x}", strategy, "0.02", f"complete {place}", f"-{place}23.45")
    return found


def printed(content: FittedTable, width: int) -> list[str]:
    with open(os.devnull, "w") as nowhere:
        console = Console(width=width, record=True, file=nowhere)
        console.print(content)
        return console.export_text().splitlines()


def test_columns_that_fit_stand_side_by_side() -> None:
    title, _, headings, _, row, *_ = printed(table("FIFO[Uniform]"), 80)
    assert title == "t"
    assert headings.split() == ["cell", "strategy", "noise", "state", "reward"]
    assert row.split() == ["0" * 16, "FIFO[Uniform]", "0.02", "complete", "0", "-023.45"]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_names_stay_in_one_piece(width: int) -> None:
    lines = printed(table(LONG, "FIFO[Uniform]"), width)
    assert any(LONG in line for line in lines)
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)


def test_values_that_all_rows_share_are_written_once() -> None:
    lines = printed(table("FIFO[Uniform]", "FULL[PER+IS(0.45→0.95)]"), 76)
    assert "all: noise 0.02" in lines
    assert not any("noise" in line for line in lines[2:])
    assert any("FULL[PER+IS(0.45→0.95)]   complete 1" in line for line in lines)


def test_names_get_lines_of_their_own_before_columns_are_left_out() -> None:
    assert table(LONG, "FIFO[Uniform]").lines_a_row(200) == 1
    assert table(LONG, "FIFO[Uniform]").lines_a_row(80) == 2
    lines = printed(table(LONG, "FIFO[Uniform]"), 80)
    assert lines[lines.index(LONG) + 1].split() == ["0" * 16, "complete", "0", "-023.45"]
    narrow = printed(table("FIFO[Uniform]", "FULL[PER]"), 30)
    assert narrow[narrow.index("FIFO[Uniform]") + 1].split() == ["0" * 16, "complete", "0"]
    assert "no room for reward" in narrow
    assert "no room for reward, state" in printed(table("FIFO[Uniform]", "FULL[PER]"), 25)


def test_a_table_without_rows_and_text_like_markup_are_printed() -> None:
    assert printed(table(), 80)[2].split() == ["cell", "strategy", "noise", "state", "reward"]
    assert any("[bold]x[/]" in line for line in printed(table("[bold]x[/]"), 80))
