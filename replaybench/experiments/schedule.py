"""The number of updates per step, the phases of ERE sampling, and the properties of a plant that a learner needs.

ERE (emphasising recent experience, Wang & Ross, 2019) narrows sampling during a phase of updates. If updates follow
each episode, a phase consists of the updates after one episode. Otherwise, a phase covers as many steps as the longest
episode has.
"""

import dataclasses
import math
from collections.abc import Sequence

from replaybench.controllers.interface.agent import Schedule, Task
from replaybench.envs.interface.plant import Plant
from replaybench.replay.strategies.strategy import Strategy
from replaybench.runtime.errors import UserError
from replaybench.runtime.quantities import duration


def make_task(plant: Plant, frequency: float, discount: str, observe: Sequence[str] = ()) -> Task:
    """Return the properties of a plant that a learner needs: array sizes, discount and reward scale.

    With `discount` "horizon", discount and reward scale are adapted to the control rate, so that the horizon in seconds
    is equal at every control rate (de Bruin et al., 2018, section 6.4). Otherwise, the plant's values are returned.
    """
    ratio = plant.frequency / frequency if discount == "horizon" else 1.0
    return Task(
        observation_size=plant.observation_size(observe),
        action_size=len(plant.action_names),
        discount=plant.discount**ratio,
        reward_scale=plant.reward_scale * ratio,
        action_choices=plant.action_choices,
    )


def horizon(discount: float, frequency: float) -> str:
    """Describe the horizon 1 / (1 − γ) of a discount γ, in control steps and in seconds."""
    if discount >= 1.0:
        return f"γ = {discount:.6g} looks to the end of an episode"
    steps = 1.0 / (1.0 - discount)
    seconds = steps / frequency
    time = duration(seconds) if seconds > 10 else f"{seconds:.3g} s"
    return f"γ = {discount:.6g} looks {steps:.4g} steps ahead, {time}"


def updates_after(steps: int, episode: int, strategy: Strategy, schedule: Schedule) -> float:
    """Return the mean number of updates that follow `steps` environment steps, if episodes have `episode` steps."""
    uses = steps * strategy.entry_share * schedule.replays_per_experience
    segments = math.ceil(episode / schedule.segment)
    return float(uses / (schedule.batch_size * episode / segments))


def with_phases(strategy: Strategy, schedule: Schedule, steps: int, every: int) -> Strategy:
    """Return a strategy whose ERE sampling (Wang & Ross, 2019) has the right phase length, in updates.

    A phase covers the longest episode. A strategy is returned unchanged if it has no ERE, or if update phases are at
    least an episode apart.

    Args:
        schedule: The number of updates of the learner.
        steps: Number of steps of the longest episode.
        every: Number of steps between update phases; 0 if an update phase follows each episode.

    Raises:
        UserError: A phase has fewer than two updates.
    """
    if not strategy.sampling.needs_phase:
        return strategy
    updates = updates_after(max(steps, every), steps, strategy, schedule)
    if updates < 2:
        raise UserError(
            f"{strategy} narrows to the newest during a phase of updates, and {max(steps, every)} steps are followed "
            f"by {updates:.2g}; name the length of a phase, e.g. ERE(phase=1000), or raise replays_per_experience"
        )
    if not 0 < every < steps:
        return strategy
    return dataclasses.replace(strategy, sampling=strategy.sampling.in_phases(int(updates)))
