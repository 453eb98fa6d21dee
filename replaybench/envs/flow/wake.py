"""The vortex wake of the D-section cylinder at Re = 400: model, table over one period, and random variations.

Two sets of constants for the forces on an ellipse are fitted to the Navier–Stokes solver. `HELD` is fitted to an
ellipse that is held or drifts slowly. `FREE` is fitted to the motion of a free ellipse during an action. In the solver,
policies learned with `HELD` fail within ten actions. Policies learned with `FREE` in disturbed episodes do not fail
(`benchmarks/flow/flow_transfer.py`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from replaybench.runtime import elementwise
from replaybench.runtime.kernel import kernel

if TYPE_CHECKING:
    from replaybench.runtime.streams import Stream

PERIOD: Final = 4.90  # period of vortex shedding [T]; the Strouhal number is 0.204
VORTICES: Final = 20  # number of vortices in the model, from the newest on
SHED_AT: Final = 0.227  # x at which vortices appear [D]
SHED_SPEED: Final = 0.02  # initial drift of vortices [U]
DRIFT_SPEED: Final = 0.60  # final drift of vortices [U]
DRIFT_LENGTH: Final = 0.587  # distance over which the drift grows [D]
ROW_FIRST: Final = 0.169  # |y| of a vortex row far upstream [D]
ROW_LAST: Final = 0.904  # |y| of a vortex row far downstream [D]
ROW_CENTER: Final = 2.10  # x at which the rows spread [D]
ROW_WIDTH: Final = 1.08  # distance over which the rows spread [D]
CIRCULATION: Final = 3.90  # circulation of a grown vortex [U D]
GROWTH_TIME: Final = 2.51  # time in which a vortex grows [T]
CORE: Final = 0.291  # radius of a new vortex [D]
DIFFUSION: Final = 4.0 / 400.0  # growth rate of the squared core radius: 4 ν [U D]
SOURCE: Final = 0.624  # strength of a source at the cylinder's position [U D]
SOURCE_CORE: Final = 0.1  # squared radius over which the source is spread [D²]

Field = tuple[float, float, float, float]
"""Velocity u, v [U] and acceleration Du/Dt, Dv/Dt [U/T] of the water at a point."""


@kernel
def vortex(number: int, phase: float) -> tuple[float, ...]:
    """Return the state of one vortex, and its rates of change.

    Args:
        number: Number of vortices that were shed after this one.
        phase: Phase of the wake in [0, 1).

    Returns:
        Position x and y, circulation, squared core radius, and the rates of x, y and the circulation. Units are the
            cylinder's diameter and the stream's speed.
    """
    half = math.floor(2.0 * phase)
    age = PERIOD * (phase - 0.5 * half + 0.5 * number)
    sign = 1.0 if (number + half) % 2 == 0 else -1.0  # vortices from below turn counter-clockwise
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
    """Return the states `[VORTICES, 7]` of all vortices at a phase of the wake in [0, 1), the newest vortex first.

    The columns are x, y [D], circulation [U D], squared core radius [D²], and the rates of x, y and circulation.
    """
    rows = np.empty((VORTICES, 7))
    for number in range(VORTICES):
        x, y, circulation, core, x_rate, y_rate, circulation_rate = vortex(number, phase)
        rows[number, 0], rows[number, 1], rows[number, 2], rows[number, 3] = x, y, circulation, core
        rows[number, 4], rows[number, 5], rows[number, 6] = x_rate, y_rate, circulation_rate
    return rows


@kernel
def flow(x: float, y: float, vortices: NDArray[np.float64]) -> Field:
    """Return the velocity and acceleration of the water at (x, y) for the `vortices` from `street`.

    A vortex turns the water at the rate `g Γ/(2π)` with `g = (1 − e^{−r²/c})/r²`. Here Γ is the circulation of the
    vortex, c its squared core radius, and r the distance from its centre. The acceleration is `∂u/∂t + (u·∇)u`, with
    every term in closed form.
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
    """Return the vorticity [U/D] at all points with coordinates x and y, `[len(y), len(x)]`, at a phase in [0, 1)."""
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


PHASES: Final = 48
NODES: Final = 73  # number of nodes along each axis
SPACING: Final = 0.075  # distance between nodes [D]
LEFT_EDGE: Final = 0.0  # lowest x in the table [D]
LOWER_EDGE: Final = -SPACING * (NODES - 1) / 2  # lowest y in the table [D]

_LANES: Final = 4
_ROW: Final = _LANES * NODES  # distance in the table from a node to the next along x
_SHEET: Final = _ROW * NODES  # distance in the table from a phase to the next


