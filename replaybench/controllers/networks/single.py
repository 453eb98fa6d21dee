"""A network's outputs for one observation, as a controller needs them in each step, with the bits of `forward`.

For a single column the product behind `forward` would leave most lanes of its vectors empty. Here a layer's outputs are
the vector axis, along which its weights lie; every sum runs in the order that it has there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from replaybench.controllers.networks.activations import ACTIVATIONS, activate
from replaybench.controllers.networks.tiles import THIN_ROWS
from replaybench.data.kernel import kernel

Floats = NDArray[np.floating]
_TANH = ACTIVATIONS.index("tanh")


def _fused(_context: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a · b + c, rounded once."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        real = args[0].type
        name = "llvm.fma.f32" if isinstance(real, ir.FloatType) else "llvm.fma.f64"
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(real, [real] * 3), name)
        return builder.call(function, args)

    return (c(a, b, c), codegen) if a == b == c and a in (types.float32, types.float64) else None


_fma: Any = intrinsic(_fused)


@kernel
def evaluate_single(
    parameters: Floats, plan: NDArray[np.int64], activation: int, tanh: bool, x: Floats, out: Floats
) -> None:
    """Evaluate every member: one observation each, x `[M, 1, in]` → out `[M, 1, out]`; see `Network` for the rest."""
    last, width = plan.shape[0] - 2, 0
    for layer in range(last + 2):
        width = max(width, plan[layer, 0] + 1)
    before, after = np.empty(width, x.dtype), np.empty(width, x.dtype)
    for m in range(x.shape[0]):  # in loops, as to assign slices takes seconds to compile
        for i in range(x.shape[2]):
            before[i] = x[m, 0, i]
        for layer in range(last + 1):
            inputs, outputs, offset = plan[layer, 0], plan[layer, 1], plan[layer, 2]
            weights = parameters[m, offset : offset + inputs * outputs].reshape(inputs, outputs)
            before[inputs - 1] = 1
            _layer(before, weights, after)
            if layer < last or tanh:
                activate(after[:outputs], activation if layer < last else _TANH)
            before, after = after, before
        for o in range(out.shape[2]):
            out[m, 0, o] = before[o]


@kernel
def _layer(x: Floats, weights: Floats, out: Floats) -> None:
    """Write the product of x `[in]` and weights `[in, out]`, the bias among them, to out `[out]`."""
    inputs, outputs = weights.shape
    if outputs <= THIN_ROWS:
        whole = inputs - inputs % 4
        for o in range(outputs):
            a = b = c = d = weights.dtype.type(0)
            for k in range(0, whole, 4):
                a = _fma(x[k], weights[k, o], a)
                b = _fma(x[k + 1], weights[k + 1, o], b)
                c = _fma(x[k + 2], weights[k + 2, o], c)
                d = _fma(x[k + 3], weights[k + 3, o], d)
            for k in range(whole, inputs):
                a = _fma(x[k], weights[k, o], a)
            out[o] = (a + b) + (c + d)
        return
    for o in range(outputs):
        out[o] = 0
    k = 0
    while k + 4 <= inputs:
        one, two, three, four = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
        x_1, x_2, x_3, x_4 = x[k], x[k + 1], x[k + 2], x[k + 3]
        for o in range(outputs):
            out[o] = _fma(x_4, four[o], _fma(x_3, three[o], _fma(x_2, two[o], _fma(x_1, one[o], out[o]))))
        k += 4
    while k < inputs:
        row, x_k = weights[k], x[k]
        for o in range(outputs):
            out[o] = _fma(x_k, row[o], out[o])
        k += 1
