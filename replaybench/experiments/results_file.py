"""Reading and writing of results files (netCDF-4 with a checksum).

Checksums detect damage, not forgery. netCDF libraries apply attributes of a file: units, fill values, scale factors and
links to other files. This reader reads plain arrays only, checks the arrays, and adds labels itself.
"""

import hashlib
import io
import math
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

import h5py
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from replaybench.data.array_check import DEFLATE_LIMIT, attribute, check_scales, own_item
from replaybench.data.record import is_record, read_header
from replaybench.data.run_folder import runs_within
from replaybench.envs.interface.plant import EpisodeMetric
from replaybench.experiments.dataset import AXES, ORIGINS, REFERENCES, SCORES, label_axes, score_key
from replaybench.replay.storage.replayed import REPLAYED
from replaybench.runtime.arrays import Floats
from replaybench.runtime.atomic import atomic_path
from replaybench.runtime.configuration import HERTZ, NOISE, OneLine, Within, build
from replaybench.runtime.errors import UserError, no_such_file, shown
from replaybench.runtime.provenance import available_memory
from replaybench.runtime.quantities import gigabytes

_DIGEST_BYTES: Final = 32
_MOST_TEXT: Final = 1 << 28
_FILTERS: Final = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}
_TEXT, _WHOLE, _NUMBER = "text", "whole numbers", "numbers"

_AXIS_KINDS: Final = {
    **dict.fromkeys(("plant", "learner", "strategy", "signal", "rival", "measure"), _TEXT),
    **dict.fromkeys(("noise", "frequency"), _NUMBER),
    **dict.fromkeys(("seed", "block", "episode", "greedy_episode", "evaluation_step"), _WHOLE),
}
_RANGES: Final = {
    "noise": NOISE,
    "frequency": HERTZ,
    **dict.fromkeys(("seed", "block", "update_every", "failed", "dead", "censored"), Within(0)),
    **dict.fromkeys(("episode", "greedy_episode", "evaluation_step"), Within(1)),
}
_NEEDED: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    **{name: ((name,), _AXIS_KINDS[name]) for name in (*AXES, "seed", "block", "episode", "greedy_episode")},
    **dict.fromkeys(("reward", "episode_steps"), ((*AXES, "seed", "episode"), _NUMBER)),
    "reward_greedy": ((*AXES, "seed", "greedy_episode"), _NUMBER),
    **{score_key(score): ((*AXES, "seed"), _NUMBER) for score in SCORES},
    **{f"{score_key(score)}_{bound}": (AXES, _NUMBER) for score in SCORES for bound in ("mean", "low", "high")},
    **dict.fromkeys(("failed", "dead", "censored"), (AXES, _NUMBER)),
    **dict.fromkeys(("seconds", "memory"), ((*AXES, "block"), _NUMBER)),
    **dict.fromkeys(ORIGINS, ((*AXES, "block"), _TEXT)),
    **dict.fromkeys(REFERENCES, (("plant", "noise", "frequency"), _NUMBER)),
    **dict.fromkeys(("episode_metric", "reference_rule"), (("plant",), _TEXT)),
    "update_every": (("plant",), _WHOLE),
    "max_substep": (("plant",), _NUMBER),
    "whole_steps": (("plant", "frequency"), _NUMBER),
    "discount": (("plant", "learner", "frequency"), _NUMBER),
    "reference_grid": (("plant", "frequency"), _TEXT),
    "reference_change": (("plant", "frequency"), _NUMBER),
}
"""Axes and data type of each array that all results hold."""
_FORMS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    **{name: ((name,), dtype) for name, dtype in _AXIS_KINDS.items()},
    **_NEEDED,
    **dict.fromkeys(("observed", "channel", "spread"), (("plant",), _TEXT)),
    "reward_evaluation": ((*AXES, "seed", "evaluation_step"), _NUMBER),
    **dict.fromkeys(REPLAYED, ((*AXES, "seed", "greedy_episode"), _NUMBER)),
    "replayed_noise": ((*AXES, "seed", "signal"), _NUMBER),
    **dict.fromkeys(("measures", "measures_greedy"), ((*AXES, "seed", "measure"), _NUMBER)),
    "reference_dp_from": (("plant", "noise", "frequency"), _TEXT),
    "rival_score": (("plant", "noise", "frequency", "rival"), _NUMBER),
    "rival_note": (("plant", "noise", "frequency", "rival"), _TEXT),
    "rival_measures": (("plant", "noise", "frequency", "rival", "measure"), _NUMBER),
}
"""Axes and data type of each known array. Other arrays may have any of these axes."""

