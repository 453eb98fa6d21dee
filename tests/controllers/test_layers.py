"""Population networks against PyTorch's autograd, and the rules that make a population honest."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from replaybench.controllers.ddpg import DDPGConfig
from replaybench.controllers.layers import PopulationMLP, Shape, backward, forward
from replaybench.controllers.matmul import matmul, padded
from replaybench.data.streams import Stream

M, B = 3, 5


def make(shape: Shape, dtype: type = np.float64, members: int = M) -> PopulationMLP:
    network = PopulationMLP(shape, members, dtype)
    network.initialise(Stream(1, range(members), "initialisation"))
    return network


def by_torch(network: PopulationMLP, m: int, x: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, list]:
    """Evaluate member m with autograd; returns the output and the leaf weights, layer by layer."""
    shape, leaves, h = network.shape, [], x
    for layer in range(len(shape.layers)):
        weight, bias = (torch.tensor(part[m].copy(), requires_grad=True) for part in network.weights(layer))
        leaves.append((weight, bias))
        if layer == shape.inject:
            h = torch.cat([h, action], 1)
        h = h @ weight + bias
        if layer < len(shape.layers) - 1:
            h = torch.relu(h)
    return (torch.tanh(h) if shape.tanh else h), leaves


@pytest.mark.parametrize(
    "shape",
    [
        Shape((2, 50, 50, 1), tanh=True),
        Shape((2, 50, 50, 20, 1), actions=4, inject=1),
        Shape((3, 7, 2), actions=2, inject=0),
        Shape((3, 2)),
        Shape((4, 33, 17, 9, 5, 3), actions=1, inject=4),
    ],
)
def test_forward_and_backward_equal_autograd(shape: Shape) -> None:
    network = make(shape)
    rng = np.random.Generator(np.random.PCG64(0))
    x, action = rng.normal(size=(M, B, shape.sizes[0])), rng.normal(size=(M, B, shape.actions))
    d_out = rng.normal(size=(M, B, shape.sizes[-1]))
    tape, out = network.tape(B), np.empty((B, shape.sizes[-1]))
    for m in range(M):
        forward(network.network, m, tape, x[m], action[m], out)
        joined = torch.tensor(action[m], requires_grad=True)
        expected, leaves = by_torch(network, m, torch.tensor(x[m]), joined)
        expected.backward(torch.tensor(d_out[m]))
        np.testing.assert_allclose(out, expected.detach().numpy(), rtol=1e-12, atol=1e-14)
        d_action = np.empty((B, shape.actions))
        backward(network.network, m, tape, d_out[m], True, d_action)
        gradient = np.concatenate([part.grad.numpy().ravel() for pair in leaves for part in pair])
        np.testing.assert_allclose(network.gradient[m], gradient, rtol=1e-10, atol=1e-13)
        if shape.actions:
            np.testing.assert_allclose(d_action, joined.grad.numpy(), rtol=1e-10, atol=1e-13)
            alone = np.empty_like(d_action)
            backward(network.network, m, tape, d_out[m], False, alone)
            np.testing.assert_array_equal(alone, d_action)


@pytest.mark.parametrize(
    ("states", "actions", "critic", "actor"),
    [(2, 1, 3791, 2751), (2, 4, 3941, 2904)],
    ids=["pendulum", "magman"],
)
def test_parameter_counts_of_table_8(states: int, actions: int, critic: int, actor: int) -> None:
    config = DDPGConfig()
    assert Shape((states, *config.actor_hidden, actions), tanh=True).parameter_count == actor
    shape = Shape((states, *config.critic_hidden, 1), actions=actions, inject=config.action_layer)
    assert shape.parameter_count == critic


@pytest.mark.parametrize(("states", "actions", "critic", "actor"), [(2, 1, 122101, 121801), (2, 4, 123001, 122704)])
def test_parameter_counts_of_the_large_networks(states: int, actions: int, critic: int, actor: int) -> None:
    assert Shape((states, 400, 300, actions), tanh=True).parameter_count == actor
    assert Shape((states, 400, 300, 1), actions=actions, inject=1).parameter_count == critic


def test_members_do_not_depend_on_each_other_or_on_their_number() -> None:
    shape = Shape((2, 50, 50, 20, 1), actions=1, inject=1)
    many, one = make(shape, np.float32, 7), make(shape, np.float32, 1)
    np.testing.assert_array_equal(many.parameters[:1], one.parameters)
    x = np.linspace(-1, 1, 7 * 16 * 2, dtype=np.float32).reshape(7, 16, 2)
    action = np.linspace(-1, 1, 7 * 16, dtype=np.float32).reshape(7, 16, 1)
    together = many(x, action)
    np.testing.assert_array_equal(together[:1], one(x[:1], action[:1]))
    many.parameters[3] = np.nan
    again = many(x, action)
    assert np.isnan(again[3]).all()
    np.testing.assert_array_equal(np.delete(again, 3, 0), np.delete(together, 3, 0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("rows", "columns", "depth"), [(1, 1, 1), (7, 3, 2), (15, 40, 9), (51, 50, 16)])
@pytest.mark.parametrize("transposed", [False, True])
def test_matmul_equals_numpy(dtype: type, rows: int, columns: int, depth: int, transposed: bool) -> None:
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
