"""The simulator of an ellipse in a tabulated vortex wake, with quasi-steady forces and added mass.

Units are the cylinder's diameter D, the stream's speed U, the density ρ, and T = D/U.
"""

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.envs.flow.plant import LEFT, SENSORS, VIEW, Drafting, DraftingEngine, half_turn, outside, step_reward
from replaybench.envs.flow.wake import BY_FIDELITY, PERIOD, fill_table, look_up, records, vary, vorticity, wake_table
from replaybench.runtime.function_hash import content_hash
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import Stream

GAUSS: Final = 0.2887  # the flow acts at two points of the chord, at this distance from the centre [D]
MUNK: Final = 0.754  # potential-flow moment, π (a² − b²) [ρD²]
NEAR_EDGE, NEAR_WIDTH, NEAR_SPREAD = 2.25, 0.08, 0.7  # region where a body closes the gap behind the cylinder [D]

MAX_SUBSTEP: Final = 0.05  # longest Runge–Kutta step [T]
STATES: Final = 8
"""Length of the state of an ellipse: x, y [D], θ [rad], velocity x and y [U], angular velocity [U/D], strength κ of
vortex shedding, phase of the wake."""

Rates = tuple[float, float, float]
"""Accelerations along x and y [U/T], and angular acceleration [U/(D T)]."""


@kernel
def loads(law: Any, along: float, across: float, spin: float) -> tuple[float, float, float]:
    """Return the quasi-steady force along ξ and η [ρU²D] and the torque [ρU²D²] of the water on an ellipse.

    The axis ξ points along the chord of the ellipse, and η is normal to the chord. Units are the cylinder's diameter D,
    the stream's speed U and the density ρ.

    Args:
        law: Constants of the forces, a record with the fields of `wake.Laws`.
        along, across: Velocity of the ellipse relative to the water, along ξ and η [U].
        spin: Angular velocity of the ellipse relative to the water [U/D].
    """
    tiny = 1e-24  # keeps the angle of attack defined at rest
    speed = math.sqrt(along * along + across * across + tiny)
    turned = across - law.turning_lift * spin * along / speed
    square = along * along + turned * turned + tiny
    felt = math.sqrt(square)
    cosine2 = along * along / square  # of the angle of attack
    normal = -0.5 * felt * turned * (law.normal_linear + law.normal_cubic * (1.0 - cosine2)) - law.cross_drag * turned
    cosine4 = cosine2 * cosine2
    munk = (law.munk_bluff + law.munk_slender * cosine4 * cosine4) * MUNK
    return -law.skin_friction * math.sqrt(felt) * along, normal, -munk * along * across - law.turning_drag * spin


@kernel
def respond(
    law: Any, along: float, across: float, omega: float, force_along: float, force_across: float
) -> tuple[float, float]:
    """Return the acceleration of an ellipse along its chord ξ and along the normal η [U/T].

    The added mass turns with the ellipse. The result is the acceleration in axes that do not turn. Units are the
    cylinder's diameter D, the stream's speed U, the density ρ, and T = D/U.

    Args:
        law: Constants of the forces, a record with the fields of `wake.Laws`.
        along, across: Velocity of the ellipse relative to the water, along ξ and η [U].
        omega: Angular velocity of the ellipse [U/D].
        force_along, force_across: All other forces along ξ and η [ρU²D].
    """
    turning = omega * (law.inertia_across - law.inertia_along)
    return (
        (force_along + turning * across) * (1.0 / law.inertia_along),
        (force_across + turning * along) * (1.0 / law.inertia_across),
    )


@kernel
def settled_coupling(law: Any, x: float, y: float, cosine: float) -> float:
    """Return the strength κ that vortex shedding reaches while an ellipse is held at (x, y).

    κ is a factor on the cross-stream flow. An ellipse close behind the cylinder reduces κ. `cosine` is the cosine of
    the ellipse's angle, and `law` a record with the fields of `wake.Laws`.
    """
    height = (y * (1.0 / NEAR_SPREAD)) ** 2
    near = 2.0 * math.exp(-height * height) / (1.0 + math.exp((x - NEAR_EDGE) * (2.0 / NEAR_WIDTH)))
    settled: float = 1.0 - law.always_weaker - law.near_weaker * near * abs(cosine)
    return settled


