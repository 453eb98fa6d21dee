"""Our feed-forward networks in torch."""

from typing import Any

import numpy as np
import torch
from torch.nn.functional import layer_norm, softsign

from replaybench.controllers.networks.mlp import Shape

ACTIVATIONS: dict[str, Any] = {"relu": torch.relu, "tanh": torch.tanh, "softsign": softsign}


class TorchNet:
    """One member's network, or its part of that name and shape, with the gradients that autograd finds."""

    def __init__(self, network: Any, m: int = 0, part: str = "n", shape: Shape | None = None) -> None:
        named = {name: array for name, array in network.named_weights("n").items() if name.startswith(part)}
        self.leaves = [torch.tensor(array[m].copy(), requires_grad=True) for array in named.values()]
        self.shape: Shape = shape or network.shape

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
