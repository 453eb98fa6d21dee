"""Replayed segments for learners of such, invented; and what torch makes of their networks."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from replaybench.controllers.interface.agent import NormaliseConfig, Task
from replaybench.controllers.networks.network import Population

S, A, B, K = 3, 2, 4, 5
TASK = Task(observation_size=S, action_size=A, discount=0.9, reward_scale=0.5)
LENGTHS = np.array([5, 3, 5, 1])
Draw = Callable[[np.random.Generator, tuple[int, ...]], dict[str, np.ndarray]]


def segments(draw: Draw, members: int, seed: int, dtype: type[np.floating] = np.float32, steps: int = K) -> Any:
    """Return segments of `LENGTHS` steps, the last two of which end in a terminal state; zeros after them.

    `draw` invents the columns `[M, B, K, width]`; `terminated` need not be among them.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    own = (np.arange(K) < LENGTHS[:, None])[None, :, :, None]

    def column(values: np.ndarray) -> np.ndarray:
        padded = np.zeros((members, B, steps, values.shape[-1]), dtype)
        padded[:, :, :K] = np.where(own, values, 0)
        return padded

    terminated = np.zeros((members, B, K, 1))
    terminated[:, 2, 4] = terminated[:, 3, 0] = 1
    columns = {name: column(values) for name, values in draw(rng, (members, B, K)).items()}
    weights = rng.uniform(0.5, 1.5, (2, members, B)).astype(dtype)
    return SimpleNamespace(
        columns={**columns, "terminated": column(terminated)}, length=np.tile(LENGTHS.astype(np.uint16), (members, 1)),
        weight=weights[0], actor_weight=weights[1], rate_factor=np.ones(members, dtype),
    )  # fmt: skip


def learn(agent: Any, draw: Draw) -> Any:
    """Let a population of 8 learn."""
    for update in range(5):
        agent.update(segments(draw, 8, update, steps=agent.segment))
    return agent


def check_padding(make: Callable[[], Any], draw: Draw) -> None:
    """Check that the content of padding has no influence on an update."""
    clean, dirty = segments(draw, 1, 0), segments(draw, 1, 0)
    for column in dirty.columns.values():
        column[:, np.arange(K) >= LENGTHS[:, None]] = 3.0
    one, other = make(), make()
    np.testing.assert_array_equal(one.update(clean)["td_error"], other.update(dirty)["td_error"])
    for name, network in one.networks.items():
        np.testing.assert_array_equal(network.parameters, other.networks[name].parameters)


def check_normalised(make: Callable[[NormaliseConfig], Any], draw: Draw) -> None:
    """Compare a learner that normalises with one that is given normalised numbers, of two members and in float64.

    Statistics of observations are on purpose far from 0 and 1; padding, which is normalised too, has no influence.
    """
    agent = make(NormaliseConfig(observations=True, clip=2.0, rewards=True))
    plain = make(NormaliseConfig())
    rng, everyone = np.random.Generator(np.random.PCG64(2)), np.ones(2, np.bool_)
    for _ in range(20):
        agent.explore(1.0 + 3.0 * rng.normal(size=(2, S)), everyone)
        agent.on_step(5.0 * rng.normal(size=2), np.zeros((2, S), np.float32), ~everyone, ~everyone, everyone)
    drawn, given = (segments(draw, 2, 0, np.float64) for _ in range(2))
    for name in ("observation", "next_observation"):
        given.columns[name] = agent.normaliser.observations(drawn.columns[name])
    factor = agent.normaliser.rewards.factor / TASK.reward_scale
    given.columns["reward"] = drawn.columns["reward"] * factor[:, None, None, None]
    np.testing.assert_allclose(agent.update(drawn)["td_error"], plain.update(given)["td_error"], rtol=1e-10)
    for name, network in agent.networks.items():
        np.testing.assert_allclose(network.gradient, plain.networks[name].gradient, rtol=1e-8, atol=1e-12)
        assert np.abs(network.gradient).max() > 0
    x = 4.0 * rng.normal(size=(2, 50, S))
    seen = agent.normaliser.observations(x)
    np.testing.assert_allclose(agent.policy(x), plain.policy(seen))
    np.testing.assert_allclose(agent.value(x), plain.value(seen) / factor[:, None])
    metrics = agent.metrics({name: np.repeat(array, K, axis=1) for name, array in drawn.columns.items()})
    theirs = plain.metrics({name: np.repeat(array, K, axis=1) for name, array in given.columns.items()})
    for name, values in metrics.items():
        np.testing.assert_allclose(values, theirs[name], rtol=1e-6, err_msg=name)


class Peer:
    """A network of member 0 in torch, evaluated row by row, with the gradients that autograd finds."""

    def __init__(self, network: Population, tanh: bool = False) -> None:
        parts = [torch.tensor(part[0].copy(), requires_grad=True) for part in network.named_weights("").values()]
        self.layers = list(zip(parts[::2], parts[1::2], strict=True))
        self.tanh = tanh

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        x = torch.cat(inputs, -1)
        for depth, (weight, bias) in enumerate(self.layers):
            x = x @ weight + bias
            x = torch.relu(x) if depth < len(self.layers) - 1 else x
        return torch.tanh(x) if self.tanh else x

    def gradient(self) -> np.ndarray:
        """Return the gradients of all weights, in a row as ours; zero where there is none."""
        parts = [part for layer in self.layers for part in layer]
        return np.concatenate(
            [(torch.zeros_like(part) if part.grad is None else part.grad).numpy().ravel() for part in parts]
        )
