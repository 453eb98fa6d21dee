"""TOML and JSON as editors write them."""

from __future__ import annotations

from pathlib import Path

from replaybench.data.formats.documents import read_json, read_toml


def test_the_mark_that_editors_of_windows_leave_is_no_part_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text('name = "märz"\n', encoding="utf-8-sig")
    (tmp_path / "facts.json").write_text('{"name": "märz"}', encoding="utf-8-sig")
    assert read_toml(tmp_path / "study.toml") == read_json(tmp_path / "facts.json") == {"name": "märz"}
