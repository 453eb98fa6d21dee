"""TOML and JSON from files: read to plain tables, or refused in one line.

What a parser raises beside its own errors is a stranger's doing as well: nesting without end is a `RecursionError`, a
number of thousands of digits a plain `ValueError`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from replaybench.data.errors import UserError

DEEPEST: Final = 50
"""Levels of tables and lists within each other that are read."""


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        UserError: it is missing or damaged.
    """
    return _parse(tomllib.loads, _text(path, "TOML"), f"{path} is not valid TOML")


def read_json(path: Path) -> dict[str, Any]:
    """Read a file that holds a JSON object; raises as `read_toml`."""
    return parse_json(_text(path, "JSON"), f"{path} is not valid JSON")


def parse_json(text: str | bytes, fault: str) -> dict[str, Any]:
    """Return the JSON object that a text holds; `fault` begins the error if it holds none."""
    return _parse(json.loads, text, fault)


def _text(path: Path, form: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # with a mark before it, as editors of Windows leave
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not valid {form}: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def _parse(parser: Callable[[Any], Any], text: str | bytes, fault: str) -> dict[str, Any]:
    try:
        found = parser(text)
    except RecursionError:
        raise UserError(f"{fault}: it is nested too deeply") from None
    except ValueError as error:
        raise UserError(f"{fault}: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise UserError(f"{fault}: it holds no table")
    if _depth(found) > DEEPEST:
        raise UserError(f"{fault}: it is nested more than {DEEPEST} levels deep")
    return found


def _depth(table: dict[str, Any]) -> int:
    """Return how many levels of tables and lists there are, level by level: recursion would meet its own end."""
    level: list[Any] = [table]
    depth = 0
    while level:
        inner = (value.values() if isinstance(value, dict) else value for value in level)
        level = [entry for values in inner for entry in values if isinstance(entry, dict | list)]
        depth += 1
    return depth
