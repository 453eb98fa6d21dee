"""Recurrent networks of a population; gradients are compared with autograd in the tests of recurrent learners."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.networks.lstm import LSTMShape
from replaybench.controllers.networks.mlp import Shape
from replaybench.controllers.networks.recurrent import Histories, PopulationRecurrent, RecurrentShape, recurrent_forward
from replaybench.runtime.streams import Stream

M = 2


def make(shape: RecurrentShape, members: int = M) -> PopulationRecurrent:
    network = PopulationRecurrent(shape, members, np.float64)
    network.initialise(Stream(1, range(members), "initialisation"))
    return network


def recurrent(
    inputs: int, hidden: tuple[int, ...], outputs: int, actions: int = 0, units: int = 32, tanh: bool = False
) -> RecurrentShape:
    head = Shape((0, *hidden, outputs), actions=units + actions, inject=0, tanh=tanh)
    return RecurrentShape(LSTMShape(inputs, units=units), head)


def normal(*size: int) -> NDArray[np.float64]:
    return np.random.Generator(np.random.PCG64(sum(size))).normal(size=size)


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
