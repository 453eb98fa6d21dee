"""Multilayer perceptrons of M members, with forward and backward pass.

Every compiled function handles one member, and the update of a learner loops over the members. The weights, gradients
and Adam moments of one member (about 100 kB) then stay in the processor's cache. The results of a member have the same
bits for every M. Activations are transposed, `[width, batch]`, so that vector instructions run along the batch.

The C library's tanh takes as long as a hundred multiply-adds. In float32, tanh is therefore a rational function, which
LLVM vectorises. Derivatives of activations are computed from their outputs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, NamedTuple, get_args

import numpy as np
from numba import njit, types
from numba.extending import overload
from numpy.typing import DTypeLike

from replaybench.controllers.networks.tiles import matmul, padded, row_dots, row_product, spread, transpose
from replaybench.runtime.arrays import AnyFloats, Integers, aligned_zeros
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import Stream

Scheme = Literal["fan_in", "xavier"]
_EXTRA_ROWS = 3
"""Number of rows in `Tape.values` after a layer's normalised values, for 1/σ and two sums."""
_EPSILON = 1e-5
MOST_TAPES: Final = 8
_FEW_OUTPUTS = 2
"""Largest number of outputs for which weight gradients are dot products; `matmul` would leave most lanes unused."""


Activation = Literal["relu", "tanh", "softsign"]
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)
_RELU, _TANH, _SOFTSIGN = range(3)

_Q1, _Q2, _Q3 = (np.float32(n / 135135) for n in (62370, 3150, 28))
_R0, _R1, _R2 = (np.float32(n / 135135) for n in (45045, 2772, 27))
_HALF, _ONE = np.float32(0.5), np.float32(1)
_SATURATED = np.float32(9.02)


def _tanh32(x: np.float32) -> np.float32:
    """Return tanh(x) in float32, with an error of at most 1.82 units in the last place.

    Lambert's continued fraction of tanh(x/2), cut off after seven terms, has the form a P/Q. Here, a = x/2, and P and Q
    are polynomials of degree 3 in a². With Q − P = a² R, D = Q² + a² P² and tanh 2t = 2 tanh t / (1 + tanh² t),

        tanh x = x − x a² (Q R + P²) / D = 1 − (Q − a P)² / D.

    The first form is used for |x| < 1, the second for larger |x|. Both subtract a small number from an exact one. NaN
    gives NaN. From |x| = 9.02 on, the result is ±1.
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


def _tanh64(x: float) -> float:
    return math.tanh(x)


def _tanh(x: float) -> float:
    raise NotImplementedError


@overload(_tanh, jit_options={"error_model": "numpy"}, strict=False)
def _tanh_of_type(x: types.Type) -> Callable[..., np.float32 | float]:
    return _tanh32 if x == types.float32 else _tanh64


@kernel
def activate(values: AnyFloats, activation: int) -> None:
    """Apply the activation function with index `activation` in `ACTIVATIONS` to a flat array in place, and keep NaN."""
    kind = values.dtype.type
    if activation == _RELU:
        for i in range(values.size):
            # Selecting 0 or the value would compile to masked stores, which take seven times as long on AMD processors.
            values[i] -= values[i] if values[i] < 0 else kind(0)
    elif activation == _TANH:
        for i in range(values.size):
            values[i] = _tanh(values[i])
    else:
        for i in range(values.size):
            values[i] = values[i] / (kind(1) + np.abs(values[i]))


@kernel
def differentiate_activation(error: AnyFloats, output: AnyFloats, activation: int) -> None:
    """Multiply the flat gradient `error` in place by an activation function's derivative, computed from its outputs."""
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


class Network(NamedTuple):
    """The arrays of M fully connected networks, with the layout of their layers, for compiled functions.

    Attributes:
        parameters: P parameters of each member, shape `[M, P]`.
        gradient: Gradient of a loss with respect to the parameters, shape `[M, P]`.
        plan: Layout, one row of 5 integers per layer. They are the numbers of inputs and outputs, the index of the
            first parameter, and the rows of the inputs and of the normalised values (or −1) in `Tape.values`. Inputs
            include an action that joins the layer, and the constant 1 for the bias. An additional last row has the
            number of the network's outputs and, in column 3, the row of these outputs in `Tape.values`.
        inject: Index of the layer that the action joins.
        actions: Size of the action.
        activation: Index of the activation function in `ACTIVATIONS`.
        tanh: Whether tanh is applied to the outputs of the network.
    """

    parameters: AnyFloats
    gradient: AnyFloats
    plan: Integers
    inject: int
    actions: int
    activation: int
    tanh: bool


