"""Policies and atomic writing: round trips, damage, full disks."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replaybench.data.policy_file import read_policy, write_policy
from replaybench.data.record import read_record, write_record
from replaybench.runtime import provenance as memory
from replaybench.runtime.atomic import atomic_folder, atomic_path, write_text
from replaybench.runtime.errors import UserError, nearest, no_such_file, unknown
from replaybench.runtime.kernel import why_not_kept

FACTS = {"plant": "Pendulum", "noise": 0.02, "nested": {"a": [1, 2]}}


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "x.h5"
    write_record(path, "buffer", FACTS, {"numbers": np.arange(5)})
    return path


def test_a_failed_write_leaves_the_old_file_and_nothing_else(record: Path) -> None:
    before = record.read_bytes()
    with pytest.raises(RuntimeError), atomic_path(record) as temporary:
        temporary.write_bytes(b"half")
        raise RuntimeError
    assert record.read_bytes() == before
    assert [path.name for path in record.parent.iterdir()] == [record.name]


def test_a_full_disk_is_one_line_and_nothing_is_lost(record: Path) -> None:
    before = record.read_bytes()
    with pytest.raises(UserError, match="free some disk space"), atomic_path(record):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert record.read_bytes() == before


def test_running_out_of_room_inside_hdf5(tmp_path: Path) -> None:
    """The operating system stops a real writer at 1 MB; the line names the file, the old file stays."""
    program = (
        "import resource, signal, sys, numpy as np, pathlib\n"
        "from replaybench.data.record import write_record\n"
        "from replaybench.runtime.errors import UserError\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "write_record(path, 'buffer', {}, {'a': np.zeros(3)})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "try:\n"
        "    write_record(path, 'buffer', {}, {'a': np.zeros((4, 100_000))})\n"
        "except UserError as error:\n"
        "    print(error)\n"
        "    sys.exit(2)\n"
    )
    path = tmp_path / "full.h5"
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "no room to write" in done.stdout
    assert read_record(path)[1]["a"].shape == (3,)
    assert [entry.name for entry in tmp_path.iterdir()] == ["full.h5"]


def test_a_full_disk_while_writing_a_policy(tmp_path: Path) -> None:
    """safetensors reports it in its own way; it is one line all the same."""
    program = (
        "import pathlib, resource, sys, numpy as np\n"
        "from replaybench.runtime.errors import UserError\n"
        "from replaybench.data.policy_file import write_policy\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))\n"
        "try:\n"
        "    write_policy(pathlib.Path(sys.argv[1]), {'a': np.zeros(1 << 20)}, {})\n"
        "except UserError as error:\n"
        "    sys.exit(str(error))\n"
    )
    words = [sys.executable, "-c", program, str(tmp_path / "p.safetensors")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1
    assert "no room to write" in done.stderr
    assert not list(tmp_path.iterdir())


def test_policies_round_trip_and_damage_is_found(tmp_path: Path) -> None:
    path, weights = tmp_path / "p.safetensors", {"actor.0.weight": np.ones((2, 3, 4), np.float32)}
    write_policy(path, weights, FACTS)
    facts, read = read_policy(path)
    assert facts == FACTS
    np.testing.assert_array_equal(read["actor.0.weight"], weights["actor.0.weight"])
    raw = path.read_bytes()
    for place in (3, len(raw) // 2, len(raw) - 2):
        damaged = bytearray(raw)
        damaged[place] ^= 4
        path.write_bytes(damaged)
        with pytest.raises(UserError):
            read_policy(path)
    path.write_bytes(raw[:-5])
    with pytest.raises(UserError, match="damaged"):
        read_policy(path)


@pytest.mark.parametrize("make", [atomic_path, atomic_folder])
def test_no_planted_link_is_written_through(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    precious = tmp_path / "precious"
    precious.write_text("x")
    names = set()
    for _ in range(2):
        with pytest.raises(RuntimeError), make(tmp_path / "report.html") as temporary:
            names.add(temporary.name)
            raise RuntimeError
    assert len(names) == 2  # nobody foresees them
    assert all(str(os.getpid()) not in name for name in names)
    monkeypatch.setattr(tempfile, "_get_candidate_names", lambda: iter(["seen", "free"]))
    planted = tmp_path / ".report.html.seen.partial"
    planted.symlink_to(precious)
    with make(tmp_path / "report.html") as temporary:
        assert temporary.name == ".report.html.free.partial"
        if make is atomic_path:
            temporary.write_text("new")
    assert precious.read_text() == "x"
    assert planted.is_symlink()


def test_unwritable_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="choose another folder"):
        write_text(tmp_path / "file" / "y.txt", "z")


def test_unknown_names_offer_the_nearest() -> None:
    assert nearest("--mas", ["--noise", "--baseline", "--mass"]) == ["--mass"]
    assert nearest("--strategy", ["--cluster", "--seeds"]) == nearest("--rate", ["--format"]) == []
    assert nearest("--episode", ["--tensorboard", "--help", "--episodes"]) == ["--episodes"]
    assert nearest("SI", ["IS", "FIS"]) == nearest("si", ["IS", "FIS"]) == ["IS"]
    assert nearest("mask", ["reset_mask"]) == ["reset_mask"]
    assert str(unknown("plant", "class", ["Magman"], ["file.py:ClassName"])).endswith(
        "valid: Magman, file.py:ClassName"
    )
    assert str(unknown("plant", "pendulm", ["Pendulum", "Magman"])) == "unknown plant 'pendulm'; did you mean Pendulum?"
    assert str(unknown("plant", "zzz", ["B", "A"])) == "unknown plant 'zzz'; valid: A, B"


def test_a_missing_file_is_told_with_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    told = {
        path: str(no_such_file(Path(path))) for path in ("runs/dmeo/a.h5", "log.csv", "../none/a", f"{tmp_path}/rums")
    }
    assert told["runs/dmeo/a.h5"].endswith("a.h5; did you mean runs/demo?")
    assert told["log.csv"].endswith("log.csv; this folder has no 'log.csv'")
    assert told["../none/a"].endswith("../none/a; .. has no 'none'")
    assert told[f"{tmp_path}/rums"].endswith(f"did you mean {tmp_path}/runs?")
    assert str(no_such_file(Path())) == ". is a folder; name a file"
    assert str(no_such_file(Path("runs"))) == "runs is a folder; name a file"
    assert str(no_such_file(Path("/"))) == "/ is a folder; name a file"


def test_memory_that_only_caches_files_is_available(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in (("max", "1000"), ("current", "900"), ("stat", "anon 5\ninactive_file 300\n")):
        (tmp_path / f"memory.{name}").write_text(content)
    monkeypatch.setattr(memory, "_CONTAINER", tmp_path)
    assert memory.available_memory() == 400
    (tmp_path / "memory.max").write_text("max")
    assert memory.available_memory() > 400


def test_a_cache_that_cannot_be_written_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLAYBENCH_CACHE", str(tmp_path / "cache"))
    assert not why_not_kept()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REPLAYBENCH_CACHE", str(tmp_path / "file" / "cache"))
    assert "set REPLAYBENCH_CACHE" in why_not_kept()
