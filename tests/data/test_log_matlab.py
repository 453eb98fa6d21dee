"""MATLAB logs: both kinds of file give what MATLAB saved, SciPy being the oracle, and no damage gives a traceback."""

import struct
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.io import loadmat, savemat

from replaybench.data.logs import table
from replaybench.data.logs.log import read_log
from replaybench.data.logs.matlab import MAT5_MARKS, read_mat5
from replaybench.data.logs.table import Budget
from tests.helpers.commands import Patch
from tests.helpers.refusals import read_damaged, refuses
from tests.helpers.tiers import slow

TIME = np.arange(20) * 0.02
THETA = np.sin(TIME)


def save73(path: Path, variables: dict[str, Any]) -> Path:
    """Write variables as MATLAB's version 7.3 does: a header in the user block, transposed matrices, its attributes."""

    def put(group: Any, name: str, value: Any) -> None:
        if isinstance(value, dict):
            item = group.create_group(name)
            for inner, content in value.items():
                put(item, inner, content)
            kind = "struct"
        elif isinstance(value, str):
            letters = np.frombuffer(value.encode("utf-16-le"), "<u2")
            item, kind = group.create_dataset(name, data=letters[:, None]), "char"
        else:
            matrix = np.atleast_2d(value)
            item = group.create_dataset(name, data=matrix.T, chunks=matrix.T.shape, compression="gzip")
            kind = {"f8": "double", "f4": "single", "u1": "logical"}.get(matrix.dtype.str[1:], str(matrix.dtype))
        item.attrs["MATLAB_class"] = np.bytes_(kind)

    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in variables.items():
            put(file, name, value)
    with path.open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64, HDF5 schema 1.00 .".ljust(124) + b"\x00\x02IM")
    return path


def save5(path: Path, variables: dict[str, Any], compressed: bool = False) -> Path:
    savemat(path, variables, do_compression=compressed, oned_as="row")
    return path


def save7(path: Path, variables: dict[str, Any]) -> Path:
    return save5(path, variables, compressed=True)


EVERY_VERSION = pytest.mark.parametrize("save", [save5, save7, save73])


@EVERY_VERSION
def test_vectors_of_either_shape_and_any_number_are_columns(save: Any, tmp_path: Path) -> None:
    counts = np.arange(20, dtype=np.int16)[:, None]
    log = read_log(save(tmp_path / "a.mat", {"t": TIME, "theta": THETA[:, None].astype("f4"), "n": counts, "Ts": 0.02}))
    assert log.time is not None
    np.testing.assert_array_equal(log.time, TIME)
    np.testing.assert_array_equal(log.columns["theta"], THETA.astype("f4"))
    np.testing.assert_array_equal(log.columns["n"], np.arange(20.0))
    assert all(column.dtype == np.float64 and column.shape == (20,) for column in log.columns.values())
    refuses(r"column 'Ts' cannot be used: it has length 1, but the log has 20 rows", log.column, "Ts")


@EVERY_VERSION
@pytest.mark.parametrize(
    ("variables", "columns", "timed"),
    [
        ({"data": {"time": TIME, "theta": THETA}, "gain": 3.0}, ["theta", "time"], True),
        ({"data": {"time": TIME, "theta": THETA}, "par": {"m": 0.05}}, ["data.theta", "data.time"], True),
        ({"data": {"time": TIME, "u": THETA}, "u": TIME}, ["data.time", "data.u", "u"], True),
        ({"a": {"time": TIME}, "b": {"time": TIME}}, ["a.time", "b.time"], False),
    ],
)
def test_field_names(save: Any, variables: dict[str, Any], columns: list[str], timed: bool, tmp_path: Path) -> None:
    log = read_log(save(tmp_path / "a.mat", variables))
    assert (sorted(log.columns), log.time is not None) == (columns, timed)


@EVERY_VERSION
def test_simulinks_structure_with_time(save: Any, tmp_path: Path) -> None:
    signals = {"values": np.stack([THETA, TIME], axis=1), "label": "theta"}
    log = read_log(save(tmp_path / "a.mat", {"out": {"time": TIME, "signals": signals}}))
    assert sorted(log.columns) == ["signals.values(:,1)", "signals.values(:,2)", "time"]
    np.testing.assert_array_equal(log.columns["signals.values(:,1)"], THETA)
    assert log.unusable == {"signals.label": "it is text"}


