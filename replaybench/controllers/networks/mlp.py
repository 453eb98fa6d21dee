"""Multilayer perceptrons of a population: forward and backward pass.

Every kernel works on one member, and a learner's update loops over members inside one compiled function. A member's
weights, gradients and Adam moments (about 100 kB) then stay in cache, and its numbers are bit-identical for every M.
Activations are transposed, `[width, batch]`, so that the batch is the vector axis of both passes.

The C library's tanh costs as much as a hundred multiply-adds. In float32, tanh is therefore a rational function, which
LLVM vectorises. Derivatives are computed from the activation's output.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, get_args

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
"""Rows of a tape after the normalised values ẑ of a layer: 1/σ, then two rows of sums."""
_EPSILON = 1e-5
MOST_TAPES: Final = 8
_FEW_OUTPUTS = 2
"""Up to this number of outputs, weight gradients are dot products, because a strip would be mostly empty."""


Activation = Literal["relu", "tanh", "softsign"]
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)
_RELU, _TANH, _SOFTSIGN = range(3)

_Q1, _Q2, _Q3 = (np.float32(n / 135135) for n in (62370, 3150, 28))
_R0, _R1, _R2 = (np.float32(n / 135135) for n in (45045, 2772, 27))
_HALF, _ONE = np.float32(0.5), np.float32(1)
_SATURATED = np.float32(9.02)


def _tanh32(x: Any) -> Any:
    """Return tanh(x) in float32, at most 1.82 ulp from the exact value.

    Lambert's continued fraction for tanh(x/2), cut off after seven terms, is a P/Q; a = x/2 and P, Q have degree 3 in
    a². With tanh 2t = 2 tanh t / (1 + tanh² t), Q − P = a² R and D = Q² + a² P²,

        tanh x = x − x a² (Q R + P²) / D = 1 − (Q − a P)² / D.

    The first form is used for |x| < 1, the second above. Both subtract a small number from an exact one. NaN gives NaN;
    from |x| = 9.02 on, the result is ±1.
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
    """Return tanh in the precision of x; only compiled code can call it."""
    raise NotImplementedError


@overload(_tanh, jit_options={"error_model": "numpy"})
def _tanh_of_type(x: Any) -> Any:
    return _tanh32 if x == types.float32 else _tanh64


@kernel
def activate(values: AnyFloats, activation: int) -> None:
    """Apply activation number `activation` (its place in `ACTIVATIONS`) to flat `values`, in place; NaN passes."""
    kind = values.dtype.type
    if activation == _RELU:
        for i in range(values.size):
            # A choice between 0 and the value would become masked stores, seven times as slow on AMD processors.
            values[i] -= values[i] if values[i] < 0 else kind(0)
    elif activation == _TANH:
        for i in range(values.size):
            values[i] = _tanh(values[i])
    else:
        for i in range(values.size):
            values[i] = values[i] / (kind(1) + np.abs(values[i]))


@kernel
def activate_backward(error: AnyFloats, output: AnyFloats, activation: int) -> None:
    """Multiply flat `error` by the activation's derivative, given its `output` (as many elements or more)."""
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
    """View of a population for kernels: flat arrays with a leading member axis, and their plan.

    `plan[l]` = (inputs, outputs, parameter offset, tape row, tape row of layer normalisation or −1) of layer l.
    `inputs` counts an injected action and the constant 1 that multiplies the bias. The last row holds the network's
    number of outputs and their tape row. `activation` is the index in `ACTIVATIONS`.
    """

    parameters: AnyFloats
    gradient: AnyFloats
    plan: Integers
    inject: int
    actions: int
    activation: int
    tanh: bool


class Tape(NamedTuple):
    """Work space of one member's forward pass, read by its backward pass.

    `values` `[T, stride]` holds the transposed input of each layer and the output, one row per unit, then the numbers
    of layer normalisation. `errors` `[2, width, stride]` and `upright` `[stride, width]` are scratch for the backward
    pass. Rows are padded to whole vectors.
    """

    values: AnyFloats
    errors: AnyFloats
    upright: AnyFloats


