"""Read TOML and JSON files as dictionaries, and write tables as JSON, CSV, Markdown or Parquet.

Readers refuse deep nesting, numbers of thousands of digits, and numbers such as 1e400, which would become infinite.
Unpaired surrogates in JSON texts become escapes, because figures and files cannot contain surrogates.
"""

import csv
import html
import io
import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from replaybench.runtime.atomic import atomic_path, new_path, write_text
from replaybench.runtime.errors import UserError, need

DEEPEST: Final = 50
"""Largest depth of nested tables and lists that a file may have."""


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file as a dictionary, or raise `UserError` if the file is missing or invalid."""
    return _parse(partial(tomllib.loads, parse_float=_number), _text(path, "TOML"), f"{path} is not valid TOML")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file, or raise `UserError` if the file is missing or contains no JSON object."""
    return parse_json(_text(path, "JSON"), f"{path} is not valid JSON")


def parse_json(text: str | bytes, fault: str) -> dict[str, Any]:
    """Parse a JSON object, or raise `UserError` with a message that begins with `fault`."""
    table = _parse(partial(json.loads, parse_float=_number, parse_int=_whole_number), text, fault)
    return cast(dict[str, Any], _writable(table))


def _text(path: Path, form: str) -> str:
    if path.exists() and not path.is_file():  # a pipe would never end
        raise UserError(f"{path} cannot be read: it is no regular file")
    try:
        return path.read_text(encoding="utf-8-sig")  # some editors begin a file with a byte-order mark
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not valid {form}: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def _parse(parser: Callable[[Any], Any], text: str | bytes, fault: str) -> dict[str, Any]:
    try:
        table = parser(text)
    except RecursionError:
        raise UserError(f"{fault}: it is nested too deeply") from None
    except ValueError as error:
        raise UserError(f"{fault}: {' '.join(str(error).split())}") from None
    if not isinstance(table, dict):
        raise UserError(f"{fault}: it holds no table")
    if _depth(table) > DEEPEST:
        raise UserError(f"{fault}: it is nested more than {DEEPEST} levels deep")
    return table


def _number(text: str) -> float:
    """Return the number in a text, or raise `ValueError` if a finite number is too large for a float."""
    value = float(text)
    if math.isinf(value) and "inf" not in text:
        raise ValueError(f"the number {text[:20]} is too large")
    return value


def _whole_number(text: str) -> int:
    _number(text)
    return int(text)


def _writable(value: Any) -> Any:
    """Return parsed JSON with escapes in place of unpaired surrogates."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode(errors="backslashreplace").decode()
    if isinstance(value, list):
        return [_writable(entry) for entry in value]
    if isinstance(value, dict):
        return {_writable(key): _writable(entry) for key, entry in value.items()}
    return value


def _depth(table: dict[str, Any]) -> int:
    """Return the depth of nested tables and lists. Recursion is avoided, because it could exceed Python's limit."""
    level: list[Any] = [table]
    depth = 0
    while level:
        inner = (value.values() if isinstance(value, dict) else value for value in level)
        level = [entry for values in inner for entry in values if isinstance(entry, dict | list)]
        depth += 1
    return depth


COLUMN_SUFFIXES: Final = (".csv", ".json", ".md", ".parquet")


def check_columns_file(path: Path) -> Path:
    """Return the absolute path of a table to write.

    Raises:
        UserError: If `path` exists, has an unsupported suffix, or needs a package that is not installed.
    """
    if path.suffix.lower() not in COLUMN_SUFFIXES:
        raise UserError(f"{path} must end in .csv, .json, .md or .parquet")
    place = new_path(path, "remove it or choose another name")
    if path.suffix.lower() == ".parquet":
        need("pyarrow", f"{path} is Parquet, which needs the extra: pip install 'replaybench[parquet]'")
    return place


def write_columns(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write columns of equal length atomically to a CSV, JSON, Markdown or Parquet file.

    The suffix of the path selects the format.
    """
    if path.suffix.lower() == ".parquet":
        import pyarrow
        import pyarrow.parquet

        with atomic_path(path) as temporary:
            pyarrow.parquet.write_table(pyarrow.table(dict(columns)), temporary)
        return
    write_text(path, rows_text(as_rows(columns), path.suffix.lower()[1:]))


def as_rows(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Convert columns of equal length to a list of rows."""
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def rows_text(rows: Sequence[Mapping[str, Any]], form: str) -> str:
    """Return rows as text in the format `csv`, `md` (Markdown), `latex` or `json`.

    JSON is a list of objects, with null in place of NaN and infinity. Other formats leave missing entries empty. LaTeX
    is a `tabular` with the rules of the package booktabs.
    """
    if form == "json":
        plain = [{key: json_value(value) for key, value in row.items()} for row in rows]
        return json.dumps(plain, indent=1, ensure_ascii=False) + "\n"
    headings = list(dict.fromkeys(key for row in rows for key in row))
    cells = [headings, *([row.get(heading, "") for heading in headings] for row in rows)]
    if form == "md":
        lines = ["| " + " | ".join(_markdown_cell(cell) for cell in line) + " |" for line in cells]
        return "\n".join([lines[0], "|" + " --- |" * len(headings), *lines[1:]]) + "\n"
    if form == "latex":
        first, *others = (" & ".join(_latex_cell(cell) for cell in line) + r" \\" for line in cells)
        begin, end = rf"\begin{{tabular}}{{{'l' * len(headings)}}}", r"\end{tabular}"
        return "\n".join([begin, r"\toprule", first, r"\midrule", *others, r"\bottomrule", end]) + "\n"
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([[_csv_cell(cell) for cell in line] for line in cells])
    return text.getvalue()


def json_value(value: Any) -> Any:
    """Return a value, or None in place of NaN and infinity, which JSON lacks."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


_LATEX: Final = str.maketrans(
    {character: rf"\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$"}
    | {"−": "$-$", "≥": r"$\ge$", "≤": r"$\le$", "×": r"$\times$", "·": r"$\cdot$", "†": r"$\dagger$", "∞": r"$\infty$"}
    | {"μ": r"$\mu$", "σ": r"$\sigma$", "γ": r"$\gamma$", "Δ": r"$\Delta$", "θ": r"$\theta$", "‖": r"$\|$", "–": "--"}
)
"""LaTeX for characters that have a meaning there, or that pdfLaTeX lacks."""


def _latex_cell(value: Any) -> str:
    return re.sub(r"(?<!\w)-(?=\d)", "$-$", str(value).replace("\n", " ").translate(_LATEX))


_FORMULA: Final = re.compile(r"[=@\t\r]|[+\-](?![\d.]+(e[+\-]?\d+)?( \[[\d.,e+\- ]*\]| \([a-z ]+\))?\Z)")
"""Beginning of a text that spreadsheets run as a formula: not of a number, or of a number with its interval."""


def _csv_cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def _markdown_cell(value: Any) -> str:
    return html.escape(str(value), quote=False).replace("\\", "\\\\").replace("|", "\\|").replace("\n", "<br>")
