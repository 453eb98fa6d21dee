"""Constants of the forces on an ellipse in a vortex wake, in two versions, and their variation between episodes.

Both are fitted to the Navier–Stokes solver at Re = 400: `HELD` to an ellipse that is held or drifts slowly, `FREE` to
the motion of a free ellipse within an action. Policies learned with `HELD` fail in the solver within ten actions; with
`FREE`, in disturbed episodes, they last (`benchmarks/flow/flow_transfer.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernels import elementwise
from replaybench.envs.flow.vortex_wake import PERIOD

if TYPE_CHECKING:
    from replaybench.data.streams import Stream


class Laws(NamedTuple):
    """Constants in body axes: ξ along the chord, η normal to it; units of D, U and the water's density ρ.

    Kernels take them as records of `LAWS`, one for each member.
    """

    inertia_along: float  # mass and added mass along ξ [ρD²]
    inertia_across: float  # along η [ρD²]
    inertia_turning: float  # moment of inertia, with what the water adds [ρD⁴]
    turning_lift: float  # arm of the angle of attack that turning makes [D]
    normal_linear: float  # normal force, in sines of the angle of attack
    normal_cubic: float
    cross_drag: float  # normal force by slip across the chord [ρUD]
    skin_friction: float
    munk_bluff: float  # share of the potential-flow moment that separated flow leaves, broadside
    munk_slender: float  # and what edge-on adds
    turning_drag: float
    carried: float  # share of the water's acceleration, averaged over the chord, that carries the ellipse
    always_weaker: float  # by how much a body in the wake weakens shedding
    near_weaker: float  # and twice this much where it closes the gap
    strength: float  # factor on the street's cross-stream motion
    period: float  # of shedding [T]
    ends_along: float  # share of the slip that the sensors at the ends show, along ξ
    ends_across: float  # along η
    sides_along: float  # that the sensors at the sides show, along ξ
    sides_across: float  # along η


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
"""The laws that `load_spread` spreads, each by a factor of its own."""


def records(laws: Laws, count: int) -> NDArray[np.void]:
    """Return the same laws for `count` members, `[count]` of dtype `LAWS`."""
    return np.full(count, np.array(tuple(laws), LAWS))


def vary(
    records: NDArray[np.void], laws: Laws, spreads: Mapping[str, float], draws: Stream, chosen: NDArray[np.bool_]
) -> None:
    """Multiply the chosen members' laws by e^(±spread), uniform in the logarithm; draw only where a spread is positive.

    Args:
        records: of all members `[M]`, dtype `LAWS`, changed in place.
        laws: the middle values.
        spreads: by field, the largest logarithm of its factor.
        draws: the members' random numbers.
        chosen: which members, `[M]`.
    """
    names = [name for name, spread in spreads.items() if spread > 0.0]
    if names:
        drawn = 2.0 * draws.uniform(len(names), chosen) - 1.0
        for name, place in zip(names, drawn.T, strict=True):
            records[name][chosen] = getattr(laws, name) * elementwise.exp(spreads[name] * place)
