"""Check of the limit on address space (`ulimit -v`), under which libraries fail in many ways."""

from __future__ import annotations

import resource
from typing import Final

from replaybench.data.errors import UserError

_LEAST_BYTES: Final = 3 << 30
"""Address space of a process with all libraries and compiled kernels; it uses a tenth of that."""


def check_address_space() -> None:
    """Refuse to start if libraries would not fit.

    Raises:
        UserError: the address space of a process is limited to less than 3 GiB.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit not in (resource.RLIM_INFINITY, -1) and limit < _LEAST_BYTES:
        raise UserError(
            f"the address space of a process is limited to {limit / 2**30:.1f} GiB, but libraries and compiled kernels "
            f"map up to {_LEAST_BYTES >> 30} GiB; lift the limit (ulimit -v unlimited), and bound memory by other means"
        )
