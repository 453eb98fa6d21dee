"""Soft actor-critic: the present version against Stable-Baselines3, the first against automatic differentiation."""

from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3 import SAC as PeerSAC

from replaybench.controllers.algorithms.sac import SAC, SACConfig
from replaybench.controllers.interface.agent import LearnerSetting
from replaybench.controllers.networks.network import Population
from replaybench.runtime.errors import UserError
from replaybench.runtime.streams import Stream
from tests.helpers.peers import TASK, A, B, Box, S, check_updates, in_double, off_policy_batch, train
from tests.helpers.torch_nets import TorchNet, squashed_sample

CRITICS = ("critic1", "critic2")
FIRST = SACConfig(version="first", temperature=0.2, batch_size=B)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [None, 0.2])
def test_present_version_equals_stable_baselines3(monkeypatch: pytest.MonkeyPatch, temperature: float | None) -> None:
    """In float64 with the same samples, learned and fixed temperature: 1e-9 after 1 update and 1e-6 after 100."""
    config = SACConfig(batch_size=B, temperature=temperature, first_temperature=0.5)
    ours = SAC(config, LearnerSetting(TASK, 0, range(1), dtype=np.float64))
    peer = PeerSAC(
        "MlpPolicy", Box(), gamma=0.95, learning_rate=1e-3, ent_coef=temperature or "auto_0.5", device="cpu",
        policy_kwargs={"net_arch": [64, 64], "optimizer_kwargs": {"eps": config.epsilon}},
    )  # fmt: skip
    output = joined(peer.actor)
    actor = torch.nn.ModuleList([peer.actor.latent_pi, output])
    pairs: list[tuple[Population, torch.nn.Module]] = [(ours.networks["actor"], actor)]
    for i, name in enumerate(CRITICS):
        pairs += [(ours.networks[name], peer.critic.q_networks[i])]
        pairs += [(ours.networks.targets[name], peer.critic_target.q_networks[i])]
    in_double(peer, pairs, monkeypatch)
    split(peer.actor, output)
    start = torch.tensor([0.5], dtype=torch.float64)
    if temperature is None:
        assert peer.log_ent_coef is not None
        peer.log_ent_coef.data = torch.log(start)
    else:
        peer.ent_coef_tensor = torch.full_like(start[0], temperature)
    stream = Stream(0, range(1), "update")
    queue: list[torch.Tensor] = []

    def same_noise(*_: object, **__: object) -> torch.Tensor:
        if not queue:  # the peer draws for the states first
            queue.extend(torch.tensor(stream.normal(B * A).reshape(B, A)) for _ in range(2))
        return queue.pop()

    monkeypatch.setattr("torch.distributions.normal._standard_normal", same_noise)

    def update(_: int, drawn: Any) -> None:
        train(ours, peer, drawn)
        output.weight.data, output.bias.data = (getattr(joined(peer.actor), p).data for p in ("weight", "bias"))

    check_updates(pairs, update)
    if temperature is None:
        assert peer.log_ent_coef is not None
        known = np.exp(peer.log_ent_coef.item())
        assert ours.metrics({})["temperature"][0] == pytest.approx(known, rel=1e-9)
        assert known < 0.5


def joined(actor: Any) -> torch.nn.Linear:
    """Return the peer's two output layers as one, means first."""
    layer = torch.nn.Linear(64, 2 * actor.mu.out_features)
    layer.weight.data = torch.cat([actor.mu.weight.data, actor.log_std.weight.data])
    layer.bias.data = torch.cat([actor.mu.bias.data, actor.log_std.bias.data])
    return layer


def split(actor: Any, layer: torch.nn.Linear) -> None:
    """Give both output layers of the peer the weights of a joined one."""
    for i, half in enumerate((actor.mu, actor.log_std)):
        rows = slice(i * half.out_features, (i + 1) * half.out_features)
        half.weight.data, half.bias.data = layer.weight.data[rows].clone(), layer.bias.data[rows].clone()


