"""LSTMs of a population against `torch.nn.LSTM` with autograd, and the rules that make a population honest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from replaybench.controllers.networks.lstm import (
    LSTMShape,
    LSTMTape,
    PopulationLSTM,
    lstm_backward,
    lstm_forward,
    lstm_state,
)
from replaybench.runtime.streams import Stream

M = 2


def make(shape: LSTMShape, dtype: type = np.float64, members: int = M) -> PopulationLSTM:
    network = PopulationLSTM(shape, members, dtype)
    network.initialise(Stream(1, range(members), "initialisation"))
    return network


def normal(*size: int) -> NDArray[np.float64]:
    return np.random.Generator(np.random.PCG64(sum(size))).normal(size=size)


def torch_order(network: PopulationLSTM) -> NDArray[np.int64]:
    """Our columns (i, f, o, g) in the order of Torch's rows (i, f, g, o)."""
    units = network.shape.units
    return np.concatenate([np.arange(gate * units, (gate + 1) * units) for gate in (0, 1, 3, 2)])


def to_torch(network: PopulationLSTM, m: int) -> torch.nn.LSTM:
    shape, order, named = network.shape, torch_order(network), network.named_weights("q")
    theirs = torch.nn.LSTM(shape.inputs, shape.units, shape.layers, dtype=torch.float64)
    with torch.no_grad():
        for layer, inputs in enumerate(shape.layer_inputs):
            weight, bias = named[f"q.{layer}.weight"], named[f"q.{layer}.bias"]
            theirs.get_parameter(f"weight_ih_l{layer}").copy_(torch.tensor(weight[m, :inputs, order]))
            theirs.get_parameter(f"weight_hh_l{layer}").copy_(torch.tensor(weight[m, inputs:, order]))
            theirs.get_parameter(f"bias_ih_l{layer}").copy_(torch.tensor(bias[m, order]))
            theirs.get_parameter(f"bias_hh_l{layer}").zero_()
    return theirs


def torch_gradient(network: PopulationLSTM, theirs: torch.nn.LSTM) -> NDArray[np.float64]:
    """Their gradient as one row `[P]` in our order."""
    back = np.argsort(torch_order(network))
    blocks = []
    for layer in range(network.shape.layers):
        grads: list[Any] = [
            theirs.get_parameter(f"{part}_l{layer}").grad for part in ("weight_ih", "weight_hh", "bias_ih")
        ]
        stacked = torch.cat([grads[0].T, grads[1].T, grads[2][None]]).numpy()
        blocks.append(stacked[:, back].ravel())
    return np.concatenate(blocks)


def states(network: PopulationLSTM, initial: NDArray[np.float64]) -> tuple[torch.Tensor, torch.Tensor]:
    """A state `[B, 2LU]` as Torch's (h, c), each `[L, B, U]`."""
    shape = network.shape
    split = torch.tensor(initial).reshape(-1, shape.layers, 2, shape.units).permute(2, 1, 0, 3).contiguous()
    return split[0], split[1]


def run(
    network: PopulationLSTM,
    m: int,
    tape: LSTMTape,
    x: NDArray[np.floating],
    length: NDArray[np.int64],
    initial: NDArray[np.floating],
) -> NDArray[np.floating]:
    out = np.empty((len(x), network.shape.units), network.parameters.dtype)
    lstm_forward(network.network, m, tape, x, length, initial, out)
    return out


def lengths(segments: int, steps: int) -> NDArray[np.int64]:
    """As long as there is room for, then ever shorter, and again."""
    return steps - np.arange(segments) % steps


