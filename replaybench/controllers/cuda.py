"""DDPG updates in PyTorch on a CUDA device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from replaybench.controllers.interface.agent import Batch
from replaybench.controllers.learner import Learner
from replaybench.controllers.networks.adam import Adam
from replaybench.controllers.networks.mlp import PopulationMLP
from replaybench.runtime.arrays import AnyFloats

AT_ONCE = 25
"""Most updates in one transfer and one graph: enough to hide their start; the next are drawn meanwhile."""

Inputs = Mapping[str, Tensor]
Step = Callable[[Inputs], None]


class DevicePhase:
    """Run updates in the order in which they are given, while the caller draws the next ones.

    Args:
        device: on a CPU nothing is captured.
        shapes: shape of each input of one update, by name.
        step: does one update on the device, without reading a value from it.
        state: all tensors that `step` reads and changes.
        graphs: whether updates are captured in CUDA graphs.
    """

    def __init__(
        self,
        device: torch.device,
        shapes: Mapping[str, tuple[int, ...]],
        step: Step,
        state: Sequence[Tensor],
        graphs: bool = True,
    ) -> None:
        self.device, self._step, self._state = device, step, state
        self._cuda = device.type == "cuda"
        self._captures = graphs and self._cuda
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        kind, size = state[0].dtype, sum(math.prod(shape) for shape in shapes.values())
        # While one of the two buffers is copied to the device, the other is filled.
        self._host = torch.zeros((2, AT_ONCE, size), dtype=kind, pin_memory=self._cuda)
        self._here = torch.zeros((AT_ONCE, size), dtype=kind, device=device)
        self._sent = [torch.cuda.Event() if self._cuda else None for _ in range(2)]
        # Arrays that share the buffers' memory.
        self._rows = [
            [{name: part.numpy() for name, part in _parts(row, shapes).items()} for row in buffer]
            for buffer in self._host
        ]
        self._inputs = [_parts(row, shapes) for row in self._here]
        self._turn = 0

    def run(self, updates: Iterable[Mapping[str, NDArray[Any]]]) -> None:
        """Do one update with each of the inputs, in order; returns before the device has finished."""
        filled = 0
        for given in updates:
            sent = self._sent[self._turn]
            if filled == 0 and sent is not None:
                sent.synchronize()
            for name, place in self._rows[self._turn][filled].items():
                place[...] = given[name]
            filled += 1
            if filled == AT_ONCE:
                self._launch(filled)
                filled = 0
        if filled:
            self._launch(filled)

    def _launch(self, count: int) -> None:
        with torch.cuda.device(self.device) if self._cuda else nullcontext():
            self._here[:count].copy_(self._host[self._turn, :count], non_blocking=True)
            sent = self._sent[self._turn]
            if sent is not None:
                sent.record()
            if self._captures:
                self._graph(count).replay()
            else:
                self._steps(count)
        self._turn = 1 - self._turn

    def _steps(self, count: int) -> None:
        for inputs in self._inputs[:count]:
            self._step(inputs)

    def _graph(self, count: int) -> torch.cuda.CUDAGraph:
        """Return the graph of as many updates, captured at the first call; the state is afterwards as it was."""
        if count not in self._graphs:
            before = [tensor.clone() for tensor in self._state]
            # Libraries initialise at first use, which cannot be captured.
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    self._steps(1)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._steps(count)
            for tensor, kept in zip(self._state, before, strict=True):
                tensor.copy_(kept)
            self._graphs[count] = graph
        return self._graphs[count]


def _parts(row: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Cut a flat row into its inputs."""
    sizes = [math.prod(shape) for shape in shapes.values()]
    return {name: part.view(shapes[name]) for name, part in zip(shapes, row.split(sizes), strict=True)}


