"""Matrix products of all networks, for small matrices, with the same bits for any number of members.

LLVM's vectoriser does not keep sums in registers across the inner loop of a product. The machine code is therefore
generated here. The code computes tiles of a product. A strip is a block of columns that is 128, 64 or 32 bytes wide,
and a tile is a few rows of a strip. Each step does one fused multiply-add per vector. The number of rows of a tile
depends on the processor's registers. The order of sums does not, so that results are equal on all processors. Updates
of SAC and TD3 run 1.0 to 1.5 times as fast as those of RLtools with Intel's MKL (docs/results/speed.md).
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.cpu import CPUContext
from numba.core.typing.templates import Signature
from numba.extending import intrinsic, register_jitable

from replaybench.runtime.arrays import AnyFloats
from replaybench.runtime.kernel import kernel

STRIP_BYTES = 64
"""Width of a strip (block of columns) in bytes, to a multiple of which rows are padded. It is the width of one AVX-512
vector or of two AVX2 vectors. With AVX-512, a tile may be two strips wide."""
BLOCK_BYTES = 32
"""Width in bytes of a narrow strip (block of columns), and of the square blocks that are transposed."""
THIN_ROWS = 2
"""Largest number of rows for which each element is computed from several sums, to shorten dependency chains."""
_CHAINS = 4
Values: TypeAlias = Sequence[ir.Value]
Codegen: TypeAlias = Callable[[CPUContext, ir.IRBuilder, Signature, Values], ir.Value]
Body: TypeAlias = Callable[["_Vectors", int, Values], None]
_INT, _INT32, _BIT, _VOID = ir.IntType(64), ir.IntType(32), ir.IntType(1), ir.VoidType()


def _int(value: int) -> ir.Value:
    return ir.Constant(_INT, value)


def _has_avx512(context: CPUContext) -> bool:
    return "+avx512f" in context.codegen().magic_tuple()[2]


def _most_rows(context: CPUContext, width: int) -> int:
    return 12 if _has_avx512(context) and width >= STRIP_BYTES else 6


def _doubles(_context: object) -> tuple[Signature, Codegen]:

    def codegen(context: CPUContext, builder: ir.IRBuilder, signature: Signature, args: Values) -> ir.Value:
        return ir.Constant(_BIT, _has_avx512(context))

    return types.boolean(), codegen


doubles: Any = intrinsic(_doubles)


class _Vectors:
    """The operations on vectors of one number type, for code generation."""

    def __init__(self, builder: ir.IRBuilder, real: ir.Type, lanes: int) -> None:
        self.builder, self.real, self.lanes = builder, real, lanes
        self.type, self.int32s = ir.VectorType(real, lanes), ir.VectorType(_INT32, lanes)
        self.zero = ir.Constant(self.type, [0.0] * lanes)
        self.bytes = 4 if isinstance(real, ir.FloatType) else 8
        self.kind = f"v{lanes}f{8 * self.bytes}"

    def _call(self, name: str, result: ir.Type, *args: ir.Value) -> ir.Value:
        kind = ir.FunctionType(result, [arg.type for arg in args])
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), args)

    def shuffle(self, one: ir.Value, other: ir.Value, chosen: list[int]) -> ir.Value:
        mask = ir.Constant(ir.VectorType(_INT32, len(chosen)), chosen)
        return self.builder.shuffle_vector(one, other, mask)

    def splat(self, scalar: ir.Value) -> ir.Value:
        undefined = ir.Constant(ir.VectorType(scalar.type, self.lanes), ir.Undefined)
        first = self.builder.insert_element(undefined, scalar, ir.Constant(_INT32, 0))
        return self.shuffle(first, undefined, [0] * self.lanes)

    def fma(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        return self._call(f"llvm.fma.{self.kind}", self.type, a, b, c)

    def load(self, pointer: ir.Value) -> ir.Value:
        return self.builder.load(self.builder.bitcast(pointer, self.type.as_pointer()), align=self.bytes)

    def store(self, vector: ir.Value, pointer: ir.Value) -> None:
        self.builder.store(vector, self.builder.bitcast(pointer, self.type.as_pointer()), align=self.bytes)

    def first(self, count: ir.Value) -> ir.Value:
        """Return the mask of the first `count` lanes."""
        lane = ir.Constant(self.int32s, list(range(self.lanes)))
        return self.builder.icmp_signed("<", lane, self.splat(self.builder.trunc(count, _INT32)))

    def load_masked(self, pointer: ir.Value, mask: ir.Value) -> ir.Value:
        """Load the lanes that the mask selects. Other lanes are 0, and their memory is not accessed."""
        target, align = self.builder.bitcast(pointer, self.type.as_pointer()), ir.Constant(_INT32, self.bytes)
        return self._call(f"llvm.masked.load.{self.kind}.p0", self.type, target, align, mask, self.zero)

    def store_masked(self, vector: ir.Value, pointer: ir.Value, mask: ir.Value) -> None:
        target, align = self.builder.bitcast(pointer, self.type.as_pointer()), ir.Constant(_INT32, self.bytes)
        self._call(f"llvm.masked.store.{self.kind}.p0", _VOID, vector, target, align, mask)

    def sum(self, vector: ir.Value) -> ir.Value:
        """Return the sum of all lanes, by adding halves until one number is left."""
        width = self.lanes
        while width > 1:
            width //= 2
            low, high = (self.shuffle(vector, vector, list(range(at, at + width))) for at in (0, width))
            vector = self.builder.fadd(low, high)
        return self.builder.extract_element(vector, ir.Constant(_INT32, 0))


class _Loop:
    """A generated loop over `count` ≥ 0 steps, with values that stay in registers from step to step."""

    def __init__(self, builder: ir.IRBuilder, count: ir.Value, *carried: ir.Value) -> None:
        self.builder, self._before = builder, builder.block
        self._body, self._after = (builder.append_basic_block(name) for name in ("loop", "after"))
        self._start = carried
        builder.cbranch(builder.icmp_signed(">", count, _int(0)), self._body, self._after)
        builder.position_at_end(self._body)
        self._left = builder.phi(_INT)
        self._left.add_incoming(count, self._before)
        self.carried = [builder.phi(value.type) for value in carried]
        for phi, value in zip(self.carried, carried, strict=True):
            phi.add_incoming(value, self._before)

    def close(self, *following: ir.Value) -> list[ir.Value]:
        """End the body of the loop with the values for the next step, and return the values after the loop."""
        builder, end = self.builder, self.builder.block
        left = builder.sub(self._left, _int(1))
        for phi, value in zip([self._left, *self.carried], [left, *following], strict=True):
            phi.add_incoming(value, end)
        builder.cbranch(builder.icmp_signed(">", left, _int(0)), self._body, self._after)
        builder.position_at_end(self._after)
        results = []
        for first, value in zip(self._start, following, strict=True):
            result = builder.phi(value.type)
            result.add_incoming(first, self._before)
            result.add_incoming(value, end)
            results.append(result)
        return results


def _tile(
    v: _Vectors, rows: int, c: ir.Value, ldc: ir.Value, n: ir.Value, a: ir.Value, strides: Values, b: ir.Value,
    ldb: ir.Value, depth: ir.Value,
) -> None:  # fmt: skip
    """Generate code for C[:rows, :n] = A · B with all sums in registers. Three rows of A share a pointer."""
    builder, (a_row, a_col) = v.builder, strides
    twice = builder.add(a_row, a_row)
    thrice = builder.add(twice, a_row)
    starts = [a]
    for _ in range((rows - 1) // 3):
        starts.append(builder.gep(starts[-1], [thrice]))
    loop = _Loop(builder, depth, b, *starts, *[v.zero] * rows)
    b_row, pointers, sums = loop.carried[0], loop.carried[1 : 1 + len(starts)], loop.carried[1 + len(starts) :]
    b_vector = v.load(b_row)
    following = []
    for row, total in enumerate(sums):
        place = pointers[row // 3]
        if row % 3:
            place = builder.gep(place, [(a_row, twice)[row % 3 - 1]])
        following.append(v.fma(v.splat(builder.load(place)), b_vector, total))
    moved = [builder.gep(pointer, [a_col]) for pointer in pointers]
    totals = loop.close(builder.gep(b_row, [ldb]), *moved, *following)[1 + len(starts) :]
    _write(v, totals, c, ldc, n)


def _write(v: _Vectors, totals: list[ir.Value], c: ir.Value, ldc: ir.Value, n: ir.Value) -> None:
    builder, targets = v.builder, [c]
    for _ in totals[1:]:
        targets.append(builder.gep(targets[-1], [ldc]))
    with builder.if_else(builder.icmp_signed(">=", n, _int(v.lanes))) as (whole, part):
        with whole:
            for total, target in zip(totals, targets, strict=True):
                v.store(total, target)
        with part:
            mask = v.first(n)
            for total, target in zip(totals, targets, strict=True):
                v.store_masked(total, target, mask)


def _thin(
    v: _Vectors, c: ir.Value, ldc: ir.Value, n: ir.Value, a: ir.Value, a_col: ir.Value, b: ir.Value, ldb: ir.Value,
    depth: ir.Value,
) -> None:  # fmt: skip
    """Generate code for one row of a product, from four sums over every fourth k. The first includes the remainder."""
    builder = v.builder

    def step(a: ir.Value, b: ir.Value, total: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
        total = v.fma(v.splat(builder.load(a)), v.load(b), total)
        return builder.gep(a, [a_col]), builder.gep(b, [ldb]), total

    loop = _Loop(builder, builder.sdiv(depth, _int(_CHAINS)), a, b, *[v.zero] * _CHAINS)
    a_at, b_at, *sums = loop.carried
    for chain in range(_CHAINS):
        a_at, b_at, sums[chain] = step(a_at, b_at, sums[chain])
    a_at, b_at, *sums = loop.close(a_at, b_at, *sums)
    loop = _Loop(builder, builder.srem(depth, _int(_CHAINS)), a_at, b_at, sums[0])
    sums[0] = loop.close(*step(*loop.carried))[2]
    total = builder.fadd(builder.fadd(sums[0], sums[1]), builder.fadd(sums[2], sums[3]))
    _write(v, [total], c, ldc, n)


def _strip_body(v: _Vectors, most: int, args: Values) -> None:
    """Generate code for a product, whose rows are cut into as few tiles as possible, of almost equal height."""
    builder = v.builder
    c, ldc, rows, n, a, a_row, a_col, b, ldb, depth = args
    with builder.if_then(builder.icmp_signed("<=", rows, _int(THIN_ROWS))):
        loop = _Loop(builder, rows, c, a)
        _thin(v, loop.carried[0], ldc, n, loop.carried[1], a_col, b, ldb, depth)
        loop.close(builder.gep(loop.carried[0], [ldc]), builder.gep(loop.carried[1], [a_row]))
        builder.ret_void()
    tiles = builder.sdiv(builder.add(rows, _int(most - 1)), _int(most))
    size, larger = builder.sdiv(rows, tiles), builder.srem(rows, tiles)
    loop = _Loop(builder, tiles, c, a, larger)
    c_at, a_at, larger = loop.carried
    height = builder.add(size, builder.zext(builder.icmp_signed(">", larger, _int(0)), _INT))
    end = builder.append_basic_block("tile_done")
    cases = builder.switch(height, end)
    for case in range(1, most + 1):
        block = builder.append_basic_block(f"rows{case}")
        cases.add_case(_int(case), block)
        builder.position_at_end(block)
        _tile(v, case, c_at, ldc, n, a_at, (a_row, a_col), b, ldb, depth)
        builder.branch(end)
    builder.position_at_end(end)
    c_next = builder.gep(c_at, [builder.mul(height, ldc)])
    a_next = builder.gep(a_at, [builder.mul(height, a_row)])
    loop.close(c_next, a_next, builder.sub(larger, _int(1)))
    builder.ret_void()


def _dots_body(v: _Vectors, _most: int, args: Values) -> None:
    builder = v.builder
    c, ldc, rows, a, a_row, b, depth = args
    whole, left = builder.sdiv(depth, _int(v.lanes)), builder.srem(depth, _int(v.lanes))
    mask = v.first(left)
    rows_loop = _Loop(builder, rows, c, a)
    c_at, a_at = rows_loop.carried
    loop = _Loop(builder, whole, a_at, b, v.zero)
    a_on, b_on, total = loop.carried
    total = v.fma(v.load(a_on), v.load(b_on), total)
    a_on, b_on, total = loop.close(builder.gep(a_on, [_int(v.lanes)]), builder.gep(b_on, [_int(v.lanes)]), total)
    before = builder.block
    with builder.if_then(builder.icmp_signed(">", left, _int(0))):
        longer = v.fma(v.load_masked(a_on, mask), v.load_masked(b_on, mask), total)
        inside = builder.block
    chosen = builder.phi(v.type)
    chosen.add_incoming(total, before)
    chosen.add_incoming(longer, inside)
    builder.store(v.sum(chosen), c_at)
    rows_loop.close(builder.gep(c_at, [ldc]), builder.gep(a_at, [a_row]))
    builder.ret_void()


def _transpose_body(v: _Vectors, _most: int, args: Values) -> None:
    """Generate code that transposes by blocks. Each pass over a block exchanges one bit of row and column numbers."""
    builder, edge = v.builder, v.lanes
    target, ldt, source, lds, rows, columns = args

    def blocks(count: ir.Value) -> ir.Value:
        return builder.sdiv(builder.add(count, _int(edge - 1)), _int(edge))

    outer = _Loop(builder, blocks(rows), target, source)
    inner = _Loop(builder, blocks(columns), *outer.carried)
    to, at = inner.carried
    block = [v.load(builder.gep(at, [builder.mul(lds, _int(row))])) for row in range(edge)]
    distance = 1
    while distance < edge:
        for row in range(edge):
            if row & distance:
                continue
            low, high = block[row], block[row | distance]
            lanes = range(edge)
            kept = [edge + lane - distance if lane & distance else lane for lane in lanes]
            moved = [edge + lane if lane & distance else lane + distance for lane in lanes]
            block[row], block[row | distance] = v.shuffle(low, high, kept), v.shuffle(low, high, moved)
        distance *= 2
    for row, vector in enumerate(block):
        v.store(vector, builder.gep(to, [builder.mul(ldt, _int(row))]))
    inner.close(builder.gep(to, [builder.mul(ldt, _int(edge))]), builder.gep(at, [_int(edge)]))
    to, at = outer.carried
    outer.close(builder.gep(to, [_int(edge)]), builder.gep(at, [builder.mul(lds, _int(edge))]))
    builder.ret_void()


def _routine(
    context: CPUContext, builder: ir.IRBuilder, name: str, real: ir.Type, width: int, arguments: str,
    body: Callable[[_Vectors, Values], None],
) -> ir.Value:  # fmt: skip
    """Return a generated function of an LLVM module, whose `arguments` are pointers (p) and integers (i)."""
    lanes = width // (4 if isinstance(real, ir.FloatType) else 8)
    kind = ir.FunctionType(_VOID, [real.as_pointer() if letter == "p" else _INT for letter in arguments])
    function = cgutils.get_or_insert_function(builder.module, kind, f"replaybench.{name}.{real}.{width}")
    if function.is_declaration:
        function.linkage = "linkonce_odr"
        function.attributes.add("noinline")
        inside = ir.IRBuilder(function.append_basic_block("entry"))
        body(_Vectors(inside, real, lanes), function.args)
    return function


def _routine_of(name: str, width: int, arguments: str, body: Body) -> Any:
    """Return a Numba intrinsic that calls a generated routine.

    After each array, callers pass the index of its first element. `arguments` are those of `_routine`. `body` generates
    the code, from the vector operations, the largest number of rows of a tile and the arguments.
    """

    def call(_context: object, *given: types.Type) -> tuple[Signature, Codegen]:
        def codegen(context: CPUContext, builder: ir.IRBuilder, signature: Signature, args: Values) -> ir.Value:
            pairs, passed = iter(zip(signature.args, args, strict=True)), []
            for kind, value in pairs:
                if isinstance(kind, types.Array):
                    start = next(pairs)[1]
                    value = builder.gep(context.make_array(kind)(context, builder, value).data, [start])
                passed.append(value)
            real, most = context.get_data_type(signature.args[0].dtype), _most_rows(context, width)
            function = _routine(
                context, builder, f"{name}{most}", real, width, arguments,
                lambda vectors, args: body(vectors, most, args),
            )  # fmt: skip
            builder.call(function, passed)
            return context.get_dummy_value()

        return types.void(*(kind if isinstance(kind, types.Array) else types.intp for kind in given)), codegen

    names = ["_context", *(f"given{i}" for i in range(len(arguments) + arguments.count("p")))]
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # Numba asks for it
    return intrinsic(call)


double_strip, wide_strip, narrow_strip = (
    _routine_of("strip", width, "piiipiipii", _strip_body) for width in (2 * STRIP_BYTES, STRIP_BYTES, BLOCK_BYTES)
)
"""Write C[:rows, :n] = A · B, where n is at most the width of the strip (block of columns).