@pytest.mark.parametrize(
    ("shape", "segments", "steps"),
    [
        (LSTMShape(2), 16, 17),
        (LSTMShape(3, units=32), 1, 1),
        (LSTMShape(1, layers=1, units=7), 5, 4),
        (LSTMShape(5, layers=3, units=9), 11, 3),
        (LSTMShape(4, units=1), 3, 1),
        (LSTMShape(2, units=16), 1, 8),
    ],
)
def test_forward_and_backward_equal_autograd(shape: LSTMShape, segments: int, steps: int) -> None:
    """Histories of all lengths; what lies behind them has no influence."""
    network = make(shape)
    network.parameters += 0.1 * normal(*network.parameters.shape)
    tape, length = network.tape(segments, steps), lengths(segments, steps)
    for m in range(M):
        x, initial = normal(segments, steps, shape.inputs), normal(segments, shape.state_size) + m
        d_out = normal(segments, shape.units)
        out, final = run(network, m, tape, x, length, initial), np.empty_like(initial)
        lstm_state(network.network, tape, length, final)
        lstm_backward(network.network, m, tape, length, d_out)
        theirs = to_torch(network, m)
        for b in range(segments):
            series = torch.tensor(x[b, : length[b]])[:, None]
            expected, state = theirs(series, states(network, initial[b : b + 1]))
            expected[-1, 0].backward(torch.tensor(d_out[b]))
            np.testing.assert_allclose(out[b], expected[-1, 0].detach(), rtol=1e-10, atol=1e-13)
            for ours, their in zip(states(network, final[b : b + 1]), state, strict=True):
                np.testing.assert_allclose(ours, their.detach(), rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(network.gradient[m], torch_gradient(network, theirs), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("reach", [1, 3, 6])
def test_no_gradient_flows_through_the_burn_in(reach: int) -> None:
    """Histories longer than the reach, and shorter ones, to which all of theirs counts."""
    steps, segments = 6, 9
    network, length = make(LSTMShape(2, units=8)), lengths(segments, steps)
    x, initial = normal(segments, steps, 2), normal(segments, network.shape.state_size)
    d_out = normal(segments, 8)
    tape, theirs = network.tape(segments, steps, reach), to_torch(network, 0)
    run(network, 0, tape, x, length, initial)
    lstm_backward(network.network, 0, tape, length, d_out)
    for b in range(segments):
        series, first = torch.tensor(x[b, : length[b]])[:, None], max(0, length[b] - reach)
        state = states(network, initial[b : b + 1])
        with torch.no_grad():
            state = theirs(series[:first], state)[1] if first else state
        expected, _ = theirs(series[first:], state)
        expected[-1, 0].backward(torch.tensor(d_out[b]))
    np.testing.assert_allclose(network.gradient[0], torch_gradient(network, theirs), rtol=1e-10, atol=1e-12)


def test_single_precision_is_close_to_double() -> None:
    steps, segments = 17, 16
    double, single = make(LSTMShape(2)), make(LSTMShape(2), np.float32)
    # Large inputs saturate gates, where a fast tanh must not overflow.
    x, length = 20 * normal(segments, steps, 2), lengths(segments, steps)
    initial, d_out = normal(segments, double.shape.state_size), normal(segments, 32)
    for network in (double, single):
        kind = network.parameters.dtype
        tape = network.tape(segments, steps)
        run(network, 0, tape, x.astype(kind), length, initial.astype(kind))
        lstm_backward(network.network, 0, tape, length, d_out.astype(kind))
    scale = np.abs(double.gradient[0]).max()
    np.testing.assert_allclose(single.gradient[0] / scale, double.gradient[0] / scale, atol=3e-6)


@pytest.mark.parametrize("bias", [1.0, -4.0])
def test_first_weights_are_small_and_forget_gates_begin_as_told(bias: float) -> None:
    stream = Stream(1, range(M), "initialisation")
    network = PopulationLSTM(LSTMShape(3, units=16, forget_bias=bias), M)
    network.initialise(stream)
    named = network.named_weights("critic")
    assert [*named] == ["critic.0.weight", "critic.0.bias", "critic.1.weight", "critic.1.bias"]
    assert sum(array[0].size for array in named.values()) == network.shape.parameter_count
    for name, array in named.items():
        assert np.shares_memory(array, network.parameters)
        if name.endswith("bias"):
            np.testing.assert_array_equal(array, np.broadcast_to(np.repeat([0, bias, 0, 0], 16), array.shape))
        else:
            assert 0.24 < np.abs(array).max() <= 0.25
    # A fixed number of draws: what is initialised next must not depend on what came before.
    again = Stream(1, range(M), "initialisation")
    again.uniform(network.shape.parameter_count)
    np.testing.assert_array_equal(stream.state, again.state)
