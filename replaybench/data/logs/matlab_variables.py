"""What MATLAB variables are here, whichever version of the file they come from, and why some are not read."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np

from replaybench.data.logs.table import Floats

Value: TypeAlias = "Floats | str | dict[str, Value]"
"""A matrix of numbers float64 `[rows, columns]`, the reason why there is none, or a struct."""
Variables: TypeAlias = dict[str, Value]

DEEPEST: Final = 8
"""Structs within structs that are followed."""
TOO_DEEP: Final = f"it lies more than {DEEPEST} structs deep"
CELL: Final = "it is a cell array; save each vector as a variable of its own"
TEXT: Final = "it is text"
EMPTY: Final = "it is empty"
SPARSE: Final = "it is sparse; save full(…) of it"
FUNCTION: Final = "it is a function"
COMPLEX: Final = "it is complex; save real(…) and imag(…) of it"
STRUCT_ARRAY: Final = "it is an array of structs; save one struct of vectors"


def an_object(name: str) -> str:
    """Return why an object of a MATLAB class, such as a timeseries, is not read."""
    return f"it is a MATLAB {name or 'object'}, which only MATLAB reads; save its vectors, as in t = x.Time; y = x.Data"


def matrix(values: Floats) -> Floats | str:
    """Return an array as a matrix, axes of length 1 beyond the second left out; says why if it is none."""
    if not values.size:
        return EMPTY
    if values.ndim > 2:
        long = tuple(length for length in values.shape if length > 1)
        if len(long) > 2:
            return f"it is an array of {'×'.join(map(str, values.shape))}; save its columns as vectors"
        return values.reshape((*long, 1, 1)[:2], order="F")
    return np.atleast_2d(values)