class DeviceMLP:
    """M networks: those of a `PopulationMLP` with ReLU between layers, without layer normalisation.

    Args:
        network: the sizes.
        parameters: `[M, P]` on the device, laid out as the network's.
        batch: rows B of each pass.

    Attributes:
        gradient: `[M, P]`, overwritten by `backward`.
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

        Store the values that the next `backward` or `action_gradient` needs.
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
        # Written so that NaN gives NaN.
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


class DeviceDDPG:
    """`DDPG._update` for all members at once; symbols of de Bruin et al. (2018), eqs 4 to 6.

    Args:
        learner: a DDPG without ReF-ER, parameter noise and memory; its arrays become a copy of those on the device.
        device: a CUDA device; a CPU, slowly, for tests.
        graphs: whether updates are captured in CUDA graphs.
    """

    def __init__(self, learner: Learner, device: torch.device | str, graphs: bool = True) -> None:
        self.learner, self.device = learner, torch.device(device)
        learner.several_at_once = False  # batches of updates are collected here
        if self.device.type == "cuda":
            torch.set_float32_matmul_precision("highest")  # no TF32: the CPU has none
        arrays, config, task = learner.trained(), learner.config, learner.task
        self.tensors = {name: torch.from_numpy(array).to(self.device, copy=True) for name, array in arrays.items()}
        self._stale: set[str] = set()
        m, b = len(learner.networks["actor"].parameters), config.batch_size
        self.actor, self.actor_target, self.critic, self.critic_target = (
            DeviceMLP(network, self.tensors[name], b)
            for name, network in (
                ("actor", learner.networks["actor"]), ("actor_target", learner.networks["actor"]),
                ("critic", learner.networks["critic"]), ("critic_target", learner.networks["critic"]),
            )
        )  # fmt: skip
        self.td_error = torch.zeros((m, b), dtype=self.tensors["actor"].dtype, device=self.device)
        one = (m, b, 1)
        self.shapes: dict[str, tuple[int, ...]] = {
            "observation": (m, b, task.observation_size),
            "action": (m, b, task.action_size),
            "reward": one,
            "next_observation": (m, b, task.observation_size),
            "terminated": one,
            "weight": one,
            "actor_weight": one,
            "actor_factors": (m, 3),
            "critic_factors": (m, 3),
        }
        self._phase = DevicePhase(self.device, self.shapes, self._update, list(self.tensors.values()), graphs)

    def update(self, batch: Batch) -> dict[str, AnyFloats]:
        """Do one critic and one actor update; return `td_error` `[M, B]` (eq. 4, before it)."""
        self.update_all([batch])
        return {"td_error": self.td_error.to("cpu", copy=True).numpy()}

    def update_all(self, batches: Iterable[Batch]) -> None:
        """Do one update with each batch, without waiting for the last of them."""
        self._stale.update(self.tensors)
        self._phase.run(map(self._given, batches))

    def fetch(self, *names: str) -> None:
        """Copy those of the learner's `trained` arrays, or all of them, from the device."""
        arrays = self.learner.trained()
        for name in self._stale & set(names or arrays):
            torch.from_numpy(arrays[name]).copy_(self.tensors[name])
            self._stale.remove(name)

    def push(self) -> None:
        """Copy the learner's `trained` arrays to the device."""
        for name, array in self.learner.trained().items():
            self.tensors[name].copy_(torch.from_numpy(array))
        self._stale.clear()

    def _given(self, batch: Batch) -> dict[str, NDArray[np.floating]]:
        """Return an update's inputs, with the factors that differ from step to step."""
        learner = self.learner
        learner.steps += 1
        step, seen = int(learner.steps[0]), learner.normaliser.observations
        factor = learner.normaliser.rewards.factor.astype(learner.networks["actor"].parameters.dtype)
        return {
            "observation": seen(batch.observation),
            "action": batch.action,
            "reward": factor[:, None, None] * batch.reward,
            "next_observation": seen(batch.next_observation),
            "terminated": batch.terminated,
            "weight": batch.weight[:, :, None],
            "actor_weight": batch.actor_weight[:, :, None],
            "actor_factors": adam_factors(learner.adams["actor"], step, batch.rate_factor),
            "critic_factors": adam_factors(learner.adams["critic"], step, batch.rate_factor),
        }

    def _update(self, given: Inputs) -> None:
        actor, critic, learner, tensors = self.actor, self.critic, self.learner, self.tensors
        batch, tau = self.td_error.shape[1], learner.config.tau
        q_next = self.critic_target.forward(
            given["next_observation"], self.actor_target.forward(given["next_observation"])
        )
        q = critic.forward(given["observation"], given["action"])
        delta = given["reward"] + learner.task.discount * (1 - given["terminated"]) * q_next - q
        self.td_error.copy_(delta[:, :, 0])
        critic.backward(-2 / batch * given["weight"] * delta)
        moments = tensors["critic_first"], tensors["critic_second"]
        adam_step(critic, *moments, learner.adams["critic"], given["critic_factors"])

        critic.forward(given["observation"], actor.forward(given["observation"]))
        actor.backward(critic.action_gradient(-1 / batch * given["actor_weight"]))
        moments = tensors["actor_first"], tensors["actor_second"]
        adam_step(actor, *moments, learner.adams["actor"], given["actor_factors"])

        track(self.critic_target, critic, tau)
        track(self.actor_target, actor, tau)
