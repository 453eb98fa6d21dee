"""LSTM layers of M members, with forward pass and backpropagation through time.

The layers are those of Hochreiter & Schmidhuber (1997) with forget gates (Gers et al. 2000), stacked as in
`torch.nn.LSTM`. Activations are transposed, so that vector instructions run along the segments of a batch. Each layer
runs over all steps before the next one starts, so that its weights stay in the first-level cache.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from replaybench.controllers.networks.mlp import ACTIVATIONS, activate
from replaybench.controllers.networks.tiles import matmul, padded, transpose
from replaybench.runtime.arrays import AnyFloats, Integers, aligned_zeros
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import Stream

_TANH = ACTIVATIONS.index("tanh")
Lengths = Integers


class LSTMNetwork(NamedTuple):
    """The arrays of M stacks of LSTM layers, with their layout, for compiled functions.

    `plan` has one row of 3 integers per layer. They are the number of inputs from the layer below, the index of the
    first parameter, and the row of the inputs in `LSTMTape.values`. The layer's own state and the constant 1 are not
    counted as inputs.
    """

    parameters: AnyFloats
    gradient: AnyFloats
    plan: Integers
    units: int


class LSTMTape(NamedTuple):
    """The intermediate results of an LSTM's forward pass, which the backward pass reads.

    The passes are over B segments of at most T steps, with L layers of U units. B' and G are B and 4 · U, rounded up
    (`padded`). Gradients flow through the last `reach` steps of each segment.

    Attributes:
        values: Inputs, state h before the step, and ones of each layer; shape `[rows, slots, B']`, slot t for step t.
        gates: Input, forget, output and candidate gates; shape `[L, T, 4 · U · B']`.
        cells: States c of the cells; shape `[L, T + 1, U · B']`.
        squashed: tanh of the cells after each step; shape `[L, T, U · B']`.
        errors: Gradient with respect to the outputs of a layer; shape `[T, U · B']`.
        carried: Scratch of the passes, shape `[3, U · B']`.
        d_gates: Gradient with respect to the gates of one step, shape `[G, B']`.
        upright: Transposed gradients with respect to the gates in all steps, shape `[T · B', G]`.
    """

    reach: int
    values: AnyFloats
    gates: AnyFloats
    cells: AnyFloats
    squashed: AnyFloats
    errors: AnyFloats
    carried: AnyFloats
    d_gates: AnyFloats
    upright: AnyFloats


@dataclass(frozen=True)
class LSTMShape:
    """The shape of a stack of LSTM layers, by default 2 layers of 32 units as in Novati & Koumoutsakos (2019)."""

    inputs: int
    layers: int = 2
    units: int = 32
    forget_bias: float = 1.0

    @property
    def parameter_count(self) -> int:
        """Number of weights and biases of one LSTM with this shape."""
        return sum((inputs + self.units + 1) * 4 * self.units for inputs in self.layer_inputs)

    @property
    def layer_inputs(self) -> list[int]:
        """Number of inputs that each layer receives from the layer below."""
        return [self.inputs if layer == 0 else self.units for layer in range(self.layers)]

    @property
    def state_size(self) -> int:
        """Size of the LSTM's state. A state consists of the output h and the cells c of each layer in turn."""
        return 2 * self.layers * self.units