class Tape(NamedTuple):
    """The intermediate results of a network's forward pass, which the backward pass reads.

    `values` `[rows, stride]` has a column per sample, a row per input of each layer and per output of the network, and
    rows for layer normalisation. `errors` `[2, width, stride]` and `upright` `[stride, width]` are scratch arrays of
    the backward pass. `stride` is the batch size, `width` the size of the widest layer, both rounded up by `spread`.
    """

    values: AnyFloats
    errors: AnyFloats
    upright: AnyFloats


@dataclass(frozen=True)
class Shape:
    """The shape of a fully connected network.

    Attributes:
        sizes: Numbers of inputs, of units in each hidden layer, and of outputs. With 0 inputs, the action is the only
            input.
        actions: Size of an action that joins the network; 0 if there is none.
        inject: Index of the layer that the action joins. 0 means next to the observation. In de Bruin et al. (2018,
            appendix B.1), it is 1.
        tanh: Whether tanh is applied to the outputs, which are linear otherwise.
        activation: Activation function of hidden layers.
        layer_norm: Whether hidden layers are normalised before their activation (Ba, Kiros & Hinton 2016).
        scheme: Rule for the bound of initial weights. It is 1/√inputs for `fan_in`, or √(6 / (inputs + outputs)) for
            `xavier` (Glorot & Bengio 2010, eq. 16).
        output_scale: Factor on the initial weights of the last layer, which is 0.1 in Novati & Koumoutsakos (2019).
        output_bound: Bound of the last layer's initial weights and biases, which is 3e-3 in Lillicrap et al. (2016).
    """

    sizes: tuple[int, ...]
    actions: int = 0
    inject: int = -1
    tanh: bool = False
    activation: Activation = "relu"
    layer_norm: bool = False
    scheme: Scheme = "fan_in"
    output_scale: float = 1.0
    output_bound: float | None = None

    @property
    def layers(self) -> list[tuple[int, int]]:
        """Numbers of inputs and outputs of each layer. The inputs of the layer `inject` include the action."""
        pairs = zip(self.sizes[:-1], self.sizes[1:], strict=True)
        return [(i + self.actions * (layer == self.inject), o) for layer, (i, o) in enumerate(pairs)]

    @property
    def parameter_count(self) -> int:
        """Number of parameters of one network, including gains and shifts of layer normalisation."""
        return sum(i * o + o for i, o in self.layers) + 2 * self.layer_norm * sum(self.sizes[1:-1])


