"""Networks and their activations against PyTorch."""

from typing import Any

import numpy as np
import pytest
import torch
from numba import njit

from replaybench.controllers.algorithms.ddpg import DDPGConfig
from replaybench.controllers.networks import mlp, tiles
from replaybench.controllers.networks.mlp import (
    ACTIVATIONS,
    PopulationMLP,
    Shape,
    activate,
    differentiate_mlp,
    evaluate_mlp,
)
from replaybench.controllers.networks.tiles import matmul, padded
from replaybench.runtime.streams import Stream
from tests.helpers.tiers import slow
from tests.helpers.torch_nets import TorchNet

M, B = 3, 5
each_dtype = pytest.mark.parametrize("dtype", slow([np.float32, np.float64], only=[np.float64]))


def make(shape: Shape, dtype: type = np.float64, members: int = M) -> PopulationMLP:
    network = PopulationMLP(shape, members, dtype)
    network.initialise(Stream(1, range(members), "initialisation"))
    return network


SHAPES = [
    Shape((2, 50, 50, 1), tanh=True),
    Shape((2, 50, 50, 20, 1), actions=4, inject=1),
    Shape((3, 7, 2), actions=2, inject=0),
    Shape((3, 2)),
    Shape((4, 33, 17, 9, 5, 3), actions=1, inject=4),
    Shape((0, 32, 1), actions=3, inject=0),
]
VARIANTS = [
    Shape((3, 33, 7, 2), actions=2, inject=inject, tanh=tanh, activation=activation, layer_norm=normalised)
    for activation in ACTIVATIONS
    for normalised in (False, True)
    for tanh, inject in ((False, 0), (True, 1), (False, 2))
]


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES + VARIANTS)
def test_forward_and_backward_equal_autograd(shape: Shape) -> None:
    network = make(shape)
    rng = np.random.Generator(np.random.PCG64(0))
    # Gains of one and shifts of zero would hide them.
    network.parameters += rng.normal(0.0, 0.1, network.parameters.shape)
    x, action = rng.normal(size=(M, B, shape.sizes[0])), rng.normal(size=(M, B, shape.actions))
    d_out = rng.normal(size=(M, B, shape.sizes[-1]))
    tape, out = network.tape(B), np.empty((B, shape.sizes[-1]))
    for m in range(M):
        evaluate_mlp(network.network, m, tape, x[m], action[m], out)
        joined, peer = torch.tensor(action[m], requires_grad=True), TorchNet(network, m)
        expected = peer(torch.tensor(x[m]), joined)
        expected.backward(torch.tensor(d_out[m]))
        np.testing.assert_allclose(out, expected.detach().numpy(), rtol=1e-12, atol=1e-14)
        d_action = np.empty((B, shape.actions))
        differentiate_mlp(network.network, m, tape, d_out[m], True, d_action)
        np.testing.assert_allclose(network.gradient[m], peer.gradient(), rtol=1e-10, atol=1e-13)
        if shape.actions:
            assert joined.grad is not None
            np.testing.assert_allclose(d_action, joined.grad.numpy(), rtol=1e-10, atol=1e-13)
            alone = np.empty_like(d_action)
            network.gradient[m] = np.nan
            differentiate_mlp(network.network, m, tape, d_out[m], False, alone)
            np.testing.assert_array_equal(alone, d_action)
            assert np.isnan(network.gradient[m]).all(), "without want_weights the gradient is left alone"


def test_memory_does_not_grow_with_the_numbers_of_rows_that_were_asked_for() -> None:
    network = make(Shape((2, 3, 1)), np.float32)
    once = [network(np.ones((M, rows, 2), np.float32)) for rows in range(2, 40)]
    assert network._kept_tape.cache_info().currsize < 10
    for rows in range(2, 40):
        np.testing.assert_array_equal(network(np.ones((M, rows, 2), np.float32)), once[rows - 2])


@each_dtype
def test_a_single_observation_gives_the_bits_that_it_gives_in_a_batch(dtype: type) -> None:
    """Acting has a product of its own; export and restored runs rely on its numbers being those of `evaluate_mlp`."""
    shapes = Shape((3, 50, 33, 1), tanh=True), Shape((4, 7, 2), activation="softsign"), Shape((2, 21, 3))
    for shape in shapes:
        network = make(shape, dtype)
        network.parameters[:] += np.random.Generator(np.random.PCG64(1)).normal(0, 0.1, network.parameters.shape)
        x: Any = np.random.Generator(np.random.PCG64(2)).normal(size=(M, B, shape.sizes[0])).astype(dtype)
        whole = network(x)
        for b in range(B):
            np.testing.assert_array_equal(network(x[:, b : b + 1])[:, 0], whole[:, b])