@kernel
def fill_table(table: NDArray[np.float32]) -> None:
    """Write the flow at all phases and grid nodes to `table`. The layout of the table is described in `wake_table`."""
    for p in range(PHASES):
        vortices = street(p / PHASES)
        for i in range(NODES):
            for j in range(NODES):
                here = p * _SHEET + i * _ROW + j * _LANES
                u, v, a, b = flow(LEFT_EDGE + SPACING * i, LOWER_EDGE + SPACING * j, vortices)
                table[here], table[here + 1], table[here + 2], table[here + 3] = u, v, a, b


@functools.cache
def wake_table() -> NDArray[np.float32]:
    """Return a table of the velocity and acceleration of the water over one period, a flat read-only float32 array.

    In C order, the axes are the phase (`PHASES`), x and y (`NODES` each), and the four numbers that `flow` returns.
    """
    table = np.empty(PHASES * _SHEET, np.float32)
    fill_table(table)
    table.flags.writeable = False
    return table


@intrinsic
def _blend(
    _context: Any, table: Any, early: Any, late: Any, w00: Any, w01: Any, w10: Any, w11: Any, lateness: Any
) -> Any:
    """Interpolate the flow between four corners of a cell, and between two phases.

    The corners have the weights `w…`, and the later phase has the weight `lateness`. `early` and `late` are the indices
    of the cell's first corner in the table at both phases. The result consists of the four numbers that `flow` returns,
    and of the changes of u and v between the phases.
    """
    double = types.float64
    signature = types.UniTuple(double, _LANES + 2)(table, types.intp, types.intp, *(double,) * 5)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        table_type = signature.args[0]
        data = context.make_array(table_type)(context, builder, args[0]).data
        narrow, wide = ir.VectorType(ir.FloatType(), _LANES), ir.VectorType(ir.DoubleType(), _LANES)
        int32 = ir.IntType(32)
        undefined = ir.Constant(wide, ir.Undefined)
        everywhere = ir.Constant(ir.VectorType(int32, _LANES), [0] * _LANES)
        fma = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(wide, [wide] * 3), f"llvm.fma.v{_LANES}f64"
        )

        def splat(scalar: Any) -> Any:
            first = builder.insert_element(undefined, scalar, ir.Constant(int32, 0))
            return builder.shuffle_vector(first, undefined, everywhere)

        weights = [splat(weight) for weight in args[3:7]]

        def cell(place: Any) -> Any:
            total = ir.Constant(wide, [0.0] * _LANES)
            for offset, weight in zip((0, _LANES, _ROW, _ROW + _LANES), weights, strict=True):
                address = builder.gep(data, [builder.add(place, ir.Constant(place.type, offset))])
                node = builder.load(builder.bitcast(address, narrow.as_pointer()), align=4)
                total = builder.call(fma, [builder.fpext(node, wide), weight, total])
            return total

        first, second = cell(args[1]), cell(args[2])
        change = builder.fsub(second, first)
        value = builder.call(fma, [change, splat(args[7]), first])
        places = [(value, lane) for lane in range(_LANES)] + [(change, 0), (change, 1)]
        lanes = [builder.extract_element(vector, ir.Constant(int32, lane)) for vector, lane in places]
        return context.make_tuple(builder, signature.return_type, lanes)

    return signature, codegen


@kernel
def look_up(table: NDArray[np.float32], x: float, y: float, phase: float, extra_rate: float) -> Field:
    """Return the flow at (x, y) and `phase` in [0, 1) by linear interpolation in the table from `wake_table`.

    At points outside of the table, the flow at the nearest edge is returned.

    Args:
        extra_rate: 1/T_s − 1/`PERIOD` for a wake of period T_s. The table's accelerations hold for `PERIOD`. The
            derivative of the velocity by phase, multiplied by `extra_rate`, is added to the accelerations.
    """
    across = min(max((x - LEFT_EDGE) * (1.0 / SPACING), 0.0), NODES - 1.0)
    up = min(max((y - LOWER_EDGE) * (1.0 / SPACING), 0.0), NODES - 1.0)
    along = phase * PHASES
    # Integers are clipped, too, because NaN must not become an address.
    i, j = min(max(int(across), 0), NODES - 2), min(max(int(up), 0), NODES - 2)
    p = min(max(int(along), 0), PHASES - 1)
    later = p + 1 if p + 1 < PHASES else 0
    fx, fy, ft = across - i, up - j, along - p
    w11 = fx * fy
    w10, w01 = fx - w11, fy - w11
    place = i * _ROW + j * _LANES
    blended: Any = _blend  # callers of an intrinsic do not pass its context
    u, v, a, b, u_change, v_change = blended(
        table, p * _SHEET + place, later * _SHEET + place, 1.0 - fx - w01, w01, w10, w11, ft
    )
    return u, v, a + extra_rate * PHASES * u_change, b + extra_rate * PHASES * v_change


