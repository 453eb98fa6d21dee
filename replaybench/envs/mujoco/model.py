"""MuJoCo models from MJCF files, and drawings of them without a graphics card."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.patches import Circle
from numpy.typing import NDArray

from replaybench.envs.interface.plant import Picture
from replaybench.runtime.errors import UserError


def gymnasium_assets() -> Path:
    """Return the folder of the MJCF files that come with Gymnasium, without importing its simulators."""
    spec = importlib.util.find_spec("gymnasium")
    if spec is None or spec.origin is None:
        raise UserError("the MuJoCo plants need the MJCF files of the package gymnasium: pip install gymnasium")
    return Path(spec.origin).parent / "envs" / "mujoco" / "assets"


@functools.cache
def load_model(path: Path) -> Any:
    """Return the `mujoco.MjModel` of an MJCF file; engines share it and must not write to it.

    MuJoCo's automatic reset is off, so that a member that blows up is noticed.

    Raises:
        UserError: the file does not exist, or is not a model.
    """
    import mujoco

    if not path.is_file():
        raise UserError(f"no MJCF file {str(path)!r}; give the path of a file that exists")
    with quiet():
        try:
            model = mujoco.MjModel.from_xml_path(str(path))
        except (ValueError, mujoco.FatalError) as error:
            raise UserError(f"the MJCF file {path} does not load: {' '.join(str(error).split())}") from error
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
    return model


def model_digest(path: Path) -> str:
    """Return MuJoCo's version and a digest of the MJCF file."""
    return f"mujoco {importlib.metadata.version('mujoco')} {hashlib.sha256(path.read_bytes()).hexdigest()}"


@contextmanager
def quiet() -> Iterator[None]:
    """Drop MuJoCo's warnings, which it would print and append to `MUJOCO_LOG.TXT` in the working folder."""
    import mujoco

    theirs = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(theirs)


_PIXELS: Final = 480
_CAPSULE, _CYLINDER, _PLANE = 3, 5, 0  # mjtGeom
_GRID: Final = 1.0  # spacing of the lines on the ground [m]


class MujocoCanvas(Picture):
    """A parallel projection of an `mujoco.MjModel`, which may follow the body along the ground.

    Args:
        model: the model.
        width: width of the picture [m].
        height: height of its middle above the ground [m].
        elevation: angle of the view above the horizon [rad]; π/2 looks down.
        follows: whether the view moves along with the body.
    """

    def __init__(self, model: Any, width: float, height: float, elevation: float, follows: bool) -> None:
        super().__init__(_PIXELS, _PIXELS)
        self._model, self._width, self._height, self._follows = model, width, height, follows
        # Right and up on the picture, and towards the viewer, in the world's axes: x runs to the right.
        self._right = np.array([1.0, 0.0, 0.0])
        self._up = np.array([0.0, math.sin(elevation), math.cos(elevation)])
        self._near = np.array([0.0, -math.cos(elevation), math.sin(elevation)])
        self._axes = self._figure.add_axes((0.0, 0.0, 1.0, 1.0))

    def frame(self, data: Any) -> NDArray[np.uint8]:
        """Return the image uint8 `[480, 480, 3]` of an `MjData` whose positions are up to date."""
        self._axes.clear()
        self._axes.axis("off")
        middle = np.array([0.0, 0.0, self._height])
        if self._follows and np.isfinite(data.qpos).all():
            middle[:2] = data.subtree_com[1, :2]
        self._ground(middle)
        far_first = sorted(range(self._model.ngeom), key=lambda g: float(data.geom_xpos[g] @ self._near))
        for order, geom in enumerate(far_first, start=1):
            self._geom(geom, data, order)
        x, y = self._on_picture(middle)
        half = self._width / 2
        self._axes.set(xlim=(x - half, x + half), ylim=(y - half, y + half))
        return self.pixels()

    def _on_picture(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return where points `[..., 3]` are on the picture, `[..., 2]` [m]."""
        return np.stack([points @ self._right, points @ self._up], axis=-1)

    def _ground(self, middle: NDArray[np.float64]) -> None:
        """Draw lines on the ground, by which its passing can be seen."""
        reach = 2 * math.ceil(self._width / _GRID)
        ticks = np.arange(-reach, reach + 1) * _GRID
        x, y = (np.round(middle[:2] / _GRID) * _GRID)[:, None] + ticks
        ends = [((a, y[0], 0.0), (a, y[-1], 0.0)) for a in x] + [((x[0], b, 0.0), (x[-1], b, 0.0)) for b in y]
        self._axes.add_collection(
            LineCollection(list(self._on_picture(np.array(ends))), colors="0.85", linewidths=1, zorder=0)
        )

    def _geom(self, geom: int, data: Any, order: int) -> None:
        """Draw a body's part: capsules and cylinders as thick lines, all else but the ground as discs."""
        shape, size = int(self._model.geom_type[geom]), self._model.geom_size[geom]
        if shape == _PLANE:
            return
        place, color = data.geom_xpos[geom], self._model.geom_rgba[geom]
        if shape not in (_CAPSULE, _CYLINDER):
            x, y = self._on_picture(place)
            self._axes.add_patch(Circle((x, y), self._model.geom_rbound[geom], fc=color, ec="0.25", zorder=order))
            return
        along = size[1] * data.geom_xmat[geom].reshape(3, 3)[:, 2]
        ends = self._on_picture(np.array([place - along, place + along]))
        thickness = 2 * size[0] / self._width * _PIXELS * 72 / 100
        for extra, shade in ((2.0, "0.25"), (0.0, color)):  # an outline, then the part itself
            self._axes.plot(*ends.T, color=shade, linewidth=thickness + extra, solid_capstyle="round", zorder=order)
