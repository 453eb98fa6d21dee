"""Records, policy files, run folders and TOML: round trips, damage, full disks."""

import errno
import os
import re
import signal
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replaybench.data.array_check import own_item, pack
from replaybench.data.documents import parse_json, read_json, read_toml
from replaybench.data.policy_file import read_policy, write_policy
from replaybench.data.record import LazyColumn, is_record, open_record, read_header, read_record, write_record
from replaybench.data.run_folder import RunFolder
from replaybench.data.sealed_file import BLOCK, HEAD, SealedFile, seal
from replaybench.runtime import provenance as memory
from replaybench.runtime.atomic import MARK, atomic_path
from replaybench.runtime.errors import UserError, nearest, no_such_file, unknown
from replaybench.runtime.kernel import why_not_kept
from tests.helpers.commands import Patch
from tests.helpers.refusals import refuses
from tests.helpers.tiers import slow

RNG = np.random.Generator(np.random.PCG64(0))
ARRAYS: dict[str, np.ndarray] = {
    "strided": np.arange(60, dtype=np.float32).reshape(3, 10, 2)[:, ::2, :1],
    "reversed": np.arange(12, dtype=np.int16).reshape(3, 4)[::-1, ::-1],
    "numbers": np.arange(5, dtype=np.uint32),
    "empty": np.zeros((0, 3)),
    "hollow": np.zeros((3, 0, 2), np.float32),
    "scalar": np.array(7.5),
    "flags": np.array([[True, False]]),
    "swapped": np.arange(4, dtype=">i4"),
    "cube": np.linspace(0, 1, 24).reshape(2, 3, 4),
    "columns": RNG.standard_normal((3, 30_000, 6), np.float32)[:, :, 1:3],
    "units": RNG.standard_normal((2, 3000, 5, 3)).astype(np.float32),
    "zeros": np.zeros((2, 70_000), np.uint8),
}
FACTS = {"plant": "Pendulum", "noise": 0.02, "nested": {"a": [1, 2]}}
FORMS: tuple[Literal["gzip"] | None, ...] = (None, "gzip")


