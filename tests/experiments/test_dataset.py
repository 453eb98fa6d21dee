"""The results dataset: assembly from files, its file, and forged content."""

import dataclasses
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

from replaybench.baselines.grid_choice import SMALLEST_SPAN
from replaybench.data.record import write_record
from replaybench.experiments import dataset, results_file
from replaybench.experiments.cell import run_cell
from replaybench.experiments.dataset import AXES, assemble, describe
from replaybench.experiments.results_file import read_results, write_results
from replaybench.experiments.study import Cell
from replaybench.experiments.tables import noise_tables, score_tables
from replaybench.runtime.errors import UserError
from replaybench.runtime.provenance import Code, ComputeSession, session_facts
from tests.helpers.cells import small_cell, small_study
from tests.helpers.commands import Capsys, refused
from tests.helpers.drawn_studies import USABLE, Rewards, stored, without_measures
from tests.helpers.refusals import refuses

EPISODES = 20
CODES = [Code(sha, dirty, {}, "one", "here", "os") for sha, dirty in (("abc", True), ("abc", False), (None, None))]
ENDS = {"PendulumDCSC": (-10.0, -5.0), "Magman": (-10.0, -8.001)}
"""Rewards of random control and of dynamic programming; Magman's are too close."""


def cells(**changes: Any) -> list[Cell]:
    axes = {"plants": ("PendulumDCSC", "Magman"), "strategies": ("FIFO[Uniform]", "FULL[PER]"), "noise": (0.0, 0.02)}
    return small_study(**axes | {"seeds": 3, "episodes": EPISODES, "block": 2, "capacity": 100} | changes).cells()


CELLS = cells()


def arrays(cell: Cell) -> dict[str, np.ndarray]:
    """Return what a cell tells: rewards between the ends, lower by its noise; seed 1 fails, seed 2 learns nothing."""
    members, quality = np.array(cell.seeds), np.linspace(-0.5, 0.95, cell.episodes)
    mu = np.where(members[:, None] == 2, 0.1, quality - 5 * cell.noise)
    reward = -10.0 + 5.0 * mu
    reward[members == 1, 7] = np.inf
    looks = reward[:, 9::10]
    named = {"reward": reward, "reward_greedy": looks + 1, "metric_width": looks + 2}
    return {**named, "episode_steps": np.full(reward.shape, 200.0), **without_measures(cell)}


@pytest.fixture
def data(tmp_path: Path) -> xr.Dataset:
    """A dataset of which the last cell is not there yet."""
    for n, cell in enumerate(CELLS[:-1]):
        sessions = [
            ComputeSession(code, f"2026-01-0{1 + k}T00:00:00Z", 10.0 * n + k, 1 << 20) for k, code in enumerate(CODES)
        ]
        write_record(tmp_path / cell.id / "scores.h5", "scores", session_facts(sessions), arrays(cell))
    references = {
        (plant, 50.0, noise): dataclasses.replace(USABLE, random=random, zero=-9.0, lqr=-7.0, dp=dp, nodes=(3, 4))
        for plant, (random, dp) in ENDS.items()
        for noise in (0.0, 0.02)
    }
    return dataset.assemble(CELLS, references, {cell.id: tmp_path / cell.id for cell in CELLS})


SESSIONS: list[Any] = [5, [], [5], [{}], [{"code": {"commit": 5}, "started": "", "seconds": 1.0}]]
FORGED: list[Any] = [None, {"seconds": 1.0}, *({"sessions": value} for value in SESSIONS)]


@pytest.mark.parametrize("facts", FORGED)
def test_a_cell_that_cannot_be_read_is_named_with_the_remedy(tmp_path: Path, facts: dict[str, Any] | None) -> None:
    cell, path = CELLS[0], tmp_path / "scores.h5"
    if facts is None:
        path.write_bytes(b"no HDF5")
    else:
        write_record(path, "scores", facts, arrays(cell))
    with pytest.raises(UserError, match="scores.h5.*: remove .* and run the sweep again"):
        dataset.assemble([cell], {}, {cell.id: tmp_path})


def place(cell: Cell) -> dict[str, Any]:
    return {axis: getattr(cell, axis) for axis in dataset.AXES}


