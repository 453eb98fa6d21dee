"""What a learner must know of the plant that it is set before."""

from __future__ import annotations

from collections.abc import Sequence

from replaybench.controllers.agent import Task
from replaybench.data.quantities import duration
from replaybench.envs.interface.plant import Plant


def make_task(plant: Plant, frequency: float, discount: str, observe: Sequence[str] = ()) -> Task:
    """Return what a learner must know; rewards and discount follow the study's choice for other rates (6.4).

    `discount` says whether the plant's own holds at every rate ("fixed") or its horizon in seconds does ("horizon");
    `observe` names the states that are observed, all if empty.
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
    """Say how far a discount γ of a control step looks: 1 / (1 − γ) steps, and how long these take."""
    if discount >= 1.0:
        return f"γ = {discount:.6g} looks to the end of an episode"
    steps = 1.0 / (1.0 - discount)
    seconds = steps / frequency
    return (
        f"γ = {discount:.6g} looks {steps:.4g} steps ahead, {duration(seconds) if seconds > 10 else f'{seconds:.3g} s'}"
    )
