"""Names of classes in users' files, as people read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from replaybench.data.errors import UserError
from replaybench.data.user_code.user_file import InFile, class_in_file, shortened
from replaybench.replay.strategies.retention.interface import Retention

FILE = """
from replaybench.replay.strategies.retention.interface import Retention, RunningRetention

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
