"""Files beside users' files: each takes its own folder's, and what is edited is another one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replaybench.data.source_hash import made_of
from replaybench.data.user_file import InFile, class_in_file
from replaybench.replay.strategies.retention.interface import Retention

MINE = """
from replaybench.replay.strategies.retention.interface import Retention
IMPORTED

class Mine(Retention):
    share = SHARE
"""


@pytest.fixture(autouse=True)
def modules() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("helper", "tools") or name.startswith("replaybench_"):
            del sys.modules[name]


def mine(folder: Path, helper: str, imported: str = "from helper import SHARE", file: str = "helper.py") -> type[Any]:
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(helper)
    (folder / "mine.py").write_text(MINE.replace("IMPORTED", imported))
    return class_in_file(InFile(folder / "mine.py", "Mine"), "retention", Retention)


@pytest.mark.parametrize("file", ["helper.py", "helper/__init__.py"])
def test_each_file_imports_from_its_own_folder(file: str, tmp_path: Path) -> None:
    first = mine(tmp_path / "a", "SHARE = 0.25\n", file=file)
    shared = sys.modules["helper"]
    second = mine(tmp_path / "b", "SHARE = 0.125\n", file=file)
    assert (first.share, second.share) == (0.25, 0.125)
    assert sys.modules["helper"] is shared
    assert f"{Path(file).name} " in made_of(second)
    assert made_of(first) != made_of(second)


def test_what_someone_else_has_loaded_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "helper.py").write_text("SHARE = 1.0\n")
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    import helper  # type: ignore[import-not-found]

    assert mine(tmp_path / "a", "SHARE = 0.25\n").share == 0.25
    assert sys.modules["helper"] is helper


@pytest.mark.parametrize(
    ("imported", "file"),
    [
        ("from helper import SHARE", "helper.py"),
        ("try:\n    from helper import SHARE\nexcept ImportError:\n    SHARE = 0", "helper.py"),
        ("from tools.helper import SHARE", "tools/helper.py"),
        ("from tools import SHARE", "tools/__init__.py"),
    ],
)
def test_a_number_of_another_file_is_part_of_what_a_class_is_made_of(imported: str, file: str, tmp_path: Path) -> None:
    before = mine(tmp_path, "SHARE = 0.25\n", imported, file)
    told = made_of(before)
    assert mine(tmp_path, "SHARE = 0.25\n", imported, file) is before
    after = mine(tmp_path, "SHARE = 0.125\n", imported, file)
    assert (before.share, after.share) == (0.25, 0.125)
    assert made_of(after) != told


def test_a_package_of_two_files_counts_both(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    told = set()
    for share in ("0.25", "0.125"):
        (tmp_path / "tools" / "numbers.py").write_text(f"SHARE = {share}\n")
        found = mine(tmp_path, "from .numbers import SHARE\n", "from tools import SHARE", "tools/__init__.py")
        assert found.share == float(share)
        told.add(made_of(found))
    assert len(told) == 2


def test_what_may_be_loaded_or_not_does_not_count(tmp_path: Path) -> None:
    guarded = "SHARE = 0.5\nif __name__ == '__main__':\n    from helper import NOTHING"
    found = mine(tmp_path, "NOTHING = 1\n", guarded)
    told = made_of(found)
    mine(tmp_path / "b", "SHARE = 0.25\n")
    assert made_of(found) == told
    assert "helper.py" not in told
