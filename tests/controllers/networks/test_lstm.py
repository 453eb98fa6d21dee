"""LSTMs against PyTorch, and recurrent learners."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from replaybench.controllers.algorithms.ddpg import DDPG, DDPGConfig
from replaybench.controllers.algorithms.vracer import VRACER, VRACERConfig
from replaybench.controllers.interface.agent import LearnerSetting
from replaybench.controllers.interface.noise import GaussianNoise
from replaybench.controllers.losses.refer import TRUNCATED
from replaybench.controllers.networks.lstm import (
    LSTMShape,
    PopulationLSTM,
    differentiate_lstm,
    evaluate_lstm,
    lstm_state,
)
from replaybench.controllers.networks.mlp import Shape
from replaybench.controllers.networks.network import MemoryConfig, make_network
from replaybench.controllers.networks.recurrent import (
    Histories,
    PopulationRecurrent,
    RecurrentShape,
    evaluate_recurrent,
)
from replaybench.controllers.policies.policy import Policy
from replaybench.controllers.registry import load_learner
from replaybench.runtime.errors import UserError
from replaybench.runtime.streams import Stream
from tests.helpers.peers import TASK, A, B, S, off_policy_batch, vracer_loss
from tests.helpers.torch_nets import TorchNet

pytestmark = pytest.mark.slow  # recurrent networks compile for minutes
M = 2


def normal(*size: int) -> NDArray[np.float64]:
    return np.random.Generator(np.random.PCG64(sum(size))).normal(size=size)


def torch_order(network: PopulationLSTM) -> NDArray[np.int64]:
    """Our columns (i, f, o, g) in the order of Torch's rows (i, f, g, o)."""
    units = network.shape.units
    return np.concatenate([np.arange(gate * units, (gate + 1) * units) for gate in (0, 1, 3, 2)])


def to_torch(network: PopulationLSTM, m: int) -> torch.nn.LSTM:
    shape, order, named = network.shape, torch_order(network), network.named_weights("q")
    theirs = torch.nn.LSTM(shape.inputs, shape.units, shape.layers, dtype=torch.float64)
    with torch.no_grad():
        for layer, inputs in enumerate(shape.layer_inputs):
            weight, bias = named[f"q.{layer}.weight"], named[f"q.{layer}.bias"]
            theirs.get_parameter(f"weight_ih_l{layer}").copy_(torch.tensor(weight[m, :inputs, order]))
            theirs.get_parameter(f"weight_hh_l{layer}").copy_(torch.tensor(weight[m, inputs:, order]))
            theirs.get_parameter(f"bias_ih_l{layer}").copy_(torch.tensor(bias[m, order]))
            theirs.get_parameter(f"bias_hh_l{layer}").zero_()
    return theirs


def torch_gradient(network: PopulationLSTM, theirs: torch.nn.LSTM) -> NDArray[np.float64]:
    """Their gradient as one row `[P]` in our order."""
    back = np.argsort(torch_order(network))
    blocks = []
    for layer in range(network.shape.layers):
        grads: list[Any] = [
            theirs.get_parameter(f"{part}_l{layer}").grad for part in ("weight_ih", "weight_hh", "bias_ih")
        ]
        stacked = torch.cat([grads[0].T, grads[1].T, grads[2][None]]).numpy()
        blocks.append(stacked[:, back].ravel())
    return np.concatenate(blocks)


def states(network: PopulationLSTM, initial: NDArray[np.float64]) -> tuple[torch.Tensor, torch.Tensor]:
    """A state `[B, 2LU]` as Torch's (h, c), each `[L, B, U]`."""
    shape = network.shape
    split = torch.tensor(initial).reshape(-1, shape.layers, 2, shape.units).permute(2, 1, 0, 3).contiguous()
    return split[0], split[1]


