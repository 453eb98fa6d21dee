"""Stable-Baselines3 as a peer: in float64, with our weights, batches and noise."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from replaybench.controllers.interface.agent import Task
from replaybench.controllers.losses.refer import Q_RET, TRUNCATED
from replaybench.controllers.networks.network import Population
from replaybench.data.batch import SQUARED

S, A, B = 3, 2, 16
TASK = Task(observation_size=S, action_size=A, discount=0.95, reward_scale=0.01)
Pairs = Sequence[tuple[Population, torch.nn.Module]]


def batch(members: int, seed: int, dtype: type = np.float32, size: int = B) -> Any:
    """Invent a batch; the weights of its samples are 1."""
    rng = np.random.Generator(np.random.PCG64(seed))

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=(members, size, *shape)).astype(dtype)

    return SimpleNamespace(
        observation=normal(S), action=np.tanh(normal(A)), reward=100 * normal(1), next_observation=normal(S),
        terminated=(rng.random((members, size, 1)) < 0.2).astype(dtype), weight=np.ones((members, size), dtype),
        actor_weight=np.ones((members, size), dtype),
        rate_factor=np.ones(members, dtype), critic_loss=SQUARED, steps=None,
    )  # fmt: skip


def off_policy_batch(members: int, seed: int, dtype: type = np.float32, size: int = B) -> Any:
    """Invent a batch with weights, traces and the densities that drew its actions: σ = 0.3 about stored means."""
    drawn, rng = batch(members, seed, dtype, size), np.random.Generator(np.random.PCG64((seed, 1)))
    mean = rng.normal(0, 0.3, drawn.action.shape)
    columns = {"behaviour_mean": mean, "behaviour_log_sigma": np.full(mean.shape, np.log(0.3))}
    drawn.columns = {name: column.astype(dtype) for name, column in columns.items()}
    drawn.action = (mean + 0.3 * rng.normal(size=mean.shape)).astype(dtype)
    drawn.traces = rng.normal(size=(members, size, 6)).astype(dtype)
    drawn.traces[:, :, TRUNCATED] = rng.random((members, size)) < 0.3
    drawn.weight, drawn.actor_weight = rng.uniform(0.5, 1, (2, members, size)).astype(dtype)
    return drawn


def vracer_loss(
    value: torch.Tensor, mean: torch.Tensor, log_sigma: torch.Tensor, drawn: Any, beta: float = 1.0, mask: bool = False
) -> Any:
    """Return the loss whose gradient an update of V-RACER should follow."""
    pi = torch.distributions.Normal(mean, log_sigma.exp())
    mu_mean, mu_log_sigma = (torch.tensor(column[0]) for column in drawn.columns.values())
    mu = torch.distributions.Normal(mu_mean, mu_log_sigma.exp())
    action, q_ret = torch.tensor(drawn.action[0]), torch.tensor(drawn.traces[0, :, Q_RET])
    log_pi = pi.log_prob(action).sum(1)
    rho = (log_pi - mu.log_prob(action).sum(1)).clamp(-7, 7).exp().detach()
    advantage = (q_ret - value).detach()
    near = ((rho > 1 / 5) & (rho < 5)).double() if mask else torch.ones_like(rho)
    assert not mask or 0 < near.sum() < B, "both kinds of samples are to occur"
    policy = -(near * torch.tensor(drawn.actor_weight[0]) * rho * advantage * log_pi).mean()
    v_tbc = (value + rho.clamp(max=1) * advantage).detach()
    # ½ (V − V_tbc)², whose gradient is −min(1, ρ) A.
    critic = (near * torch.tensor(drawn.weight[0]) * (value - v_tbc) ** 2 / 2).mean()
    pull = torch.distributions.kl_divergence(mu, pi).sum(1).mean()
    return beta * (policy + critic) + (1 - beta) * pull


class Box(gymnasium.Env[Any, Any]):
    """A task that gives Stable-Baselines3 its sizes; it is never stepped."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (S,), np.float64)
    action_space: gymnasium.Space[Any] = gymnasium.spaces.Box(-1, 1, (A,), np.float32)

    def reset(self, **_: object) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(self.observation_space.shape or ()), {}


def linears(*modules: torch.nn.Module) -> list[torch.nn.Linear]:
    return [layer for module in modules for layer in module.modules() if isinstance(layer, torch.nn.Linear)]


def in_double(peer: Any, pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bring the peer to float64 and give it our member 0's weights, transposed."""
    # The peer casts observations to float32 on their way in.
    monkeypatch.setattr("stable_baselines3.common.policies.preprocess_obs", lambda observation, *_, **__: observation)
    peer.policy.double()
    for network, module in pairs:
        named = list(network.named_weights("n").values())
        for layer, target in enumerate(linears(module)):
            weight, bias = named[2 * layer : 2 * layer + 2]
            target.weight.data = torch.tensor(weight[0].T.copy())
            target.bias.data = torch.tensor(bias[0].copy())
    peer._setup_learn(100)


def train(ours: Any, peer: Any, drawn: Any, actions: np.ndarray | None = None) -> None:
    """Do one update of both on member 0's batch, whose actions the peer may know by other numbers."""
    ours.update(drawn)
    tensors = {
        "observations": drawn.observation[0], "actions": drawn.action[0] if actions is None else actions,
        "next_observations": drawn.next_observation[0], "dones": drawn.terminated[0],
        "rewards": TASK.reward_scale * drawn.reward[0],
    }  # fmt: skip
    samples = ReplayBufferSamples(**{name: torch.tensor(array) for name, array in tensors.items()})
    peer.replay_buffer = SimpleNamespace(sample=lambda *_, **__: samples)
    peer.train(1, len(drawn.weight[0]))


def check_updates(pairs: Pairs, update: Callable[[int, Any], None]) -> None:
    """Check that parameters agree to 1e-9 after 1 update, 1e-6 after 100."""
    for number in range(1, 101):
        update(number, batch(1, number, np.float64))
        for network, module in pairs if number in (1, 100) else ():
            parts = [part.detach().numpy() for layer in linears(module) for part in (layer.weight.T, layer.bias)]
            apart = np.abs(network.parameters[0] - np.concatenate([part.ravel() for part in parts]))
            assert apart.max() < (1e-9 if number == 1 else 1e-6), f"update {number}"
