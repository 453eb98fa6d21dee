"""Names of devices on which updates are computed: the CPU, or a CUDA device."""

from __future__ import annotations

import re

from replaybench.data.errors import UserError


def check_name(device: str) -> str:
    """Return the name of a device: `cpu`, `cuda`, or `cuda:1` for one of several.

    Raises:
        UserError: it is no such name.
    """
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise UserError(f'device must be "cpu", "cuda", or "cuda:1" for one of several, not {device!r}')
    return device


def check_device(device: str) -> str:
    """Return the name of a device that this machine has.

    Raises:
        UserError: it is not the name of a device, or there is no such device.
    """
    if check_name(device) == "cpu":
        return device
    import torch  # takes a second, which runs on the CPU are spared

    count = torch.cuda.device_count()
    if count == 0:
        raise UserError('no CUDA device here; set device = "cpu"')
    if int(device.partition(":")[2] or 0) >= count:
        raise UserError(f'no device {device} here; set device = "cuda:{count - 1}" or less')
    return device
