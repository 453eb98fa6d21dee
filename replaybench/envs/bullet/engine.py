"""The engine and the base class of plants in PyBullet.

A plant declares a model and a physics step. The plant computes rewards from the sensor readings of two control steps.
"""

import functools
import hashlib
import itertools
import math
import operator
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.envs.interface.engine import Engine
from replaybench.envs.interface.plant import FixedStepPlant
from replaybench.runtime.errors import UserError
from replaybench.runtime.function_hash import content_hash
from replaybench.runtime.source_hash import made_of
from replaybench.runtime.streams import Stream

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Model:
    """A robot and its surroundings, with the joints and links whose states are read."""

    file: str  # MJCF, in the folder `mjcf` that comes with PyBullet
    floor: bool  # whether the robot stands on the running track
    gravity: float  # downwards [m/s²]
    joints: tuple[str, ...]  # joints of one body that are read, and set at the start of an episode
    motors: int  # number of driven joints, counted from the first
    placed: tuple[str, ...] = ()  # further joints that are set at the start, but not read
    parts: tuple[str, ...] = ()  # links whose positions are read, grouped by body
    still: tuple[str, ...] = ()  # links that only a restart moves; their readings follow those of the parts
    root: str = ""  # a link whose position, attitude and velocity are read; empty: none
    feet: tuple[str, ...] = ()  # links of the root's body whose contacts are read
    seen: tuple[str, ...] = ()  # further links that pictures show in colour
    camera: tuple[float, float, float] = (3.0, 0.0, -20.0)  # distance [m], yaw and pitch [deg] of pictures
    look_at: tuple[float, ...] = ()  # point in the middle of pictures [m]; empty: the root

    @property
    def width(self) -> int:
        """Number R of sensor readings of one robot."""
        return 2 * len(self.joints) + 3 * len(self.parts + self.still) + 9 * bool(self.root) + 2 * len(self.feet)


class Readings:
    """R sensor readings of each of M robots, in an array `[M, R]`, with named parts of the array as attributes."""

    def __init__(self, model: Model, rows: Floats) -> None:
        joints, parts, feet = len(model.joints), len(model.parts + model.still), len(model.feet)
        root = 3 * bool(model.root)
        ends = np.cumsum([joints, joints, 3 * parts, root, root, root, feet])
        cut = np.split(rows, ends, axis=1)
        self.rows = rows
        self.position, self.velocity = cut[0], cut[1]  # `[M, J]`, of the joints [rad or m, and per s]
        self.place = cut[2].reshape(len(rows), parts, 3)  # centres of mass of `parts` and `still` [m]
        # Of the root, `[M, 3]` or empty: centre of mass [m]; roll, pitch and yaw [rad]; velocity [m/s].
        self.root, self.attitude, self.speed = cut[3:6]
        self.on_ground, self.on_other = cut[6:]  # `[M, F]`, 1 for a foot on the floor, and on anything else
        assert parts == 0 or np.shares_memory(self.place, rows)


PIXELS: Final = 480

# Settings of Roboschool, from its port to PyBullet.
_SOLVER_ITERATIONS: Final = 5
_CONTACT_ERP: Final = 0.9
_FLOOR_FRICTION: Final = 0.8
_FLOOR_RESTITUTION: Final = 0.5

_COLOURS: Final = ((0.30, 0.45, 0.69, 1.0), (0.87, 0.52, 0.32, 1.0), (0.33, 0.66, 0.41, 1.0))  # of links, in turn


@functools.cache
def pybullet() -> Any:
    """Import and return PyBullet, and suppress the line about its build on the error stream."""
    sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # there is no error stream
        import pybullet

        return pybullet
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        import pybullet
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
    return pybullet


def data_folder() -> Path:
    """Return the folder of the robots that PyBullet ships."""
    import pybullet_data

    return Path(pybullet_data.getDataPath())


def model_files(model: Model) -> list[Path]:
    """Return the files of a model: the file of the floor, if the model has a floor, and the file of the robot."""
    floor = [data_folder() / "plane_stadium.sdf"] if model.floor else []
    return [*floor, data_folder() / "mjcf" / model.file]