@EVERY_VERSION
def test_matrices_are_columns_named_as_matlab_indexes_them(save: Any, tmp_path: Path) -> None:
    table = np.stack([TIME, THETA, THETA**2], axis=1)
    tall = read_log(save(tmp_path / "a.mat", {"x": table, "t": TIME, "K": np.eye(3)}), "x(:,1)")
    assert sorted(tall.columns) == ["t", "x(:,1)", "x(:,2)", "x(:,3)"]
    np.testing.assert_array_equal(tall.columns["x(:,3)"], THETA**2)
    assert tall.unusable == {"K": "it is 3×3, but the log has 20 rows"}
    wide = read_log(save(tmp_path / "b.mat", {"ans": table.T}), "ans(1,:)")  # Simulink's To File block
    assert list(wide.columns) == ["ans(1,:)", "ans(2,:)", "ans(3,:)"]
    np.testing.assert_array_equal(wide.columns["ans(2,:)"], THETA)


def test_the_length_that_holds_the_most_numbers_is_the_logs(tmp_path: Path) -> None:
    gains = {f"k{i}": np.arange(3.0) for i in range(5)}
    log = read_log(save5(tmp_path / "a.mat", {**gains, "t": TIME, "u": THETA, "image": np.zeros((200, 200))}))
    assert list(log.columns) == ["t", "u"]
    wide = {"t": np.arange(150.0), "image": np.zeros((200, 150))}
    assert "matrix of 200×150" in read_log(save5(tmp_path / "b.mat", wide)).unusable["image"]


def test_what_is_no_vector_of_numbers_says_why(tmp_path: Path) -> None:
    cells = np.empty((1, 2), object)
    cells[0] = ["a", THETA]
    odd = {
        "cells": (cells, "it is a cell array"),
        "text": ("rig 3", "it is text"),
        "sparse": (scipy.sparse.csc_array(np.eye(3)), "it is sparse"),
        "phasor": (THETA * 1j, "it is complex"),
        "structs": (np.array([(1.0,), (2.0,)], [("a", object)]), "it is an array of structs"),
        "block": (np.zeros((2, 3, 4)), "it is an array of 2×3×4"),
        "none": (np.zeros((0, 0)), "it is empty"),
    }
    variables = {"t": TIME, **{name: value for name, (value, _) in odd.items()}, "deep": {"a": {"b": THETA}}}
    log = read_log(save5(tmp_path / "a.mat", variables))
    assert list(log.columns) == ["t", "a.b"]
    assert log.unusable.keys() == odd.keys()
    assert all(log.unusable[name].split(";")[0] == why for name, (_, why) in odd.items())
    refuses(r"column 'cells' cannot be used: it is a cell array; save each vector", log.column, "cells")


def test_what_version_73_keeps_beside_numbers_says_why(tmp_path: Path) -> None:
    path = save73(tmp_path / "a.mat", {"t": TIME, "text": "rig 3"})
    (tmp_path / "other.h5").write_bytes(b"")
    with h5py.File(path, "r+") as file:
        kept = file.create_group("#refs#")
        kept["a"] = THETA
        file["cells"] = np.array([[kept["a"].ref]], h5py.ref_dtype)
        file["cells"].attrs["MATLAB_class"] = np.bytes_("cell")
        file["series"] = np.zeros((1, 6), "u4")
        file["series"].attrs["MATLAB_class"] = np.bytes_("timeseries")
        file["none"] = np.zeros(2, "u8")
        file["none"].attrs.update({"MATLAB_class": np.bytes_("double"), "MATLAB_empty": np.uint8(1)})
        file["phasor"] = np.zeros((20, 1), [("real", "f8"), ("imag", "f8")])
        file.create_group("structs")["a"] = np.array([[kept["a"].ref] * 2], h5py.ref_dtype)
        file.create_group("sparse").attrs["MATLAB_sparse"] = np.uint64(3)
        file["elsewhere"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/x")
        file.create_dataset("outside", (20, 1), "f8", external=[("/etc/hostname", 0, 160)])
        file["loop"] = file["/"]
    log = read_log(path)
    assert [name for name in log.columns if not name.startswith("loop")] == ["t"]
    told = {name: log.unusable[name].partition(";")[0] for name in log.unusable if not name.startswith("loop")}
    assert told == {
        "cells": "it is a cell array",
        "elsewhere": "its numbers are not in this file",
        "none": "it is empty",
        "outside": "its numbers are not in this file",
        "phasor": "it is complex",
        "series": "it is a MATLAB timeseries, which only MATLAB reads",
        "sparse": "it is sparse",
        "structs.a": "it is an array of structs",
        "text": "it is text",
    }


def element(kind: int, content: bytes) -> bytes:
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)


def matrix5(category: int, *parts: bytes) -> bytes:
    return element(14, element(6, struct.pack("<II", category, 0)) + b"".join(parts))


def file5(path: Path, *variables: bytes) -> Path:
    path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(124) + MAT5_MARKS[0] + b"".join(variables))
    return path


def vector5(name: bytes, count: int, content: bytes) -> bytes:
    return matrix5(6, element(5, struct.pack("<ii", 1, count)), element(1, name), element(9, content))


