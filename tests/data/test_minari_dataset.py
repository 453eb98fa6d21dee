"""Minari datasets: what is written is what Minari reads, and what a stranger wrote cannot harm."""

import json
import os
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import minari
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from minari.data_collector import EpisodeBuffer
from minari.namespace import list_local_namespaces

from replaybench.data.logs import table
from replaybench.data.logs.minari_dataset import Episode, dataset_folder, read_dataset, write_dataset
from tests.helpers.commands import Patch
from tests.helpers.refusals import read_damaged, refuses

NAME = "tests/rig-v0"
STATES = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
ACTIONS = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


def episode(steps: int, seed: int = 0) -> Episode:
    rng = np.random.default_rng(seed)
    last = np.arange(steps) == steps - 1
    return Episode(
        observations=rng.uniform(-1, 1, (steps + 1, 2)).astype(np.float32),
        actions=rng.uniform(-1, 1, (steps, 1)).astype(np.float32),
        rewards=rng.uniform(-1, 0, steps).astype(np.float32),
        terminations=last & (seed % 2 == 1),
        truncations=last & (seed % 2 == 0),
        infos={"exploration": np.ones((steps + 1, 1), np.float32)},
    )


def write(episodes: list[Episode], **metadata: Any) -> Path:
    folder = dataset_folder(NAME)
    write_dataset(folder, NAME, iter(episodes), STATES, ACTIONS, None, metadata)
    return folder


def test_minari_reads_what_was_written_and_so_do_we(root: Path) -> None:
    written = [episode(5), episode(3, seed=1), episode(8, seed=2)]
    folder = write(written, algorithm_name="none", ref_min_score=-3.0, ref_max_score=-1.0)
    assert folder == root / "tests" / "rig-v0"
    theirs = minari.load_dataset(NAME)
    metadata, ours = read_dataset(folder)
    assert metadata["dataset_id"] == NAME
    assert (theirs.total_episodes, theirs.total_steps) == (3, 16)
    assert (theirs.observation_space, theirs.action_space) == (STATES, ACTIONS)
    for a, b, c in zip(written, theirs, ours, strict=True):
        for name in ("observations", "actions", "rewards", "terminations", "truncations"):
            np.testing.assert_array_equal(getattr(b, name), getattr(a, name))
            np.testing.assert_array_equal(getattr(c, name), getattr(a, name))
            assert getattr(b, name).dtype == getattr(c, name).dtype == getattr(a, name).dtype
        np.testing.assert_array_equal(b.infos["exploration"], a.infos["exploration"])
    assert minari.get_normalized_score(theirs, np.array([-3.0, -2.0, -1.0])).tolist() == [0.0, 0.5, 1.0]
    assert list(minari.list_local_datasets()) == [NAME]
    assert list_local_namespaces() == ["tests"]


