"""Writing and reading of Minari datasets, which are folders of whole episodes for offline learning.

Minari's own storage class writes datasets. This module reads datasets as plain HDF5, in the layout of Minari 0.4 and
0.5. Minari itself would run the environment that a dataset names, and would follow links to other files.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np

from replaybench.data.array_check import own_item
from replaybench.data.logs.table import Budget
from replaybench.runtime.arrays import Bools
from replaybench.runtime.atomic import atomic_path
from replaybench.runtime.errors import UserError

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec
    from gymnasium.spaces import Space

_ID: Final = re.compile(r"([A-Za-z0-9_][-\w]*/)*[A-Za-z0-9_][-\w]*-v\d+", re.ASCII)
_ARRAYS: Final = ("observations", "actions", "rewards", "terminations", "truncations")
_FILE: Final = "main_data.hdf5"
_LARGEST_METADATA: Final = 1 << 24


@dataclass(frozen=True, eq=False)
class Episode:
    """One episode of T steps.

    Attributes:
        observations: Observations, including the one after the last step; shape `[T + 1, S]`.
        actions: Actions; shape `[T, A]`.
        rewards: Unscaled rewards; shape `[T]`.
        terminations: Whether the state after each step is terminal; bool, shape `[T]`.
        truncations: Whether a time limit ends the episode at each step; bool, shape `[T]`.
        infos: Further arrays by name; shape `[T + 1, …]`. The first row belongs to the reset.
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminations: Bools
    truncations: Bools
    infos: Mapping[str, np.ndarray]


def dataset_folder(dataset_id: str, root: Path | None = None) -> Path:
    """Return the path of the folder of a Minari dataset, whether or not the folder exists.

    Args:
        dataset_id: Id of the dataset, such as `replaybench/pendulum/full-v0`.
        root: Folder of all datasets. By default, it is `$MINARI_DATASETS_PATH` or, if unset, `~/.minari/datasets`.

    Raises:
        UserError: If the id is malformed.
    """
    if not _ID.fullmatch(dataset_id):
        raise UserError(f"{dataset_id!r} is no Minari id; write namespace/name-v0, as in replaybench/pendulum/full-v0")
    own = os.environ.get("MINARI_DATASETS_PATH")
    return (root or (Path(own) if own else Path.home() / ".minari" / "datasets")) / dataset_id


def write_dataset(
    folder: Path,
    dataset_id: str,
    episodes: Iterable[Episode],
    observation_space: Space[Any],
    action_space: Space[Any],
    env_spec: EnvSpec | None,
    metadata: Mapping[str, Any],
) -> None:
    """Write a Minari dataset atomically, in the form that `minari.load_dataset` reads.

    Args:
        folder: Folder of the dataset, as `dataset_folder(dataset_id)` returns it. It must not exist.
        episodes: Episodes, which are requested one at a time. The file is assembled in memory.
        observation_space: Observation space of a single environment.
        action_space: Action space of a single environment.
        env_spec: Specification with which Gymnasium makes the environment. None if the environment has no
            specification.
        metadata: Further metadata of JSON types.
    """
    import minari
    from minari.data_collector import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage
    from minari.namespace import NAMESPACE_METADATA_FILENAME

    def buffers() -> Iterator[Any]:
        for episode in episodes:
            arrays = {name: getattr(episode, name) for name in _ARRAYS}
            yield EpisodeBuffer(**arrays, infos=dict(episode.infos))

    with atomic_path(folder, folder=True) as temporary:
        data = temporary.resolve() / "data"  # Minari's get_size() fails on a relative path
        storage = MinariStorage.new(data, observation_space, action_space, env_spec)
        storage.update_metadata({"dataset_id": dataset_id, "minari_version": minari.__version__, **metadata})
        # Episodes are assembled in memory: HDF5 crashes at exit if a disk is full while a file is open.
        storage._file_path = content = io.BytesIO()
        storage.update_episodes(buffers())
        (data / _FILE).write_bytes(content.getbuffer())
        storage.update_metadata({"dataset_size": storage.get_size()})
    for above in folder.parents[: dataset_id.count("/")]:  # mark namespaces as Minari does
        mark = above / NAMESPACE_METADATA_FILENAME
        with contextlib.suppress(FileExistsError), mark.open("x") as file:  # no link is followed
            file.write("{}")


def read_dataset(folder: Path) -> tuple[dict[str, Any], list[Episode]]:
    """Read the metadata and episodes of a Minari dataset, without the infos of the episodes.

    Observations must be vectors of numbers. Actions may also be single numbers, which become vectors of length 1.

    Returns:
        The metadata, and the episodes in order.

    Raises:
        UserError: If the dataset is missing, damaged, too large, or contains other observations or actions.
    """
    data = folder / "data"
    if not data.is_dir():
        raise UserError(f"no Minari dataset in {folder}; fetch it with `minari download`, or set MINARI_DATASETS_PATH")
    try:
        described = _plain_file(data / "metadata.json")
        if described.stat().st_size > _LARGEST_METADATA:
            raise ValueError(f"{described.name} is larger than {_LARGEST_METADATA >> 20} MiB")
        metadata = json.loads(described.read_text(encoding="utf-8"))
        if not isinstance(metadata, dict):
            raise TypeError(f"{described.name} holds no object")
        if metadata.get("data_format", "hdf5") != "hdf5":
            raise UserError(f"{folder} is stored as {metadata['data_format']!r}; only Minari's default, hdf5, is read")
        with h5py.File(_plain_file(data / _FILE), "r") as file:
            budget = Budget(folder)
            episodes = [_episode(folder, file, number, budget) for number in range(int(metadata["total_episodes"]))]
    except UserError:
        raise
    except Exception as error:  # any error that a damaged file causes in the libraries
        raise UserError(f"{folder} is damaged, or no Minari dataset: {' '.join(str(error).split())}") from error
    if not episodes:
        raise UserError(f"{folder} holds no episodes")
    return metadata, episodes


def _plain_file(path: Path) -> Path:
    """Return `path` if it is a regular file, and raise `ValueError` otherwise, as a pipe could block forever."""
    if not path.is_file():
        raise ValueError(f"{path.name} is missing")
    return path


def _episode(folder: Path, file: Any, number: int, budget: Budget) -> Episode:
    where, name = f"{folder}: episode {number}", f"episode_{number}"
    group = own_item(file, name)
    if not isinstance(group, h5py.Group):
        raise UserError(f"{where} is missing, or a link to elsewhere, which is not followed")
    arrays = {}
    for name in _ARRAYS:
        item = own_item(group, name)
        if not isinstance(item, h5py.Dataset) or item.dtype.kind not in "biuf":
            raise UserError(f"{where} has no plain numbers as {name}; only vectors of numbers are read")
        budget.take_dataset(item)
        arrays[name] = item[...]
    if arrays["actions"].ndim == 1:  # from a Discrete space
        arrays["actions"] = arrays["actions"][:, None]
    steps = len(arrays["rewards"])
    lengths = (steps + 1, steps, steps, steps, steps)
    ranks = (2, 2, 1, 1, 1)
    for (name, array), length, rank in zip(arrays.items(), lengths, ranks, strict=True):
        if array.ndim != rank or len(array) != length or not length:
            raise UserError(f"{where} of {steps} steps has {name} of shape {array.shape}")
    flags = {name: arrays.pop(name).astype(np.bool_) for name in ("terminations", "truncations")}
    return Episode(**arrays, **flags, infos={})
