"""The NAF update against torch, and the rules of a population."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from peers import TASK, A, B, S, batch

from replaybench.controllers.algorithms.naf import NAF, NAFConfig
from replaybench.controllers.interface.agent import LearnerSetting


def torch_outputs(parameters: list[torch.Tensor], x: np.ndarray) -> torch.Tensor:
    h = torch.tensor(x)
    for layer in range(0, len(parameters), 2):
        h = h @ parameters[layer][0] + parameters[layer + 1][0]
        h = torch.relu(h) if layer < len(parameters) - 2 else h
    return h


@pytest.mark.parametrize(("half", "bounded", "diagonal"), [(True, True, "exp"), (False, False, "softplus")])
def test_update_equals_torch(half: bool, bounded: bool, diagonal: Any) -> None:
    """Five updates in float64: temporal differences by the formula, weights by autograd, Adam and the slow copy."""
    config = NAFConfig(hidden=(7, 5), half=half, bounded=bounded, diagonal=diagonal, tau=0.2, batch_size=B)
    agent = NAF(config, LearnerSetting(TASK, 0, range(1), dtype=np.float64))
    parameters = [torch.tensor(x, requires_grad=True) for x in agent.weights().values()]
    slow = [p.detach().clone() for p in parameters]
    adam = torch.optim.Adam(parameters, lr=config.learning_rate)
    for update in range(5):
        drawn = batch(1, update, np.float64)
        drawn.weight[:] = np.random.Generator(np.random.PCG64(update)).uniform(0.5, 1, (1, B))
        outputs = torch_outputs(parameters, drawn.observation[0])
        mean = torch.tanh(outputs[:, 1:3]) if bounded else outputs[:, 1:3]
        positive = torch.exp if diagonal == "exp" else torch.nn.functional.softplus
        lower = torch.zeros(B, A, A, dtype=torch.float64)
        lower[:, 0, 0], lower[:, 1, 0], lower[:, 1, 1] = positive(outputs[:, 3]), outputs[:, 4], positive(outputs[:, 5])
        e = (torch.tensor(drawn.action[0]) - mean)[:, :, None]
        advantage = -(lower.transpose(1, 2) @ e).square().sum((1, 2)) * (0.5 if half else 1.0)
        future = torch_outputs(slow, drawn.next_observation[0])[:, 0] * (1 - torch.tensor(drawn.terminated[0, :, 0]))
        delta = 0.01 * torch.tensor(drawn.reward[0, :, 0]) + 0.95 * future.detach() - outputs[:, 0] - advantage
        loss = (torch.tensor(drawn.weight[0]) * delta.square() / 2).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        slow = [0.8 * s + 0.2 * p.detach() for s, p in zip(slow, parameters, strict=True)]
        np.testing.assert_allclose(agent.update(drawn)["td_error"][0], delta.detach().numpy(), rtol=1e-9, atol=1e-12)
    for found, expected in zip(agent.weights().values(), parameters, strict=True):
        np.testing.assert_allclose(np.asarray(found, np.float64), expected.detach().numpy(), rtol=1e-8, atol=1e-11)
    flat = np.concatenate([s.numpy().ravel() for s in slow])
    np.testing.assert_allclose(agent.targets["network"].parameters[0], flat, rtol=1e-8, atol=1e-11)


def test_an_unbounded_policy_is_clipped_to_what_the_plant_takes() -> None:
    agent = NAF(NAFConfig(bounded=False), LearnerSetting(TASK, 0, range(2)))
    agent.network.parameters *= 100
    observation = np.ones((2, 4, S), np.float32)
    assert np.abs(agent.mean(observation)).max() > 1
    np.testing.assert_array_equal(agent.policy(observation), np.clip(agent.mean(observation), -1, 1))
