"""`StrategyReplayBuffer`, which uses the replay strategies in place of Stable-Baselines3's `ReplayBuffer`.

Strategies that need no feedback work with every off-policy algorithm of Stable-Baselines3. Other strategies need
feedback from the training code. The learners in `replaybench.replay.sb3.learners` provide it.
"""

import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from gymnasium import spaces

from replaybench.data.batch import SQUARED, ReplayBatch
from replaybench.data.record import read_record, write_record
from replaybench.replay.buffer import Replay, step_fields
from replaybench.replay.strategies.interface import Context
from replaybench.replay.strategies.notation import parse
from replaybench.replay.strategies.strategy import Strategy
from replaybench.runtime.arrays import Floats32
from replaybench.runtime.errors import UserError, unknown

FEEDBACK: Final = {
    "td_error": "TD errors from the learner",
    "weight": "importance weights in the learner's losses",
    "rate": "a factor on the learner's learning rate",
    "state": "the state that the agent is in",
    "phase": "the place of each update in its phase and the progress of the run",
    "exploration": "each action's distance from the policy's own",
}
"""The feedback that training code can provide to a strategy, with descriptions for error messages."""


def check_feedback(strategy: Strategy, feedback: Collection[str]) -> None:
    """Raise `UserError` if a strategy cannot be used in training code that provides this feedback."""
    for name in feedback:
        if name not in FEEDBACK:
            raise unknown("feedback", name, FEEDBACK)
    if strategy.synth is not None:
        raise UserError(
            f"{strategy}: Synth needs the plant's model, which Stable-Baselines3 does not have; leave Synth out"
        )
    if strategy.mix is not None:
        raise UserError(f"{strategy}: Mix needs a buffer file of a study's plant; leave Mix out, or use a study")
    if strategy.refer is not None:
        raise UserError(
            f"{strategy}: ReFER changes the learner's gradients, which Stable-Baselines3 does not support; "
            "leave ReFER out"
        )
    if strategy.sampling.critic_loss != SQUARED:
        raise UserError(
            f"{strategy} replaces the critic's squared loss, which Stable-Baselines3 does not support; use PERprop, or "
            "replaybench's own learners"
        )
    missing = [FEEDBACK[name] for name in needs(strategy) if name not in feedback]
    if missing:
        raise UserError(
            f"{strategy} needs {' and '.join(missing)}, which this training code does not provide; use StrategyDDPG, "
            "StrategyTD3 or StrategySAC from replaybench.replay.sb3.learners"
        )


def needs(strategy: Strategy) -> tuple[str, ...]:
    """Return the names of the entries of `FEEDBACK` that a strategy needs."""
    required = {
        "td_error": strategy.by_td_error,
        "weight": strategy.weights is not None,
        "rate": "rate" in strategy.sampling.feedback,
        "state": strategy.sampling.needs_state,
        "phase": "phase" in strategy.sampling.feedback or strategy.weights is not None,
        "exploration": "exploration" in strategy.orders,
    }
    return tuple(name for name, needed in required.items() if needed)


try:
    from stable_baselines3.common.buffers import BaseBuffer, ReplayBuffer
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
    from stable_baselines3.common.preprocessing import is_image_space
    from stable_baselines3.common.type_aliases import ReplayBufferSamples
    from stable_baselines3.common.vec_env import VecNormalize
except ModuleNotFoundError as error:
    raise ImportError(
        "replaybench.replay.sb3.buffer needs Stable-Baselines3: pip install 'replaybench[sb3]'"
    ) from error

KIND: Final = "sb3-buffer"


