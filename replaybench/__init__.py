"""replaybench: which experiences should a learning controller keep, and which should it replay?

The package imports nothing heavy by itself; every wing (`envs`, `replay`, `controllers`, `baselines`,
`experiments`, `data`) is imported where it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from replaybench.controllers.policies.policy import Policy

__version__ = "0.1.0"

NUMERICS_VERSION = 4
"""Part of every cell's hash. Raise it whenever a change alters the numbers of a result; a golden test
(`tests/golden/test_numerics_version.py`) fails until that is done."""


def load_policy(path: Path | str, member: int = 0) -> Policy:
    """Load one member's policy from a file: `load_policy(path).predict(observation, deterministic=True)`.

    It takes and gives what `replaybench.controllers.policies.policy.load_policy` says.
    """
    from replaybench.controllers.policies.policy import load_policy as load

    return load(path, member)
