"""replaybench: which experiences should a learning controller keep, and which should it replay?

The package imports nothing heavy by itself; every wing (`envs`, `replay`, `controllers`, `baselines`,
`experiments`, `data`) is imported where it is used.
"""

__version__ = "0.1.0"

NUMERICS_VERSION = 2
"""Part of every cell's hash. Raise it whenever a change alters the numbers of a result; a golden test
(`tests/golden/test_numerics_version.py`) fails until that is done."""
