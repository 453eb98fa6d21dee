"""MuJoCo plants: joints, an MJCF file, physics steps, and one `MjData` per member.

Rewards, bounds and starts are those of Gymnasium's v5 tasks (Towers et al. 2024), whose MJCF files are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from replaybench.envs.interface.engine import Engine, thread_count
from replaybench.envs.interface.plant import FixedStepPlant, Vector
from replaybench.envs.mujoco.model import gymnasium_assets, load_model, model_digest, quiet
from replaybench.runtime.function_hash import content_hash
from replaybench.runtime.kernel import kernel
from replaybench.runtime.source_hash import made_of
from replaybench.runtime.streams import Stream

if TYPE_CHECKING:
    from replaybench.envs.mujoco.model import MujocoCanvas

BLOWN_UP: Final = 1
"""Bit of `event`: the simulation left all bounds. The member has terminated in its last state, with reward 0."""

_WORST: Final = 1e10  # MuJoCo calls positions and velocities beyond it unstable (mjMAXVAL)


class MujocoEngine(Engine):
    """Members of a `MujocoPlant`, stepped by `threads` threads, `thread_count()` by default.

    Attributes:
        data: one `mujoco.MjData` per member.
        marker: float64 `[M, 2]`, places of members after their last step.
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
        self._pool = ThreadPoolExecutor(max(self._others, 1))  # it starts threads when they are needed

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
        waiting = iter(np.flatnonzero(running).tolist())  # the threads take members from it in turn
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
            from replaybench.envs.mujoco.model import MujocoCanvas

            self._canvas = MujocoCanvas(self.model, *self.plant.camera), mujoco.MjData(self.model)
        canvas, shown = self._canvas
        shown.qpos[:] = self.data[member].qpos
        mujoco.mj_kinematics(self.model, shown)  # of a copy: positions lag by a step, and are part of the next one
        mujoco.mj_comPos(self.model, shown)
        return canvas.frame(shown)

    def close(self) -> None:
        self._pool.shutdown()


@kernel
def _end_lost(
    running: NDArray[np.bool_], raw: NDArray[np.float64], moving: int, terminated: NDArray[np.bool_],
    event: NDArray[np.int64],
) -> None:  # fmt: skip
    """End the members whose positions and velocities, the first `moving` columns, are lost."""
    for m in range(raw.shape[0]):
        if running[m]:
            for i in range(raw.shape[1]):
                lost = not abs(raw[m, i]) < _WORST if i < moving else raw[m, i] != raw[m, i]
                if lost:
                    running[m], terminated[m], event[m] = False, True, BLOWN_UP


FORCE_LIMIT: Final = 1e7
"""Bound on observed forces and torques [N, N m]: no contact of bodies of at most 50 kg is nearly as hard."""


@dataclass(frozen=True, kw_only=True)
class MujocoPlant(FixedStepPlant):
    """A task in MuJoCo; its fields have Gymnasium's names. A motor's gear turns a control into a force."""

    mjcf: ClassVar[str]
    """The file, in Gymnasium's folder."""
    term_names: ClassVar[tuple[str, ...]]
    """Names of what `reward` writes to `terms`."""
    velocity_noise: ClassVar[Literal["uniform", "normal"]] = "uniform"
    """Distribution of velocities at the start."""
    observes_forces: ClassVar[bool] = False
    """Whether contact forces (`cfrc_ext`) are computed after a step."""
    camera: ClassVar[tuple[float, float, float, bool]] = (3.5, 0.9, 0.15, True)
    """Of pictures: width [m], height of the middle [m], angle of view [rad], and whether they follow the body."""

    observe: ClassVar[Callable[..., None]]
    """Kernel `(chosen[M], raw[M, R], low[S], high[S], observed[M, S])`."""
    reward: ClassVar[Callable[..., None]]
    """Kernel `(running[M], raw[M, R], action[M, A], marker[M, 2], dt, constants, reward[M], terminated[M], terms[M,
    K])`; `marker` is the place of a member before the step, and is updated."""

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
        """Return the `mujoco.MjModel`."""
        return load_model(self.path)

    def engine(self, num_envs: int, frequency: float) -> Engine:
        return MujocoEngine(self, num_envs, frequency)

    def made_of(self) -> str:
        kernels = content_hash([type(self).observe, type(self).reward])
        return f"{model_digest(self.path)} {kernels} {made_of(type(self))}".rstrip()

    def pieces(self, data: Any) -> tuple[Vector, ...]:
        """Return the one-dimensional parts of an `MjData` that make up a row of `raw`: qpos and qvel first."""
        return data.qpos, data.qvel

    def marker_of(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the places `[M, 2]` of members with rows `raw` `[M, R]`, from which `reward` measures progress."""
        return raw[:, :2]

    def constants(self) -> tuple[float, ...]:
        """Return the constants that `reward` uses."""
        return ()

    def start(
        self, draws: Stream, chosen: NDArray[np.bool_], qpos: Vector, qvel: Vector
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Draw positions and velocities, a row for each chosen member, about the model's `qpos` and `qvel`."""
        noise: float = getattr(self, "reset_noise_scale")  # noqa: B009 (a field of the tasks that use this method)
        start = qpos + noise * (2.0 * draws.uniform(len(qpos), chosen) - 1.0)
        if self.velocity_noise == "normal":
            return start, qvel + noise * draws.normal(len(qvel), chosen)
        return start, qvel + noise * (2.0 * draws.uniform(len(qvel), chosen) - 1.0)