@pytest.mark.slow
def test_a_large_batch_whose_rows_lie_apart_equals_its_halves() -> None:
    network = make(Shape((3, 33, 7, 2), actions=2, inject=1, layer_norm=True))
    rng = np.random.Generator(np.random.PCG64(0))
    size = 160
    assert network.tape(size).values.shape[1] > padded(size, 8) == size
    x, action, d_out = (rng.normal(size=(size, n)) for n in (3, 2, 2))
    found = []
    for batch in (slice(0, size), slice(0, size // 2), slice(size // 2, size)):
        count = x[batch].shape[0]
        tape, out, d_action = network.tape(count), np.empty((count, 2)), np.empty((count, 2))
        evaluate_mlp(network.network, 0, tape, x[batch], action[batch], out)
        differentiate_mlp(network.network, 0, tape, d_out[batch], True, d_action)
        found.append((out, d_action, network.gradient[0].copy()))
    whole, *halves = found
    for part in range(2):
        np.testing.assert_array_equal(whole[part], np.concatenate([half[part] for half in halves]))
    np.testing.assert_allclose(whole[2], halves[0][2] + halves[1][2], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("states", "actions", "critic", "actor"), [(2, 1, 3791, 2751), (2, 4, 3941, 2904)], ids=["pendulum", "magman"]
)
def test_parameter_counts_of_table_8(states: int, actions: int, critic: int, actor: int) -> None:
    config = DDPGConfig()
    assert Shape((states, *config.actor_hidden, actions), tanh=True).parameter_count == actor
    shape = Shape((states, *config.critic_hidden, 1), actions=actions, inject=config.action_layer)
    assert shape.parameter_count == critic


def spread(values: np.ndarray) -> float:
    return float(np.abs(values).max())


def test_xavier_bounds_and_a_scaled_output() -> None:
    network = PopulationMLP(Shape((60, 64, 32, 40), layer_norm=True, scheme="xavier", output_scale=0.1), 20, np.float64)
    network.initialise(Stream(1, range(20), "initialisation"))
    named = network.named_weights("critic")
    for layer, (inputs, outputs) in enumerate(network.shape.layers):
        bound = np.sqrt(6 / (inputs + outputs)) * (0.1 if layer == 2 else 1.0)
        assert 0.99 * bound < spread(named[f"critic.{layer}.weight"]) <= bound
        assert spread(named[f"critic.{layer}.bias"]) == 0
    for layer in (0, 1):
        np.testing.assert_array_equal(named[f"critic.{layer}.gain"], 1.0)
        np.testing.assert_array_equal(named[f"critic.{layer}.shift"], 0.0)
    assert "critic.2.gain" not in named


def test_a_bounded_output_layer_draws_its_biases_too_and_leaves_the_others() -> None:
    bounded, plain = (PopulationMLP(Shape((6, 64, 40), output_bound=bound), 20) for bound in (3e-3, None))
    bounded.initialise(Stream(1, range(20), "initialisation"))
    plain.initialise(Stream(1, range(20), "initialisation"))
    ours, theirs = bounded.named_weights("n"), plain.named_weights("n")
    for part in ("weight", "bias"):
        assert 0.99 * 3e-3 < spread(ours[f"n.1.{part}"]) <= np.float32(3e-3)
        np.testing.assert_array_equal(ours[f"n.0.{part}"], theirs[f"n.0.{part}"])


def test_named_weights_are_views_that_hold_every_parameter_once() -> None:
    network = PopulationMLP(Shape((2, 5, 4, 3), actions=2, inject=1, layer_norm=True, activation="tanh"), M)
    network.parameters[:] = np.arange(network.parameters.size).reshape(M, -1)
    named = network.named_weights("actor")
    flat = np.concatenate([part.reshape(M, -1) for part in named.values()], axis=1)
    np.testing.assert_array_equal(flat, network.parameters)
    assert [name.split(".")[2] for name in named] == ["weight", "bias", "gain", "shift"] * 2 + ["weight", "bias"]
    named["actor.1.gain"][1, 2] = -7
    assert (network.parameters[1] == -7).sum() == 1


@each_dtype
@pytest.mark.parametrize(("rows", "columns", "depth"), [(1, 1, 1), (2, 9, 7), (7, 3, 2), (15, 40, 9), (51, 50, 16)])
@pytest.mark.parametrize("transposed", [False, True])
def test_matmul_equals_numpy(dtype: type[np.floating], rows: int, columns: int, depth: int, transposed: bool) -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    a, b = rng.normal(size=(rows, depth)).astype(dtype), rng.normal(size=(depth, columns)).astype(dtype)
    stride = padded(columns, np.dtype(dtype).itemsize)
    wide = np.full((depth, stride), np.nan, dtype)
    wide[:, :columns] = b
    c = np.full(rows * columns + 3, 7.0, dtype)
    stored = np.ascontiguousarray(a.T) if transposed else a
    a_row, a_col = (1, rows) if transposed else (depth, 1)
    matmul(c, 0, columns, rows, columns, stored, 0, a_row, a_col, wide, 0, stride, depth)
    tolerance = 1e-5 if dtype is np.float32 else 1e-12
    np.testing.assert_allclose(c[:-3].reshape(rows, columns), a @ b, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(c[-3:], 7.0)


@pytest.mark.parametrize("strips", [1, 2])
@each_dtype
def test_tiles_of_any_size_equal_numpy(dtype: type[np.floating], strips: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of AVX-512 too, with which any processor computes the same, if more slowly."""
    monkeypatch.setattr(tiles, "_most_rows", lambda _context, _width: 12)
    routine = (tiles.wide_strip, tiles.double_strip)[strips - 1]
    width = strips * tiles.STRIP_BYTES // np.dtype(dtype).itemsize

    @njit
    def strip(c: np.ndarray, rows: int, a: np.ndarray, b: np.ndarray) -> None:
        routine(c, 0, width, rows, width, a, 0, a.size // rows, 1, b, 0, width, a.size // rows)

    rng = np.random.Generator(np.random.PCG64(0))
    for rows in (1, *range(3, 13), 25):
        a, b = rng.integers(-9, 9, (rows, 6)).astype(dtype), rng.integers(-9, 9, (6, width)).astype(dtype)
        c = np.zeros((rows, width), dtype)
        strip(c.reshape(-1), rows, a.reshape(-1), b.reshape(-1))
        np.testing.assert_array_equal(c, a @ b)


def test_work_space_begins_on_a_cache_line() -> None:
    network = make(Shape((2, 3, 1)))
    tapes = [network.tape(rows) for rows in range(1, 20)]
    assert not any(array.ctypes.data % 64 for tape in tapes for array in tape)


@each_dtype
def test_row_dots_and_transpose_equal_numpy(dtype: type[np.floating]) -> None:
    @njit
    def both(c: np.ndarray, turned: np.ndarray, a: np.ndarray, b: np.ndarray, depth: int) -> None:
        rows, stride = a.shape
        tiles.row_dots(c, 1, 2, rows, a.reshape(-1), 0, stride, b, 0, depth)
        tiles.transpose(turned.reshape(-1), 0, turned.shape[1], a.reshape(-1), 0, stride, rows, stride)

    rng = np.random.Generator(np.random.PCG64(0))
    for depth in (1, 16, 21, 48):
        a, b = rng.integers(-9, 9, (24, 48)).astype(dtype), np.full(48, np.nan, dtype)
        b[:depth] = rng.integers(-9, 9, depth)
        c, turned = np.full(50, 7.0, dtype), np.zeros((48, 24), dtype)
        both(c, turned, a, b, depth)
        np.testing.assert_array_equal(c[1:48:2], a[:, :depth] @ b[:depth])
        np.testing.assert_array_equal(np.append(c[::2], c[49]), 7.0)
        np.testing.assert_array_equal(turned, a.T)


RELU, TANH, SOFTSIGN = range(3)
DENSE = np.arange(0, 0x7F800000, 997, dtype=np.uint32).view(np.float32)
"""Every 997th float32 from zero to the greatest."""


def test_tanh_is_odd_bounded_and_within_two_units_in_the_last_place() -> None:
    positive, negative, exact = DENSE.copy(), -DENSE, np.tanh(DENSE.astype(np.float64))
    activate(positive, TANH)
    activate(negative, TANH)
    np.testing.assert_array_equal(negative, -positive)
    assert positive.max() == 1.0
    assert (np.abs(positive - exact) / np.spacing(exact.astype(np.float32))).max() < 1.82


@pytest.mark.slow
def test_tanh_in_float64_is_exact_to_rounding() -> None:
    x = np.linspace(-12, 12, 1001)
    y = x.copy()
    activate(y, TANH)
    np.testing.assert_allclose(y, np.tanh(x), rtol=1e-15)


def test_softsign_and_relu() -> None:
    for x in (DENSE[DENSE < 1e30], -DENSE[DENSE < 1e30]):
        y, rectified, wide = x.copy(), x.copy(), x.astype(np.float64)
        activate(y, SOFTSIGN)
        np.testing.assert_allclose(y, wide / (1 + np.abs(wide)), rtol=2e-7, atol=1e-45)
        activate(rectified, RELU)
        np.testing.assert_array_equal(rectified, np.where(x > 0, x, 0))


@each_dtype
@pytest.mark.parametrize("activation", range(len(ACTIVATIONS)), ids=ACTIVATIONS)
def test_nan_passes_forward_and_backward(activation: int, dtype: type[np.floating]) -> None:
    values = np.ones(37, dtype)
    values[[2, 35]] = np.nan
    error = values.copy()
    activate(values, activation)
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(values)), [2, 35])
    mlp.differentiate_activation(error, np.full(37, 0.5, dtype), activation)
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(error)), [2, 35])
