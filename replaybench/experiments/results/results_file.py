"""Results in a file: netCDF-4 with a checksum, written whole and read by a schema.

Checksums tell damage, not intent. netCDF libraries obey what a file says of itself (units, fill values, factors, links
to other files); here the plain arrays are taken, checked, and labelled anew.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

import h5py
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from replaybench.data.atomic import atomic_path
from replaybench.data.bounds import HERTZ, NOISE, OneLine, Within
from replaybench.data.configuration import build
from replaybench.data.errors import UserError, no_such_file, shown
from replaybench.data.memory import available_memory
from replaybench.data.quantities import gigabytes
from replaybench.data.records.array_check import attribute, own_item
from replaybench.data.records.compression import DEFLATE_LIMIT
from replaybench.data.records.record import is_record, read_header
from replaybench.envs.interface.plant import EpisodeMetric
from replaybench.experiments.results.dataset import AXES, ORIGINS, SCORES, label_axes, score_key

_DIGEST_BYTES: Final = 32
_MOST_TEXT: Final = 1 << 28
_FILTERS: Final = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}
_TEXT, _WHOLE, _NUMBER = "text", "whole numbers", "numbers"

_AXIS_KINDS: Final = {
    **dict.fromkeys(("plant", "learner", "strategy", "signal"), _TEXT),
    **dict.fromkeys(("noise", "frequency"), _NUMBER),
    **dict.fromkeys(("seed", "block", "episode", "greedy_episode"), _WHOLE),
}
_RANGES: Final = {
    "noise": NOISE,
    "frequency": HERTZ,
    "seed": Within(0),
    "block": Within(0),
    "update_every": Within(0),
    **dict.fromkeys(("episode", "greedy_episode"), Within(1)),
    **dict.fromkeys(("failed", "dead", "censored"), Within(0)),
}
_NEEDED: Final = {
    "reward": (*AXES, "seed", "episode"),
    "reward_greedy": (*AXES, "seed", "greedy_episode"),
    "reference_random": ("plant", "noise", "frequency"),
    "reference_dp": ("plant", "noise", "frequency"),
    **{score_key(score): (*AXES, "seed") for score in SCORES},
    **{f"{score_key(score)}_{bound}": AXES for score in SCORES for bound in ("mean", "low", "high")},
    **dict.fromkeys(("failed", "dead", "censored"), AXES),
}
_FORMS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    **{name: ((name,), kind) for name, kind in _AXIS_KINDS.items()},
    **{name: (axes, _NUMBER) for name, axes in _NEEDED.items()},
    "episode_metric": (("plant",), _TEXT),
    "update_every": (("plant",), _WHOLE),
    "episode_steps": ((*AXES, "seed", "episode"), _NUMBER),
    "replayed_noise": ((*AXES, "seed", "signal"), _NUMBER),
    "reference_rule": (("plant",), _TEXT),
    "reference_grid": (("plant", "frequency"), _TEXT),
    "reference_change": (("plant", "frequency"), _NUMBER),
}
"""Axes and kind of what is in results. Whatever else is there must have some of these axes."""
_NEEDED_AXES: Final = (*AXES, "seed", "episode", "greedy_episode")

_NAMES: Final = {"plant": "plants", "learner": "learners", "strategy": "strategies"}
"""Attributes that tell other programs the names along an axis; nothing here reads them."""

_BESIDE: Final = ("episode_metric", "update_every", "reference_rule", *ORIGINS)
"""Coordinates that are no axes."""

Labelled = tuple[tuple[str, ...], NDArray[Any]]
"""Names of an array's axes, and the array."""


@dataclass(frozen=True)
class ResultsFacts:
    """What must be among the attributes of a results file, and of which type; others may be there."""

    version: str
    numerics_version: int
    title: str = ""
    reward: str = ""


def write_results(path: Path, data: xr.Dataset) -> None:
    """Write netCDF-4 atomically, with a checksum behind the end of the file, where HDF5 does not look.

    The names along the text axes are attributes, too, a line each, in characters of fixed length: Octave reads no
    other text.

    It is made in memory: the HDF5 library crashes at exit when a disk takes no more of a file that it holds open.

    Raises:
        UserError: the disk is full or the folder cannot be written; what was at `path` is untouched.
    """
    packed = {str(name): {"zlib": True, "complevel": 4} for name in data.data_vars if data[name].ndim > len(AXES)}
    names = {many: "\n".join(map(str, data[axis].values)) for axis, many in _NAMES.items() if axis in data.coords}
    data = data.assign_attrs({many: np.bytes_(text.encode()) for many, text in names.items()})
    content = data.to_netcdf(engine="h5netcdf", encoding=packed)
    with atomic_path(path) as temporary, temporary.open("wb") as raw:
        raw.write(content)
        raw.write(hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest())


