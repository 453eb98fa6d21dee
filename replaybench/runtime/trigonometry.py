"""Sine and cosine without calls and branches, so that loops over members become vector instructions.

Calls of the C library for one number at a time would be most of the cost of a pendulum's step. These functions have
about twenty operations. Fused multiply-adds are used only where the code states them. A processor without them calls
the C library's `fma`, which is slow and exact. Results therefore have the same bits on every processor, whether one
number is computed at a time or eight.

With x = q π + r, |r| ≤ π/2, and q an integer, sin x = (−1)^q sin r; for cos x, q is an integer minus one half. The
subtraction of q π takes three parts of π (Cody and Waite 1980), the first of which fused multiply-adds subtract without
error. In sin r = r + r³ P(r²), eight coefficients minimise the largest relative error (Remez); each was
rounded before the next ones were computed.
"""

import math
from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from replaybench.runtime.kernel import kernel

LARGEST: Final = 2.0**30
"""Largest |x| in radians for which `sin` and `cos` are accurate to 2 ulp. For larger |x|, both functions return NaN.

Adjacent numbers are 2·10⁻⁷ rad apart there. A plant with such an angle has diverged, and NaN makes its member fail."""

_PI: Final = (3.141592653589793, 1.2246467991473532e-16, -2.9947698097183397e-33)
_PER_PI: Final = 0.3183098861837907
_TO_WHOLE: Final = 1.5 * 2.0**52  # adding this removes the fraction and leaves the whole number in the last bits
_P: Final = (
    -0.16666666666666666,
    0.008333333333333207,
    -0.0001984126984121248,
    2.7557319211569482e-06,
    -2.5052106904422856e-08,
    1.6058941002315898e-10,
    -7.643019373899829e-13,
    2.7214196328040625e-15,
)


@kernel
def sin(x: float) -> float:
    """Return the sine of an angle in radians as float64, accurate to 2 ulp, or NaN beyond ±`LARGEST`."""
    whole = _fma(x, _PER_PI, _TO_WHOLE)
    return _signed_sine(x, whole, whole - _TO_WHOLE)


@kernel
def cos(x: float) -> float:
    """Return the cosine of an angle in radians as float64, accurate to 2 ulp, or NaN beyond ±`LARGEST`."""
    whole = _fma(x, _PER_PI, 0.5) + _TO_WHOLE
    return _signed_sine(x, whole, (whole - _TO_WHOLE) - 0.5)


@kernel
def _signed_sine(x: float, whole: float, q: float) -> float:
    """Return sin(x − q π), with the opposite sign if the last bit of `whole` is set."""
    r = _fma(-q, _PI[2], _fma(-q, _PI[1], _fma(-q, _PI[0], x)))
    z = r * r
    z2 = z * z
    # Pairs have shorter dependency chains (Estrin 1960); the largest term is rounded last.
    p = _fma(z2, _fma(z, _P[4], _P[3]), _fma(z, _P[2], _P[1]))
    p = _fma(z2 * z2, _fma(z2, _P[7], _fma(z, _P[6], _P[5])), p)
    r = _negated_if_odd(r, whole) if abs(x) <= LARGEST else math.nan
    sine: float = _fma(r * z, _fma(z, p, _P[0]), r)
    return sine


def _fused(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """Compute a·b + c with a single rounding."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), generate


def _turned(typing_context: Any, value: Any, whole: Any) -> Any:
    """Compute `value`, with the opposite sign if the last bit of `whole` is set."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        bits, parity = (builder.bitcast(argument, ir.IntType(64)) for argument in arguments)
        turned = builder.xor(bits, builder.shl(parity, ir.Constant(ir.IntType(64), 63)))
        return builder.bitcast(turned, ir.DoubleType())

    return types.float64(types.float64, types.float64), generate


_fma: Any = intrinsic(_fused)
_negated_if_odd: Any = intrinsic(_turned)
