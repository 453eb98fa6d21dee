"""Stable-Baselines3 with our buffers: its own buffer and its own learners are the oracles."""

import copy
import importlib
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import DDPG, DQN, SAC, TD3
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from replaybench.replay.sb3.buffer import FEEDBACK, StrategyReplayBuffer
from replaybench.replay.sb3.learners import StrategyDDPG, StrategyLearner, StrategySAC, StrategyTD3
from replaybench.replay.storage.traces import n_step_returns
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.errors import UserError
from tests.helpers.tiers import slow

BOX = spaces.Box(-1, 1, (3,), np.float32)
ACTION = spaces.Box(-2, 2, (2,), np.float32)
PAIRS = [(DDPG, StrategyDDPG), (TD3, StrategyTD3), (SAC, StrategySAC)]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Networks this small are slower on several threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def experience(rng: np.random.Generator, n: int = 1) -> tuple[Any, ...]:
    """Return the arguments of `add` for n environments; some episodes end, half of those by a time limit."""
    done = rng.random(n) < 0.3
    infos = [{"TimeLimit.truncated": bool(d and rng.random() < 0.5), "exploration": rng.random()} for d in done]
    arrays = (rng.normal(size=(n, *shape)).astype(np.float32) for shape in ((3,), (3,), (2,), ()))
    return *arrays, done, infos


def filled(strategy: str = "FIFO[Uniform]", adds: int = 50, size: int = 20, **settings: Any) -> StrategyReplayBuffer:
    buffer = StrategyReplayBuffer(size, BOX, ACTION, "cpu", strategy=strategy, **settings)
    rng = np.random.default_rng(1)
    for _ in range(adds):
        buffer.add(*experience(rng, buffer.n_envs))
    return buffer


def rows(samples: ReplayBufferSamples) -> np.ndarray[Any, Any]:
    table = np.concatenate([np.asarray(column).reshape(len(samples.dones), -1) for column in samples[:5]], axis=1)
    return table[np.lexsort(table.T)]


@pytest.mark.parametrize("n_envs", [1, 4])
@pytest.mark.parametrize("timeouts", [True, False])
def test_fifo_stores_what_the_original_does(n_envs: int, timeouts: bool) -> None:
    original = ReplayBuffer(20, BOX, ACTION, "cpu", n_envs, handle_timeout_termination=timeouts)
    ours = StrategyReplayBuffer(20, BOX, ACTION, "cpu", n_envs, handle_timeout_termination=timeouts)
    rng = np.random.default_rng(0)
    for _ in range(33):
        given = experience(rng, n_envs)
        original.add(*given)
        ours.add(*given)
        assert ours.full == original.full
        assert ours.size() == original.size() * n_envs
        assert ours.pos == original.pos * n_envs
    slot, env = np.divmod(np.arange(20), n_envs)
    columns = (
        original.observations[slot, env], original.actions[slot, env], original.next_observations[slot, env],
        original.dones[slot, env] * (1 - original.timeouts[slot, env]), original.rewards[slot, env],
    )  # fmt: skip
    theirs = ReplayBufferSamples(*(torch.as_tensor(column) for column in columns))
    stored = ours._get_samples(np.arange(20))
    np.testing.assert_array_equal(rows(stored), rows(theirs))
    assert 0 < stored.dones.sum() < (original.dones.sum() if timeouts else 20)
    drawn = rows(ours.sample(500))
    np.testing.assert_array_equal(np.unique(drawn, axis=0), np.unique(rows(stored), axis=0))


def test_samples_are_normalised_as_in_the_original() -> None:
    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")] * 2))
    original, ours = (
        kind(8, env.observation_space, env.action_space, "cpu", 2) for kind in (ReplayBuffer, StrategyReplayBuffer)
    )
    env.reset()
    after: Any = env.get_original_obs()
    for _ in range(4):
        before, action = after, np.full((2, 1), 0.3, np.float32)
        _, _, done, infos = env.step(action)
        after = env.get_original_obs()
        for buffer in (original, ours):
            buffer.add(before, after, action, env.get_original_reward(), done, infos)
    assert np.abs(np.asarray(ours.sample(8, env).observations)).max() > 1e-3
    theirs = np.unique(rows(original.sample(300, env)), axis=0)
    np.testing.assert_allclose(np.unique(rows(ours.sample(300, env)), axis=0), theirs, rtol=1e-6)


