"""Tables between marks in a page of Markdown or a notebook, and the words of its prose."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

TABLE = re.compile(r"(<!-- table: (?P<name>[\w.-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def markdown(page: Path) -> str:
    """Return a page's Markdown; code cells of a notebook become blocks of Python."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb":
        return text
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    return "\n\n".join(source if of == "markdown" else f"```python\n{source}\n```" for of, source in cells) + "\n"


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
