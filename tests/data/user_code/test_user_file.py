"""Names of classes in users' files, as people read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from replaybench.replay.strategies.interface import Retention
from replaybench.runtime.errors import UserError
from replaybench.runtime.user_file import InFile, canonical, class_in_file, located, names_from, shortened

FILE = """
from replaybench.replay.strategies.interface import Retention, RunningRetention

class Mine(Retention):
    def start(self, view):
        return _Running()

class _Running(RunningRetention):
    def __init__(self, *, mine=None):
        pass

    def slots(self, ARGUMENTS):
        pass
"""


def test_legends_leave_out_the_paths_of_users_files() -> None:
    names = ["FIFO[Uniform]", "Drop(0.2)*FIFO[my files/a.py:Newest(0.5)+IS]", "far/own.py:Mine:slow"]
    assert list(shortened(names).values()) == ["FIFO[Uniform]", "Drop(0.2)*FIFO[Newest(0.5)+IS]", "Mine:slow"]


def test_names_that_would_read_alike_keep_their_paths() -> None:
    names = ["FIFO[a.py:Mine]", "FIFO[b.py:Mine]"]
    assert shortened(names) == {name: name for name in names}


@pytest.mark.parametrize("given", ["offers, capacity, slots", "offers, *others", "a, b, c, d=0"])
def test_a_method_that_can_be_called_as_the_package_does_is_taken(given: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FILE.replace("ARGUMENTS", given))
    assert class_in_file(InFile(tmp_path / "mine.py", "Mine"), "retention", Retention).__name__ == "Mine"


@pytest.mark.parametrize("given", ["offers, slots", "offers, capacity, slots, more", "offers, *, capacity, slots"])
def test_a_method_that_cannot_is_told_with_its_line(given: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FILE.replace("ARGUMENTS", given))
    with pytest.raises(
        UserError, match=r"mine.py line 12: _Running.slots must take \(self, offers, capacity, slots\), not"
    ):
        class_in_file(InFile(tmp_path / "mine.py", "Mine"), "retention", Retention)


def test_paths_are_as_short_as_can_be(tmp_path: Path) -> None:
    assert canonical("./a/../mine.py:Mine") == "mine.py:Mine"
    assert canonical("./own.py:Mine:slow") == "own.py:Mine:slow"
    assert canonical("gymnasium:./mine.py:Mine-v0") == "gymnasium:mine.py:Mine-v0"
    assert canonical("Drop(0.5)*./own.py:Mine(3)[./own.py:Drawn+IS]") == "Drop(0.5)*own.py:Mine(3)[own.py:Drawn+IS]"
    assert canonical(f"{tmp_path}/mine.py:Mine", str(tmp_path)) == "mine.py:Mine"
    assert canonical(f"{tmp_path}/mine.py:Mine", str(tmp_path / "other")) == f"{tmp_path}/mine.py:Mine"
    for same in ("Pendulum", "my (old)/../mine.py:Mine", "FIFO[Uniform]"):
        assert canonical(same) == same


def test_a_file_beside_the_study_comes_before_one_where_this_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here" / "mine.py").write_text("")
    with names_from(str(tmp_path)):
        assert located(Path("mine.py")) == Path("mine.py")
        (tmp_path / "mine.py").write_text("")
        assert located(Path("mine.py")) == tmp_path / "mine.py"
        with names_from(""):
            assert located(Path("mine.py")) == tmp_path / "mine.py"
    assert located(Path("mine.py")) == Path("mine.py")
