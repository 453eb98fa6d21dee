"""Marked places in a page of Markdown, and what fills them."""

from __future__ import annotations

import re
from collections.abc import Mapping

TABLE = re.compile(r"(<!-- table: (?P<name>[\w.-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
VALUE = re.compile(r"(<!--v:(?P<name>[\w.-]+)-->)[^<]*(<!--/-->)")
MARK = re.compile(r"<!--.*?-->", re.DOTALL)


def names(text: str) -> set[str]:
    """Return the names of all marked places."""
    return {found["name"] for pattern in (TABLE, VALUE) for found in pattern.finditer(text)}


def filled(text: str, texts: Mapping[str, str]) -> str:
    """Return a page with its marked places filled.

    Raises:
        KeyError: a place's name is unknown.
        ValueError: a mark has no other end, or a table is to stand inside a line.
    """

    def table(found: re.Match[str]) -> str:
        return f"{found[1]}\n{texts[found['name']]}\n\n{found[3]}"

    def value(found: re.Match[str]) -> str:
        if "\n" in texts[found["name"]]:
            raise ValueError(f"{found['name']} is a table: mark it as one")
        return f"{found[1]}{texts[found['name']]}{found[3]}"

    left = VALUE.sub("", TABLE.sub("", text))
    if lone := re.search(r"<!-- table:.*?-->|<!-- end -->|<!--v:.*?-->|<!--/-->", left):
        raise ValueError(f"{lone[0]} has no other end")
    return VALUE.sub(value, TABLE.sub(table, text))


def unmarked(text: str) -> str:
    """Return what is left of a page without marked places and blocks of code."""
    return re.sub(r"```.*?```", "", VALUE.sub("", TABLE.sub("", text)), flags=re.DOTALL)
