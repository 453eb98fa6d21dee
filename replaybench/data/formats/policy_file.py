"""Learned policies as safetensors: named weights with a leading member axis, and a JSON object of facts.

The format holds numbers only, so a policy from a stranger is safe to open. A checksum over facts and weights is
kept beside them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.data.atomic import atomic_path
from replaybench.data.errors import UserError, no_such_file
from replaybench.data.formats.documents import parse_json

FORMAT = "replaybench policy 1"


def write_policy(path: Path, weights: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
    """Write weights and facts atomically."""
    from safetensors.numpy import save_file

    plain = {name: np.ascontiguousarray(array) for name, array in weights.items()}
    told = json.dumps(facts, sort_keys=True)
    metadata = {"format": FORMAT, "facts": told, "blake2b": digest(told, plain)}
    with atomic_path(path) as temporary:
        save_file(plain, temporary, metadata)


def read_policy(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return a policy file's facts and weights, verified.

    Raises:
        UserError: the file is missing, damaged or foreign.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise no_such_file(path)
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError) as error:  # kinds NumPy does not have
        raise UserError(f"{path} is not a readable safetensors file (damaged, truncated or foreign)") from error
    if metadata.get("format") != FORMAT:
        raise UserError(f"{path} is a safetensors file, but not one that replaybench wrote")
    if metadata.get("blake2b") != digest(metadata.get("facts", ""), weights):
        raise UserError(f"{path} is damaged: its content does not match its checksum; restore or remake it")
    return parse_json(metadata.get("facts", ""), f"{path} is damaged: its facts are no JSON object"), weights


def members_in(path: Path, weights: Mapping[str, NDArray[Any]], member: int = 0) -> int:
    """Return how many members the weights of a policy file are of.

    Raises:
        UserError: they are none of members, or `member` is not among them.
    """
    if not weights or any(array.ndim == 0 or array.dtype.kind not in "fiu" for array in weights.values()):
        raise UserError(f"{path} holds no weights of members")
    members = min(map(len, weights.values()))
    if not 0 <= member < members:
        raise UserError(f"{path} holds members 0 to {members - 1}, not {member}")
    return members


def digest(facts: str, weights: Mapping[str, NDArray[Any]]) -> str:
    """Return a checksum over facts, a text, and weights."""
    content = hashlib.blake2b(facts.encode(), digest_size=16)
    for name, array in sorted(weights.items()):
        content.update(f"{name} {array.dtype.str} {array.shape}".encode())
        content.update(array.tobytes())
    return content.hexdigest()
