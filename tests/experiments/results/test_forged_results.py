"""Results whose content is forged, checksum and all: read as they are, or refused in one line that names the file."""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
from drawn_studies import USABLE, Rewards, stored

from replaybench.cli.main import main
from replaybench.experiments import results_file
from replaybench.experiments.dataset import AXES, describe
from replaybench.experiments.results_file import read_results, write_results
from replaybench.experiments.study import Study
from replaybench.experiments.tables import noise_tables, score_tables
from replaybench.runtime.errors import UserError

Edit = Callable[[Any, str], Any]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    study = Study(
        name="t", plants=("PendulumDCSC",), strategies=("FIFO[Uniform]", "FULL[PER]"), noise=(0.0, 0.02), seeds=2,
        episodes=12, replayed_noise=True,
    )  # fmt: skip
    rng = np.random.default_rng(7)
    further: dict[str, Rewards] = {
        "replayed_noise": lambda _: np.abs(rng.normal(size=(2, 3))),
        "metric_spread": lambda _: rng.normal(size=(2, 1)),
    }
    write_results(folder / "r.nc", stored(folder, study, lambda _: rng.normal(-100.0, 5.0, (2, 12)), USABLE, further))
    return folder / "r.nc"


def forge(source: Path, path: Path, edit: Callable[..., Any], *of: str) -> None:
    """Change a copy as HDF5 allows it, and seal it as if it had been written so."""
    content = io.BytesIO(source.read_bytes()[:-32])
    with h5py.File(content, "r+") as file:
        edit(file, *of)
    body = content.getvalue()
    path.write_bytes(body + hashlib.blake2b(body, digest_size=32).digest())


def read(path: Path, everything: bool = False) -> None:
    """Read results and show them; with `everything` the dear tables, too."""
    data = read_results(path)
    describe(data)
    score_tables(data)
    if everything:
        noise_tables(data)


def replaced(make: Callable[[Any], Any]) -> Edit:
    """Put another array in the place of one, with the same axes as far as it has as many."""

    def edit(file: Any, name: str) -> None:
        old = file[name]
        scale, values = old.is_scale, old[()]
        axes = [dim.values()[0].name.strip("/") for dim in old.dims] if not scale else []
        del file[name]
        new = file.create_dataset(name, **make(values))
        if scale and new.shape is not None and new.ndim:
            new.make_scale(name)
        for number, axis in enumerate(axes[: len(new.shape or ())]):
            new.dims[number].attach_scale(file[axis])

    return edit


def filled(value: Any) -> Edit:
    def edit(file: Any, name: str) -> None:
        file[name][...] = np.full(file[name].shape, value)

    return edit


def told(**attributes: Any) -> Edit:
    return lambda file, name: file[name].attrs.update(attributes)


def group(file: Any, name: str) -> None:
    del file[name]
    file.create_group(name)


def outside(file: Any, name: str) -> None:
    del file[name]
    file[name] = h5py.ExternalLink("/etc/hostname", "/x")


EDITS: dict[str, Edit] = {
    "dropped": lambda file, name: file.__delitem__(name),
    "renamed": lambda file, name: file.move(name, name + "\x1b[31m"),
    "whole numbers": replaced(lambda v: {"data": np.zeros(v.shape, np.int64)}),
    "text": replaced(lambda v: {"data": np.full(v.shape, "x", object), "dtype": h5py.string_dtype()}),
    "complex": replaced(lambda v: {"data": np.zeros(v.shape, complex)}),
    "compound": replaced(lambda v: {"data": np.zeros(v.shape, [("a", "f4"), ("b", "i4")])}),
    "lists": replaced(lambda v: {"shape": v.shape, "dtype": h5py.vlen_dtype(np.int32)}),
    "references": replaced(lambda v: {"shape": v.shape, "dtype": h5py.ref_dtype}),
    "nothing": replaced(lambda v: {"data": h5py.Empty("f8")}),
    "a number": replaced(lambda v: {"data": 1.0}),
    "flat": replaced(lambda v: {"data": np.zeros(v.size + 1)}),
    "empty": replaced(lambda v: {"data": np.zeros((0,) * v.ndim)}),
    "one axis more": replaced(lambda v: {"data": np.zeros((*v.shape, 2))}),
    "huge": replaced(lambda v: {"shape": (10**6,) * min(2, v.ndim), "dtype": "f8", "chunks": True}),
    "group": group,
    "in another file": outside,
    "NaN": filled(np.nan),
    "infinite": filled(np.inf),
    "negative": filled(-5),
    "large": filled(1e300),
    "control characters": filled("a\x1b[31m\n"),
    "equal": lambda file, name: filled(file[name][()].ravel()[0])(file, name),
    "dates": told(units="days since 2000-01-01", scale_factor="x", _FillValue=[1, 2], dtype="bool", long_name=5),
    "no axes": lambda file, name: [file[name].attrs.pop(key, None) for key in ("DIMENSION_LIST", "CLASS", "NAME")],
}


