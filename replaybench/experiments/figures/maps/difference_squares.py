"""Differences in μ_r as coloured squares with text in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from numpy.typing import NDArray

from replaybench.experiments.figures.style import MU, luminance, minus

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_COLORS: Final = "PuOr_r"
_READABLE: Final = 4.5
"""Least contrast of text (WCAG)."""
_RANGE: Final = 0.4
"""Larger differences have the same colour."""


def draw_squares(axes: Axes, sizes: NDArray[np.float64], upward: bool) -> AxesImage:
    """Draw differences `[rows, columns]` as squares, NaN for none, the first row lowest if `upward`."""
    axes.tick_params(length=0)
    origin: Literal["lower", "upper"] = "lower" if upward else "upper"
    return axes.imshow(sizes, cmap=_COLORS, vmin=-_RANGE, vmax=_RANGE, origin=origin, aspect="auto")


def ink(size: float, otherwise: str = "0.1") -> str:
    """Return the colour of text on the square of a difference: `otherwise` if it is readable there."""
    return next((text for text in (otherwise, "white") if contrast(size, text) >= _READABLE), "black")


def contrast(size: float, text: str) -> float:
    """Return the contrast (WCAG) of text on the square of a difference."""
    import matplotlib
    from matplotlib.colors import to_rgb

    place = 0.5 + 0.5 * min(1.0, max(-1.0, size / _RANGE))
    dark, light = sorted(map(luminance, (matplotlib.colormaps[_COLORS](place), to_rgb(text))))
    return (light + 0.05) / (dark + 0.05)


def signed(size: float) -> str:
    """Return the text of a difference."""
    return minus(f"{round(size, 2) + 0.0:+.2f}")


def add_color_bar(figure: Figure, image: AxesImage, panels: Sequence[Axes] | NDArray[np.object_]) -> None:
    """Add the colour bar next to the panels."""
    figure.colorbar(image, ax=panels, label=f"difference in {MU}", shrink=0.8, extend="both")
