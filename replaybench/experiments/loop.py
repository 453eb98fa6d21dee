"""The training loop, where plants, learners and replay meet: act, step, add; then sample, update, annotate.

It reads as the pseudo-code of the papers and knows nothing of files, cells or processes. All members advance in
lockstep; a member whose episode has terminated waits for the others without storing anything.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.agent import Agent
from replaybench.envs.population import PopulationEnv
from replaybench.replay.buffer import Replay
from replaybench.replay.sampling import Context


def training_episode(env: PopulationEnv, agent: Agent, replay: Replay, episode: int) -> NDArray[np.float64]:
    """Run one episode of every member, exploration included, into the buffers.

    Returns:
        Mean reward per step of each member, `[M]`.
    """
    agent.start_episode(episode)
    observation, _ = env.reset()
    active = np.ones(env.num_envs, np.bool_)
    total, steps = np.zeros(env.num_envs), np.zeros(env.num_envs)
    while active.any():
        action = agent.explore(observation, active)
        successor, reward, terminated, truncated, _ = env.step(action)
        replay.add(
            {
                "observation": observation,
                "action": action,
                "reward": reward[:, None],
                "next_observation": successor,
                "terminated": terminated[:, None],
            },
            active,
        )
        total += np.where(active, reward, 0.0)
        steps += active
        active &= ~(terminated | truncated)
        observation = successor
    return total / steps


def update_phase(agent: Agent, replay: Replay, updates: int, progress: float) -> None:
    """Do `updates` updates of every member; `progress` runs from 0 to 1 over the whole run."""
    context = Context(progress=progress)
    for _ in range(updates):
        batch = replay.sample(context)
        replay.annotate(batch, agent.update(batch))
