"""Learners by name: the package's own, those of installed packages, and those in users' files."""

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


_SB3: Final = {"batch_size": 256, "replays_per_experience": 256.0, "tau": 0.005}
_SB3_NETWORKS: Final[dict[str, Any]] = {
    "actor_hidden": [400, 300],
    "critic_hidden": [400, 300],
    "actor_rate": 1e-3,
    "critic_rate": 1e-3,
    "exploration": {"form": "gaussian", "sigma": 0.1, "clip": True},
}
SB3: Final[dict[str, dict[str, Any]]] = {
    "DDPG": {**_SB3, **_SB3_NETWORKS, "action_layer": 0},
    "TD3": {**_SB3, **_SB3_NETWORKS},
    "SAC": {
        **_SB3,
        "actor_hidden": [256, 256],
        "critic_hidden": [256, 256],
        "actor_rate": 3e-4,
        "critic_rate": 3e-4,
        "temperature_rate": 3e-4,
    },
}
"""Settings of the variants `DDPG:sb3`, `TD3:sb3` and `SAC:sb3`: Stable-Baselines3's defaults, one update a step."""


def variant_settings(name: str) -> dict[str, Any]:
    """Return the settings of a variant that comes with the package; none for any other name.

    Raises:
        UserError: there is no such variant of this learner.
    """
    algorithm = algorithm_of(name)
    if name[len(algorithm) :] != ":sb3" or algorithm.endswith(".py"):
        return {}
    if algorithm not in SB3:
        raise UserError(f"{algorithm} has no variant sb3, which {', '.join(SB3)} have; choose another label")
    return SB3[algorithm]


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
    """Return the name of a learner's class in studies; the class's own name if it has none."""
    return next((name for name, path in LEARNERS.own.items() if path.endswith(f":{kind.__name__}")), kind.__name__)