The call is `strip(c, c0, ldc, rows, n, a, a0, a_row, a_col, b, b0, ldb, depth)`."""
row_dots = _routine_of("row_dots", STRIP_BYTES, "piipipi", _dots_body)
"""Write C[r] = Σ_k A[r, k] · B[k], for contiguous rows: `row_dots(c, c0, ldc, rows, a, a0, a_row, b, b0, depth)`."""
transpose = _routine_of("transpose", BLOCK_BYTES, "pipiii", _transpose_body)
"""Write target[j, i] = source[i, j] in whole blocks: `transpose(target, t0, ldt, source, s0, lds, rows, columns)`."""


_CLOSE = 8
"""Largest number of strips per row for which a column of a network's matrix always fits in the first-level cache."""


@register_jitable
def padded(length: int, itemsize: int) -> int:
    """Return the row stride of a scratch matrix, which is `length` rounded up to whole strips of 64 bytes.

    `length` and the result count numbers of `itemsize` bytes.
    """
    lanes = STRIP_BYTES // itemsize
    return -(-length // lanes) * lanes


def spread(length: int, itemsize: int) -> int:
    """Return a row stride of at least `length` with which a column of a large matrix stays in the first-level cache.

    Wide rows have an odd number of strips of 64 bytes, because strides of a power of two map to the same few cache
    lines. `length` and the result count numbers of `itemsize` bytes.
    """
    strips = padded(length, itemsize) * itemsize // STRIP_BYTES
    apart = strips > _CLOSE and strips % 2 == 0
    return (strips + apart) * STRIP_BYTES // itemsize


@kernel
def matmul(
    c: AnyFloats, c0: int, ldc: int, rows: int, columns: int,
    a: AnyFloats, a0: int, a_row: int, a_col: int,
    b: AnyFloats, b0: int, ldb: int, depth: int,
) -> None:  # fmt: skip
    """Write the matrix product C = A · B of matrices in flat arrays.

    The products a_ik b_kj are added in the order of k. If C has one or two rows, each element is the sum of four sums
    over every fourth k. Each matrix has a row stride and the index of its first element.

    Args:
        c: Array of C `[rows, columns]`, with first element `c0` and row stride `ldc`.
        a: Array of A `[rows, depth]`, with first element `a0` and strides `a_row` and `a_col`.
        b: Array of B `[depth, columns]`, with first element `b0` and row stride `ldb`. Rows are read in whole vectors,
            so `ldb` must be padded (see `padded`). The padding has no effect.
    """
    wide, narrow = STRIP_BYTES // c.itemsize, BLOCK_BYTES // c.itemsize
    j = 0
    while j < columns:
        if doubles() and columns - j >= 2 * wide:
            double_strip(c, c0 + j, ldc, rows, 2 * wide, a, a0, a_row, a_col, b, b0 + j, ldb, depth)
            j += 2 * wide
        elif columns - j >= wide:
            wide_strip(c, c0 + j, ldc, rows, wide, a, a0, a_row, a_col, b, b0 + j, ldb, depth)
            j += wide
        else:
            n = min(narrow, columns)
            j = min(j, columns - n)
            narrow_strip(c, c0 + j, ldc, rows, n, a, a0, a_row, a_col, b, b0 + j, ldb, depth)
            j += n


def _fused(_context: object, a: Any, b: Any, c: Any) -> tuple[Signature, Codegen] | None:

    def codegen(context: CPUContext, builder: ir.IRBuilder, signature: Signature, args: Values) -> ir.Value:
        real = args[0].type
        name = "llvm.fma.f32" if isinstance(real, ir.FloatType) else "llvm.fma.f64"
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(real, [real] * 3), name)
        return builder.call(function, args)

    return (c(a, b, c), codegen) if a == b == c and a in (types.float32, types.float64) else None


