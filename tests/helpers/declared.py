"""Make plants with other declarations than those of a given plant."""

import dataclasses
from typing import Any, TypeVar

from replaybench.envs.interface.plant import Plant

P = TypeVar("P", bound=Plant)


def declared(base: type[P], **facts: Any) -> type[P]:
    """Return a class `Declared` that inherits `base` and replaces the given declarations."""
    made: Any = type("Declared", (base,), facts)
    found: type[P] = dataclasses.dataclass(frozen=True, kw_only=True)(made)
    return found