def test_draws_follow_the_seed_and_nothing_else() -> None:
    one, same, other = (filled("Resv[Uniform]", seed=seed) for seed in (3, 3, 4))
    states: list[Any] = [np.random.get_state()]  # noqa: NPY002  the peers draw from it
    drawn = [rows(buffer.sample(16)) for buffer in (one, same, other)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
    states.append(np.random.get_state())  # noqa: NPY002
    np.testing.assert_array_equal(states[0][1], states[1][1])
    assert one.full
    assert one.pos == 0
    one.reset()
    assert (one.size(), one.pos, one.full) == (0, 0, False)
    with pytest.raises(UserError, match="nothing is stored yet"):
        one.sample(1)


@pytest.mark.parametrize("strategy", ["FIFO[PERprop]", "Drop(0.4)*Resv[ERE+PER]", "Expl(1.2)[PER+FIS]", "TDE[AER]"])
@pytest.mark.parametrize("how", ["record", "copy", "their pickle"])
def test_what_was_saved_continues_the_same(strategy: str, how: str, tmp_path: Path) -> None:
    def go_on(buffer: StrategyReplayBuffer, seed: int) -> list[Any]:
        rng, seen = np.random.default_rng(seed), []
        for update in range(12):
            buffer.context = buffer.context._replace(update=update % 4, updates_in_phase=4, state=np.ones((1, 3), "f"))
            buffer.add(*experience(rng))
            seen += [*buffer.sample(8)[:5], *buffer.weights()]
            buffer.annotate(torch.from_numpy(rng.normal(size=8)))
        return seen

    buffer = filled(strategy, feedback=FEEDBACK)
    go_on(buffer, 1)
    if how == "record":
        buffer.save(tmp_path / "replay.h5")
        twin = filled(strategy, adds=3, feedback=FEEDBACK)
        twin.load(str(tmp_path / "replay.h5"))
        twin.context = buffer.context
    elif how == "copy":
        twin = copy.deepcopy(buffer)
    else:
        model = StrategyTD3("MlpPolicy", "Pendulum-v1", device="cpu", buffer_size=5)
        model.replay_buffer = buffer
        model.save_replay_buffer(tmp_path / "replay.pkl")
        model.load_replay_buffer(tmp_path / "replay.pkl")
        twin = model.strategy_buffer
    assert twin is not buffer
    assert (twin.size(), twin.pos, twin.full) == (buffer.size(), buffer.pos, buffer.full)
    for mine, theirs in zip(go_on(buffer, 2), go_on(twin, 2), strict=True):
        assert torch.equal(mine, theirs)


def test_saved_files_are_refused_where_they_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "replay.h5"
    StrategyReplayBuffer(20, BOX, ACTION, "cpu").save(path)  # an empty one can be saved too
    buffer = filled()
    before = rows(buffer._get_samples(np.arange(20)))
    with pytest.raises(UserError, match=r"strategy FIFO\[Uniform\], this buffer Resv\[Uniform\]; make the buffer with"):
        filled("Resv[Uniform]").load(path)
    with pytest.raises(UserError, match="buffer_size 20, this buffer 21"):
        filled(size=21).load(path)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "damaged.h5").write_bytes(damaged)
    with pytest.raises(UserError, match=r"damaged\.h5"):
        buffer.load(tmp_path / "damaged.h5")
    np.testing.assert_array_equal(rows(buffer._get_samples(np.arange(20))), before)
    buffer.load(path)
    assert buffer.size() == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strategy": "FIFO[PER]"}, "TD errors .* use StrategyDDPG"),
        ({"strategy": "TDE(1.2)[Uniform]"}, "TD errors"),
        ({"strategy": "FIFO[Uniform+FIS]"}, "importance weights"),
        ({"strategy": "FIFO[PER+IS]"}, "TD errors from the learner and importance weights"),
        ({"strategy": "FIFO[ERE+PER]"}, "TD errors .* importance weights .* place of each update"),
        ({"strategy": "FIFO[AER]"}, "learning rate and the state that the agent is in"),
        ({"strategy": "FIFO[Annealed]"}, "learning rate and the place of each update"),
        ({"strategy": "Expl(1.2)[Uniform]"}, "distance from the policy"),
        ({"strategy": "FIFO[PER+IS]", "feedback": ["td_error", "phase"]}, "needs importance weights in the learner"),
        ({"strategy": "Synth(state=0.1)*FIFO[Uniform]", "feedback": FEEDBACK}, "leave Synth out"),
        ({"strategy": "Mix(a.h5)*FIFO[Uniform]", "feedback": FEEDBACK}, "leave Mix out"),
        ({"strategy": "FIFO[Uniform+ReFER-1]", "feedback": FEEDBACK}, "the learner's gradients.*leave ReFER out"),
        ({"strategy": "Drop*FIFO[Uniform]"}, "needs the control rate"),
        ({"feedback": ["td_eror"]}, "did you mean td_error"),
        ({"optimize_memory_usage": True}, "optimize_memory_usage=False"),
        ({"n_steps": 0}, "n_step must be a whole number of at least 1, not 0"),
        ({"n_steps": 2.5}, "n_step must be a whole number of at least 1, not 2.5"),
        ({"n_steps": 3, "gamma": 0.9, "n_envs": 2}, "need one environment, not 2"),
        ({"strategy": "FIFO[ReaPER]", "feedback": FEEDBACK, "n_envs": 2}, "needs the ends of episodes"),
        ({"strategy": "FIFO[LA3P]", "feedback": FEEDBACK}, "replaces the critic's squared loss"),
        ({"observation_space": spaces.Dict({"a": BOX})}, "not Dict observations"),
        ({"observation_space": spaces.Box(0, 255, (36, 36, 3), np.uint8)}, "not images"),
        ({"observation_space": spaces.Discrete(3)}, "needs Box observations"),
        ({"action_space": spaces.MultiBinary(3)}, "Box or Discrete actions"),
        ({"buffer_size": 0}, "capacity"),
    ],
)
def test_what_cannot_work_is_refused_in_a_line(settings: dict[str, Any], message: str) -> None:
    given = {"buffer_size": 9, "observation_space": BOX, "action_space": ACTION, "device": "cpu", **settings}
    with pytest.raises(UserError, match=message) as raised:
        StrategyReplayBuffer(**given)
    assert "\n" not in str(raised.value)


