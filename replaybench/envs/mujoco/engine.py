"""The engine of the MuJoCo plants: one `MjData` per member, stepped in C without Python's lock.

MuJoCo's own batch calls do not compute the contact forces that the tasks observe (`mj_rnePostConstraint`). A member's
numbers depend neither on the thread that steps it nor on other members.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel
from replaybench.data.streams import Stream
from replaybench.envs.interface.engine import Engine
from replaybench.envs.interface.threads import thread_count
from replaybench.envs.mujoco.model import quiet

if TYPE_CHECKING:
    from replaybench.envs.mujoco.drawing import MujocoCanvas

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
            from replaybench.envs.mujoco.drawing import MujocoCanvas

            self._canvas = MujocoCanvas(self.model, *self.plant.camera), mujoco.MjData(self.model)
        canvas, shown = self._canvas
        shown.qpos[:] = self.data[member].qpos
        mujoco.mj_kinematics(self.model, shown)  # of a copy: positions lag a step behind, and are part of the next one
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