@dataclass(frozen=True)
class Shape:
    """Sizes of a fully connected network: `activation` between layers, linear or tanh output.

    `sizes` = (inputs, hidden…, outputs). An action of size `actions` joins the input of layer `inject` (0: with the
    observation; 1: after the first hidden layer, de Bruin et al. 2018, B.1). A network with 0 inputs
    receives its whole input in this way. With `layer_norm`, every hidden layer is normalised before its activation (Ba,
    Kiros & Hinton 2016).
    """

    sizes: tuple[int, ...]
    actions: int = 0
    inject: int = -1
    tanh: bool = False
    activation: Activation = "relu"
    layer_norm: bool = False

    @property
    def layers(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of each layer; inputs include the injected action."""
        pairs = zip(self.sizes[:-1], self.sizes[1:], strict=True)
        return [(i + self.actions * (layer == self.inject), o) for layer, (i, o) in enumerate(pairs)]

    @property
    def parameter_count(self) -> int:
        """Weights, biases, gains and shifts of one member."""
        return sum(i * o + o for i, o in self.layers) + 2 * self.layer_norm * sum(self.sizes[1:-1])


class PopulationMLP:
    """M networks of one shape.

    Attributes:
        parameters, gradient: `[M, P]`, each member's weights and biases, layer by layer (weight `[in, out]`, bias
            `[out]`, and gain and shift `[out]` where the layer is normalised).
        network: the view for kernels; it shares memory with both arrays.
    """

    def __init__(self, shape: Shape, members: int, dtype: DTypeLike = np.float32) -> None:
        self.shape = shape
        self.parameters = np.zeros((members, shape.parameter_count), dtype)
        self.gradient = np.zeros_like(self.parameters)
        self._kept_tape = lru_cache(MOST_TAPES)(self.tape)  # of the latest batch sizes
        normalised = len(shape.layers) - 1 if shape.layer_norm else 0
        rows, offset, row = [], 0, 0
        kept = sum(inputs + 1 for inputs, _ in shape.layers) + shape.sizes[-1]
        for layer, (inputs, outputs) in enumerate(shape.layers):
            normal = layer < normalised
            rows.append((inputs + 1, outputs, offset, row, kept if normal else -1))
            offset += (inputs + 1 + 2 * normal) * outputs
            row += inputs + 1
            kept += (outputs + _EXTRA_ROWS) * normal
        rows.append((shape.sizes[-1], 0, 0, row, -1))
        self._tape_rows = kept
        self.network = Network(
            self.parameters,
            self.gradient,
            np.array(rows, np.int64),
            shape.inject,
            shape.actions,
            ACTIVATIONS.index(shape.activation),
            shape.tanh,
        )

    def initialise(
        self, stream: Stream, scheme: Scheme = "fan_in", output_scale: float = 1.0, output_bound: float | None = None
    ) -> None:
        """Draw weights uniformly, set biases and shifts to zero and gains to one.

        De Bruin et al. (2018) do not state their initial weights. By default (`fan_in`) they are Torch's, with zero
        biases. With random biases, untrained policies push to one side at rest; some never swing the pendulum up.

        Args:
            stream: one number is drawn per parameter.
            scheme: bounds of the weights: ±1/√inputs, or Glorot & Bengio's (2010, eq. 16) ±√(6 / (inputs + outputs)).
            output_scale: factor on the weights of the last layer (0.1 in Novati & Koumoutsakos 2019).
            output_bound: bound of the last layer's weights and biases (3e-3 in Lillicrap et al. 2016).
        """
        draws = stream.uniform(self.shape.parameter_count) * 2.0 - 1.0
        self.parameters[:] = 0.0
        for inputs, outputs, offset, _, kept in self.network.plan[:-1]:
            bias = offset + (inputs - 1) * outputs
            fan = inputs - 1 if scheme == "fan_in" else (inputs - 1 + outputs) / 6
            self.parameters[:, offset:bias] = draws[:, offset:bias] / np.sqrt(fan)
            if kept >= 0:
                self.parameters[:, bias + outputs : bias + 2 * outputs] = 1.0
        # After the loop this is the last layer.
        last = slice(offset, bias)
        if output_bound is not None:
            self.parameters[:, offset:] = draws[:, offset:] * output_bound
        self.parameters[:, last] *= output_scale

    def named_weights(self, name: str) -> dict[str, AnyFloats]:
        """Return views, layer by layer: `{name}.{layer}.weight` `[M, in, out]` and `.bias` `[M, out]`.

        A normalised layer also has `.gain` and `.shift` `[M, out]`.
        """
        named = {}
        for layer, (inputs, outputs, offset, _, kept) in enumerate(self.network.plan[:-1]):
            rows = inputs + 2 * (kept >= 0)
            block = self.parameters[:, offset : offset + rows * outputs].reshape(-1, rows, outputs)
            named[f"{name}.{layer}.weight"] = block[:, : inputs - 1]
            for row, part in zip(range(inputs - 1, rows), ("bias", "gain", "shift"), strict=False):
                named[f"{name}.{layer}.{part}"] = block[:, row]
        return named

    def weights(self) -> Integers:
        """Return the range [first, end) of the parameters of each weight matrix, `[K, 2]`."""
        spans = [(offset, offset + (inputs - 1) * outputs) for inputs, outputs, offset, *_ in self.network.plan[:-1]]
        return np.array(spans, np.int64)

    def tape(self, batch: int) -> Tape:
        """Allocate the work space of passes over `batch` rows."""
        stride = spread(batch, self.parameters.itemsize)
        width = spread(max(max(pair) for pair in self.shape.layers), self.parameters.itemsize)
        kind = self.parameters.dtype
        values = aligned_zeros((self._tape_rows, stride), kind)
        for inputs, _, _, row, _ in self.network.plan[:-1]:
            values[row + inputs - 1] = 1.0
        return Tape(values, aligned_zeros((2, width, stride), kind), aligned_zeros((stride, width), kind))

    def __call__(self, x: AnyFloats, action: AnyFloats | None = None) -> AnyFloats:
        """Evaluate all members: x `[M, B, in]`, action `[M, B, A]` if one is injected → `[M, B, out]`."""
        x = np.ascontiguousarray(x, self.parameters.dtype)
        members, batch = x.shape[:2]
        net, out = self.network, np.empty((members, batch, self.shape.sizes[-1]), x.dtype)
        if batch == 1 and net.actions == 0 and not self.shape.layer_norm:
            evaluate_single(net.parameters, net.plan, net.activation, net.tanh, x, out)
        else:
            joined = np.empty((members, batch, 0), x.dtype) if action is None else action.astype(x.dtype)
            _forward_all(net, self._kept_tape(batch), x, joined, out)
        return out


@kernel
def _load_rows(rows: AnyFloats, x: AnyFloats) -> None:
    """Store x `[B, n]` transposed, as the first n rows of `rows` `[≥ n, stride]`."""
    for b in range(x.shape[0]):
        for i in range(x.shape[1]):
            rows[i, b] = x[b, i]


@kernel
def forward(net: Network, m: int, tape: Tape, x: AnyFloats, action: AnyFloats, out: AnyFloats) -> None:
    """Evaluate member m: x `[B, in]`, action `[B, A]` (`[B, 0]` if none joins) → out `[B, out]`; fill the tape."""
    parameters, values = net.parameters[m], tape.values
    stride, columns = values.shape[1], padded(x.shape[0], values.itemsize)
    flat = values.reshape(-1)
    last = net.plan.shape[0] - 2
    _load_rows(values, x)
    for layer in range(last + 1):
        inputs, outputs, offset, row, kept = net.plan[layer]
        if layer == net.inject:
            _load_rows(values[row + inputs - 1 - net.actions :], action)
        start = net.plan[layer + 1, 3] * stride
        matmul(
            flat, start, stride, outputs, columns,
            parameters, offset, 1, outputs,
            flat, row * stride, stride, inputs,
        )  # fmt: skip
        if layer < last:
            if kept >= 0:
                one, gain = (row + inputs - 1) * stride, offset + inputs * outputs
                normalise(flat, start, kept * stride, one, outputs, stride, parameters, gain)
            activate(flat[start : start + outputs * stride], net.activation)
    start = net.plan[last + 1, 3]
    if net.tanh:
        activate(flat[start * stride : (start + out.shape[1]) * stride], _TANH)
    result = values[start:]
    for b in range(out.shape[0]):
        for o in range(out.shape[1]):
            out[b, o] = result[o, b]


@kernel
def _forward_all(net: Network, tape: Tape, x: AnyFloats, action: AnyFloats, out: AnyFloats) -> None:
    for m in range(x.shape[0]):
        forward(net, m, tape, x[m], action[m], out[m])


@kernel
def _backward(net: Network, m: int, tape: Tape, d_out: AnyFloats, want_weights: np.bool_, d_action: AnyFloats) -> None:
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
        inputs, outputs, offset, row, kept = net.plan[layer]
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
        activate_backward(d_hidden, flat[row * stride : (row + carried) * stride], net.activation)
        before, _, below, _, kept = net.plan[layer - 1]
        if kept >= 0:
            normalise_backward(
                d_hidden, error.reshape(-1), flat, kept * stride, (row + inputs - 1) * stride,
                carried, stride, batch, parameters, gradient, below + before * carried, want_weights,
            )  # fmt: skip
        error, next_error = next_error, error


@njit(inline="always")
def backward(net: Network, m: int, tape: Tape, d_out: AnyFloats, want_weights: bool, d_action: AnyFloats) -> None:
    """Propagate the loss gradient d_out `[B, out]` of member m back through its last `forward`.

    With `want_weights`, overwrite the member's `gradient`; otherwise, end at the injected action. Write the gradient to
    this action to d_action `[B, A]`; `[B, 0]` skips it.
    """
    # Without the conversion, Numba would compile again for the type of a literal True.
    _backward(net, m, tape, d_out, np.bool_(want_weights), d_action)


@kernel
def evaluate_single(
    parameters: AnyFloats, plan: Integers, activation: int, tanh: bool, x: AnyFloats, out: AnyFloats
) -> None:
    """Evaluate every member for one observation, x `[M, 1, in]` → out `[M, 1, out]`, bit for bit as `forward`."""
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
    flat: AnyFloats, start: int, kept: int, one: int, units: int, stride: int,
    parameters: AnyFloats, gain: int,
) -> None:  # fmt: skip
    """Normalise a hidden layer in place: z becomes gain · ẑ + shift (Ba, Kiros & Hinton 2016, eq. 4).

    ẑ = (z − mean) / √(variance + 1e-5), with mean and variance over the units of one sample. z `[units, stride]` begins
    at `flat[start]`, a column for each sample. ẑ `[units, stride]` and then 1/σ `[stride]` are written from
    `flat[kept]` on, for `normalise_backward`. gain and then shift, `[units]` each, begin at `parameters[gain]`.
    `flat[one]` must be 1: it stands for a row of ones, so that sums are matrix products.
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
    error: AnyFloats, product: AnyFloats, flat: AnyFloats, kept: int, one: int,
    units: int, stride: int, batch: int, parameters: AnyFloats, gradient: AnyFloats, gain: int,
    want_weights: np.bool_,
) -> None:  # fmt: skip
    """Replace flat `error`, the loss gradient to the output of `normalise`, by the gradient to its input.

    If δ is the given gradient and ⟨·⟩ the mean over units, d z = (gain δ − ⟨gain δ⟩ − ẑ ⟨gain δ ẑ⟩) / σ. With
    `want_weights`, write the gradients to gain, Σ δ ẑ, and to shift, Σ δ, from `gradient[gain]` on; sums are over the
    `batch`. `product` is scratch of the size of `error`; a vector of ones begins at `flat[one]`.
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