def test_an_object_is_named_by_its_class(tmp_path: Path) -> None:
    series = matrix5(17, element(1, b"ts"), element(1, b"MCOS"), element(1, b"timeseries"))
    log = read_log(file5(tmp_path / "a.mat", series, vector5(b"t", 20, TIME.tobytes())))
    refuses(r"'ts' cannot be used: it is a MATLAB timeseries, which only MATLAB reads; save", log.column, "ts")
    alone = file5(tmp_path / "b.mat", series)
    refuses(r"b.mat holds no column of numbers; column 'ts' cannot be used: it is a MATLAB", read_log, alone)


def test_sizes_are_held_against_what_is_there(tmp_path: Path, monkeypatch: Patch) -> None:
    lie = file5(tmp_path / "lie.mat", vector5(b"t", 1 << 30, bytes(16)))
    refuses(r"lie.mat cannot be read: it is damaged: a variable does not hold as many", read_log, lie)
    cells = matrix5(1, element(5, struct.pack("<ii", 1 << 30, 1)), element(1, b"c"))
    double = vector5(b"t", 2, bytes(16))
    assert read_log(file5(tmp_path / "cells.mat", cells, double)).unusable["c"].startswith("it is a c")
    refuses(r"two columns named 't'", read_log, file5(tmp_path / "two.mat", double, double))
    bomb = file5(tmp_path / "bomb.mat", element(15, zlib.compress(vector5(b"t", 1 << 17, bytes(1 << 20)))))
    claim = save73(tmp_path / "claim.mat", {"t": TIME})
    with h5py.File(claim, "r+") as file:
        file.create_dataset("x", (1 << 40, 1), "f8", chunks=(1 << 20, 1))
    many = file5(tmp_path / "many.mat", *[vector5(b"t%d" % i, 1, bytes(8)) for i in range(20)])
    monkeypatch.setattr(table, "MAX_BYTES", 1 << 19)
    monkeypatch.setattr(table, "MAX_VARIABLES", 10)
    for path, told in ((bomb, "holds more than 0.000488 GiB"), (claim, "holds more than"), (many, "than 10 variables")):
        refuses(told, read_log, path)


def test_files_that_are_not_matlabs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    for content in (b"", b"hello", bytes(4096)):
        path.write_bytes(content)
        refuses(r"a.mat is not a MATLAB file of version 5, 7 or 7.3, .*'-v7'", read_log, path)
    savemat(path, {"t": TIME}, format="4")
    refuses("is not a MATLAB file of version 5", read_log, path)
    refuses("holds no column of numbers$", read_log, file5(path))
    save73(path, {"t": TIME})
    path.write_bytes(path.read_bytes()[:700])
    refuses(r"a.mat cannot be read: ", read_log, path)


NUMBERS = np.arange(5.0), np.arange(6, dtype="i2").reshape(2, 3), np.eye(2, dtype="f4"), np.array([[7]], np.uint8)
NAMED = st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,9}", fullmatch=True), st.sampled_from(NUMBERS), min_size=1)


@settings(max_examples=20, deadline=None)
@given(NAMED, st.booleans(), st.booleans())
def test_version_5_reads_as_scipy_does(
    tmp_path_factory: pytest.TempPathFactory, variables: dict[str, NDArray[Any]], compressed: bool, inner: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "oracle.mat"
    save5(path, {"s": variables} if inner else variables, compressed)
    found: Any = read_mat5(path, Budget(path))
    expected = loadmat(path)
    for name in variables:
        theirs = expected["s"][name].item() if inner else expected[name]
        np.testing.assert_array_equal((found["s"] if inner else found)[name], theirs)


def test_big_endian_is_read(tmp_path: Path) -> None:
    body = struct.pack(">IIII", 6, 8, 6, 0) + struct.pack(">IIii", 5, 8, 1, 2) + struct.pack(">HH4s", 1, 1, b"t")
    body = body + struct.pack(">IIdd", 9, 16, 1.0, 2.0)
    (tmp_path / "a.mat").write_bytes(bytes(124) + MAT5_MARKS[1] + struct.pack(">II", 14, len(body)) + body)
    assert read_log(tmp_path / "a.mat").columns["t"].tolist() == [1.0, 2.0]


SMALL: dict[str, Any] = {"data": {"time": TIME, "theta": THETA, "on": THETA > 0.1}, "u": TIME[:, None], "note": "rig"}


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.data())
@pytest.mark.parametrize("save", [save5, *slow([save7, save73])])
def test_no_damage_gives_a_traceback(save: Any, tmp_path: Path, data: st.DataObject) -> None:
    source = tmp_path / "whole.mat"
    whole = (source if source.exists() else save(source, SMALL)).read_bytes()
    read_damaged(read_log, tmp_path / "flipped.mat", whole, data)
