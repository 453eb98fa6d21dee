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
    """Let every member act, step and add, up to `steps` times and none past the end of its episode; return how often.

    Members whose episodes end early do so less often. 0 where the plant, the learner or the strategy has something to
    do that is no kernel, or nobody would be faster: then nothing is changed.
    """
    steps = stride_of(steps, len(replay.members))
    if not steps or (acting := _acting(agent, replay, episodes)) is None:
        return 0
    _run(acting.calls, acting.plant, episodes, steps := min(steps, acting.plant.most))
    return steps


def common_stride(agent: Agent, replay: Replay, episodes: LiveEpisodes, steps: int) -> int:
    """Do what `acting_stride` does where all members are under way and do as many steps; else 0."""
    together = episodes.active.all() and not episodes.env.ends_early
    return acting_stride(agent, replay, episodes, steps) if together else 0


def learning_stride(agent: Agent, replay: Replay, episodes: LiveEpisodes, progress: Sequence[float]) -> int:
    """Do what `acting_stride` does with an update after each step; `progress` of the run, 0 to 1, at each that is due.

    0 also where what is drawn depends on more than what is stored when it is drawn.
    """
    strategy = replay.strategy
    lasting = strategy.sampling.lasting and (strategy.weights is None or strategy.weights.lasting)
    steps = stride_of(min(len(progress), replay.handful), len(replay.members))
    together = episodes.active.all() and not episodes.env.ends_early
    if not (steps and together and lasting and agent.learns_in_phases) or agent.on_policy:
        return 0
    if (acting := _acting(agent, replay, episodes)) is None:
        return 0
    steps = min(steps, acting.plant.most)
    if (drawn := sampling_calls(replay, [Context(progress=share) for share in progress[:steps]])) is None:
        return 0
    batch, drawing = drawn
    learning, annotations = agent.phase_call(batch, steps)
    noting = annotation_calls(replay, batch, annotations, steps)
    _run([*acting.calls, *drawing, learning, *noting], acting.plant, episodes, steps)
    episodes.forget_seen()
    return steps


def _acting(agent: Agent, replay: Replay, episodes: LiveEpisodes) -> _Steps | None:
    """Return the calls of a step that stores what it leads to; None where they cannot be had."""
    if not agent.acts_in_strides or episodes.attentive:
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
    after: dict[str, NDArray[Any]] = {"reward": plant.reward[:, None], "next_observation": plant.observation}
    after["actuator_noise"] = plant.actuator_noise
    places = arriving.fields
    after["terminated"] = plant.terminated[:, None]
    if not places.keys() <= {*before, *chosen, *after}:
        return None

    def stored(values: dict[str, NDArray[Any]]) -> list[Call]:
        return [Call(put, (value, places[name])) for name, value in values.items() if name in places]

    seeing = [*stored(before), *normaliser.observations.updating(plant.observation, active), *normalising]
    acting = [*exploring, *stored(chosen), Call(put, (explored.action, plant.action))]
    told = [*stored(after), *normaliser.rewards.updating(plant.reward, active)]
    adding = [*arriving.calls, episodes.counting(plant.reward, plant.over)]
    return _Steps([*seeing, *acting, *plant.calls, *told, *adding], plant)


def _run(calls: Sequence[Call], plant: Stepping, episodes: LiveEpisodes, steps: int) -> None:
    run(calls, len(plant.running), steps, plant.running)
    episodes.settle(plant.observation.copy(), plant.sensor_noise.copy())
