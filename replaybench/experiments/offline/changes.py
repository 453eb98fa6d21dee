"""A user's changes of the problem and the learner of a recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True)
class Changes:
    """Changes; None or empty keeps the recording's own.

    Attributes:
        settings: of the learner, as a study's `[learner.NAME]` table holds them.
        discount: of a control step.
        noise: standard deviation of sensor and actuator noise in evaluation, normalised units.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    discount: float | None = None
    noise: float | None = None


NO_CHANGES: Final = Changes()