def first_version(nets: dict[str, TorchNet], adams: Any, slow: TorchNet, drawn: Any, noise: torch.Tensor) -> None:
    """One update by the losses of Haarnoja et al. (2018a), all gradients before all steps."""
    s, a, r, after, done, w, w_actor = (
        torch.tensor(getattr(drawn, name)[0])
        for name in ("observation", "action", "reward", "next_observation", "terminated", "weight", "actor_weight")
    )
    pi, log_prob = squashed_sample(nets["actor"](s), noise)
    log_prob = log_prob[:, None]
    q = torch.minimum(*(nets[name](s, pi) for name in CRITICS))
    soft = (q - 0.2 * log_prob).detach()
    y = (0.01 * r + 0.95 * (1 - done) * slow(after)).detach()
    w, w_actor = w[:, None], w_actor[:, None]
    losses = {"actor": w_actor * (0.2 * log_prob - q), "value": w_actor * 0.5 * (nets["value"](s) - soft) ** 2}
    losses |= {name: w * 0.5 * (nets[name](s, a) - y) ** 2 for name in CRITICS}
    grads = [torch.autograd.grad(loss.mean(), nets[name].leaves, retain_graph=True) for name, loss in losses.items()]
    for name, found in zip(losses, grads, strict=True):
        for leaf, gradient in zip(nets[name].leaves, found, strict=True):
            leaf.grad = gradient
        adams[name].step()
    for target, source in zip(slow.leaves, nets["value"].leaves, strict=True):
        target.data = 0.995 * target.data + 0.005 * source.data


@pytest.mark.slow
def test_first_version_equals_automatic_differentiation() -> None:
    ours = SAC(FIRST, LearnerSetting(TASK, 0, range(1), dtype=np.float64))
    theirs = {name: TorchNet(network) for name, network in ours.networks.items()}
    adams = {name: torch.optim.Adam(net.leaves, lr=1e-3, eps=1e-8) for name, net in theirs.items()}
    slow, stream = TorchNet(ours.networks.targets["value"]), Stream(0, range(1), "update")
    for update in range(10):
        drawn = off_policy_batch(1, update, np.float64)
        first_version(theirs, adams, slow, drawn, torch.tensor(stream.normal(B * A).reshape(B, A)))
        ours.update(drawn)
        for network, net in [
            *((ours.networks[name], theirs[name]) for name in theirs),
            (ours.networks.targets["value"], slow),
        ]:
            np.testing.assert_allclose(network.parameters[0], net.parameters(), rtol=0, atol=1e-9)


def test_explored_actions_are_samples_of_the_policy() -> None:
    agent = SAC(SACConfig(), LearnerSetting(TASK, 0, range(4000)))
    agent.networks["actor"].parameters[:] = agent.networks["actor"].parameters[0]
    observation = np.zeros((4000, S), np.float32)
    mean, log_std = np.split(agent.networks["actor"](observation[:, None])[:, 0], 2, axis=1)
    explored = agent.explore(observation, np.ones(4000, np.bool_))
    epsilon = (np.arctanh(explored.action.astype(np.float64)) - mean) / np.exp(log_std)
    assert np.abs(epsilon.mean(axis=0)).max() < 4 / np.sqrt(4000)
    assert np.abs(epsilon.std(axis=0) - 1).max() < 4 / np.sqrt(2 * 4000)
    np.testing.assert_array_equal(explored.deviation, np.abs(explored.action - np.tanh(mean)).sum(axis=1))
    again = agent.sample(observation[:, None])
    assert again.shape == (4000, 1, A)
    assert np.abs(((np.arctanh(again[:, 0].astype(np.float64)) - mean) / np.exp(log_std)).std(axis=0) - 1).max() < 0.05
    assert not np.array_equal(again[:, 0], explored.action)


def test_the_first_version_asks_for_its_temperature() -> None:
    with pytest.raises(UserError, match=r"fixed temperature; set it, e\.g\. temperature = 0\.2"):
        SACConfig(version="first")
