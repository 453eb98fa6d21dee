"""Pictures of plants, drawn off screen with Matplotlib; imported only when something is rendered."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from replaybench.envs.interface.plant import Plant, quantity, with_unit


class Canvas:
    """One figure of 480 × 480 pixels, redrawn for every frame.

    Above, the plant draws itself; below stand time, state and action in physical units.
    """

    def __init__(self, plant: Plant) -> None:
        self._plant = plant
        self._figure = Figure(figsize=(4.8, 4.8), dpi=100, facecolor="white")
        self._canvas: Any = FigureCanvasAgg(self._figure)  # its methods carry no types
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
        self._canvas.draw()
        return np.asarray(self._canvas.buffer_rgba())[..., :3].copy()