class World:
    """A physics client of PyBullet with a robot and its floor."""

    def __init__(self, model: Model) -> None:
        self._bullet = bullet = pybullet()
        self.client: int = bullet.connect(bullet.DIRECT)
        if self.client < 0:
            raise UserError("PyBullet has no physics client left in this process; close some populations, or use fewer")
        self._model = model
        self._call(bullet.resetSimulation)
        self._call(bullet.setGravity, 0.0, 0.0, -model.gravity)
        self._call(bullet.setDefaultContactERP, _CONTACT_ERP)
        self._call(
            bullet.setPhysicsEngineParameter, numSolverIterations=_SOLVER_ITERATIONS, deterministicOverlappingPairs=1
        )
        self._load()
        self._restarted: int = self._call(bullet.saveState)

    def pace(self, interval: float, substeps: int) -> None:
        """Set the length of a control step to `interval` seconds, divided into `substeps` equal physics steps."""
        self._call(self._bullet.setPhysicsEngineParameter, fixedTimeStep=interval, numSubSteps=substeps)

    def restart(self, positions: Sequence[float]) -> None:
        """Restore the state after loading, at rest, and set the joints to `positions` [rad or m].

        PyBullet's saved state includes contacts and the initial values of the solver. An episode is therefore equal to
        one in a new client.
        """
        self._call(self._bullet.restoreState, self._restarted)
        for (body, joint), position in zip(self._placed, positions, strict=True):
            self._call(self._bullet.resetJointState, body, joint, position, 0.0)
        self._still_places = self._places(self._still)

    def step(self, torques: Sequence[float]) -> None:
        """Advance by one control step under constant torques [N m], or forces [N] for sliding joints."""
        bullet, client = self._bullet, self.client
        bullet.setJointMotorControlArray(
            self._body, self._motors, bullet.TORQUE_CONTROL, forces=torques, physicsClientId=client
        )
        bullet.stepSimulation(client)

    def read(self, *, touching: bool = True) -> list[float]:
        """Return the current readings `[R]` of the robot.

        The positions of links are computed anew, because those that PyBullet stores lag by a physics step.

        Args:
            touching: Whether contacts are read. After a restart, PyBullet returns the old contacts until the next step.
        """
        bullet, client, feet = self._bullet, self.client, self._feet
        joints = bullet.getJointStates(self._body, self._joints, client)
        values: list[float] = [joint[0] for joint in joints]
        values += [joint[1] for joint in joints]
        values += self._places(self._parts)
        values += self._still_places
        if self._root is not None:
            place, attitude, speed = self._read_root(*self._root)
            values += place
            values += bullet.getEulerFromQuaternion(attitude)
            values += speed
        if feet:
            ground, other = [0.0] * len(feet), [0.0] * len(feet)
            for contact in bullet.getContactPoints(self._body, physicsClientId=client) if touching else ():
                _, first, second, first_link, second_link, *_ = contact
                for body, link, touched in ((first, first_link, second), (second, second_link, first)):
                    if body == self._body and link in feet:
                        (ground if touched in self._floor else other)[feet[link]] = 1.0
            values += ground
            values += other
        return values

    def picture(self) -> NDArray[np.uint8]:
        """Return an image uint8 `[480, 480, 3]` that is drawn without graphics hardware."""
        bullet, model = self._bullet, self._model
        self._paint()
        distance, yaw, pitch = model.camera
        view = bullet.computeViewMatrixFromYawPitchRoll(self._middle(), distance, yaw, pitch, 0, 2)
        lens = bullet.computeProjectionMatrixFOV(60.0, 1.0, 0.1, 100.0)
        drawn = self._call(
            bullet.getCameraImage, PIXELS, PIXELS, view, lens, renderer=bullet.ER_TINY_RENDERER, shadow=0
        )
        return np.asarray(drawn[2], np.uint8).reshape(PIXELS, PIXELS, 4)[:, :, :3].copy()

    def close(self) -> None:
        """Disconnect the physics client."""
        self._bullet.disconnect(self.client)

    def _call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs, physicsClientId=self.client)

    def _load(self) -> None:
        bullet, model = self._bullet, self._model
        *floor, robot = model_files(model)
        self._floor = frozenset(body for file in floor for body in self._call(bullet.loadSDF, str(file)))
        for body in self._floor:
            self._call(bullet.changeDynamics, body, -1, lateralFriction=_FLOOR_FRICTION, restitution=_FLOOR_RESTITUTION)
        flags = bullet.URDF_USE_SELF_COLLISION | bullet.URDF_USE_SELF_COLLISION_EXCLUDE_ALL_PARENTS
        bodies = self._call(bullet.loadMJCF, str(robot), flags=flags)
        joints: dict[str, tuple[int, int]] = {}
        links: dict[str, tuple[int, int]] = {}
        for body in bodies:
            links[self._call(bullet.getBodyInfo, body)[0].decode()] = body, -1
            for number in range(self._call(bullet.getNumJoints, body)):
                info = self._call(bullet.getJointInfo, body, number)
                joints[info[1].decode()] = links[info[12].decode()] = body, number
                # Loaded joints have brakes; position control without force removes them.
                self._call(bullet.setJointMotorControl2, body, number, bullet.POSITION_CONTROL, force=0.0)
        self._placed = [joints[name] for name in (*model.joints, *model.placed)]
        ((self._body, self._joints),) = _by_body(joints[name] for name in model.joints)
        self._motors = self._joints[: model.motors]
        self._parts = _by_body(links[name] for name in model.parts)
        self._still = _by_body(links[name] for name in model.still)
        self._still_places = self._places(self._still)
        self._root = links[model.root] if model.root else None
        self._grey = [
            links[name] for name in dict.fromkeys((model.root, *model.seen, *model.parts, *model.still)) if name
        ]
        self._feet = {links[name][1]: place for place, name in enumerate(model.feet)}

    def _paint(self) -> None:
        """Colour the links on the first call. PyBullet loads grey links."""
        for place, (body, link) in enumerate(self._grey):
            self._call(self._bullet.changeVisualShape, body, link, rgbaColor=_COLOURS[place % len(_COLOURS)])
        self._grey = []

    def _places(self, links: list[tuple[int, list[int]]]) -> list[float]:
        values: list[float] = []
        for body, numbers in links:
            for link in self._bullet.getLinkStates(body, numbers, 0, 1, self.client):
                values += link[0]
        return values

    def _read_root(self, body: int, link: int) -> tuple[Sequence[float], Sequence[float], Sequence[float]]:
        bullet, client = self._bullet, self.client
        if link < 0:
            place, attitude = bullet.getBasePositionAndOrientation(body, client)
            return place, attitude, bullet.getBaseVelocity(body, client)[0]
        state = bullet.getLinkState(body, link, 1, 1, client)
        return state[0], state[1], state[6]

    def _middle(self) -> Sequence[float]:
        if self._model.look_at or self._root is None:
            return self._model.look_at
        return self._read_root(*self._root)[0]


