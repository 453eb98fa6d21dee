"""Layer normalisation (Ba, Kiros & Hinton 2016, eq. 4) of one member's hidden layer, held transposed `[units, batch]`.

What the backward pass needs is kept in rows of the network's tape: the normalised values ẑ, then 1/σ, then two rows of
sums. Gain and shift lie behind the layer's weights and bias in the parameters and in the gradient.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.networks.matmul import matmul
from replaybench.data.kernel import kernel

EXTRA_ROWS = 3
_EPSILON = 1e-5


@kernel
def normalise(
    flat: NDArray[np.floating], start: int, kept: int, one: int, units: int, stride: int,
    parameters: NDArray[np.floating], gain: int,
) -> None:  # fmt: skip
    """Replace z `[units, stride]` at `flat[start]` by gain · ẑ + shift, ẑ = (z − mean) / √(variance + 1e-5).

    Mean and variance run over units, a column of their own for each row of the batch. ẑ `[units, stride]` and 1/σ
    `[stride]` stay at `flat[kept]`; gain and shift `[units]` are read from `parameters[gain]` on;
    `flat[one]` is 1.
    """
    kind = flat.dtype.type
    share, epsilon = kind(1.0 / units), kind(_EPSILON)
    z = flat[start : start + units * stride].reshape(units, stride)
    normal = flat[kept : kept + units * stride].reshape(units, stride)
    scale = flat[kept + units * stride : kept + (units + 1) * stride]
    gains, shifts = parameters[gain : gain + units], parameters[gain + units : gain + 2 * units]
    inverse = kept + units * stride
    # Sums over units are matrix products with a row of ones: they run in a fixed order, a vector of columns at a time.
    matmul(flat, inverse, stride, 1, stride, flat, one, 0, 0, flat, start, stride, units)
    for b in range(stride):
        scale[b] *= share
    for u in range(units):
        for b in range(stride):
            difference = z[u, b] - scale[b]
            normal[u, b] = difference
            z[u, b] = difference * difference
    matmul(flat, inverse, stride, 1, stride, flat, one, 0, 0, flat, start, stride, units)
    for b in range(stride):
        scale[b] = kind(1) / np.sqrt(scale[b] * share + epsilon)
    for u in range(units):
        g, s = gains[u], shifts[u]
        for b in range(stride):
            normal[u, b] *= scale[b]
            z[u, b] = g * normal[u, b] + s


@kernel
def normalise_backward(
    error: NDArray[np.floating], product: NDArray[np.floating], flat: NDArray[np.floating], kept: int, one: int,
    units: int, stride: int, batch: int, parameters: NDArray[np.floating], gradient: NDArray[np.floating], gain: int,
    want_weights: np.bool_,
) -> None:  # fmt: skip
    """Turn the loss gradient to the output of `normalise` into that to its input: flat `error`, in place.

    With δ the given gradient and ⟨·⟩ the mean over units, d z = (gain δ − ⟨gain δ⟩ − ẑ ⟨gain δ ẑ⟩) / σ. With
    `want_weights` the gradients of gain, Σ δ ẑ, and shift, Σ δ, over the `batch` are written to `gradient[gain]` on.
    `product` is scratch of the size of `error`; `flat[one]` begins a vector of ones.
    """
    share = flat.dtype.type(1.0 / units)
    normal = flat[kept : kept + units * stride]
    for i in range(normal.size):
        product[i] = error[i] * normal[i]
    if want_weights:
        # A matrix product of one column: its sums run in a fixed order, eight units at a time.
        matmul(gradient, gain, 1, units, 1, product, 0, stride, 1, flat, one, 0, batch)
        matmul(gradient, gain + units, 1, units, 1, error, 0, stride, 1, flat, one, 0, batch)
    sums = kept + (units + 1) * stride
    matmul(flat, sums, stride, 1, stride, parameters, gain, units, 1, error, 0, stride, units)
    matmul(flat, sums + stride, stride, 1, stride, parameters, gain, units, 1, product, 0, stride, units)
    scale, mean, slope = flat[sums - stride : sums], flat[sums : sums + stride], flat[sums + stride : sums + 2 * stride]
    columns, rows = error[: units * stride].reshape(units, stride), normal.reshape(units, stride)
    for b in range(stride):
        mean[b] *= share
        slope[b] *= share
    for u in range(units):
        g = parameters[gain + u]
        for b in range(stride):
            columns[u, b] = scale[b] * (g * columns[u, b] - mean[b] - rows[u, b] * slope[b])
