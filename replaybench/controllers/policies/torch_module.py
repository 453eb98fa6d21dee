"""Learned policies as PyTorch modules, to be deployed on a rig, exported, or trained further outside this package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from replaybench.controllers.networks.greedy_form import PolicyForm
from replaybench.controllers.policies.deployment import Statistics, head_of, memory_of, statistics_of, weights_of
from replaybench.controllers.policies.policy import load_policy


class TorchPolicy(nn.Module):
    """Observations float32 `[..., S]`, in the units in which learners see them, to actions `[..., A]` in [−1, 1].

    One with a memory takes that, too, `[..., H]`, zero where an episode begins, and returns it as it is afterwards.

    Args:
        form: the policy.
        statistics: by which observations are normalised.
    """

    table: Tensor
    mean: Tensor
    scale: Tensor

    def __init__(self, form: PolicyForm, statistics: Statistics | None) -> None:
        super().__init__()
        shape, weights = head_of(form), weights_of(form)
        activations = {"relu": nn.ReLU, "tanh": nn.Tanh, "softsign": nn.Softsign}
        modules: list[nn.Module] = []
        for layer, (_, outputs) in enumerate(shape.layers):
            modules.append(_linear(weights, f"head.{layer}"))
            if layer == len(shape.layers) - 1:
                continue
            if shape.layer_norm:
                norm = nn.LayerNorm(outputs, eps=1e-5)
                norm.weight.data = torch.from_numpy(weights[f"head.{layer}.gain"].copy())
                norm.bias.data = torch.from_numpy(weights[f"head.{layer}.shift"].copy())
                modules.append(norm)
            modules.append(activations[shape.activation]())
        if shape.tanh:
            modules.append(nn.Tanh())
        self.layers = nn.Sequential(*modules)
        trunk = sorted({name.split(".")[1] for name in weights if name.startswith("trunk.")}, key=int)
        self.trunk = nn.ModuleList([_linear(weights, f"trunk.{layer}") for layer in trunk])
        self.memory = memory_of(form)
        self.first, self.width, self.squash = form.first, form.width, form.squash
        self.discrete, self.normalised = form.table is not None, statistics is not None
        constants: dict[str, NDArray[Any]] = {} if form.table is None else {"table": form.table}
        if statistics is not None:
            constants |= {"mean": statistics.mean, "scale": statistics.scale}
            self.bound = float(statistics.bound)
        for name, value in constants.items():
            self.register_buffer(name, torch.from_numpy(np.asarray(value, np.float32).copy()))

    def forward(self, observation: Tensor, memory: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """Return the greedy actions, and what is remembered then where something is."""
        seen = observation
        if self.normalised:
            seen = ((seen - self.mean) * self.scale).clamp(-self.bound, self.bound)
        if not self.memory:
            return self._actions(self.layers(seen))
        if memory is None:
            memory = seen.new_zeros((*seen.shape[:-1], self.memory))
        seen, after = self._remember(seen, memory)
        return self._actions(self.layers(seen)), after

    def _remember(self, seen: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output of the LSTM's last layer and its state `[..., H]`, each layer's h and then c."""
        states = memory.chunk(2 * len(self.trunk), -1)
        after: list[Tensor] = []
        for layer, linear in enumerate(self.trunk):
            sums = linear(torch.cat([seen, states[2 * layer]], -1))
            entered, kept, shown, candidate = sums.chunk(4, -1)
            cells = kept.sigmoid() * states[2 * layer + 1] + entered.sigmoid() * candidate.tanh()
            seen = shown.sigmoid() * cells.tanh()
            after += [seen, cells]
        return seen, torch.cat(after, -1)

    def _actions(self, results: Tensor) -> Tensor:
        outputs = results[..., self.first : self.first + self.width]
        if self.discrete:
            return self.table[outputs.argmax(-1)]
        if self.squash == "tanh":
            return torch.tanh(outputs)
        return outputs.clamp(-1.0, 1.0) if self.squash == "clip" else outputs


def _linear(weights: dict[str, NDArray[Any]], name: str) -> nn.Linear:
    """Return a layer with stored weights `[in, out]`."""
    weight = weights[f"{name}.weight"]
    linear = nn.Linear(*weight.shape)
    linear.weight.data = torch.from_numpy(weight.T.copy())
    linear.bias.data = torch.from_numpy(weights[f"{name}.bias"].copy())
    return linear


def load_torch_policy(path: Path | str, member: int = 0, learner: str | None = None) -> TorchPolicy:
    """Return one member's greedy policy from a policy file; `torch.export.export` takes it as it is.

    Args:
        path, member, learner: see `load_policy`.

    Raises:
        UserError: the file is missing, damaged or foreign, or has no such member.
    """
    agent = load_policy(path, member, learner).agent
    return TorchPolicy(agent.policy_form(), statistics_of(agent)).eval()
