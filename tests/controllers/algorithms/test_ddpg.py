"""DDPG and TD3 against PyTorch."""

from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3 import DDPG as PeerDDPG
from stable_baselines3 import TD3 as PeerTD3

from replaybench.controllers.algorithms.ddpg import DDPG, DDPGConfig
from replaybench.controllers.algorithms.td3 import TD3, TD3BC, TD3BCConfig, TD3Config
from replaybench.controllers.interface.agent import LearnerSetting, NormaliseConfig
from replaybench.controllers.networks.mlp import PopulationMLP
from replaybench.runtime.streams import Stream
from tests.helpers.peers import TASK, A, B, Box, batch, check_updates, in_double, train


@pytest.mark.slow
def test_update_equals_stable_baselines3(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float64, action next to the observation: parameters agree to 1e-9 after 1 update, 1e-6 after 100."""
    config = DDPGConfig(action_layer=0, actor_rate=1e-3, critic_rate=1e-3, tau=0.005)
    ours = DDPG(config, LearnerSetting(TASK, 0, range(1), dtype=np.float64))
    policy = {
        "net_arch": {"pi": list(config.actor_hidden), "qf": list(config.critic_hidden)},
        "optimizer_kwargs": {"eps": config.epsilon},
    }
    peer = PeerDDPG("MlpPolicy", Box(), policy_kwargs=policy, gamma=0.95, tau=0.005, learning_rate=1e-3, device="cpu")
    pairs = [
        (ours.actor, peer.actor.mu), (ours.networks.targets["actor"], peer.actor_target.mu),
        (ours.critic, peer.critic.q_networks[0]), (ours.networks.targets["critic"], peer.critic_target.q_networks[0]),
    ]  # fmt: skip
    in_double(peer, pairs, monkeypatch)
    check_updates(pairs, lambda _, drawn: train(ours, peer, drawn))


def test_gradients_are_clipped_per_member() -> None:
    clipped, drawn = DDPG(DDPGConfig(clip=1e-3), LearnerSetting(TASK, 0, range(2))), batch(2, 0)
    drawn.reward[0] *= 1e4
    drawn.reward[1] *= 1e-8
    clipped.update(drawn)
    norms = np.linalg.norm(clipped.critic.gradient.astype(np.float64), axis=1)
    first = np.linalg.norm(clipped.networks.adams["critic"].first.astype(np.float64), axis=1) / 0.1
    np.testing.assert_allclose(first, np.minimum(norms, 1e-3), rtol=1e-4)
    assert norms[0] > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("form", ["coupled", "decoupled"])
def test_l2_forms_shrink_weights_as_torch_does(form: Any) -> None:
    agent = DDPG(DDPGConfig(l2=0.1, l2_form=form), LearnerSetting(TASK, 0, range(1), dtype=np.float64))
    before = torch.tensor(agent.critic.parameters.copy(), requires_grad=True)
    kind = torch.optim.Adam if form == "coupled" else torch.optim.AdamW
    peer = kind([before], lr=1e-3, weight_decay=0.1)
    agent.update(batch(1, 0, np.float64))
    # The critic's last gradient buffer is its own: the actor's pass does not ask for weights.
    before.grad = torch.tensor(agent.critic.gradient)
    peer.step()
    np.testing.assert_allclose(agent.critic.parameters, before.detach().numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_l2_of_the_weights_is_part_of_the_loss_and_spares_biases_and_gains() -> None:
    """As `tc.layers.l2_regularizer` on the kernels of the authors' critic: half of l2 times their squares."""
    plain, decaying = (
        DDPG(DDPGConfig(l2=l2, l2_form="weights", layer_norm=True), LearnerSetting(TASK, 0, range(2), dtype=np.float64))
        for l2 in (0.0, 0.1)
    )
    assert isinstance(decaying.critic, PopulationMLP)
    expected = PopulationMLP(decaying.critic.shape, 2, np.float64)
    expected.parameters[:] = 0.1 * decaying.critic.parameters
    for name, array in expected.named_weights("").items():
        array *= name.endswith("weight")
    for agent in (plain, decaying):
        agent.update(batch(2, 0, np.float64))
    # The first moment of one gradient is a tenth of it.
    found = (decaying.networks.adams["critic"].first - plain.networks.adams["critic"].first) / 0.1
    np.testing.assert_allclose(found, expected.parameters, atol=1e-12)


def with_cloning(peer: PeerTD3, alpha: float) -> None:
    """Replace the peer's actor loss by that of TD3+BC: λ Q₁(s, π(s)) − mean_a (π(s) − a)²."""
    plain = peer.critic.q1_forward

    def climbed(observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        q = plain(observation, action)
        recorded = peer.replay_buffer.sample().actions  # type: ignore[union-attr, call-arg]
        return alpha / q.abs().mean().detach() * q - ((action - recorded) ** 2).mean(dim=1, keepdim=True)

    vars(peer.critic)["q1_forward"] = climbed


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [None, 2.5, 0.1])
def test_update_of_td3_equals_stable_baselines3(alpha: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
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
            (ours.networks, peer.actor, peer.critic), (ours.networks.targets, peer.actor_target, peer.critic_target),
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
    check_updates(pairs, lambda _, drawn: train(ours, peer, drawn))


def test_td_error_is_the_mean_of_both_critics() -> None:
    agent, drawn = TD3(TD3Config(batch_size=B, smoothing=0.0), LearnerSetting(TASK, 0, range(2))), batch(2, 0)
    nets, targets = agent.networks, agent.networks.targets
    after = targets["actor"](drawn.next_observation)
    future = np.minimum(*(targets[name](drawn.next_observation, after) for name in ("critic1", "critic2")))
    y = 0.01 * drawn.reward + 0.95 * (1.0 - drawn.terminated) * future
    both = [np.abs(y - nets[name](drawn.observation, drawn.action))[:, :, 0] for name in ("critic1", "critic2")]
    np.testing.assert_allclose(agent.update(drawn)["td_error"], (both[0] + both[1]) / 2, rtol=2e-4, atol=2e-6)
