"""A policy as a program of PyTorch's own (`torch.export`), for its runtimes; or as an ONNX model, for all others."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from replaybench.controllers.policies.deployment import head_of, memory_of, statistics_of, weights_of
from replaybench.controllers.policies.policy import Policy
from replaybench.controllers.policies.torch_module import TorchPolicy

_OPSET: Final = 17
"""The first that has layer normalisation."""


def write_torch_program(policy: Policy, path: Path, about: Mapping[str, Any]) -> None:
    """Write a policy as `torch.export.save` does, for any number of observations at a time; `about` as policy.json."""
    module = TorchPolicy(policy.agent.policy_form(), statistics_of(policy.agent)).eval()
    several = torch.export.Dim("observations")
    given = [torch.zeros(2, policy.agent.task.observation_size)]
    given += [torch.zeros(2, module.memory)] if module.memory else []
    shapes = {name: {0: several} for name, _ in zip(("observation", "memory"), given, strict=False)}
    program = torch.export.export(module, tuple(given), dynamic_shapes=shapes)
    content = io.BytesIO()  # of a path that does not end in .pt2, as temporary ones do not, it prints a warning
    torch.export.save(program, content, extra_files={"policy.json": json.dumps(about)})
    path.write_bytes(content.getvalue())


def onnx_model(policy: Policy, origin: Sequence[str], about: Mapping[str, Any]) -> Any:
    """Return a policy as an ONNX model: `observation` `[N, S]` to `action` `[N, A]`, and memories `[N, H]` with one.

    Args:
        policy: of any learner.
        origin: lines on where it comes from.
        about: metadata, as JSON each.
    """
    import onnx

    graph = _Graph(policy)
    model = onnx.helper.make_model(
        graph.finished(), opset_imports=[onnx.helper.make_opsetid("", _OPSET)], producer_name="replaybench"
    )
    model.doc_string = "\n".join(origin)
    onnx.helper.set_model_props(model, {key: json.dumps(value) for key, value in about.items()})
    model.ir_version = 8  # of that opset; runtimes refuse later ones than they know
    onnx.checker.check_model(model, full_check=True)
    return model


class _Graph:
    """Writes a policy node by node; every method takes and returns names of values."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.form = policy, policy.agent.policy_form()
        self.head, self.weights, self.memory = head_of(self.form), weights_of(self.form), memory_of(self.form)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def finished(self) -> Any:
        """Return the graph."""
        from onnx import TensorProto, helper

        task = self.policy.agent.task
        sizes = {"observation": task.observation_size, "action": task.action_size}
        sizes |= {"memory": self.memory, "memory_after": self.memory} if self.memory else {}
        values = {
            name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["observations", size])
            for name, size in sizes.items()
        }
        seen = self._standardised("observation")
        if self.memory:
            seen = self._remembered(seen)
        self._act(self._layers(seen))
        ends = ("observation", "memory"), ("action", "memory_after")
        given, found = ([values[name] for name in names if name in values] for names in ends)
        return helper.make_graph(self.nodes, "policy", given, found, self.constants)

    def _do(self, kind: str, *given: str, to: str = "", **settings: Any) -> str:
        from onnx import helper

        name = to or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(given), [name], **settings))
        return name

    def _constant(self, value: Any, kind: Any = np.float32) -> str:
        from onnx import numpy_helper

        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value, kind), name))
        return name

    def _standardised(self, seen: str) -> str:
        found = statistics_of(self.policy.agent)
        if found is None:
            return seen
        seen = self._do("Mul", self._do("Sub", seen, self._constant(found.mean)), self._constant(found.scale))
        return self._clipped(seen, found.bound) if np.isfinite(found.bound) else seen

    def _clipped(self, value: str, bound: float, to: str = "") -> str:
        return self._do("Clip", value, self._constant(-bound), self._constant(bound), to=to)

    def _linear(self, x: str, name: str) -> str:
        weight, bias = (self._constant(self.weights[f"{name}.{part}"]) for part in ("weight", "bias"))
        return self._do("Gemm", x, weight, bias)

    def _parts(self, value: str, sizes: Sequence[int]) -> list[str]:
        from onnx import helper

        names = [f"v{len(self.nodes)}_{part}" for part in range(len(sizes))]
        split = self._constant(sizes, np.int64)
        self.nodes.append(helper.make_node("Split", [value, split], names, axis=1))
        return names

    def _remembered(self, seen: str) -> str:
        layers = sum(name.startswith("trunk.") and name.endswith(".bias") for name in self.weights)
        units = self.memory // (2 * layers)
        states = self._parts("memory", [units] * (2 * layers))
        after: list[str] = []
        for layer in range(layers):
            h, c = states[2 * layer : 2 * layer + 2]
            sums = self._linear(self._do("Concat", seen, h, axis=1), f"trunk.{layer}")
            *gates, candidate = self._parts(sums, [units] * 4)
            entered, kept, shown = (self._do("Sigmoid", gate) for gate in gates)
            taken = self._do("Mul", entered, self._do("Tanh", candidate))
            cells = self._do("Add", self._do("Mul", kept, c), taken)
            seen = self._do("Mul", shown, self._do("Tanh", cells))
            after += [seen, cells]
        self._do("Concat", *after, axis=1, to="memory_after")
        return seen

    def _layers(self, x: str) -> str:
        activation = {"relu": "Relu", "tanh": "Tanh", "softsign": "Softsign"}[self.head.activation]
        last = len(self.head.layers) - 1
        for layer in range(last + 1):
            x = self._linear(x, f"head.{layer}")
            if layer < last:
                if self.head.layer_norm:
                    parts = [self._constant(self.weights[f"head.{layer}.{part}"]) for part in ("gain", "shift")]
                    x = self._do("LayerNormalization", x, *parts, axis=-1, epsilon=1e-5)
                x = self._do(activation, x)
        return self._do("Tanh", x) if self.head.tanh else x

    def _act(self, outputs: str) -> None:
        form = self.form
        ends: list[NDArray[Any]] = [np.array([form.first]), np.array([form.first + form.width]), np.array([1])]
        mine = self._do("Slice", outputs, *(self._constant(end, np.int64) for end in ends))
        if form.table is not None:
            best = self._do("ArgMax", mine, axis=1, keepdims=0)
            self._do("Gather", self._constant(form.table), best, axis=0, to="action")
            return
        self._clipped(self._do("Tanh", mine) if form.squash == "tanh" else mine, 1.0, to="action")
