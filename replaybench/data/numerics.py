"""The version of everything that decides the numbers of a result."""

from __future__ import annotations

from typing import Final

NUMERICS_VERSION: Final = 4
"""Part of every cell's hash. Raise it whenever a change alters the numbers of a result; golden tests (`tests/golden`)
fail until that is done."""
