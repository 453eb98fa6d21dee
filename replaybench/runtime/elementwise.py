"""Elementwise functions in compiled code, with equal results on all supported processors.

Depending on the processor, NumPy uses its own code or the C library's, which changes the last digit of results. These
elementwise functions always call the C library, whose float32 functions give the same bits on all processors. In
float64 the last digit may differ on processors without fused multiply-adds (before 2013). Use NumPy's functions for
figures and statistics only. A test searches the source for other uses.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.runtime.kernel import kernel


def exp(x: NDArray[Any]) -> NDArray[Any]:
    """Return e^x of each element of a floating-point array, with shape and dtype unchanged."""
    flat, out = _flat(x)
    _exp(flat, out)
    return out.reshape(x.shape)


def log(x: NDArray[Any]) -> NDArray[Any]:
    """Return the natural logarithm of each element of a floating-point array, with shape and dtype unchanged."""
    flat, out = _flat(x)
    _log(flat, out)
    return out.reshape(x.shape)


def tanh(x: NDArray[Any]) -> NDArray[Any]:
    """Return the hyperbolic tangent of each element of a floating-point array, with shape and dtype unchanged."""
    flat, out = _flat(x)
    _tanh(flat, out)
    return out.reshape(x.shape)


def sin(x: NDArray[Any]) -> NDArray[Any]:
    """Return the sine of each element (angle in radians) of a floating-point array; shape and dtype are unchanged."""
    flat, out = _flat(x)
    _sin(flat, out)
    return out.reshape(x.shape)


def cos(x: NDArray[Any]) -> NDArray[Any]:
    """Return the cosine of each element (angle in radians) of a floating-point array; shape and dtype are unchanged."""
    flat, out = _flat(x)
    _cos(flat, out)
    return out.reshape(x.shape)


def arctan2(y: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
    """Return the angle, in [−π, π] rad, from the x axis to each point (x, y), for arrays of one shape and dtype."""
    flat, out = _flat(y)
    _arctan2(flat, _flat(x)[0], out)
    return out.reshape(y.shape)


def power(x: NDArray[np.float64], exponent: float) -> NDArray[np.float64]:
    """Return x^exponent of each element of a float64 array, with the shape unchanged."""
    flat, out = _flat(x)
    _power(flat, float(exponent), out)
    return out.reshape(x.shape)


def _flat(x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    flat = np.ascontiguousarray(x).reshape(-1)
    if not flat.flags.writeable:
        flat = flat.copy()  # a broadcast array: kernels are compiled for writable arrays
    return flat, np.empty_like(flat)


@kernel
def _exp(x: NDArray[np.floating], out: NDArray[np.floating]) -> None:
    for i in range(x.size):
        out[i] = np.exp(x[i])


@kernel
def _log(x: NDArray[np.floating], out: NDArray[np.floating]) -> None:
    for i in range(x.size):
        out[i] = np.log(x[i])


@kernel
def _tanh(x: NDArray[np.floating], out: NDArray[np.floating]) -> None:
    for i in range(x.size):
        out[i] = np.tanh(x[i])


@kernel
def _sin(x: NDArray[np.floating], out: NDArray[np.floating]) -> None:
    for i in range(x.size):
        out[i] = np.sin(x[i])


@kernel
def _cos(x: NDArray[np.floating], out: NDArray[np.floating]) -> None:
    for i in range(x.size):
        out[i] = np.cos(x[i])


@kernel
def _arctan2(y: NDArray[np.floating], x: NDArray[np.floating], out: NDArray[np.floating]) -> None:
    for i in range(x.size):
        out[i] = np.arctan2(y[i], x[i])


@kernel
def _power(x: NDArray[np.float64], exponent: float, out: NDArray[np.float64]) -> None:
    for i in range(x.size):
        out[i] = x[i] ** exponent


@kernel
def nearest_level(value: float, count: int) -> int:
    """Return the index of the level nearest to `value` among `count` equidistant levels from −1 to 1.

    Of two equally near levels, the lower one is chosen. For NaN, the index is 0. `count` must be at least 2.
    """
    place = 0.5 * (value + 1.0) * (count - 1) - 0.5
    if not place > 0.0:
        return 0
    if place > count - 2:
        return count - 1
    return math.ceil(place)