_OF_EPISODES: Final = {"episode", "greedy_episode", "evaluation_step"}
_MANTISSA_BITS: Final = 12
"""Precision of the values of single episodes: a relative error of at most 2⁻¹³.

μ_r = 1 is at least `SMALLEST_SPAN` · |reward of random control| above μ_r = 0. A reward between these two changes by
less than 0.001 in μ_r, and the mean of 100 episodes typically by less than 0.0001. Tables print at most three digits.
"""
_PACKED_BYTES: Final = 8192
"""Size above which an array is packed. The index of its chunks takes about 5 kB."""
_CHUNK_BYTES: Final = 1 << 20

_NAMES: Final = {"plant": "plants", "learner": "learners", "strategy": "strategies"}
"""Names of the attributes that list the names along each axis, for other programs."""

_COORDINATES: Final = {*_AXIS_KINDS, "episode_metric", "observed", "update_every", "reference_rule", *ORIGINS}

Labelled = tuple[tuple[str, ...], np.ndarray]
"""Names of an array's axes, and the array."""


@dataclass(frozen=True)
class _ResultsFacts:
    version: str
    numerics_version: int
    title: str = ""
    reward: str = ""


def write_results(path: Path, data: xr.Dataset) -> xr.Dataset:
    """Write a dataset of results as netCDF-4, with a checksum at the end of the file, where HDF5 ignores it.

    Values of single episodes are rounded. The dataset is returned as the file holds it. The file is written atomically,
    from a copy in memory, because the HDF5 library crashes at exit if the disk is full. The names along text axes are
    also stored as attributes of fixed length, because Octave reads no other text.
    """
    data = data.assign({
        name: array.copy(data=_rounded(array.values))
        for name, array in data.data_vars.items()
        if _OF_EPISODES & set(array.dims) and array.dtype.kind == "f"
    })  # fmt: skip
    names = {many: "\n".join(map(str, data[axis].values)) for axis, many in _NAMES.items() if axis in data.coords}
    marked = data.assign_attrs({many: np.bytes_(text.encode()) for many, text in names.items()})
    large = {n: each for n, each in data.variables.items() if each.dtype.kind in "iuf" and each.nbytes > _PACKED_BYTES}
    packed = {name: _packing(array) for name, array in large.items()}
    content = marked.to_netcdf(engine="h5netcdf", encoding=packed)
    with atomic_path(path) as temporary, temporary.open("wb") as raw:
        raw.write(content)
        raw.write(_digest(content))
    return data


def _rounded(values: Floats) -> Floats:
    """Round numbers to `_MANTISSA_BITS`, so that deflate removes the zero bits. Whole numbers stay exact."""
    mantissa, exponent = np.frexp(values)
    significant = _MANTISSA_BITS + 1
    rounded = np.ldexp(np.rint(np.ldexp(mantissa, significant)), exponent - significant)
    return np.where(values == np.rint(values), values, rounded)


def _packing(array: xr.Variable) -> dict[str, Any]:
    """Return how xarray packs an array: as one chunk, or with one chunk per cell if the array is larger."""
    whole = array.nbytes <= _CHUNK_BYTES
    chunks = tuple(size if whole or axis not in AXES else 1 for axis, size in array.sizes.items())
    return {"zlib": True, "complevel": 4, "shuffle": True, "chunksizes": chunks}