@pytest.fixture(params=FORMS, ids=["plain", "packed"])
def record(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "x.h5"
    write_record(path, "buffer", FACTS, ARRAYS, request.param)
    return path


def assert_as_written(path: Path) -> None:
    header, arrays = read_record(path, "buffer")
    assert header.facts == FACTS
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert (arrays[name].dtype, header.dtypes[name]) == (array.dtype, array.dtype.str)
        assert header.shapes[name] == array.shape


def refusal(path: Path, read: Callable[[Path], object] = read_record) -> str:
    """Return the one line with which a file is refused; it names the file."""
    with pytest.raises(UserError) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_records_round_trip(record: Path) -> None:
    assert_as_written(record)
    assert read_header(record) == read_record(record)[0]
    assert is_record(record)


def test_records_are_ordinary_hdf5(record: Path) -> None:
    """Whoever has h5py can read them, packed or not."""
    with h5py.File(record) as file:
        assert set(file) == ARRAYS.keys()
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(file[name][()], array)
        assert bool(file["columns"].chunks) == (file["columns"].compression == "gzip")


@pytest.mark.parametrize("name", ["strided", "cube", "columns", "units", "zeros", "hollow"])
def test_parts_are_parts(record: Path, name: str) -> None:
    array = ARRAYS[name]
    with open_record(record, "buffer") as opened:
        for rows in (None, slice(1, 3), slice(2, None), slice(-2, None), slice(3, 1), slice(20_000, 10**9)):
            cut = rows or slice(None)
            np.testing.assert_array_equal(opened.read(name, rows=rows), array[:, cut])
            for member in range(len(array)):
                part = opened.read(name, member=member, rows=rows)
                np.testing.assert_array_equal(part, array[member, cut])
                assert part.dtype == array.dtype
        assert opened.read("numbers", member=3) == 3


def test_parts_that_are_not_there_are_named(record: Path) -> None:
    with open_record(record) as opened:
        refuses("unknown array 'colums'; did you mean columns", opened.read, "colums")
        refuses("members 0 to 2 of columns, not 3", opened.read, "columns", member=3)
        refuses("no such part", opened.read, "numbers", rows=slice(1, 2))


@pytest.mark.parametrize("form", slow(FORMS, but=[None]))
def test_reading_one_member_touches_its_bytes_only(tmp_path: Path, form: Any) -> None:
    """50 members of 640 kB: one costs its own blocks and the header's, a few rows a block."""
    path, array = tmp_path / "x.h5", RNG.integers(0, 1 << 32, (50, 80_000, 2), np.uint32)
    write_record(path, "buffer", FACTS, {"a": array, "b": array[:, :, 0]}, form)
    with open_record(path) as opened:
        header = opened.sealed.bytes_read
        assert header < 0.02 * path.stat().st_size
        np.testing.assert_array_equal(opened.read("a", member=31), array[31])
        assert opened.sealed.bytes_read - header <= 640_000 + 6 * BLOCK
        before = opened.sealed.bytes_read
        np.testing.assert_array_equal(opened.read("a", member=7, rows=slice(500, 520)), array[7, 500:520])
        assert opened.sealed.bytes_read - before <= 5 * BLOCK


@pytest.fixture(scope="module")
def flipped(tmp_path_factory: pytest.TempPathFactory) -> Mapping[Literal["gzip"] | None, Path]:
    paths = {form: tmp_path_factory.mktemp("flips") / f"{form}.h5" for form in FORMS}
    for form, path in paths.items():
        write_record(path, "buffer", FACTS, ARRAYS, form)
    return paths


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(form=st.sampled_from(FORMS), region=st.sampled_from(["head", "start", "anywhere", "end"]), data=st.data())
def test_any_flipped_bit_is_refused(flipped: dict[str | None, Path], form: Any, region: str, data: Any) -> None:
    """Head, HDF5's own structures, numbers, table: no bit of the file can change unseen, and none brings it down."""
    path = flipped[form]
    size = path.stat().st_size
    low, high = {"head": (0, HEAD), "start": (HEAD, 8192), "anywhere": (0, size), "end": (size - 700, size)}[region]
    at, bit = data.draw(st.integers(low, high - 1)), data.draw(st.integers(0, 7))
    flip(path, at, bit)
    try:
        assert "damaged" in refusal(path) or at < 21
    finally:
        flip(path, at, bit)


def flip(path: Path, at: int, bit: int = 0) -> None:
    with path.open("r+b") as raw:
        raw.seek(at)
        byte = raw.read(1)[0] ^ (1 << bit)
        raw.seek(at)
        raw.write(bytes([byte]))


def test_damage_is_placed_and_spares_what_is_elsewhere(tmp_path: Path) -> None:
    path, array = tmp_path / "x.h5", RNG.integers(0, 255, (4, 10 * BLOCK), np.uint8)
    write_record(path, "buffer", FACTS, {"a": array})
    at = path.read_bytes().index(array[2, 5 * BLOCK : 5 * BLOCK + 64].tobytes())
    flip(path, at)
    block = (at - HEAD) // BLOCK
    first, last = HEAD + block * BLOCK, HEAD + (block + 1) * BLOCK - 1
    assert f"bytes {first} to {last} do not match" in refusal(path)
    assert read_header(path).facts == FACTS
    with open_record(path) as opened:
        np.testing.assert_array_equal(opened.read("a", member=0), array[0])
        refusal(path, lambda _: opened.read("a", member=2))
        np.testing.assert_array_equal(opened.read("a", member=3), array[3])
        refusal(path, lambda _: opened.verify())


@pytest.mark.parametrize("keep", [0, 1, 100, 600, -1, -33, None])
def test_truncated_and_lengthened_files_are_refused(record: Path, keep: int | None) -> None:
    content = record.read_bytes()
    record.write_bytes(content + bytes(32) if keep is None else content[:keep])
    assert "damaged" in refusal(record) or keep in (0, 1)


def test_a_disk_that_fails_is_one_line(record: Path, monkeypatch: Patch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with open_record(record) as opened:
        monkeypatch.setattr(os, "preadv", fail)
        assert "Input/output error; check the disk" in refusal(record, lambda _: opened.verify())
    assert "Input/output error" in refusal(record)


def test_foreign_files_and_those_of_another_kind_are_refused(record: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.h5"
    with h5py.File(foreign, "w") as file:
        file["x"] = np.zeros(3)
    assert "not a file that replaybench wrote" in refusal(foreign)
    assert "no such file" in refusal(tmp_path / "missing.h5")
    refuses("is a buffer file; a checkpoint file is needed", read_record, record, "checkpoint")


@pytest.mark.parametrize("error", [UserError, OSError, KeyboardInterrupt, MemoryError])
def test_a_failed_read_under_hdf5_raises_itself(record: Path, error: type[BaseException], monkeypatch: Patch) -> None:
    """Whichever of the library's reads fails, it neither crashes, hangs nor hides the reason.

    Each is an exception of its own: one that is kept holds HDF5's handles, and HDF5 crashes over them at exit.
    """
    true_read, seen = SealedFile.read, 0

    def read(self: SealedFile, start: int, out: memoryview) -> None:
        nonlocal seen
        by_hdf5 = sys._getframe(1).f_code.co_name == "readinto"
        seen += by_hdf5
        if by_hdf5 and seen == failing:
            raise error("x")
        true_read(self, start, out)

    monkeypatch.setattr(SealedFile, "read", read)
    failing = 0
    read_record(record)
    total, seen = seen, 0
    assert total > 20
    for failing in range(1, total + 1):  # noqa: B007 - read by the patched function
        seen = 0
        with pytest.raises(error) as caught:
            read_record(record)
        assert (caught.type, caught.value.args) == (error, ("x",))


PACKED: dict[str, Any] = {"shuffle": True, "compression": "gzip"}
SQUARE = np.zeros((4, 4096), np.float32)


def virtual(file: Any) -> None:
    layout = h5py.VirtualLayout((4,), "f4")
    layout[:] = h5py.VirtualSource("/etc/hostname", "y", (4,))
    file.create_virtual_dataset("x", layout)


def compact(file: Any) -> None:
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.COMPACT)
    h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_FLOAT, h5py.h5s.create_simple((4,)), plist)


def odd_bits(file: Any) -> None:
    kind = h5py.h5t.STD_I32LE.copy()
    kind.set_precision(20)
    h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple((4,)))


