"""Commands as users type them, run in this process."""

import pytest

from replaybench.cli.main import main

Capsys = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


def call(*words: object) -> int:
    """Run a command; return its exit status."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0)


def refused(capsys: Capsys, *words: object) -> str:
    """Run a command that must be refused: exit status 2 and one line on stderr, which is returned."""
    capsys.readouterr()
    assert call(*words) == 2
    error = capsys.readouterr().err
    assert error.startswith("replaybench: ")
    assert error.count("\n") == 1, error
    return error


def printed(capsys: Capsys, *words: object) -> str:
    """Run a command that must succeed; return what it prints on stdout."""
    capsys.readouterr()
    assert call(*words) == 0
    return capsys.readouterr().out
