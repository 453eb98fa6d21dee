"""What is printed: nothing of a file reaches the terminal as a command, and every stream can carry it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from replaybench.cli.main import main
from replaybench.data.record import write_record
from replaybench.experiments.interruption import printable

TITLE = "\x1b]0;renamed\x07\x1b[2J\x9b1mbold"


def said(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    with pytest.raises(SystemExit):
        main([str(word) for word in words])
    told = capsys.readouterr()
    return told.out + told.err


def test_what_a_terminal_would_obey_is_printed_as_an_escape() -> None:
    assert printable("μ_r = 0.5 [95 %], a·b", keep="\n") == "μ_r = 0.5 [95 %], a·b"
    assert printable("a\x1b[31m\x9b\u202eb\x00\udcff\n") == r"a\x1b[31m\x9b\u202eb\x00\udcff\n"


def test_inspect_shows_escape_sequences_and_sends_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s\x1b[8m.h5"
    write_record(path, "offline scores" + TITLE, {"a" + TITLE: {"b" + TITLE: TITLE}}, {"x" + TITLE: np.zeros(3)})
    (tmp_path / "study.toml").write_text(f'name = "x"\n# {TITLE}\n')
    cases = {"x1b]0;renamed": (path, tmp_path / f"{TITLE}none.h5"), r"invalid character '\x1b'": (tmp_path,)}
    for shown, target in ((shown, target) for shown, targets in cases.items() for target in targets):
        told = said(capsys, "inspect", target)
        assert shown in told
        assert not {"\x1b", "\x07", "\x9b"} & set(told)


def test_a_stream_that_cannot_encode_gets_escapes(tmp_path: Path) -> None:
    """ASCII for Greek letters, and UTF-8 for the name of a file that is no text."""
    path = os.fsencode(tmp_path) + b"/\xff.h5"
    write_record(Path(os.fsdecode(path)), "scores", {"γ": 0.95}, {"μ": np.zeros(3)})
    for encoding, seen in (("ascii", b"\\u03b3"), ("utf-8:strict", "γ".encode())):
        done = subprocess.run(
            [sys.executable, "-m", "replaybench", "inspect", path],
            capture_output=True, env={**os.environ, "PYTHONIOENCODING": encoding},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert b"\\udcff.h5: scores file" in done.stdout
        assert seen in done.stdout


@pytest.mark.parametrize("command", ["list", "baseline"])
def test_too_little_address_space_is_one_line(command: str) -> None:
    """Libraries would fail in many ways: unmapped segments, OpenBLAS that ends the process, arrays that do not fit."""
    limited = ["bash", "-c", 'ulimit -v 600000; exec "$@"', "-", sys.executable, "-m", "replaybench"]
    words = [command, "Pendulum"] if command == "baseline" else [command]
    done = subprocess.run([*limited, *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("replaybench: the address space of a process is limited to 0.6 GiB")
    assert done.stderr.count("\n") == 1