def _by_body(found: Iterable[tuple[int, int]]) -> list[tuple[int, list[int]]]:
    """Group joints or links by body, in order, so that one call reads all joints or links of a body."""
    return [
        (body, [number for _, number in of_body]) for body, of_body in itertools.groupby(found, operator.itemgetter(0))
    ]


def pace(step: float, count: int) -> float:
    """Return the time [s] of `count` physics steps, rounded up until `time / count` is exact.

    Bullet divides the time by the number of steps, and carries the rounding error over to the next call. Without exact
    division, Bullet would sometimes take a step too few or too many.
    """
    interval = step * count
    while Fraction(interval) != count * Fraction(interval / count):
        interval = math.nextafter(interval, math.inf)
    return interval


class BulletEngine(Engine):
    """The simulator of M members in PyBullet, with a physics client for each member.

    Bullet's solver starts from its last solution, which PyBullet's saved files do not contain completely. A saved state
    therefore consists of the joints' start positions and of the actions since then. Restoring a state repeats these
    actions. The restored state is exact, and restoring takes as long as the longest running episode.
    """

    def __init__(self, plant: Any, num_envs: int, frequency: float) -> None:
        self.plant = plant
        self._worlds: list[World] = []
        self._free = weakref.finalize(self, _close, self._worlds)
        count = plant.physics_steps(frequency)
        for _ in range(num_envs):
            self._worlds.append(World(plant.model))
            self._worlds[-1].pace(pace(plant.physics_step, count), count)
        self._now, self._before = (Readings(plant.model, np.zeros((num_envs, plant.model.width))) for _ in range(2))
        self._start = np.zeros((num_envs, len(plant.model.joints + plant.model.placed)))
        self._terms = np.zeros((num_envs, len(plant.terms)))
        self._elapsed = np.full(num_envs, -1)  # steps since the start of the episode; -1 before the first
        self._actions = np.zeros((num_envs, plant.steps_per_episode(frequency), len(plant.action_names)))
        self._middle, self._half = plant.action_range()
        super().__init__(num_envs, len(plant.state_names), frequency)

    def restart(self, chosen: NDArray[np.bool_], draws: Stream) -> None:
        self._start[chosen] = self.plant.starts(draws.uniform(self._start.shape[1], chosen))
        self._elapsed[chosen] = 0
        self._actions[chosen] = 0.0
        self._terms[chosen] = 0.0
        self._begin(chosen)
        self.observed[chosen] = self.plant.observe(self._now)[chosen]

    def advance(self, action: NDArray[np.float64], running: NDArray[np.bool_]) -> None:
        moving = np.flatnonzero(running)
        self._actions[moving, self._elapsed[moving]] = action[moving]
        self._elapsed[moving] += 1
        self._move(action, running)
        with np.errstate(invalid="ignore", over="ignore"):  # of a diverging simulation
            terms, ended = self.plant.reward(self._before, self._now, (action - self._middle) / self._half)
            observed = self.plant.observe(self._now)
        self._terms[:] = 0.0
        self._terms[moving] = terms[moving]
        self.observed[moving] = observed[moving]
        self.reward[moving] = terms.sum(axis=1)[moving]
        self.terminated[moving] = ended[moving]

    def changing(self) -> dict[str, NDArray[Any]]:
        return {
            "start": self._start, "actions": self._actions, "steps_taken": self._elapsed, "terms": self._terms,
        }  # fmt: skip

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        super().set_state(state)
        self._begin(self._elapsed >= 0)
        for step in range(int(self._elapsed.max())):
            self._move(self._actions[:, step], self._elapsed > step)

    def infos(self) -> dict[str, NDArray[Any]]:
        return {name: self._terms[:, place].copy() for place, name in enumerate(self.plant.terms)}

    def frame(self, member: int) -> NDArray[np.uint8]:
        return self._worlds[member].picture()

    def close(self) -> None:
        self._free()

    def _begin(self, chosen: NDArray[np.bool_]) -> None:
        for member in np.flatnonzero(chosen).tolist():
            self._worlds[member].restart(self._start[member].tolist())
            self._now.rows[member] = self._worlds[member].read(touching=False)
        self._before.rows[chosen] = self._now.rows[chosen]

    def _move(self, action: NDArray[np.float64], running: NDArray[np.bool_]) -> None:
        self._before.rows[running] = self._now.rows[running]
        forces, members, rows = action.tolist(), np.flatnonzero(running).tolist(), []
        for member in members:
            self._worlds[member].step(forces[member])
            rows.append(self._worlds[member].read())
        if members:
            self._now.rows[members] = rows


