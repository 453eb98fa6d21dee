"""Compiled functions that advance many copies of a plant by Runge-Kutta steps in one call.

Numba does not cache functions that close over other compiled functions. It also detects edits only in the file of the
function itself. The compiled function is therefore written to a generated file. The name of that file contains a hash
of the plant's functions, their helpers and constants, and the template below. Plants with equal content reuse the
machine code of earlier processes.

The generated code is not faster. A closure with loops over states and actions gives the same bits, and takes 0.98 to
1.00 times as long for M = 1 copy, 0.96 to 1.14 for M = 8 and 0.48 to 1.03 for M = 50 (2026-11-28, four plants, minimum
of 25 interleaved repetitions). But every process would compile it again, for 5 to 15 s on a busy machine. Loops also
cannot index the result of a `rhs` that returns numbers of different types, such as `(x[1], 0)`.
"""

import contextlib
import functools
import math
import re
import sys
import textwrap
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, Protocol

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import ArrayLike, NDArray

from replaybench.runtime.atomic import store_text
from replaybench.runtime.configuration import STEPS
from replaybench.runtime.function_hash import content_hash, importable
from replaybench.runtime.kernel import cache_dir, cached_next_to_source, machine_code_hash


@intrinsic
def scratch(_context: Any, size: Any) -> Any:
    """Return an uninitialised float64 array of constant length on the stack.

    The array is valid inside the calling function. The compiler can keep it in registers, unlike an array from
    `np.empty`.
    """
    return _on_stack(types.float64, size)


@intrinsic
def scratch_bits(_context: Any, size: Any) -> Any:
    """Return an uninitialised int64 array of constant length on the stack, as `scratch` does for float64."""
    return _on_stack(types.int64, size)


def _on_stack(dtype: Any, size: Any) -> Any:
    if not isinstance(size, types.IntegerLiteral):
        return None  # Numba then reports an unknown function
    count, row = size.literal_value, types.Array(dtype, 1, "C")

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        place = cgutils.alloca_once(builder, context.get_value_type(dtype), size=count)
        made = context.make_array(row)(context, builder)
        shape, size = [context.get_constant(types.intp, count)], context.get_constant(types.intp, 8)
        context.populate_array(made, data=place, shape=shape, strides=[size], itemsize=size, meminfo=None)
        return made._getvalue()

    return row(types.literal(count)), generate


FUNCTIONS: Final = ("rhs", "reward", "project", "terminated")
"""Names of the functions that define a plant. `OdePlant` documents them."""


class Equations(Protocol):
    """The attributes of an `OdePlant`, apart from its functions, that the compiled integration needs."""

    @property
    def name(self) -> str: ...
    @property
    def state_names(self) -> tuple[str, ...]: ...
    @property
    def action_names(self) -> tuple[str, ...]: ...
    @property
    def equations(self) -> int: ...
    @property
    def max_substep(self) -> float: ...
    def params(self) -> tuple[float, ...]: ...


BLOCK: Final = 64
"""Number of copies of a plant that are advanced together. The data of these copies fits the first-level cache."""

# Inner loops over the members of a block are short and contain no calls. The compiler vectorises them if a plant's
# functions neither call libraries nor raise errors. The `scratch` arrays x, y and u become registers. Without fast-math
# and threads, a member's arithmetic does not depend on its position in a block. `_unroll` expands the marks `each i`
# (over states), `each d` (over states with an equation), `each a` (over actions) and `all`.
TEMPLATE: Final = '''\
"""A kernel made by replaybench; this file may be deleted at any time."""


@compiled(forceinline=True, error_model="numpy")
def advance(state, action, members, h, substeps, p, reward, terminated, event):
    each i: before_i, start_i, within_i, slopes_i = scratch(B), scratch(B), scratch(B), scratch(B)
    each a: applied_a = scratch(B)
    earned, ended, happened, row = scratch(B), scratch_bits(B), scratch_bits(B), scratch_bits(B)
    m = 0
    while m < state.shape[0]:
        width = 0
        while m < state.shape[0] and width < B:
            if members[m]:
                row[width] = m
                each i: start_i[width] = state[m, i]
                each a: applied_a[width] = action[m, a]
                width += 1
            m += 1
        for n in range(width):
            each i: before_i[n] = within_i[n] = start_i[n]
            each i: slopes_i[n] = 0.0
            happened[n] = 0
        for _ in range(substeps):
            for stage in range(4):
                weight = 1.0 if stage == 0 or stage == 3 else 2.0
                ahead = h if stage == 2 else 0.5 * h
                for n in range(width):
                    x, u = scratch(S), scratch(A)
                    each i: x[i] = within_i[n]
                    each a: u[a] = applied_a[n]
                    all k_d = rhs(x, u, p)
                    each d: slopes_d[n] += weight * k_d
                    each d: within_d[n] = start_d[n] + ahead * k_d
            for n in range(width):
                x = scratch(S)
                each i: x[i] = start_i[n] + h / 6.0 * slopes_i[n]
                each i: slopes_i[n] = 0.0
                happened[n] |= int(project(x, p))
                each i: start_i[n] = within_i[n] = x[i]
        for n in range(width):
            x, y, u = scratch(S), scratch(S), scratch(A)
            each i: x[i], y[i] = before_i[n], start_i[n]
            each a: u[a] = applied_a[n]
            earned[n] = reward_of(x, u, y, happened[n], p)
            ended[n] = int(terminated_of(y, happened[n], p))
        for n in range(width):
            each i: state[row[n], i] = start_i[n]
            reward[row[n]] = earned[n]
            terminated[row[n]] = ended[n] != 0
            event[row[n]] = happened[n]
'''