def claims(file: Any) -> None:
    large = file.create_dataset("x", (1, 1 << 27), "f4", chunks=(1, 1 << 27), **PACKED)
    large.id.write_direct_chunk((0, 0), zlib.compress(bytes(1000)))


TRICKS: dict[str, Callable[[Any], object]] = {
    "external": lambda file: file.create_dataset("x", (4,), "f4", external=[("/etc/hostname", 0, 16)]),
    "virtual": virtual,
    "link": lambda file: file.update({"x": h5py.ExternalLink("other.h5", "/y")}),
    "soft link": lambda file: file.update({"y": np.zeros(3), "x": h5py.SoftLink("/y")}),
    "group": lambda file: file.create_group("x"),
    "chunks": lambda file: file.create_dataset("x", data=SQUARE, chunks=(2, 4096), **PACKED),
    "filter": lambda file: file.create_dataset("x", data=SQUARE, chunks=(1, 4096), compression="lzf"),
    "checked": lambda file: file.create_dataset("x", data=SQUARE, chunks=(1, 4096), fletcher32=True, **PACKED),
    "compact": compact,
    "odd bits": odd_bits,
    "references": lambda file: file.create_dataset("x", (1,), h5py.ref_dtype),
    "text": lambda file: file.update({"x": ["a", "b"]}),
    "unwritten": lambda file: file.create_dataset("x", (4, 1 << 30), "f4", chunks=(1, 1 << 16), **PACKED),
    "claims": claims,
    "sparse": lambda file: file.create_dataset("x", (1 << 50,), "f4"),
    "facts": lambda file: file.attrs.update({"facts": "[]"}),
}


@pytest.mark.parametrize("trick", TRICKS)
def test_files_that_reach_outside_or_pretend_are_refused(tmp_path: Path, trick: str) -> None:
    """A stranger can forge the checksums; what HDF5 could be made to do is refused by structure, on opening."""
    with h5py.File(tmp_path / "trick.h5", "w", userblock_size=HEAD) as file:
        file.attrs["kind"], file.attrs["facts"] = "buffer", "{}"
        TRICKS[trick](file)
    seal(tmp_path / "trick.h5")
    assert "not a plain record" in refusal(tmp_path / "trick.h5", read_header)


