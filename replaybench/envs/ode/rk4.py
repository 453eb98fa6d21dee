"""Runge-Kutta steps of a whole population of one plant in a single compiled call.

Numba neither caches functions that close over other compiled functions, nor notices changes in files other
than the one a function stands in. So the kernel is written to a generated file whose name carries a hash of
everything it is made of: the plant's functions, their helpers and constants, and the template below. The
same content finds the machine code of an earlier process; any edit, in whatever file, makes a new name.
"""

from __future__ import annotations

import functools
import hashlib
import math
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, NamedTuple, Protocol

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from replaybench.data.bounds import STEPS
from replaybench.data.cache import cache_dir, store_text
from replaybench.data.compilation.digest import compiler
from replaybench.data.kernel import cached_beside_source
from replaybench.envs.ode.function_hash import content_hash, importable
from replaybench.envs.ode.scratch import scratch, scratch_bits

FUNCTIONS: Final = ("rhs", "reward", "project", "terminated")
"""What a plant's equations consist of; `replaybench.envs.ode.plant` says what each returns."""


class Equations(Protocol):
    """What the kernels ask of a plant, whose `FUNCTIONS` are compiled ones."""

    @property
    def name(self) -> str:
        """Name of the plant."""

    @property
    def state_names(self) -> tuple[str, ...]:
        """One name a state `[S]`."""

    @property
    def action_names(self) -> tuple[str, ...]:
        """One name an action `[A]`."""

    @property
    def initial_state(self) -> tuple[float, ...]:
        """The physical state `[S]` in which episodes begin."""

    @property
    def max_substep(self) -> float:
        """Longest Runge-Kutta step [s]."""

    def params(self) -> tuple[float, ...]:
        """Return the functions' argument `p`."""


BLOCK: Final = 64
"""Members that are advanced together: as many as fit the nearest cache, with all that belongs to them."""

# The members of a block stand in the inner loops, of which one is a stage of the Runge-Kutta method: short and without
# a call, so that the compiler makes vector instructions of it wherever a plant's functions allow (no calls of
# libraries, nothing raised), and the processor has several iterations under way. What a function gets, x, y and u, is
# `scratch` that becomes registers. Without fast-math and without threads, a member's arithmetic is the same wherever
# in a block it stands. `forceinline` holds for the plant's functions too. The marks `each i` of the states, `each a` of
# the actions and `all` are written out by `_unroll`.
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
                    all k_i = rhs(x, u, p)
                    each i: slopes_i[n] += weight * k_i
                    each i: within_i[n] = start_i[n] + ahead * k_i
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


class Kernel(NamedTuple):
    """The compiled motion of a plant.

    Attributes:
        advance: bring the chosen members of `state` `[M, S]` one noise-free sample further under `action` `[M, A]`,
            both physical, and write their reward, `terminated` and event; the other members' rows are left alone.
            Arrays are C-contiguous.
        path: the generated file, or None where nothing is cached: the folder cannot be written, or a module of the
            plant's functions cannot be found by its name.
    """

    advance: Callable[..., None]
    path: str | None


def kernel(plant: Equations) -> Kernel:
    """Return the kernel of a plant; the parameters are arguments of it, so classes share it."""
    functions = tuple(getattr(plant, name) for name in FUNCTIONS)
    return _kernel(functions, len(plant.state_names), len(plant.action_names), plant.name)


def substeps(plant: Equations, dt: float) -> int:
    """Return the number of equal Runge-Kutta steps in a sample of `dt` seconds.

    Raises:
        UserError: they are more than anybody waits for.
    """
    count = max(1.0, dt / plant.max_substep - 1e-9)
    STEPS.check(count, f"a sample of {plant.name}, {dt:g} s in Runge-Kutta steps of {plant.max_substep:g} s,")
    return math.ceil(count)