def _digest(content: bytes | memoryview) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


def read_results(path: Path | str) -> xr.Dataset:
    """Read the results of a study from a results file or a run folder, and verify the checksum."""
    path = Path(path)
    if path.is_dir():
        if not (path / "results.nc").is_file():
            hint = f"{path} holds no results.nc; run `replaybench sweep` into it first, or name another run folder"
            raise UserError(runs_within(path) or hint)
        path /= "results.nc"
    if not path.is_file() and path.name != "results.nc":
        raise no_such_file(path)
    if not path.is_file():
        raise UserError(
            f"no such file: {path}; replaybench sweep STUDY --output {shlex.quote(str(path.parent))} makes it"
        )
    content = path.read_bytes()
    body = content[:-_DIGEST_BYTES]
    if _digest(body) != content[-_DIGEST_BYTES:]:
        if is_record(path):
            raise UserError(
                f"{path} is a {read_header(path).kind} file and no results.nc; replaybench inspect shows it"
            )
        raise UserError(f"{path} is damaged, or not a file that replaybench wrote: its checksum does not match")
    with _one_line(path), h5py.File(io.BytesIO(body), "r") as file:
        keys = [key for key in file.attrs if not str(key).startswith("_") and key not in _NAMES.values()]
        facts = {str(key): _plain(attribute(file, key)) for key in keys}
        build(_ResultsFacts, facts, f"the attributes of {path}", others=True)
        datasets = {str(name): _checked(path, file, name) for name in file}
        # Texts are checked in `_texts`. HDF5 unpacks whole chunks, which may be larger than the array.
        sizes = [(math.prod(each.shape) + math.prod(each.chunks or (0,)), each) for each in datasets.values()]
        needed, free = sum(count * max(8, int(each.dtype.itemsize)) for count, each in sizes), available_memory()
        if needed > free:
            raise UserError(f"{path} unpacks to {gigabytes(needed)}, {gigabytes(free)} are free")
        arrays = {name: _array(path, dataset, len(body)) for name, dataset in datasets.items()}
        meanings = {
            name: {"long_name": str(_plain(attribute(dataset, "long_name")))}
            for name, dataset in datasets.items()
            if "long_name" in dataset.attrs
        }
    return _dataset(path, facts, arrays, meanings)


