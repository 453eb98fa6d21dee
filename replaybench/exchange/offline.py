"""Offline replay, which is training from a stored buffer with evaluation on the plant.

A recording is the buffer of one independent run. The stored experiences are first added to empty buffers in their
original order, through the retention rule of the strategy. Training follows, in update phases as long as those after an
episode. Learner i replays the i-th usable recording. If there are more learners than recordings, the recordings repeat
in order. Some strategies sample by the agent's state. Such strategies get the observations of the recording, from the
first to the last. For a recording that does not fit into memory, batches are read from its file instead.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from replaybench.baselines.controllers import run_episode
from replaybench.controllers.interface.agent import LearnerSetting
from replaybench.controllers.learner import Learner
from replaybench.controllers.registry import load_learner, variant_settings
from replaybench.data.batch import MEMORY
from replaybench.envs.population import PopulationEnv
from replaybench.experiments.cell import stored_fields
from replaybench.experiments.loop import PlantModel
from replaybench.experiments.recorded_buffer import Recording
from replaybench.experiments.schedule import updates_after, with_phases
from replaybench.replay.buffer import Replay
from replaybench.replay.buffer_stream import BufferStream
from replaybench.replay.storage.slots import Unit
from replaybench.replay.strategies.interface import Context
from replaybench.replay.strategies.strategy import Strategy
from replaybench.runtime.arrays import Floats, Integers
from replaybench.runtime.configuration import build, merged
from replaybench.runtime.errors import UserError


@dataclass(frozen=True)
class Changes:
    """Deviations of an offline replay from the conditions under which the buffer was recorded.

    Attributes:
        discount: Discount factor per control step. If None, that of the recorded run is used.
        noise: Standard deviation of the normalised noise in evaluation. If None, that of the recorded run is used.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    discount: float | None = None
    noise: float | None = None


NO_CHANGES: Final = Changes()
EVALUATIONS = 20


@dataclass(frozen=True)
class Outcome:
    """Results of an offline replay with K evaluations.

    Attributes:
        updates: Number of updates before each evaluation, `[K]`; the first is 0.
        reward: Score of the greedy episode in each evaluation, `[learners, K]`.
    """

    updates: Integers
    reward: Floats
    agent: Learner


def replay_offline(
    recording: Recording,
    strategy: Strategy,
    *,
    updates: int,
    learner: str,
    learners: int,
    capacity: int | None,
    root_seed: int,
    progress: Callable[[int], None],
    changes: Changes = NO_CHANGES,
) -> Outcome:
    """Train new learners from a recorded buffer, and evaluate them on the plant.

    Args:
        recording: The recorded buffer. If its arrays were not read, batches are read from its file, and `strategy` is
            not used.
        strategy: Replay strategy, for example `FULL[PER]`.
        updates: Number of updates of each learner.
        learners: Number of independent learners.
        capacity: Capacity of each learner's buffer, unless `strategy` states one; None for all recorded experiences.
        progress: Function that is called with the number of finished updates after each evaluation.
        changes: Deviations from the conditions of the recording.
    """
    plant, members = recording.plant, range(learners)
    kind, config = load_learner(learner)
    settings = merged(merged(recording.settings(learner), variant_settings(learner)), changes.settings)
    configured = build(config, settings, f"settings of {learner} for {recording.path}")
    task = recording.task()
    kind.check(configured, task, strategy.refer is not None, plant.name)
    kind.check_loss(strategy.sampling.critic_loss, str(strategy))
    noise = recording.noise if changes.noise is None else changes.noise
    task = task if changes.discount is None else task._replace(discount=changes.discount)
    setting = LearnerSetting(task, root_seed, members, recording.frequency, refer=strategy.refer)
    agent: Learner = kind(configured, setting)
    # The state of a recurrent policy before each experience is recomputed, so that the file need not hold it.
    recording.check_fields(learner, {name: width for name, width in agent.fields.items() if name != MEMORY})
    schedule = agent.schedule
    batch = schedule.batch_size * schedule.segment
    if capacity is not None and capacity < batch:
        raise UserError(f"--capacity {capacity} is smaller than a batch of {batch}")
    if not recording.arrays and (
        max(schedule.segment, schedule.window, schedule.n_step) > 1 or agent.traces is not None
    ):
        raise UserError(f"{learner} follows experiences along their episodes, which --stream breaks up; leave it out")
    if (
        recording.arrays
        and "episode" not in recording.arrays
        and (schedule.n_step > 1 or strategy.sampling.needs_episodes)
    ):
        raise UserError(
            f"{recording.path} does not say to which episode a step belongs, which n_step and {strategy} need; "
            "leave n_step out, and use a sampling such as Uniform or PER"
        )
    if not recording.arrays and agent.normaliser.on:
        raise UserError(f"{learner} normalises by all that was collected, which --stream does not read; leave it out")
    strategy = strategy.at(recording.frequency)
    with_phases(strategy, schedule, plant.steps_per_episode(recording.frequency), every=0)
    env = PopulationEnv(
        plant, learners, frequency=recording.frequency, sensor_noise=noise, actuator_noise=noise, seed=root_seed,
        role="evaluation", observe=recording.facts.observe, nan_actions="fail",
    )  # fmt: skip
    source: Replay | BufferStream
    if recording.arrays:
        source = _filled(recording, strategy, capacity, root_seed, members, PlantModel(env, agent))
    else:
        turns, uses = recording.sources(learners), schedule.replays_per_experience
        source = BufferStream(recording.path, schedule.batch_size, root_seed, members, recordings=turns, replays=uses)
    longest = env.steps_per_episode
    phase = max(1, round(updates_after(longest, longest, strategy, schedule)))
    marks = np.unique(np.linspace(0, updates, EVALUATIONS + 1).astype(np.int64))
    rewards = [run_episode(agent.greedy().act, env)]
    for update in range(updates):
        state = recording.observation(learners, update / updates) if strategy.sampling.needs_state else None
        drawn = source.sample(Context(update % phase, phase, update / updates, state))
        source.annotate(drawn, agent.update(drawn))
        if update + 1 in marks:
            rewards.append(run_episode(agent.greedy().act, env))
            progress(update + 1)
    return Outcome(marks, np.array(rewards).T, agent)


