"""The version of the package, and the version of the numbers that the package computes."""

from typing import Final

VERSION: Final = "0.1.0"
"""Version of the package, as in `pyproject.toml`."""

NUMERICS_VERSION: Final = 8
"""Version of the computed numbers, which is part of the hash of every result.

Raise this version whenever a change alters the numbers of a result. Golden tests (`tests/golden`) fail until then."""