class Laws(NamedTuple):
    """Constants of the forces on the ellipse in the vortex wake.

    The axis ξ points along the chord of the ellipse, and η is normal to the chord. Units are the cylinder's diameter D,
    the stream's speed U and the density ρ. Compiled functions get a record of dtype `LAWS` for each ellipse.
    """

    inertia_along: float  # mass and added mass along ξ [ρD²]
    inertia_across: float  # mass and added mass along η [ρD²]
    inertia_turning: float  # moment of inertia and added inertia [ρD⁴]
    turning_lift: float  # arm by which turning changes the angle of attack [D]
    normal_linear: float  # normal force, linear and cubic in the sine of the angle of attack
    normal_cubic: float
    cross_drag: float  # normal force per relative velocity across the chord [ρUD]
    skin_friction: float
    munk_bluff: float  # share of the potential-flow moment in separated flow, broadside
    munk_slender: float  # additional share of that moment, edge-on
    turning_drag: float
    carried: float  # share of the water's acceleration, averaged over the chord, that accelerates the ellipse
    always_weaker: float  # relative weakening of shedding by a body in the wake
    near_weaker: float  # half of the additional weakening where the body closes the gap behind the cylinder
    strength: float  # factor on the cross-stream flow of the vortex street
    period: float  # period of vortex shedding [T]
    ends_along: float  # gain of the sensors at the ends for relative velocity along ξ
    ends_across: float  # gain of the sensors at the ends for relative velocity along η
    sides_along: float  # gain of the sensors at the sides for relative velocity along ξ
    sides_across: float  # gain of the sensors at the sides for relative velocity along η


LAWS: Final = np.dtype([(name, np.float64) for name in Laws._fields])
HELD: Final = Laws(
    inertia_along=0.157 + 0.142, inertia_across=0.157 + 0.785, inertia_turning=0.0328, turning_lift=0.38,
    normal_linear=2.0, normal_cubic=2.28, cross_drag=0.0, skin_friction=0.127, munk_bluff=0.140, munk_slender=0.344,
    turning_drag=0.018, carried=1.0, always_weaker=0.30, near_weaker=0.275, strength=1.0, period=PERIOD,
    ends_along=1.0, ends_across=1.0, sides_along=1.0, sides_across=1.0,
)  # fmt: skip
FREE: Final = Laws(
    inertia_along=0.299, inertia_across=0.816, inertia_turning=0.042, turning_lift=0.0, normal_linear=0.0,
    normal_cubic=0.0, cross_drag=2.24, skin_friction=0.214, munk_bluff=0.150, munk_slender=0.0, turning_drag=0.064,
    carried=0.49, always_weaker=0.0, near_weaker=0.0, strength=1.0, period=4.61, ends_along=0.34, ends_across=0.67,
    sides_along=0.55, sides_across=0.04,
)  # fmt: skip
BY_FIDELITY: Final = {"wake": HELD, "free-wake": FREE}
FELT: Final = (
    *("inertia_along", "inertia_across", "inertia_turning", "normal_linear", "normal_cubic", "cross_drag"),
    *("skin_friction", "munk_bluff", "munk_slender", "turning_drag", "carried"),
    *("ends_along", "ends_across", "sides_along", "sides_across"),
)
"""Names of the constants that `Drafting.load_spread` varies. Each constant gets its own random factor."""


def records(laws: Laws, count: int) -> NDArray[np.void]:
    """Return an array `[count]` of dtype `LAWS` with the constants `laws` for every ellipse."""
    return np.full(count, np.array(tuple(laws), LAWS))


def vary(
    records: NDArray[np.void], laws: Laws, spreads: Mapping[str, float], draws: Stream, chosen: NDArray[np.bool_]
) -> None:
    """Draw new constants for chosen ellipses: the constants in `laws`, each times its own random factor e^s.

    s is uniform in ±spread, and `spreads` has the spread of each constant by its name. Constants with a spread of 0 are
    not changed. `records` `[M]`, of dtype `LAWS`, is changed in place for the ellipses marked in `chosen` `[M]`.
    """
    names = [name for name, spread in spreads.items() if spread > 0.0]
    if names:
        drawn = 2.0 * draws.uniform(len(names), chosen) - 1.0
        for name, place in zip(names, drawn.T, strict=True):
            records[name][chosen] = getattr(laws, name) * elementwise.exp(spreads[name] * place)
