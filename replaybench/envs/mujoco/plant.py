"""The engine, the pictures and the base class of plants in MuJoCo.

Rewards, bounds and initial states are those of Gymnasium's v5 tasks (Towers et al., 2024), whose MJCF files are used.
Pictures need no graphics card.
"""

import functools
import hashlib
import importlib.metadata
import importlib.util
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from replaybench.envs.interface.engine import Engine, thread_count
from replaybench.envs.interface.plant import FixedStepPlant, Picture, Vector
from replaybench.runtime.errors import UserError
from replaybench.runtime.function_hash import content_hash
from replaybench.runtime.kernel import kernel
from replaybench.runtime.source_hash import made_of
from replaybench.runtime.streams import Stream


def gymnasium_assets() -> Path:
    """Return the folder of the MJCF files that Gymnasium ships, without importing Gymnasium's simulators."""
    spec = importlib.util.find_spec("gymnasium")
    if spec is None or spec.origin is None:
        raise UserError("the MuJoCo plants need the MJCF files of the package gymnasium: pip install gymnasium")
    return Path(spec.origin).parent / "envs" / "mujoco" / "assets"


@functools.cache
def load_model(path: Path) -> Any:
    """Return the `mujoco.MjModel` of an MJCF file.

    All callers get the same object and must not change it. MuJoCo's automatic reset is off, so that the engine can
    detect a diverging simulation.

    Raises:
        UserError: The file does not exist, or is not a model.
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


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress MuJoCo's warnings, which are otherwise printed and appended to the file `MUJOCO_LOG.TXT`."""
    import mujoco

    theirs = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(theirs)


_PIXELS: Final = 480
_CAPSULE, _CYLINDER, _PLANE = 3, 5, 0  # mjtGeom
_NO_COLOR: Final = (0.5, 0.5, 0.5, 1.0)  # MuJoCo's color of shapes without one of their own
_GRID: Final = 1.0  # distance of the lines on the ground [m]


class MujocoCanvas(Picture):
    """A picture of a MuJoCo model by parallel projection.

    Args:
        model: The `mujoco.MjModel`.
        width: Width of the picture [m].
        height: Height of the picture's middle above the ground [m].
        elevation: Angle of the view above the horizon [rad]. With π/2, the view is from above.
        follows: Whether the view moves along the ground with the body.
    """

    def __init__(self, model: Any, width: float, height: float, elevation: float, follows: bool) -> None:
        super().__init__(_PIXELS, _PIXELS)
        self._model, self._width, self._height, self._follows = model, width, height, follows
        # Unit vectors to the right and up in the picture and towards the viewer, in world axes.
        self._right = np.array([1.0, 0.0, 0.0])
        self._up = np.array([0.0, math.sin(elevation), math.cos(elevation)])
        self._near = np.array([0.0, -math.cos(elevation), math.sin(elevation)])
        self._axes = self._figure.add_axes((0.0, 0.0, 1.0, 1.0))

    def frame(self, data: Any) -> NDArray[np.uint8]:
        """Return the image uint8 `[480, 480, 3]` of a `mujoco.MjData` whose positions are up to date."""
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
        """Project points `[..., 3]` to positions in the picture, `[..., 2]` [m]."""
        return np.stack([points @ self._right, points @ self._up], axis=-1)

    def _ground(self, middle: NDArray[np.float64]) -> None:
        """Draw lines on the ground, which make motion visible."""
        from matplotlib.collections import LineCollection

        reach = 2 * math.ceil(self._width / _GRID)
        ticks = np.arange(-reach, reach + 1) * _GRID
        x, y = (np.round(middle[:2] / _GRID) * _GRID)[:, None] + ticks
        ends = [((a, y[0], 0.0), (a, y[-1], 0.0)) for a in x] + [((x[0], b, 0.0), (x[-1], b, 0.0)) for b in y]
        self._axes.add_collection(
            LineCollection(list(self._on_picture(np.array(ends))), colors="0.85", linewidths=1, zorder=0)
        )

    def _geom(self, geom: int, data: Any, order: int) -> None:
        """Draw a shape of a body: capsules and cylinders as thick lines, other shapes except the ground as discs."""
        from matplotlib.patches import Circle

        shape, size = int(self._model.geom_type[geom]), self._model.geom_size[geom]
        if shape == _PLANE:
            return
        place, color, material = data.geom_xpos[geom], self._model.geom_rgba[geom], self._model.geom_matid[geom]
        if material >= 0 and (color == _NO_COLOR).all():
            color = self._model.mat_rgba[material]
        if shape not in (_CAPSULE, _CYLINDER):
            x, y = self._on_picture(place)
            self._axes.add_patch(Circle((x, y), self._model.geom_rbound[geom], fc=color, ec="0.25", zorder=order))
            return
        along = size[1] * data.geom_xmat[geom].reshape(3, 3)[:, 2]
        ends = self._on_picture(np.array([place - along, place + along]))
        thickness = 2 * size[0] / self._width * _PIXELS * 72 / 100
        for extra, shade in ((2.0, "0.25"), (0.0, color)):  # an outline, then the part itself
            self._axes.plot(*ends.T, color=shade, linewidth=thickness + extra, solid_capstyle="round", zorder=order)


