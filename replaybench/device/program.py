"""A population of learners as a device has it: one source, one struct of settings, one piece of memory a member.

Nothing of this has run on a GPU yet, and no study can choose it. `Host` runs the same source on this processor, for
tests.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.algorithms.ddpg import DDPG
from replaybench.controllers.interface.noise import RunningGaussian, RunningProcess
from replaybench.controllers.learner import Learner
from replaybench.device.buffers import DeviceBuffers
from replaybench.device.build import host_library
from replaybench.device.learners import DeviceLearner
from replaybench.device.plants import DevicePlant
from replaybench.runtime.errors import UserError
from replaybench.runtime.quantities import gigabytes

Memory = NDArray[np.uint8]


@dataclass(frozen=True)
class Schedule:
    """When members learn and are evaluated.

    Attributes:
        updates_per_phase: mean number of updates of a phase; fractions are carried over.
        horizon: number of phases over which schedules advance.
        update_every: steps between update phases; 0 for a phase after each episode.
        greedy_every: rounds between greedy episodes; 0 for none.
    """

    updates_per_phase: float
    horizon: float
    update_every: int = 0
    greedy_every: int = 0


class Rounds(NamedTuple):
    """Results of some rounds, float64 `[M, rounds]`, NaN where there are none: scores, lengths, and greedy scores."""

    reward: NDArray[np.float64]
    steps: NDArray[np.float64]
    reward_greedy: NDArray[np.float64]


class Program:
    """A population on a device.

    Args:
        plant: the plant.
        learner: its learners, with the weights with which they start.
        buffers: their buffers.
        schedule: when they learn.

    Attributes:
        source: the whole source.
        settings: the struct `RunSettings`.
        memory: the members' memory `[M, bytes]`.
        rounds: number of finished rounds.

    Raises:
        UserError: no device supports the learner's exploration or normalisation.
    """

    def __init__(self, plant: DevicePlant, learner: Learner, buffers: DeviceBuffers, schedule: Schedule) -> None:
        self.plant, self.learner, self.buffers, self.rounds = plant, learner, buffers, 0
        self.device_learner = DeviceLearner(learner)
        noise = _exploration(learner)
        self.source = "\n".join([self.device_learner.source, buffers.source, plant.source, '#include "run.cuh"\n'])
        run = _run_state(plant)
        sizes = {
            "run": ctypes.sizeof(run),
            "hot": 4 * self.device_learner.hot_size,
            "cold": 4 * self.device_learner.cold_size,
            "replay": buffers.bytes,
        }
        self._parts, stride = {}, 0
        for name, size in sizes.items():
            self._parts[name] = slice(stride, stride + size)
            stride += -(-size // 16) * 16
        learned, of_plant = self.device_learner.settings(), plant.settings()
        members = learner.setting.members
        fields = (
            ("learner", ctypes.c_char * len(learned)),
            ("plant", type(of_plant)),
            ("replay", type(buffers.settings)),
            ("seed", ctypes.c_uint64),
            *((name, ctypes.c_int64) for name in ("stride", "episode_at", "hot_at", "cold_at", "replay_at")),
            ("updates_per_phase", ctypes.c_double),
            ("horizon", ctypes.c_double),
            *((name, ctypes.c_double) for name in _SCALES),
            ("discount", ctypes.c_float),
            ("reward_scale", ctypes.c_float),
            ("decay_episodes", ctypes.c_int),
            *((name, ctypes.c_int) for name in ("update_every", "greedy_every", "warmup_rounds", "first_member")),
            ("noise", ctypes.c_int),
        )
        kind: Any = type("RunSettings", (ctypes.Structure,), {"_fields_": fields})
        self.settings: Any = kind(
            plant=of_plant, replay=buffers.settings, seed=learner.setting.root, stride=stride,
            episode_at=self._parts["run"].start, hot_at=self._parts["hot"].start, cold_at=self._parts["cold"].start,
            replay_at=self._parts["replay"].start, updates_per_phase=schedule.updates_per_phase,
            horizon=schedule.horizon, discount=learner.task.discount, reward_scale=learner.task.reward_scale,
            update_every=schedule.update_every, greedy_every=schedule.greedy_every,
            warmup_rounds=learner.warmup_episodes, first_member=members[0], **noise,
        )  # fmt: skip
        ctypes.memmove(ctypes.addressof(self.settings), learned, len(learned))
        self.memory: Memory = np.zeros((len(members), stride), np.uint8)
        self.part("hot").view(np.float32)[:], self.part("cold").view(np.float32)[:] = self.device_learner.arrays()
        buffers.start(self.part("replay"))

    def part(self, name: str) -> Memory:
        """Return a part of every member's memory, a view: `run`, `hot`, `cold` or `replay`."""
        return self.memory[:, self._parts[name]]

    def place(self, name: str) -> slice:
        """Return where a part lies in a member's memory."""
        return self._parts[name]

    def state(self) -> dict[str, NDArray[Any]]:
        """Return all that the next rounds depend on."""
        return {"memory": self.memory.copy(), "rounds": np.full(len(self.memory), self.rounds)}

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from `state`, bit for bit."""
        self.memory[:], self.rounds = state["memory"], int(state["rounds"][0])

    def fetch(self) -> Learner:
        """Copy networks and moments into the learner, and return it."""
        self.device_learner.load(*(np.ascontiguousarray(self.part(n)).view(np.float32) for n in ("hot", "cold")))
        return self.learner


class Host:
    """Runs a program on this processor; for tests. Its interface is that of `gpu.GPU`."""

    name = "this processor"

    def __init__(self, program: Program) -> None:
        self.program, self.library = program, host_library(program.source)
        self._functions = program.plant.host_functions()
        self.library.set_plant(*(ctypes.c_void_p(function.address) for function in self._functions))
        for name, table in program.buffers.tables.items():
            setattr(program.settings.replay, name, table.ctypes.data)

    def advance(self, count: int) -> Rounds:
        """Run some rounds of every member."""
        program = self.program
        found = Rounds(*(np.full((len(program.memory), count), np.nan) for _ in Rounds._fields))
        self.library.run_rounds(
            ctypes.byref(program.settings), ctypes.c_void_p(program.memory.ctypes.data), len(program.memory),
            program.rounds, count, *(ctypes.c_void_p(array.ctypes.data) for array in found),
        )  # fmt: skip
        program.rounds += count
        return found

    def fetch(self, *parts: str) -> None:
        """Do nothing: the program's memory is that of the host."""

    push = close = fetch


