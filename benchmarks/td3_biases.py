"""`benchmarks/td3_biases.py:TD3Biases`, TD3 with first biases as PyTorch draws them: what do ours, which are zero, do?

`locomotion-biases.toml` runs it beside TD3, with the same first weights.
"""

from dataclasses import dataclass

import numpy as np

from replaybench.controllers.algorithms.td3 import TD3, TD3Config
from replaybench.controllers.interface.agent import LearnerSetting


@dataclass(frozen=True, kw_only=True)
class TD3BiasesConfig(TD3Config):
    """Settings of TD3."""


class TD3Biases(TD3):
    """TD3 whose biases are drawn in ±1/√inputs, from the numbers that go unused where they are zero."""

    supports_chunks = True

    def __init__(self, config: TD3BiasesConfig, setting: LearnerSetting) -> None:
        super().__init__(config, setting)
        stream = setting.stream("initialisation")
        for network in self.networks.values():
            draws = stream.uniform(network.shape.parameter_count) * 2.0 - 1.0
            for inputs, outputs, offset, *_ in network.network.plan[:-1]:
                bias = slice(offset + (inputs - 1) * outputs, offset + inputs * outputs)
                network.parameters[:, bias] = draws[:, bias] / np.sqrt(inputs - 1)
        self._aim_targets()