def _filled(
    recording: Recording, strategy: Strategy, capacity: int | None, root_seed: int, members: range, model: PlantModel
) -> Replay:
    missing = [name for name in strategy.retention.orders if name not in recording.arrays]
    if missing:
        raise UserError(
            f"{strategy} retains by {', '.join(missing)}, which {recording.path} does not hold; use FIFO, FULL or Resv"
        )
    if strategy.synth and (strategy.synth.state or "exploration" in strategy.orders):
        raise UserError(
            f"{strategy}: Synth asks the policy that explores, and a recording has none; "
            "use Synth(action=…) before FIFO, FULL, Resv or TDE"
        )
    agent, schedule = model.agent, model.agent.schedule
    known = stored_fields(recording.plant, observe=recording.facts.observe)
    fields = {name: width for name, width in known.items() if name in recording.arrays} | dict(agent.fields)
    slots = strategy.capacity_or(capacity or _full_capacity(recording, schedule.segment))
    unit, batch, traces = Unit(schedule.segment), schedule.batch_size, agent.traces
    sums = schedule.window, schedule.n_step, agent.task.discount
    replay = Replay(strategy, fields, slots, root_seed, members, batch, unit, model, traces, *sums)
    offer(recording, replay, agent)
    if (kept := int(replay.count.min())) < batch:
        what = "experiences" if schedule.segment == 1 else f"segments of {schedule.segment} steps"
        raise UserError(
            f"{strategy} keeps {kept} {what} of {recording.path}, and a batch has {batch}: keep more, or learn from "
            "fewer at a time (--set batch_size=…)"
        )
    return replay


def _full_capacity(recording: Recording, segment: int) -> int:
    """Return the capacity in steps that holds all recorded experiences, stored as segments of `segment` steps.

    A shorter segment at the end of an episode takes as much space as a full one.
    """
    episode, serial = recording.arrays.get("episode"), recording.arrays["serial"].astype(np.int64)
    if segment == 1 or episode is None:
        return max(math.ceil(len(order) / segment) for order in recording.orders) * segment
    most = 0
    for m, order in zip(recording.members, recording.orders, strict=True):
        # A segment ends with its episode and at each gap, as in `offer`.
        begins = (np.diff(episode[m][order]) != 0) | (np.diff(serial[m][order]) != 1)
        runs = np.diff(np.flatnonzero(np.r_[True, begins, True]))
        most = max(most, int(np.ceil(runs / segment).sum()))
    return most * segment


def offer(recording: Recording, replay: Replay, agent: Learner) -> None:
    """Add the recorded experiences to the learners' buffers, in the order of collection.

    The stored TD errors are used for retention and reset afterwards, because another learner computed them. Values that
    depend on the rest of an episode are recomputed. An episode is split where steps are missing.
    """
    sources, orders = recording.turns(len(replay.members))
    lengths = np.array([len(order) for order in orders])
    known = [name for name in (*replay.columns.fields, *replay.orders) if name in recording.arrays]
    episode, serial = recording.arrays.get("episode"), recording.arrays["serial"].astype(np.int64)
    for place in range(int(lengths.max())):
        slots, following = ([order[min(at, len(order) - 1)] for order in orders] for at in (place, place + 1))
        experience = {name: recording.arrays[name][sources, slots] for name in known}
        if "td_error" in experience:
            experience["td_error"] = experience["td_error"][:, None]
        active, ended = place < lengths, None
        if episode is not None:
            ended = (episode[sources, slots] != episode[sources, following]) | (place + 1 == lengths)
            ended |= serial[sources, following] != serial[sources, slots] + 1
        unknown = np.zeros(len(active), np.bool_)
        experience |= agent.on_recorded_step(experience, unknown if ended is None else ended, active)
        replay.add(experience, active, ended)
    replay.forget_errors()
