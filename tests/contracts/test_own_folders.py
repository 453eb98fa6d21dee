"""Every test has a working, a home and a temporary folder of its own."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from replaybench.runtime.kernel import cache_dir

PROGRAM = "import pathlib, tempfile; print(pathlib.Path.cwd(), pathlib.Path.home(), tempfile.gettempdir(), sep='\\n')"


@pytest.mark.parametrize("turn", ["first", "second"])
def test_each_test_finds_empty_folders(turn: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Here and in processes that it starts; what another test left is not there."""
    folders = Path.cwd(), Path.home(), Path(tempfile.gettempdir())
    told = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == list(map(str, folders))
    for folder in folders:
        assert tmp_path_factory.getbasetemp() in folder.parents
        assert not list(folder.iterdir())
        (folder / "left").touch()


def test_kernels_are_kept_between_runs(tmp_path_factory: pytest.TempPathFactory) -> None:
    assert tmp_path_factory.getbasetemp() not in cache_dir().parents
    assert Path.home() not in cache_dir().parents