BLOWN_UP: Final = 1
"""Bit of `event` that marks a diverged simulation. The episode terminates in its last valid state with reward 0."""

_WORST: Final = 1e10  # positions and velocities above it are unstable for MuJoCo (mjMAXVAL)


class MujocoEngine(Engine):
    """The simulator of M members in MuJoCo, with `threads` threads.

    Attributes:
        data: One `mujoco.MjData` per member.
        marker: Position of each member after its last step, from which rewards measure progress, float64 `[M, 2]`.
    """

    def __init__(self, plant: Any, num_envs: int, frequency: float, threads: int | None = None) -> None:
        import mujoco

        self.plant, self.model = plant, plant.model()
        self.substeps = plant.physics_steps(frequency)
        self._dt = self.model.opt.timestep * self.substeps
        super().__init__(num_envs, len(plant.state_names), frequency)
        self.data = [mujoco.MjData(self.model) for _ in range(num_envs)]
        self._rest = self.data[0].qpos.copy(), self.data[0].qvel.copy()
        self._pieces = [plant.pieces(data) for data in self.data]
        self._controls = [data.ctrl for data in self.data]
        self._raw = np.zeros((num_envs, sum(piece.size for piece in self._pieces[0])))
        self._rows = list(self._raw)
        self._moving = self.model.nq + self.model.nv
        self._high = np.array(plant.observation_limit)
        self._low = -self._high
        self._constants = plant.constants()
        self._terms = np.zeros((num_envs, len(plant.term_names)))
        self.marker = np.zeros((num_envs, 2))
        self._state_spec = mujoco.mjtState.mjSTATE_INTEGRATION
        self._state_size = mujoco.mj_stateSize(self.model, self._state_spec)
        self._step, self._forces = mujoco.mj_step, mujoco.mj_rnePostConstraint
        self._failure = mujoco.FatalError
        self._canvas: tuple[MujocoCanvas, Any] | None = None
        self._others = min(thread_count() if threads is None else threads, num_envs) - 1
        self._pool = ThreadPoolExecutor(max(self._others, 1))  # it starts threads on demand

    def restart(self, chosen: NDArray[np.bool_], draws: Stream) -> None:
        import mujoco

        positions, velocities = self.plant.start(draws, chosen, *self._rest)
        with quiet():
            for member, qpos, qvel in zip(np.flatnonzero(chosen).tolist(), positions, velocities, strict=True):
                data = self.data[member]
                mujoco.mj_resetData(self.model, data)
                data.qpos[:], data.qvel[:] = qpos, qvel
                mujoco.mj_forward(self.model, data)
                np.concatenate(self._pieces[member], out=self._rows[member])
        self.marker[chosen] = self.plant.marker_of(self._raw[chosen])
        self._terms[chosen] = 0.0
        self.plant.observe(chosen, self._raw, self._low, self._high, self.observed)

    def advance(self, action: NDArray[np.float64], running: NDArray[np.bool_]) -> None:
        waiting = iter(np.flatnonzero(running).tolist())  # each thread takes the next member from this iterator
        with quiet():
            helpers = [self._pool.submit(self._step_members, waiting, action) for _ in range(self._others)]
            self._step_members(waiting, action)
            for helper in helpers:
                helper.result()
        self._terms[:] = 0.0
        sound = running.copy()
        _end_lost(sound, self._raw, self._moving, self.terminated, self.event)
        self.plant.observe(sound, self._raw, self._low, self._high, self.observed)
        self.plant.reward(
            *(sound, self._raw, action, self.marker, self._dt, self._constants),
            *(self.reward, self.terminated, self._terms),
        )

    def _step_members(self, waiting: Iterator[int], action: NDArray[np.float64]) -> None:
        model, data, pieces, rows, controls = self.model, self.data, self._pieces, self._rows, self._controls
        step, forces, substeps, concatenate = self._step, self._forces, self.substeps, np.concatenate
        for member in waiting:
            controls[member][:] = action[member]
            try:
                step(model, data[member], substeps)
                if self.plant.observes_forces:
                    forces(model, data[member])
            except self._failure:
                rows[member][:] = np.nan
                continue
            concatenate(pieces[member], out=rows[member])

    def get_state(self) -> dict[str, NDArray[Any]]:
        import mujoco

        state = np.empty((len(self.data), self._state_size))
        for row, data in zip(state, self.data, strict=True):
            mujoco.mj_getState(self.model, data, row, self._state_spec)
        return {"simulation": state, "marker": self.marker.copy()}

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        import mujoco

        for row, data in zip(state["simulation"], self.data, strict=True):
            mujoco.mj_setState(self.model, data, np.asarray(row, np.float64), self._state_spec)
        self.marker[:] = state["marker"]

    def infos(self) -> dict[str, NDArray[Any]]:
        return {name: self._terms[:, column].copy() for column, name in enumerate(self.plant.term_names)}

    def frame(self, member: int) -> NDArray[np.uint8]:
        import mujoco

        if self._canvas is None:
            self._canvas = MujocoCanvas(self.model, *self.plant.camera), mujoco.MjData(self.model)
        canvas, shown = self._canvas
        shown.qpos[:] = self.data[member].qpos
        mujoco.mj_kinematics(self.model, shown)  # on a copy, because the original influences the next step
        mujoco.mj_comPos(self.model, shown)
        return canvas.frame(shown)

    def close(self) -> None:
        self._pool.shutdown()