class PopulationMLP:
    """The fully connected networks of M members, all of the same shape.

    Attributes:
        parameters: P parameters of each member, shape `[M, P]`, layer by layer. A layer has weights `[in, out]`, biases
            `[out]` and, if it is normalised, gains `[out]` and shifts `[out]`.
        gradient: Gradient of a loss with respect to the parameters, shape `[M, P]`.
        network: A tuple for compiled functions. It shares memory with `parameters` and `gradient`.
    """

    def __init__(self, shape: Shape, members: int, dtype: DTypeLike = np.float32) -> None:
        self.shape = shape
        self.parameters = np.zeros((members, shape.parameter_count), dtype)
        self.gradient = np.zeros_like(self.parameters)
        self._kept_tape = lru_cache(MOST_TAPES)(self.tape)  # one tape for each of the latest batch sizes
        normalised = len(shape.layers) - 1 if shape.layer_norm else 0
        rows, offset, row = [], 0, 0
        free_row = sum(inputs + 1 for inputs, _ in shape.layers) + shape.sizes[-1]
        for layer, (inputs, outputs) in enumerate(shape.layers):
            normal = layer < normalised
            rows.append((inputs + 1, outputs, offset, row, free_row if normal else -1))
            offset += (inputs + 1 + 2 * normal) * outputs
            row += inputs + 1
            free_row += (outputs + _EXTRA_ROWS) * normal
        rows.append((shape.sizes[-1], 0, 0, row, -1))
        self._tape_rows = free_row
        plan, index = np.array(rows, np.int64), ACTIVATIONS.index(shape.activation)
        self.network = Network(self.parameters, self.gradient, plan, shape.inject, shape.actions, index, shape.tanh)

    def initialise(self, stream: Stream) -> None:
        """Draw weights uniformly, and set biases and shifts to zero and gains to one.

        One number is drawn per parameter. De Bruin et al. (2018) do not state their initial weights. The default
        `fan_in` is Torch's, but with zero biases. With random biases, untrained policies push to one side at rest, and
        some never swing the pendulum up.
        """
        draws = stream.uniform(self.shape.parameter_count) * 2.0 - 1.0
        self.parameters[:] = 0.0
        for inputs, outputs, offset, _, normal_row in self.network.plan[:-1]:
            bias = offset + (inputs - 1) * outputs
            fan = inputs - 1 if self.shape.scheme == "fan_in" else (inputs - 1 + outputs) / 6
            self.parameters[:, offset:bias] = draws[:, offset:bias] / np.sqrt(fan)
            if normal_row >= 0:
                self.parameters[:, bias + outputs : bias + 2 * outputs] = 1.0
        # After the loop this is the last layer.
        last = slice(offset, bias)
        if self.shape.output_bound is not None:
            self.parameters[:, offset:] = draws[:, offset:] * self.shape.output_bound
        self.parameters[:, last] *= self.shape.output_scale

    def named_weights(self, name: str) -> dict[str, AnyFloats]:
        """Return views of the weights `[M, in, out]` and biases `[M, out]` of all layers, by name.

        Names are `{name}.{layer}.weight` and `.bias`. Normalised layers also have `.gain` and `.shift` `[M, out]`.
        """
        named = {}
        for layer, (inputs, outputs, offset, _, normal_row) in enumerate(self.network.plan[:-1]):
            rows = inputs + 2 * (normal_row >= 0)
            block = self.parameters[:, offset : offset + rows * outputs].reshape(-1, rows, outputs)
            named[f"{name}.{layer}.weight"] = block[:, : inputs - 1]
            for row, part in zip(range(inputs - 1, rows), ("bias", "gain", "shift"), strict=False):
                named[f"{name}.{layer}.{part}"] = block[:, row]
        return named

    def weights(self) -> Integers:
        """Return the index ranges [first, end) of the K weight matrices in a row of parameters, shape `[K, 2]`."""
        spans = [(offset, offset + (inputs - 1) * outputs) for inputs, outputs, offset, *_ in self.network.plan[:-1]]
        return np.array(spans, np.int64)

    def tape(self, batch: int) -> Tape:
        """Allocate the work arrays of forward and backward passes over `batch` samples."""
        stride = spread(batch, self.parameters.itemsize)
        width = spread(max(max(pair) for pair in self.shape.layers), self.parameters.itemsize)
        kind = self.parameters.dtype
        values = aligned_zeros((self._tape_rows, stride), kind)
        for inputs, _, _, row, _ in self.network.plan[:-1]:
            values[row + inputs - 1] = 1.0
        return Tape(values, aligned_zeros((2, width, stride), kind), aligned_zeros((stride, width), kind))

    def __call__(self, x: AnyFloats, action: AnyFloats | None = None) -> AnyFloats:
        """Return outputs `[M, B, out]` for B inputs `[M, B, in]` of each member, and actions `[M, B, A]` if used."""
        x = np.ascontiguousarray(x, self.parameters.dtype)
        members, batch = x.shape[:2]
        net, out = self.network, np.empty((members, batch, self.shape.sizes[-1]), x.dtype)
        if batch == 1 and net.actions == 0 and not self.shape.layer_norm:
            evaluate_single(net.parameters, net.plan, net.activation, net.tanh, x, out)
        else:
            joined = np.empty((members, batch, 0), x.dtype) if action is None else action.astype(x.dtype)
            _evaluate_all(net, self._kept_tape(batch), x, joined, out)
        return out


@kernel
def _load_rows(rows: AnyFloats, x: AnyFloats) -> None:
    for b in range(x.shape[0]):
        for i in range(x.shape[1]):
            rows[i, b] = x[b, i]


