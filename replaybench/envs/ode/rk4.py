"""Runge-Kutta kernels that step a whole population of one plant in a single compiled call.

Numba neither caches functions that close over other compiled functions, nor notices changes in files other
than the one a function stands in. So the kernels are written to a generated file whose name carries a hash of
everything they are made of: the plant's functions, their helpers and constants, and the template below. The
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
from replaybench.data.streams import next_normal
from replaybench.envs.interface.physical_action import physical_action
from replaybench.envs.ode.function_hash import content_hash, importable

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


# One sample of one member, from `x` to `x_next`. It is written into the kernels, not called by them: Numba counts
# references to arrays around calls, which costs more than the arithmetic. The slopes of each state are variables,
# so that they stay in registers and may mix number types, hence the marks `all` and `each i` (see `_unroll`).
_ADVANCE: Final = """\
        happened = 0
        for _ in range(substeps):
            all k1_i = rhs(x_next, u, p)
            each i: y[i] = x_next[i] + 0.5 * h * k1_i
            all k2_i = rhs(y, u, p)
            each i: y[i] = x_next[i] + 0.5 * h * k2_i
            all k3_i = rhs(y, u, p)
            each i: y[i] = x_next[i] + h * k3_i
            all k4_i = rhs(y, u, p)
            each i: x_next[i] += h / 6.0 * (k1_i + 2.0 * k2_i + 2.0 * k3_i + k4_i)
            happened |= int(project(x_next, p))
"""

_SENSE: Final = """\
        for i in range(S):
            seen = (state[m, i] - center[i]) / scale[i]
            truth[m, i] = seen
            if sensor_sigma > 0.0:
                error = sensor_sigma * next_normal(sensor[m])
                sensor_noise[m, i] = error
                seen += error
                if wrap[i]:
                    turns = math.floor((center[i] + scale[i] * seen + math.pi) / (2.0 * math.pi))
                    seen -= turns * 2.0 * math.pi / scale[i]
            observation[m, i] = seen
