"""The training loop of plants, learners and replay buffers: act, step, add; then sample, update, annotate.

Members are independent learners that are simulated together. Each member acts for one episode (`training_episode`) or
for a number of steps (`training_steps`). In the first case, members that have finished their episode wait and store
nothing. In the second case, such members begin another episode. An update phase (`update_phase`) follows.
"""

import itertools

from replaybench.controllers.learner import Learner
from replaybench.envs.population import PopulationEnv
from replaybench.experiments.episodes import LiveEpisodes
from replaybench.replay.buffer import Replay, newest_batch
from replaybench.replay.strategies.interface import Context
from replaybench.runtime.arrays import Bools


def training_episode(env: PopulationEnv, agent: Learner, replay: Replay, episode: int) -> LiveEpisodes:
    """Run one training episode of every member (independent learner) with exploration, and store the experiences.

    The returned object holds the scores and lengths of the episodes.
    """
    episodes = LiveEpisodes(env, replay.strategy.sampling.needs_state)
    begin(agent, episodes, ~episodes.active, episode)
    while episodes.active.any():
        step(agent, replay, episodes)
    return episodes


def training_steps(agent: Learner, replay: Replay, episodes: LiveEpisodes, steps: int, episode: int) -> None:
    """Run `steps` training steps of every member (independent learner) with exploration, and store the experiences.

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
