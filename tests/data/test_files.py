"""Records, policies and atomic writing: round trips, damage of every kind, full disks."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from replaybench.data.atomic import atomic_path, write_text
from replaybench.data.errors import UserError, unknown
from replaybench.data.hdf5 import read_header, read_record, write_record
from replaybench.data.policy import read_policy, write_policy

ARRAYS = {
    "strided": np.arange(60, dtype=np.float32).reshape(3, 10, 2)[:, ::2, :1],
    "numbers": np.arange(5, dtype=np.uint32),
    "empty": np.zeros((0, 3)),
    "cube": np.linspace(0, 1, 24).reshape(2, 3, 4),
}
FACTS = {"plant": "Pendulum", "noise": 0.02, "nested": {"a": [1, 2]}}


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "x.h5"
    write_record(path, "buffer", FACTS, ARRAYS)
    return path


def test_records_round_trip(record: Path) -> None:
    header, arrays = read_record(record, "buffer")
    assert header.facts == FACTS
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype
    assert read_header(record) == header


def test_large_arrays_are_written_in_blocks(tmp_path: Path) -> None:
    array = np.arange(3 * 2_000_001 * 1, dtype=np.float32).reshape(3, 2_000_001)
    write_record(tmp_path / "big.h5", "buffer", {}, {"big": array})
    np.testing.assert_array_equal(read_record(tmp_path / "big.h5")[1]["big"], array)


def test_records_are_ordinary_hdf5(record: Path) -> None:
    with h5py.File(record) as file:
        np.testing.assert_array_equal(file["cube"], ARRAYS["cube"])


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bits_are_found(record: Path, seed: int) -> None:
    """Of 50 flips anywhere, each is refused with one line or lies in the unused rest of the first block."""
    rng = np.random.Generator(np.random.PCG64(seed))
    raw, refused = record.read_bytes(), 0
    for bit in rng.integers(0, 8 * len(raw), 50):
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << (bit % 8)
        record.write_bytes(damaged)
        try:
            header, arrays = read_record(record, "buffer")
        except UserError as error:
            refused += 1
            assert "\n" not in str(error)
            assert str(record) in str(error)
        else:
            assert bit // 8 < 512
            assert header.facts == FACTS
            np.testing.assert_array_equal(arrays["cube"], ARRAYS["cube"])
    assert refused > 40


@pytest.mark.parametrize("keep", [0, 1, 100, 600, -1])
def test_truncated_files_are_refused(record: Path, keep: int) -> None:
    record.write_bytes(record.read_bytes()[:keep])
    with pytest.raises(UserError, match="damaged|not a file that replaybench wrote"):
        read_record(record)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.h5"
    with h5py.File(foreign, "w") as file:
        file["x"] = np.zeros(3)
    with pytest.raises(UserError, match="not a file that replaybench wrote"):
        read_record(foreign)
    with pytest.raises(UserError, match="no such file"):
        read_record(tmp_path / "missing.h5")


def test_another_kind_is_refused(record: Path) -> None:
    with pytest.raises(UserError, match="is a buffer file; a checkpoint file is needed"):
        read_record(record, "checkpoint")


@pytest.mark.parametrize("trick", ["external", "virtual", "link", "packed", "text", "sparse"])
def test_files_that_reach_outside_or_pretend_are_refused(tmp_path: Path, trick: str) -> None:
    """A stranger can forge the checksum; what HDF5 could be made to do is refused by structure."""
    from replaybench.data import hdf5

    path = tmp_path / "trick.h5"
    with h5py.File(path, "w", userblock_size=512) as file:
        file.attrs["kind"], file.attrs["facts"] = "buffer", "{}"
        if trick == "external":
            file.create_dataset("x", (4,), "f4", external=[("/etc/hostname", 0, 16)])
        elif trick == "virtual":
            layout = h5py.VirtualLayout((4,), "f4")
            layout[:] = h5py.VirtualSource("/etc/hostname", "y", (4,))
            file.create_virtual_dataset("x", layout)
        elif trick == "link":
            file["x"] = h5py.ExternalLink("other.h5", "/y")
        elif trick == "packed":
            file.create_dataset("x", (1 << 20,), "f4", compression="gzip")
        elif trick == "text":
            file["x"] = ["a", "b"]
        else:
            file.create_dataset("x", (1 << 50,), "f4")
    with path.open("r+b") as raw:
        digest = hdf5._digest(raw)
        raw.seek(0)
        raw.write(f"{hdf5.FORMAT}\n{digest}\n".encode())
    with pytest.raises(UserError, match="not a plain record"):
        read_record(path)


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
        "from replaybench.data.hdf5 import write_record\n"
        "from replaybench.data.errors import UserError\n"
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


def test_writing_needs_no_second_copy_in_memory(tmp_path: Path) -> None:
    """Write 256 MB with strided columns: the resident memory of a fresh process grows by less than 80 MB."""
    program = (
        "import pathlib, re, sys, numpy as np\n"
        "from replaybench.data.hdf5 import write_record\n"
        "rows = np.ones((4, 2_000_000, 8), np.float32)\n"
        "def kilobytes(what):\n"
        "    return int(re.search(what + r':\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
        "now = kilobytes('VmRSS')\n"
        "write_record(pathlib.Path(sys.argv[1]), 'buffer', {}, {'a': rows[:, :, :3], 'b': rows[:, :, 3:]})\n"
        "print(1024 * (kilobytes('VmHWM') - now))\n"
    )
    words = [sys.executable, "-c", program, str(tmp_path / "big.h5")]
    grown = int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert grown < 80e6


def test_a_full_disk_while_writing_a_policy(tmp_path: Path) -> None:
    """safetensors reports it in its own way; it is one line all the same."""
    program = (
        "import pathlib, resource, sys, numpy as np\n"
        "from replaybench.data.errors import UserError\n"
        "from replaybench.data.policy import write_policy\n"
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


def test_unwritable_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="choose another folder"):
        write_text(tmp_path / "file" / "y.txt", "z")


def test_unknown_names_offer_the_nearest() -> None:
    assert str(unknown("plant", "pendulm", ["Pendulum", "Magman"])) == "unknown plant 'pendulm'; did you mean Pendulum?"
    assert str(unknown("plant", "zzz", ["B", "A"])) == "unknown plant 'zzz'; valid: A, B"
