"""The wake of the D-section cylinder at Re = 400 as a street of Lamb–Oseen vortices.

One vortex is shed every half period, grows, drifts downstream and diffuses; a smoothed source stands for the cylinder.
The numbers are fitted to the phase average of the Navier–Stokes solver. Lengths are in D, speeds in U, times in T =
D/U; a phase is a time divided by the shedding period.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel

PERIOD: Final = 4.90  # of shedding [T]; the Strouhal number is 0.204
VORTICES: Final = 20  # the newest ones
SHED_AT: Final = 0.227  # where vortices appear [D]
SHED_SPEED: Final = 0.02  # their drift at first [U]
DRIFT_SPEED: Final = 0.60  # and at last [U]
DRIFT_LENGTH: Final = 0.587  # over which it grows [D]
ROW_FIRST: Final = 0.169  # |y| of a row far upstream [D]
ROW_LAST: Final = 0.904  # and far downstream [D]
ROW_CENTER: Final = 2.10  # [D]
ROW_WIDTH: Final = 1.08  # [D]
CIRCULATION: Final = 3.90  # of a grown vortex [U D]
GROWTH_TIME: Final = 2.51  # [T]
CORE: Final = 0.291  # radius of a new vortex [D]
DIFFUSION: Final = 4.0 / 400.0  # of the squared core radius: 4 ν [U D]
SOURCE: Final = 0.624  # flow out of the cylinder's place [U D]
SOURCE_CORE: Final = 0.1  # squared radius over which it is spread [D²]

Field = tuple[float, float, float, float]
"""u, v [U], Du/Dt, Dv/Dt [U/T]."""


@kernel
def vortex(number: int, phase: float) -> tuple[float, ...]:
    """Return the vortex that was shed as the `number`-th before `phase` in [0, 1): where it is, and how it changes.

    Returns:
        x, y [D], circulation [U D], squared core radius [D²], and the rates of x, y and circulation.
    """
    half = math.floor(2.0 * phase)
    age = PERIOD * (phase - 0.5 * half + 0.5 * number)
    sign = 1.0 if (number + half) % 2 == 0 else -1.0  # counter-clockwise vortices are shed from below
    grown = SHED_SPEED * math.exp(DRIFT_SPEED * age / DRIFT_LENGTH)
    sum_of_speeds = DRIFT_SPEED - SHED_SPEED + grown
    x = SHED_AT + DRIFT_LENGTH * math.log(sum_of_speeds / DRIFT_SPEED)
    x_rate = DRIFT_SPEED * grown / sum_of_speeds
    spread = math.tanh((x - ROW_CENTER) / ROW_WIDTH)
    half_width = 0.5 * (ROW_LAST - ROW_FIRST)
    y = -sign * (ROW_FIRST + half_width * (1.0 + spread))
    y_rate = -sign * half_width * (1.0 - spread * spread) / ROW_WIDTH * x_rate
    faded = math.exp(-((age / GROWTH_TIME) ** 2))
    circulation = sign * CIRCULATION * (1.0 - faded)
    circulation_rate = sign * CIRCULATION * faded * 2.0 * age / GROWTH_TIME**2
    return x, y, circulation, CORE * CORE + DIFFUSION * age, x_rate, y_rate, circulation_rate


@kernel
def street(phase: float) -> NDArray[np.float64]:
    """Return all vortices at `phase`, `[VORTICES, 7]`, each as `vortex` does."""
    rows = np.empty((VORTICES, 7))
    for number in range(VORTICES):
        x, y, circulation, core, x_rate, y_rate, circulation_rate = vortex(number, phase)
        rows[number, 0], rows[number, 1], rows[number, 2], rows[number, 3] = x, y, circulation, core
        rows[number, 4], rows[number, 5], rows[number, 6] = x_rate, y_rate, circulation_rate
    return rows


@kernel
def flow(x: float, y: float, vortices: NDArray[np.float64]) -> Field:
    """Return the velocity and the material acceleration at (x, y) of what `street` returned, without a table.

    A vortex turns by `Γ/2π g`, `g = (1 − e^{−r²/c})/r²` with the squared core radius c. The acceleration is
    `∂u/∂t + (u·∇)u`, every term of it in closed form.
    """
    reach = x * x + y * y + SOURCE_CORE
    strength = SOURCE / (2.0 * math.pi)
    u, v = 1.0 + strength * x / reach, strength * y / reach
    u_x = strength * (1.0 / reach - 2.0 * x * x / reach**2)
    v_y = strength * (1.0 / reach - 2.0 * y * y / reach**2)
    u_y = -strength * 2.0 * x * y / reach**2
    v_x, u_t, v_t = u_y, 0.0, 0.0
    for k in range(vortices.shape[0]):
        dx, dy, core = x - vortices[k, 0], y - vortices[k, 1], vortices[k, 3]
        turn, turn_rate = vortices[k, 2] / (2.0 * math.pi), vortices[k, 6] / (2.0 * math.pi)
        square = dx * dx + dy * dy
        decay = math.exp(-square / core)
        if square > 1e-8 * core:
            g = (1.0 - decay) / square
            slope = (decay / core - g) / square  # dg/d(r²)
        else:
            g, slope = 1.0 / core, -0.5 / core**2
        widened = -decay / core**2 * DIFFUSION  # dg/dc · dc/dt
        own_u_x, own_v_y = -turn * dy * 2.0 * dx * slope, turn * dx * 2.0 * dy * slope
        own_u_y, own_v_x = -turn * (g + 2.0 * dy * dy * slope), turn * (g + 2.0 * dx * dx * slope)
        u, v = u - turn * dy * g, v + turn * dx * g
        u_x, u_y, v_x, v_y = u_x + own_u_x, u_y + own_u_y, v_x + own_v_x, v_y + own_v_y
        changing = turn_rate * g + turn * widened
        u_t += -changing * dy - vortices[k, 4] * own_u_x - vortices[k, 5] * own_u_y
        v_t += changing * dx - vortices[k, 4] * own_v_x - vortices[k, 5] * own_v_y
    return u, v, u_t + u * u_x + v * u_y, v_t + u * v_x + v * v_y


@kernel
def vorticity(x: NDArray[np.float64], y: NDArray[np.float64], phase: float) -> NDArray[np.float64]:
    """Return the street's vorticity [U/D] at columns `x` and rows `y`, `[len(y), len(x)]`."""
    vortices = street(phase)
    out = np.zeros((y.size, x.size))
    for k in range(VORTICES):
        core = vortices[k, 3]
        peak = vortices[k, 2] / (math.pi * core)
        for i in range(y.size):
            for j in range(x.size):
                square = (x[j] - vortices[k, 0]) ** 2 + (y[i] - vortices[k, 1]) ** 2
                out[i, j] += peak * math.exp(-square / core)
    return out
