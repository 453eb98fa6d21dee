"""Calls of kernels one after the other, member by member and update by update, without Python between them.

A phase of updates is: draw, fetch, learn, annotate, and again; a stride of steps: act, move, store, and again. Each is
a kernel for a whole population, and those that follow each other come from wings that know nothing of each other. Here
they are called on one member at a time: as members are independent, the numbers are those of calls for all, and all
that belongs to a member stays in cache. No kernel is compiled for this. A call is made from a row of words, what
arguments are to the machine (addresses, sizes, numbers); for another member or update other words stand there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from llvmlite import binding, ir
from numba import typeof, types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.extending import intrinsic
from numpy.typing import NDArray

from replaybench.data.kernel import kernel

_WORD: Final = ir.IntType(64)
_IN_A_ROW: Final = 64  # updates of a member, between which there is time for interruptions
_MEMBER_STEPS: Final = 2048  # in one `run`, after which others are told
_FEWEST: Final = 8  # for which a `run` is worth its preparation
_FEW_MEMBERS: Final = 48  # more fill vectors in kernels for all of them, which takes less time than no Python does


class Whole(NamedTuple):
    """An argument that does not begin with an axis of members.

    A NamedTuple says so of its fields by a static method `whole`, which returns their names.
    """

    value: Any


class Each(NamedTuple):
    """An argument for each update: `[U, M, …]`, of which a kernel gets `[1, …]`; or numbers `[U]`, of which one."""

    values: NDArray[Any]


class Call(NamedTuple):
    """A call of a kernel; arrays begin with an axis of M members unless they are `Whole`, and get one of length 1."""

    kernel: Any
    arguments: tuple[Any, ...]

    def make(self) -> None:
        """Make the call for all members at once, in a single update."""
        self.kernel(*[
            value.value if (kind := type(value)) is Whole else _example(value) if kind is Each else value
            for value in self.arguments
        ])  # fmt: skip


def make_all(calls: Iterable[Call]) -> None:
    """Make calls for all members at once, one after the other, in a single update."""
    for call in calls:
        call.make()


class _Row:
    """The words of a call's arguments, `start` for the first member and update.

    Attributes:
        start: words.
        by_member: place and distance of the words that differ between members.
        by_update: place and the words themselves `[U]` of those that differ between updates.
        kinds: what tells arguments of other types apart, cheaper to come by than Numba's types.
    """

    def __init__(self, members: int) -> None:
        self.members = members
        self.start: list[int] = []
        self.kinds: list[Any] = []
        self.by_member: list[tuple[int, int]] = []
        self.by_update: list[tuple[int, NDArray[np.int64]]] = []

    def add(self, value: Any, whole: bool = False) -> None:
        """Append an argument."""
        if isinstance(value, np.ndarray):
            self._add_array(value, whole)
        elif isinstance(value, Whole):
            self.add(value.value, whole=True)
        elif isinstance(value, Each):
            self._add_each(value.values)
        elif isinstance(value, tuple):
            self.kinds.append((type(value), len(value)))
            names = getattr(value, "_fields", value)
            shared: tuple[str, ...] = value.whole() if hasattr(value, "whole") else ()
            for name, part in zip(names, value, strict=True):
                self.add(part, whole or (len(shared) > 0 and name in shared))
        else:
            self.kinds.append(type(value))
            self.start.append(_word(value))

    def _add_array(self, array: NDArray[Any], whole: bool) -> None:
        size, shape, strides = array.size, array.shape, array.strides
        if not whole:
            if shape[0] != self.members:
                raise ValueError(f"an array of shape {shape} does not begin with {self.members} members")
            if shape[0] > 1:
                self.by_member.append((len(self.start) + 4, strides[0]))
            size, shape = size // shape[0], (1, *shape[1:])
        flags = array.flags
        self.kinds.append((array.dtype, len(shape), flags.c_contiguous, flags.f_contiguous, flags.writeable))
        self.start += (0, 0, size, array.itemsize, array.__array_interface__["data"][0], *shape, *strides)

    def _add_each(self, values: NDArray[Any]) -> None:
        place = len(self.start)
        if values.ndim == 1:
            self.by_update.append((place, np.array([_word(value) for value in values.tolist()], np.int64)))
            self.add(values[0].item())
        else:
            self._add_array(values[0], whole=False)
            self.by_update.append((place + 4, self.start[place + 4] + values.strides[0] * np.arange(len(values))))


def _example(value: Any) -> Any:
    """Return what a kernel gets for an argument, as far as its type goes."""
    if isinstance(value, Whole):
        return _example(value.value)
    if isinstance(value, Each):
        return values[0] if (values := value.values).ndim > 1 else values[0].item()
    if isinstance(value, tuple):
        parts = [_example(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def _word(number: Any) -> int:
    if isinstance(number, float):
        return int(np.float64(number).view(np.int64))
    if isinstance(number, np.float32):
        return int(number.view(np.int32))
    return int(number)


def run(calls: Sequence[Call], members: int, updates: int, going: NDArray[np.bool_] | None = None) -> None:
    """Make the calls in turn, for each update of each member.

    Args:
        calls: the calls.
        members, updates: M and U.
        going: `[M]`, who has further updates, as the calls have left it; everybody if not given.

    Raises:
        Exception: what a kernel has raised.
        ValueError: an array does not begin with an axis of members.
    """
    row, kinds, starts = _Row(members), [], []
    for call in calls:
        starts.append(len(row.start))
        row.kinds = [call.kernel]
        for argument in call.arguments:
            row.add(argument)
        kinds.append(tuple(row.kinds))
    _enter({kind: call for kind, call in zip(kinds, calls, strict=True) if kind not in _ENTRIES})
    entries = [_ENTRIES[kind] for kind in kinds]
    by_member = np.array(row.by_member, np.int64).reshape(-1, 2)
    place = np.array([place for place, _ in row.by_update], np.int64)
    table = np.array([words for _, words in row.by_update], np.int64).reshape(len(place), updates)
    # What an update's words are for the first member; another member's are as far from them as its others are.
    moved = dict(row.by_member)
    apart = np.array([moved.get(at, 0) for at in place.tolist()], np.int64)
    words = np.array(row.start, np.int64)
    going = np.ones(members, np.bool_) if going is None else going
    made_of = np.array(entries), np.array(starts), words, by_member, place, apart, table
    for member in range(members):
        for first in range(0, updates, _IN_A_ROW):
            failed = _run(*made_of, member, first, min(updates, first + _IN_A_ROW), going)
            if failed >= 0:
                calls[failed].make()  # which says what it says
                raise RuntimeError(f"{calls[failed].kernel.__name__} has raised an error")


_ENTRIES: Final[dict[tuple[Any, ...], int]] = {}
"""Addresses of code by kernel and kinds of arguments."""


def _enter(calls: Mapping[tuple[Any, ...], Call]) -> None:
    """Make code that makes calls of these kinds on rows of words, without Numba's passes: there is nothing to gain."""
    if not calls:
        return
    with global_compiler_lock:
        module = ir.Module("replaybench.words")
        for number, call in enumerate(calls.values()):
            _write_entry(module, f"words.{number}", call)
        machine = binding.Target.from_default_triple().create_target_machine(opt=0, jit=True)
        engine = binding.create_mcjit_compiler(binding.parse_assembly(str(module)), machine)
        engine.finalize_object()
        _KEPT.append(engine)
        for number, kind in enumerate(calls):
            _ENTRIES[kind] = engine.get_function_address(f"words.{number}")