def _in_pieces(template: str) -> str:
    """Return the template of a control step in P pieces, in each of which another action acts.

    The arguments of its function are those of `advance_pieces` in `replaybench.envs.interface.engine`, and the number
    `counts` `[P]` of Runge-Kutta steps in each piece. The reward depends on `action`, as in `TEMPLATE`.
    """
    first, last = "        for _ in range(substeps):\n", "        for n in range(width):\n            x, y, u"
    head, steps, tail = template[: template.index(first)], template[template.index(first) :], ""
    steps, tail = steps[: steps.index(last)], steps[steps.index(last) :]
    each_piece = """\
        for piece in range(counts.size):
            substeps = counts[piece]
            for n in range(width):
                h[n] = seconds[piece, row[n]] / substeps
                each a: applied_a[n] = pieces[piece, a, row[n]]
"""
    for whole, piece in (
        ("ahead = h if stage == 2 else 0.5 * h", "share = 1.0 if stage == 2 else 0.5"),
        ("+ ahead * k_d", "+ share * h[n] * k_d"),
        ("h / 6.0", "h[n] / 6.0"),
    ):
        steps = steps.replace(whole, piece)
    head = head.replace("members, h, substeps, p", "pieces, seconds, counts, members, p")
    head = head.replace("    earned, ended", "    h = scratch(B)\n    earned, ended")
    tail = tail.replace("u[a] = applied_a[n]", "u[a] = action[row[n], a]")
    return head + each_piece + textwrap.indent(steps, "    ") + tail


def kernel(plant: Equations, pieces: bool = False, own: bool = False) -> Callable[..., None]:
    """Return the compiled function that advances M members by one control step without noise.

    Members are copies of the plant. The arguments are those of `advance` in `TEMPLATE`, or in `_in_pieces` if `pieces`.
    If `own`, the members have parameters of their own, and the argument `p` is an array of them, float64 `[M, P]`.
    The arrays `state` `[M, S]` and `action` `[M, A]` are in physical units and C-contiguous. For the members marked in
    `members`, the function writes `state`, `reward`, `terminated` and `event`. Plants that differ only in parameters
    share the function. The function is not cached if the cache folder cannot be written, or if a module of the plant's
    functions cannot be imported by name.
    """
    functions = tuple(getattr(plant, name) for name in FUNCTIONS)
    template = _in_pieces(TEMPLATE) if pieces else TEMPLATE
    if own:
        row = "".join(f"p[row[n], {place}], " for place in range(len(plant.params())))
        template = template.replace(", p)", f", ({row}))")
    counts = len(plant.state_names), plant.equations, len(plant.action_names)
    return _kernel(functions, *counts, plant.name, template)


def substeps(plant: Equations, dt: float) -> int:
    """Return the number of Runge-Kutta steps in a control step of `dt` seconds. Too many steps raise a `UserError`."""
    count = max(1.0, dt / plant.max_substep - 1e-9)
    STEPS.check(count, f"a sample of {plant.name}, {dt:g} s in Runge-Kutta steps of {plant.max_substep:g} s,")
    return math.ceil(count)