def test_a_full_buffer_says_how_large_it_must_be() -> None:
    buffer = filled("FULL[Uniform]", adds=20)
    assert buffer.full
    with pytest.raises(UserError, match="buffer_size=20 experiences; give buffer_size the number of steps"):
        buffer.add(*experience(np.random.default_rng(0)))
    model = learner(StrategyTD3, "FULL[Uniform]", buffer_size=300, train_freq=7)
    with pytest.raises(UserError, match=r"whole run, 301 or more"):
        model.learn(300)
    model.learn(294)
    with pytest.raises(UserError, match=r"whole run, 301 or more"):
        model.learn(7, reset_num_timesteps=False)


def learner(kind: type[Any], strategy: str | None = None, env: Any = "Pendulum-v1", **settings: Any) -> Any:
    """Return a small learner; of Stable-Baselines3's own buffer without a strategy."""
    if strategy is not None:
        settings["replay_buffer_kwargs"] = {"strategy": strategy}
    usual: dict[str, Any] = {"learning_starts": 20, "batch_size": 16, "seed": 1, "buffer_size": 100, "train_freq": 25}
    usual |= {"gradient_steps": 5, "policy_kwargs": {"net_arch": [16, 16]}}
    return kind("MlpPolicy", env, device="cpu", **{**usual, **settings})


@pytest.mark.filterwarnings("ignore:`n_steps=3` is ignored")  # Stable-Baselines3 cannot know that ours reads it
@pytest.mark.parametrize("kind", [DDPG, TD3, SAC, DQN])
def test_their_learners_take_the_buffer_as_it_is(kind: type[OffPolicyAlgorithm]) -> None:
    env = "CartPole-v1" if kind is DQN else "Pendulum-v1"
    model = learner(kind, "Drop(0.2)*Resv[Uniform]", env, replay_buffer_class=StrategyReplayBuffer, gradient_steps=2)
    model.learn(200)
    assert model.replay_buffer.full
    with pytest.raises(UserError, match="which this training code does not provide"):
        learner(kind, "FIFO[PER]", env, replay_buffer_class=StrategyReplayBuffer)
    several = learner(kind, "FIFO[Uniform]", env, replay_buffer_class=StrategyReplayBuffer, n_steps=3, gamma=0.9)
    several.learn(120)
    assert several.replay_buffer.n_steps == 3
    assert several.replay_buffer.sample(64).discounts.min() == pytest.approx(0.9**3, rel=1e-6)


