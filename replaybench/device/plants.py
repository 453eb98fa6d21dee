"""Plants on a device: their equations as functions with the C ABI, and the settings of `source/plant.cuh`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

from numba import carray, cfunc, types  # type: ignore[attr-defined]

from replaybench.envs.interface.declarations import seen_states
from replaybench.envs.ode import rk4
from replaybench.envs.ode.plant import OdePlant

_FLOATS: Final = types.CPointer(types.float64)
SIGNATURES: Final = {
    "plant_rhs": types.void(_FLOATS, _FLOATS, _FLOATS, _FLOATS),
    "plant_reward": types.float64(_FLOATS, _FLOATS, _FLOATS, types.int32, _FLOATS),
    "plant_project": types.int32(_FLOATS, _FLOATS),
    "plant_terminated": types.int32(_FLOATS, types.int32, _FLOATS),
}
_TEMPLATE: Final = """\
def plant_rhs(x, u, p, rates):
{x}
{u}
    found = rhs(x_, u_, ({P}))
{rates}

def plant_reward(x, u, next, event, p):
{x}
{u}
{next}
    return reward(x_, u_, next_, int64(event), ({P}))

def plant_project(x, p):
{x}
    event = int32(project(x_, ({P})))
{back}
    return event

def plant_terminated(x, event, p):
{x}
    return int32(terminated(x_, int64(event), ({P})))
"""


class DevicePlant:
    """A plant given by equations, as a device has it.

    Args:
        plant: the plant.
        frequency: control rate [Hz].
        noise: standard deviation of the noise on every normalised state and action.
        observe: names of the observed states, all if empty.

    Attributes:
        source: text that defines `Plant`.
        observed: number of observed states.
    """

    def __init__(self, plant: OdePlant, frequency: float, noise: float = 0.0, observe: Sequence[str] = ()) -> None:
        self.plant, self.frequency, self.noise = plant, frequency, noise
        self._seen = seen_states(plant.name, plant.state_names, observe)
        self.observed = len(self._seen)
        counts = {
            "int STATES": len(plant.state_names),
            "int ACTIONS": len(plant.action_names),
            "int PARAMETERS": len(plant.params()),
            "int OBSERVED": len(self._seen),
            "bool SATURATES": str(plant.saturates).lower(),
            "bool CHOICES": str(bool(plant.action_choices)).lower(),
        }
        lines = "".join(f"    CONSTANT {name} = {value};\n" for name, value in counts.items())
        self.source = f'#include "plant.cuh"\nstruct Plant {{\n{lines}}};\n'

    def settings(self) -> ctypes.Structure:
        """Return the struct `PlantSettings`."""
        plant, steps = self.plant, self.plant.steps_per_episode(self.frequency)
        seconds = plant.episode_seconds / steps
        substeps = rk4.substeps(plant, seconds)
        middle, half = plant.action_range()
        states, actions, parameters = len(plant.state_names), len(plant.action_names), len(plant.params())
        sizes = {
            **dict.fromkeys(("initial", "center", "scale", "limit"), states),
            **dict.fromkeys(("middle", "half"), actions),
            "parameters": max(1, parameters),
        }
        fields: list[tuple[str, Any]] = [(name, ctypes.c_double * size) for name, size in sizes.items()]
        fields += [("substep", ctypes.c_double), ("noise", ctypes.c_double)]
        fields += [("choices", ctypes.c_int * actions), ("observed", ctypes.c_int * len(self._seen))]
        fields += [(name, ctypes.c_int) for name in ("substeps", "steps", "returns", "padding")]
        kind: Any = type("PlantSettings", (ctypes.Structure,), {"_fields_": fields})
        values = {
            "initial": plant.initial_state, "center": plant.state_center, "scale": plant.state_scale,
            "limit": plant.observation_limit, "middle": middle, "half": half, "parameters": plant.params(),
            "choices": plant.action_choices, "observed": self._seen,
        }  # fmt: skip
        made: ctypes.Structure = kind(
            **{name: dict(fields)[name](*value) for name, value in values.items()},
            substep=seconds / substeps, noise=self.noise, substeps=substeps, steps=steps,
            returns=plant.episode_metric == "return",
        )  # fmt: skip
        return made

    def functions(self, cuda: Any = None) -> dict[str, Callable[..., Any]]:
        """Return the equations as Python functions of pointers, to be compiled with `SIGNATURES`.

        Args:
            cuda: the module `numba.cuda` for a GPU, whose compiler knows no arrays at a pointer: they are copied.
        """
        plant, sizes = self.plant, {"x": len(self.plant.state_names), "u": len(self.plant.action_names)}
        sizes["next"] = sizes["x"]
        if cuda is None:
            arrays = {name: f"    {name}_ = carray({name}, ({size},))" for name, size in sizes.items()}
        else:
            arrays = {
                name: "\n".join(
                    [f"    {name}_ = cuda.local.array({size}, float64)"]
                    + [f"    {name}_[{i}] = {name}[{i}]" for i in range(size)]
                )
                for name, size in sizes.items()
            }
        text = _TEMPLATE.format(
            **arrays, P="".join(f"p[{i}], " for i in range(len(plant.params()))),
            rates="\n".join(f"    rates[{i}] = found[{i}]" for i in range(sizes["x"])),
            back="\n".join(f"    x[{i}] = x_[{i}]" for i in range(sizes["x"])) if cuda else "",
        )  # fmt: skip
        space: dict[str, Any] = {name: getattr(plant, name) for name in rk4.FUNCTIONS}
        space |= {"carray": carray, "cuda": cuda, "int32": types.int32, "int64": types.int64, "float64": types.float64}
        exec(compile(text, f"<equations of {plant.name}>", "exec"), space)
        return {name: space[name] for name in SIGNATURES}

    def host_functions(self) -> list[Any]:
        """Return the equations compiled for this processor, in the order of `SIGNATURES`."""
        return [cfunc(SIGNATURES[name])(function) for name, function in self.functions().items()]

    def device_functions(self, capability: tuple[int, int]) -> list[bytes]:
        """Return the equations as LTO code for GPUs of a compute capability; needs a driver. Not run on a GPU."""
        from numba import cuda

        compiled: Any = cuda

        return [
            compiled.compile(function, SIGNATURES[name], device=True, abi="c", output="ltoir", cc=capability)[0]
            for name, function in self.functions(cuda).items()
        ]
