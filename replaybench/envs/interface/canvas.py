"""Pictures of plants by Matplotlib, without a window; imported only when something is rendered."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from replaybench.envs.interface.plant import Plant, quantity, with_unit


class Picture:
    """A figure of `width` × `height` pixels, independent of pyplot's global state."""

    def __init__(self, width: int = 480, height: int = 480) -> None:
        self._figure = Figure(figsize=(width / 100, height / 100), dpi=100, facecolor="white")
        self._canvas: Any = FigureCanvasAgg(self._figure)  # its methods carry no types

    def pixels(self) -> NDArray[np.uint8]:
        """Draw the figure, and return the image uint8 `[height, width, 3]`."""
        self._canvas.draw()
        return np.asarray(self._canvas.buffer_rgba())[..., :3].copy()


class Canvas(Picture):
    """The plant's own drawing, with time, state and action in physical units below."""

    def __init__(self, plant: Plant) -> None:
        super().__init__()
        self._plant = plant
        self._picture = self._figure.add_axes((0.02, 0.2, 0.96, 0.78))
        self._caption = self._figure.text(0.5, 0.045, "", ha="center", family="monospace", fontsize=9)

    def frame(self, state: NDArray[np.float64], action: NDArray[np.float32], seconds: float) -> NDArray[np.uint8]:
        """Return the image uint8 `[480, 480, 3]` of a physical state `[S]` and a normalised action `[A]`."""
        plant = self._plant
        self._picture.clear()
        plant.draw(self._picture, state, action.astype(np.float64))
        lines = [f"t = {seconds:.2f} s"]
        if len(state) <= 2:  # more would not fit
            states = zip(plant.state_names, state, plant.state_units, strict=True)
            lines.append("   ".join(quantity(name, value, unit) for name, value, unit in states))
        applied = plant.denormalise_action(action)
        if len(applied) == 1:
            lines.append(quantity(plant.action_names[0], applied[0], plant.action_units[0]))
        else:
            values = " ".join(f"{value:.2f}" for value in applied)
            lines.append(with_unit(f"actions = ({values})", plant.action_units[0]))
        self._caption.set_text("\n".join(lines))
        return self.pixels()