class PopulationLSTM:
    """The LSTM layers of M members, all of the same shape.

    Attributes:
        parameters: P parameters of each member, shape `[M, P]`, layer by layer. A layer with U units has weights
            `[in + U, 4U]`, then biases `[4U]`. The rows of weights for inputs come before those for the layer's state.
            Columns belong to the input, forget and output gates, then to the candidate.
        gradient: Gradient of a loss with respect to the parameters, shape `[M, P]`.
        network: A tuple for compiled functions. It shares memory with `parameters` and `gradient`.
    """

    def __init__(self, shape: LSTMShape, members: int, dtype: DTypeLike = np.float32) -> None:
        self.shape = shape
        self.parameters = np.zeros((members, shape.parameter_count), dtype)
        self.gradient = np.zeros_like(self.parameters)
        rows, offset, row = [], 0, 0
        for inputs in shape.layer_inputs:
            rows.append((inputs, offset, row))
            offset += (inputs + shape.units + 1) * 4 * shape.units
            row += inputs + shape.units + 1
        self.network = LSTMNetwork(self.parameters, self.gradient, np.array(rows, np.int64), shape.units)

    def initialise(self, stream: Stream) -> None:
        """Draw weights uniformly within ±1/√units. Set biases of forget gates to `forget_bias`, and other biases to 0.

        Novati & Koumoutsakos (2019) do not state their initial weights. These are Torch's defaults, with open forget
        gates (Gers et al. 2000; Jozefowicz et al. 2015).
        """
        draws = stream.uniform(self.shape.parameter_count) * 2.0 - 1.0
        self.parameters[:] = draws / np.sqrt(self.shape.units)
        for array in self.named_weights("").values():
            if array.ndim == 2:
                array[:] = 0.0
                array[:, self.shape.units : 2 * self.shape.units] = self.shape.forget_bias

    def named_weights(self, name: str) -> dict[str, AnyFloats]:
        """Return views of the weights `[M, in + U, 4U]` and biases `[M, 4U]` of each layer with U units.

        Their names are `{name}.{layer}.weight` and `{name}.{layer}.bias`.
        """
        named, columns = {}, 4 * self.shape.units
        for layer, (inputs, offset, _) in enumerate(self.network.plan):
            rows = inputs + self.shape.units + 1
            block = self.parameters[:, offset : offset + rows * columns].reshape(-1, rows, columns)
            named[f"{name}.{layer}.weight"], named[f"{name}.{layer}.bias"] = block[:, :-1], block[:, -1]
        return named

    def tape(self, segments: int, steps: int, reach: int | None = None) -> LSTMTape:
        """Allocate the work arrays of passes over at most `segments` segments of at most `steps` steps.

        Gradients flow through the last `reach` steps, by default through all steps.
        """
        kind, units, layers = self.parameters.dtype, self.shape.units, self.shape.layers
        batch = padded(segments, kind.itemsize)
        # An odd number, because strides of a power of two map to the same few cache lines.
        slots = steps + 1 + steps % 2
        last_inputs, _, last_row = self.network.plan[-1]
        values = aligned_zeros((last_row + last_inputs + units + 1, slots, batch), kind)
        for inputs, _, row in self.network.plan:
            values[row + inputs + units] = 1.0
        return LSTMTape(
            steps if reach is None else reach,
            values,
            gates=aligned_zeros((layers, steps, 4 * units * batch), kind),
            cells=aligned_zeros((layers, steps + 1, units * batch), kind),
            squashed=aligned_zeros((layers, steps, units * batch), kind),
            errors=aligned_zeros((steps, units * batch), kind),
            carried=aligned_zeros((3, units * batch), kind),
            d_gates=aligned_zeros((padded(4 * units, kind.itemsize), batch), kind),
            upright=aligned_zeros((steps * batch, padded(4 * units, kind.itemsize)), kind),
        )


@kernel
def evaluate_lstm(
    net: LSTMNetwork, m: int, tape: LSTMTape, x: AnyFloats, length: Lengths, initial: AnyFloats, out: AnyFloats
) -> None:
    """Run the m-th LSTM over B segments, and write the outputs after the last step of each segment to `out`.

    Segment b consists of the first `length[b]` steps of x `[B, T, in]`. Later values have no effect, but must be
    finite. The states before the first step are `initial` `[B, 2 · L · U]`, for L layers of U units. The first U
    columns of `out` are written. `tape` stores the intermediate results that `differentiate_lstm` needs.
    """
    values, units, layers = tape.values, net.units, net.plan.shape[0]
    steps = length.max()
    for t in range(steps):
        for b in range(length.size):
            for i in range(x.shape[2]):
                values[i, t, b] = x[b, t, i]
    for layer in range(layers):
        inputs, _, row = net.plan[layer]
        for b in range(length.size):
            for u in range(units):
                values[row + inputs + u, 0, b] = initial[b, 2 * layer * units + u]
                tape.cells[layer, 0, u * values.shape[2] + b] = initial[b, (2 * layer + 1) * units + u]
        above = net.plan[layer + 1, 2] if layer + 1 < layers else -1
        _evaluate_layer(net, m, tape, steps, layer, above)
    top = net.plan[layers - 1, 2] + net.plan[layers - 1, 0]
    for b in range(length.size):
        for u in range(units):
            out[b, u] = values[top + u, length[b], b]


