"""Files beside users' files: nobody gets another folder's, and all of them count to what a class is made of."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replaybench.replay.strategies.interface import Retention
from replaybench.runtime.errors import UserError
from replaybench.runtime.source_hash import made_of
from replaybench.runtime.user_file import InFile, class_in_file

MINE = """
from replaybench.replay.strategies.interface import Retention
IMPORTED

class Mine(Retention):
    share = SHARE
"""


@pytest.fixture(autouse=True)
def modules() -> Iterator[None]:
    before = set(sys.modules)
    yield
    _forget(before)


def _forget(before: set[str]) -> None:
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("helper", "tools") or name.startswith("replaybench_"):
            del sys.modules[name]


def mine(folder: Path, helper: str, imported: str = "from helper import SHARE", file: str = "helper.py") -> type[Any]:
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(helper)
    (folder / "mine.py").write_text(MINE.replace("IMPORTED", imported))
    return class_in_file(InFile(folder / "mine.py", "Mine"), "retention", Retention)


@pytest.mark.parametrize("file", ["helper.py", "helper/__init__.py"])
def test_a_file_is_not_given_the_helper_of_another_folder(file: str, tmp_path: Path) -> None:
    assert mine(tmp_path / "a", "SHARE = 0.25\n", file=file).share == 0.25
    with pytest.raises(UserError, match=r"b/mine.py imports helper, and .*/a/helper.* is loaded already .*; rename"):
        mine(tmp_path / "b", "SHARE = 0.125\n", file=file)


def test_nor_a_file_beside_it(tmp_path: Path) -> None:
    mine(tmp_path / "a", "SHARE = 0.25\n")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "helper.py").write_text("SHARE = 0.125\n")
    with pytest.raises(UserError, match="imports helper, and"):
        mine(tmp_path / "b", "from helper import SHARE\n", "from tools import SHARE", "tools.py")


@pytest.mark.parametrize(
    ("imported", "file"),
    [
        ("from helper import SHARE", "helper.py"),
        ("try:\n    from .helper import SHARE\nexcept ImportError:\n    from helper import SHARE", "helper.py"),
        ("from tools.helper import SHARE", "tools/helper.py"),
        ("from tools import SHARE", "tools/__init__.py"),
        ("from tools import helper\nSHARE = helper.SHARE", "tools/helper.py"),
    ],
)
def test_a_number_of_another_file_is_part_of_what_a_class_is_made_of(imported: str, file: str, tmp_path: Path) -> None:
    told = set()
    for share in (0.25, 0.125):
        before = set(sys.modules)
        found = mine(tmp_path, f"SHARE = {share}\n", imported, file)
        assert found.share == share
        assert Path(file).name in made_of(found)
        told.add(made_of(found))
        _forget(before)
        importlib.invalidate_caches()
    assert len(told) == 2


def test_a_package_counts_by_its_version_though_only_a_number_is_taken(tmp_path: Path) -> None:
    assert "scipy" in made_of(mine(tmp_path, "", "from scipy.constants import g\nSHARE = g"))


@pytest.mark.parametrize("guard", ["if __name__ == '__main__':", "def late():"])
def test_what_the_class_is_made_without_does_not_count(guard: str, tmp_path: Path) -> None:
    assert "helper.py" not in made_of(mine(tmp_path, "NOTHING = 1\n", f"SHARE = 0.5\n{guard}\n    import helper"))


def test_a_folder_named_like_an_installed_package_is_no_neighbour(tmp_path: Path) -> None:
    (tmp_path / "replaybench").mkdir()
    (tmp_path / "replaybench" / "__init__.py").write_text("raise RuntimeError\n")
    assert "__init__.py" not in made_of(mine(tmp_path, "SHARE = 0.25\n"))


def test_a_file_called_init_has_the_neighbours_of_its_own_folder(tmp_path: Path) -> None:
    """It is a file as any other, and no package."""
    (tmp_path / "helper.py").write_text("SHARE = 0.5\n")
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "__init__.py").write_text(MINE.replace("IMPORTED", "from helper import SHARE"))
    told = set()
    for share in (0.25, 0.125):
        before = set(sys.modules)
        (folder / "helper.py").write_text(f"SHARE = {share}\n")
        importlib.invalidate_caches()
        found = class_in_file(InFile(folder / "__init__.py", "Mine"), "retention", Retention)
        assert found.share == share
        told.add(made_of(found))
        _forget(before)
    assert len(told) == 2
    (folder / "__init__.py").write_text(MINE.replace("IMPORTED", "from .helper import SHARE"))
    with pytest.raises(UserError, match="line 3: ImportError: attempted relative import with no known parent package"):
        class_in_file(InFile(folder / "__init__.py", "Mine"), "retention", Retention)
