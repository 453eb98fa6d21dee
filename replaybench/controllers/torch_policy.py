"""Learned policies as PyTorch modules, to be used, deployed or trained further outside this package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from replaybench.data.errors import UserError
from replaybench.data.policy import read_policy

if TYPE_CHECKING:
    import torch


def load_torch_policy(path: Path, member: int = 0) -> torch.nn.Sequential:
    """Return one member's actor from a policy file: ReLU between linear layers, tanh at the end.

    It takes observations float32 `[..., S]`, in the units in which learners see them, and gives actions `[..., A]` in
    [−1, 1]; a policy that learned from running-normalised observations normalises them itself.

    Raises:
        UserError: the file is missing or damaged, or has no such member or no actor.
    """
    import torch

    _, weights = read_policy(path)
    layers = sum(name.startswith("actor.") and name.endswith(".weight") for name in weights)
    if not layers:
        raise UserError(f"{path} holds no actor")
    members = len(weights["actor.0.weight"])
    if not 0 <= member < members:
        raise UserError(f"{path} holds members 0 to {members - 1}, not {member}")
    modules: list[torch.nn.Module] = []
    if "observation.mean" in weights:
        modules += _normalisation(*(weights[f"observation.{part}"][member] for part in ("mean", "scale", "bound")))
    for layer in range(layers):
        weight, bias = (
            torch.from_numpy(weights[f"actor.{layer}.{part}"][member].copy()) for part in ("weight", "bias")
        )
        linear = torch.nn.Linear(*weight.shape)
        linear.weight.data, linear.bias.data = weight.T.contiguous(), bias
        modules += [linear, torch.nn.ReLU() if layer < layers - 1 else torch.nn.Tanh()]
    return torch.nn.Sequential(*modules)


def _normalisation(mean: NDArray[Any], scale: NDArray[Any], bound: NDArray[Any]) -> list[torch.nn.Module]:
    """Return clip((s − mean) · scale, ±bound) as a diagonal linear layer and a clipping one."""
    import torch

    linear = torch.nn.Linear(len(mean), len(mean))
    linear.weight.data = torch.from_numpy(np.diag(scale).astype(np.float32))
    linear.bias.data = torch.from_numpy((-mean * scale).astype(np.float32))
    return [linear, torch.nn.Hardtanh(-float(bound), float(bound))]
