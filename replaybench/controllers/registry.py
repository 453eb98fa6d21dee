"""Learners by name, loaded when asked for."""

from __future__ import annotations

import importlib
from typing import Any, Final

from replaybench.data.errors import unknown

LEARNERS: Final = {
    "DDPG": "replaybench.controllers.algorithms.ddpg:DDPG",
    "TD3": "replaybench.controllers.algorithms.td3:TD3",
    "SAC": "replaybench.controllers.algorithms.sac:SAC",
    "DQN": "replaybench.controllers.algorithms.dqn:DQN",
    "ACER": "replaybench.controllers.algorithms.acer:ACER",
    "ACER-discrete": "replaybench.controllers.algorithms.acer_discrete:ACERDiscrete",
    "NAF": "replaybench.controllers.algorithms.naf:NAF",
    "V-RACER": "replaybench.controllers.algorithms.vracer:VRACER",
}
"""Name → module and class; the module holds the class's configuration `<class>Config` too."""


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
    path, _, kind = LEARNERS[folded[algorithm.casefold()]].partition(":")
    module = importlib.import_module(path)
    return getattr(module, kind), getattr(module, f"{kind}Config")


def name_of(kind: type) -> str:
    """Return the name under which studies know a learner's class; the class's own if they do not know it."""
    return next((name for name, path in LEARNERS.items() if path.endswith(f":{kind.__name__}")), kind.__name__)
