"""Strides: many steps of all members in one row of kernel calls, with or without an update after each.

One by one, a step takes a few dozen calls from Python, which cost a large population nothing, and a single seed as much
as all that they do. In a stride each member does all its steps before the next one does: the numbers are the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from replaybench.controllers.agent import Agent
from replaybench.data.compilation.sequence import Call, run, stride_of
from replaybench.data.kernels.put import put
from replaybench.envs.population import Stepping
from replaybench.experiments.training.episodes import LiveEpisodes
from replaybench.replay.arrival import arrival
from replaybench.replay.buffer import Replay
from replaybench.replay.phase import annotation_calls, sampling_calls
from replaybench.replay.strategies.view import Context


class _Steps(NamedTuple):
    calls: list[Call]
    plant: Stepping


def acting_stride(agent: Agent, replay: Replay, episodes: LiveEpisodes, steps: int) -> int:
    """Let every member act, step and add, up to `steps` times; return how often, none past the end of an episode.

    0 where the plant, the learner or the strategy has something to do that is no kernel, or nobody would be faster:
    then nothing is changed.
    """
    steps = stride_of(steps, len(replay.members))
    if not steps or (acting := _acting(agent, replay, episodes)) is None:
        return 0
    steps = min(steps, acting.plant.most)
    run(acting.calls, len(replay.members), steps)
    _settle(episodes, acting.plant)
    return steps


def learning_stride(agent: Agent, replay: Replay, episodes: LiveEpisodes, progress: Sequence[float]) -> int:
    """Do what `acting_stride` does with an update after each step; `progress` of the run, 0 to 1, at each that is due.

    0 also where what is drawn depends on more than what is stored when it is drawn.
    """
    strategy = replay.strategy
    lasting = strategy.sampling.lasting and (strategy.weights is None or strategy.weights.lasting)
    steps = stride_of(min(len(progress), replay.handful), len(replay.members))
    if not steps or not lasting or agent.on_policy or not agent.learns_in_phases:
        return 0
    if (acting := _acting(agent, replay, episodes)) is None:
        return 0
    steps = min(steps, acting.plant.most)
    if (drawn := sampling_calls(replay, [Context(progress=share) for share in progress[:steps]])) is None:
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
    if not agent.acts_in_strides or episodes.attentive or not episodes.active.all():
        return None
    if (plant := episodes.env.stepping()) is None:
        return None
    arriving = arrival(replay, episodes.active, plant.truncated)
    tried = agent.exploring(plant.observation, episodes.active)
    if arriving is None or tried is None:
        return None
    explored, exploring = tried
    before: dict[str, NDArray[Any]] = {"observation": plant.observation, "sensor_noise": plant.sensor_noise}
    chosen = {"action": explored.action, "exploration": explored.deviation[:, None], **explored.extras}
    after: dict[str, NDArray[Any]] = {"reward": plant.reward[:, None], "next_observation": plant.observation}
    after["actuator_noise"] = plant.actuator_noise
    places = arriving.fields
    if not places.keys() <= {*before, *chosen, *after, "terminated"}:  # which stays 0
        return None

    def stored(values: dict[str, NDArray[Any]]) -> list[Call]:
        return [Call(put, (value, places[name])) for name, value in values.items() if name in places]

    acting = [*stored(before), *exploring, *stored(chosen), Call(put, (explored.action, plant.action))]
    adding = [*stored(after), *arriving.calls, episodes.counting(plant.reward, plant.truncated)]
    return _Steps([*acting, *plant.calls, *adding], plant)


def _settle(episodes: LiveEpisodes, plant: Stepping) -> None:
    episodes.settle(plant.observation.copy(), plant.sensor_noise.copy())