_RENAMED: Final = {"told_by": "episode_metric"}
"""Arrays that files of earlier versions call otherwise."""


def read_results(path: Path | str) -> xr.Dataset:
    """Read results whole, their checksum verified before the HDF5 library sees them.

    Raises:
        UserError: the file is missing, damaged or foreign, or holds something else than results.
    """
    path = Path(path)
    if not path.is_file() and path.name != "results.nc":
        raise no_such_file(path)
    if not path.is_file():
        raise UserError(f"no such file: {path}; replaybench sweep STUDY --output {path.parent} makes it")
    content = path.read_bytes()
    body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() != digest:
        if is_record(path):
            raise UserError(
                f"{path} is a {read_header(path).kind} file and no results.nc; replaybench inspect shows it"
            )
        raise UserError(f"{path} is damaged, or not a file that replaybench wrote: its checksum does not match")
    with _one_line(path), h5py.File(io.BytesIO(body), "r") as file:
        mine = [key for key in file.attrs if not str(key).startswith("_") and key not in _NAMES.values()]
        told = {str(key): _plain(attribute(file, key)) for key in mine}
        build(ResultsFacts, told, f"the attributes of {path}", others=True)
        datasets = {name: _checked(path, file, name) for name in file}
        asked, free = sum(map(_most_bytes, datasets.values())), available_memory()
        if asked > free:
            raise UserError(f"{path} unpacks to {gigabytes(asked)}, {gigabytes(free)} are free")
        arrays = {_RENAMED.get(name, name): _array(path, dataset, len(body)) for name, dataset in datasets.items()}
        meanings = {
            _RENAMED.get(name, name): {"long_name": str(_plain(attribute(dataset, "long_name")))}
            for name, dataset in datasets.items()
            if "long_name" in dataset.attrs
        }
    return _dataset(path, told, arrays, meanings)