def simulate(
    plant: Equations, state: ArrayLike, u: ArrayLike, dt: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Step any states of a plant once, without noise.

    Args:
        plant: the plant.
        state: physical states `[..., S]`.
        u: physical actions `[..., A]`, taken as they are; leading axes broadcast against those of `state`.
        dt: length of the sample [s].

    Returns:
        The next states float64 `[..., S]`, and the unscaled reward float64 and `terminated` bool, both `[...]`.
    """
    states, actions = np.asarray(state, np.float64), np.asarray(u, np.float64)
    lead = np.broadcast_shapes(states.shape[:-1], actions.shape[:-1])
    # Fresh arrays: one memory layout means one compiled version.
    states = np.array(np.broadcast_to(states, (*lead, states.shape[-1])), order="C").reshape(-1, states.shape[-1])
    actions = np.array(np.broadcast_to(actions, (*lead, actions.shape[-1])), order="C").reshape(-1, actions.shape[-1])
    reward, terminated = _advance(plant, states, actions, dt, substeps(plant, dt))
    return states.reshape(*lead, -1), reward.reshape(lead), terminated.reshape(lead)


def _advance(
    plant: Equations, states: NDArray[np.float64], actions: NDArray[np.float64], dt: float, count: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Step states `[N, S]` in place by `count` Runge-Kutta steps; return reward and `terminated`, each `[N]`."""
    reward, terminated, event = np.empty(len(states)), np.empty(len(states), np.bool_), np.empty(len(states), np.int64)
    everyone = np.ones(len(states), np.bool_)
    kernel(plant).advance(states, actions, everyone, dt / count, count, plant.params(), reward, terminated, event)
    return reward, terminated


TOLERANCE: Final = 1e-6
"""Parts of a state's scale by which half the step may change what a sample comes to, in 95 % of typical states."""
WORST: Final = 1e-2
"""The same in any typical state, as where friction changes its sign within a sample."""
HALVINGS: Final = 6


class StepChoice(NamedTuple):
    """A step of integration, chosen by step doubling.

    Attributes:
        step: [s].
        change: by which half the step changes what a sample comes to, in parts of a state's scale; 95 % of typical
            states change by less.
        met: whether that is as little as it should be; else the step is the shortest that was tried.
    """

    step: float
    change: float
    met: bool


def choose_step(
    plant: Equations, states: NDArray[np.float64], actions: NDArray[np.float64], dt: float, longest: float,
    scale: NDArray[np.float64], periodic: NDArray[np.bool_],
) -> StepChoice:  # fmt: skip
    """Return the longest of the steps dt, dt/2, dt/4, … by which a sample is integrated well enough.

    Args:
        plant: the plant.
        states: typical physical ones `[N, S]`.
        actions: a physical one for each `[N, A]`.
        dt: length of a sample [s].
        longest: longest step to be tried first [s].
        scale: of each state `[S]`.
        periodic: which states are angles `[S]`.
    """

    def after(seconds: float, count: int) -> NDArray[np.float64]:
        reached = states.copy()
        _advance(plant, reached, actions, seconds, count)
        return reached

    def apart(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(invalid="ignore"):
            change = one - other
            change -= np.where(periodic, 2 * np.pi * np.round(change / (2 * np.pi)), 0.0)
        parts: NDArray[np.float64] = np.nan_to_num(np.abs(change) / scale, nan=np.inf).max(axis=1)
        return parts

    # No step goes further than a state's scale: what goes to and fro within one seems to stand still.
    instant = dt / 1024
    far = 1024 * float(np.quantile(apart(after(instant, 1), states), 0.95, method="higher"))
    count = math.ceil(max(1.0, dt / longest - 1e-9, min(far, 2.0**HALVINGS)))
    coarse = after(dt, count)
    for _ in range(HALVINGS + 1):
        fine = after(dt, 2 * count)
        change = apart(fine, coarse)
        usual = float(np.quantile(change, 0.95, method="higher"))
        if usual <= TOLERANCE and change.max() <= WORST:
            return StepChoice(dt / count, usual, met=True)
        count, coarse = 2 * count, fine
    return StepChoice(2 * dt / count, usual, met=False)


@functools.cache
def _kernel(functions: tuple[Callable[..., Any], ...], states: int, actions: int, plant: str) -> Kernel:
    rhs, reward, project, terminated = functions
    source = _unroll(TEMPLATE, states, actions)
    content = content_hash((*functions, scratch, scratch_bits), exact=True)
    made_of = f"{compiler()} {states} {actions} {BLOCK} {content} {source}"
    # Named after the class that defines the motion, so that plants that differ in parameters share the file.
    owner = re.sub(r"\W", "_", rhs.__qualname__.rpartition(".")[0] or plant)
    name = f"{owner}_{hashlib.sha256(made_of.encode()).hexdigest()[:20]}"
    path = cache_dir() / "kernels" / f"{name}.py"
    values = {
        "rhs": rhs,
        "reward_of": reward,
        "project": project,
        "terminated_of": terminated,
        "scratch": scratch,
        "scratch_bits": scratch_bits,
        "S": states,
        "A": actions,
        "B": BLOCK,
        "__file__": str(path),
    }
    if importable(functions) and store_text(path, source):
        try:
            return _execute(source, f"replaybench.envs.kernels.{name}", values, cached=True)
        except RuntimeError:  # Numba found no folder where it may put the machine code
            pass
    return _execute(source, f"replaybench.envs.kernels.{name}", values, cached=False)


def _unroll(template: str, states: int, actions: int) -> str:
    """Write a line `each i: ...` out once a state, `each a: ...` once an action, and `all k_i` as `k_0, k_1, ...`."""
    counts, lines = {"i": states, "a": actions}, []
    for line in template.splitlines(keepends=True):
        if each := re.match(r"( *)each (\w): (.*\n)", line):
            indent, letter, statement = each.groups()
            numbers = range(counts[letter])
            lines += [indent + re.sub(rf"(?<=[_\[ ]){letter}\b", str(number), statement) for number in numbers]
        else:
            lines.append(re.sub(r"all (\w+)_i", lambda k: "".join(f"{k[1]}_{i}, " for i in range(states)), line))
    return "".join(lines)


def _execute(source: str, name: str, values: dict[str, Any], *, cached: bool) -> Kernel:
    module = ModuleType(name)
    module.__dict__.update(values, compiled=cached_beside_source if cached else numba.njit)
    # Machine code from the cache looks its module up by name, and its symbols carry that name.
    sys.modules[name] = module
    exec(compile(source, values["__file__"], "exec"), module.__dict__)
    return Kernel(module.__dict__["advance"], path=values["__file__"] if cached else None)
