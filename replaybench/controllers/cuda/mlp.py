"""Networks, Adam and target tracking of a population in PyTorch, for updates on a device. Importing it imports PyTorch.

Every operation works on all members at once. As in `networks/mlp.py`, the backward pass is written by hand. No function
waits for the device or reads a value from it, so that all can be captured in CUDA graphs. Unlike on the CPU, the order
of sums may depend on M.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from replaybench.controllers.networks.adam import Adam
from replaybench.controllers.networks.mlp import PopulationMLP


class DeviceMLP:
    """M networks: those of a `PopulationMLP` with ReLU between layers, without layer normalisation.

    Args:
        network: the sizes.
        parameters: `[M, P]` on the device, laid out as the network's.
        batch: rows B of each pass.

    Attributes:
        gradient: `[M, P]`, what `backward` overwrites.
    """

    def __init__(self, network: PopulationMLP, parameters: Tensor, batch: int) -> None:
        self.shape, self.parameters, self.gradient = network.shape, parameters, torch.zeros_like(parameters)
        plan = [(int(rows), int(columns), int(at)) for rows, columns, at, _, _ in network.network.plan[:-1]]
        # Of each layer `[M, inputs + 1, outputs]`; the last row is the bias, which the constant 1 multiplies.
        self.weights, self.weight_gradients = (
            [flat[:, at : at + rows * columns].view(-1, rows, columns) for rows, columns, at in plan]
            for flat in (self.parameters, self.gradient)
        )
        self.one = torch.ones((len(parameters), batch, 1), dtype=parameters.dtype, device=parameters.device)
        self.inputs: list[Tensor] = []
        self.output = torch.empty(0)

    def forward(self, x: Tensor, action: Tensor | None = None) -> Tensor:
        """Return outputs `[M, B, out]` for x `[M, B, in]` and, where one is injected, the action `[M, B, A]`.

        Keeps what the next `backward` or `action_gradient` needs.
        """
        self.inputs = []
        for layer, weight in enumerate(self.weights):
            joined = [x] if action is None or layer != self.shape.inject else [x, action]
            self.inputs.append(torch.cat([*joined, self.one], dim=2))
            x = torch.bmm(self.inputs[-1], weight)
            if layer < len(self.weights) - 1:
                x.relu_()
        self.output = x.tanh_() if self.shape.tanh else x
        return self.output

    def backward(self, d_out: Tensor) -> None:
        """Overwrite `gradient`, given the gradient of the loss to the last outputs `[M, B, out]`."""
        error = self._before_output(d_out)
        for layer in range(len(self.weights) - 1, -1, -1):
            torch.bmm(self.inputs[layer].mT, error, out=self.weight_gradients[layer])
            if layer > 0:
                error = self._below(layer, error)

    def action_gradient(self, d_out: Tensor) -> Tensor:
        """Return the gradient to the injected action `[M, B, A]`; `gradient` stays as it is."""
        error, first = self._before_output(d_out), self.shape.inject
        for layer in range(len(self.weights) - 1, first, -1):
            error = self._below(layer, error)
        return torch.bmm(error, self.weights[first][:, -1 - self.shape.actions : -1].mT)

    def _before_output(self, d_out: Tensor) -> Tensor:
        return d_out * (1 - self.output * self.output) if self.shape.tanh else d_out

    def _below(self, layer: int, error: Tensor) -> Tensor:
        """Carry the error through a layer to the hidden units before it."""
        hidden = self.shape.sizes[layer]
        carried = torch.bmm(error, self.weights[layer][:, :hidden].mT)
        # Written so that NaN passes.
        return carried.masked_fill_(self.inputs[layer][:, :, :hidden] <= 0, 0)


def adam_factors(adam: Adam, step: int, rate_factor: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the numbers of Adam that change between updates, `[M, 3]`: step size, shrinkage, √(1 − β₂ᵗ).

    They are inputs of `adam_step`, so that one graph serves all steps; `step` t counts from 1, `rate_factor` `[M]`
    multiplies the learning rate.
    """
    rate = adam.learning_rate * rate_factor.astype(np.float64)
    shrink = 1.0 - (0.0 if adam.coupled else adam.l2) * rate
    return np.stack([rate / (1.0 - adam.beta1**step), shrink, np.full_like(rate, np.sqrt(1.0 - adam.beta2**step))], 1)


def adam_step(net: DeviceMLP, first: Tensor, second: Tensor, adam: Adam, factors: Tensor) -> None:
    """Apply the gradient as `networks.adam.adam_step` does; moments `[M, P]`, factors `[M, 3]` of `adam_factors`."""
    step_size, shrink, root = factors.split(1, dim=1)
    gradient = net.gradient
    if adam.clip < np.inf:
        norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True, dtype=torch.float64)
        gradient = gradient * (adam.clip / norm).clamp_(max=1.0).to(gradient.dtype)
    if adam.coupled and adam.l2 > 0:
        gradient = gradient.add(net.parameters, alpha=adam.l2)
    first.mul_(adam.beta1).add_(gradient, alpha=1.0 - adam.beta1)
    second.mul_(adam.beta2).addcmul_(gradient, gradient, value=1.0 - adam.beta2)
    change = first / second.sqrt().div_(root).add_(adam.epsilon)
    if not adam.coupled and adam.l2 > 0:
        net.parameters.mul_(shrink)
    net.parameters.addcmul_(change, step_size, value=-1.0)


def track(target: DeviceMLP, source: DeviceMLP, tau: float) -> None:
    """Low-pass filter the targets: θ⁻ ← (1 − τ) θ⁻ + τ θ."""
    target.parameters.lerp_(source.parameters, tau)