@kernel
def accelerations(
    law: Any, x: float, y: float, cosine: float, sine: float, u: float, v: float, omega: float, coupling: float,
    phase: float, fx: float, fy: float, torque: float, table: NDArray[np.float32],
) -> Rates:  # fmt: skip
    """Return the accelerations of an ellipse under an external force (fx, fy) and torque.

    In body axes, `dV/dt = s Du/Dt + (m + m_i)⁻¹ F`. Here `Du/Dt` is the acceleration of the water, averaged over the
    chord, and s is `law.carried`. The mass is m, the added mass along axis i is m_i, and F is the total force.
    `coupling` is the strength κ of vortex shedding, a factor on the cross-stream flow. All quantities are in units of
    the cylinder's diameter, the stream's speed and the density.
    """
    dx, dy = GAUSS * cosine, GAUSS * sine
    extra_rate = 1.0 / law.period - 1.0 / PERIOD
    u1, v1, a1, b1 = look_up(table, x - dx, y - dy, phase, extra_rate)
    u2, v2, a2, b2 = look_up(table, x + dx, y + dy, phase, extra_rate)
    coupling *= law.strength
    v1, v2 = coupling * v1, coupling * v2
    slip_x, slip_y = u - 0.5 * (u1 + u2), v - 0.5 * (v1 + v2)
    shear = (cosine * (v2 - v1) - sine * (u2 - u1)) * (0.5 / GAUSS)
    along, across = cosine * slip_x + sine * slip_y, cosine * slip_y - sine * slip_x
    force_along, force_across, moment = loads(law, along, across, omega - shear)
    force_along += cosine * fx + sine * fy
    force_across += cosine * fy - sine * fx
    forward, sideways = respond(law, along, across, omega, force_along, force_across)
    return (
        law.carried * (0.5 * (a1 + a2)) + cosine * forward - sine * sideways,
        law.carried * (0.5 * coupling * (b1 + b2)) + sine * forward + cosine * sideways,
        (moment + torque) * (1.0 / law.inertia_turning),
    )


@kernel
def move(
    state: NDArray[np.float64], m: int, fx: float, fy: float, torque: float, box: Any, seconds: float, substeps: int,
    law: Any, table: NDArray[np.float32],
) -> bool:  # fmt: skip
    """Advance one ellipse in place by midpoint steps under a constant force and torque.

    While the ellipse moves, the strength κ of vortex shedding relaxes to its final value κ* by `κ̇ = (κ* − κ)/T_s` with
    the shedding period T_s. The motion stops after the first step that ends outside the box. Units are the cylinder's
    diameter D, the stream's speed U and the density ρ.

    Args:
        state: States of M ellipses, float64 `[M, STATES]`.
        m: Index of the ellipse to advance.
        fx, fy, torque: External force [ρU²D] and torque [ρU²D²].
        box: Bounds of the ellipse's centre, as in `Drafting.box`.
        seconds: Total length of all `substeps` [D/U].

    Returns:
        Whether the ellipse has left the box.
    """
    x, y, theta = state[m, 0], state[m, 1], state[m, 2]
    u, v, omega = state[m, 3], state[m, 4], state[m, 5]
    coupling, phase = state[m, 6], state[m, 7]
    step = seconds / substeps
    half = 0.5 * step
    cosine, sine = math.cos(theta), math.sin(theta)
    pace = 1.0 / law.period
    relaxing = (settled_coupling(law, x, y, cosine) - coupling) * pace
    left = False
    for _ in range(substeps):
        a, b, c = accelerations(law, x, y, cosine, sine, u, v, omega, coupling, phase, fx, fy, torque, table)
        middle = _turn_on(phase, half * pace)
        xm, ym = x + half * u, y + half * v
        cm, sm = _turned(cosine, sine, half * omega)
        um, vm, om = u + half * a, v + half * b, omega + half * c
        # The rate in the middle of the last step is accurate enough to advance κ to the middle of this step.
        km = coupling + half * relaxing
        a, b, c = accelerations(law, xm, ym, cm, sm, um, vm, om, km, middle, fx, fy, torque, table)
        relaxing = (settled_coupling(law, xm, ym, cm) - km) * pace
        x, y, theta = x + step * um, y + step * vm, theta + step * om
        cosine, sine = _turned(cosine, sine, step * om)
        u, v, omega, coupling = u + step * a, v + step * b, omega + step * c, coupling + step * relaxing
        phase = _turn_on(phase, step * pace)
        left = outside(x, y, box)
        if left:
            break
    state[m, 0], state[m, 1], state[m, 2] = x, y, theta
    state[m, 3], state[m, 4], state[m, 5] = u, v, omega
    state[m, 6], state[m, 7] = coupling, phase
    return left


