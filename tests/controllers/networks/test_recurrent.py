"""Recurrent networks of a population: gradients against autograd, and learners that need not know of them."""

from __future__ import annotations

from typing import Any, overload

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from replaybench.controllers.networks.adam import adam_step, make_adam, track
from replaybench.controllers.networks.lstm import LSTMShape
from replaybench.controllers.networks.mlp import PopulationMLP, Shape
from replaybench.controllers.networks.network import Population, differentiate, evaluate, of_member, of_samples
from replaybench.controllers.networks.recurrent import (
    Histories,
    PopulationRecurrent,
    RecurrentShape,
    recurrent_backward,
    recurrent_forward,
)
from replaybench.data.kernel import kernel
from replaybench.data.streams import Stream

M = 2


@overload
def make(shape: Shape, members: int = M) -> PopulationMLP: ...
@overload
def make(shape: RecurrentShape, members: int = M) -> PopulationRecurrent: ...
def make(shape: Shape | RecurrentShape, members: int = M) -> Population:
    network = (
        PopulationMLP(shape, members, np.float64)
        if isinstance(shape, Shape)
        else PopulationRecurrent(shape, members, np.float64)
    )
    network.initialise(Stream(1, range(members), "initialisation"))
    return network


def recurrent(
    inputs: int, hidden: tuple[int, ...], outputs: int, actions: int = 0, units: int = 32, tanh: bool = False
) -> RecurrentShape:
    head = Shape((0, *hidden, outputs), actions=units + actions, inject=0, tanh=tanh)
    return RecurrentShape(LSTMShape(inputs, units=units), head)


def normal(*size: int) -> NDArray[np.float64]:
    return np.random.Generator(np.random.PCG64(sum(size))).normal(size=size)


def array_of(tensor: torch.Tensor | None) -> NDArray[np.float64]:
    assert tensor is not None
    return np.asarray(tensor.detach().numpy())


def by_torch(
    named: dict[str, torch.Tensor], shape: RecurrentShape, x: torch.Tensor, action: torch.Tensor, initial: torch.Tensor
) -> torch.Tensor:
    """The network written out: x `[T, B, in]`, action `[T, B, A]`, initial `[B, 2LU]` → `[T, B, out]`."""
    units, state = shape.trunk.units, list(initial.split(shape.trunk.units, 1))
    features = []
    for x_t in x:
        below = x_t
        for layer in range(shape.trunk.layers):
            h, c = state[2 * layer : 2 * layer + 2]
            z = torch.cat([below, h], 1) @ named[f"q.trunk.{layer}.weight"] + named[f"q.trunk.{layer}.bias"]
            i, f, o = torch.sigmoid(z[:, : 3 * units]).split(units, 1)
            c = f * c + i * torch.tanh(z[:, 3 * units :])
            below = o * torch.tanh(c)
            state[2 * layer : 2 * layer + 2] = [below, c]
        features.append(below)
    h, last = torch.cat([torch.stack(features), action], 2), len(shape.head.layers) - 1
    for layer in range(last + 1):
        h = h @ named[f"q.head.{layer}.weight"] + named[f"q.head.{layer}.bias"]
        h = torch.relu(h) if layer < last else h
    return torch.tanh(h) if shape.head.tanh else h


@pytest.mark.parametrize(
    ("shape", "segments", "steps"),
    [
        (recurrent(3, (32,), 1, actions=2), 3, 5),
        (recurrent(2, (), 4, units=7), 1, 1),
        (recurrent(2, (9, 5), 2, units=8, tanh=True), 5, 4),
    ],
)
def test_forward_and_backward_equal_autograd(shape: RecurrentShape, segments: int, steps: int) -> None:
    """Two networks share a memory, this one's part lies behind the other's."""
    network, before = make(shape), 3
    outputs, length = shape.head.sizes[-1], steps - np.arange(segments) % steps
    tape, out = network.tape(segments, steps, place=before), np.empty((segments, outputs))
    for m in range(M):
        x, action = normal(segments, steps, shape.trunk.inputs), normal(segments, shape.actions)
        memory, d_out = normal(segments, before + shape.state_size), normal(segments, outputs)
        named = {name: torch.tensor(w[m], requires_grad=True) for name, w in network.named_weights("q").items()}
        joined = torch.tensor(action, requires_grad=True)
        initial = torch.tensor(memory[:, before:])
        recurrent_forward(network.network, m, tape, Histories(x, length, memory), action, out)
        for b in range(segments):
            series, own = torch.tensor(x[b, : length[b]])[:, None], slice(b, b + 1)
            expected = by_torch(named, shape, series, joined[own].expand(length[b], 1, -1), initial[own])[-1, 0]
            expected.backward(torch.tensor(d_out[b]))
            np.testing.assert_allclose(out[b], array_of(expected), rtol=1e-10, atol=1e-13)
        d_action = np.empty_like(action)
        recurrent_backward(network.network, m, tape, d_out, True, d_action)
        for name, gradient in gradients(network, m).items():
            np.testing.assert_allclose(gradient, array_of(named[name].grad), rtol=1e-10, atol=1e-12, err_msg=name)
        if shape.actions:
            np.testing.assert_allclose(d_action, array_of(joined.grad), rtol=1e-10, atol=1e-12)
            alone, kept = np.empty_like(action), network.gradient.copy()
            recurrent_backward(network.network, m, tape, d_out, False, alone)
            np.testing.assert_array_equal(alone, d_action)
            np.testing.assert_array_equal(network.gradient, kept)


def gradients(network: PopulationRecurrent, m: int) -> dict[str, NDArray[np.floating]]:
    """The gradient of member m by the names of the weights: what lies where they lie."""
    kept = network.parameters.copy()
    network.parameters[:] = network.gradient
    named = {name: array[m].copy() for name, array in network.named_weights("q").items()}
    network.parameters[:] = kept
    return named