_fma: Any = intrinsic(_fused)


@kernel
def row_product(x: AnyFloats, weights: AnyFloats, out: AnyFloats) -> None:
    """Write the product of x `[in]` and weights `[in, out]` to `out`, with the same bits as `matmul`.

    Vector instructions run along the outputs. With `matmul`, most lanes of the vectors would be empty.
    """
    inputs, outputs = weights.shape
    if outputs <= THIN_ROWS:
        whole = inputs - inputs % 4
        for o in range(outputs):
            a = b = c = d = weights.dtype.type(0)
            for k in range(0, whole, 4):
                a = _fma(x[k], weights[k, o], a)
                b = _fma(x[k + 1], weights[k + 1, o], b)
                c = _fma(x[k + 2], weights[k + 2, o], c)
                d = _fma(x[k + 3], weights[k + 3, o], d)
            for k in range(whole, inputs):
                a = _fma(x[k], weights[k, o], a)
            out[o] = (a + b) + (c + d)
        return
    for o in range(outputs):
        out[o] = 0
    k = 0
    while k + 4 <= inputs:
        one, two, three, four = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
        x_1, x_2, x_3, x_4 = x[k], x[k + 1], x[k + 2], x[k + 3]
        for o in range(outputs):
            out[o] = _fma(x_4, four[o], _fma(x_3, three[o], _fma(x_2, two[o], _fma(x_1, one[o], out[o]))))
        k += 4
    while k < inputs:
        row, x_k = weights[k], x[k]
        for o in range(outputs):
            out[o] = _fma(x_k, row[o], out[o])
        k += 1
