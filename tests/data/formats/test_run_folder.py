"""A run folder's lock, in a folder that may come from a stranger."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from replaybench.data.run_folder import RunFolder
from replaybench.runtime.errors import UserError


def test_a_lock_that_is_a_link_is_refused_and_its_target_untouched(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("all there")
    (tmp_path / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(UserError, match=r"its \.lock is a link; remove that"), RunFolder(tmp_path).locked():
        pass
    assert (tmp_path / "precious").read_text() == "all there"


def test_a_lock_truncates_nothing(tmp_path: Path) -> None:
    """A hard link looks like any file."""
    (tmp_path / "precious").write_text("all there")
    os.link(tmp_path / "precious", tmp_path / ".lock")
    with RunFolder(tmp_path).locked():
        pass
    assert (tmp_path / "precious").read_text() == "all there"


def test_the_lock_is_free_again_after_an_error(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(OSError, match="disk"), RunFolder(tmp_path).locked():
            raise OSError("disk")
    with RunFolder(tmp_path).locked(), pytest.raises(UserError, match="another sweep"), RunFolder(tmp_path).locked():
        pass


def test_what_killed_writers_left_is_removed_and_links_are_not_followed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for folder in (run / "cells" / ".export.12.partial", tmp_path / "precious"):
        folder.mkdir(parents=True)
        (folder / "data").write_text("x")
    (run / ".results.nc.12.partial").write_text("x")
    (run / ".link.12.partial").symlink_to(tmp_path / "precious")
    RunFolder(run).remove_partial_files()
    assert [path.name for path in run.rglob("*")] == ["cells"]
    assert (tmp_path / "precious" / "data").read_text() == "x"