def test_step_by_step_equals_the_whole_pass() -> None:
    """To the bit; without memory segments start in the zero state."""
    steps, runs = 6, 3
    network = make(recurrent(2, (32,), 1, actions=1))
    x, action = normal(M, runs, steps, 2), normal(steps, M, runs, 1)
    tape, whole, nothing = network.tape(runs, steps), np.empty((runs, 1)), np.empty((runs, 0))
    state: NDArray[np.floating] = np.zeros((M, runs, network.shape.state_size))
    np.testing.assert_array_equal(network(x[:, :, 0], action[0]), network.step(x[:, :, 0], state, action[0])[0])
    for t in range(steps):
        out, state = network.step(x[:, :, t], state, action[t])
        for m in range(M):
            segments = Histories(x[m], np.full(runs, t + 1), nothing)
            recurrent_forward(network.network, m, tape, segments, action[t, m], whole)
            np.testing.assert_array_equal(out[m], whole)


def test_members_do_not_depend_on_each_other_or_on_their_number() -> None:
    shape = recurrent(2, (32,), 1, actions=1)
    many, one = make(shape, 5), make(shape, 1)
    np.testing.assert_array_equal(many.parameters[:1], one.parameters)
    x, action, state = normal(5, 4, 2), normal(5, 4, 1), normal(5, 4, shape.state_size)
    together, alone = many.step(x, state, action), one.step(x[:1], state[:1], action[:1])
    many.parameters[3] = np.nan
    again = many.step(x, state, action)
    for part, of_one, after in zip(together, alone, again, strict=True):
        np.testing.assert_array_equal(part[:1], of_one)
        assert np.isnan(after[3]).all()
        np.testing.assert_array_equal(np.delete(after, 3, 0), np.delete(part, 3, 0))


@kernel
def fit(net: Any, target: Any, tape: Any, adam: Any, step: int, x: Any, action: Any, wanted: Any, loss: Any) -> None:
    """One step down the mean squared error of every member; the same code for all kinds of network."""
    out = np.empty((wanted.shape[1], 1), wanted.dtype)
    d_out, nothing = np.empty_like(out), np.empty((out.shape[0], 0), out.dtype)
    for m in range(wanted.shape[0]):
        evaluate(net, m, tape, of_member(x, m), action[m], out)
        loss[m] = 0
        for row in range(out.shape[0]):
            error = out[row, 0] - wanted[m, row, 0]
            loss[m] += error * error / out.shape[0]
            d_out[row, 0] = 2 * error / out.shape[0]
        differentiate(net, m, tape, d_out, True, nothing)
        adam_step(net, m, adam, step, 1.0)
        track(target, net, m, 1.0)


SAMPLES, STEPS, DELAY = 64, 4, 2


def learn(network: Population, tape: Any, delay: int, updates: int) -> NDArray[np.float64]:
    """Learn y = x_(t − delay) + a; return the last loss `[M]`. Without knowledge of x it is 1/3."""
    rng = np.random.Generator(np.random.PCG64(0))
    members, kind = len(network.parameters), network.parameters.dtype
    same: Any = type(network)  # with a shape of its own kind
    target, adam = same(network.shape, members, kind), make_adam(network, 3e-3)
    loss, length = np.zeros(members), np.full((members, SAMPLES), STEPS)
    for update in range(updates):
        x = rng.uniform(-1, 1, (members, SAMPLES, STEPS, 1))
        action = rng.uniform(-1, 1, (members, SAMPLES, 1))
        wanted = x[:, :, STEPS - 1 - delay] + action
        inputs = (
            x[:, :, -1].copy() if isinstance(network, PopulationMLP) else Histories(x, length, x[:, :, 0, :0].copy())
        )
        fit(network.network, target.network, tape, adam, update + 1, inputs, action, wanted, loss)
    np.testing.assert_array_equal(target.parameters, network.parameters)
    return loss


def test_one_learner_serves_networks_with_and_without_memory() -> None:
    plain = make(Shape((1, 32, 32, 1), actions=1, inject=1))
    assert (learn(plain, plain.tape(SAMPLES), 0, 400) < 0.01).all()
    plain = make(Shape((1, 32, 32, 1), actions=1, inject=1))
    assert (learn(plain, plain.tape(SAMPLES), DELAY, 400) > 0.15).all()
    memory = make(recurrent(1, (32,), 1, actions=1))
    assert (learn(memory, memory.tape(SAMPLES, STEPS), DELAY, 400) < 0.02).all()


@kernel
def value_of(net: Any, tape: Any, x: Any, samples: Any, out: Any) -> None:
    for m in range(out.shape[0]):
        nothing = np.empty((samples.size, 0), out.dtype)
        evaluate(net, m, tape, of_samples(of_member(x, m), samples), nothing, out[m])


def test_some_of_the_samples_are_evaluated_as_among_all() -> None:
    x, memory, length = normal(M, 5, 3, 2), normal(M, 5, 128), np.array([[1, 2, 3, 1, 3]] * M)
    chosen = np.array([4, 1])
    plain, recurring = make(Shape((2, 8, 1))), make(recurrent(2, (8,), 1))
    for network, tape, inputs in (
        (plain, plain.tape(5), x[:, :, 0].copy()),
        (recurring, recurring.tape(5, 3), Histories(x, length, memory)),
    ):
        everything, some = np.empty((M, 5, 1)), np.empty((M, 2, 1))
        value_of(network.network, tape, inputs, np.arange(5), everything)
        value_of(network.network, tape, inputs, chosen, some)
        np.testing.assert_array_equal(some, everything[:, chosen])