@pytest.mark.parametrize("strategy", ["FIFO[Uniform]", "FIFO[PER+IS(first=0,last=0,all_networks=true)]"])
@pytest.mark.parametrize(("plain", "ours"), PAIRS)
def test_with_weights_of_one_the_parameters_are_theirs(
    plain: type[Any], ours: type[StrategyLearner], strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"gradient_steps": 10, "learning_rate": lambda left: 1e-3 * left}
    if plain is SAC:
        settings |= {"target_update_interval": 3}
    mine = learner(ours, strategy, **settings)
    batches: list[ReplayBufferSamples] = []
    draw = mine.replay_buffer.sample

    def keep(*args: Any, **kwargs: Any) -> ReplayBufferSamples:
        batches.append(draw(*args, **kwargs))
        return batches[-1]

    monkeypatch.setattr(mine.replay_buffer, "sample", keep)
    mine.learn(75)
    assert len(batches) == 30
    coming = iter(batches)
    theirs = learner(plain, **settings)  # made after the other, as both seed torch's own generator
    monkeypatch.setattr(theirs.replay_buffer, "sample", lambda *args, **kwargs: next(coming))
    theirs.learn(75)
    assert next(coming, None) is None
    start = learner(plain, **settings).policy.state_dict()
    for name, value in theirs.policy.state_dict().items():
        assert torch.equal(mine.policy.state_dict()[name], value), name
        assert value.numel() < 9 or not torch.equal(value, start[name])
    if plain is SAC:
        assert torch.equal(mine.log_ent_coef, theirs.log_ent_coef)
    logged, expected = (
        {name: value for name, value in each.logger.name_to_value.items() if "train" in name} for each in (mine, theirs)
    )
    assert logged == expected


