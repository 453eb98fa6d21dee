"""The TD3+BC update against Stable-Baselines3's TD3 with the actor's loss of the paper, and what its weight does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from peers import TASK, A, B, Box, assert_equal_parameters, batch, in_double, train
from stable_baselines3 import TD3 as PeerTD3

from replaybench.controllers.algorithms.td3_bc import TD3BC, TD3BCConfig
from replaybench.controllers.normaliser import NormaliseConfig
from replaybench.controllers.setting import LearnerSetting
from replaybench.data.errors import UserError
from replaybench.data.streams import Stream


def with_cloning(peer: PeerTD3, alpha: float) -> None:
    """Let what the peer's actor climbs be λ Q₁(s, π(s)) − mean_a (π(s) − a)², written with PyTorch alone."""
    plain = peer.critic.q1_forward

    def climbed(observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        q = plain(observation, action)
        recorded = peer.replay_buffer.sample().actions  # type: ignore[union-attr, call-arg]
        return alpha / q.abs().mean().detach() * q - ((action - recorded) ** 2).mean(dim=1, keepdim=True)

    vars(peer.critic)["q1_forward"] = climbed


@pytest.mark.parametrize("alpha", [2.5, 0.1])
def test_update_equals_stable_baselines3_with_the_papers_loss(alpha: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float64 with the same smoothing noise: 1e-9 after 1 update and 1e-6 after 100."""
    config = TD3BCConfig(batch_size=B, alpha=alpha, normalise=NormaliseConfig())
    ours = TD3BC(config, LearnerSetting(TASK, 0, range(1), dtype=np.float64))
    peer = PeerTD3(
        "MlpPolicy", Box(), gamma=0.95, learning_rate=config.actor_rate, device="cpu",
        policy_kwargs={"net_arch": [64, 64], "optimizer_kwargs": {"eps": config.epsilon}},
    )  # fmt: skip
    pairs = [
        (nets[name], module)
        for nets, actor, critic in (
            (ours.networks, peer.actor, peer.critic), (ours.targets, peer.actor_target, peer.critic_target),
        )
        for name, module in (("actor", actor.mu), ("critic1", critic.q_networks[0]), ("critic2", critic.q_networks[1]))
    ]  # fmt: skip
    in_double(peer, pairs, monkeypatch)
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


def test_without_a_critic_the_recorded_actions_are_copied() -> None:
    agent, drawn = TD3BC(TD3BCConfig(batch_size=B, alpha=0.0), LearnerSetting(TASK, 0, range(2))), batch(2, 0)

    def distance() -> np.ndarray:
        away: np.ndarray = np.square(agent.policy(drawn.observation) - drawn.action).mean(axis=(1, 2))
        return away

    before = distance()
    for _ in range(600):
        agent.update(drawn)
    assert (distance() < 0.3 * before).all()


def test_actor_weights_are_the_actors() -> None:
    agent, drawn = TD3BC(TD3BCConfig(batch_size=B, policy_delay=1), LearnerSetting(TASK, 0, range(1))), batch(1, 0)
    before = {name: network.parameters.copy() for name, network in agent.networks.items()}
    drawn.actor_weight[:] = 0.0
    agent.update(drawn)
    for name, network in agent.networks.items():
        assert np.array_equal(network.parameters, before[name]) == (name == "actor"), name


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"alpha": -1.0}, r"TD3\+BC: alpha must be finite and at least 0"), ({"tau": 2.0}, r"TD3\+BC: tau must be in")],
)
def test_wrong_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        TD3BCConfig(**settings)
