"""Solutions and references of these tests live in a cache of their own, so that none comes from older code."""

from pathlib import Path

import pytest

from replaybench.baselines import fuzzy_q_iteration


@pytest.fixture(scope="session")
def kept_solutions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder in which all tests share their solutions."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _own_cache(kept_solutions: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzy_q_iteration, "cache_dir", lambda: kept_solutions)


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder for this test alone."""
    monkeypatch.setattr(fuzzy_q_iteration, "cache_dir", lambda: tmp_path)
    return tmp_path