@contextmanager
def _one_line(path: Path) -> Iterator[None]:
    """Convert errors that libraries raise because of a file's content into a `UserError` of one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{path} cannot be read as results: {reason}") from None


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic | np.ndarray) and value.size == 1 else value


def _checked(path: Path, file: Any, name: str) -> Any:
    """Return the HDF5 dataset of an array after checks of its storage. The values are not read."""
    dataset = own_item(file, name)
    if not isinstance(dataset, h5py.Dataset) or dataset.shape is None:
        raise UserError(f"{path}: {name!r} is linked or no array")
    check_scales(dataset)
    plist = dataset.id.get_create_plist()
    if {plist.get_filter(number)[0] for number in range(plist.get_nfilters())} - _FILTERS:
        raise UserError(f"{path}: {name!r} is packed in a way that replaybench does not use")
    if math.prod(dataset.shape) * dataset.dtype.itemsize > DEFLATE_LIMIT * dataset.id.get_storage_size():
        raise UserError(f"{path}: {name!r} claims more data than the file holds")
    if h5py.check_string_dtype(dataset.dtype) is None and dataset.dtype.kind not in "iuf":
        raise UserError(f"{path}: {name!r} holds neither numbers nor text")
    return dataset


def _array(path: Path, dataset: Any, length: int) -> Labelled:
    name = str(dataset.name).strip("/")
    scales = [dataset.dims[i].values() for i in range(dataset.ndim)]
    axes = tuple(str(each[0].name).strip("/") if len(each) == 1 else "" for each in scales)
    axes = (name,) if dataset.is_scale and dataset.ndim == 1 else axes
    if h5py.check_string_dtype(dataset.dtype) is not None:
        return axes, _texts(path, dataset, length)
    return axes, np.asarray(dataset[()])


def _texts(path: Path, dataset: Any, length: int) -> NDArray[np.str_]:
    """Read an array of texts within a limit of memory, because many elements may refer to one long stored text."""
    texts, most = dataset.asstr(), 0
    if dataset.size * length > _MOST_TEXT:  # else even the longest texts fit
        for place in np.ndindex(dataset.shape):
            most = max(most, len(texts[place]))
            if 4 * most * dataset.size > _MOST_TEXT:
                raise UserError(f"{path}: {dataset.name!r} unpacks to more than {_MOST_TEXT >> 20} MiB of text")
    return np.array(texts[()], np.str_)


def _dataset(
    path: Path, facts: Mapping[str, Any], arrays: Mapping[str, Labelled], meanings: Mapping[str, dict[str, str]]
) -> xr.Dataset:
    for name in _NEEDED:
        if name not in arrays:
            raise UserError(f"{path} lacks {name}, which results hold")
    sizes = {}
    for name in (name for name in _AXIS_KINDS if name in arrays):
        axes, labels = arrays[name]
        empty = not labels.size and name != "greedy_episode"  # a run may be too short for one
        if axes != (name,) or empty or len(np.unique(labels)) != labels.size:
            raise UserError(f"{path}: {name} is no axis with a different label at every place")
        for label in labels.tolist() if _dtype(labels) == _TEXT else ():
            OneLine().check(label, f"{path}: {name}")
        sizes[name] = labels.size
    for name, (axes, values) in arrays.items():
        metric = ((*AXES, "seed", "greedy_episode"), _NUMBER)
        due, dtype = metric if name.startswith("metric_") else _FORMS.get(name, (axes, _dtype(values)))
        shape = tuple(sizes.get(axis, -1) for axis in due)
        if axes != due or values.shape != shape or not name.isprintable():
            raise UserError(f"{path}: {name!r} has axes {shown(axes)} of sizes {values.shape}, which does not fit")
        _check_values(path, name, values, dtype)
    run = ~np.isnan(arrays["reward"][1]).all(axis=(-2, -1))
    for name in ("failed", "dead", "censored"):
        if np.isnan(arrays[name][1][run]).any():
            raise UserError(f"{path}: {name} is not counted where there are rewards")
    labelled = {name: (axes, values, meanings.get(name, {})) for name, (axes, values) in arrays.items()}
    data = xr.Dataset(
        {name: array for name, array in labelled.items() if name not in _COORDINATES},
        {name: array for name, array in labelled.items() if name in _COORDINATES},
        {key: value for key, value in facts.items() if isinstance(value, str | int | float)},
    )
    label_axes(data)
    return data


def _dtype(values: np.ndarray) -> str:
    return {"U": _TEXT, "f": _NUMBER}.get(values.dtype.kind, _WHOLE)


def _check_values(path: Path, name: str, values: np.ndarray, dtype: str) -> None:
    if _dtype(values) != dtype and (_dtype(values), dtype) != (_WHOLE, _NUMBER):
        raise UserError(f"{path}: {name!r} must hold {dtype}, not {_dtype(values)}")
    known = values if dtype != _NUMBER or name in _AXIS_KINDS else values[~np.isnan(values)]
    if name in _RANGES and known.size:
        for value in (known.min(), known.max()):
            _RANGES[name].check(value.item(), f"{path}: {name}")
    if name == "episode_metric" and set(values.tolist()) - set(get_args(EpisodeMetric)):
        raise UserError(
            f"{path}: episode_metric must be one of {', '.join(get_args(EpisodeMetric))}, not {shown(values.tolist())}"
        )
