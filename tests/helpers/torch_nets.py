"""Our feed-forward networks and squashed Gaussians in torch."""

from typing import Any

import numpy as np
import torch
from torch.nn.functional import layer_norm, softsign

from replaybench.controllers.networks.mlp import Shape

ACTIVATIONS: dict[str, Any] = {"relu": torch.relu, "tanh": torch.tanh, "softsign": softsign}


class TorchNet:
    """One member's network, with the gradients that autograd finds."""

    def __init__(self, network: Any, m: int = 0) -> None:
        arrays = network.named_weights("n").values()
        self.leaves = [torch.tensor(array[m].copy(), requires_grad=True) for array in arrays]
        self.shape: Shape = network.shape

    def __call__(self, x: torch.Tensor, action: torch.Tensor | None = None) -> torch.Tensor:
        leaves, last = iter(self.leaves), len(self.shape.layers) - 1
        for layer in range(last + 1):
            if layer == self.shape.inject and action is not None:
                x = torch.cat([x, action], -1)
            x = x @ next(leaves) + next(leaves)
            if layer < last and self.shape.layer_norm:
                x = layer_norm(x, x.shape[-1:], next(leaves), next(leaves), 1e-5)
            x = ACTIVATIONS[self.shape.activation](x) if layer < last else x
        return torch.tanh(x) if self.shape.tanh else x

    def parameters(self) -> np.ndarray:
        """Return all weights in a row, as ours are."""
        return np.concatenate([leaf.detach().numpy().ravel() for leaf in self.leaves])

    def gradient(self) -> np.ndarray:
        """Return the gradients of all weights in a row; zero where there is none."""
        return np.concatenate(
            [(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad).numpy().ravel() for leaf in self.leaves]
        )


def squashed_sample(head: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return SAC's actions `[B, A]` and their log π `[B]` for means and log σ `[B, 2A]` and standard normals."""
    mean, log_sigma = head.chunk(2, dim=1)
    normal: Any = torch.distributions.Normal(mean, log_sigma.clamp(-20, 2).exp())
    x = mean + normal.stddev * noise
    action = torch.tanh(x)
    return action, (normal.log_prob(x) - torch.log(1 - action**2 + 1e-6)).sum(dim=1)
