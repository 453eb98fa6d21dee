"""Activations and layer normalisation (Ba, Kiros & Hinton 2016, eq. 4), with derivatives.

The C library's tanh costs as much as a hundred multiply-adds; in float32 tanh is rational arithmetic that LLVM
vectorises. Derivatives are computed from the activation's output.
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from replaybench.runtime.kernel import kernel

Activation = Literal["relu", "tanh", "softsign"]
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)
_RELU, _TANH, _SOFTSIGN = range(3)

_Q1, _Q2, _Q3 = (np.float32(n / 135135) for n in (62370, 3150, 28))
_R0, _R1, _R2 = (np.float32(n / 135135) for n in (45045, 2772, 27))
_HALF, _ONE = np.float32(0.5), np.float32(1)
_SATURATED = np.float32(9.02)


def _tanh32(x: Any) -> Any:
    """Return tanh(x) in float32, at most 1.82 ulp from the exact value.

    Lambert's continued fraction for tanh(x/2), cut off after seven terms, is a P/Q with a = x/2 and P, Q of degree 3 in
    a². With tanh 2t = 2 tanh t / (1 + tanh² t), Q − P = a² R and D = Q² + a² P²,

        tanh x = x − x a² (Q R + P²) / D = 1 − (Q − a P)² / D,

    the first for |x| < 1, the second above: both subtract a small number from an exact one. NaN gives NaN; from |x| =
    9.02 on the result is ±1.
    """
    size = np.abs(x)
    z = _SATURATED if size > _SATURATED else size
    a = _HALF * z
    u = a * a
    q = ((_Q3 * u + _Q2) * u + _Q1) * u + _ONE
    r = (_R2 * u + _R1) * u + _R0
    p = q - u * r
    gap = q - a * p
    small = z < _ONE
    start = z if small else _ONE
    less = z * u * (q * r + p * p) if small else gap * gap
    y = start - less / (q * q + u * p * p)
    return -y if x < 0 else y


def _tanh64(x: Any) -> Any:
    return math.tanh(x)


def _tanh(x: Any) -> Any:
    """Return tanh in the precision of x; in compiled code only."""
    raise NotImplementedError


@overload(_tanh, jit_options={"error_model": "numpy"})
def _tanh_of_type(x: Any) -> Any:
    return _tanh32 if x == types.float32 else _tanh64


@kernel
def activate(values: NDArray[np.floating], activation: int) -> None:
    """Apply activation number `activation` (its place in `ACTIVATIONS`) to flat `values`, in place; NaN passes."""
    kind = values.dtype.type
    if activation == _RELU:
        for i in range(values.size):
            # Not a choice of 0 or itself: LLVM makes masked stores of it, seven times as slow on AMD processors.
            values[i] -= values[i] if values[i] < 0 else kind(0)
    elif activation == _TANH:
        for i in range(values.size):
            values[i] = _tanh(values[i])
    else:
        for i in range(values.size):
            values[i] = values[i] / (kind(1) + np.abs(values[i]))


@kernel
def activate_backward(error: NDArray[np.floating], output: NDArray[np.floating], activation: int) -> None:
    """Multiply flat `error` by the derivative of the activation that gave `output` (as many elements or more)."""
    kind = error.dtype.type
    if activation == _RELU:
        for i in range(error.size):
            error[i] = kind(0) if output[i] <= 0 else error[i]
    elif activation == _TANH:
        for i in range(error.size):
            error[i] *= kind(1) - output[i] * output[i]
    else:
        for i in range(error.size):
            slope = kind(1) - np.abs(output[i])
            error[i] *= slope * slope