@kernel
def _evaluate_layer(net: LSTMNetwork, m: int, tape: LSTMTape, steps: int, layer: int, above: int) -> None:
    """Run one LSTM layer over all steps, and write its outputs to the inputs of the next layer, from row `above` on."""
    parameters, units = net.parameters[m], net.units
    inputs, offset, row = net.plan[layer]
    batch = tape.values.shape[2]
    stride = tape.values.shape[1] * batch
    flat = tape.values.reshape(-1)
    h = tape.carried[0]
    for t in range(steps):
        gates = tape.gates[layer, t]
        matmul(
            gates, 0, batch, 4 * units, batch,
            parameters, offset, 1, 4 * units,
            flat, row * stride + t * batch, stride, inputs + units + 1,
        )  # fmt: skip
        evaluate_cell(gates, tape.cells[layer, t], tape.cells[layer, t + 1], tape.squashed[layer, t], h)
        start = (row + inputs) * stride + (t + 1) * batch
        for u in range(units):
            for b in range(batch):
                flat[start + u * stride + b] = h[u * batch + b]
        if above >= 0:
            start = above * stride + t * batch
            for u in range(units):
                for b in range(batch):
                    flat[start + u * stride + b] = h[u * batch + b]


@kernel
def lstm_state(net: LSTMNetwork, tape: LSTMTape, length: Lengths, out: AnyFloats) -> None:
    """Write the LSTM's states at the end of each segment, which `evaluate_lstm` computed, to `out` `[B, 2 · L · U]`.

    `length` `[B]` contains the number of steps of each of the B segments. A state consists of the output h and the
    cells c of each of L layers in turn.
    """
    units, batch = net.units, tape.values.shape[2]
    for layer in range(net.plan.shape[0]):
        inputs, _, row = net.plan[layer]
        for b in range(length.size):
            for u in range(units):
                out[b, 2 * layer * units + u] = tape.values[row + inputs + u, length[b], b]
                out[b, (2 * layer + 1) * units + u] = tape.cells[layer, length[b], u * batch + b]


@kernel
def differentiate_lstm(net: LSTMNetwork, m: int, tape: LSTMTape, length: Lengths, d_out: AnyFloats) -> None:
    """Propagate the gradient of a loss back through the last `evaluate_lstm` of the m-th LSTM.

    The gradient with respect to the outputs is in the first columns of `d_out`, one per unit. The gradient with respect
    to the parameters overwrites row m of `net.gradient`. Gradients flow through the last `tape.reach` steps of each
    segment.
    """
    batch, errors, steps = tape.values.shape[2], tape.errors, length.max()
    errors[:steps] = 0
    for b in range(length.size):
        for u in range(net.units):
            errors[length[b] - 1, u * batch + b] = d_out[b, u]
    for layer in range(net.plan.shape[0] - 1, -1, -1):
        _differentiate_layer(net, m, tape, length, layer)


