"""DQN and NAF against PyTorch."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3 import DQN as PeerDQN

from replaybench.controllers.algorithms.dqn import DQN, DQNConfig, choice_of
from replaybench.controllers.algorithms.naf import NAF, NAFConfig
from replaybench.controllers.interface.agent import LearnerSetting, Task
from tests.helpers.peers import TASK, A, B, Box, S, batch, check_updates, in_double, train
from tests.helpers.torch_nets import TorchNet

LEVELS = 3


class Discrete(Box):
    action_space = gymnasium.spaces.Discrete(LEVELS**A)


def choose(agent: DQN, drawn: Any) -> np.ndarray:
    """Put random choices in the place of a batch's actions; return their numbers `[M, B]`."""
    rng = np.random.Generator(np.random.PCG64(int(agent.steps[0])))
    index: np.ndarray = rng.integers(len(agent.choices), size=drawn.action.shape[:2])
    drawn.action = agent.choices[index].astype(drawn.action.dtype)
    return index


@pytest.mark.slow
@pytest.mark.parametrize("huber", [None, 1.0])
def test_update_equals_stable_baselines3(monkeypatch: pytest.MonkeyPatch, huber: float | None) -> None:
    """In float64, its own loss and the quadratic one: 1e-9 after 1 update and 1e-6 after 100, targets copied thrice."""
    ours = DQN(
        DQNConfig(levels=LEVELS, huber=huber, copy_every=30, batch_size=B),
        LearnerSetting(TASK, 0, range(1), dtype=np.float64),
    )
    peer = PeerDQN(
        "MlpPolicy", Discrete(), gamma=0.95, learning_rate=1e-3, max_grad_norm=np.inf, device="cpu",
        policy_kwargs={"net_arch": [64, 64], "optimizer_kwargs": {"eps": 1e-8}},
    )  # fmt: skip
    pairs = [(ours.critic, peer.q_net.q_net), (ours.networks.targets["critic"], peer.q_net_target.q_net)]
    in_double(peer, pairs, monkeypatch)
    if huber is None:
        monkeypatch.setattr(
            "stable_baselines3.dqn.dqn.F.smooth_l1_loss", lambda q, y: 0.5 * torch.nn.functional.mse_loss(q, y)
        )

    def update(number: int, drawn: Any) -> None:
        train(ours, peer, drawn, choose(ours, drawn)[0][:, None])
        if number % 30 == 0:
            peer.q_net_target.load_state_dict(peer.q_net.state_dict())

    check_updates(pairs, update)