def test_every_number_is_in_its_place(data: xr.Dataset) -> None:
    named = {"seed": [0, 1, 2], "block": [0, 2], "greedy_episode": [10, 20], "episode_metric": ["mean reward"] * 2}
    for name, values in (named | {"episode": [*range(1, EPISODES + 1)], "update_every": [0, 0]}).items():
        assert data[name].values.tolist() == values, name
    assert (data["seconds"].attrs["units"], data["memory"].attrs["units"]) == ("s", "B")
    here = data.sel(plant="PendulumDCSC", noise=0.0, frequency=50.0)
    np.testing.assert_array_equal(dataset.steps_done(here), 200.0 * np.arange(EPISODES + 1))
    for cell in CELLS[:-1]:
        for name, array in arrays(cell).items():
            np.testing.assert_array_equal(data[name].sel(**place(cell), seed=list(cell.seeds)).values, array)
    last = CELLS[-1]
    for name in ("reward", "reward_greedy", "episode_steps", "metric_width", "mu_final"):
        assert np.isnan(data[name].sel(**place(last), seed=list(last.seeds)).values).all()


def test_seeds_of_a_study_that_continues_another_keep_their_numbers(tmp_path: Path) -> None:
    cell = dataclasses.replace(CELLS[0], first_member=7)
    facts = session_facts([ComputeSession(CODES[0], "2026-01-01T00:00:00Z", 1.0, 1 << 20)])
    write_record(tmp_path / "scores.h5", "scores", facts, arrays(cell))
    data = dataset.assemble([cell], {}, {cell.id: tmp_path})
    assert data["seed"].values.tolist() == list(cell.seeds)
    np.testing.assert_array_equal(data["reward"].sel(**place(cell)).values, arrays(cell)["reward"])


def test_each_cell_says_who_computed_it(data: xr.Dataset) -> None:
    for number, cell in enumerate(CELLS[:-1]):
        told = data["seconds"].sel(**place(cell), block=cell.first_member)
        assert told.item() == 30.0 * number + 3
        origin = [told[name].item() for name in ("commit", "started", "processor", "target")]
        assert origin == ["abc-dirty, abc, unknown", "2026-01-01T00:00:00Z", "one", "here"]
    missing = data["seconds"].sel(**place(CELLS[-1]), block=2)
    assert np.isnan(missing.item())
    assert missing["commit"].item() == ""


def test_scores_are_over_the_runs_that_are_there(data: xr.Dataset) -> None:
    quality = np.linspace(-0.5, 0.95, EPISODES)
    point = data.sel(**place(CELLS[0]))
    np.testing.assert_allclose(point["mu_final"].values, [quality.mean(), np.nan, 0.1])
    np.testing.assert_allclose(point["mu_max"].values, [0.95, np.nan, 0.1])
    np.testing.assert_array_equal(point["rise_time"].values, [1 + np.argmax(quality >= 0.8), np.nan, EPISODES])
    assert point["mu_final_mean"].item() == pytest.approx((quality.mean() + 0.1) / 2)
    assert point["mu_final_low"] < point["mu_final_mean"] < point["mu_final_high"]
    assert [int(point[name]) for name in ("failed", "dead", "censored")] == [1, 1, 1]
    noisy = data.sel(**{**place(CELLS[0]), "noise": 0.02})
    assert noisy["mu_final"].values[0] == pytest.approx(quality.mean() - 0.1)
    last = data.sel(**place(CELLS[-1]))  # of three runs two are there
    assert np.isnan(last["mu_final"].values[2])
    assert int(last["failed"]) == 1


def test_references_stand_beside_and_close_ends_give_no_score(data: xr.Dataset) -> None:
    for plant, (random, dp) in ENDS.items():
        own = data.sel(plant=plant)
        for name, value in (("random", random), ("dp", dp), ("zero", -9.0), ("lqr", -7.0)):
            assert (own[f"reference_{name}"] == value).all()
        assert own["reference_grid"].values.tolist() == ["3 × 4 nodes, 3 actions, as declared"]
        assert dataset.rule_of(own) == "paper"
    assert np.isnan(data["mu_final"].sel(plant="Magman").values).all()
    assert data["dead"].sel(plant="Magman", strategy="FIFO[Uniform]", noise=0.0).item() == 0
    edge = xr.Dataset({"reference_dp": -8.0, "reference_random": -10.0})
    assert dataset.mu_r(edge, xr.DataArray(-9.0)).item() == 0.5
    equal = xr.Dataset({"reference_dp": 0.0, "reference_random": 0.0})
    assert np.isnan(dataset.mu_r(equal, xr.DataArray([-1.0, 0.0, 1.0]))).all()


