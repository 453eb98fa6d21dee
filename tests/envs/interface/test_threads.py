"""The number of processes that a population may use."""

import pytest

from replaybench.envs.interface.engine import thread_count
from replaybench.runtime.errors import UserError


def test_one_thread_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REPLAYBENCH_THREADS", raising=False)
    assert thread_count() == 1
    monkeypatch.setenv("REPLAYBENCH_THREADS", " 12 ")
    assert thread_count() == 12


@pytest.mark.parametrize("text", ["", "0", "-1", "two", "1.5", "²"])
def test_invalid_thread_counts_are_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("REPLAYBENCH_THREADS", text)
    with pytest.raises(UserError, match="^REPLAYBENCH_THREADS is .*; give a whole number of 1 or more"):
        thread_count()
