"""Conversion of learners to a form that a GPU computes: C++ source, settings, and arrays of parameters.

`DeviceLearner` converts between a learner of `replaybench.controllers` and the C++ templates in `source/`. Every member
has two arrays of 4-byte floats. The array HOT holds the parameters: networks in the learner's order, then other trained
numbers, then target networks. The array COLD holds Adam's first and second moment of each trained parameter. A layer is
a matrix with one row for each input, one row for the bias, and an odd number of columns (see `source/networks.cuh`).
"""

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from replaybench.controllers.algorithms.ddpg import DDPG
from replaybench.controllers.algorithms.dqn import DQN
from replaybench.controllers.algorithms.sac import SAC
from replaybench.controllers.algorithms.td3 import TD3
from replaybench.controllers.learner import Learner
from replaybench.controllers.networks.adam import Adam
from replaybench.controllers.networks.mlp import PopulationMLP
from replaybench.device.build import MOST_THREADS
from replaybench.runtime.arrays import Floats32, Integers
from replaybench.runtime.errors import UserError

LEARNERS: Final = (DDPG, TD3, SAC, DQN)


class DeviceLearner:
    """A population of learners in the form that a GPU computes.

    Args:
        learner: DDPG, TD3, SAC or DQN, without options that only the CPU supports.

    Attributes:
        source: C++ source that defines the types `Shape` and `Learner`. Code after it may call `Learner::update`.
        hot_size: Number of floats for the parameters of one learner, with target networks and padding.
        cold_size: Number of floats for the optimiser moments of one learner, with padding.

    Raises:
        UserError: The learner, or one of its options, runs on the CPU only.
    """

    def __init__(self, learner: Learner) -> None:
        check(type(learner), learner.config, learner.setting.refer is not None)
        self.learner = learner
        self._trained = {name: net for name, net in learner.networks.items() if isinstance(net, PopulationMLP)}
        if isinstance(learner, SAC):
            self._trained["temperature"] = learner.log_temperature
        self._places = {name: places(network) for name, network in self._trained.items()}
        self._sizes = {name: _floats(network) for name, network in self._trained.items()}
        trained = sum(self._sizes.values())
        self.hot_size = trained + sum(self._sizes[name] for name in learner.networks.targets)
        self.cold_size = 2 * trained
        self.source = _source(learner)

    def settings(self) -> bytes:
        """Return the bytes of the C++ struct `LearnerSettings`, which all independent learners share."""
        learner, config = self.learner, self.learner.config
        adams = [_adam(learner.networks.adams[name]) for name in self._trained if name != "critic2"]
        if isinstance(learner, DQN):
            adams.insert(0, adams[0])
        flat = [number for adam in [*adams, adams[0]][:3] for number in adam]
        flat += [getattr(config, name, 0.0) for name in ("tau", "smoothing", "smoothing_clip")]
        flat += [getattr(config, "huber", None) or math.inf, -float(learner.task.action_size)]
        counts = (getattr(config, name, 1) for name in ("policy_delay", "copy_every"))
        return struct.pack(f"{len(flat)}f3i", *flat, *counts, getattr(config, "temperature", None) is None)

    def arrays(self) -> tuple[Floats32, Floats32]:
        """Return the parameters `[M, hot_size]` and optimiser moments `[M, cold_size]` of M independent learners."""
        members = len(self.learner.setting.members)
        hot, cold = np.zeros((members, self.hot_size), np.float32), np.zeros((members, self.cold_size), np.float32)
        for part, columns, array in self._parts(hot, cold):
            part[:, columns] = array
        return hot, cold

    def load(self, hot: Floats32, cold: Floats32) -> None:
        """Copy the parameters `hot` and the optimiser moments `cold` of M independent learners back into `learner`."""
        for part, columns, array in self._parts(hot, cold):
            array[...] = part[:, columns]

    def _parts(self, hot: Floats32, cold: Floats32) -> Iterator[tuple[Floats32, Integers, np.ndarray]]:
        """Yield for each array of the learner whether it lies in `hot` or `cold`, its columns there, and the array."""
        learner, start = self.learner, 0
        for name, network in (*self._trained.items(), *learner.networks.targets.items()):
            columns = start + self._places[name]
            yield hot, columns, network.parameters
            if network is self._trained[name]:
                yield cold, 2 * columns, learner.networks.adams[name].first
                yield cold, 2 * columns + 1, learner.networks.adams[name].second
            start += self._sizes[name]