def test_rounds_are_told_from_episodes() -> None:
    iterations = ("iterations", 2, "the last 2 iterations", "the last training iteration")
    episodes = ("episodes", EPISODES, "all 20 episodes", "all 10 training episodes")
    for every, (word, last, whole, half) in ((0, episodes), (1, iterations), (200, iterations)):
        some = cells(update_every=every, plants=("Magman",))
        data = dataset.assemble(some, {}, {cell.id: Path("none") for cell in some}).isel(plant=0)
        assert (dataset.counted_in(data), dataset.in_iterations(data)) == (word, every > 0)
        assert (dataset.last_of(data), dataset.the_last(data)) == (last, whole)
        assert dataset.the_last(data.isel(episode=slice(10)), "training") == half
    steps = np.full((2, 3, 4), 100.0)
    steps[1] = 200.0
    lengths = xr.Dataset({"episode_steps": (("frequency", "seed", "episode"), steps)})
    assert not dataset.lengths_vary(lengths), "they differ between rates only"
    steps[1, 2, 3] = 199.0
    assert dataset.lengths_vary(lengths)


def test_failed_runs_exist(data: xr.Dataset) -> None:
    failed = data.copy(deep=True)
    failed["reward"][:] = np.nan
    bare = failed.copy(deep=True)
    bare["episode_steps"][:] = np.nan
    xr.testing.assert_equal(dataset.runs_there(failed), dataset.runs_there(data))
    assert not dataset.runs_there(bare).any()
    for empty, words in ((failed, "failed before its first reward"), (bare, "no finished cell")):
        assert words in str(dataset.without_rewards(Path("r.nc"), empty, "figures need"))


def test_a_file_reads_back_and_damage_is_one_line(tmp_path: Path, data: xr.Dataset) -> None:
    path = tmp_path / "results.nc"
    data = write_results(path, data)
    xr.testing.assert_identical(read_results(path).drop_vars(dataset.ORIGINS), data.drop_vars(dataset.ORIGINS))
    content = path.read_bytes()
    with h5py.File(io.BytesIO(content[:-32])) as file:
        packed = {name: file[name].compression for name in ("reward", "reward_greedy", "mu_final_mean", "reference_dp")}
        for axis, names in {"plant": "plants", "learner": "learners", "strategy": "strategies"}.items():
            assert file.attrs.get_id(names).dtype.kind == "S"  # of fixed length: Octave reads no other
            assert file.attrs[names].decode().split("\n") == data[axis].values.tolist()
    assert packed == dict.fromkeys(packed)  # this file is small
    for damaged in (content[:-1], b"x" + content[1:], content[:100], content[:-1] + bytes([content[-1] ^ 1])):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="its checksum does not match"):
            read_results(path)
    with pytest.raises(UserError, match="no such file"):
        read_results(tmp_path / "none.nc")


def test_files_round_episodes_and_nothing_else(tmp_path: Path) -> None:
    """Scores keep every digit, whole numbers too, and no episode between the references moves by 0.001 in μ_r."""
    random, path = -1.2, tmp_path / "results.nc"
    dp = random + SMALLEST_SPAN * abs(random)
    rng = np.random.default_rng(3)
    rewards = rng.uniform(random, dp, (20, 3000))
    rewards[0, :4] = 0.0, np.nan, np.inf, -12345678.0
    usable = dataclasses.replace(USABLE, random=random, dp=dp)
    study = small_study(strategies=("FIFO[Uniform]",), noise=(0.0,), seeds=20, episodes=3000)
    exact = stored(tmp_path, study, lambda _: rewards, usable)
    write_results(path, exact)
    found, length = read_results(path), path.stat().st_size
    xr.testing.assert_identical(found["mu_final"].variable, exact["mu_final"].variable)
    np.testing.assert_array_equal(found["episode_steps"].values, exact["episode_steps"].values)
    np.testing.assert_array_equal(found["reward"].values.ravel()[:4], rewards[0, :4])
    moved = abs(dataset.mu_r(found, found["reward"]) - dataset.mu_r(exact, exact["reward"])).values
    assert 0.0004 < np.nanmax(moved) < 0.001
    assert length < 0.45 * rewards.nbytes
    xr.testing.assert_identical(write_results(path, found), found)


