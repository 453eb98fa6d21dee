"""Time records against a plain file: python benchmarks/speed/bench_files.py [SECTION …]

A buffer of 50 members and 1 GB, as a sweep leaves it (columns are strided views of rows, episode and step numbers are
computed while they are written), against one `write` and `fsync` of as many bytes that lie in memory in one piece.
Both sides in this run, interleaved; medians. The memory is that of a fresh process, measured from just before the
write to its highest point. Files lie where temporary files lie (`TMPDIR`).
"""

# First: it fixes the number of threads.
from timings import Timing, main  # isort: skip

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from replaybench.data.record import open_record, read_record, write_record

REPETITIONS = 5
MEMBERS, SLOTS, STEPS = 50, 420_000, 200
WIDTHS = {
    "observation": 2,
    "action": 1,
    "reward": 1,
    "next_observation": 2,
    "terminated": 1,
    "exploration": 1,
}


class Counted:
    """A column that is computed when asked: the step (or episode) of each slot of a buffer that keeps everything."""

    shape, dtype = (MEMBERS, SLOTS), np.dtype(np.uint32)

    def __init__(self, count: Callable[[Any], Any]) -> None:
        self.count = count

    def __getitem__(self, key: tuple[int, slice]) -> Any:
        return self.count(np.arange(key[1].start, key[1].stop, dtype=np.uint32))


def buffer() -> dict[str, Any]:
    """Return 1 GB of arrays: smooth trajectories with noise, as plants give them."""
    rows = np.empty((MEMBERS, SLOTS, sum(WIDTHS.values())), np.float32)
    time_axis = np.arange(SLOTS, dtype=np.float32)[:, None]
    for m in range(MEMBERS):
        rng = np.random.Generator(np.random.PCG64(m))
        rows[m] = np.sin(time_axis * (0.01 + np.arange(rows.shape[2], dtype=np.float32) / 50))
        rows[m] += 0.01 * rng.standard_normal(rows.shape[1:], np.float32)
    rows[:, :, list(WIDTHS).index("terminated") + 2] = 0
    arrays: dict[str, Any] = {}
    place = 0
    for name, width in WIDTHS.items():
        arrays[name] = rows[:, :, place : place + width]
        place += width
    arrays["serial"] = np.tile(np.arange(1, SLOTS + 1, dtype=np.uint32), (MEMBERS, 1))
    arrays["episode"] = Counted(lambda number: number // STEPS)
    arrays["step"] = Counted(lambda number: number % STEPS)
    arrays["td_error"] = np.full((MEMBERS, SLOTS), np.inf, np.float32)
    arrays["count"] = np.full(MEMBERS, SLOTS)
    return arrays


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def plain_write(path: Path, content: memoryview) -> None:
    with path.open("wb", buffering=0) as file:
        while content:
            content = content[file.write(content) :]
        os.fsync(file.fileno())


def memory(what: str) -> int:
    """Return VmRSS or VmHWM of this process in bytes; `ru_maxrss` would be inherited from the parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))


def extra_memory(path: Path, compression: Any) -> int:
    """Write the buffer in this fresh process and return by how much its memory rose meanwhile [bytes]."""
    arrays = buffer()
    write_record(path.with_name("small.h5"), "buffer", {}, {"count": arrays["count"]})
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark falls back to the present
    before = memory("VmRSS")
    write_record(path, "buffer", {}, arrays, compression)
    return memory("VmHWM") - before


def measure_memory(path: Path, compression: str) -> float:
    words = [sys.executable, __file__, "--memory", str(path), compression]
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout) / 1e6


def compare_writing(folder: Path, arrays: dict[str, Any]) -> list[list[float]]:
    """Return the seconds of a plain file, a record of a buffer, and a record of one array that lies in one piece."""
    record, plain, straight = folder / "record.h5", folder / "plain.bin", folder / "straight.h5"
    write_record(record, "buffer", {}, arrays)
    content = np.fromfile(record, np.uint8)
    sides: list[Callable[[], object]] = [
        lambda: plain_write(plain, memoryview(content)),
        lambda: write_record(record, "buffer", {}, arrays),
        lambda: write_record(straight, "buffer", {}, {"content": content.reshape(1, -1)}),
    ]
    seconds: list[list[float]] = [[] for _ in sides]
    pairs = list(zip(sides, seconds, strict=True))
    for turn in range(REPETITIONS):
        # Memory that was free for long costs more to write to, so each side takes every place in the round.
        for side, found in pairs[turn % 3 :] + pairs[: turn % 3]:
            for path in (record, plain, straight):
                path.unlink(missing_ok=True)
            os.sync()
            found.append(timed(side))
    write_record(record, "buffer", {}, arrays)
    return seconds


def read_member(path: Path, member: int) -> int:
    """Read all columns of one member; return the bytes that were fetched."""
    with open_record(path, "buffer") as record:
        for name in record.header.shapes:
            record.read(name, member=member)
        return record.sealed.bytes_read


def files() -> Iterator[Timing]:
    """Everything, in a folder that is removed."""
    with tempfile.TemporaryDirectory() as made:
        yield from files_in(Path(made))


def files_in(folder: Path) -> Iterator[Timing]:
    arrays = buffer()
    sides = compare_writing(folder, arrays)
    plain, best = statistics.median(sides[0]), min(sides[0])
    record, packed = folder / "record.h5", folder / "packed.h5"
    size, where = record.stat().st_size, {"members": MEMBERS, "GB": record.stat().st_size / 1e9}
    for what, found in zip(("write a buffer", "write one large array"), sides[1:], strict=True):
        middle = statistics.median(found)
        bests = {"best": min(found), "best of the plain file": best}
        rival = "a plain file with fsync"
        yield Timing(what, middle, "s", plain, rival, plain / middle, least_ratio=0.5, at=where, more=bests)
    yield Timing("additional memory while writing", measure_memory(record, "none"), "MB", most=64, at=where)
    everything = statistics.median(timed(lambda: read_record(record)) for _ in range(3))
    yield Timing("read and verify the buffer", everything, "s", at=where)
    one = statistics.median(timed(lambda: read_member(record, 17)) for _ in range(REPETITIONS))
    share = {"share of the bytes": read_member(record, 17) / size}
    yield Timing("read and verify one member", one, "s", at=where, more=share)
    seconds = timed(lambda: write_record(packed, "buffer", {}, arrays, "gzip"))
    share = {"of the size": packed.stat().st_size / size}
    yield Timing("compressed buffer: write", seconds, "s", at=where, more=share)
    yield Timing("compressed buffer: additional memory", measure_memory(packed, "gzip"), "MB", at=where)
    yield Timing("compressed buffer: read all members", timed(lambda: read_record(packed)), "s", at=where)
    yield Timing("compressed buffer: read one member", timed(lambda: read_member(packed, 17)), "s", at=where)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--memory"]:
        print(extra_memory(Path(sys.argv[2]), None if sys.argv[3] == "none" else sys.argv[3]))
    else:
        main("bench_files.py", {"files": files})