def _write_entry(module: ir.Module, name: str, call: Call) -> None:
    """Write a function that calls a kernel on a row of words."""
    arguments = tuple(typeof(_example(value)) for value in call.arguments)
    call.kernel.compile(arguments)
    found = call.kernel.overloads[arguments]
    kind = cpu_target.target_context.call_conv.get_function_type(found.signature.return_type, arguments)
    entry = ir.Function(module, ir.FunctionType(ir.IntType(32), [_WORD.as_pointer()]), name)
    builder = ir.IRBuilder(entry.append_basic_block("entry"))
    result, error = builder.alloca(kind.args[0].pointee), builder.alloca(kind.args[1].pointee)
    flat = []
    for place, wanted in enumerate(kind.args[2:]):
        word = builder.load(builder.gep(entry.args[0], [ir.Constant(_WORD, place)]))
        flat.append(_as(builder, word, wanted))
    address = found.library.get_pointer_to_function(found.fndesc.llvm_func_name)
    callee = builder.inttoptr(ir.Constant(_WORD, address), kind.as_pointer())
    builder.ret(builder.call(callee, [result, error, *flat]))


_KEPT: Final[list[Any]] = []
"""Code goes when its engine does."""


def _as(builder: Any, word: Any, wanted: Any) -> Any:
    if isinstance(wanted, ir.PointerType):
        return builder.inttoptr(word, wanted)
    if isinstance(wanted, ir.DoubleType):
        return builder.bitcast(word, wanted)
    if isinstance(wanted, ir.FloatType):
        return builder.bitcast(builder.trunc(word, ir.IntType(32)), wanted)
    return word if wanted.width == 64 else builder.trunc(word, wanted)


def _call_entry(_context: Any, entry: Any, words: Any, start: Any) -> Any:
    """Call the code at an address on the words from `start` on; return its status, 0 if all went well."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        entry, words, start = args
        data = context.make_array(signature.args[1])(context, builder, words).data
        kind = ir.FunctionType(ir.IntType(32), [_WORD.as_pointer()])
        return builder.call(builder.inttoptr(entry, kind.as_pointer()), [builder.gep(data, [start])])

    return types.int32(types.int64, words, types.int64), codegen


_call: Any = intrinsic(_call_entry)


@kernel
def _run(
    entries: NDArray[np.int64],
    starts: NDArray[np.int64],
    start: NDArray[np.int64],
    by_member: NDArray[np.int64],
    place: NDArray[np.int64],
    apart: NDArray[np.int64],
    by_update: NDArray[np.int64],
    m: int,
    first: int,
    end: int,
    going: NDArray[np.bool_],
) -> int:
    """Make the calls for updates from `first` to `end` of member m; return which has failed, −1 if none."""
    words = start.copy()
    for k in range(by_member.shape[0]):
        words[by_member[k, 0]] = start[by_member[k, 0]] + m * by_member[k, 1]
    for u in range(first, end):
        if not going[m]:
            break
        for k in range(place.size):
            words[place[k]] = by_update[k, u] + m * apart[k]
        for call in range(entries.size):
            if _call(entries[call], words, starts[call]) != 0:
                return call
    return -1


def count_from(first: int, updates: int) -> Each:
    """Return `first`, and one more in each of so many updates."""
    return Each(np.arange(first, first + updates))


def stride_of(steps: int, members: int) -> int:
    """Return how many of so many steps are to be made in one `run`; 0 where one by one is as good."""
    together = min(steps, _MEMBER_STEPS // members)
    return together if together >= _FEWEST and members <= _FEW_MEMBERS else 0


def flat(calls: Iterable[Sequence[Call] | None]) -> list[Call] | None:
    """Return all calls of several parts, None if one of them has none to offer."""
    found: list[Call] = []
    for part in calls:
        if part is None:
            return None
        found += part
    return found