"""

# Without fast-math and without threads, a member's arithmetic is the same in every population. `forceinline`
# holds for the plant's functions too.
TEMPLATE: Final = f'''\
"""Kernels made by replaybench; this file may be deleted at any time."""

import math

import numpy as np


@compiled(forceinline=True, error_model="numpy")
def observe(state, members, center, scale, wrap, sensor, sensor_sigma, observation, truth, sensor_noise):
    for m in range(state.shape[0]):
        if not members[m]:
            continue
{_SENSE}

@compiled(forceinline=True, error_model="numpy")
def step(state, action, members, h, substeps, p, middle, half, choices, center, scale, wrap,
         sensor, sensor_sigma, actuator, actuator_sigma,
         observation, truth, sensor_noise, actuator_noise, reward, terminated, event):
    x, x_next, y, u = np.empty(S), np.empty(S), np.empty(S), np.empty(A)
    for m in range(state.shape[0]):
        reward[m] = 0.0
        event[m] = 0
        if not members[m]:
            continue
        for i in range(S):
            x[i] = x_next[i] = state[m, i]
        for a in range(A):
            applied = np.float64(action[m, a])
            if actuator_sigma > 0.0:
                error = actuator_sigma * next_normal(actuator[m])
                actuator_noise[m, a] = error
                applied += error
            if applied > 1.0:
                applied = 1.0
            elif applied < -1.0:
                applied = -1.0
            u[a] = physical_action(applied, middle[a], half[a], choices[a])
{_ADVANCE}\
        for i in range(S):
            state[m, i] = x_next[i]
        reward[m] = reward_of(x, u, x_next, happened, p)
        terminated[m] = terminated_of(x_next, happened, p)
        event[m] = happened
{_SENSE}

@compiled(forceinline=True, error_model="numpy")
def simulate(state, action, h, substeps, p, next_state, reward, terminated):
    x, x_next, y, u = np.empty(S), np.empty(S), np.empty(S), np.empty(A)
    for n in range(state.shape[0]):
        for i in range(S):
            x[i] = x_next[i] = state[n, i]
        for a in range(A):
            u[a] = action[n, a]
{_ADVANCE}\
        for i in range(S):
            next_state[n, i] = x_next[i]
        reward[n] = reward_of(x, u, x_next, happened, p)
        terminated[n] = terminated_of(x_next, happened, p)
'''


class Kernels(NamedTuple):
    """The compiled kernels of a plant; arrays are C-contiguous, one row per member, and written in place.

    Attributes:
        observe: write the noisy normalised observation of the chosen members.
        step: advance the chosen members by one sample; the others keep everything, with reward and event 0.
            The commanded action is float32 `[M, A]`, a stream uint64 `[M, 4]`, drawn from only if its sigma
            is positive; `wrap` says which noisy angles to bring back into their range.
        simulate: advance states `[N, S]` under actions `[N, A]`, all physical, by one noise-free sample.
        path: the generated file, or None where nothing is cached: the folder cannot be written, or a module of the
            plant's functions cannot be found by its name.
    """

    observe: Callable[..., None]
    step: Callable[..., None]
    simulate: Callable[..., None]
    path: str | None


def kernels(plant: Equations) -> Kernels:
    """Return the kernels of a plant; the parameters are arguments of theirs, so classes share them."""
    functions = tuple(getattr(plant, name) for name in FUNCTIONS)
    return _kernels(functions, len(plant.state_names), len(plant.action_names), plant.name)


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
    count = substeps(plant, dt)
    next_state, reward, terminated = np.empty_like(states), np.empty(len(states)), np.empty(len(states), np.bool_)
    kernels(plant).simulate(states, actions, dt / count, count, plant.params(), next_state, reward, terminated)
    return next_state.reshape(*lead, -1), reward.reshape(lead), terminated.reshape(lead)


@functools.cache
def _kernels(functions: tuple[Callable[..., Any], ...], states: int, actions: int, plant: str) -> Kernels:
    rhs, reward, project, terminated = functions
    source = _unroll(TEMPLATE, states)
    content = content_hash((*functions, next_normal, physical_action), exact=True)
    made_of = f"{compiler()} {states} {actions} {content} {source}"
    # Named after the class that defines the motion, so that plants that differ in parameters share the file.
    owner = re.sub(r"\W", "_", rhs.__qualname__.rpartition(".")[0] or plant)
    name = f"{owner}_{hashlib.sha256(made_of.encode()).hexdigest()[:20]}"
    path = cache_dir() / "kernels" / f"{name}.py"
    values = {
        "rhs": rhs,
        "reward_of": reward,
        "project": project,
        "terminated_of": terminated,
        "next_normal": next_normal,
        "physical_action": physical_action,
        "S": states,
        "A": actions,
        "__file__": str(path),
    }
    if importable(functions) and store_text(path, source):
        try:
            return _execute(source, f"replaybench.envs.kernels.{name}", values, cached=True)
        except RuntimeError:  # Numba found no folder where it may put the machine code
            pass
    return _execute(source, f"replaybench.envs.kernels.{name}", values, cached=False)


def _unroll(template: str, states: int) -> str:
    """Write a line `each i: ...` out once per state, and `all k_i` as the names `k_0, k_1, ...`."""
    lines = []
    for line in template.splitlines(keepends=True):
        indent, each, statement = line.partition("each i: ")
        if each:
            lines += [indent + re.sub(r"(?<=[_\[])i\b", str(i), statement) for i in range(states)]
        else:
            lines.append(re.sub(r"all (\w+)_i", lambda k: "".join(f"{k[1]}_{i}, " for i in range(states)), line))
    return "".join(lines)


def _execute(source: str, name: str, values: dict[str, Any], *, cached: bool) -> Kernels:
    module = ModuleType(name)
    module.__dict__.update(values, compiled=cached_beside_source if cached else numba.njit)
    # Machine code from the cache looks its module up by name, and its symbols carry that name.
    sys.modules[name] = module
    exec(compile(source, values["__file__"], "exec"), module.__dict__)
    observe, step, simulate = (module.__dict__[kernel] for kernel in ("observe", "step", "simulate"))
    return Kernels(observe, step, simulate, path=values["__file__"] if cached else None)