@kernel
def _end_lost(
    running: NDArray[np.bool_], raw: NDArray[np.float64], moving: int, terminated: NDArray[np.bool_],
    event: NDArray[np.int64],
) -> None:  # fmt: skip
    """Terminate the members with a NaN in `raw`, or with a huge value in the first `moving` columns of `raw`."""
    for m in range(raw.shape[0]):
        if running[m]:
            for i in range(raw.shape[1]):
                lost = not abs(raw[m, i]) < _WORST if i < moving else raw[m, i] != raw[m, i]
                if lost:
                    running[m], terminated[m], event[m] = False, True, BLOWN_UP


FORCE_LIMIT: Final = 1e7
"""Bound on observed forces and torques [N, N m], far above those in contacts of bodies of at most 50 kg."""


@dataclass(frozen=True, kw_only=True)
class MujocoPlant(FixedStepPlant):
    """The base class of tasks in MuJoCo, whose parameters have Gymnasium's names."""

    mjcf: ClassVar[str]
    """Name of the MJCF file in Gymnasium's folder."""
    term_names: ClassVar[tuple[str, ...]]
    """Names of the values, such as terms of the reward, that `reward` writes to its argument `terms`."""
    velocity_noise: ClassVar[Literal["uniform", "normal"]] = "uniform"
    """Distribution of initial velocities."""
    observes_forces: ClassVar[bool] = False
    """Whether contact forces (`cfrc_ext`) are computed after a step."""
    camera: ClassVar[tuple[float, float, float, bool]] = (3.5, 0.9, 0.15, True)
    """View of pictures: width [m], height of the middle [m], elevation [rad], and whether the view follows the body."""

    observe: ClassVar[Callable[..., None]]
    """Compiled function that writes observations: `(chosen[M], raw[M, R], low[S], high[S], observed[M, S])`. A row of
    `raw` contains the arrays that `pieces` returns."""
    reward: ClassVar[Callable[..., None]]
    """Compiled function that writes rewards: `(running[M], raw[M, R], action[M, A], marker[M, 2], dt, constants,
    reward[M], terminated[M], terms[M, K])`. Each row of `raw` contains the arrays that `pieces` returns. K is the
    number of `term_names`. The function also replaces `marker`, the positions before the step, by the new ones."""

    update_every = 1

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "observes" in vars(cls):
            cls.action_names = tuple(f"control of {joint}" for joint in cls.actuated)

    @property
    def path(self) -> Path:
        """Path of the MJCF file."""
        return gymnasium_assets() / self.mjcf

    def model(self) -> Any:
        """Return the `mujoco.MjModel` of this plant."""
        return load_model(self.path)

    def engine(self, num_envs: int, frequency: float) -> Engine:
        return MujocoEngine(self, num_envs, frequency)

    def made_of(self) -> str:
        kernels = content_hash([type(self).observe, type(self).reward])
        model = hashlib.sha256(self.path.read_bytes()).hexdigest()
        return f"mujoco {importlib.metadata.version('mujoco')} {model} {kernels} {made_of(type(self))}".rstrip()

    def pieces(self, data: Any) -> tuple[Vector, ...]:
        """Return the one-dimensional arrays of an `MjData` that `observe` and `reward` need, first qpos and qvel."""
        return data.qpos, data.qvel

    def marker_of(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the positions `[M, 2]` from which `reward` measures progress. A row of `raw` contains `pieces`."""
        return raw[:, :2]

    def constants(self) -> tuple[float, ...]:
        """Return the constants that the compiled function `reward` gets."""
        return ()

    def start(
        self, draws: Stream, chosen: NDArray[np.bool_], qpos: Vector, qvel: Vector
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return random positions and velocities near `qpos` and `qvel`, with a row for each True in `chosen` `[M]`."""
        noise: float = getattr(self, "reset_noise_scale")  # noqa: B009 (tasks that use this method have the field)
        start = qpos + noise * (2.0 * draws.uniform(len(qpos), chosen) - 1.0)
        if self.velocity_noise == "normal":
            return start, qvel + noise * draws.normal(len(qvel), chosen)
        return start, qvel + noise * (2.0 * draws.uniform(len(qvel), chosen) - 1.0)