def members_at_once(program: Program, free: int) -> int:
    """Return how many members fit into `free` bytes of a device's memory at once.

    Raises:
        UserError: not one of them fits.
    """
    each = int(program.memory.shape[1])
    if each > free:
        raise UserError(
            f"one member needs {gigabytes(each)} of the device's memory, {gigabytes(free)} are free: "
            "lower the capacity, or the number of episodes of a FULL buffer"
        )
    return min(len(program.memory), free // each)


_SCALES: Final = ("first_scale", "last_scale", "diffusion", "friction", "noise_bound", "action_bound")
_PROCESS, _GAUSSIAN = 1, 2


def _exploration(learner: Learner) -> dict[str, float]:
    """Return the numbers of the exploration in `RunSettings`."""
    if learner.normaliser.on:
        raise UserError('normalisation runs on the CPU only; leave normalise out, or set device = "cpu"')
    noise: Any = learner.exploration
    if type(learner) is DDPG and isinstance(noise, RunningProcess):
        own = noise.config
        scales = (own.first_amplitude, own.last_amplitude, noise.diffusion, noise.friction, 1.0, 1.0)
        return {**dict(zip(_SCALES, scales, strict=True)), "decay_episodes": own.decay_episodes, "noise": _PROCESS}
    if type(learner) is DDPG and isinstance(noise, RunningGaussian):
        given = noise.config
        if not given.clip or given.truncate is not None:
            raise UserError(
                "Gaussian exploration on a device needs clip = true and no truncate; or use process noise, or "
                'device = "cpu"'
            )
        last = given.sigma if given.last_sigma is None else given.last_sigma
        scales = given.sigma, last, 0.0, 0.0, np.inf, 1.0
        return {**dict(zip(_SCALES, scales, strict=True)), "decay_episodes": given.decay_episodes, "noise": _GAUSSIAN}
    raise UserError(
        f"{type(learner).__name__} with this exploration does not run on a device yet; DDPG with process noise or "
        'clipped Gaussian noise does; or set device = "cpu"'
    )


def _run_state(plant: DevicePlant) -> type[ctypes.Structure]:
    """Return the struct `RunState` of `run.cuh`."""
    states, actions, seen = len(plant.plant.state_names), len(plant.plant.action_names), plant.observed
    episode = type("Episode", (ctypes.Structure,), {"_fields_": (
        ("state", ctypes.c_double * states), ("total", ctypes.c_double), ("reward", ctypes.c_double),
        ("observation", ctypes.c_float * seen), ("sensor_noise", ctypes.c_float * seen),
        ("actuator_noise", ctypes.c_float * actions),
        *((name, ctypes.c_int) for name in ("active", "length", "failed", "terminated", "sensed", "acted")),
    )})  # fmt: skip
    return type("RunState", (ctypes.Structure,), {"_fields_": (
        ("training", episode), ("evaluation", episode), ("process", ctypes.c_double * actions),
        *((name, ctypes.c_double) for name in ("scores", "lengths", "ended")),
        ("explored", ctypes.c_uint32), ("updates", ctypes.c_uint32),
    )})  # fmt: skip