@pytest.mark.parametrize(
    ("shape", "segments", "steps"),
    [
        (LSTMShape(2), 16, 17),
        (LSTMShape(3, units=32), 1, 1),
        (LSTMShape(1, layers=1, units=7), 5, 4),
        (LSTMShape(5, layers=3, units=9), 11, 3),
        (LSTMShape(4, units=1), 3, 1),
        (LSTMShape(2, units=16), 1, 8),
    ],
)
def test_forward_and_backward_equal_autograd(shape: LSTMShape, segments: int, steps: int) -> None:
    """Histories of all lengths; what lies behind them has no influence."""
    network = PopulationLSTM(shape, M, np.float64)
    network.initialise(Stream(1, range(M), "initialisation"))
    network.parameters += 0.1 * normal(*network.parameters.shape)
    tape, length = network.tape(segments, steps), steps - np.arange(segments) % steps
    for m in range(M):
        x, initial = normal(segments, steps, shape.inputs), normal(segments, shape.state_size) + m
        d_out, out, final = normal(segments, shape.units), np.empty((segments, shape.units)), np.empty_like(initial)
        evaluate_lstm(network.network, m, tape, x, length, initial, out)
        lstm_state(network.network, tape, length, final)
        differentiate_lstm(network.network, m, tape, length, d_out)
        theirs = to_torch(network, m)
        for b in range(segments):
            series = torch.tensor(x[b, : length[b]])[:, None]
            expected, state = theirs(series, states(network, initial[b : b + 1]))
            expected[-1, 0].backward(torch.tensor(d_out[b]))
            np.testing.assert_allclose(out[b], expected[-1, 0].detach(), rtol=1e-10, atol=1e-13)
            for ours, their in zip(states(network, final[b : b + 1]), state, strict=True):
                np.testing.assert_allclose(ours, their.detach(), rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(network.gradient[m], torch_gradient(network, theirs), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("bias", [1.0, -4.0])
def test_first_weights_are_small_and_forget_gates_begin_as_told(bias: float) -> None:
    stream = Stream(1, range(M), "initialisation")
    network = PopulationLSTM(LSTMShape(3, units=16, forget_bias=bias), M)
    network.initialise(stream)
    named = network.named_weights("critic")
    assert [*named] == ["critic.0.weight", "critic.0.bias", "critic.1.weight", "critic.1.bias"]
    assert sum(array[0].size for array in named.values()) == network.shape.parameter_count
    for name, array in named.items():
        assert np.shares_memory(array, network.parameters)
        if name.endswith("bias"):
            np.testing.assert_array_equal(array, np.broadcast_to(np.repeat([0, bias, 0, 0], 16), array.shape))
        else:
            assert 0.24 < np.abs(array).max() <= 0.25
    # A fixed number of draws: what is initialised next must not depend on what came before.
    again = Stream(1, range(M), "initialisation")
    again.uniform(network.shape.parameter_count)
    np.testing.assert_array_equal(stream.state, again.state)


def test_step_by_step_equals_the_whole_pass() -> None:
    """To the bit; without memory segments start in the zero state."""
    steps, runs = 6, 3
    head = Shape((0, 32, 1), actions=33, inject=0)
    network = PopulationRecurrent(RecurrentShape(LSTMShape(2, units=32), head), M, np.float64)
    network.initialise(Stream(1, range(M), "initialisation"))
    x, action = normal(M, runs, steps, 2), normal(steps, M, runs, 1)
    tape, whole, nothing = network.tape(runs, steps), np.empty((runs, 1)), np.empty((runs, 0))
    state: NDArray[np.floating] = np.zeros((M, runs, network.shape.state_size))
    np.testing.assert_array_equal(network(x[:, :, 0], action[0]), network.step(x[:, :, 0], state, action[0])[0])
    for t in range(steps):
        out, state = network.step(x[:, :, t], state, action[t])
        for m in range(M):
            segments = Histories(x[m], np.full(runs, t + 1), nothing)
            evaluate_recurrent(network.network, m, tape, segments, action[t, m], whole)
            np.testing.assert_array_equal(out[m], whole)


STARTS: list[Any] = ["stored", "burn-in", "zero"]


def memory(start: Any = "stored", window: int = 3) -> MemoryConfig:
    return MemoryConfig(units=5, window=window, burn_in=2, start=start)


def batch(agent: Any, seed: int) -> Any:
    """Random samples with windows of all lengths."""
    kind, steps, rng = agent.memory.dtype, agent.schedule.window, np.random.Generator(np.random.PCG64(seed))
    drawn, length = off_policy_batch(1, seed, kind), 1 + np.arange(B)[None] % steps
    observation = rng.normal(size=(1, B, steps, S)) * (np.arange(steps)[:, None] < length[:, :, None, None])
    memory = rng.normal(size=(1, B, agent.memory.size if agent.memory.stored else 0))
    drawn.window = SimpleNamespace(observation=observation.astype(kind), length=length, memory=memory.astype(kind))
    drawn.observation = drawn.window.observation[:, :, -1]
    return drawn


class InTorch:
    """Member 0 of a recurrent network, and a memory's settings, in torch."""

    def __init__(self, network: Any, place: int, config: MemoryConfig) -> None:
        assert isinstance(network, PopulationRecurrent)
        self.trunk, self.lstm, self.head = network._trunk, to_torch(network._trunk, 0), TorchNet(network._head)
        self.place, self.window = place, config.window

    def __call__(self, drawn: Any, action: torch.Tensor | None, successor: bool = False) -> torch.Tensor:
        """Outputs `[B, out]` for the samples, or for their successors."""
        rows, size = [], self.trunk.shape.state_size
        for b in range(B):
            series = torch.tensor(drawn.window.observation[0, b, : drawn.window.length[0, b]])[:, None]
            if successor:
                series = torch.cat([series, torch.tensor(drawn.next_observation[:, b : b + 1])])
            stored = drawn.window.memory[:, b, self.place : self.place + size]
            memory, burned = states(self.trunk, stored if stored.size else np.zeros(size)), len(series) - self.window
            if burned > 0:
                memory = self.lstm(series[:burned], memory)[1]
                memory, series = (memory[0].detach(), memory[1].detach()), series[burned:]
            rows.append(self.lstm(series, memory)[0][-1, 0])
        return self.head(torch.stack(rows)) if action is None else self.head(torch.cat([torch.stack(rows), action], 1))

    def gradient(self, loss: torch.Tensor) -> NDArray[Any]:
        """Return the loss's gradient as one row `[P]`."""
        loss.backward(retain_graph=True)
        return np.concatenate([torch_gradient(self.trunk, self.lstm), self.head.gradient()])


@pytest.mark.parametrize("start", STARTS)
def test_gradients_of_ddpg_equal_autograd(start: Any) -> None:
    config = DDPGConfig(actor_hidden=(4,), critic_hidden=(7, 3), critic_rate=1e-30, batch_size=B, memory=memory(start))
    agent = DDPG(config, LearnerSetting(TASK, 0, range(1), dtype=np.float64))
    agent.networks.targets["actor"].parameters[:] *= 0.9
    agent.networks.targets["critic"].parameters[:] *= 0.8
    assert config.memory is not None
    place = agent.memory.spans["critic"].start
    actor, slow_actor = (InTorch(net, 0, config.memory) for net in (agent.actor, agent.networks.targets["actor"]))
    targets = agent.networks.targets
    critic, slow_critic = (InTorch(net, place, config.memory) for net in (agent.critic, targets["critic"]))
    drawn = batch(agent, 3)
    with torch.no_grad():
        q_next = slow_critic(drawn, slow_actor(drawn, None, True), True)[:, 0]
    alive = 1 - torch.tensor(drawn.terminated[0, :, 0])
    wanted = TASK.reward_scale * torch.tensor(drawn.reward[0, :, 0]) + TASK.discount * alive * q_next
    delta = wanted - critic(drawn, torch.tensor(drawn.action[0]))[:, 0]
    of_critic = critic.gradient((torch.tensor(drawn.weight[0]) * delta**2).mean())
    of_actor = actor.gradient(-(torch.tensor(drawn.actor_weight[0]) * critic(drawn, actor(drawn, None))[:, 0]).mean())
    np.testing.assert_allclose(agent.update(drawn)["td_error"][0], delta.detach(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(agent.critic.gradient[0], of_critic, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(agent.actor.gradient[0], of_actor, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("start", STARTS)
def test_gradients_of_vracer_equal_autograd(start: Any) -> None:
    config = VRACERConfig(hidden=(6,), batch_size=B, memory=memory(start))
    agent = VRACER(config, LearnerSetting(TASK, 0, range(1), dtype=np.float64))
    assert config.memory is not None
    network, drawn = InTorch(agent.network, 0, config.memory), batch(agent, 5)
    outputs = network(drawn, None)
    value, mean = outputs[:, 0], outputs[:, 1:]
    loss = vracer_loss(value, mean, torch.full_like(mean, np.log(config.first_sigma)), drawn)
    expected, successor = network.gradient(loss), network(drawn, None, True)[:, 0].detach().numpy()
    found = agent.update(drawn)
    np.testing.assert_allclose(agent.network.gradient[0], expected, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(found["value"][0], value.detach(), rtol=1e-10)
    truncated = drawn.traces[0, :, TRUNCATED] > 0
    assert 0 < truncated.sum() < B
    np.testing.assert_allclose(found["bootstrap"][0, truncated], successor[truncated], rtol=1e-10)


def acted(agent: Any, steps: int) -> tuple[NDArray[Any], list[Any]]:
    """Act for some steps; return the observations `[T, M, S]` and what was explored."""
    everyone = np.ones(len(agent.memory.before), np.bool_)
    seen = np.random.Generator(np.random.PCG64(0)).normal(size=(steps, len(everyone), S)).astype(np.float32)
    agent.start_episode(0, everyone)
    return seen, [agent.explore(observation, everyone) for observation in seen]


every_learner = pytest.mark.parametrize("learner", ["DDPG", "NAF", "V-RACER"])


def remembering(learner: str, start: Any = "stored", members: int = 2) -> Any:
    kind, config = load_learner(learner)
    settings = {} if learner == "V-RACER" else {"exploration": GaussianNoise()}
    return kind(config(batch_size=B, memory=memory(start), **settings), LearnerSetting(TASK, 0, range(members)))


@every_learner
def test_a_replayed_step_is_judged_as_when_it_was_collected(learner: str) -> None:
    """Windows of one step and of more, from the memory that is stored with their first."""
    agent = remembering(learner, members=1)
    seen, explored = acted(agent, B + 2)
    extras = {name: np.stack([one.extras[name][0] for one in explored]) for name in explored[0].extras}
    first = np.arange(B)
    for length in (1, 2, 3):
        last = first + length - 1
        observation = np.stack([seen[t : t + 3, 0] for t in first])[None]
        drawn = batch(agent, 0)
        drawn.window = SimpleNamespace(
            observation=observation, length=np.full((1, B), length), memory=extras["memory"][first][None]
        )
        drawn.columns = {name: extras[name][last][None] for name in ("behaviour_mean", "behaviour_log_sigma")}
        drawn.action = drawn.columns["behaviour_mean"] + np.float32(0.1)
        drawn.rate_factor[:] = 0
        found = agent.update(drawn)
        np.testing.assert_allclose(found["rho"], 1, rtol=1e-4)
        if learner == "V-RACER":
            np.testing.assert_allclose(found["value"], extras["value"][last].T, rtol=1e-4, atol=1e-6)


@every_learner
def test_memory_is_stored_and_cleared_at_the_start_of_an_episode(learner: str) -> None:
    agent = remembering(learner)
    seen, explored = acted(agent, 3)
    np.testing.assert_array_equal(explored[0].extras["memory"], 0)
    assert explored[1].extras["memory"].all()
    agent.start_episode(1, np.array([True, False]))
    again = agent.explore(seen[0], np.ones(2, np.bool_)).extras["memory"]
    np.testing.assert_array_equal(again[0], 0)
    assert again[1].all()


@every_learner
@pytest.mark.parametrize("start", STARTS)
def test_evaluation_has_a_memory_of_its_own(learner: str, start: Any) -> None:
    agent = remembering(learner, start)
    seen, explored = acted(agent, 4)
    kept = {name: array.copy() for name, array in agent.state_dict().items()}
    means = [np.clip(one.extras["behaviour_mean"], -1, 1) for one in explored]
    for _ in range(2):
        evaluation = agent.greedy()
        for observation, mean in zip(seen, means, strict=True):
            np.testing.assert_array_equal(evaluation.act(observation), mean)
    np.testing.assert_array_equal(agent.act(seen[0]), means[0])
    assert not np.array_equal(agent.act(seen[3]), means[3])
    for name, array in agent.state_dict().items():
        np.testing.assert_array_equal(array, kept[name], err_msg=name)
    assert ("memory" in agent.fields) == (start == "stored")
    assert ("kl" in agent.metric_names) == (start == "stored")


def test_a_policy_by_itself_remembers() -> None:
    agent = remembering("V-RACER", members=1)
    seen, explored = acted(agent, 3)
    policy, state = Policy(agent, {}), None
    for observation, one in zip(seen, explored, strict=True):
        action, state = policy.predict(observation[0], state)
        np.testing.assert_array_equal(action, np.clip(one.extras["behaviour_mean"][0], -1, 1))
    assert state is not None
    afresh, _ = policy.predict(seen[0].repeat(2, 0), np.repeat(state, 2, 0), [True, False])
    np.testing.assert_array_equal(afresh[0], np.clip(explored[0].extras["behaviour_mean"][0], -1, 1))
    assert not np.array_equal(afresh[0], afresh[1])
    for wrong in (state, state[0], np.zeros((2, 3), np.float32)):
        with pytest.raises(UserError, match=rf"^the state of this policy has shape \(2, {state.shape[1]}\) here"):
            policy.predict(seen[0].repeat(2, 0), wrong)


@every_learner
def test_what_is_recorded_is_remembered_by_who_learns_from_it(learner: str) -> None:
    """In the place of what the recording learner remembered, which means nothing to another's networks."""
    recorder, agent = remembering(learner), remembering(learner)
    seen, explored = acted(recorder, 4)
    agent.start_episode(0, np.ones(2, np.bool_))
    for time, observation in enumerate(seen):
        nothing, expected = np.zeros((2, 1), np.float32), explored[time].extras["memory"].copy()
        experience = {"observation": observation, "next_observation": observation, "action": explored[time].action}
        experience |= {"reward": nothing, "terminated": nothing, "memory": np.full_like(expected, 7.0)}
        told = agent.on_recorded_step(experience, np.array([time == 2, False]), np.ones(2, np.bool_))
        expected[0] *= time < 3
        np.testing.assert_array_equal(told["memory"], expected)


def test_without_memory_nothing_is_changed() -> None:
    shape = Shape((S, 8, 1), actions=A, inject=1)
    assert make_network(None, shape, 1, np.float32).shape is shape
    agent = DDPG(DDPGConfig(), LearnerSetting(TASK, 0, range(2)))
    assert agent.greedy() is agent
    assert agent.schedule.window == 1
    assert not agent.fields
    assert not [name for name in agent.state_dict() if "memory" in name]