@contextmanager
def _one_line(path: Path) -> Iterator[None]:
    """Turn whatever a library raises over a file's content into one line about the file."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{path} cannot be read as results: {reason}") from None


def _plain(value: Any) -> Any:
    """Return an attribute as Python has it: text, a number, or what is refused by its type."""
    return value.item() if isinstance(value, np.generic | np.ndarray) and value.size == 1 else value


def _checked(path: Path, file: Any, name: str) -> Any:
    """Return a dataset that is what results hold; nothing of it is read."""
    dataset = own_item(file, name)
    if not isinstance(dataset, h5py.Dataset) or dataset.shape is None:
        raise UserError(f"{path}: {name!r} is linked or no array")
    plist = dataset.id.get_create_plist()
    if {plist.get_filter(number)[0] for number in range(plist.get_nfilters())} - _FILTERS:
        raise UserError(f"{path}: {name!r} is packed in a way that replaybench does not use")
    if math.prod(dataset.shape) * dataset.dtype.itemsize > DEFLATE_LIMIT * dataset.id.get_storage_size():
        raise UserError(f"{path}: {name!r} claims more data than the file holds")
    text = h5py.check_string_dtype(dataset.dtype)
    if text is None and dataset.dtype.kind not in "iuf":
        raise UserError(f"{path}: {name!r} holds neither numbers nor text")
    return dataset


def _most_bytes(dataset: Any) -> int:
    """Return the bytes that an array takes, its texts aside; HDF5 unpacks whole chunks, which may be larger."""
    count: int = math.prod(dataset.shape) + math.prod(dataset.chunks or (0,))
    return count * max(8, int(dataset.dtype.itemsize))


def _array(path: Path, dataset: Any, length: int) -> Labelled:
    """Read an array, from a file of so many bytes, with the names of its axes."""
    name = str(dataset.name).strip("/")
    axes = (name,) if dataset.is_scale and dataset.ndim == 1 else tuple(_axis(dataset, i) for i in range(dataset.ndim))
    if h5py.check_string_dtype(dataset.dtype) is not None:
        return axes, _texts(path, dataset, length)
    return axes, np.asarray(dataset[()])


def _texts(path: Path, dataset: Any, length: int) -> NDArray[np.str_]:
    """Read texts, which are at most as long as their file, and each of which a file may hold once and name often."""
    texts, most = dataset.asstr(), 0
    if dataset.size * length > _MOST_TEXT:  # else all at once
        for place in np.ndindex(dataset.shape):
            most = max(most, len(texts[place]))
            if 4 * most * dataset.size > _MOST_TEXT:
                raise UserError(f"{path}: {dataset.name!r} unpacks to more than {_MOST_TEXT >> 20} MiB of text")
    return np.array(texts[()], np.str_)


def _axis(dataset: Any, number: int) -> str:
    scales = dataset.dims[number].values()
    return str(scales[0].name).strip("/") if len(scales) == 1 else ""


def _dataset(
    path: Path, told: Mapping[str, Any], arrays: Mapping[str, Labelled], meanings: Mapping[str, dict[str, str]]
) -> xr.Dataset:
    """Check arrays against each other and against what results hold, and label them."""
    for name in (*_NEEDED_AXES, *_NEEDED):
        if name not in arrays:
            raise UserError(f"{path} lacks {name}, which results hold")
    sizes = {name: _check_axis(path, name, *arrays[name]) for name in _AXIS_KINDS if name in arrays}
    for name, (axes, values) in arrays.items():
        metric = ((*AXES, "seed", "greedy_episode"), _NUMBER)
        due, kind = metric if name.startswith("metric_") else _FORMS.get(name, (axes, _kind(values)))
        shape = tuple(sizes.get(axis, -1) for axis in due)
        if axes != due or values.shape != shape or not name.isprintable():
            raise UserError(f"{path}: {name!r} has axes {shown(axes)} of sizes {values.shape}, which does not fit")
        _check_values(path, name, values, kind)
    run = ~np.isnan(arrays["reward"][1]).all(axis=(-2, -1))
    for name in ("failed", "dead", "censored"):
        if np.isnan(arrays[name][1][run]).any():
            raise UserError(f"{path}: {name} is not counted where there are rewards")
    coordinates = {*sizes, *_BESIDE}
    labelled = {name: (axes, values, meanings.get(name, {})) for name, (axes, values) in arrays.items()}
    data = xr.Dataset(
        {name: array for name, array in labelled.items() if name not in coordinates},
        {name: array for name, array in labelled.items() if name in coordinates},
        {key: value for key, value in told.items() if isinstance(value, str | int | float)},
    )
    label_axes(data)
    for name, unit in (("seconds", "s"), ("memory", "B")):
        if name in data:
            data[name].attrs["units"] = unit
    return data


def _check_axis(path: Path, name: str, axes: tuple[str, ...], values: NDArray[Any]) -> int:
    """Check that an axis has a different label at every place; return its size."""
    empty = not values.size and name != "greedy_episode"  # a run may be too short for one
    if axes != (name,) or empty or len(np.unique(values)) != values.size:
        raise UserError(f"{path}: {name} is no axis with a different label at every place")
    for label in values.tolist() if _kind(values) == _TEXT else ():
        OneLine().check(label, f"{path}: {name}")
    return values.size


def _kind(values: NDArray[Any]) -> str:
    return {"U": _TEXT, "f": _NUMBER}.get(values.dtype.kind, _WHOLE)


def _check_values(path: Path, name: str, values: NDArray[Any], kind: str) -> None:
    """Check type and range of an array's values."""
    if _kind(values) != kind and (_kind(values), kind) != (_WHOLE, _NUMBER):
        raise UserError(f"{path}: {name!r} must hold {kind}, not {_kind(values)}")
    known = values if kind != _NUMBER or name in _AXIS_KINDS else values[~np.isnan(values)]
    if name in _RANGES and known.size:
        for value in (known.min(), known.max()):
            _RANGES[name].check(value.item(), f"{path}: {name}")
    if name == "episode_metric" and set(values.tolist()) - set(get_args(EpisodeMetric)):
        raise UserError(
            f"{path}: episode_metric must be one of {', '.join(get_args(EpisodeMetric))}, not {shown(values.tolist())}"
        )
