"""The physical action that a plant gets, of a continuous range or of a few values in it."""

from __future__ import annotations

from replaybench.data.kernel import kernel
from replaybench.data.kernels.nearest_level import nearest_level


@kernel
def physical_action(normalised: float, middle: float, half: float, choices: int) -> float:
    """Return what a normalised action within ±1 stands for.

    Args:
        normalised: the action, noise included.
        middle, half: of the physical range.
        choices: how many evenly spaced values there are, of which the nearest is taken; 0 where all are possible.
    """
    if choices == 0:
        return middle + half * normalised
    # Choices that are whole numbers come out as such: every product and quotient here is exact then.
    return (middle - half) + 2.0 * half * nearest_level(normalised, choices) / (choices - 1)