@kernel
def evaluate_mlp(net: Network, m: int, tape: Tape, x: AnyFloats, action: AnyFloats, out: AnyFloats) -> None:
    """Compute the outputs of the m-th network for B inputs, and write them to `out` `[B, out]`.

    `action` has shape `[B, A]`, or `[B, 0]` if the network takes no action. `tape` stores the intermediate results.
    """
    parameters, values = net.parameters[m], tape.values
    stride, columns = values.shape[1], padded(x.shape[0], values.itemsize)
    flat = values.reshape(-1)
    last = net.plan.shape[0] - 2
    _load_rows(values, x)
    for layer in range(last + 1):
        inputs, outputs, offset, row, normal_row = net.plan[layer]
        if layer == net.inject:
            _load_rows(values[row + inputs - 1 - net.actions :], action)
        start = net.plan[layer + 1, 3] * stride
        matmul(
            flat, start, stride, outputs, columns,
            parameters, offset, 1, outputs,
            flat, row * stride, stride, inputs,
        )  # fmt: skip
        if layer < last:
            if normal_row >= 0:
                one, gain = (row + inputs - 1) * stride, offset + inputs * outputs
                normalise(flat, start, normal_row * stride, one, outputs, stride, parameters, gain)
            activate(flat[start : start + outputs * stride], net.activation)
    start = net.plan[last + 1, 3]
    if net.tanh:
        activate(flat[start * stride : (start + out.shape[1]) * stride], _TANH)
    result = values[start:]
    for b in range(out.shape[0]):
        for o in range(out.shape[1]):
            out[b, o] = result[o, b]


@kernel
def _evaluate_all(net: Network, tape: Tape, x: AnyFloats, action: AnyFloats, out: AnyFloats) -> None:
    for m in range(x.shape[0]):
        evaluate_mlp(net, m, tape, x[m], action[m], out[m])


@kernel
def _differentiate(
    net: Network, m: int, tape: Tape, d_out: AnyFloats, want_weights: np.bool_, d_action: AnyFloats
) -> None:
    parameters, gradient, values, upright = net.parameters[m], net.gradient[m], tape.values, tape.upright
    batch, stride, columns = d_out.shape[0], values.shape[1], padded(d_out.shape[0], values.itemsize)
    flat = values.reshape(-1)
    error, next_error = tape.errors[0], tape.errors[1]
    last = net.plan.shape[0] - 2
    want_action = d_action.shape[1] > 0
    _load_rows(error, d_out)
    if net.tanh:
        output = values[net.plan[last + 1, 3] :]
        for b in range(batch):
            for o in range(d_out.shape[1]):
                error[o, b] *= 1 - output[o, b] * output[o, b]
    for layer in range(last, -1, -1):
        inputs, outputs, offset, row, normal_row = net.plan[layer]
        if want_weights:
            if outputs <= _FEW_OUTPUTS:
                for o in range(outputs):
                    row_dots(
                        gradient, offset + o, outputs, inputs, flat, row * stride, stride, error.reshape(-1),
                        o * stride, batch,
                    )  # fmt: skip
            else:
                width = upright.shape[1]
                transpose(upright.reshape(-1), 0, width, error.reshape(-1), 0, stride, outputs, batch)
                matmul(
                    gradient, offset, outputs, inputs, outputs,
                    flat, row * stride, stride, 1,
                    upright.reshape(-1), 0, width, batch,
                )  # fmt: skip
        injected = net.actions if layer == net.inject else 0
        carried = inputs - 1 - injected
        if layer == 0 and not (injected > 0 and want_action):
            break
        matmul(
            next_error.reshape(-1), 0, stride, inputs - 1 if want_action else carried, columns,
            parameters, offset, outputs, 1,
            error.reshape(-1), 0, stride, outputs,
        )  # fmt: skip
        if injected > 0 and want_action:
            for b in range(batch):
                for a in range(injected):
                    d_action[b, a] = next_error[carried + a, b]
            if layer == 0 or not want_weights:
                break
        d_hidden = next_error.reshape(-1)[: carried * stride]
        differentiate_activation(d_hidden, flat[row * stride : (row + carried) * stride], net.activation)
        before, _, below, _, normal_row = net.plan[layer - 1]
        if normal_row >= 0:
            differentiate_normalised(
                d_hidden, error.reshape(-1), flat, normal_row * stride, (row + inputs - 1) * stride,
                carried, stride, batch, parameters, gradient, below + before * carried, want_weights,
            )  # fmt: skip
        error, next_error = next_error, error


@njit(inline="always")
def differentiate_mlp(
    net: Network, m: int, tape: Tape, d_out: AnyFloats, want_weights: bool, d_action: AnyFloats
) -> None:
    """Propagate the gradient of a loss back through the last `evaluate_mlp` of the m-th network.

    `d_out` `[B, out]` is the gradient with respect to the outputs for B samples. With `want_weights`, the gradient with
    respect to the parameters overwrites row m of `net.gradient`. Otherwise, the pass ends at the layer that the action
    joins. The gradient with respect to the action is written to `d_action` `[B, A]`, unless its shape is `[B, 0]`.
    """
    # Without the conversion, Numba would compile again for the type of a literal True.
    _differentiate(net, m, tape, d_out, np.bool_(want_weights), d_action)


