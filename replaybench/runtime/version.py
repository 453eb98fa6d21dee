"""The versions that results contain: of the package, and of everything that decides numbers."""

from typing import Final

VERSION: Final = "0.1.0"
"""Version of the package, as in `pyproject.toml`."""

NUMERICS_VERSION: Final = 8
"""Part of every cell's hash. Raise it whenever a change alters the numbers of a result; golden tests (`tests/golden`)
fail until that is done."""