@kernel
def _turned(cosine: float, sine: float, angle: float) -> tuple[float, float]:
    """Return the cosine and sine of an angle that has increased by `angle` [rad].

    For small increases, a series gives the same accuracy as the library and is faster.
    """
    if abs(angle) < 0.25:
        q = angle * angle
        c = 1.0 - q * (1 / 30) * (1.0 - q * (1 / 56) * (1.0 - q * (1 / 90)))
        c = 1.0 - q * (1 / 2) * (1.0 - q * (1 / 12) * c)
        s = 1.0 - q * (1 / 42) * (1.0 - q * (1 / 72) * (1.0 - q * (1 / 110)))
        s = angle * (1.0 - q * (1 / 6) * (1.0 - q * (1 / 20) * s))
    else:
        c, s = math.cos(angle), math.sin(angle)
    return cosine * c - sine * s, sine * c + cosine * s


@kernel
def _turn_on(phase: float, part: float) -> float:
    phase += part
    return phase - 1.0 if phase >= 1.0 else phase


@kernel
def observe(state: NDArray[np.float64], law: Any, table: NDArray[np.float32], observed: NDArray[np.float64]) -> None:
    """Write the observation `[14]` of one ellipse in `state` `[STATES]` to `observed`.

    The observation consists of the position, angle and velocities of the ellipse, and of the water's velocity relative
    to four sensors on the ellipse.
    """
    theta, omega = state[2], state[5]
    observed[0], observed[1], observed[2] = state[0], state[1], half_turn(theta)
    observed[3], observed[4], observed[5] = state[3], state[4], omega
    cosine, sine = math.cos(theta), math.sin(theta)
    for n in range(4):
        along, across = SENSORS[n]
        dx, dy = cosine * along - sine * across, sine * along + cosine * across
        u, v, _, _ = look_up(table, state[0] + dx, state[1] + dy, state[7], 0.0)
        u, v = u - (state[3] - omega * dy), state[6] * law.strength * v - (state[4] + omega * dx)
        lengthwise = law.ends_along if n < 2 else law.sides_along
        crosswise = law.ends_across if n < 2 else law.sides_across
        more = (lengthwise - crosswise) * (cosine * u + sine * v)
        observed[6 + 2 * n] = crosswise * u + more * cosine
        observed[7 + 2 * n] = crosswise * v + more * sine


class VortexWake(DraftingEngine):
    """The engine that simulates M ellipses, each in its own tabulated vortex wake.

    Lengths are in cylinder diameters D, and speeds in units of the stream's speed U.

    Attributes:
        state: State of each ellipse, float64 `[M, 8]`. The columns are x, y [D], θ [rad], velocity x and y [U], angular
            velocity [U/D], and the unobserved strength κ and phase of vortex shedding.
        laws: Constants of the forces on each ellipse in its episode, dtype `LAWS`, `[M]`.
    """

    def __init__(self, plant: Drafting, num_envs: int, frequency: float) -> None:
        super().__init__(plant, num_envs, frequency)
        self._substeps = max(1, math.ceil(1.0 / frequency / MAX_SUBSTEP - 1e-9))
        self.state = np.zeros((num_envs, STATES))
        self.laws = records(BY_FIDELITY[plant.fidelity], num_envs)
        self._table = wake_table()

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

    def changing(self) -> dict[str, NDArray[Any]]:
        laws = self.laws.view(np.float64).reshape(len(self.laws), -1)
        return {"state": self.state, "laws": laws, "applied": self.applied}

    def frame(self, member: int) -> NDArray[np.uint8]:
        """Return an image uint8 `[320, 640, 3]` of an ellipse in the vortex wake, which is drawn as if undisturbed."""
        columns, rows = np.linspace(VIEW[0], VIEW[1], 211), np.linspace(VIEW[2], VIEW[3], 106)
        water = vorticity(columns, rows, float(self.state[member, 7]))
        return self.picture().frame(water, VIEW, self.state[member, :3], self.applied[member])


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