@pytest.mark.parametrize("double", [False, True])
def test_td_error_takes_the_action_of_the_right_network(double: bool) -> None:
    agent = DQN(DQNConfig(levels=LEVELS, double=double, batch_size=B), LearnerSetting(TASK, 0, range(2)))
    agent.networks.targets["critic"].parameters[:] = -agent.critic.parameters[:, ::-1]
    drawn = batch(2, 0)
    index = choose(agent, drawn)
    slow, judge = agent.networks.targets["critic"](drawn.next_observation), agent.critic(drawn.next_observation)
    best = (judge if double else slow).argmax(axis=2)
    assert (judge.argmax(axis=2) != slow.argmax(axis=2)).any()
    future = np.take_along_axis(slow, best[:, :, None], axis=2)[:, :, 0]
    y = 0.01 * drawn.reward[:, :, 0] + 0.95 * (1 - drawn.terminated[:, :, 0]) * future
    q = np.take_along_axis(agent.critic(drawn.observation), index[:, :, None], axis=2)[:, :, 0]
    np.testing.assert_allclose(agent.update(drawn)["td_error"], y - q, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize(("levels", "actions"), [(2, 1), (15, 1), (31, 2), (5, 4)])
def test_choices_are_evenly_spaced_and_found_again(levels: int, actions: int) -> None:
    agent = DQN(DQNConfig(levels=levels), LearnerSetting(TASK._replace(action_size=actions), 0, range(1)))
    assert agent.choices.shape == (levels**actions, actions)
    np.testing.assert_allclose(np.unique(agent.choices), np.linspace(-1, 1, levels), atol=1e-7)
    assert [choice_of(choice, np.full(actions, levels)) for choice in agent.choices] == list(range(len(agent.choices)))


def test_actions_between_choices_are_taken_for_the_nearest() -> None:
    for action, index in ((-7.0, 0), (-0.76, 0), (-0.74, 1), (0.1, 2), (0.9, 4), (3.0, 4), (np.nan, 0)):
        assert choice_of(np.array([action], np.float32), np.array([5])) == index


def test_a_plants_own_choices_are_taken_as_they_are() -> None:
    """Two, three and four values in the three dimensions."""
    task = TASK._replace(action_size=3, action_choices=(2, 3, 4))
    agent = DQN(DQNConfig(), LearnerSetting(task, 0, range(1)))
    assert [len(np.unique(column)) for column in agent.choices.T] == [2, 3, 4]
    counts = np.array(task.action_choices)
    assert [choice_of(choice, counts) for choice in agent.choices] == list(range(24))
    assert choice_of(np.array([0.1, -0.6, 0.3], np.float32), counts) == (1 * 3 + 0) * 4 + 2
    even = LearnerSetting(task._replace(action_choices=(3, 3, 3)), 0, range(1))
    np.testing.assert_array_equal(DQN(DQNConfig(levels=3), even).choices, DQN(DQNConfig(), even).choices)


def test_random_choices_become_rarer() -> None:
    """All policies choose 0, so that all other choices are random, and one in 15 random ones is 0."""
    agent = DQN(DQNConfig(), LearnerSetting(Task(S, 1, 0.95, 1.0), 0, range(5000)))
    agent.critic.parameters[:] = 0
    agent.critic.named_weights("n")["n.2.bias"][:, 7] = 1
    observation, everyone = np.ones((5000, S), np.float32), np.ones(5000, np.bool_)
    for episode, probability in ((499, 0.01), (2000, 0.01), (249, 0.3557), (0, 0.7)):
        agent.start_episode(episode, everyone)
        explored = agent.explore(observation, everyone)
        other, expected = (explored.action != 0).mean(), probability * 14 / 15
        assert abs(other - expected) < 4 * np.sqrt(expected * (1 - expected) / 5000)
        np.testing.assert_array_equal(explored.deviation, np.abs(explored.action).sum(axis=1))
    counted = np.unique(explored.action[explored.action != 0], return_counts=True)[1]
    assert len(counted) == 14
    assert ((counted - counted.mean()) ** 2 / counted.mean()).sum() < 34.5  # χ² with 13 degrees of freedom, p = 0.001


@pytest.mark.slow
@pytest.mark.parametrize(("half", "bounded", "diagonal"), [(True, True, "exp"), (False, False, "softplus")])
def test_update_equals_torch(half: bool, bounded: bool, diagonal: Any) -> None:
    """Five updates in float64: temporal differences by the formula, weights by autograd, Adam and the slow copy."""
    config = NAFConfig(hidden=(7, 5), half=half, bounded=bounded, diagonal=diagonal, tau=0.2, batch_size=B)
    agent = NAF(config, LearnerSetting(TASK, 0, range(1), dtype=np.float64))
    net, slow = TorchNet(agent.network), TorchNet(agent.networks.targets["network"])
    adam = torch.optim.Adam(net.leaves, lr=config.learning_rate)
    for update in range(5):
        drawn = batch(1, update, np.float64)
        drawn.weight[:] = np.random.Generator(np.random.PCG64(update)).uniform(0.5, 1, (1, B))
        outputs = net(torch.tensor(drawn.observation[0]))
        mean = torch.tanh(outputs[:, 1:3]) if bounded else outputs[:, 1:3]
        positive = torch.exp if diagonal == "exp" else torch.nn.functional.softplus
        lower = torch.zeros(B, A, A, dtype=torch.float64)
        lower[:, 0, 0], lower[:, 1, 0], lower[:, 1, 1] = positive(outputs[:, 3]), outputs[:, 4], positive(outputs[:, 5])
        e = (torch.tensor(drawn.action[0]) - mean)[:, :, None]
        advantage = -(lower.transpose(1, 2) @ e).square().sum((1, 2)) * (0.5 if half else 1.0)
        future = slow(torch.tensor(drawn.next_observation[0]))[:, 0] * (1 - torch.tensor(drawn.terminated[0, :, 0]))
        delta = 0.01 * torch.tensor(drawn.reward[0, :, 0]) + 0.95 * future.detach() - outputs[:, 0] - advantage
        loss = (torch.tensor(drawn.weight[0]) * delta.square() / 2).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        for target, source in zip(slow.leaves, net.leaves, strict=True):
            target.data = 0.8 * target.data + 0.2 * source.data
        np.testing.assert_allclose(agent.update(drawn)["td_error"][0], delta.detach().numpy(), rtol=1e-9, atol=1e-12)
    for ours, theirs in ((agent.network, net), (agent.networks.targets["network"], slow)):
        np.testing.assert_allclose(ours.parameters[0], theirs.parameters(), rtol=1e-8, atol=1e-11)


def test_an_unbounded_policy_is_clipped_to_what_the_plant_takes() -> None:
    agent = NAF(NAFConfig(bounded=False), LearnerSetting(TASK, 0, range(2)))
    agent.network.parameters *= 100
    observation = np.ones((2, 4, S), np.float32)
    assert np.abs(agent.mean(observation)).max() > 1
    np.testing.assert_array_equal(agent.policy(observation), np.clip(agent.mean(observation), -1, 1))
