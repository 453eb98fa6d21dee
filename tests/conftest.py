"""Tests see neither the working folder, the home folder and the temporary folder of others, nor each other's files.

Compiled kernels and Matplotlib's list of fonts, which all tests share, lie in `.pytest_cache` of the clone.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Of OpenBLAS and PyTorch, before they are imported: processes that each use all cores wait for each other."""


def pytest_configure(config: pytest.Config) -> None:
    """Choose the cache folder before kernels and Matplotlib are imported."""
    shared = str(config.rootpath / ".pytest_cache" / "shared")
    os.environ.update({"XDG_CACHE_HOME": shared, "XDG_CONFIG_HOME": shared, "XDG_DATA_HOME": shared})


def _enter(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Make new working, home and temporary folders, and use them in this process and in those that it starts."""
    for name in ("work", "home", "tmp"):
        (folder / name).mkdir()
    patch.chdir(folder / "work")
    patch.setenv("HOME", str(folder / "home"))
    patch.setenv("TMPDIR", str(folder / "tmp"))
    patch.setattr(tempfile, "tempdir", None)  # forget the folder that was found before


@pytest.fixture(scope="session", autouse=True)
def _folders_of_shared_fixtures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        _enter(tmp_path_factory.mktemp("session"), patch)
        yield


@pytest.fixture(autouse=True)
def _folders_of_each_test(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        _enter(tmp_path_factory.mktemp("test"), patch)
        yield
