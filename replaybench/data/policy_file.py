"""Files of learned policies in the safetensors format.

A policy file contains the named weights of all members and a JSON object of metadata. The first
axis of each array is the member. The format holds numbers and text only, so a file from an unknown source is safe to
open. A checksum covers metadata and weights.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from replaybench.data.documents import parse_json
from replaybench.runtime.atomic import atomic_path
from replaybench.runtime.errors import UserError, no_such_file

FORMAT = "replaybench policy 1"

_LENGTH: Final = 8
"""Bytes of a safetensors file that give the length of the header after them."""

_MAY_BE_INFINITE: Final = "observation.bound"
"""Name of the bound on normalised observations, which is infinite if a learner does not clip observations."""


def write_policy(path: Path, weights: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
    """Write named weights and metadata of JSON types to a policy file atomically.

    The first axis of each array of weights is the member. Equal policies give equal files.
    """
    from safetensors.numpy import save

    plain = {name: np.ascontiguousarray(array) for name, array in weights.items()}
    text = json.dumps(facts, sort_keys=True)
    metadata = {"format": FORMAT, "facts": text, "blake2b": digest(text, plain)}
    with atomic_path(path) as temporary:
        temporary.write_bytes(_in_fixed_order(save(plain, metadata)))


def _in_fixed_order(content: bytes) -> bytes:
    """Sort the header of a safetensors file, because the library writes the metadata in random order."""
    start = _LENGTH + int.from_bytes(content[:_LENGTH], "little")
    header = json.dumps(json.loads(content[_LENGTH:start]), sort_keys=True).encode()
    header += b" " * (-len(header) % _LENGTH)  # weights begin at a multiple of 8
    return len(header).to_bytes(_LENGTH, "little") + header + content[start:]


def read_policy(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read and verify a policy file, and return its metadata and its weights by name.

    Raises:
        UserError: If the file is missing, damaged, or not a policy file of this package.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise no_such_file(path)
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError) as error:  # e.g. dtypes that NumPy lacks
        raise UserError(f"{path} is not a readable safetensors file (damaged, truncated or foreign)") from error
    if metadata.get("format") != FORMAT:
        raise UserError(f"{path} is a safetensors file, but not one that replaybench wrote")
    if metadata.get("blake2b") != digest(metadata.get("facts", ""), weights):
        raise UserError(f"{path} is damaged: its content does not match its checksum; restore or remake it")
    return parse_json(metadata.get("facts", ""), f"{path} is damaged: its facts are no JSON object"), weights


def members_in(path: Path, weights: Mapping[str, np.ndarray]) -> int:
    """Return the number of members in a policy file, or raise `UserError` if arrays lack the axis of members."""
    if not weights or any(array.ndim == 0 or array.dtype.kind not in "fiu" for array in weights.values()):
        raise UserError(f"{path} holds no weights of members")
    return min(map(len, weights.values()))


def failed_members(weights: Mapping[str, np.ndarray]) -> list[int]:
    """Return the indices of members whose weights are not all finite. Only a bound on observations may be infinite."""
    broken = {
        name: np.isnan(array) if name == _MAY_BE_INFINITE else ~np.isfinite(array) for name, array in weights.items()
    }
    finite = [~entries.any(axis=tuple(range(1, entries.ndim))) for entries in broken.values()]
    return [member for member, valid in enumerate(map(all, zip(*finite, strict=False))) if not valid]


def take_members(path: Path, weights: Mapping[str, np.ndarray], members: Collection[int]) -> dict[str, np.ndarray]:
    """Return the weights of the given members of a policy file, in the given order.

    Call this function before stored weights are used, because it refuses members whose training diverged.

    Raises:
        UserError: If a member does not exist, or has weights that are NaN or infinite.
    """
    count = members_in(path, weights)
    for member in members:
        if not 0 <= member < count:
            raise UserError(f"{path} holds members 0 to {count - 1}, not {member}")
    if failed := sorted(set(members) & set(failed_members(weights))):
        numbers = ", ".join(map(str, failed))
        raise UserError(
            f"{path}: member {numbers} has weights that are NaN or infinite, as its training diverged; "
            "name another member"
        )
    return {name: array[list(members)] for name, array in weights.items()}


def digest(facts: str, weights: Mapping[str, np.ndarray]) -> str:
    """Return the checksum, in hexadecimal, of the metadata (JSON) and the weights of a policy file."""
    content = hashlib.blake2b(facts.encode(), digest_size=16)
    for name, array in sorted(weights.items()):
        content.update(f"{name} {array.dtype.str} {array.shape}".encode())
        content.update(array.tobytes())
    return content.hexdigest()
