"""A column that is computed part by part while it is written to a file, so that it never exists whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class LazyColumn:
    """An array `shape` of `dtype` whose parts `[member, start:stop]` come from `part`."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    part: Callable[[tuple[int, slice]], NDArray[Any]]

    def __getitem__(self, where: Any) -> Any:
        """Return one part."""
        return self.part(where)
