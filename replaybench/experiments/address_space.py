"""A limit on address space (`ulimit -v`), noticed before libraries stumble over it, each in its own way."""

from __future__ import annotations

import resource
from typing import Final

from replaybench.data.errors import UserError

LEAST_BYTES: Final = 3 << 30
"""What a process with all libraries and compiled kernels maps; it uses a tenth of that."""


def check_address_space() -> None:
    """Refuse to begin where the smallest computation would fail.

    Raises:
        UserError: this process, and the workers it would start, may not map `LEAST_BYTES`.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit not in (resource.RLIM_INFINITY, -1) and limit < LEAST_BYTES:
        raise UserError(
            f"the address space of a process is limited to {limit / 2**30:.1f} GiB, but libraries and compiled kernels "
            f"map up to {LEAST_BYTES >> 30} GiB; lift the limit (ulimit -v unlimited), and bound memory by other means"
        )