@kernel
def _stop_gradient(d_h: AnyFloats, d_c: AnyFloats, length: Lengths, reach: int, t: int, batch: int) -> None:
    for b in range(length.size):
        if t < length[b] - reach:
            for u in range(d_h.size // batch):
                d_h[u * batch + b] = d_c[u * batch + b] = 0


@kernel
def _differentiate_layer(net: LSTMNetwork, m: int, tape: LSTMTape, length: Lengths, layer: int) -> None:
    parameters, units = net.parameters[m], net.units
    inputs, offset, row = net.plan[layer]
    batch, columns = tape.values.shape[2], 4 * units
    steps, first = length.max(), max(0, length.min() - tape.reach)
    d_h, d_c, recurrent = tape.carried[0], tape.carried[1], tape.carried[2]
    d_gates, upright = tape.d_gates.reshape(-1), tape.upright
    d_c[:] = 0
    recurrent[:] = 0
    for t in range(steps - 1, first - 1, -1):
        errors = tape.errors[t]
        for i in range(d_h.size):
            d_h[i] = errors[i] + recurrent[i]
        if tape.reach < steps:
            _stop_gradient(d_h, d_c, length, tape.reach, t, batch)
        differentiate_cell(tape.gates[layer, t], tape.cells[layer, t], tape.squashed[layer, t], d_h, d_c, d_gates)
        width = upright.shape[1]
        transpose(upright.reshape(-1), t * batch * width, width, d_gates, 0, batch, columns, batch)
        if t > first:
            matmul(
                recurrent, 0, batch, units, batch,
                parameters, offset + inputs * columns, columns, 1,
                d_gates, 0, batch, columns,
            )  # fmt: skip
        if layer > 0:
            matmul(
                errors, 0, batch, inputs, batch,
                parameters, offset, columns, 1,
                d_gates, 0, batch, columns,
            )  # fmt: skip
    stride = tape.values.shape[1] * batch
    flat = tape.values.reshape(-1)
    matmul(
        net.gradient[m], offset, columns, inputs + units + 1, columns,
        flat, row * stride + first * batch, stride, 1,
        upright, first * batch * upright.shape[1], upright.shape[1], (steps - first) * batch,
    )  # fmt: skip


@kernel
def evaluate_cell(gates: AnyFloats, before: AnyFloats, after: AnyFloats, squashed: AnyFloats, h: AnyFloats) -> None:
    """Compute one step of n LSTM cells, c ← f c + i g and h = o tanh(c) (Gers et al. 2000).

    On entry, `gates` `[4 · n]` contains the weighted sums. The gates i, f, o and g replace them. `before` and `after`
    are the cells c before and after the step, `squashed` is tanh(c) after the step, and `h` is the output, `[n]` each.
    The logistic function is ½ + ½ tanh(z / 2), so that all four gates use the same vectorised tanh. Every loop writes
    one array, because LLVM does not vectorise other loops.
    """
    n, half = before.size, gates.dtype.type(0.5)
    sigmoid = gates[: 3 * n]
    for k in range(sigmoid.size):
        sigmoid[k] *= half
    activate(gates, _TANH)
    for k in range(sigmoid.size):
        sigmoid[k] = half + half * sigmoid[k]
    i, f, o, g = gates[:n], gates[n : 2 * n], gates[2 * n : 3 * n], gates[3 * n :]
    for k in range(n):
        after[k] = f[k] * before[k] + i[k] * g[k]
    for k in range(n):
        squashed[k] = after[k]
    activate(squashed, _TANH)
    for k in range(n):
        h[k] = o[k] * squashed[k]


@kernel
def differentiate_cell(
    gates: AnyFloats, before: AnyFloats, squashed: AnyFloats, d_h: AnyFloats, d_c: AnyFloats, d_gates: AnyFloats
) -> None:
    """Propagate gradients back through one step of n LSTM cells.

    `d_h` and `d_c` `[n]` are the gradients with respect to the output h and the cells c after the step. The gradient
    with respect to c before the step overwrites `d_c`. The gradients with respect to the weighted sums in the gates are
    written to `d_gates` `[4 · n]`.
    """
    n, one = before.size, gates.dtype.type(1)
    i, f, o, g = gates[:n], gates[n : 2 * n], gates[2 * n : 3 * n], gates[3 * n :]
    d_i, d_f, d_o, d_g = d_gates[:n], d_gates[n : 2 * n], d_gates[2 * n : 3 * n], d_gates[3 * n :]
    for k in range(n):
        d_c[k] += d_h[k] * o[k] * (one - squashed[k] * squashed[k])
    for k in range(n):
        d_o[k] = d_h[k] * squashed[k] * o[k] * (one - o[k])
    for k in range(n):
        d_i[k] = d_c[k] * g[k] * i[k] * (one - i[k])
    for k in range(n):
        d_f[k] = d_c[k] * before[k] * f[k] * (one - f[k])
    for k in range(n):
        d_g[k] = d_c[k] * i[k] * (one - g[k] * g[k])
    for k in range(n):
        d_c[k] *= f[k]