def test_a_dataset_that_minari_made_is_read() -> None:
    made = episode(6)
    buffer = EpisodeBuffer(
        observations=list(made.observations),
        actions=list(made.actions),
        rewards=made.rewards.tolist(),
        terminations=made.terminations.tolist(),
        truncations=made.truncations.tolist(),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        minari.create_dataset_from_buffers("made-v3", [buffer], action_space=ACTIONS, observation_space=STATES)
    _, (found,) = read_dataset(dataset_folder("made-v3"))
    np.testing.assert_array_equal(found.observations, made.observations)
    np.testing.assert_allclose(found.rewards, made.rewards)
    assert found.truncations.dtype == np.bool_


def test_a_failed_export_leaves_nothing(root: Path) -> None:
    def broken() -> Any:
        yield episode(5)
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        write_dataset(root / "a-v0", "a-v0", broken(), STATES, ACTIONS, None, {})
    assert list(root.iterdir()) == []
    (root / "file").write_text("")
    folder = root / "file" / "a-v0"
    told = r"cannot write .*file/a-v0: .*; choose another folder"
    refuses(told, write_dataset, folder, "a-v0", [episode(2)], STATES, ACTIONS, None, {})


@pytest.mark.parametrize(
    "name", ["rig", "rig-v", "../rig-v0", "/rig-v0", "a//b-v0", "a/../b-v0", ".a/b-v0", "rig-v0\n", ""]
)
def test_an_id_is_checked(name: str) -> None:
    refuses(r"is no Minari id; write namespace/name-v0", dataset_folder, name)


def test_the_folder_is_minaris_own(tmp_path: Path, monkeypatch: Patch) -> None:
    assert dataset_folder(NAME, tmp_path / "mine") == tmp_path / "mine" / "tests" / "rig-v0"
    monkeypatch.delenv("MINARI_DATASETS_PATH")
    monkeypatch.setenv("HOME", str(tmp_path))
    from minari.storage.datasets_root_dir import get_dataset_path

    assert dataset_folder(NAME) == get_dataset_path(NAME)


def with_metadata(data: Path, **changes: Any) -> None:
    path = data / "metadata.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def with_first(data: Path, name: str, content: Any = None, **claimed: Any) -> None:
    """Put other numbers, or a claim of them, into the first episode."""
    with h5py.File(data / "main_data.hdf5", "r+") as file:
        del file[f"episode_0/{name}"]
        if claimed:
            file.create_dataset(f"episode_0/{name}", dtype="f4", **claimed)
        else:
            file[f"episode_0/{name}"] = content


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: with_metadata(data, data_format="arrow"), r"is stored as 'arrow'; only .* hdf5, is read"),
        (lambda data: with_metadata(data, total_episodes=3), r"episode 2 is missing, or a link to elsewhere"),
        (lambda data: with_metadata(data, total_episodes=0), r"holds no episodes"),
        (lambda data: with_metadata(data, total_episodes=float("inf")), r"is damaged, or no Minari dataset"),
        (lambda data: with_metadata(data, total_episodes="many"), r"is damaged, or no Minari dataset"),
        (lambda data: (data / "metadata.json").write_text("[]"), r"metadata.json holds no object"),
        (lambda data: (data / "metadata.json").write_text("{"), r"is damaged, or no Minari dataset"),
        (lambda data: (data / "metadata.json").unlink(), r"is damaged, or no Minari dataset"),
        (lambda data: (data / "main_data.hdf5").write_bytes(b"PK"), r"is damaged, or no Minari dataset"),
        (lambda data: with_first(data, "rewards", np.zeros(4)), r"of 4 steps has observations of shape \(6, 2\)"),
        (lambda data: with_first(data, "actions", np.zeros((5, 1, 1))), r"has actions of shape \(5, 1, 1\)"),
        (lambda data: with_first(data, "actions", h5py.SoftLink("/episode_1/actions")), r"no plain numbers as actions"),
        (lambda data: with_first(data, "actions", h5py.ExternalLink("/etc/passwd", "/x")), r"no plain numbers as act"),
        (lambda data: with_first(data, "rewards", ["text"]), r"has no plain numbers as rewards"),
        (lambda data: with_first(data, "actions", shape=(1 << 40, 1), chunks=(1024, 1)), r"more than 1 GiB of numbers"),
    ],
)
def test_damaged_and_foreign_datasets_are_one_line(damage: Callable[[Path], Any], message: str) -> None:
    folder = write([episode(5), episode(5)])
    damage(folder / "data")
    refuses(message, read_dataset, folder)


def test_a_dataset_cannot_make_us_run_anything(root: Path) -> None:
    """Minari makes the environment that a dataset names, whatever it is, when its spaces are missing."""
    folder = write([episode(5)])
    spec = {"id": "x-v0", "entry_point": "os:mkdir", "kwargs": {"path": str(root / "ran")}}
    with_metadata(folder / "data", env_spec=json.dumps({**spec, "additional_wrappers": []}))
    path = folder / "data" / "metadata.json"
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if not k.endswith("_space")}))
    assert len(read_dataset(folder)[1]) == 1
    assert not (root / "ran").exists()


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.data())
def test_no_damage_gives_a_traceback(root: Path, monkeypatch: Patch, data: st.DataObject) -> None:
    monkeypatch.setattr(table, "MAX_BYTES", 1 << 22)
    folder = root / "tests" / "rig-v0"
    if not folder.exists():
        write([episode(5), episode(3)])
        (root / "whole").write_bytes((folder / "data" / "main_data.hdf5").read_bytes())
    damaged = folder / "data" / "main_data.hdf5"
    read_damaged(lambda _: read_dataset(folder), damaged, (root / "whole").read_bytes(), data)


def test_a_pipe_is_not_opened() -> None:
    folder = write([episode(5)])
    (folder / "data" / "main_data.hdf5").unlink()
    os.mkfifo(folder / "data" / "main_data.hdf5")
    signal.alarm(10)  # ends the tests rather than never
    refuses("is damaged, or no Minari dataset", read_dataset, folder)
    signal.alarm(0)
