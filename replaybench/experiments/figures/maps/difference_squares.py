"""Differences in μ_r as coloured squares with text in them: the ground that maps are drawn on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from numpy.typing import NDArray

from replaybench.experiments.figures.style import MU

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_RANGE: Final = 0.4
"""Differences from which on colours are alike."""


def draw_squares(axes: Axes, sizes: NDArray[np.float64], upward: bool) -> AxesImage:
    """Colour a panel's squares by differences `[rows, columns]`, NaN where there is none; rows go up, or down."""
    axes.tick_params(length=0)
    origin: Literal["lower", "upper"] = "lower" if upward else "upper"
    return axes.imshow(sizes, cmap="PuOr_r", vmin=-_RANGE, vmax=_RANGE, origin=origin, aspect="auto")


def ink(size: float, otherwise: str = "0.1") -> str:
    """Return the colour in which text can be read on the square of a difference: white on dark ones."""
    return "white" if abs(size) > 0.7 * _RANGE else otherwise


def signed(size: float) -> str:
    """Return a difference as it stands in its square."""
    return f"{round(size, 2) + 0.0:+.2f}".replace("-", "−")


def add_color_bar(figure: Figure, image: AxesImage, panels: Sequence[Axes] | NDArray[np.object_]) -> None:
    """Explain the colours beside the panels."""
    figure.colorbar(image, ax=panels, label=f"difference in {MU}", shrink=0.8, extend="both")