class StrategyReplayBuffer(ReplayBuffer):
    """A replay buffer for Stable-Baselines3 that uses one of this package's strategies.

    All environments share one buffer. Steps of several environments are added in turn, so age is the order of arrival.
    With several environments, the ends of episodes are not recorded.

    Some strategies need feedback from the training code. The training code lists in `feedback` what it provides:

    - `phase`, `state`: It sets `context` before each `sample`, or calls `set_contexts` before several calls.
    - `weight`: It multiplies the critic's squared errors by `weights()[0]`, and the terms of the actor's loss by
      `weights()[1]`.
    - `rate`: It multiplies the learning rate by `rate_factor`.
    - `td_error`: It passes the TD errors δ to `annotate`.
    - `exploration`: It stores ‖a − π(s)‖₁ in `infos[i]["exploration"]`.

    Args:
        buffer_size: Capacity in experiences over all environments, unless the strategy sets a capacity. With `FULL`
            retention, give the number of experiences of the run.
        observation_space: Box of any shape except images. Observations are stored as float32.
        action_space: Box, or Discrete for DQN.
        device, n_envs: As in Stable-Baselines3.
        optimize_memory_usage: Must be False.
        handle_timeout_termination: Whether targets still bootstrap if a time limit ended the episode.
        strategy: Strategy in its notation, such as `FIFO[Uniform]`, or parsed.
        seed: Root seed of the strategy's own random streams.
        feedback: Names of the feedback that the training code provides, from `FEEDBACK`.
        n_steps, gamma: Number of steps whose rewards are summed, and the discount factor in these sums, as in
            Stable-Baselines3's `NStepReplayBuffer`. By default, those of the algorithm that makes the buffer.

    Attributes:
        context: Progress of the training and state of the agent for the next `sample`.
        replay: The wrapped `Replay`, which holds this one buffer.

    Raises:
        UserError: The strategy needs feedback that is not provided, or the spaces or settings are not supported. This
            includes n-step returns with several environments or normalised rewards.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        strategy: str | Strategy = "FIFO[Uniform]",
        seed: int = 0,
        feedback: Collection[str] = (),
        n_steps: int | None = None,
        gamma: float | None = None,
    ) -> None:
        _check_spaces(observation_space, action_space)
        if optimize_memory_usage:
            raise UserError("StrategyReplayBuffer stores every successor itself: set optimize_memory_usage=False")
        steps, discount = _algorithms_returns()
        self.n_steps, self.gamma = steps if n_steps is None else n_steps, discount if gamma is None else gamma
        if self.n_steps > 1 and n_envs > 1:
            raise UserError(f"n-step returns need one environment, not {n_envs}: their experiences are stored in turn")
        self.strategy = parse(strategy) if isinstance(strategy, str) else strategy
        # Not ReplayBuffer's own constructor, which would reserve a second set of columns.
        room = self.strategy.capacity_or(int(buffer_size))
        BaseBuffer.__init__(self, room, observation_space, action_space, device, n_envs)
        if n_envs > 1 and self.strategy.sampling.needs_episodes:
            raise UserError(f"{self.strategy} needs the ends of episodes: use one environment, not {n_envs}")
        self.seed = seed
        self.optimize_memory_usage, self.handle_timeout_termination = False, handle_timeout_termination
        check_feedback(self.strategy, feedback)
        self.reset()

    def reset(self) -> None:
        """Empty the buffer, and restart its random streams from the seed."""
        fields = step_fields(int(np.prod(self.obs_shape)), self.action_dim)
        if "exploration" in self.strategy.orders:
            fields["exploration"] = 1
        self.replay = Replay(
            self.strategy,
            fields,
            self.buffer_size,
            self.seed,
            range(1),
            batch_size=1,
            n_step=self.n_steps,
            discount=self.gamma,
        )
        self.context = Context()
        self._contexts: Iterator[Context] = iter(())
        self._batch: ReplayBatch | None = None
        self._place()

    def _place(self) -> None:
        """Update `full` and `pos`, from which Stable-Baselines3 reads how full the buffer is."""
        count, in_turn = int(self.replay.count[0]), self.strategy.in_turn
        self.full = count == self.buffer_size
        self.pos = (int(self.replay.offers[0]) if in_turn else count) % self.buffer_size

    def add(
        self,
        obs: np.ndarray,
        next_obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        done: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        """Add one experience of each environment, given as arrays of shape `[n_envs, …]`.

        Raises:
            UserError: The strategy stores all experiences (`FULL`), and the buffer has no space left.
        """
        n = self.n_envs
        timeout = [self.handle_timeout_termination and info.get("TimeLimit.truncated", False) for info in infos]
        columns = {
            "observation": np.reshape(obs, (n, -1)),
            "action": np.reshape(action, (n, -1)),
            "reward": np.reshape(reward, (n, 1)),
            "next_observation": np.reshape(next_obs, (n, -1)),
            "terminated": np.reshape(done, (n, 1)).astype(np.bool_) & ~np.reshape(timeout, (n, 1)).astype(np.bool_),
        }
        if "exploration" in self.replay.columns.fields:
            columns["exploration"] = np.reshape([info["exploration"] for info in infos], (n, 1))
        ended = np.asarray(done, np.bool_) if n == 1 else None
        for i in range(n):
            row = {name: column[i : i + 1] for name, column in columns.items()}
            try:
                self.replay.add(row, np.ones(1, np.bool_), ended)
            except OverflowError:
                raise UserError(self._no_room()) from None
        self._place()

    def require_room(self, experiences: int) -> None:
        """Raise `UserError` if the strategy is `FULL` and this number of new experiences does not fit."""
        if not self.strategy.retention.bounded and self.strategy.drop is None:
            needed = int(self.replay.count[0]) + experiences
            if needed > self.buffer_size:
                raise UserError(f"{self._no_room()}, {needed} or more")

    def _no_room(self) -> str:
        return (
            f"{self.strategy} keeps everything, which is more than buffer_size={self.buffer_size} experiences; "
            "give buffer_size the number of steps of the whole run"
        )

    def set_contexts(self, contexts: Iterable[Context]) -> None:
        """Set the contexts of the next calls of `sample`, in order. Discard contexts that were set before."""
        self._contexts = iter(contexts)

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> ReplayBufferSamples:
        """Sample a batch by the strategy and return tensors of shape `[B, …]`, normalised by `env`.

        Raises:
            UserError: The buffer is empty.
        """
        if not self.replay.count[0]:
            raise UserError("nothing is stored yet to be replayed; give a larger learning_starts")
        if batch_size != self.replay.batch_size:
            self.replay.batch_size = batch_size
        self.context = next(self._contexts, self.context)
        self._batch = batch = self.replay.sample(self.context)
        samples = self._samples({name: column[0] for name, column in batch.columns.items()}, env)
        if batch.steps is None:
            return samples
        if env is not None and env.norm_reward:
            raise UserError("n-step returns do not sum normalised rewards: set norm_reward=False of VecNormalize")
        return samples._replace(discounts=self.to_torch(self.gamma ** batch.steps[0, :, None].astype(np.float32)))

    def _get_samples(self, batch_inds: np.ndarray, env: VecNormalize | None = None) -> ReplayBufferSamples:
        columns = self.replay.columns
        return self._samples({name: columns.column(name)[0, batch_inds] for name in columns.fields}, env)

    def _samples(self, columns: Mapping[str, Floats32], env: VecNormalize | None) -> ReplayBufferSamples:
        observations, successors = (
            self._normalize_obs(columns[name].reshape(-1, *self.obs_shape), env)
            for name in ("observation", "next_observation")
        )
        actions = columns["action"].astype(self._maybe_cast_dtype(self.action_space.dtype))
        rewards = self._normalize_reward(columns["reward"], env)
        arrays = (observations, actions, successors, columns["terminated"], rewards)
        return ReplayBufferSamples(*(self.to_torch(np.asarray(array)) for array in arrays))

    @property
    def batch(self) -> ReplayBatch:
        """The last sampled batch as NumPy arrays. The next call of `sample` overwrites them."""
        if self._batch is None:
            raise ValueError("no batch was drawn yet")
        return self._batch

    def weights(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return two tensors `[B, 1]` with the weight of each sample of the last batch in critic and actor loss."""
        batch = self.batch
        return self.to_torch(batch.weight[0, :, None]), self.to_torch(batch.actor_weight[0, :, None])

    @property
    def rate_factor(self) -> float:
        """Factor by which training code multiplies the learning rate for the last batch."""
        return float(self.batch.rate_factor[0])

    def annotate(self, td_error: torch.Tensor) -> None:
        """Pass the TD errors of the last batch, shape `[B]` or `[B, 1]`, to the strategy."""
        error = td_error.detach().reshape(1, -1).to("cpu", torch.float32).numpy()
        self.replay.annotate(self.batch, {"td_error": error})

    def save(self, path: str | Path) -> None:
        """Write the contents of the buffer and its random streams to an HDF5 file with checksums, without pickle.

        Raises:
            UserError: The file cannot be written. An existing file at `path` is unchanged.
        """
        write_record(Path(path), KIND, self._facts(), self.replay.state_dict(lazy=True))

    def load(self, path: str | Path) -> None:
        """Load a file that `save` wrote, so that the buffer draws the same samples as the saved one.

        Raises:
            UserError: The file is damaged, was not written by `save`, or has other settings. The buffer is then
                unchanged.
        """
        header, arrays = read_record(Path(path), KIND)
        for name, own in self._facts().items():
            if (found := header.facts.get(name)) != own:
                raise UserError(f"{path} has {name} {found}, this buffer {own}; make the buffer with the same settings")
        present = self.__getstate__()
        try:
            if arrays["count"][0] > arrays["serial"].shape[1]:
                raise ValueError("its count exceeds its number of slots")
            self.__setstate__({**present, "arrays": arrays})
        except (KeyError, ValueError, IndexError) as error:
            self.__setstate__(present)
            raise UserError(f"{path} does not hold a whole buffer: {error}") from None

    def _facts(self) -> dict[str, Any]:
        """Return the settings that a saved buffer and the buffer that loads it must have in common."""
        return {
            "strategy": str(self.strategy),
            "buffer_size": self.buffer_size,
            "seed": self.seed,
            "n_envs": self.n_envs,
            "handle_timeout_termination": self.handle_timeout_termination,
            "fields": self.replay.columns.fields,
            "n_steps": self.n_steps,
            "gamma": self.gamma,
        }

    def __getstate__(self) -> dict[str, Any]:
        # For copies and for Stable-Baselines3's save_replay_buffer: the wrapped buffer holds views of its arrays,
        # which would be restored as separate arrays.
        rest = {name: value for name, value in vars(self).items() if name not in ("replay", "_batch")}
        return {**rest, "arrays": {name: array.copy() for name, array in self.replay.state_dict().items()}}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update({name: value for name, value in state.items() if name != "arrays"})
        context = self.context
        self.reset()
        self.replay.load_state_dict(state["arrays"])
        self.context = context
        self._place()


def _algorithms_returns() -> tuple[int, float]:
    """Return `n_steps` and `gamma` of the algorithm whose constructor is running, or 1 and 0.99.

    Stable-Baselines3 passes these settings to no buffer class that a user chooses, and would silently train with
    single-step returns.
    """
    callers = (frame.f_locals.get("self") for frame, _ in traceback.walk_stack(None))
    algorithm = next((caller for caller in callers if isinstance(caller, OffPolicyAlgorithm)), None)
    return getattr(algorithm, "n_steps", 1), getattr(algorithm, "gamma", 0.99)


def _check_spaces(observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
    if isinstance(observation_space, spaces.Dict | spaces.Tuple):
        raise UserError("StrategyReplayBuffer stores vectors, not Dict observations; flatten them (FlattenObservation)")
    if is_image_space(observation_space):
        raise UserError("StrategyReplayBuffer stores vectors, not images; use Stable-Baselines3's ReplayBuffer")
    if not isinstance(observation_space, spaces.Box):
        raise UserError(f"StrategyReplayBuffer needs Box observations, not {observation_space}; flatten them")
    if not isinstance(action_space, spaces.Box | spaces.Discrete):
        raise UserError(f"StrategyReplayBuffer needs Box or Discrete actions, not {action_space}")
