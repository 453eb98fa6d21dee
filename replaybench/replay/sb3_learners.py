"""DDPG, TD3 and SAC of Stable-Baselines3 that give a replay strategy what it asks for.

`train()` is theirs but for what the strategy says of a batch: weights on the losses, a factor on the learning rate, TD
errors handed back. Where all weights and factors are 1 the parameters come out as those of the parent class. This
file knows strategies only through `StrategyReplayBuffer`; the parents' `train()` (MIT licence, Raffin et al. 2021) is
followed line by line, so that it can be compared with theirs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import mse_loss

from replaybench.data.errors import UserError
from replaybench.replay.recency import ERE
from replaybench.replay.sb3 import StrategyReplayBuffer
from replaybench.replay.sb3_feedback import FEEDBACK
from replaybench.replay.setting import Context, Floats

# isort: split
# After `replaybench.replay.sb3`, which says how to install these where they are missing.
from stable_baselines3 import DDPG, SAC, TD3
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.type_aliases import MaybeCallback, ReplayBufferSamples, TrainFrequencyUnit
from stable_baselines3.common.utils import polyak_update

Tensor = torch.Tensor


class StrategyLearner(OffPolicyAlgorithm):
    """What the three share: they make the buffer, tell it what it may know, and take what it says of a batch.

    `replay_buffer_kwargs` takes `strategy` and `seed` (the model's own seed, or 0, if not given).

    Raises:
        UserError: `replay_buffer_class` is not ours, `n_steps` is above 1, or ERE gets phases of one update.
    """

    def _setup_model(self) -> None:
        kind = self.replay_buffer_class = self.replay_buffer_class or StrategyReplayBuffer
        if not issubclass(kind, StrategyReplayBuffer):
            raise UserError(f"{type(self).__name__} needs replay_buffer_class=StrategyReplayBuffer, not {kind}")
        if getattr(self, "n_steps", 1) > 1:  # an older Stable-Baselines3 has none
            raise UserError(f"{type(self).__name__} learns from single steps: leave n_steps at 1")
        if self.replay_buffer is None:
            self.replay_buffer = kind(
                self.buffer_size,
                self.observation_space,
                self.action_space,
                device=self.device,
                n_envs=self.n_envs,
                optimize_memory_usage=self.optimize_memory_usage,
                feedback=FEEDBACK,
                **{"seed": self.seed or 0, **self.replay_buffer_kwargs},
            )
        strategy = self.strategy_buffer.strategy
        if isinstance(strategy.sampling, ERE) and self.gradient_steps == 1:
            raise UserError(
                f"{strategy} draws by the place of an update in its phase, and gradient_steps=1 makes phases of one "
                'update; give e.g. train_freq=(1, "episode"), gradient_steps=-1'
            )
        super()._setup_model()

    @property
    def strategy_buffer(self) -> StrategyReplayBuffer:
        """The replay buffer."""
        if not isinstance(self.replay_buffer, StrategyReplayBuffer):
            raise UserError(f"{type(self).__name__} needs a StrategyReplayBuffer; do not load another kind into it")
        return self.replay_buffer

    def _setup_learn(
        self, total_timesteps: int, callback: MaybeCallback = None, *args: Any, **settings: Any
    ) -> tuple[int, BaseCallback]:
        schedule: Any = self.train_freq
        collected_at_once = self.n_envs * (schedule.frequency if schedule.unit == TrainFrequencyUnit.STEP else 1)
        self.strategy_buffer.require_room(-(-total_timesteps // collected_at_once) * collected_at_once)
        return super()._setup_learn(total_timesteps, callback, *args, **settings)

    def _store_transition(
        self,
        replay_buffer: ReplayBuffer,
        buffer_action: NDArray[Any],
        new_obs: Any,
        reward: NDArray[Any],
        dones: NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> None:
        if "exploration" in self.strategy_buffer.strategy.orders:
            assert self._last_obs is not None
            greedy = self.policy.scale_action(self.predict(self._last_obs, deterministic=True)[0])
            distance = np.abs(buffer_action - greedy).reshape(self.n_envs, -1).sum(axis=1)
            infos = [{**info, "exploration": float(d)} for info, d in zip(infos, distance, strict=True)]
        super()._store_transition(replay_buffer, buffer_action, new_obs, reward, dones, infos)

    def _attended(self) -> Floats | None:
        """Return the observation `[1, S]` that the agent made last, as it is stored; of several agents one in turn."""
        last = self._last_original_obs if self._vec_normalize_env is not None else self._last_obs
        if last is None:
            return None
        return np.asarray(last, np.float32).reshape(self.n_envs, -1)[
            [self.strategy_buffer.replay.updates % self.n_envs]
        ]

    def _draw(
        self, update: int, updates: int, batch_size: int, optimizers: list[torch.optim.Optimizer]
    ) -> tuple[ReplayBufferSamples, Tensor, Tensor]:
        """Draw the batch of one update of a phase and set its learning rate.

        Returns:
            The batch, and the weights `[B, 1]` on the critic's and on the actor's loss.
        """
        buffer = self.strategy_buffer
        progress = min(1.0, max(0.0, 1.0 - self._current_progress_remaining))
        buffer.context = Context(update, updates, progress, self._attended())
        samples = buffer.sample(batch_size, env=self._vec_normalize_env)
        self._update_learning_rate(optimizers)
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            group["lr"] *= buffer.rate_factor
        return samples, *buffer.weights()

    def _critic_loss(self, critics: tuple[Tensor, ...], target: Tensor, weight: Tensor) -> Tensor:
        """Return Σ over critics of the mean of w(Q − y)², and hand back δ = y − Q, its size averaged over critics."""
        self.strategy_buffer.annotate(torch.stack([(target - q).abs() for q in critics]).mean(dim=0))
        return torch.stack([(weight * mse_loss(q, target, reduction="none")).mean() for q in critics]).sum()


class StrategyTD3(StrategyLearner, TD3):
    """TD3 under any strategy but `Synth`."""

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Update `gradient_steps` times, a phase in the words of the strategies."""
        self.policy.set_training_mode(True)
        optimizers = [self.actor.optimizer, self.critic.optimizer]
        actor_losses, critic_losses = [], []
        for update in range(gradient_steps):
            self._n_updates += 1
            batch, weight, actor_weight = self._draw(update, gradient_steps, batch_size, optimizers)
            with torch.no_grad():
                noise = batch.actions.clone().data.normal_(0, self.target_policy_noise)
                noise = noise.clamp(-self.target_noise_clip, self.target_noise_clip)
                next_actions = (self.actor_target(batch.next_observations) + noise).clamp(-1, 1)
                next_q = torch.cat(self.critic_target(batch.next_observations, next_actions), dim=1)
                target = batch.rewards + (1 - batch.dones) * self.gamma * next_q.min(dim=1, keepdim=True).values

            critic_loss = self._critic_loss(self.critic(batch.observations, batch.actions), target, weight)
            critic_losses.append(critic_loss.item())
            _step(self.critic.optimizer, critic_loss)

            if self._n_updates % self.policy_delay == 0:
                q = self.critic.q1_forward(batch.observations, self.actor(batch.observations))
                actor_loss = -(actor_weight * q).mean()
                actor_losses.append(actor_loss.item())
                _step(self.actor.optimizer, actor_loss)
                polyak_update(self.critic.parameters(), self.critic_target.parameters(), self.tau)
                polyak_update(self.actor.parameters(), self.actor_target.parameters(), self.tau)
                polyak_update(self.critic_batch_norm_stats, self.critic_batch_norm_stats_target, 1.0)
                polyak_update(self.actor_batch_norm_stats, self.actor_batch_norm_stats_target, 1.0)

        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        if actor_losses:
            self.logger.record("train/actor_loss", np.mean(actor_losses))
        self.logger.record("train/critic_loss", np.mean(critic_losses))


class StrategyDDPG(StrategyTD3, DDPG):
    """DDPG under any strategy but `Synth`: as in Stable-Baselines3, a TD3 without its additions."""


class StrategySAC(StrategyLearner, SAC):
    """SAC under any strategy but `Synth`. The entropy coefficient is tuned on unweighted samples."""

    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        """Update `gradient_steps` times, a phase in the words of the strategies."""
        self.policy.set_training_mode(True)
        optimizers = [self.actor.optimizer, self.critic.optimizer]
        if self.ent_coef_optimizer is not None:
            optimizers += [self.ent_coef_optimizer]
        losses: dict[str, list[float]] = {"ent_coef": [], "ent_coef_loss": [], "actor_loss": [], "critic_loss": []}
        for update in range(gradient_steps):
            batch, weight, actor_weight = self._draw(update, gradient_steps, batch_size, optimizers)
            if self.use_sde:
                self.actor.reset_noise()
            actions_pi, log_prob = self.actor.action_log_prob(batch.observations)
            log_prob = log_prob.reshape(-1, 1)
            if self.ent_coef_optimizer is not None and self.log_ent_coef is not None:
                ent_coef = torch.exp(self.log_ent_coef.detach())
                ent_coef_loss = -(self.log_ent_coef * (log_prob + float(self.target_entropy)).detach()).mean()
                losses["ent_coef_loss"].append(ent_coef_loss.item())
                _step(self.ent_coef_optimizer, ent_coef_loss)
            else:
                ent_coef = self.ent_coef_tensor
            losses["ent_coef"].append(ent_coef.item())

            with torch.no_grad():
                next_actions, next_log_prob = self.actor.action_log_prob(batch.next_observations)
                next_q = torch.cat(self.critic_target(batch.next_observations, next_actions), dim=1)
                soft = next_q.min(dim=1, keepdim=True).values - ent_coef * next_log_prob.reshape(-1, 1)
                target = batch.rewards + (1 - batch.dones) * self.gamma * soft

            critic_loss = 0.5 * self._critic_loss(self.critic(batch.observations, batch.actions), target, weight)
            losses["critic_loss"].append(critic_loss.item())
            _step(self.critic.optimizer, critic_loss)

            q = torch.cat(self.critic(batch.observations, actions_pi), dim=1).min(dim=1, keepdim=True).values
            actor_loss = (actor_weight * (ent_coef * log_prob - q)).mean()
            losses["actor_loss"].append(actor_loss.item())
            _step(self.actor.optimizer, actor_loss)

            if update % self.target_update_interval == 0:
                polyak_update(self.critic.parameters(), self.critic_target.parameters(), self.tau)
                polyak_update(self.batch_norm_stats, self.batch_norm_stats_target, 1.0)

        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        for name, values in losses.items():
            if values:
                self.logger.record(f"train/{name}", np.mean(values))


def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