class InDouble(FlattenExtractor):
    """Makes all that follows compute in float64."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return super().forward(observations).double()


def one_update_written_out(
    kind: type[StrategyLearner], policy: Any, batch: ReplayBufferSamples, weights: tuple[Any, Any], rate: float
) -> torch.Tensor:
    """Do gradient descent on the weighted losses of one update, SAC's with α = 0.25; return |δ| `[B, 1]`."""
    soft = kind is StrategySAC
    w, actor_w = (weight.double() for weight in weights)

    def act(actor: Any, observations: torch.Tensor) -> Any:
        return actor.action_log_prob(observations) if soft else (actor(observations), torch.zeros(len(observations)))

    def descend(loss: torch.Tensor, network: Any) -> None:
        slopes = torch.autograd.grad(loss, list(network.parameters()))
        for parameter, slope in zip(network.parameters(), slopes, strict=True):
            parameter.data -= rate * slope

    action, log_prob = act(policy.actor, batch.observations)
    following, following_log_prob = act(policy.actor if soft else policy.actor_target, batch.next_observations)
    following_q = torch.hstack(policy.critic_target(batch.next_observations, following))
    value = following_q.amin(dim=1) - 0.25 * following_log_prob
    y = (batch.rewards + 0.98 * (1 - batch.dones) * value[:, None]).detach()
    delta = y - torch.hstack(policy.critic(batch.observations, batch.actions))
    descend((0.5 if soft else 1.0) * (w * delta.square()).mean(dim=0).sum(), policy.critic)
    q = torch.hstack(policy.critic(batch.observations, action))
    q = q.amin(dim=1) if soft else q[:, 0]
    descend((actor_w[:, 0] * (0.25 * log_prob - q)).mean(), policy.actor)
    size: torch.Tensor = delta.detach().abs().mean(dim=1, keepdim=True)
    return size


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("kind", [StrategyDDPG, StrategyTD3, StrategySAC])
def test_updates_weigh_losses(kind: type[StrategyLearner], everywhere: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    policy_kwargs = {"net_arch": [16, 16], "features_extractor_class": InDouble, "optimizer_class": torch.optim.SGD}
    settings: dict[str, Any] = {"policy_kwargs": policy_kwargs, "learning_rate": 0.1, "tau": 0.0, "gamma": 0.98}
    own = {StrategyTD3: {"policy_delay": 1, "target_policy_noise": 0.0}, StrategySAC: {"ent_coef": 0.25}}
    settings |= own.get(kind, {})
    model = learner(kind, f"FIFO[PER+IS(all_networks={str(everywhere).lower()})]", gradient_steps=0, **settings)
    model.policy.double()
    model.learn(50)
    buffer, draw = model.strategy_buffer, model.strategy_buffer.sample
    drawn: list[ReplayBufferSamples] = []
    sizes: list[torch.Tensor] = []

    def weighted(*args: Any, **kwargs: Any) -> ReplayBufferSamples:
        drawn.append(draw(*args, **kwargs))
        buffer.batch.weight[0] = np.random.default_rng(2).uniform(0, 3, 16)
        return drawn[-1]

    monkeypatch.setattr(buffer, "sample", weighted)
    monkeypatch.setattr(buffer, "annotate", sizes.append)
    start, expected = (copy.deepcopy(model.policy) for _ in range(2))
    torch.manual_seed(3)
    model.train(1, 16)
    torch.manual_seed(3)
    size = one_update_written_out(kind, expected, drawn[0], buffer.weights(), 0.1)
    torch.testing.assert_close(sizes, [size], rtol=1e-10, atol=1e-12)
    for mine, theirs in zip(model.policy.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)
    for network in ("actor", "critic"):
        pairs = zip(getattr(model.policy, network).parameters(), getattr(start, network).parameters(), strict=True)
        assert all((mine - before).abs().max() > 1e-6 for mine, before in pairs)


@pytest.mark.parametrize("normalised", [False, True])
def test_attention_gets_its_state_progress_and_learning_rate(normalised: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    env: Any = DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")] * 2)
    env = VecNormalize(env) if normalised else env
    model = learner(StrategyTD3, "FIFO[AER]", env, train_freq=10, gradient_steps=2, learning_rate=0.01)
    contexts: list[Any] = []
    rates: list[float] = []
    replay, optimizer = model.strategy_buffer.replay, model.critic.optimizer
    draw, step = replay.sample, optimizer.step

    def look(context: Any) -> Any:
        contexts.append((context, model._last_original_obs if normalised else model._last_obs))
        return draw(context)

    def noted() -> None:
        step()
        rates.append(optimizer.param_groups[0]["lr"])

    monkeypatch.setattr(replay, "sample", look)
    monkeypatch.setattr(optimizer, "step", noted)
    model.learn(100)
    assert [c.update for c, _ in contexts] == [0, 1] * 4
    assert [c.updates_in_phase for c, _ in contexts] == [2] * 8
    assert [c.progress for c, _ in contexts] == pytest.approx([0.4, 0.4, 0.6, 0.6, 0.8, 0.8, 1.0, 1.0])
    factor = model.strategy_buffer.strategy.sampling.factor
    assert rates == pytest.approx([0.01 * factor(c.progress) for c, _ in contexts])
    agents = {tuple(np.flatnonzero((last == c.state).all(axis=1)).tolist()) for c, last in contexts}
    assert agents == {(0,), (1,)}


@pytest.mark.parametrize("kind", [StrategyTD3, StrategySAC])
def test_exploration_is_measured_when_experience_is_collected(kind: type[StrategyLearner]) -> None:
    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")] * 3))
    noise = NormalActionNoise(np.full(1, 0.25), np.zeros(1))
    model = learner(kind, "Expl(1.2)[Uniform]", env, action_noise=noise, learning_starts=0, gradient_steps=0)
    model.learn(75)
    stored = model.strategy_buffer.replay.columns.column("exploration")[0, :75, 0]
    if kind is StrategyTD3:
        np.testing.assert_allclose(stored, 0.25, atol=1e-6)
    else:
        assert len(np.unique(stored)) > 30
        assert 0 < stored.mean() < 2


@pytest.mark.parametrize(
    ("kind", "strategy"),
    [
        (StrategyDDPG, "TDE(1.2)[Annealed+FIS]"),
        *slow([(StrategyTD3, "Expl(1.2)[ERE+PER]"), (StrategySAC, "Drop(0.3)*FULL[PER+IS(all_networks=true)]")]),
    ],
)
def test_learners_learn_are_saved_and_keep_nothing(kind: type[StrategyLearner], strategy: str, tmp_path: Path) -> None:
    model = learner(kind, strategy, gradient_steps=-1)
    model.learn(50)
    assert model.replay_buffer.replay.updates == 50
    assert not any(module._forward_hooks for module in model.policy.modules())
    assert not any(optimizer._optimizer_step_pre_hooks for optimizer in model._optimizers())
    model.save(tmp_path / "model.zip")
    loaded: Any = kind.load(tmp_path / "model.zip", env=model.get_env(), device="cpu")
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), loaded):
        assert (again.strategy_buffer.strategy, again.strategy_buffer.seed) == (parse(strategy), 1)
        again.learn(50, reset_num_timesteps=False)
        after, before = (dict(each.policy.actor.mu.named_parameters()) for each in (again, model))
        assert not any(torch.equal(value, before[name]) for name, value in after.items())
        assert all(torch.isfinite(value).all() for value in again.policy.parameters())
        orders = again.strategy_buffer.replay.orders
        assert "td_error" not in orders or np.isfinite(orders["td_error"].keys()).any()