def repeated(file: Any, name: str) -> None:
    """Name one long text many times, as a file can without growing: its elements are 16 bytes each."""
    del file[name]
    file.create_dataset(name, data=["x" * 30_000, *["y"] * 20_000], dtype=h5py.string_dtype())


def test_one_text_that_is_named_many_times_is_not_unpacked(sound: Path, tmp_path: Path) -> None:
    forge(sound, tmp_path / "r.nc", repeated, "commit")
    body = bytearray((tmp_path / "r.nc").read_bytes()[:-32])
    with h5py.File(io.BytesIO(body), "r") as file:
        start, size = file["commit"].id.get_offset(), file["commit"].size
    body[start : start + 16 * size] = body[start : start + 16] * size
    (tmp_path / "r.nc").write_bytes(body + hashlib.blake2b(body, digest_size=32).digest())
    began = time.monotonic()
    with pytest.raises(UserError, match="unpacks to more than 256 MiB of text"):
        read_results(tmp_path / "r.nc")
    assert time.monotonic() - began < 5.0


def test_what_is_too_large_is_not_unpacked(sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forge(sound, tmp_path / "r.nc", lambda file: file.attrs.update(title=["x" * 1000] * 60))
    with pytest.raises(UserError, match="no single value"):
        read_results(tmp_path / "r.nc")
    monkeypatch.setattr(results_file, "available_memory", lambda: 1000)
    with pytest.raises(UserError, match="unpacks to .*, .* are free"):
        read_results(sound)


ARRAYS = (
    *("plant", "strategy", "noise", "seed", "episode", "greedy_episode", "signal", "episode_metric", "update_every"),
    *("commit", "reward", "reward_greedy", "reference_dp", "mu_final", "mu_final_mean", "failed", "replayed_noise"),
    *("metric_spread", "reference_grid"),
)
"""One of each kind."""
NEVER = {"complex", "compound", "lists", "references", "nothing", "one axis more", "huge", "group", "in another file"}
FOR_AXES = {"dropped", "renamed", "a number", "empty", "NaN", "infinite", "equal"}


def outcome(path: Path, label: str) -> bool:
    """Read a forged file; whether it was refused, which takes one line that names it."""
    try:
        read(path, everything=label.startswith(("signal", "replayed_noise")))
    except UserError as error:
        assert str(path) in str(error), label
        assert "\n" not in str(error), label
        return True
    return False


@pytest.mark.parametrize("kind", EDITS)
def test_whatever_becomes_of_an_array_is_shown_or_one_line(kind: str, sound: Path, tmp_path: Path) -> None:
    path = tmp_path / "forged.nc"
    for name in ARRAYS:
        label = f"{name}: {kind}"
        try:
            forge(sound, path, EDITS[kind], name)
        except (TypeError, ValueError, OSError, RuntimeError):
            continue  # HDF5 itself knows no such thing
        refused = outcome(path, label)
        if kind in NEVER or (kind in FOR_AXES and name in AXES):
            assert refused or (kind == "equal" and name in ("plant", "learner", "frequency")), label  # one label only


@pytest.mark.parametrize("name", ["version", "numerics_version", "title", "coordinates"])
@pytest.mark.parametrize("value", [None, "x", 5, [1, 2], "x" * 30_000])
def test_whatever_becomes_of_an_attribute_is_shown_or_one_line(
    name: str, value: Any, sound: Path, tmp_path: Path
) -> None:
    def edit(file: Any) -> None:
        file.attrs.pop(name, None)
        if value is not None:
            file.attrs[name] = value

    forge(sound, tmp_path / "forged.nc", edit)
    refused = outcome(tmp_path / "forged.nc", name)
    assert refused or (name, value) != ("version", None)


def test_inspect_says_so_with_status_2(sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for edit in ("dropped", "complex", "flat", "NaN"):
        forge(sound, tmp_path / "forged.nc", EDITS[edit], "noise")
        with pytest.raises(SystemExit) as ended:
            main(["inspect", str(tmp_path / "forged.nc")])
        said = capsys.readouterr()
        assert ended.value.code == 2
        assert said.err.startswith(f"replaybench: {tmp_path / 'forged.nc'}")
        assert said.err.count("\n") == 1


@pytest.mark.parametrize("content", [b"\xff\xfe", b"name = [", b"a = " + b"[" * 5000, b"a = " + b"9" * 5000])
def test_inspect_of_a_folder_with_a_damaged_study(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "study.toml").write_bytes(content)
    with pytest.raises(SystemExit) as ended:
        main(["inspect", str(tmp_path)])
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.startswith(f"replaybench: {tmp_path / 'study.toml'} is not valid TOML")
    assert said.count("\n") == 1


def test_what_is_read_is_what_was_written(sound: Path) -> None:
    with xr.open_dataset(sound, engine="h5netcdf") as data:
        names = ("plants", "learners", "strategies")  # for other programs
        told = {name: text for name, text in data.attrs.items() if name not in names}
        xr.testing.assert_identical(read_results(sound), data.load().drop_attrs(deep=False).assign_attrs(told))
