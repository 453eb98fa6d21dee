"""A policy's network, normalisation, units and cost, for programs outside this package."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.learner import Learner
from replaybench.controllers.networks.greedy_form import PolicyForm
from replaybench.controllers.networks.mlp import Shape
from replaybench.controllers.networks.recurrent import PopulationRecurrent


class Statistics(NamedTuple):
    """How observations are normalised: (s − mean) · scale, float64 `[S]` each, within ± bound."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    bound: float


class Units(NamedTuple):
    """A plant's signals in physical units.

    Attributes:
        state_names, state_units: of the observed states `[S]`.
        center, scale, limit: float64 `[S]`: an observation is (state − center) / scale within ± limit; None for no
            limit.
        periodic: `[S]`, which of them are angles in [−π, π).
        action_names, action_units: of the actions `[A]`.
        middle, half: float64 `[A]`: an action means middle + half · action.
        choices: `[A]`, number of evenly spaced values of each action; empty where they are continuous.
    """

    state_names: tuple[str, ...]
    state_units: tuple[str, ...]
    center: NDArray[np.float64]
    scale: NDArray[np.float64]
    limit: NDArray[np.float64] | None
    periodic: tuple[bool, ...]
    action_names: tuple[str, ...]
    action_units: tuple[str, ...]
    middle: NDArray[np.float64]
    half: NDArray[np.float64]
    choices: tuple[int, ...]


class Cost(NamedTuple):
    """Cost of one action: stored numbers, multiply-adds, function evaluations, and numbers on the stack, all float32.

    Functions are tanh, other activations with a division, and roots.
    """

    parameters: int
    multiply_adds: int
    functions: int
    scratch: int


def statistics_of(agent: Learner) -> Statistics | None:
    """Return the normalisation of observations of a population of one; None if there is none."""
    normaliser = agent.normaliser.observations
    if not normaliser.on:
        return None
    return Statistics(normaliser.mean[0], normaliser.scale[0], float(normaliser.bound[0]))


def head_of(form: PolicyForm) -> Shape:
    """Return the shape of a policy's fully connected layers, those behind an LSTM where there is one."""
    return form.network.shape.head if isinstance(form.network, PopulationRecurrent) else form.network.shape


def weights_of(form: PolicyForm) -> dict[str, NDArray[Any]]:
    """Return a policy's weights by name, without the member axis: `trunk.0.weight`, `head.0.bias`, …"""
    if isinstance(form.network, PopulationRecurrent):
        named = form.network.named_weights("net")
        return {name.removeprefix("net."): array[0] for name, array in named.items()}
    named = form.network.named_weights("head")
    return {name: array[0] for name, array in named.items()}


def memory_of(form: PolicyForm) -> int:
    """Return the size of a policy's state."""
    return form.network.shape.state_size if isinstance(form.network, PopulationRecurrent) else 0


def cost_of(form: PolicyForm) -> Cost:
    """Count the cost of an action; comparisons, copies and the scaling of signals are not counted."""
    shape = head_of(form)
    hidden = [outputs for _, outputs in shape.layers[:-1]]
    costly = shape.activation != "relu"
    functions = sum(hidden) * costly + (shape.tanh * shape.sizes[-1]) + (form.squash == "tanh") * form.width
    products = sum(inputs * outputs for inputs, outputs in shape.layers)
    if shape.layer_norm:
        functions, products = functions + len(hidden), products + 3 * sum(hidden)
    scratch = 2 * max(max(pair) for pair in shape.layers)
    if isinstance(form.network, PopulationRecurrent):
        trunk = form.network.shape.trunk
        products += sum((inputs + trunk.units) * 4 * trunk.units + 3 * trunk.units for inputs in trunk.layer_inputs)
        functions += 5 * trunk.units * trunk.layers
        scratch += max(trunk.layer_inputs) + 5 * trunk.units
    return Cost(sum(array.size for array in weights_of(form).values()), products, functions, scratch)