@pytest.mark.parametrize("name", ["kind", "facts"])
@pytest.mark.parametrize("value", [np.void(b"{}"), np.array([1, 2], "u1")], ids=["opaque", "list"])
def test_a_forged_type_of_an_attribute_is_refused_before_it_is_read(name: str, value: Any, tmp_path: Path) -> None:
    """HDF5 has crashed on types that only pretend to be text."""
    with h5py.File(tmp_path / "x.h5", "w", userblock_size=HEAD) as file:
        file.attrs["kind"], file.attrs["facts"] = "buffer", "{}"
        one_list = None if value.dtype.kind == "V" else h5py.vlen_dtype(value.dtype)
        stored = value if one_list is None else np.array([None])
        if one_list is not None:
            stored[0] = value
        file.attrs.create(name, stored, dtype=one_list)
    seal(tmp_path / "x.h5")
    assert f"its attribute '{name}' is no single number or text" in refusal(tmp_path / "x.h5", read_header)


def test_what_links_lead_to_is_not_even_opened(tmp_path: Path) -> None:
    """A pipe that nobody writes into would never answer."""
    os.mkfifo(tmp_path / "pipe")
    layout = h5py.VirtualLayout((4,), "f4", maxshape=(None,))
    endless = slice(0, h5py.h5s.UNLIMITED)
    layout[endless] = h5py.VirtualSource(tmp_path / "pipe", "x", (4,), maxshape=(None,))[endless]
    with h5py.File(tmp_path / "links.h5", "w") as file:
        file["external"] = h5py.ExternalLink(str(tmp_path / "pipe"), "x")
        file["soft"] = h5py.SoftLink("/external")
        file.create_virtual_dataset("virtual", layout)
        file["own"] = np.zeros(3)
    signal.alarm(10)  # ends the tests rather than never
    with h5py.File(tmp_path / "links.h5") as file:
        assert [name for name in [*file, "missing"] if own_item(file, name) is not None] == ["own"]
    signal.alarm(0)


@pytest.mark.parametrize("content", ["bomb", "short", "trailing", "noise", "unfiltered", "cut"])
def test_packed_chunks_must_hold_what_their_shape_says(tmp_path: Path, content: str) -> None:
    path, rows = tmp_path / "x.h5", np.arange(4096, dtype=np.uint32)
    good = pack(rows, 4096)
    stored = {
        "bomb": zlib.compress(bytes(1 << 24)),
        "short": zlib.compress(bytes(100)),
        "trailing": good + b"x",
        "noise": RNG.bytes(500),
        "unfiltered": rows.tobytes(),
        "cut": good[:-3],
    }[content]
    with h5py.File(path, "w", userblock_size=HEAD) as file:
        file.attrs["kind"], file.attrs["facts"] = "buffer", "{}"
        file.create_dataset("x", (2, 4096), "u4", chunks=(1, 4096), **PACKED)
        file["x"].id.write_direct_chunk((0, 0), good)
        file["x"].id.write_direct_chunk((1, 0), stored, 3 if content == "unfiltered" else 0)
    seal(path)
    with open_record(path) as opened:
        np.testing.assert_array_equal(opened.read("x", member=0), rows)
        assert "packed chunk" in refusal(path, lambda _: opened.read("x", member=1))


class Computed:
    """The parts of a column of squares, which notes what it was asked for."""

    dtype = np.dtype(np.uint64)

    def __init__(self) -> None:
        self.asked: list[tuple[int, slice]] = []

    def column(self) -> LazyColumn:
        return LazyColumn((3, 1_000_000), self.dtype, self.part)

    def part(self, key: tuple[int, slice]) -> Any:
        self.asked.append(key)
        member, rows = key
        return member + np.arange(rows.start, rows.stop, dtype=self.dtype) ** 2


