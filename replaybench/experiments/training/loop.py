"""The training loop, where plants, learners and replay meet: act, step, add; then sample, update, annotate.

It reads as the pseudo-code of the papers and knows nothing of files, cells or processes. Members act either for an
episode each, those whose episode has ended waiting for the others without storing anything, or for a number of steps,
in which each begins another episode whenever one has ended. A phase of updates follows.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.agent import Agent
from replaybench.data.compilation.sequence import run
from replaybench.envs.population import PopulationEnv
from replaybench.experiments.training.episodes import LiveEpisodes
from replaybench.experiments.training.strides import act_in_strides
from replaybench.replay.buffer import Replay
from replaybench.replay.files.buffer_stream import BufferStream
from replaybench.replay.newest import newest_batch
from replaybench.replay.phase import annotation_calls, sampling_calls
from replaybench.replay.strategies.view import Context


def training_episode(env: PopulationEnv, agent: Agent, replay: Replay, episode: int) -> LiveEpisodes:
    """Run one episode of every member, exploration included, into the buffers; return what it was like."""
    episodes = LiveEpisodes(env, replay.strategy.sampling.needs_state)
    begin(agent, episodes, ~episodes.active, episode)
    if not act_in_strides(agent, replay, episodes, env.steps_per_episode):
        while episodes.active.any():
            step(agent, replay, episodes)
    return episodes


def training_steps(agent: Agent, replay: Replay, episodes: LiveEpisodes, steps: int, episode: int) -> None:
    """Run `steps` steps of every member in round `episode`; each begins another episode when one has ended."""
    if act_in_strides(agent, replay, episodes, steps, lambda chosen: begin(agent, episodes, chosen, episode)):
        return
    for _ in range(steps):
        if not episodes.active.all():
            begin(agent, episodes, ~episodes.active, episode)
        step(agent, replay, episodes)


def begin(agent: Agent, episodes: LiveEpisodes, chosen: NDArray[np.bool_], episode: int) -> None:
    """Begin a training episode of the chosen members `[M]`; the others' are left as they are."""
    agent.start_episode(episode, chosen)
    episodes.begin(chosen)


def step(agent: Agent, replay: Replay, episodes: LiveEpisodes) -> None:
    """Let every member that is in an episode act, step and add."""
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
    episodes.note(reward, successor, info["sensor_noise"], ended)


def update_phase(agent: Agent, replay: Replay, updates: int, progress: float, episodes: LiveEpisodes) -> None:
    """Do `updates` updates of every member after a phase of acting; `progress` runs from 0 to 1 over the whole run.

    Learners on policy first do one on the newest experiences, of which nothing is annotated: they were not drawn. Where
    draws do not depend on what the learner returns, it need not return anything, nor be waited for, and a few batches
    at a time are drawn and learned from. Where they do, each member has its updates one after the other, if possible.
    """
    if agent.on_policy:
        agent.update(newest_batch(replay))
    if replay.at_once == 1 and agent.learns_in_phases and _update_in_turn(agent, replay, updates, progress, episodes):
        return
    most = _evenly(updates, replay.at_once if agent.several_at_once else 1)
    states = episodes.attended(updates) if replay.strategy.sampling.needs_state else itertools.repeat(None)
    batches = (
        replay.sample(Context(first, updates, progress, state), min(most, updates - first))
        for first, state in zip(range(0, updates, most), states, strict=False)
    )
    if not replay.uses_feedback:
        agent.update_all(batches)
        return
    for batch in batches:
        replay.annotate(batch, agent.update(batch))


def _update_in_turn(agent: Agent, replay: Replay, updates: int, progress: float, episodes: LiveEpisodes) -> bool:
    """Do a phase's updates, a few of each member after the other; False if that cannot be, or is no use: undone."""
    most = _evenly(updates, replay.handful)
    if most == 1:
        return False
    states = episodes.attended(updates) if replay.strategy.sampling.needs_state else itertools.repeat(None, updates)
    contexts = [Context(update, updates, progress, state) for update, state in enumerate(states)]
    for first in range(0, updates, most):
        some = contexts[first : first + most]
        if (drawn := sampling_calls(replay, some)) is None:
            return False
        batch, drawing = drawn
        learning, annotations = agent.phase_call(batch, len(some))
        noting = annotation_calls(replay, batch, annotations, len(some))
        run([*drawing, learning, *noting], len(batch.idx), len(some))
    return True


def _evenly(updates: int, most: int) -> int:
    """Return into how many updates a phase is cut: at most so many, as many each time if possible, at least 1."""
    return max(1, -(-updates // max(1, -(-updates // most))))


def update_once(agent: Agent, replay: Replay | BufferStream, context: Context) -> None:
    """Sample, update, annotate."""
    batch = replay.sample(context)
    replay.annotate(batch, agent.update(batch))
