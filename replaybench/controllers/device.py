"""Where updates are computed: by compiled kernels on the CPU, or in PyTorch on a CUDA device."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from replaybench.controllers.agent import Batch, Floats
from replaybench.data.errors import UserError


class OnDevice(Protocol):
    """A learner's updates on a device; the learner's own arrays are then a copy, which may be out of date."""

    def update(self, batch: Batch) -> dict[str, Floats]:
        """Do what the learner's `update` does, and wait for its annotations."""

    def update_all(self, batches: Iterable[Batch]) -> None:
        """Do one update with each batch, without annotations and without waiting for the last of them."""

    def fetch(self, *names: str) -> None:
        """Bring those of the learner's `trained` arrays up to date, all of them if none is named."""

    def push(self) -> None:
        """Continue with what the learner's `trained` arrays hold."""


def check_name(device: str) -> str:
    """Return the name of a device: `cpu`, `cuda`, or `cuda:1` for one of several.

    Raises:
        UserError: it is none.
    """
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise UserError(f'device must be "cpu", "cuda", or "cuda:1" for one of several, not {device!r}')
    return device


def check_device(device: str) -> str:
    """Return the name of a device that is here.

    Raises:
        UserError: it is not the name of one, or there is no such device.
    """
    if check_name(device) == "cpu":
        return device
    import torch  # takes a second, which runs on the CPU are spared

    there = torch.cuda.device_count()
    if there == 0:
        raise UserError('no CUDA device here; set device = "cpu"')
    if int(device.partition(":")[2] or 0) >= there:
        raise UserError(f'no device {device} here; set device = "cuda:{there - 1}" or less')
    return device
