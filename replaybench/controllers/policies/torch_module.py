"""Learned policies as PyTorch modules, to be deployed on a rig, exported, or trained further outside this package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from replaybench.controllers.networks.greedy_form import PolicyForm
from replaybench.controllers.policies.policy import load_policy


class TorchPolicy(nn.Module):
    """Observations float32 `[..., S]`, in the units in which learners see them, to actions `[..., A]` in [−1, 1].

    Args:
        form: the policy.
        statistics: mean, scale and bound by which observations are normalised, `[S]`, `[S]` and one number.
    """

    def __init__(self, form: PolicyForm, statistics: tuple[NDArray[Any], NDArray[Any], float] | None) -> None:
        super().__init__()
        shape, weights = form.network.shape, form.network.named_weights("net")
        activations = {"relu": nn.ReLU, "tanh": nn.Tanh, "softsign": nn.Softsign}
        modules: list[nn.Module] = []
        for layer, (inputs, outputs) in enumerate(shape.layers):
            linear = nn.Linear(inputs, outputs)
            linear.weight.data = torch.from_numpy(weights[f"net.{layer}.weight"][0].T.copy())
            linear.bias.data = torch.from_numpy(weights[f"net.{layer}.bias"][0].copy())
            modules.append(linear)
            if layer == len(shape.layers) - 1:
                continue
            if shape.layer_norm:
                norm = nn.LayerNorm(outputs, eps=1e-5)
                norm.weight.data = torch.from_numpy(weights[f"net.{layer}.gain"][0].copy())
                norm.bias.data = torch.from_numpy(weights[f"net.{layer}.shift"][0].copy())
                modules.append(norm)
            modules.append(activations[shape.activation]())
        if shape.tanh:
            modules.append(nn.Tanh())
        self.layers = nn.Sequential(*modules)
        self.first, self.width, self.squash = form.first, form.width, form.squash
        self.discrete, self.normalised = form.table is not None, statistics is not None
        constants: dict[str, NDArray[Any]] = {} if form.table is None else {"table": form.table}
        if statistics is not None:
            constants |= {"mean": statistics[0], "scale": statistics[1]}
            self.bound = float(statistics[2])
        for name, value in constants.items():
            self.register_buffer(name, torch.from_numpy(np.asarray(value, np.float32).copy()))

    def forward(self, observation: Tensor) -> Tensor:
        """Return the greedy actions."""
        seen = observation
        if self.normalised:
            seen = ((seen - self.get_buffer("mean")) * self.get_buffer("scale")).clamp(-self.bound, self.bound)
        outputs: Tensor = self.layers(seen)[..., self.first : self.first + self.width]
        if self.discrete:
            chosen: Tensor = self.get_buffer("table")[outputs.argmax(-1)]
            return chosen
        if self.squash == "tanh":
            return torch.tanh(outputs)
        return outputs.clamp(-1.0, 1.0) if self.squash == "clip" else outputs


def load_torch_policy(path: Path | str, member: int = 0, learner: str | None = None) -> TorchPolicy:
    """Return one member's greedy policy from a policy file; `torch.export.export` takes it as it is.

    Args:
        path, member, learner: see `load_policy`.

    Raises:
        UserError: the file is missing, damaged or foreign, has no such member, or holds a recurrent policy.
    """
    agent = load_policy(path, member, learner).agent
    statistics = None
    if agent.normaliser.observations.on:
        normaliser = agent.normaliser.observations
        statistics = (normaliser.mean[0], normaliser.scale[0], float(normaliser.bound[0]))
    return TorchPolicy(agent.policy_form(), statistics).eval()