@pytest.mark.parametrize("form", FORMS)
def test_columns_are_computed_in_parts(tmp_path: Path, form: Any) -> None:
    column = Computed()
    write_record(tmp_path / "x.h5", "buffer", {}, {"squares": column.column()}, form)
    squares = read_record(tmp_path / "x.h5")[1]["squares"]
    np.testing.assert_array_equal(squares, np.arange(3)[:, None] + np.arange(1_000_000) ** 2)
    assert max(rows.stop - rows.start for _, rows in column.asked) * 8 <= 1 << 21
    places = [member * 1_000_000 + row for member, rows in column.asked for row in (rows.start, rows.stop)]
    assert places == sorted(places)
    assert places[1:-1:2] == places[2::2]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("fault", ["shape", "type", "raises"])
def test_a_column_that_breaks_its_word_leaves_the_old_file(tmp_path: Path, fault: str, form: Any) -> None:
    class Broken(Computed):
        def part(self, key: tuple[int, slice]) -> Any:
            found = super().part(key)
            if key[0] < 2:
                return found
            if fault == "raises":
                raise RuntimeError("no")
            return found[1:] if fault == "shape" else found.astype(np.float32)

    path = tmp_path / "x.h5"
    write_record(path, "buffer", FACTS, ARRAYS)
    with pytest.raises(RuntimeError if fault == "raises" else ValueError, match="no"):
        write_record(path, "buffer", {}, {"squares": Broken().column()}, form)
    assert_as_written(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.h5"]


@pytest.mark.parametrize("form", slow(FORMS, but=[None]))
def test_writing_needs_no_second_copy_in_memory(tmp_path: Path, form: Any) -> None:
    """Write 256 MB with strided columns: the resident memory of a fresh process grows by less than 64 MB."""
    program = (
        "import pathlib, re, sys, numpy as np\n"
        "from replaybench.data.record import write_record\n"
        "rows = np.ones((4, 2_000_000, 8), np.float32)\n"
        "def kilobytes(what):\n"
        "    return int(re.search(what + r':\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
        "now, arrays = kilobytes('VmRSS'), {'a': rows[:, :, :3], 'b': rows[:, :, 3:]}\n"
        f"write_record(pathlib.Path(sys.argv[1]), 'buffer', {{}}, arrays, {form!r})\n"
        "print(1024 * (kilobytes('VmHWM') - now))\n"
    )
    words = [sys.executable, "-c", program, str(tmp_path / "big.h5")]
    grown = int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert grown < 64e6


@pytest.mark.parametrize("command", ["inspect", *slow(["replay"])])
def test_a_process_that_met_a_damaged_record_ends_in_order(command: str, tmp_path: Path) -> None:
    """HDF5 crashed at exit where an exception kept its handle of the file object open."""
    path = tmp_path / "damaged.h5"
    write_record(path, "buffer", {}, {"a": np.arange(1000.0)})
    flip(path, 600)
    words = [sys.executable, "-m", "replaybench", command, str(path)]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 2, ended.stderr
    assert "damaged" in ended.stderr


FULL_DISK = """
import pathlib, resource, sys, numpy as np, xarray as xr
from gymnasium.spaces import Box
from replaybench.data.logs.minari_dataset import Episode, write_dataset
from replaybench.data.policy_file import write_policy
from replaybench.data.record import write_record
from replaybench.experiments.results_file import write_results
from replaybench.runtime.errors import UserError
path = pathlib.Path(sys.argv[1])
steps = np.ones((200_001, 9), np.float32), np.ones((200_000, 1), np.float32), np.ones(200_000, np.float32)
episode = Episode(*steps, *np.zeros((2, 200_000), bool), {})
write_record(path, "buffer", {}, {"a": np.zeros(3)})
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    WRITE
except UserError as error:
    sys.exit(str(error))
"""


WRITERS = {
    "HDF5": "write_record(path, 'buffer', {}, {'a': np.zeros((4, 100_000))})",
    "safetensors": "write_policy(path, {'a': np.zeros(1 << 20)}, {})",
    "netCDF": "write_results(path, xr.Dataset({'reward': ('x', np.random.default_rng(0).random(500_000))}))",
    "Minari": "write_dataset(path.parent / 'a-v0', 'a-v0', [episode], Box(-1, 1, (9,)), Box(-1, 1, (1,)), None, {})",
}


@pytest.mark.parametrize("library", slow(WRITERS, but=["HDF5"]))
def test_running_out_of_room_inside_a_library(library: str, tmp_path: Path) -> None:
    """The operating system stops a real writer at 1 MB; the line names the file, the old file stays.

    The HDF5 library crashes at exit when it cannot write what it holds, so results are written to memory first.
    """
    path = tmp_path / "full.h5"
    words = [sys.executable, "-c", FULL_DISK.replace("WRITE", WRITERS[library]), str(path)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1
    assert re.match(rf"no room to write {tmp_path}\S+: free some disk space[^\n]*\n$", done.stderr)
    assert read_record(path)[1]["a"].shape == (3,)
    assert [entry.name for entry in tmp_path.iterdir()] == ["full.h5"]


def test_policies_round_trip_and_damage_is_found(tmp_path: Path) -> None:
    path, weights = tmp_path / "p.safetensors", {"actor.0.weight": np.ones((2, 3, 4), np.float32)}
    write_policy(path, weights, FACTS)
    facts, read = read_policy(path)
    assert facts == FACTS
    np.testing.assert_array_equal(read["actor.0.weight"], weights["actor.0.weight"])
    for place in range(path.stat().st_size):
        flip(path, place, bit=2)
        refuses("damaged|not one that replaybench wrote", read_policy, path)
        flip(path, place, bit=2)
    path.write_bytes(path.read_bytes()[:-5])
    refuses("damaged", read_policy, path)


def test_equal_policies_give_equal_files(tmp_path: Path) -> None:
    weights = {name: np.full((2, 3), place, np.float32) for place, name in enumerate(("b", "Ä", "a"))}
    for place in range(8):
        write_policy(tmp_path / f"{place}", weights, FACTS)
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


@pytest.mark.parametrize("folder", [False, True])
def test_no_planted_link_is_written_through(folder: bool, tmp_path: Path, monkeypatch: Patch) -> None:
    precious = tmp_path / "precious"
    precious.write_text("x")
    names = set()
    for _ in range(2):
        with pytest.raises(RuntimeError), atomic_path(tmp_path / "report.html", folder=folder) as temporary:
            names.add(temporary.name)
            raise RuntimeError
    assert len(names) == 2  # nobody foresees them
    assert all(str(os.getpid()) not in name for name in names)
    monkeypatch.setattr(tempfile, "_get_candidate_names", lambda: iter(["seen", "free"]))
    planted = tmp_path / ".report.html.seen.replaybench-partial"
    planted.symlink_to(precious)
    with atomic_path(tmp_path / "report.html", folder=folder) as temporary:
        assert temporary.name == ".report.html.free.replaybench-partial"
        if not folder:
            temporary.write_text("new")
    assert precious.read_text() == "x"
    assert planted.is_symlink()


def test_unknown_names_offer_the_nearest() -> None:
    assert nearest("--mas", ["--noise", "--baseline", "--mass"]) == ["--mass"]
    assert nearest("--strategy", ["--cluster", "--seeds"]) == nearest("--rate", ["--format"]) == []
    assert nearest("--episode", ["--tensorboard", "--help", "--episodes"]) == ["--episodes"]
    assert nearest("SI", ["IS", "FIS"]) == nearest("si", ["IS", "FIS"]) == ["IS"]
    assert nearest("mask", ["reset_mask"]) == ["reset_mask"]
    long = str(unknown("column", "theta", [f"signal {i}" for i in range(9000)]))
    assert (len(long), long[:22], long[-11:]) == (500, "unknown column 'theta'", " signal 999")
    told = str(unknown("plant", "class", ["Magman"], ["file.py:ClassName"]))
    assert told.endswith("valid: Magman, file.py:ClassName")
    assert str(unknown("plant", "pendulm", ["Pendulum", "Magman"])) == "unknown plant 'pendulm'; did you mean Pendulum?"
    assert str(unknown("plant", "zzz", ["B", "A"])) == "unknown plant 'zzz'; valid: A, B"


def test_a_missing_file_is_told_with_what_is_there(tmp_path: Path, monkeypatch: Patch) -> None:
    here = tmp_path / "here"  # with no neighbours
    (here / "runs" / "demo").mkdir(parents=True)
    monkeypatch.chdir(here)
    told = {path: str(no_such_file(Path(path))) for path in ("runs/dmeo/a.h5", "log.csv", "../none/a", f"{here}/rums")}
    assert told["runs/dmeo/a.h5"].endswith("a.h5; did you mean runs/demo?")
    assert told["log.csv"].endswith("log.csv; this folder has no 'log.csv'")
    assert told["../none/a"].endswith("../none/a; .. has no 'none'")
    assert told[f"{here}/rums"].endswith(f"did you mean {here}/runs?")
    for folder in (".", "runs", "/"):
        assert str(no_such_file(Path(folder))) == f"{folder} is a folder; name a file"


def test_memory_that_only_caches_files_is_available(tmp_path: Path, monkeypatch: Patch) -> None:
    for name, content in (("max", "1000"), ("current", "900"), ("stat", "anon 5\ninactive_file 300\n")):
        (tmp_path / f"memory.{name}").write_text(content)
    monkeypatch.setattr(memory, "_CONTAINER", tmp_path)
    assert memory.available_memory() == 400
    (tmp_path / "memory.max").write_text("max")
    assert memory.available_memory() > 400


def test_a_cache_that_cannot_be_written_is_reported(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("REPLAYBENCH_CACHE", str(tmp_path / "cache"))
    assert not why_not_kept()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REPLAYBENCH_CACHE", str(tmp_path / "file" / "cache"))
    assert "set REPLAYBENCH_CACHE" in why_not_kept()


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_mark_that_is_a_link_truncates_nothing(link: Any, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("all there")
    link(tmp_path / "precious", tmp_path / MARK)
    with pytest.raises(UserError, match="was not made by replaybench"), RunFolder(tmp_path).locked():
        pass
    assert (tmp_path / "precious").read_text() == "all there"


def test_the_lock_is_free_again_after_an_error(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(OSError, match="disk"), RunFolder(tmp_path).locked():
            raise OSError("disk")
    with RunFolder(tmp_path).locked(), pytest.raises(UserError, match="another sweep"), RunFolder(tmp_path).locked():
        pass


def test_only_own_partial_files_are_removed_and_links_are_not_followed(tmp_path: Path) -> None:
    run, precious, own = tmp_path / "run", tmp_path / "precious", ".results.nc.a1b2c3d4.replaybench-partial"
    for folder in (run / "cells" / "1", run / "notes", run / ".thesis.partial", precious):
        folder.mkdir(parents=True)
        (folder / own).write_text("x")
    (run / own).write_text("x")
    (run / ".download.partial").write_text("x")
    (run / f"{own}2").mkdir()
    (run / "solved").symlink_to(precious)
    (run / own.replace("a", "b")).symlink_to(precious / own)
    RunFolder(run).remove_partial_files()
    left = {f"{path.relative_to(tmp_path)}" for path in tmp_path.rglob("*") if not path.is_dir() or path.is_symlink()}
    assert left == {
        f"precious/{own}", "run/.download.partial", f"run/.thesis.partial/{own}", f"run/notes/{own}", "run/solved",
        f"run/{own.replace('a', 'b')}",
    }  # fmt: skip


def test_the_mark_that_editors_of_windows_leave_is_no_part_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text('name = "märz"\n', encoding="utf-8-sig")
    (tmp_path / "facts.json").write_text('{"name": "märz"}', encoding="utf-8-sig")
    assert read_toml(tmp_path / "study.toml") == read_json(tmp_path / "facts.json") == {"name": "märz"}


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1" + "0" * 400, "1" + "0" * 5000])
def test_numbers_that_would_become_infinite_are_refused(number: str, tmp_path: Path) -> None:
    refuses("too large|digits", parse_json, f'{{"sessions": [{{"memory": {number}}}]}}', "it is damaged")
    if "e" in number:
        (tmp_path / "study.toml").write_text(f"rate = {number}\n")
        refuses("too large", read_toml, tmp_path / "study.toml")
    assert parse_json('{"a": Infinity, "b": 3, "c": -2.5e3}', "") == {"a": float("inf"), "b": 3, "c": -2500.0}


def test_halves_of_characters_become_escapes() -> None:
    """Neither figures nor files can hold them; whole characters stay."""
    told = parse_json('{"pl\\ud800ant": ["\\ud800", {"a": "μ\\ud83d\\ude00"}]}', "")
    assert told == {"pl\\ud800ant": ["\\ud800", {"a": "μ\U0001f600"}]}
