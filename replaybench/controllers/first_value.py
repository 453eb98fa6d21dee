"""What states are worth before anything is learned, by the episodes before the first update: a critic begins with it.

A value far from 0 is learned slowly, and so is whatever is learned from advantages, which all have one sign until then;
and weights that are to make a large number of what lies in front of them saturate it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class FirstValue:
    """Mean discounted return from the steps of the first episodes, of each member.

    The mean V̄ over all n steps collects each reward r[j], j steps after its episode's start, by w[j] = 1 + γ + … + γʲ;
    after a last step that is not terminal another V̄ follows: n V̄ = Σ w[j] r[j] + V̄ Σ γ w[last].

    Args:
        members: M.
        discount: γ.

    Attributes:
        weighted: float64 `[M]`, Σ w r of rewards as they come.
        steps: float64 `[M]`, n − Σ γ w[last] of the episodes that are over.
        reach: float64 `[M]`, w of the latest step, 0 where an episode begins.
        taken: bool `[1]`, whether a critic has begun with it; nothing is collected then.
    """

    def __init__(self, members: int, discount: float) -> None:
        self.discount = discount
        self.weighted, self.steps, self.reach = np.zeros(members), np.zeros(members), np.zeros(members)
        self.taken = np.zeros(1, np.bool_)

    def update(
        self, reward: NDArray[Any], terminated: NDArray[np.bool_], ended: NDArray[np.bool_], active: NDArray[np.bool_]
    ) -> None:
        """Take in a step, `[M]` each, of the `active` members."""
        if self.taken[0]:
            return
        self.reach = np.where(active, 1 + self.discount * self.reach, self.reach)
        self.weighted += np.where(active, self.reach * reward, 0)
        self.steps += active - np.where(active & ended & ~terminated, self.discount * self.reach, 0)
        self.reach[active & ended] = 0

    def take(self) -> NDArray[np.float64]:
        """Return V̄ `[M]` in units of rewards, 0 where nothing was collected, and collect no more."""
        self.taken[0] = True
        steps = self.steps - self.discount * self.reach  # an episode that goes on is worth as much as the others
        return np.divide(self.weighted, steps, out=np.zeros_like(steps), where=steps > 0)

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return what it depends on."""
        kept = {"weighted": self.weighted, "steps": self.steps, "reach": self.reach, "taken": self.taken}
        return {f"first_value.{name}": array for name, array in kept.items()}
