"""Conversion of plants to a form that a GPU computes: equations as C functions, and settings for `plant.cuh`."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numba import cfunc, types

from replaybench.device.build import struct
from replaybench.envs.interface.declarations import seen_states
from replaybench.envs.ode import rk4
from replaybench.envs.ode.plant import OdePlant

_FLOATS: Final = types.CPointer(types.float64)
SIGNATURES: Final = {
    "plant_rhs": types.void(_FLOATS, _FLOATS, _FLOATS),
    "plant_reward": types.float64(_FLOATS, _FLOATS, _FLOATS, types.int32),
    "plant_project": types.int32(_FLOATS),
    "plant_terminated": types.int32(_FLOATS, types.int32),
}
_TEMPLATE: Final = """\
def plant_rhs(x, u, rates):
{x}
{u}
    found = rhs(x_, u_, P)
{rates}

def plant_reward(x, u, next, event):
{x}
{u}
{next}
    return reward(x_, u_, next_, int64(event), P)

def plant_project(x):
{x}
    event = int32(project(x_, P))
{back}
    return event

def plant_terminated(x, event):
{x}
    return int32(terminated(x_, int64(event), P))
"""


class DevicePlant:
    """A plant with equations, in the form that a GPU computes.

    Args:
        frequency: Control rate in Hz.
        noise: Standard deviation of the noise on every normalised state and action.
        observe: Names of the observed states. If this is empty, all states are observed.

    Attributes:
        source: C++ source that defines the type `Plant`.
    """

    def __init__(self, plant: OdePlant, frequency: float, noise: float = 0.0, observe: Sequence[str] = ()) -> None:
        self.plant, self.frequency, self.noise = plant, frequency, noise
        self._seen = seen_states(plant.name, plant.state_names, observe)
        self.observed = len(self._seen)
        counts = {
            "int STATES": len(plant.state_names),
            "int ACTIONS": len(plant.action_names),
            "int OBSERVED": len(self._seen),
            "bool SATURATES": str(plant.saturates).lower(),
            "bool CHOICES": str(bool(plant.action_choices)).lower(),
        }
        lines = "".join(f"    CONSTANT {name} = {value};\n" for name, value in counts.items())
        self.source = f'#include "plant.cuh"\nstruct Plant {{\n{lines}}};\n'

    def settings(self) -> ctypes.Structure:
        """Return the C++ struct `PlantSettings`."""
        plant, steps = self.plant, self.plant.steps_per_episode(self.frequency)
        seconds = plant.episode_seconds / steps
        substeps, (middle, half) = rk4.substeps(plant, seconds), plant.action_range()
        arrays = {
            "initial": plant.initial_state, "center": plant.state_center, "scale": plant.state_scale,
            "limit": plant.observation_limit, "middle": middle, "half": half, "substep": (seconds / substeps,),
            "noise": (self.noise,),
        }  # fmt: skip
        counts = {
            "choices": plant.action_choices or (0,) * len(plant.action_names), "observed": self._seen,
            "substeps": (substeps,), "steps": (steps,), "returns": (plant.episode_metric == "return",),
        }  # fmt: skip
        values: dict[str, Any] = {name: (ctypes.c_double * len(own))(*own) for name, own in arrays.items()}
        values |= {name: (ctypes.c_int * len(own))(*own) for name, own in counts.items()}
        return struct(**values)

    def functions(self, cuda: Any = None) -> dict[str, Callable[..., Any]]:
        """Return the equations of the plant as Python functions of pointers, which Numba compiles with `SIGNATURES`.

        The functions copy their arguments, because Numba's compiler for GPUs cannot convert pointers to arrays. The
        parameters of the plant are constants in them, so that a compiler computes divisions of parameters in advance.

        Args:
            cuda: The module `numba.cuda` for functions on a GPU, or None for functions on the CPU.
        """
        plant = self.plant
        states, actions = len(plant.state_names), len(plant.action_names)
        new = "empty({})" if cuda is None else "cuda.local.array({}, float64)"

        def copied(name: str, size: int) -> str:
            values = "".join(f"\n    {name}_[{i}] = {name}[{i}]" for i in range(size))
            return f"    {name}_ = {new.format(size)}{values}"

        text = _TEMPLATE.format(
            x=copied("x", states), u=copied("u", actions), next=copied("next", states),
            rates="\n".join(f"    rates[{i}] = found[{i}]" for i in range(states)),
            back="\n".join(f"    x[{i}] = x_[{i}]" for i in range(states)),
        )  # fmt: skip
        space: dict[str, Any] = {name: getattr(plant, name) for name in rk4.FUNCTIONS}
        space |= {"P": tuple(map(float, plant.params())), "empty": np.empty, "cuda": cuda}
        space |= {kind.name: kind for kind in (types.int32, types.int64, types.float64)}
        exec(compile(text, f"<equations of {plant.name}>", "exec"), space)
        return {name: space[name] for name in SIGNATURES}

    def host_functions(self) -> list[Any]:
        """Return the equations of the plant, compiled for the CPU, in the order of `SIGNATURES`."""
        return [cfunc(SIGNATURES[name])(function) for name, function in self.functions().items()]

    def device_functions(self, capability: tuple[int, int]) -> list[bytes]:
        """Return the equations of the plant as code to link, for GPUs of a compute capability such as (9, 0).

        The order is that of `SIGNATURES`. This needs an NVIDIA driver.
        """
        from numba import cuda

        compiled: Any = cuda

        return [
            compiled.compile(function, SIGNATURES[name], device=True, abi="c", output="ltoir", cc=capability)[0]
            for name, function in self.functions(cuda).items()
        ]