def check(kind: type[Learner], config: Any, refer: bool = False) -> None:
    """Raise `UserError` if a learner with these settings, and with ReF-ER if `refer`, runs on the CPU only."""
    name = kind.__name__
    if kind not in LEARNERS:
        possible = ", ".join(learner.__name__ for learner in LEARNERS)
        raise UserError(f'{name} runs on the CPU only; set device = "cpu", or take one of {possible}')
    hidden = (getattr(config, key, None) for key in ("actor_hidden", "critic_hidden", "hidden"))
    reasons = {
        "ReF-ER": refer,
        "a memory": getattr(config, "memory", None) is not None,
        "layer normalisation": getattr(config, "layer_norm", False),
        "parameter noise": getattr(getattr(config, "exploration", None), "form", "") == "parameter",
        'version = "first"': getattr(config, "version", "present") == "first",
        "n-step targets": getattr(config, "n_step", 1) > 1,
        "networks without hidden layers": () in hidden,
        f"a batch_size above {MOST_THREADS}": config.batch_size > MOST_THREADS,
    }
    if found := [reason for reason, present in reasons.items() if present]:
        raise UserError(f'{name} with {" and ".join(found)} runs on the CPU only; set device = "cpu"')


def places(network: PopulationMLP) -> Integers:
    """Return the index of each of a network's P parameters in the network's memory on the GPU, int64 `[P]`."""
    parts, start = [], 0
    for inputs, outputs, *_ in network.network.plan[:-1]:
        columns = int(outputs) | 1
        parts.append((start + columns * np.arange(inputs)[:, None] + np.arange(outputs)).ravel())
        start += int(inputs) * columns
    return np.concatenate(parts)


def _floats(network: PopulationMLP) -> int:
    rows = sum(int(inputs) * (int(outputs) | 1) for inputs, outputs, *_ in network.network.plan[:-1])
    return -(-rows // 4) * 4


def _adam(adam: Adam) -> Sequence[float]:
    weights_only = len(adam.penalised) > 0
    logs = (math.log(beta) if beta > 0 else -math.inf for beta in (adam.beta1, adam.beta2))
    moving = (adam.beta1, 1.0 - adam.beta1, adam.beta2, 1.0 - adam.beta2)
    coupled = adam.l2 if adam.coupled and not weights_only else 0.0
    decay = (adam.l2 if weights_only else 0.0, coupled, 0.0 if adam.coupled else adam.l2)
    return (adam.learning_rate, adam.epsilon, *moving, *logs, *decay, adam.clip)


def _source(learner: Learner) -> str:
    name = type(learner).__name__
    sizes = learner.task.observation_size, learner.task.action_size, learner.schedule.batch_size
    constants: dict[str, int] = dict(zip(("OBSERVATION", "ACTION", "BATCH"), sizes, strict=True))
    lists: Mapping[str, Sequence[int]]
    if isinstance(learner, DQN):
        constants |= {"CHOICES": len(learner.choices), "DOUBLE": int(learner.config.double)}
        lists = {"Critic": learner.config.hidden, "Levels": learner._counts.tolist()}
    else:
        assert isinstance(learner, DDPG | TD3 | SAC)
        lists = {"Actor": learner.config.actor_hidden, "Critic": learner.config.critic_hidden}
    if isinstance(learner, DDPG):
        constants |= {"ACTION_LAYER": learner.config.action_layer, "CLIP": int(learner.config.clip is not None)}
    lines = [
        f'#include "{name.lower()}.cuh"',
        "struct Shape {",
        f"    CONSTANT int {', '.join(f'{key} = {value}' for key, value in constants.items())};",
        *(f"    using {key} = Widths<{', '.join(map(str, widths))}>;" for key, widths in lists.items()),
        "};",
        f"using Learner = {name}<Shape>;",
    ]
    return "\n".join(lines) + "\n"
