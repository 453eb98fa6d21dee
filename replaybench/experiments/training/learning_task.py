"""The task of a learner on a plant: sizes, discount and reward scale."""

from __future__ import annotations

from collections.abc import Sequence

from replaybench.controllers.agent import Task
from replaybench.data.quantities import duration
from replaybench.envs.interface.plant import Plant


def make_task(plant: Plant, frequency: float, discount: str, observe: Sequence[str] = ()) -> Task:
    """Return the task of a plant at a control rate in Hz (de Bruin et al. 2018, 6.4).

    Args:
        discount: "fixed" keeps the plant's discount at every rate, "horizon" its horizon in seconds.
        observe: names of the observed states, all if empty.
    """
    ratio = plant.frequency / frequency if discount == "horizon" else 1.0
    return Task(
        observation_size=len(observe or plant.state_names),
        action_size=len(plant.action_names),
        discount=plant.discount**ratio,
        reward_scale=plant.reward_scale * ratio,
        action_choices=plant.action_choices,
    )


def horizon(discount: float, frequency: float) -> str:
    """Describe the horizon of a discount γ of a control step: 1 / (1 − γ) steps, and their duration."""
    if discount >= 1.0:
        return f"γ = {discount:.6g} looks to the end of an episode"
    steps = 1.0 / (1.0 - discount)
    seconds = steps / frequency
    time = duration(seconds) if seconds > 10 else f"{seconds:.3g} s"
    return f"γ = {discount:.6g} looks {steps:.4g} steps ahead, {time}"
