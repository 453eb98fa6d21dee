"""Updates on a device, many at a time: their inputs are sent together, and one CUDA graph does them all.

An update of small networks is about a hundred short operations; starting each from Python takes longer than computing
it. Importing this module imports PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

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
        # While one of the two buffers is under way to the device, the other is filled.
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
            # Libraries set themselves up at first use, which cannot be captured.
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
