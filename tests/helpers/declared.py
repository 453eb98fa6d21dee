"""Plants that differ from others in what they declare."""

import dataclasses
from typing import Any, TypeVar

from replaybench.envs.interface.plant import Plant

P = TypeVar("P", bound=Plant)


def declared(base: type[P], **facts: Any) -> type[P]:
    """Return the class Declared of plants like those of `base` but for these facts."""
    made: Any = type("Declared", (base,), facts)
    found: type[P] = dataclasses.dataclass(frozen=True, kw_only=True)(made)
    return found
