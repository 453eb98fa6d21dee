"""Names of classes in users' files, as people read them."""

from __future__ import annotations

from replaybench.data.user_file import shortened


def test_legends_leave_out_the_paths_of_users_files() -> None:
    names = ["FIFO[Uniform]", "Drop(0.2)*FIFO[my files/a.py:Newest(0.5)+IS]", "far/own.py:Mine:slow"]
    assert list(shortened(names).values()) == ["FIFO[Uniform]", "Drop(0.2)*FIFO[Newest(0.5)+IS]", "Mine:slow"]


def test_names_that_would_read_alike_keep_their_paths() -> None:
    names = ["FIFO[a.py:Mine]", "FIFO[b.py:Mine]"]
    assert shortened(names) == {name: name for name in names}
