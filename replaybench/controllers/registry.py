"""Learners by name: the package's own, those that installed packages offer, and those in users' files."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, Final

from replaybench.data.errors import UserError
from replaybench.data.registry import Registry

LEARNERS: Final = Registry(
    kind="learner",
    own={
        "DDPG": "replaybench.controllers.algorithms.ddpg:DDPG",
        "TD3": "replaybench.controllers.algorithms.td3:TD3",
        "TD3+BC": "replaybench.controllers.algorithms.td3_bc:TD3BC",
        "SAC": "replaybench.controllers.algorithms.sac:SAC",
        "DQN": "replaybench.controllers.algorithms.dqn:DQN",
        "ACER": "replaybench.controllers.algorithms.acer:ACER",
        "ACER-discrete": "replaybench.controllers.algorithms.acer_discrete:ACERDiscrete",
        "NAF": "replaybench.controllers.algorithms.naf:NAF",
        "V-RACER": "replaybench.controllers.algorithms.vracer:VRACER",
    },
    base="replaybench.controllers.learner:Learner",
    group="replaybench.learners",
)
"""The module of a learner holds its configuration, `<class>Config`, too."""


def algorithm_of(name: str) -> str:
    """Return what is before the label of a variant: `DDPG` of `DDPG:decay`, `own.py:Mine` of `own.py:Mine:decay`."""
    path, separator, rest = name.partition(".py:")
    if separator:
        return f"{path}{separator}{rest.partition(':')[0]}"
    return LEARNERS.spelled(name.partition(":")[0])


def spelled(name: str) -> str:
    """Return a learner's name as it is registered, whatever its letters' case; the label of a variant stays."""
    algorithm = algorithm_of(name)
    return algorithm + name[len(algorithm) :]


def load_learner(name: str) -> tuple[Any, Any]:
    """Return a learner's class and its configuration class.

    What follows a colon labels a variant of the learner's settings: `DDPG:decay` is a DDPG.

    Raises:
        UserError: there is no such learner.
    """
    kind = LEARNERS.load(algorithm_of(name))
    config = getattr(sys.modules[kind.__module__], f"{kind.__name__}Config", None)
    if not dataclasses.is_dataclass(config):
        raise UserError(f"learner {name} needs its settings beside it: a frozen dataclass {kind.__name__}Config")
    return kind, config


def name_of(kind: type) -> str:
    """Return the name under which studies know a learner's class; the class's own if they do not know it."""
    return next((name for name, path in LEARNERS.own.items() if path.endswith(f":{kind.__name__}")), kind.__name__)
