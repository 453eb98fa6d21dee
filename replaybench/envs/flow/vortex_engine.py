"""The drafting task on the tabulated wake: thousands of ellipses, each in a wake of its own phase, in one kernel."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel
from replaybench.data.streams import Stream
from replaybench.envs.flow.ellipse import MAX_SUBSTEP, STATES, move, observe, settled_coupling
from replaybench.envs.flow.laws import BY_FIDELITY, records, vary
from replaybench.envs.flow.plant import LEFT, SENSORS, Drafting, step_reward
from replaybench.envs.flow.vortex_table import fill_table, wake_table
from replaybench.envs.flow.vortex_wake import vorticity
from replaybench.envs.interface.engine import Engine
from replaybench.envs.ode.function_hash import content_hash

if TYPE_CHECKING:
    from replaybench.envs.flow.drawing import FlowPicture


class VortexWake(Engine):
    """M ellipses in M wakes (`replaybench.envs.flow.ellipse`, `replaybench.envs.flow.vortex_wake`).

    Attributes:
        state: float64 `[M, 8]`: x, y [D], θ [rad], velocity [U], Ω [U/D], and hidden coupling κ and phase of the wake.
        applied: float64 `[M, 3]`, the last action.
        laws: of dtype `LAWS`, `[M]`, of each ellipse in this episode.
    """

    def __init__(self, plant: Drafting, num_envs: int, frequency: float) -> None:
        super().__init__(num_envs, len(plant.state_names), frequency)
        self.plant = plant
        self._substeps = max(1, math.ceil(1.0 / frequency / MAX_SUBSTEP - 1e-9))
        self.state = np.zeros((num_envs, STATES))
        self.applied = np.zeros((num_envs, 3))
        self.laws = records(BY_FIDELITY[plant.fidelity], num_envs)
        self._table = wake_table()
        self._picture: FlowPicture | None = None

    @staticmethod
    def made_of() -> str:
        return content_hash([fill_table, _advance, _observe, _settle])

    def restart(self, chosen: NDArray[np.bool_], draws: Stream) -> None:
        poses, phases = self.plant.start(draws, chosen)
        self.state[chosen] = 0.0
        self.state[chosen, :3] = poses
        self.state[chosen, 7] = phases
        self.applied[chosen] = 0.0
        vary(self.laws, BY_FIDELITY[self.plant.fidelity], self.plant.spreads, draws, chosen)
        _settle(self.state, self.laws, chosen)
        self._observe(chosen)

    def advance(self, action: NDArray[np.float64], running: NDArray[np.bool_]) -> None:
        sample = 1.0 / self.frequency
        if self.plant.phase_noise:
            gain = self.plant.phase_noise * math.sqrt(sample) * self.draws.normal(1, running)[:, 0]
            self.state[running, 7] = (self.state[running, 7] + gain) % 1.0
        _advance(
            *(self.state, self.laws, action, running, self.plant.forces, self.plant.box, self._table),
            *(sample, self._substeps, self.applied, self.reward, self.terminated, self.event),
        )
        self._observe(running)

    def _observe(self, chosen: NDArray[np.bool_]) -> None:
        _observe(self.state, self.laws, chosen, self._table, self.observed)
        if self.plant.reading_noise:
            readings = self.draws.normal(2 * len(SENSORS), chosen)
            self.observed[chosen, -2 * len(SENSORS) :] += self.plant.reading_noise * readings

    def get_state(self) -> dict[str, NDArray[Any]]:
        laws = self.laws.view(np.float64).reshape(len(self.laws), -1)
        return {"state": self.state.copy(), "laws": laws.copy(), "applied": self.applied.copy()}

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        self.state[:] = state["state"]
        self.laws.view(np.float64).reshape(len(self.laws), -1)[:] = state["laws"]
        self.applied[:] = state["applied"]

    def infos(self) -> dict[str, NDArray[Any]]:
        """Return `actuation`, the ‖a‖² of the last step, and `left`, whether it left the box."""
        return {"actuation": (self.applied**2).sum(axis=1), "left": self.terminated.copy()}

    def frame(self, member: int) -> NDArray[np.uint8]:
        """Return a picture uint8 `[320, 640, 3]` of a member in a street that nothing weakens."""
        from replaybench.envs.flow.drawing import VIEW, FlowPicture

        if self._picture is None:
            self._picture = FlowPicture(self.plant.box)
        columns, rows = np.linspace(VIEW[0], VIEW[1], 211), np.linspace(VIEW[2], VIEW[3], 106)
        water = vorticity(columns, rows, float(self.state[member, 7]))
        return self._picture.frame(water, VIEW, self.state[member, :3], self.applied[member])


@kernel
def _advance(
    state: NDArray[np.float64], laws: NDArray[np.void], action: NDArray[np.float64], running: NDArray[np.bool_],
    unit: Any, box: Any, table: NDArray[np.float32], sample: float, substeps: int, applied: NDArray[np.float64],
    reward: NDArray[np.float64], terminated: NDArray[np.bool_], event: NDArray[np.int64],
) -> None:  # fmt: skip
    for m in range(state.shape[0]):
        if running[m]:
            a, b, c = action[m, 0], action[m, 1], action[m, 2]
            applied[m, 0], applied[m, 1], applied[m, 2] = a, b, c
            left = move(state, m, unit[0] * a, unit[1] * b, unit[2] * c, box, sample, substeps, laws[m], table)
            terminated[m] = left
            event[m] = LEFT if left else 0
            reward[m] = step_reward(a * a + b * b + c * c, left, sample)


@kernel
def _observe(
    state: NDArray[np.float64], laws: NDArray[np.void], chosen: NDArray[np.bool_], table: NDArray[np.float32],
    observed: NDArray[np.float64],
) -> None:  # fmt: skip
    for m in range(state.shape[0]):
        if chosen[m]:
            observe(state[m], laws[m], table, observed[m])


@kernel
def _settle(state: NDArray[np.float64], laws: NDArray[np.void], chosen: NDArray[np.bool_]) -> None:
    for m in range(state.shape[0]):
        if chosen[m]:
            state[m, 6] = settled_coupling(laws[m], state[m, 0], state[m, 1], math.cos(state[m, 2]))
