"""The training loop of plants, learners and replay buffers: act, step, add; then sample, update, annotate.

Members are independent learners that are simulated together. Each member acts for one episode (`training_episode`) or
for a number of steps (`training_steps`). In the first case, members that have finished their episode wait and store
nothing. In the second case, such members begin another episode. An update phase (`update_phase`) follows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from replaybench.controllers.interface.noise import Explored
from replaybench.controllers.learner import Learner
from replaybench.envs.measures import MEASURES
from replaybench.envs.ode import rk4
from replaybench.envs.ode.plant import with_equations
from replaybench.envs.population import PopulationEnv
from replaybench.replay.buffer import Replay, newest_batch
from replaybench.replay.strategies.interface import Context
from replaybench.runtime.arrays import Bools, Floats, Floats32, Integers
from replaybench.runtime.kernel import kernel


def training_episode(env: PopulationEnv, agent: Learner, replay: Replay, episode: int) -> LiveEpisodes:
    """Run one training episode of every member with exploration, and store the experiences.

    The returned object holds the scores and lengths of the episodes.
    """
    episodes = LiveEpisodes(env, replay.strategy.sampling.needs_state)
    begin(agent, episodes, ~episodes.active, episode)
    while episodes.active.any():
        step(agent, replay, episodes)
    return episodes


def training_steps(agent: Learner, replay: Replay, episodes: LiveEpisodes, steps: int, episode: int) -> None:
    """Run `steps` training steps of every member with exploration, and store the experiences.

    If the episode of a member ends, the next episode begins at once. Exploration depends on `episode`, the number of
    the training iteration.
    """
    for _ in range(steps):
        if not episodes.active.all():
            begin(agent, episodes, ~episodes.active, episode)
        step(agent, replay, episodes)


def begin(agent: Learner, episodes: LiveEpisodes, chosen: Bools, episode: int) -> None:
    """Begin a training episode of the members that the mask `chosen` selects."""
    agent.start_episode(episode, chosen)
    episodes.begin(chosen)


def step(agent: Learner, replay: Replay, episodes: LiveEpisodes) -> None:
    """Choose an action, step the plant and store the experience, for every member with a running episode."""
    observation, active = episodes.observation, episodes.active
    tried = agent.explore(observation, active)
    successor, reward, terminated, truncated, info = episodes.env.step(tried.action)
    ended = terminated | truncated
    replay.add(
        {
            "observation": observation,
            "action": tried.action,
            "reward": reward[:, None],
            "next_observation": successor,
            "terminated": terminated[:, None],
            "exploration": tried.deviation[:, None],
            "sensor_noise": episodes.sensor_noise,
            "actuator_noise": info["actuator_noise"],
            **tried.extras,
            **agent.on_step(reward, successor, terminated, ended & active, active),
        },
        active,
        ended,
    )
    episodes.record(reward, successor, info["sensor_noise"], ended)


def update_phase(agent: Learner, replay: Replay, updates: int, progress: float, episodes: LiveEpisodes) -> None:
    """Update every member `updates` times, with batches from the member's own replay buffer.

    On-policy learners do one more update before these, with the newest experiences. If sampling does not depend on TD
    errors or other results of updates, batches for several updates are sampled together.

    Args:
        progress: Finished fraction of the run or of `horizon_steps`, from 0 to 1, on which sampling schedules depend.
    """
    if agent.schedule.on_policy:
        agent.update(newest_batch(replay))
    chunks = max(1, -(-updates // (replay.max_chunk if agent.supports_chunks else 1)))
    chunk = max(1, -(-updates // chunks))  # chunks of about equal length
    states = episodes.states_for(updates) if replay.strategy.sampling.needs_state else itertools.repeat(None)
    batches = (  # a generator, so that a batch is sampled after the TD errors of the batch before are stored
        replay.sample(Context(first, updates, progress, state), min(chunk, updates - first))
        for first, state in zip(range(0, updates, chunk), states, strict=False)
    )
    for batch in batches:
        annotations = agent.update(batch)
        if replay.uses_feedback:
            replay.annotate(batch, annotations)


class LiveEpisodes:
    """The running training episodes of M members, which are independent learners that are simulated together.

    Args:
        env: The environment of all members.
        keep_observations: Whether to store the observations since the last update phase. Some sampling rules compare
            stored states with these observations.

    Attributes:
        observation: Current observation; float32, shape `[M, S]`.
        sensor_noise: Noise in the current observation; float32, shape `[M, S]`.
        active: Whether each member is in an episode; bool, shape `[M]`. Initially False.
        total: Sum of the rewards of the current episode; float64, shape `[M]`.
        length: Number of steps of the current episode; int64, shape `[M]`.
    """

    def __init__(self, env: PopulationEnv, keep_observations: bool = True) -> None:
        m, shape = env.num_envs, env.single_observation_space.shape or (0,)
        self.env, self._keep_observations = env, keep_observations
        self.observation, self.sensor_noise = (np.zeros((m, *shape), np.float32) for _ in range(2))
        self.active, self._over = np.zeros(m, np.bool_), np.zeros(m, np.bool_)
        self.total, self.length, self._collected = np.zeros(m), np.zeros(m, np.int64), np.zeros(m, np.int64)
        self._observations: list[Floats32] = []
        self._scores, self._lengths, self._ended = np.zeros(m), np.zeros(m), np.zeros(m, np.int64)
        self._measures = np.zeros((m, len(MEASURES)))

    @property
    def reward(self) -> Floats:
        """The mean score `[M]` of the ended episodes of each member; NaN if none has ended."""
        return self._mean(self._scores)

    @property
    def steps(self) -> Floats:
        """The mean number of steps `[M]` of the ended episodes of each member; NaN if none has ended."""
        return self._mean(self._lengths)

    @property
    def measures(self) -> Floats:
        """The mean measures `[M, 8]` of the ended episodes of each member, in the order of `MEASURES`."""
        means: Floats = self._mean(self._measures.T).T
        return means

    def _mean(self, total: Floats) -> Floats:
        return np.where(self._ended > 0, total, np.nan) / np.maximum(self._ended, 1)

    def begin(self, chosen: Bools) -> None:
        """Reset the plants of the members that the mask `chosen` selects, and begin new episodes."""
        self.observation, info = self.env.reset(options={"reset_mask": chosen})
        self.sensor_noise = info["sensor_noise"]
        self.active = self.active | chosen
        self.total[chosen], self.length[chosen] = 0, 0

    def record(self, reward: Floats, successor: Floats32, sensor_noise: Floats32, ended: Bools) -> None:
        """Record one environment step of every member with a running episode. Arrays have a row per member.

        Args:
            sensor_noise: Noise in the next observation `successor`.
            ended: Whether the episode ends with this step.
        """
        if self._keep_observations:
            self._observations.append(self.observation)
        _count_step(self.active, ended, reward, self._collected, self.total, self.length, self._over)
        if self._over.any():
            score = self.env.plant.episode_score(self.total, np.maximum(self.length, 1))
            self._scores += np.where(self._over, score, 0.0)
            self._lengths += np.where(self._over, self.length, 0)
            self._measures[self._over] += self.env.measures()[self._over]
            self._ended += self._over
            self.active = self.active & ~self._over
            self._over[:] = False
        self.observation, self.sensor_noise = successor, sensor_noise

    def states_for(self, updates: int) -> Iterator[Floats32]:
        """Yield one recent observation of each member per update, for attentive replay (Sun et al., 2020).

        Observations have shape `[M, S]`. Update j of U gets observation ⌊jT/U⌋ of the T observations since the last
        update phase. Updates thus pass through the episode in order.
        """
        observations, members = np.stack(self._observations), np.arange(len(self._collected))
        for update in range(updates):
            yield observations[update * self._collected // updates, members]

    def forget_observations(self) -> None:
        """Delete the observations that were stored since the last update phase."""
        self._observations.clear()
        self._collected[:] = 0

    def forget_scores(self) -> None:
        """Delete the scores and lengths of ended episodes."""
        for array in (self._scores, self._lengths, self._ended, self._measures):
            array[:] = 0

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the state of the running episodes for a checkpoint, without the state of the environment."""
        none_yet = np.zeros((len(self.total), 0, self.observation.shape[1]), np.float32)
        return {
            "observation": self.observation,
            "sensor_noise": self.sensor_noise,
            "active": self.active.view(np.uint8),
            "total": self.total,
            "length": self.length,
            "collected": self._collected,
            "seen": np.stack(self._observations, axis=1) if self._observations else none_yet,
        }

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the state that `state_dict` returned."""
        self.observation, self.sensor_noise = (np.array(state[n], np.float32) for n in ("observation", "sensor_noise"))
        self.active = np.asarray(state["active"]) != 0
        self.total[:], self.length[:], self._collected[:] = state["total"], state["length"], state["collected"]
        self._observations = [np.array(row, np.float32) for row in np.asarray(state["seen"]).transpose(1, 0, 2)]


@kernel
def _count_step(
    active: Bools, ended: Bools, reward: Floats, collected: Integers, total: Floats, length: Integers, over: Bools
) -> None:
    """Count a step of the active members, and set `over` for the members whose episode ends with it."""
    for m in range(active.size):
        over[m] = active[m] and ended[m]
        if active[m]:
            collected[m] += 1
            length[m] += 1
            total[m] += reward[m]


class PlantModel:
    """A model that computes synthetic experiences of M members from the noise-free plant and the members' policies."""

    def __init__(self, env: PopulationEnv, agent: Learner) -> None:
        self.env, self.agent = env, agent

    def possible(self, action: Floats32) -> Floats32:
        """Convert random actions with a uniform distribution on [−1, 1] to actions that the learner can choose.

        For discrete actions, all levels are equally likely. Rounding to the nearest level would make the first and the
        last level half as likely. Continuous actions are returned unchanged.
        """
        # Only discrete learners are sure to have a policy head.
        table = self.agent.policy_head().table if self.agent.discrete else None
        if table is None:
            return action
        chosen = np.empty_like(action)
        for a, levels in enumerate(map(np.unique, table.T)):
            place = ((action[:, a] + 1) / 2 * len(levels)).astype(np.int64)
            chosen[:, a] = levels[np.clip(place, 0, len(levels) - 1)]
        return chosen

    def simulate(self, observation: Floats32, action: Floats32) -> tuple[Floats, Floats, Bools]:
        """Simulate one control step of the plant of each member without noise.

        Returns:
            observation: Normalised next states; float64, shape `[M, S]`.
            reward: Unscaled rewards; float64, shape `[M]`.
            terminated: Whether the episode terminates; bool, shape `[M]`.
        """
        plant = with_equations(self.env.plant, "Synth")
        state, u = plant.denormalise_state(observation), plant.denormalise_action(np.clip(action, -1.0, 1.0))
        after, reward, terminated = rk4.simulate(plant, state, u, self.env.dt)
        return plant.normalise_state(after), reward, terminated

    def explore(self, observation: Floats32) -> Explored:
        """Return the exploring actions that the members would choose at these observations in the current step."""
        return self.agent.perturb(observation)

    def deviation(self, observation: Floats32, action: Floats32) -> Floats32:
        """Return the distance ‖a − π(s)‖₁ of each member's action a from that of the member's policy π, `[M]`."""
        return np.asarray(np.abs(action - self.agent.act(observation)).sum(axis=1), np.float32)
