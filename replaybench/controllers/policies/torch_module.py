"""Policies as PyTorch modules, exported programs and ONNX files."""

import io
import json
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from replaybench.controllers.networks.network import PolicyHead
from replaybench.controllers.policies.policy import (
    Policy,
    Statistics,
    head_of,
    load_policy,
    memory_of,
    statistics_of,
    weights_of,
)


class TorchPolicy(nn.Module):
    """A PyTorch module that computes the greedy action of a policy.

    It maps normalised observations, float32 `[..., S]`, to actions `[..., A]` in [−1, 1]. A recurrent policy also takes
    its state `[..., H]` and returns the next state. The state is zero at the start of an episode.

    Args:
        form: Network of the policy, with the rule that maps its outputs to the action.
        statistics: Normalisation of observations, or None.
    """

    table: Tensor
    mean: Tensor
    scale: Tensor

    def __init__(self, form: PolicyHead, statistics: Statistics | None) -> None:
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
        constants: dict[str, np.ndarray] = {} if form.table is None else {"table": form.table}
        if statistics is not None:
            constants |= {"mean": statistics.mean, "scale": statistics.scale}
            self.bound = float(statistics.bound)
        for name, value in constants.items():
            self.register_buffer(name, torch.from_numpy(np.asarray(value, np.float32).copy()))

    def forward(self, observation: Tensor, memory: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """Return the greedy actions, and the next state if the policy is recurrent."""
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


class _WithHistory(nn.Module):
    """A policy with the past actions, normalised and the newest first, as an input and an output of their own."""

    def __init__(self, policy: TorchPolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observation: Tensor, history: Tensor, memory: Tensor | None = None) -> tuple[Tensor, ...]:
        found = self.policy(torch.cat([observation, history], -1), memory)
        action, *after = found if isinstance(found, tuple) else (found,)
        kept = torch.cat([action.clamp(-1.0, 1.0), history], -1)[..., : history.shape[-1]]
        return action, kept, *after


def _program(policy: Policy, past: int) -> tuple[nn.Module, dict[str, Tensor]]:
    """Return a policy of which the last `past` values of an observation are an input, and its inputs by name."""
    plain = TorchPolicy(policy.agent.policy_head(), statistics_of(policy.agent))
    module: nn.Module = _WithHistory(plain) if past else plain
    given = {"observation": torch.zeros(2, policy.agent.task.observation_size - past)}
    if past:
        given["history"] = torch.zeros(2, past)
    if plain.memory:
        given["memory"] = torch.zeros(2, plain.memory)
    return module.eval(), given


def _linear(weights: dict[str, np.ndarray], name: str) -> nn.Linear:
    weight = weights[f"{name}.weight"]
    linear = nn.Linear(*weight.shape)
    linear.weight.data = torch.from_numpy(weight.T.copy())
    linear.bias.data = torch.from_numpy(weights[f"{name}.bias"].copy())
    return linear


def load_torch_policy(path: Path | str, member: int = 0, learner: str | None = None) -> TorchPolicy:
    """Return the greedy policy of one member from a policy file, as a PyTorch module.

    `torch.export.export` accepts the module. Arguments and errors are those of `load_policy`.
    """
    agent = load_policy(path, member, learner).agent
    return TorchPolicy(agent.policy_head(), statistics_of(agent)).eval()


_OPSET: Final = 17
"""First version of the ONNX operators with layer normalisation."""


def write_torch_program(policy: Policy, path: Path, about: Mapping[str, Any], past: int = 0) -> None:
    """Write a policy as a `torch.export` program, which contains the metadata `about` as `policy.json`.

    Inputs and outputs are those of `onnx_model`.
    """
    module, given = _program(policy, past)
    several = torch.export.Dim("observations")
    shapes = {name: {0: several} for name in given}
    program = torch.export.export(module, tuple(given.values()), dynamic_shapes=shapes)
    content = io.BytesIO()  # `save` warns about paths without the ending .pt2, such as temporary ones
    torch.export.save(program, content, extra_files={"policy.json": json.dumps(about)})
    path.write_bytes(content.getvalue())


def onnx_model(policy: Policy, origin: Sequence[str], about: Mapping[str, Any], past: int = 0) -> Any:
    """Return a policy as an ONNX model that maps N observations `[N, S]` to actions `[N, A]`.

    A policy that observes past actions has the input `history` `[N, past]` and the output `history_after`. A recurrent
    policy has its state, with H numbers, as the input `memory` `[N, H]` and the output `memory_after`.

    Args:
        policy: Policy of any learner.
        origin: Lines of text about the origin of the policy.
        about: Metadata by name. Each value is stored as JSON.
        past: Number of values at the end of the policy's observation that are past actions.
    """
    import onnx

    module, given = _program(policy, past)
    results = ["action", *(f"{name}_after" for name in given if name != "observation")]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this exporter is deprecated, but needs no further package
        torch.onnx.export(
            module, tuple(given.values()), f"{folder}/policy.onnx", input_names=list(given), output_names=results,
            opset_version=_OPSET, dynamic_axes={name: {0: "observations"} for name in (*given, *results)}, dynamo=False,
        )  # fmt: skip
        model = onnx.load(f"{folder}/policy.onnx")
    model.doc_string, model.producer_name = "\n".join(origin), "replaybench"
    onnx.helper.set_model_props(model, {key: json.dumps(value) for key, value in about.items()})
    onnx.checker.check_model(model, full_check=True)
    return model
