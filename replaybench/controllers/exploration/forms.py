"""The types of exploration that settings can name."""

from __future__ import annotations

from typing import TypeAlias

from replaybench.controllers.exploration.gaussian_noise import GaussianNoise, RunningGaussian
from replaybench.controllers.exploration.parameter_noise import ParameterNoise, RunningParameterNoise
from replaybench.controllers.exploration.process_noise import Exploration, ProcessNoise, RunningProcess
from replaybench.controllers.networks.mlp import PopulationMLP
from replaybench.controllers.networks.network import Population
from replaybench.controllers.setting import LearnerSetting

__all__ = ["ExplorationConfig", "GaussianNoise", "ParameterNoise", "ProcessNoise", "make_exploration"]

ExplorationConfig: TypeAlias = ProcessNoise | GaussianNoise | ParameterNoise
"""A table of settings names its `form`; without one, it is the first."""


def make_exploration(config: ExplorationConfig, setting: LearnerSetting, actor: Population) -> Exploration:
    """Return the exploration of a population whose policies are the outputs of `actor`, which is initialised."""
    root, members, actions = setting.root, setting.members, setting.task.action_size
    match config:
        case ProcessNoise():
            return RunningProcess(config, root, members, actions, setting.frequency)
        case GaussianNoise():
            return RunningGaussian(config, root, members, actions)
        case ParameterNoise():
            assert isinstance(actor, PopulationMLP)
            return RunningParameterNoise(config, root, members, actor)
