"""The robot of one member of a PyBullet plant, and the row of numbers that is read from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Model:
    """One robot in its world.

    Attributes:
        file: its MJCF file, in the folder `mjcf` that comes with PyBullet.
        floor: whether the running track lies beneath it.
        gravity: downwards [m/s²].
        joints: the joints that are read, and placed at the start of an episode; they belong to one body.
        motors: how many of them, counted from the first, are driven.
        placed: joints that are placed after those, and not read.
        parts: the links whose places are read; those of one body stand together.
        still: links that stay where a restart puts them; their places are read then only, and come after the parts'.
        root: a further link, whose attitude and velocity are read as well, if any.
        feet: links of the root's body whose contacts are read.
        seen: links that only pictures show, in colour.
        camera: distance [m], yaw and pitch [deg] of pictures.
        look_at: the point in their middle [m]; the root if empty.
    """

    file: str
    floor: bool
    gravity: float
    joints: tuple[str, ...]
    motors: int
    placed: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    still: tuple[str, ...] = ()
    root: str = ""
    feet: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    camera: tuple[float, float, float] = (3.0, 0.0, -20.0)
    look_at: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        """Length R of a row of readings."""
        return 2 * len(self.joints) + 3 * len(self.parts + self.still) + 9 * bool(self.root) + 2 * len(self.feet)


class Readings:
    """Rows of readings `[M, R]`, seen by name; the attributes are views, float64.

    Attributes:
        position: `[M, J]`, of the joints [rad or m].
        velocity: `[M, J]`, of the joints [rad/s or m/s].
        place: `[M, P, 3]`, centres of mass of the parts and of what is still [m].
        root: `[M, 3]`, centre of mass of the root [m]; empty without one, as are the next two.
        attitude: `[M, 3]`, roll, pitch and yaw of the root [rad].
        speed: `[M, 3]`, of the root's centre of mass [m/s].
        on_ground: `[M, F]`, 1 for a foot that touches the floor.
        on_other: `[M, F]`, 1 for a foot that touches anything else.
    """

    def __init__(self, model: Model, rows: Floats) -> None:
        joints, parts, feet = len(model.joints), len(model.parts + model.still), len(model.feet)
        root = 3 * bool(model.root)
        ends = np.cumsum([joints, joints, 3 * parts, root, root, root, feet])
        cut = np.split(rows, ends, axis=1)
        self.rows = rows
        self.position, self.velocity = cut[0], cut[1]
        self.place = cut[2].reshape(len(rows), parts, 3)
        self.root, self.attitude, self.speed = cut[3:6]
        self.on_ground, self.on_other = cut[6:]
        assert parts == 0 or np.shares_memory(self.place, rows)
