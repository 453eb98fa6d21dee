"""DDPG, TD3 and SAC of Stable-Baselines3 with the feedback that replay strategies need.

An update phase is one call of Stable-Baselines3's own, unchanged method `train()`. Hooks multiply gradients by weights.
The results are the gradients of weighted losses. Hooks also compute |δ| from the gradient of the critics' squared
errors, and set the learning rate before each step of an optimizer. Only the hooks that the strategy needs are
installed, and only during a phase. Therefore copies and saved files contain no hooks.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

import numpy as np
import torch
from torch.autograd.graph import register_multi_grad_hook

from replaybench.replay.sb3.buffer import FEEDBACK, StrategyReplayBuffer, needs
from replaybench.replay.strategies.interface import Context
from replaybench.runtime.arrays import Floats32
from replaybench.runtime.errors import UserError

# isort: split
# After `replaybench.replay.sb3.buffer`, whose error names the command that installs missing packages.
from stable_baselines3 import DDPG, SAC, TD3
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.policies import ContinuousCritic
from stable_baselines3.common.type_aliases import MaybeCallback, TrainFrequencyUnit

Tensor = torch.Tensor


class StrategyLearner(OffPolicyAlgorithm):
    """Base class of the Stable-Baselines3 algorithms that train with a `StrategyReplayBuffer`.

    The class creates the buffer, and applies the strategy's weights and learning-rate factors. `replay_buffer_kwargs`
    can contain `strategy` and `seed`. The default of `seed` is the model's own seed, or 0 if the model has none.

    Raises:
        UserError: `replay_buffer_class` is not of this package, the buffer does not support a setting, or the strategy
            uses ERE although each call of `train` does one update only.
    """

    critic: ContinuousCritic
    critic_factor: ClassVar[float]
    """The factor c in the loss of a critic, which is c times the mean of (Q − y)² for targets y."""

    def _setup_model(self) -> None:
        buffer = self.replay_buffer_class = self.replay_buffer_class or StrategyReplayBuffer
        if not issubclass(buffer, StrategyReplayBuffer):
            raise UserError(f"{type(self).__name__} needs replay_buffer_class=StrategyReplayBuffer, not {buffer}")
        if self.replay_buffer is None:
            self.replay_buffer = buffer(
                self.buffer_size,
                self.observation_space,
                self.action_space,
                device=self.device,
                n_envs=self.n_envs,
                optimize_memory_usage=self.optimize_memory_usage,
                feedback=FEEDBACK,
                **{"seed": self.seed or 0, **self.replay_buffer_kwargs},
            )
        super()._setup_model()
        strategy = self.strategy_buffer.strategy
        if strategy.sampling.needs_phase and self._phase_updates() == 1:
            raise UserError(
                f"{strategy} draws by the place of an update in its phase, and these settings make phases of one "
                'update; give ERE(phase=1000), or e.g. train_freq=(1, "episode"), gradient_steps=-1'
            )

    def _collected_at_once(self) -> int:
        """Return the smallest number of experiences that are collected between two calls of `train`."""
        schedule: Any = self.train_freq
        return self.n_envs * (int(schedule.frequency) if schedule.unit == TrainFrequencyUnit.STEP else 1)

    def _phase_updates(self) -> int | None:
        """Return the number of updates per call of `train`, or None if the number depends on episode lengths."""
        schedule: Any = self.train_freq
        if self.gradient_steps >= 0:
            return self.gradient_steps
        return self._collected_at_once() if schedule.unit == TrainFrequencyUnit.STEP else None

    @property
    def strategy_buffer(self) -> StrategyReplayBuffer:
        """The replay buffer of the algorithm."""
        if not isinstance(self.replay_buffer, StrategyReplayBuffer):
            raise UserError(f"{type(self).__name__} needs a StrategyReplayBuffer; do not load another kind into it")
        return self.replay_buffer

    def _setup_learn(
        self, total_timesteps: int, callback: MaybeCallback = None, *args: Any, **settings: Any
    ) -> tuple[int, BaseCallback]:
        at_once = self._collected_at_once()
        self.strategy_buffer.require_room(-(-total_timesteps // at_once) * at_once)
        return super()._setup_learn(total_timesteps, callback, *args, **settings)

    def _store_transition(
        self,
        replay_buffer: ReplayBuffer,
        buffer_action: np.ndarray,
        new_obs: Any,
        reward: np.ndarray,
        dones: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        if "exploration" in self.strategy_buffer.strategy.orders:
            assert self._last_obs is not None
            greedy = self.policy.scale_action(self.predict(self._last_obs, deterministic=True)[0])
            distance = np.abs(buffer_action - greedy).reshape(self.n_envs, -1).sum(axis=1)
            infos = [{**info, "exploration": float(d)} for info, d in zip(infos, distance, strict=True)]
        super()._store_transition(replay_buffer, buffer_action, new_obs, reward, dones, infos)

    def _latest_observation(self) -> Floats32 | None:
        """Return the latest observation, shape `[1, S]`. Successive calls take the environments in turn."""
        last = self._last_original_obs if self._vec_normalize_env is not None else self._last_obs
        if last is None:
            return None
        return np.asarray(last, np.float32).reshape(self.n_envs, -1)[
            [self.strategy_buffer.replay.updates % self.n_envs]
        ]

    def train(self, gradient_steps: int, *arguments: Any, **settings: Any) -> None:
        """Do `gradient_steps` updates by Stable-Baselines3's own `train`.

        The strategy chooses samples, weights and factors on the learning rate, and receives the TD errors.
        """
        buffer = self.strategy_buffer
        needed, weights = needs(buffer.strategy), buffer.strategy.weights
        with ExitStack() as hooks:
            hooks.callback(buffer.set_contexts, ())
            buffer.set_contexts(self._contexts(gradient_steps))
            if "td_error" in needed or "weight" in needed:
                hooks.enter_context(self.critic.register_forward_hook(self._on_critics))
            if weights is not None and weights.all_networks:
                for module in self._actor_outputs():
                    hooks.enter_context(module.register_forward_hook(self._on_actor))
            if "rate" in needed:
                for optimizer in self._optimizers():
                    hooks.enter_context(optimizer.register_step_pre_hook(self._on_step_of))
            super().train(gradient_steps, *arguments, **settings)

    def _contexts(self, updates: int) -> Iterator[Context]:
        progress = min(1.0, max(0.0, 1.0 - self._current_progress_remaining))
        for update in range(updates):
            yield Context(update, updates, progress, self._latest_observation())

    def _on_critics(self, module: torch.nn.Module, arguments: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        """Install hooks that weight the critics' squared errors at the Q values in `values` and store |δ|."""
        if arguments[1].requires_grad or not torch.is_grad_enabled():
            return  # this pass belongs to the actor or to a target
        # Registered before the weights, which are not part of δ.
        register_multi_grad_hook(values, self._on_errors)
        if "weight" in needs(self.strategy_buffer.strategy):
            weight, _ = self.strategy_buffer.weights()
            for value in values:
                value.register_hook(weight.mul)

    def _on_errors(self, gradients: Sequence[Tensor | None]) -> None:
        """Compute |δ| from the gradients of the critics' losses with respect to Q, and pass it to the buffer.

        |δ| is the mean of |Q − y| over the critics. With c = `critic_factor`, the loss c · mean((Q − y)²) over B
        samples has the gradient 2 c (Q − y) / B.
        """
        sizes = torch.stack([gradient.abs() for gradient in gradients if gradient is not None]).mean(dim=0)
        self.strategy_buffer.annotate(sizes * (len(sizes) / (2 * self.critic_factor)))

    def _on_actor(self, module: torch.nn.Module, arguments: object, output: Tensor) -> None:
        """Install a hook that weights the gradient of the actor's loss at each row (sample) of these outputs."""
        if output.requires_grad:
            _, weight = self.strategy_buffer.weights()
            output.register_hook(weight.mul)

    def _on_step_of(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        rate = self.lr_schedule(self._current_progress_remaining) * self.strategy_buffer.rate_factor
        for group in optimizer.param_groups:
            group["lr"] = rate

    def _actor_outputs(self) -> list[torch.nn.Module]:
        """Return the modules whose outputs `[B, …]` pass on all gradients of the actor's loss."""
        raise NotImplementedError

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        raise NotImplementedError


class StrategyTD3(StrategyLearner, TD3):
    """Stable-Baselines3's TD3 with any replay strategy except those with `Synth` or `ReFER`."""

    critic_factor = 1.0

    def _actor_outputs(self) -> list[torch.nn.Module]:
        return [self.actor]

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        return [self.actor.optimizer, self.critic.optimizer]


class StrategyDDPG(StrategyTD3, DDPG):
    """Stable-Baselines3's DDPG with any replay strategy except those with `Synth` or `ReFER`."""


class StrategySAC(StrategyLearner, SAC):
    """Stable-Baselines3's SAC with any replay strategy except those with `Synth` or `ReFER`.

    The strategy's weights do not apply to the loss of the entropy coefficient.

    Raises:
        UserError: The strategy weights the actor's loss, and `use_sde` is True.
    """

    critic_factor = 0.5

    def _setup_model(self) -> None:
        super()._setup_model()
        strategy = self.strategy_buffer.strategy
        if self.use_sde and strategy.weights is not None and strategy.weights.all_networks:
            # The noise of gSDE has one standard deviation for all samples, whose gradient cannot be weighted by sample.
            raise UserError(f"{strategy} weights the actor's loss, which gSDE does not allow: leave use_sde at False")

    def _actor_outputs(self) -> list[torch.nn.Module]:
        return [self.actor.get_submodule(name) for name in ("mu", "log_std")]

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        entropy = [] if self.ent_coef_optimizer is None else [self.ent_coef_optimizer]
        return [self.actor.optimizer, self.critic.optimizer, *entropy]
