"""TOML and JSON as editors write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from replaybench.data.documents import parse_json, read_json, read_toml
from replaybench.runtime.errors import UserError


def test_the_mark_that_editors_of_windows_leave_is_no_part_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text('name = "märz"\n', encoding="utf-8-sig")
    (tmp_path / "facts.json").write_text('{"name": "märz"}', encoding="utf-8-sig")
    assert read_toml(tmp_path / "study.toml") == read_json(tmp_path / "facts.json") == {"name": "märz"}


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1" + "0" * 400, "1" + "0" * 5000])
def test_numbers_that_would_become_infinite_are_refused(number: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="too large|digits"):
        parse_json(f'{{"stints": [{{"memory": {number}}}]}}', "it is damaged")
    if "e" in number:
        (tmp_path / "study.toml").write_text(f"rate = {number}\n")
        with pytest.raises(UserError, match="too large"):
            read_toml(tmp_path / "study.toml")
    assert parse_json('{"a": Infinity, "b": 3, "c": -2.5e3}', "") == {"a": float("inf"), "b": 3, "c": -2500.0}


def test_halves_of_characters_become_escapes() -> None:
    """Neither figures nor files can hold them; whole characters stay."""
    told = parse_json('{"pl\\ud800ant": ["\\ud800", {"a": "μ\\ud83d\\ude00"}]}', "")
    assert told == {"pl\\ud800ant": ["\\ud800", {"a": "μ\U0001f600"}]}
