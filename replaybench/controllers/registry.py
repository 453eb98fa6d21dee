"""Learners by name, loaded when asked for."""

from __future__ import annotations

import importlib
from typing import Any, Final

from replaybench.data.errors import unknown

LEARNERS: Final = {"DDPG": "replaybench.controllers.ddpg"}
"""Name → module, which holds a class of that name and its configuration `<name>Config`."""


def load_learner(name: str) -> tuple[Any, Any]:
    """Return a learner's class and its configuration class.

    Raises:
        UserError: there is no such learner.
    """
    folded = {known.casefold(): known for known in LEARNERS}
    if name.casefold() not in folded:
        raise unknown("learner", name, LEARNERS)
    known = folded[name.casefold()]
    module = importlib.import_module(LEARNERS[known])
    return getattr(module, known), getattr(module, f"{known}Config")
