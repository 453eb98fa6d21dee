"""Tables between marks in a page of Markdown, and the words of its prose."""

from __future__ import annotations

import re
from collections.abc import Mapping

TABLE = re.compile(r"(<!-- table: (?P<name>[\w.-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def names(text: str) -> set[str]:
    """Return the names of all marked tables."""
    return {found["name"] for found in TABLE.finditer(text)}


def filled(text: str, texts: Mapping[str, str]) -> str:
    """Return a page with its marked tables filled.

    Raises:
        KeyError: a table's name is unknown.
        ValueError: a mark has no other end.
    """
    if lone := re.search(r"<!-- table:.*?-->|<!-- end -->", TABLE.sub("", text)):
        raise ValueError(f"{lone[0]} has no other end")
    return TABLE.sub(lambda found: f"{found[1]}\n{texts[found['name']]}\n\n{found[3]}", text)


def prose(text: str) -> str:
    """Return a page without marked tables, other tables, code, comments and the targets of links."""
    text = re.sub(r"^```.*?^```", "", TABLE.sub("", text), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("|"))