def test_learners_refuse_what_they_cannot_serve() -> None:
    with pytest.raises(UserError, match=r"make phases of one update; give ERE\(phase=1000\), or e.g. train_freq"):
        learner(StrategySAC, "FIFO[ERE]", gradient_steps=1)
    learner(StrategySAC, "FIFO[ERE(phase=1000)]", gradient_steps=1)
    with pytest.raises(UserError, match="make phases of one update"):
        learner(StrategyTD3, "FIFO[ERE]", train_freq=1, gradient_steps=-1)
    with pytest.raises(UserError, match="needs replay_buffer_class=StrategyReplayBuffer"):
        learner(StrategyTD3, replay_buffer_class=ReplayBuffer)
    with pytest.raises(UserError, match="gSDE does not allow: leave use_sde at False"):
        learner(StrategySAC, "FIFO[ERE+PER]", use_sde=True)


@pytest.mark.parametrize("name", ["buffer", "learners"])
def test_without_the_library_the_remedy_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.buffers", None)
    for module in ("replaybench.replay.sb3.buffer", f"replaybench.replay.sb3.{name}"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ImportError, match=r"needs Stable-Baselines3: pip install 'replaybench\[sb3\]'"):
        importlib.import_module(f"replaybench.replay.sb3.{name}")


@pytest.mark.parametrize("own", [5, 500])
def test_a_capacity_of_the_strategys_own_comes_first(own: int) -> None:
    """As in studies and offline; a larger one was told and not taken, a smaller one refused."""
    buffer = filled(f"FIFO({own})[Uniform]", adds=30, size=20)
    assert (buffer.buffer_size, buffer.replay.slots) == (own, own)
    assert buffer.size() == min(own, 30)


@pytest.mark.parametrize("added", [40, 64, 150])
def test_sums_over_steps_equal_those_of_stable_baselines3(added: int) -> None:
    """Of every stored step, in buffers that are not full, just full and wrapped; episodes end in both ways."""
    rng, settings = np.random.default_rng(0), dict[str, Any](n_steps=4, gamma=0.9, device="cpu")
    theirs = NStepReplayBuffer(64, BOX, ACTION, **settings)
    ours = StrategyReplayBuffer(64, BOX, ACTION, **settings)
    for _ in range(added):
        done, timeout = rng.random() < 0.2, rng.random() < 0.5
        state, after, action = experience(rng)[:3]
        reward, infos = rng.normal(size=1).astype(np.float32), [{"TimeLimit.truncated": bool(done and timeout)}]
        for buffer in (theirs, ours):
            buffer.add(state, after, action, reward, np.array([done]), infos)
    replay, slots = ours.replay, np.arange(min(added, 64))
    assert replay.traces is not None
    found, steps = n_step_returns(replay.columns, replay.traces.next, slots[None], 4, 0.9)
    known = theirs._get_samples(slots)
    assert known.discounts is not None
    assert len(np.unique(steps)) == 4
    for name, peer in (("reward", "rewards"), ("next_observation", "next_observations"), ("terminated", "dones")):
        np.testing.assert_allclose(
            found[name][0], getattr(known, peer).numpy().reshape(len(slots), -1), rtol=1e-5, atol=1e-6
        )
    np.testing.assert_allclose(0.9 ** steps[0], known.discounts[:, 0], rtol=1e-6)