def simulate(
    plant: Equations, state: ArrayLike, u: ArrayLike, dt: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Advance given states of a plant by one control step without noise.

    Args:
        plant: The plant.
        state: Physical states `[..., S]`.
        u: Physical actions `[..., A]`, which are not clipped. Leading axes broadcast against those of `state`.
        dt: Length of the control step [s].

    Returns:
        state: Next states, float64 `[..., S]`.
        reward: Unscaled rewards, float64 `[...]`.
        terminated: Whether each next state is terminal, bool `[...]`.
    """
    states, actions = np.asarray(state, np.float64), np.asarray(u, np.float64)
    lead = np.broadcast_shapes(states.shape[:-1], actions.shape[:-1])
    # New arrays have one memory layout, so that one compiled version suffices.
    states = np.array(np.broadcast_to(states, (*lead, states.shape[-1])), order="C").reshape(-1, states.shape[-1])
    actions = np.array(np.broadcast_to(actions, (*lead, actions.shape[-1])), order="C").reshape(-1, actions.shape[-1])
    reward, terminated = advance(plant, states, actions, dt, substeps(plant, dt))
    return states.reshape(*lead, -1), reward.reshape(lead), terminated.reshape(lead)


def advance(
    plant: Equations, states: NDArray[np.float64], actions: NDArray[np.float64], dt: float, count: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Advance N physical states `[N, S]` in place by `count` Runge-Kutta steps, which last `dt` seconds together.

    The actions `[N, A]` are physical, too. The returned arrays `[N]` contain the unscaled rewards, float64, and whether
    each new state is terminal, bool.
    """
    reward, terminated, event = np.empty(len(states)), np.empty(len(states), np.bool_), np.empty(len(states), np.int64)
    everyone = np.ones(len(states), np.bool_)
    kernel(plant)(states, actions, everyone, dt / count, count, plant.params(), reward, terminated, event)
    return reward, terminated


@functools.cache
def _kernel(
    functions: tuple[Callable[..., Any], ...], states: int, equations: int, actions: int, plant: str, template: str
) -> Callable[..., None]:
    rhs, reward, project, terminated = functions
    source = _unroll(template, states, equations, actions)
    content = content_hash((*functions, scratch, scratch_bits), exact=True)
    # The file has the name of the class that defines `rhs`: plants that differ only in parameters share it.
    owner = re.sub(r"\W", "_", rhs.__qualname__.rpartition(".")[0] or plant)
    name = f"{owner}_{machine_code_hash(content, source, f'{states} {actions} {BLOCK}')}"
    path = cache_dir() / "kernels" / f"{name}.py"
    values = {
        "rhs": rhs, "reward_of": reward, "project": project, "terminated_of": terminated, "scratch": scratch,
        "scratch_bits": scratch_bits, "S": states, "A": actions, "B": BLOCK, "__file__": str(path),
    }  # fmt: skip
    if importable(functions) and store_text(path, source):
        with contextlib.suppress(RuntimeError):  # Numba cannot write machine code next to the file
            return _execute(source, f"replaybench.envs.kernels.{name}", values, cached_next_to_source)
    return _execute(source, f"replaybench.envs.kernels.{name}", values, numba.njit)


def _unroll(template: str, states: int, equations: int, actions: int) -> str:
    """Expand the marks in a template for given numbers of states, equations and actions.

    A line `each i: ...` is repeated for each state, `each d: ...` for each state with an equation, and `each a: ...`
    for each action. `all k_d` becomes `k_0, k_1, ...`.
    """
    counts, lines = {"i": states, "d": equations, "a": actions}, []
    for line in template.splitlines(keepends=True):
        if each := re.match(r"( *)each (\w): (.*\n)", line):
            indent, letter, statement = each.groups()
            numbers = range(counts[letter])
            lines += [indent + re.sub(rf"(?<=[_\[ ]){letter}\b", str(number), statement) for number in numbers]
        else:
            lines.append(re.sub(r"all (\w+)_d", lambda k: "".join(f"{k[1]}_{i}, " for i in range(equations)), line))
    return "".join(lines)


def _execute(source: str, name: str, values: dict[str, Any], compiled: Callable[..., Any]) -> Callable[..., None]:
    module = ModuleType(name)
    module.__dict__.update(values, compiled=compiled)
    # Cached machine code finds its module by name.
    sys.modules[name] = module
    exec(compile(source, values["__file__"], "exec"), module.__dict__)
    advance: Callable[..., None] = module.__dict__["advance"]
    return advance
