"""The robot of one member of a PyBullet plant, and the row of numbers that is read from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Model:
    """One robot in its world."""

    file: str  # MJCF, in the folder `mjcf` that comes with PyBullet
    floor: bool  # whether the running track lies beneath it
    gravity: float  # downwards [m/s²]
    joints: tuple[str, ...]  # of one body; they are read, and placed at the start of an episode
    motors: int  # number of driven joints, counted from the first
    placed: tuple[str, ...] = ()  # joints that are placed after those, and not read
    parts: tuple[str, ...] = ()  # links whose places are read; those of one body stand together
    still: tuple[str, ...] = ()  # links that move in a restart only; their places come after the parts'
    root: str = ""  # a further link, whose attitude and velocity are read as well, if any
    feet: tuple[str, ...] = ()  # links of the root's body whose contacts are read
    seen: tuple[str, ...] = ()  # links that only pictures show, in colour
    camera: tuple[float, float, float] = (3.0, 0.0, -20.0)  # distance [m], yaw and pitch [deg] of pictures
    look_at: tuple[float, ...] = ()  # middle of pictures [m]; the root if empty

    @property
    def width(self) -> int:
        """Length R of a row of readings."""
        return 2 * len(self.joints) + 3 * len(self.parts + self.still) + 9 * bool(self.root) + 2 * len(self.feet)


class Readings:
    """Rows of readings `[M, R]` by name; the attributes are views, float64."""

    def __init__(self, model: Model, rows: Floats) -> None:
        joints, parts, feet = len(model.joints), len(model.parts + model.still), len(model.feet)
        root = 3 * bool(model.root)
        ends = np.cumsum([joints, joints, 3 * parts, root, root, root, feet])
        cut = np.split(rows, ends, axis=1)
        self.rows = rows
        self.position, self.velocity = cut[0], cut[1]  # `[M, J]`, of the joints [rad or m, and per s]
        self.place = cut[2].reshape(len(rows), parts, 3)  # centres of mass of the parts and of `still` [m]
        # `[M, 3]`, or empty without a root: its centre of mass [m]; roll, pitch and yaw [rad]; its velocity [m/s]
        self.root, self.attitude, self.speed = cut[3:6]
        self.on_ground, self.on_other = cut[6:]  # `[M, F]`, 1 for a foot that touches the floor, or anything else
        assert parts == 0 or np.shares_memory(self.place, rows)