@kernel
def evaluate_single(
    parameters: AnyFloats, plan: Integers, activation: int, tanh: bool, x: AnyFloats, out: AnyFloats
) -> None:
    """Write outputs `[M, 1, out]` for one observation `[M, 1, in]` per network, with the bits of `evaluate_mlp`."""
    last, width = plan.shape[0] - 2, 0
    for layer in range(last + 2):
        width = max(width, plan[layer, 0] + 1)
    before, after = np.empty(width, x.dtype), np.empty(width, x.dtype)
    for m in range(x.shape[0]):  # in loops, because assignments of slices take seconds to compile
        for i in range(x.shape[2]):
            before[i] = x[m, 0, i]
        for layer in range(last + 1):
            inputs, outputs, offset = plan[layer, 0], plan[layer, 1], plan[layer, 2]
            weights = parameters[m, offset : offset + inputs * outputs].reshape(inputs, outputs)
            before[inputs - 1] = 1
            row_product(before, weights, after)
            if layer < last or tanh:
                activate(after[:outputs], activation if layer < last else _TANH)
            before, after = after, before
        for o in range(out.shape[2]):
            out[m, 0, o] = before[o]


@kernel
def normalise(
    flat: AnyFloats, start: int, normal_start: int, one: int, units: int, stride: int,
    parameters: AnyFloats, gain: int,
) -> None:  # fmt: skip
    """Normalise a hidden layer in place by z ← gain · ẑ + shift (Ba, Kiros & Hinton 2016, eq. 4).

    The normalised values are ẑ = (z − mean) / √(variance + 1e-5), with mean and variance over the units of one sample.
    Matrices have one row per unit and one column per sample, `[units, stride]`. z begins at `flat[start]`. First ẑ,
    then 1/σ `[stride]`, for the standard deviation σ, are written from `flat[normal_start]` on. `flat[one]` is 1. It is
    read as a row of ones, so that sums are matrix products. Gains, then shifts, begin at `parameters[gain]`.
    """
    kind = flat.dtype.type
    share, epsilon = kind(1.0 / units), kind(_EPSILON)
    z = flat[start : start + units * stride].reshape(units, stride)
    normal = flat[normal_start : normal_start + units * stride].reshape(units, stride)
    scale = flat[normal_start + units * stride : normal_start + (units + 1) * stride]
    gains, shifts = parameters[gain : gain + units], parameters[gain + units : gain + 2 * units]
    inverse = normal_start + units * stride
    # Sums over units are products with a row of ones, which add in a fixed order, for a vector of columns at a time.
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
def differentiate_normalised(
    error: AnyFloats, product: AnyFloats, flat: AnyFloats, normal_start: int, one: int,
    units: int, stride: int, batch: int, parameters: AnyFloats, gradient: AnyFloats, gain: int,
    want_weights: np.bool_,
) -> None:  # fmt: skip
    """Replace the gradient with respect to the output of `normalise` by the gradient with respect to the input.

    Let δ be the given gradient, ẑ the normalised values, σ their standard deviation before normalisation, and ⟨·⟩ the
    mean over units. The result is (gain δ − ⟨gain δ⟩ − ẑ ⟨gain δ ẑ⟩) / σ. `error` is the flat array of the gradient,
    and `product` is scratch of the same size. With `want_weights`, the gradients with respect to gain, Σ δ ẑ, and
    shift, Σ δ, are written to `gradient` from index `gain` on. The sums are over the `batch`. A vector of ones begins
    at `flat[one]`. Other arguments are those of `normalise`.
    """
    share = flat.dtype.type(1.0 / units)
    normal = flat[normal_start : normal_start + units * stride]
    for i in range(normal.size):
        product[i] = error[i] * normal[i]
    if want_weights:
        # A matrix product with one column sums in a fixed order, for eight units at a time.
        matmul(gradient, gain, 1, units, 1, product, 0, stride, 1, flat, one, 0, batch)
        matmul(gradient, gain + units, 1, units, 1, error, 0, stride, 1, flat, one, 0, batch)
    sums = normal_start + (units + 1) * stride
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
