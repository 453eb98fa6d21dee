"""Pictures of the drafting task: vorticity (blue is clockwise), cylinder, ellipse, box and action."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Ellipse, FancyArrowPatch, Rectangle, Wedge
from numpy.typing import NDArray

from replaybench.envs.flow.plant import SEMI_MAJOR, SEMI_MINOR
from replaybench.envs.interface.canvas import Picture

VIEW: Final = (-1.0, 6.0, -1.75, 1.75)  # lowest and highest x, lowest and highest y [D]
PIXELS: Final = (640, 320)
STRONGEST: Final = 6.0  # vorticity of the darkest colour [U/D]
FORCE_LENGTH: Final = 1.0  # of the arrow for |a| = 1 [D]
TORQUE_SWEEP: Final = 90.0  # of the arc for |a| = 1 [degrees]
TORQUE_RADIUS: Final = 0.72  # [D]

_WATER: Final = LinearSegmentedColormap.from_list(
    "water", ["#12335f", "#3f7fbf", "#b9d6ea", "#fbfaf7", "#f3c4ae", "#cf5b4a", "#6d1226"]
)
_BODY, _ACTION = "#26323f", "#e08a00"


class FlowPicture(Picture):
    """Pictures of 640 × 320 pixels with the bounds `Drafting.box`."""

    def __init__(self, box: tuple[float, float, float]) -> None:
        super().__init__(*PIXELS)
        left, right, bottom, top = VIEW
        self._axes = axes = self._figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(left, right), ylim=(bottom, top))
        axes.axis("off")
        self._water = axes.imshow(
            np.zeros((2, 2)), cmap=_WATER, vmin=-STRONGEST, vmax=STRONGEST, origin="lower", interpolation="bilinear",
            extent=VIEW, aspect="auto",
        )  # fmt: skip
        low, high, height = box
        axes.add_patch(
            Rectangle((low, -height), high - low, 2 * height, fill=False, color="0.45", lw=1, ls=(0, (4, 4)))
        )
        axes.add_patch(Wedge((0.0, 0.0), 0.5, 90.0, 270.0, color=_BODY, lw=0))
        self._body = Ellipse((0.0, 0.0), 2 * SEMI_MAJOR, 2 * SEMI_MINOR, facecolor=_BODY, edgecolor="white", lw=0.8)
        axes.add_patch(self._body)
        look: Any = {"arrowstyle": "-|>", "mutation_scale": 11, "color": _ACTION, "lw": 2.2, "shrinkA": 0, "shrinkB": 0}
        self._force = FancyArrowPatch((0, 0), (1, 0), zorder=4, **look)
        self._torque = FancyArrowPatch((0, 0), (1, 0), zorder=4, **look)
        for arrow in (self._force, self._torque):
            axes.add_patch(arrow)

    def frame(
        self,
        vorticity: NDArray[np.floating],
        extent: tuple[float, float, float, float],
        pose: NDArray[np.float64],
        action: NDArray[np.float64],
    ) -> NDArray[np.uint8]:
        """Return the image uint8 `[320, 640, 3]`.

        Args:
            vorticity: at points evenly spaced over `extent`, `[rows, columns]`, the row of lowest y first [U/D].
            extent: lowest and highest x, lowest and highest y that it covers [D].
            pose: x, y [D] and θ [rad] of the ellipse, `[3]`.
            action: the last action `[3]`, in its units.
        """
        self._water.set_data(vorticity)
        self._water.set_extent(extent)
        self._axes.set(xlim=VIEW[:2], ylim=VIEW[2:])
        x, y, angle = (float(value) for value in pose)
        self._body.set(center=(x, y), angle=math.degrees(angle))
        fx, fy, torque = (float(value) for value in action)
        self._force.set_visible(math.hypot(fx, fy) > 0.02)
        self._force.set_positions((x, y), (x + FORCE_LENGTH * fx, y + FORCE_LENGTH * fy))
        self._torque.set_visible(abs(torque) > 0.02)
        sweep = math.radians(TORQUE_SWEEP * torque)
        start, end = angle, angle + sweep
        self._torque.set_positions(
            (x + TORQUE_RADIUS * math.cos(start), y + TORQUE_RADIUS * math.sin(start)),
            (x + TORQUE_RADIUS * math.cos(end), y + TORQUE_RADIUS * math.sin(end)),
        )
        self._torque.set_connectionstyle("arc3", rad=math.tan(sweep / 4))
        return self.pixels()
