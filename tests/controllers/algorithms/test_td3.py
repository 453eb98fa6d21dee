"""The updates of TD3 and TD3+BC against Stable-Baselines3, and their parts against the papers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from peers import TASK, A, B, Box, assert_equal_parameters, batch, in_double, train
from stable_baselines3 import TD3 as PeerTD3

from replaybench.controllers.algorithms.td3 import TD3, TD3BC, TD3BCConfig, TD3Config, smooth
from replaybench.controllers.interface.agent import LearnerSetting, NormaliseConfig
from replaybench.runtime.streams import Stream


def with_cloning(peer: PeerTD3, alpha: float) -> None:
    """Replace the peer's actor loss by that of TD3+BC: λ Q₁(s, π(s)) − mean_a (π(s) − a)²."""
    plain = peer.critic.q1_forward

    def climbed(observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        q = plain(observation, action)
        recorded = peer.replay_buffer.sample().actions  # type: ignore[union-attr, call-arg]
        return alpha / q.abs().mean().detach() * q - ((action - recorded) ** 2).mean(dim=1, keepdim=True)

    vars(peer.critic)["q1_forward"] = climbed


@pytest.mark.parametrize("alpha", [None, 2.5, 0.1])
def test_update_equals_stable_baselines3(alpha: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float64 with the same smoothing noise: 1e-9 after 1 update and 1e-6 after 100."""
    setting = LearnerSetting(TASK, 0, range(1), dtype=np.float64)
    ours = TD3(TD3Config(batch_size=B), setting)
    if alpha is not None:
        ours = TD3BC(TD3BCConfig(batch_size=B, alpha=alpha, normalise=NormaliseConfig()), setting)
    peer = PeerTD3(
        "MlpPolicy", Box(), gamma=0.95, learning_rate=1e-3, device="cpu",
        policy_kwargs={"net_arch": [64, 64], "optimizer_kwargs": {"eps": 1e-8}},
    )  # fmt: skip
    pairs = [
        (nets[name], module)
        for nets, actor, critic in (
            (ours.networks, peer.actor, peer.critic), (ours.targets, peer.actor_target, peer.critic_target),
        )
        for name, module in (("actor", actor.mu), ("critic1", critic.q_networks[0]), ("critic2", critic.q_networks[1]))
    ]  # fmt: skip
    in_double(peer, pairs, monkeypatch)
    if alpha is not None:
        with_cloning(peer, alpha)
    stream = Stream(0, range(1), "update")

    def same_noise(tensor: torch.Tensor, mean: float, deviation: float) -> torch.Tensor:
        return tensor.copy_(mean + deviation * torch.tensor(stream.normal(B * A).reshape(B, A)))

    monkeypatch.setattr(torch.Tensor, "normal_", same_noise)
    for update in range(1, 101):
        drawn = batch(1, update, np.float64)
        train(peer, drawn)
        ours.update(drawn)
        if update in (1, 100):
            assert_equal_parameters(pairs, update)


def test_target_actions_are_smoothed_as_in_equation_14() -> None:
    calm, wild = np.zeros((5000, 1)), np.full((5000, 1), 0.9)
    stream = Stream(0, range(1), "update")
    smooth(calm, stream.state[0], 0.2, 0.5)
    smooth(wild, stream.state[0], 0.2, 0.5)
    assert np.abs(calm).max() == 0.5
    assert abs(calm.std() - 0.1990) < 4 * 0.2 / np.sqrt(2 * 5000)  # σ of N(0, 0.2²) clipped to ±2.5 σ
    assert wild.max() == 1.0
    assert wild.min() == pytest.approx(0.4)


def test_td_error_is_the_mean_of_both_critics() -> None:
    agent, drawn = TD3(TD3Config(batch_size=B, smoothing=0.0), LearnerSetting(TASK, 0, range(2))), batch(2, 0)
    nets, targets = agent.networks, agent.targets
    after = targets["actor"](drawn.next_observation)
    future = np.minimum(*(targets[name](drawn.next_observation, after) for name in ("critic1", "critic2")))
    y = 0.01 * drawn.reward + 0.95 * (1.0 - drawn.terminated) * future
    both = [np.abs(y - nets[name](drawn.observation, drawn.action))[:, :, 0] for name in ("critic1", "critic2")]
    np.testing.assert_allclose(agent.update(drawn)["td_error"], (both[0] + both[1]) / 2, rtol=2e-4, atol=2e-6)


def test_actor_and_targets_move_every_other_update() -> None:
    agent = TD3(TD3Config(batch_size=B), LearnerSetting(TASK, 0, range(1)))
    slow = {**agent.targets, "actor itself": agent.networks["actor"]}
    for update in range(4):
        before = {name: network.parameters.copy() for name, network in slow.items()}
        agent.update(batch(1, update))
        for name, network in slow.items():
            assert np.array_equal(network.parameters, before[name]) == (update % 2 == 0), name


@pytest.mark.parametrize(("kind", "config"), [(TD3, TD3Config), (TD3BC, TD3BCConfig)])
def test_importance_weights_are_the_critics_and_actor_weights_the_actors(kind: Any, config: Any) -> None:
    for zeroed, still in (("weight", ("critic1", "critic2")), ("actor_weight", ("actor",))):
        agent, drawn = kind(config(batch_size=B, policy_delay=1), LearnerSetting(TASK, 0, range(1))), batch(1, 0)
        before = {name: network.parameters.copy() for name, network in agent.networks.items()}
        getattr(drawn, zeroed)[:] = 0.0
        agent.update(drawn)
        for name, network in agent.networks.items():
            assert np.array_equal(network.parameters, before[name]) == (name in still), (zeroed, name)


def test_without_a_critic_the_recorded_actions_are_copied() -> None:
    agent, drawn = TD3BC(TD3BCConfig(batch_size=B, alpha=0.0), LearnerSetting(TASK, 0, range(2))), batch(2, 0)

    def distance() -> np.ndarray:
        away: np.ndarray = np.square(agent.policy(drawn.observation) - drawn.action).mean(axis=(1, 2))
        return away

    before = distance()
    for _ in range(600):
        agent.update(drawn)
    assert (distance() < 0.3 * before).all()