def test_noise_is_told_of_the_states_that_are_observed(tmp_path: Path) -> None:
    cell = small_cell(noise=(0.02,), seeds=2, episodes=3, capacity=300, observe=("angle",), replayed_noise=True)
    assert run_cell(cell, tmp_path, "none")
    noise = assemble([cell], {}, {cell.id: tmp_path})["replayed_noise"]
    assert noise["signal"].values.tolist() == ["angle", "voltage"]
    assert np.isfinite(noise.values).all()


Edit = Callable[[Any, str], Any]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    study = small_study(
        strategies=("FIFO[Uniform]", "FULL[PER]"), noise=(0.0, 0.02), seeds=2, episodes=12, replayed_noise=True
    )
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
    began = time.process_time()
    with pytest.raises(UserError, match="unpacks to more than 256 MiB of text"):
        read_results(tmp_path / "r.nc")
    assert time.process_time() - began < 5.0


def test_what_is_too_large_is_not_unpacked(sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forge(sound, tmp_path / "r.nc", lambda file: file.attrs.update(title=["x" * 1000] * 60))
    with pytest.raises(UserError, match="no single number or text"):
        read_results(tmp_path / "r.nc")
    monkeypatch.setattr(results_file, "available_memory", lambda: 1000)
    with pytest.raises(UserError, match="unpacks to .*, .* are free"):
        read_results(sound)


FEW = ("strategy", "reward")
MORE = (
    *("plant", "noise", "episode", "greedy_episode", "signal", "episode_metric", "update_every", "reward_greedy"),
    *("reference_dp", "mu_final", "failed", "replayed_noise", "metric_spread", "reference_grid", "seed", "commit"),
    "mu_final_mean",
)
"""Arrays, one of each kind."""
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


@pytest.mark.parametrize("arrays", [FEW, pytest.param(MORE, marks=pytest.mark.slow)], ids=["few", "more"])
@pytest.mark.parametrize("kind", EDITS)
def test_a_forged_array_is_shown_or_one_line(kind: str, arrays: tuple[str, ...], sound: Path, tmp_path: Path) -> None:
    path = tmp_path / "forged.nc"
    for name in arrays:
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
def test_a_forged_attribute_is_shown_or_one_line(name: str, value: Any, sound: Path, tmp_path: Path) -> None:
    def edit(file: Any) -> None:
        file.attrs.pop(name, None)
        if value is not None:
            file.attrs[name] = value

    forge(sound, tmp_path / "forged.nc", edit)
    refused = outcome(tmp_path / "forged.nc", name)
    assert refused or (name, value) != ("version", None)


@pytest.mark.parametrize(("name", "count"), [("DIMENSION_LIST", 4000), ("DIMENSION_LIST", 6), ("CLASS", 3)])
def test_forged_lists_of_axes_are_refused_before_hdf5_reads_them(
    name: str, count: int, sound: Path, tmp_path: Path
) -> None:
    """HDF5 reads such a list into a buffer of the usual size."""

    def edit(file: Any) -> None:
        file["reward"].attrs.pop(name, None)
        file["reward"].attrs.create(name, np.arange(count), dtype="u8")

    forge(sound, tmp_path / "forged.nc", edit)
    refuses("does not list its axes as netCDF does|no single number or text", read, tmp_path / "forged.nc")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"name = [", b"a = " + b"[" * 5000, b"a = " + b"9" * 5000])
def test_inspect_of_a_folder_with_a_damaged_study(content: bytes, tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "study.toml").write_bytes(content)
    assert f"{tmp_path / 'study.toml'} is not valid TOML" in refused(capsys, "inspect", tmp_path)
