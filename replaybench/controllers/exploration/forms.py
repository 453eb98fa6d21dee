"""The forms of exploration that a learner's settings may name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from replaybench.controllers.exploration.gaussian_noise import GaussianNoise, RunningGaussian
from replaybench.controllers.exploration.parameter_noise import ParameterNoise, RunningParameterNoise
from replaybench.controllers.exploration.process_noise import Exploration, ProcessNoise, RunningProcess
from replaybench.controllers.memory.memory import feed_forward
from replaybench.controllers.networks.network import Population

ExplorationConfig: TypeAlias = ProcessNoise | GaussianNoise | ParameterNoise
"""A table of settings names its form; without, it is the first."""


def make_exploration(
    config: ExplorationConfig,
    root: int,
    members: Sequence[int],
    actions: int,
    frequency: float,
    actor: Population,
) -> Exploration:
    """Return the exploration of a population at rest.

    Args:
        root, members: seed of the study and member numbers.
        actions: action dimensions A.
        frequency: control rate in Hz.
        actor: the networks whose outputs are the policies' actions, initialised.
    """
    match config:
        case ProcessNoise():
            return RunningProcess(config, root, members, actions, frequency)
        case GaussianNoise():
            return RunningGaussian(config, root, members, actions)
        case ParameterNoise():
            return RunningParameterNoise(config, root, members, feed_forward(actor, "parameter noise"))
