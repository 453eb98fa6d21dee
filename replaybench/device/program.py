"""Training programs for a GPU: C++ source, settings, and the memory of all members.

The class `Host` runs the same source on the CPU, for tests.
"""

import ctypes
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.algorithms.dqn import DQN
from replaybench.controllers.interface.noise import RunningGaussian, RunningProcess
from replaybench.controllers.learner import Learner
from replaybench.device.buffers import DeviceBuffers
from replaybench.device.build import MOST_THREADS, host_library, struct
from replaybench.device.learners import DeviceLearner
from replaybench.device.plants import DevicePlant
from replaybench.runtime.arrays import Floats
from replaybench.runtime.errors import UserError
from replaybench.runtime.quantities import gigabytes

Memory = NDArray[np.uint8]


@dataclass(frozen=True)
class Schedule:
    """The times at which learners are updated and evaluated.

    A round is a training episode or, if `update_every` is set, an iteration of as many steps as a full episode.

    Attributes:
        updates_per_phase: Mean number of updates in an update phase. Fractions are carried over to the next phase.
        horizon: Number of update phases over which schedules, such as β of importance sampling, advance to their end.
        update_every: Number of control steps between update phases; 0 for an update phase after each episode.
        greedy_every: Number of rounds between greedy evaluation episodes; 0 for none.
    """

    updates_per_phase: float
    horizon: float
    update_every: int = 0
    greedy_every: int = 0


class Rounds(NamedTuple):
    """The scores of M members in some rounds, which are training episodes or iterations.

    All arrays are float64 `[M, rounds]`, with NaN where there is no result.

    Attributes:
        reward: Mean score of the training episodes that ended in the round.
        steps: Mean number of steps of these episodes.
        reward_greedy: Score of the greedy episode after the round.
    """

    reward: Floats
    steps: Floats
    reward_greedy: Floats


