"""Learners by name, loaded when asked for."""

from __future__ import annotations

import importlib
from typing import Any, Final

from replaybench.data.errors import unknown

LEARNERS: Final = {"DDPG": "replaybench.controllers.ddpg"}
"""Name → module, which holds a class of that name and its configuration `<name>Config`."""


def load_learner(name: str) -> tuple[Any, Any]:
    """Return a learner's class and its configuration class.

    What follows a colon labels a variant of the learner's settings: `DDPG:decay` is a DDPG.

    Raises:
        UserError: there is no such learner.
    """
    algorithm = name.partition(":")[0]
    folded = {known.casefold(): known for known in LEARNERS}
    if algorithm.casefold() not in folded:
        raise unknown("learner", algorithm, LEARNERS)
    known = folded[algorithm.casefold()]
    module = importlib.import_module(LEARNERS[known])
    return getattr(module, known), getattr(module, f"{known}Config")
