"""Strides: many steps of all members in one row of kernel calls, with or without an update after each.

One by one, a step takes a few dozen calls from Python, which cost a large population nothing, and a single seed ten
times as much as all that they do. In a stride each member does all its steps before the next one does any; the numbers
are the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.agent import Agent
from replaybench.data.compilation.sequence import Call, run, stride_of
from replaybench.data.kernel import kernel
from replaybench.data.kernels.put import put
from replaybench.envs.interface.stepping import Stepping
from replaybench.experiments.training.episodes import LiveEpisodes
from replaybench.replay.arrival import arrival
from replaybench.replay.buffer import Replay
from replaybench.replay.phase import annotation_calls, sampling_calls
from replaybench.replay.strategies.view import Context

Bools = NDArray[np.bool_]


class _Steps(NamedTuple):
    calls: list[Call]
    plant: Stepping


def act_in_strides(
    agent: Agent, replay: Replay, episodes: LiveEpisodes, steps: int, begin: Callable[[Bools], None] | None = None
) -> bool:
    """Let every member act, step and add `steps` times, episode after episode: `begin` begins another of those chosen.

    Without it none does so past the end of its episode. False where the plant, the learner or the strategy has
    something to do that is no kernel, or nobody would be faster; then nothing is done but that episodes have begun.
    """
    members, left = len(replay.members), np.full(len(replay.members), steps)
    if not (most := stride_of(steps, members)):
        return False
    while True:
        over = ~episodes.active & (left > 0)
        if begin is not None and over.any():
            begin(over)
        going = episodes.active & (left > 0)
        if not going.any():
            return True
        if (acting := _acting(agent, replay, episodes)) is None:
            if (left < steps).any():
                raise RuntimeError(f"{type(agent).__name__}: exploring returned None amid a round")
            return False
        counting = Call(_count_down, (acting.plant.running, left, going))
        run([*acting.calls, counting], members, min(most, int(left[going].max())), going)
        _settle(episodes, acting.plant)


def learning_stride(
    agent: Agent, replay: Replay, episodes: LiveEpisodes, due: int, progress: Callable[[int], float]
) -> int:
    """Let every member act, step, add and update once, again and again; return how often, none past an episode's end.

    Args:
        agent, replay, episodes: what acts and learns, from what, and where.
        due: how often at most.
        progress: of the run, 0 to 1, at each of these steps, counted from 0.

    Returns:
        The number of steps; 0 where `act_in_strides` says False, and also where episodes may end early, a member has
        none under way or stores nothing, or an update depends on more than what is stored when it is made.
    """
    strategy = replay.strategy
    lasting = strategy.sampling.lasting and (strategy.weights is None or strategy.weights.lasting)
    steps = stride_of(min(due, replay.handful), len(replay.members))
    together = episodes.active.all() and not episodes.env.ends_early and replay.noise is None
    if not (steps and together and lasting and agent.learns_in_phases) or agent.on_policy:
        return 0
    if (acting := _acting(agent, replay, episodes)) is None:
        return 0
    steps = min(steps, acting.plant.most)
    if (drawn := sampling_calls(replay, [Context(progress=progress(step)) for step in range(steps)])) is None:
        return 0
    batch, drawing = drawn
    learning, annotations = agent.phase_call(batch, steps)
    noting = annotation_calls(replay, batch, annotations, steps)
    run([*acting.calls, *drawing, learning, *noting], len(replay.members), steps)
    _settle(episodes, acting.plant)
    episodes.forget_seen()
    return steps


def _acting(agent: Agent, replay: Replay, episodes: LiveEpisodes) -> _Steps | None:
    """Return the calls of a step that stores what it leads to; None where they cannot be had."""
    if not agent.acts_in_strides or replay.strategy.sampling.needs_state:
        return None
    if (plant := episodes.env.stepping()) is None:
        return None
    normaliser, active = agent.normaliser, episodes.active
    seen, normalising = normaliser.observations.normalising(plant.observation)
    tried = agent.exploring(seen, active)
    arriving = arrival(replay, active, plant.over)
    if arriving is None or tried is None:
        return None
    explored, exploring = tried
    before: dict[str, NDArray[Any]] = {"observation": plant.observation, "sensor_noise": plant.sensor_noise}
    chosen = {"action": explored.action, "exploration": explored.deviation[:, None], **explored.extras}
    after: dict[str, NDArray[Any]] = {
        "reward": plant.reward[:, None],
        "next_observation": plant.observation,
        "terminated": plant.terminated[:, None],
        "actuator_noise": plant.actuator_noise,
    }
    places = arriving.fields
    if not places.keys() <= {*before, *chosen, *after}:
        return None

    def stored(values: dict[str, NDArray[Any]]) -> list[Call]:
        return [Call(put, (value, places[name])) for name, value in values.items() if name in places]

    seeing = [*stored(before), *normaliser.observations.updating(plant.observation, active), *normalising]
    acting = [*exploring, *stored(chosen), Call(put, (explored.action, plant.action))]
    told = [*stored(after), *normaliser.rewards.updating(plant.reward, active)]
    adding = [*arriving.calls, episodes.counting(plant.reward, plant.over)]
    return _Steps([*seeing, *acting, *plant.calls, *told, *adding], plant)


def _settle(episodes: LiveEpisodes, plant: Stepping) -> None:
    episodes.settle(plant.observation.copy(), plant.sensor_noise.copy())


@kernel
def _count_down(running: Bools, left: NDArray[np.int64], going: Bools) -> None:
    """Count a step; who is `running` and has steps left goes on, `[M]`."""
    for m in range(running.size):
        left[m] -= 1
        going[m] = running[m] and left[m] > 0