class Program:
    """A training program for a GPU: M learners, each with its own plant and replay buffer.

    Args:
        learner: The learners, with their initial weights.

    Attributes:
        source: Complete C++ source.
        threads: Number of threads in a thread block, which depends on the batch size.
        settings: The C++ struct `RunSettings`.
        memory: Complete state of each learner with its plant and buffer as bytes, `[M, bytes]`.
        rounds: Number of finished rounds (training episodes or iterations).

    Raises:
        UserError: The learner's exploration or normalisation runs on the CPU only.
    """

    def __init__(self, plant: DevicePlant, learner: Learner, buffers: DeviceBuffers, schedule: Schedule) -> None:
        self.plant, self.learner, self.buffers, self.rounds = plant, learner, buffers, 0
        self.device_learner = DeviceLearner(learner)
        self.threads = MOST_THREADS if learner.schedule.batch_size > 32 else 256
        exploration = _exploration(learner)
        self.source = "\n".join([self.device_learner.source, buffers.source, plant.source, '#include "run.cuh"\n'])
        floats = {"hot": 4 * self.device_learner.hot_size, "cold": 4 * self.device_learner.cold_size}
        self._parts, stride = {}, 0
        for name, size in {"run": _run_bytes(plant), **floats, "replay": buffers.bytes}.items():
            self._parts[name] = slice(stride, stride + size)
            stride += -(-size // 16) * 16
        learned, members, root = self.device_learner.settings(), learner.setting.members, learner.setting.root
        doubles = {"updates_per_phase": schedule.updates_per_phase, "horizon": schedule.horizon, **exploration}
        self.settings: Any = struct(
            learner=(ctypes.c_ubyte * len(learned)).from_buffer_copy(learned),
            plant=plant.settings(),
            replay=buffers.settings,
            seed=ctypes.c_uint64(root % 2**64 ^ root >> 64),
            stride=ctypes.c_int64(stride),
            **{f"{name}_at": ctypes.c_int64(part.start) for name, part in self._parts.items()},
            **{name: ctypes.c_double(number) for name, number in doubles.items()},
            discount=ctypes.c_float(learner.task.discount),
            reward_scale=ctypes.c_float(learner.task.reward_scale),
            update_every=ctypes.c_int(schedule.update_every),
            greedy_every=ctypes.c_int(schedule.greedy_every),
            warmup_rounds=ctypes.c_int(learner.schedule.warmup_episodes),
            first_member=ctypes.c_int(members[0]),
        )
        self.memory: Memory = np.zeros((len(members), stride), np.uint8)
        self.part("hot").view(np.float32)[:], self.part("cold").view(np.float32)[:] = self.device_learner.arrays()
        buffers.start(self.part("replay"))

    def part(self, name: str) -> Memory:
        """Return a view of one part of the memory of all M members, `[M, bytes]`.

        The part `run` contains the state of the plant and counters, `hot` the parameters, `cold` the moments of Adam,
        and `replay` the buffer.
        """
        return self.memory[:, self._parts[name]]

    def place(self, name: str) -> slice:
        """Return the byte range of a part (`run`, `hot`, `cold` or `replay`) within the memory of one learner."""
        return self._parts[name]

    def state(self) -> dict[str, np.ndarray]:
        """Return the training's state, with the memory that is on the host, as arrays by name for a checkpoint."""
        return {"memory": self.memory.copy(), "rounds": np.full(len(self.memory), self.rounds)}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        """Restore a checkpoint of `state()`, so that training continues bit for bit."""
        self.memory[:], self.rounds = state["memory"], int(state["rounds"][0])

    def fetch(self, learner: Learner | None = None) -> Learner:
        """Copy the networks and optimiser moments from the program's memory into a learner, and return the learner.

        By default this is the learner of the program. A given `learner` may have fewer members
        than the program. It gets the networks of the first members.
        """
        device = self.device_learner if learner is None else DeviceLearner(learner)
        members = len(device.learner.setting.members)
        device.load(*(np.ascontiguousarray(self.part(n)[:members]).view(np.float32) for n in ("hot", "cold")))
        return device.learner


class Host:
    """A replacement of `gpu.GPU` that runs a training program on the CPU, for tests."""

    name = "this processor"

    def __init__(self, program: Program) -> None:
        self.program, self.library = program, host_library(program.source, program.threads)
        self._functions = program.plant.host_functions()
        self.library.set_plant(*(ctypes.c_void_p(function.address) for function in self._functions))
        for name, table in program.buffers.tables.items():
            setattr(program.settings.replay, name, table.ctypes.data)

    def advance(self, count: int) -> Rounds:
        """Run `count` training episodes or iterations of every learner, and return the scores, `[M, count]` each."""
        program = self.program
        found = Rounds(*(np.full((len(program.memory), count), np.nan) for _ in Rounds._fields))
        self.library.run_rounds(
            ctypes.byref(program.settings), ctypes.c_void_p(program.memory.ctypes.data), len(program.memory),
            program.rounds, count, *(ctypes.c_void_p(array.ctypes.data) for array in found),
        )  # fmt: skip
        program.rounds += count
        return found

    def describe(self, ends: NDArray[np.uint32]) -> Floats:
        """Return what the buffers contain, as `GPU.describe` does."""
        (members, groups), memory = ends.shape, self.program.memory
        found, ends = np.empty((members, groups + 1)), np.ascontiguousarray(ends)
        self.library.describe_buffers(
            ctypes.byref(self.program.settings), ctypes.c_void_p(memory.ctypes.data), members, groups,
            *(ctypes.c_void_p(array.ctypes.data) for array in (ends, found)),
        )  # fmt: skip
        return found

    def fetch(self, *places: slice, members: int | None = None) -> None:
        """Do nothing, because the memory of all learners is already on the host."""

    push = close = fetch


def members_at_once(program: Program, free: int) -> int:
    """Return how many members fit into `free` bytes, or raise `UserError` if none fits."""
    each = int(program.memory.shape[1])
    if each > free:
        raise UserError(
            f"one member needs {gigabytes(each)} of the device's memory, {gigabytes(free)} are free: "
            "lower the capacity, or the number of episodes of a FULL buffer"
        )
    return min(len(program.memory), free // each)


def _exploration(learner: Learner) -> dict[str, float]:
    if learner.normaliser.on:
        raise UserError('normalisation runs on the CPU only; leave normalise out, or set device = "cpu"')
    noise = learner.exploration
    numbers = dict.fromkeys(("first_scale", "last_scale", "diffusion", "friction"), 0.0)
    numbers |= {"noise_bound": 1.0, "action_bound": 1.0, "decay_episodes": 1}
    if isinstance(noise, RunningProcess):
        process = noise.config
        numbers |= {"first_scale": process.first_amplitude, "last_scale": process.last_amplitude}
        numbers |= {"decay_episodes": process.decay_episodes}
        numbers |= {"diffusion": noise.diffusion, "friction": noise.friction}
    elif isinstance(noise, RunningGaussian):
        own = noise.config
        if own.truncate is not None or learner.density.known:
            raise UserError(
                "Gaussian exploration on a device needs clip = true and no truncate; or use process noise, or "
                'device = "cpu"'
            )
        numbers |= {"first_scale": own.sigma, "last_scale": own.sigma if own.last_sigma is None else own.last_sigma}
        numbers |= {"decay_episodes": own.decay_episodes}
        numbers |= {"diffusion": 1.0, "friction": 1.0}  # with friction 1, the noise process is white noise
        numbers |= {"noise_bound": np.inf, "action_bound": 1.0 if own.clip else np.inf}
    elif isinstance(learner, DQN):
        config = learner.config
        numbers |= {"first_scale": config.first_random, "last_scale": config.last_random}
        numbers |= {"decay_episodes": config.decay_episodes}
    return numbers


def _run_bytes(plant: DevicePlant) -> int:
    states, actions, seen = len(plant.plant.state_names), len(plant.plant.action_names), plant.observed
    episode = 8 * (states + 2) + -(-4 * (2 * seen + actions + 6) // 8) * 8
    return 2 * episode + 8 * (actions + 3) + 8
