"""The vortex wake as a table over one period, and its interpolation.

Interpolation takes nearly all of a population's time. The four quantities of a node (u, v, Du/Dt, Dv/Dt) are therefore
one vector, and the weighted sum over the eight nodes around a point is written in LLVM IR through Numba's `intrinsic`,
since Numba does not vectorise such code.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from replaybench.data.kernel import kernel
from replaybench.envs.flow.vortex_wake import Field, flow, street

PHASES: Final = 48
NODES: Final = 73  # along each axis
SPACING: Final = 0.075  # [D]
LEFT_EDGE: Final = 0.0  # lowest x in the table [D]
LOWER_EDGE: Final = -SPACING * (NODES - 1) / 2  # lowest y in the table [D]

_LANES: Final = 4
_ROW: Final = _LANES * NODES  # from a node to the next along x
_SHEET: Final = _ROW * NODES  # from a phase to the next


@kernel
def fill_table(table: NDArray[np.float32]) -> None:
    """Write the flow of all phases at all nodes."""
    for p in range(PHASES):
        vortices = street(p / PHASES)
        for i in range(NODES):
            for j in range(NODES):
                here = p * _SHEET + i * _ROW + j * _LANES
                u, v, a, b = flow(LEFT_EDGE + SPACING * i, LOWER_EDGE + SPACING * j, vortices)
                table[here], table[here + 1], table[here + 2], table[here + 3] = u, v, a, b


@functools.cache
def wake_table() -> NDArray[np.float32]:
    """Return the flow over one period, float32, flat: by phase, x, y and the four quantities; read-only, made once."""
    table = np.empty(PHASES * _SHEET, np.float32)
    fill_table(table)
    table.flags.writeable = False
    return table


@intrinsic
def _blend(
    _context: Any, table: Any, early: Any, late: Any, w00: Any, w01: Any, w10: Any, w11: Any, lateness: Any
) -> Any:
    """Sum four corners of a cell, from two phases: their weights, and the share of the later phase.

    `early` and `late` are places of the cells' first corners in the flat table. Returns the four quantities, and by how
    much u and v change from the earlier phase to the later.
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
    """Return the flow at (x, y) and `phase` in [0, 1), linear between the nodes of `wake_table`, constant beyond.

    Args:
        extra_rate: 1/T_s − 1/`PERIOD` for a wake of period T_s. The accelerations in the table hold for `PERIOD`. This
            much times the change of velocity with the phase is added to them.
    """
    across = min(max((x - LEFT_EDGE) * (1.0 / SPACING), 0.0), NODES - 1.0)
    up = min(max((y - LOWER_EDGE) * (1.0 / SPACING), 0.0), NODES - 1.0)
    along = phase * PHASES
    # Clipped once more as integers: a position that is no number must not become an address.
    i, j = min(max(int(across), 0), NODES - 2), min(max(int(up), 0), NODES - 2)
    p = min(max(int(along), 0), PHASES - 1)
    later = p + 1 if p + 1 < PHASES else 0
    fx, fy, ft = across - i, up - j, along - p
    w11 = fx * fy
    w10, w01 = fx - w11, fy - w11
    place = i * _ROW + j * _LANES
    blended: Any = _blend  # as Numba sees it
    u, v, a, b, u_change, v_change = blended(
        table, p * _SHEET + place, later * _SHEET + place, 1.0 - fx - w01, w01, w10, w11, ft
    )
    return u, v, a + extra_rate * PHASES * u_change, b + extra_rate * PHASES * v_change