def _close(worlds: list[World]) -> None:
    while worlds:
        worlds.pop().close()


INTERVAL: Final = 0.0165
"""Roboschool's control interval [s]. Rewards for progress refer to this interval at every control rate."""


@dataclass(frozen=True, kw_only=True)
class BulletPlant(FixedStepPlant):
    """The base class of tasks in PyBullet.

    A subclass declares a model, and computes observations and rewards from sensor readings. The physics step is
    0.0165 s / `substeps`.
    """

    substeps: float = 1.0  # physics steps per 0.0165 s

    model: ClassVar[Model]
    terms: ClassVar[tuple[str, ...]]
    """Names of the terms of the reward. After a step, the infos contain the terms under these names."""

    frequency = 1.0 / INTERVAL
    update_every = 100
    reference_episodes = 5

    def starts(self, uniform: Floats) -> Floats:
        """Return the start positions `[n, J]` of J joints in n episodes, from uniform numbers `[n, J]` in [0, 1)."""
        raise NotImplementedError

    def observe(self, now: Readings) -> Floats:
        """Return the states of all M robots in physical units, `[M, S]`, from their sensor readings."""
        raise NotImplementedError

    def reward(self, before: Readings, now: Readings, action: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the K terms `[M, K]` of each robot's reward, and whether each new state is terminal, `[M]`.

        Args:
            before, now: Sensor readings before and after this control step.
            action: Normalised actions of this control step, `[M, A]`.
        """
        raise NotImplementedError

    def engine(self, num_envs: int, frequency: float) -> Engine:
        return BulletEngine(self, num_envs, frequency)

    def made_of(self) -> str:
        content = hashlib.sha256(f"pybullet {version('pybullet')} {self.model!r}".encode())
        for file in model_files(self.model):
            content.update(file.read_bytes())
        own = type(self)
        functions: list[Callable[..., Any]] = [World, Readings, pace, own.starts, own.observe, own.reward]
        content.update(content_hash(functions).encode())
        content.update(made_of(own).encode())
        return content.hexdigest()

    @property
    def physics_step(self) -> float:  # type: ignore[override]
        return INTERVAL / self.substeps

    @property
    def episode_steps(self) -> int:  # type: ignore[override]
        return round(self.episode_seconds * self.substeps / INTERVAL)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.substeps < 1 or self.substeps != round(self.substeps):
            raise UserError(f"{self.name}: substeps is {self.substeps:g}; give a whole number of 1 or more")
