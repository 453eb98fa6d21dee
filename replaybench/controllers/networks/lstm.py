"""LSTM layers of a population: forward pass and backpropagation through time.

Hochreiter & Schmidhuber (1997) with forget gates (Gers et al. 2000), layers stacked as in `torch.nn.LSTM`. As in `mlp`,
activations are transposed, so that the segments of a batch are the vector axis. Each layer runs over all steps before
the next one starts, so that its weights stay in the first-level cache.
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
    """View for kernels: flat arrays with a leading member axis, and their plan.

    `plan[l]` = (inputs, parameter offset, tape row) of layer l. `inputs` counts the outputs of the layer below, without
    the layer's own state and the constant 1 that multiplies the bias.
    """

    parameters: AnyFloats
    gradient: AnyFloats
    plan: Integers
    units: int


class LSTMTape(NamedTuple):
    """Work space of one member's pass over B segments of at most T steps, read by its backward pass.

    A batch is padded to B' segments, a whole number of vectors. Slot t of `values` `[rows, slots, B']` holds each
    layer's inputs x of step t, its state h before step t, and ones. The other results are `gates` `[L, T, 4 · U · B']`
    (input, forget, output, candidate), `cells` `[L, T + 1, U · B']` and their tanh `squashed` `[L, T, U · B']`. Scratch
    of the backward pass: `errors` `[T, U · B']` of a layer's output, `carried` `[3, U · B']`, `d_gates` `[4 · U, B']`
    of one step and `upright` `[T · B', 4 · U]` of all. Gradients flow through the last `reach` steps of each segment.
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
    """Sizes of a stack of LSTM layers (2 × 32 units in Novati & Koumoutsakos 2019), and the initial forget bias."""

    inputs: int
    layers: int = 2
    units: int = 32
    forget_bias: float = 1.0

    @property
    def parameter_count(self) -> int:
        """Weights and biases of one member."""
        return sum((inputs + self.units + 1) * 4 * self.units for inputs in self.layer_inputs)

    @property
    def layer_inputs(self) -> list[int]:
        """Number of inputs that each layer receives from the layer below."""
        return [self.inputs if layer == 0 else self.units for layer in range(self.layers)]

    @property
    def state_size(self) -> int:
        """Size of the state of one member: h, then c, of each layer in turn."""
        return 2 * self.layers * self.units


class PopulationLSTM:
    """M stacks of LSTM layers of one shape.

    Attributes:
        parameters, gradient: `[M, P]`, each member's weights and biases, layer by layer (weight `[in + U, 4U]` in C
            order, with the rows of the inputs before those of the state, then bias `[4U]`). Columns belong to the
            input, forget and output gates, then to the candidate.
        network: the view for kernels; it shares memory with both arrays.
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
        """Draw weights uniformly from ±1/√units; set forget gates' biases to `forget_bias`, the others to zero.

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
        """Return views, layer by layer: `{name}.{layer}.weight` `[M, in + U, 4U]` and `.bias` `[M, 4U]`."""
        named, columns = {}, 4 * self.shape.units
        for layer, (inputs, offset, _) in enumerate(self.network.plan):
            rows = inputs + self.shape.units + 1
            block = self.parameters[:, offset : offset + rows * columns].reshape(-1, rows, columns)
            named[f"{name}.{layer}.weight"], named[f"{name}.{layer}.bias"] = block[:, :-1], block[:, -1]
        return named

    def tape(self, segments: int, steps: int, reach: int | None = None) -> LSTMTape:
        """Allocate passes over at most `segments` of `steps`; gradients flow through the last `reach`."""
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
def lstm_forward(
    net: LSTMNetwork, m: int, tape: LSTMTape, x: AnyFloats, length: Lengths, initial: AnyFloats, out: AnyFloats
) -> None:
    """Run member m over B segments x `[B, T, in]`; segment b consists of its first `length[b]` steps.

    Segments start in the states `initial` `[B, 2 · L · U]`. The top layer's h after the last step of each is written to
    the first U columns of out `[B, ≥ U]`. Values after the end of a segment must be finite; they have no influence.
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
        _layer_forward(net, m, tape, steps, layer, above)
    top = net.plan[layers - 1, 2] + net.plan[layers - 1, 0]
    for b in range(length.size):
        for u in range(units):
            out[b, u] = values[top + u, length[b], b]


@kernel
def _layer_forward(net: LSTMNetwork, m: int, tape: LSTMTape, steps: int, layer: int, above: int) -> None:
    """Run one layer over all steps; its h also become the input rows of the next layer, from row `above`."""
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
        cell_forward(gates, tape.cells[layer, t], tape.cells[layer, t + 1], tape.squashed[layer, t], h)
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
    """Write the state after `length[b]` steps of the last `lstm_forward` to out `[B, 2 · L · U]`: each layer's h, c."""
    units, batch = net.units, tape.values.shape[2]
    for layer in range(net.plan.shape[0]):
        inputs, _, row = net.plan[layer]
        for b in range(length.size):
            for u in range(units):
                out[b, 2 * layer * units + u] = tape.values[row + inputs + u, length[b], b]
                out[b, (2 * layer + 1) * units + u] = tape.cells[layer, length[b], u * batch + b]


@kernel
def lstm_backward(net: LSTMNetwork, m: int, tape: LSTMTape, length: Lengths, d_out: AnyFloats) -> None:
    """Propagate the loss gradient, the first U columns of d_out `[B, ≥ U]`, back through the last `lstm_forward`.

    Overwrite member m's `gradient`. Gradients flow through the last `reach` steps of each segment.
    """
    batch, errors, steps = tape.values.shape[2], tape.errors, length.max()
    errors[:steps] = 0
    for b in range(length.size):
        for u in range(net.units):
            errors[length[b] - 1, u * batch + b] = d_out[b, u]
    for layer in range(net.plan.shape[0] - 1, -1, -1):
        _layer_backward(net, m, tape, length, layer)


@kernel
def _stop_gradient(d_h: AnyFloats, d_c: AnyFloats, length: Lengths, reach: int, t: int, batch: int) -> None:
    """Stop the gradient at step t of segments that end more than `reach` steps later."""
    for b in range(length.size):
        if t < length[b] - reach:
            for u in range(d_h.size // batch):
                d_h[u * batch + b] = d_c[u * batch + b] = 0


@kernel
def _layer_backward(net: LSTMNetwork, m: int, tape: LSTMTape, length: Lengths, layer: int) -> None:
    """Propagate `errors` back through one layer, from its output to its input, and write its part of the gradient."""
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
        cell_backward(tape.gates[layer, t], tape.cells[layer, t], tape.squashed[layer, t], d_h, d_c, d_gates)
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
def cell_forward(gates: AnyFloats, before: AnyFloats, after: AnyFloats, squashed: AnyFloats, h: AnyFloats) -> None:
    """Replace sums by gates `[4 · n]` (i, f, o, g); from cells `before` `[n]`, write cells `after`, their tanh and h.

    c ← f c + i g and h = o tanh(c) (Gers et al. 2000). The logistic function is ½ + ½ tanh(z / 2), so that all four
    gates use the same vectorised tanh. Every loop writes one array: LLVM does not vectorise others.
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
def cell_backward(
    gates: AnyFloats, before: AnyFloats, squashed: AnyFloats, d_h: AnyFloats, d_c: AnyFloats, d_gates: AnyFloats
) -> None:
    """Write the gradients to the gates' sums `[4 · n]` and to c before the step, given d_h and d_c `[n]` after it."""
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
