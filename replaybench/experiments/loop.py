"""The training loop, where plants, learners and replay meet: act, step, add; then sample, update, annotate.

It reads as the pseudo-code of the papers and knows nothing of files, cells or processes. All members advance in
lockstep; a member whose episode has terminated waits for the others without storing anything.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.agent import Agent
from replaybench.envs.population import PopulationEnv
from replaybench.replay.buffer import Replay
from replaybench.replay.looks import newest
from replaybench.replay.setting import Context
from replaybench.replay.stream import BufferStream


class Episode(NamedTuple):
    """What an episode of every member was like.

    Attributes:
        reward: mean reward per step float64 `[M]`, exploration included.
        observation: what the agents saw, float32 `[T, M, S]`.
        steps: length of each member's episode int64 `[M]`; the longest is T.
    """

    reward: NDArray[np.float64]
    observation: NDArray[np.float32]
    steps: NDArray[np.int64]

    def attended(self, update: int, updates: int) -> NDArray[np.float32]:
        """Return the observation `[M, S]` that update j of U attends to: number ⌊jT/U⌋ of each member's episode."""
        return self.observation[update * self.steps // updates, np.arange(len(self.steps))]


def training_episode(env: PopulationEnv, agent: Agent, replay: Replay, episode: int) -> Episode:
    """Run one episode of every member, exploration included, into the buffers."""
    agent.start_episode(episode)
    observation, info = env.reset()
    active = np.ones(env.num_envs, np.bool_)
    total, steps, seen = np.zeros(env.num_envs), np.zeros(env.num_envs, np.int64), []
    while active.any():
        seen.append(observation)
        tried = agent.explore(observation, active)
        sensor_noise = info["sensor_noise"]
        successor, reward, terminated, truncated, info = env.step(tried.action)
        ended = terminated | truncated
        replay.add(
            {
                "observation": observation,
                "action": tried.action,
                "reward": reward[:, None],
                "next_observation": successor,
                "terminated": terminated[:, None],
                "exploration": tried.deviation[:, None],
                "sensor_noise": sensor_noise,
                "actuator_noise": info["actuator_noise"],
                **tried.extras,
                **agent.followed(reward, successor, terminated, ended & active, active),
            },
            active,
            ended,
        )
        total += np.where(active, reward, 0.0)
        steps += active
        active &= ~ended
        observation = successor
    return Episode(total / steps, np.stack(seen), steps)


def update_phase(agent: Agent, replay: Replay, updates: int, progress: float, episode: Episode) -> None:
    """Do `updates` updates of every member after an episode; `progress` runs from 0 to 1 over the whole run.

    Learners on policy first do one on the newest experiences, of which nothing is annotated: they were not drawn. Where
    draws do not depend on what the learner returns, it need not return anything, nor be waited for.
    """
    if agent.on_policy:
        agent.update(newest(replay))
    contexts = (Context(update, updates, progress, episode.attended(update, updates)) for update in range(updates))
    if not replay.heeds_learner:
        agent.update_all(map(replay.sample, contexts))
        return
    for context in contexts:
        update_once(agent, replay, context)


def update_once(agent: Agent, replay: Replay | BufferStream, context: Context) -> None:
    """Sample, update, annotate."""
    batch = replay.sample(context)
    replay.annotate(batch, agent.update(batch))
