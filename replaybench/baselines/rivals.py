"""Rivals of learners: controllers that an engineer would try first, tuned and scored once and then stored.

A rival acts on the same noisy observations, at the same control rate, as learners. Its score is measured on the random
streams of the other reference controllers.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from replaybench.baselines import pid
from replaybench.baselines.controllers import Controller, run_episode
from replaybench.baselines.fuzzy_q_iteration import cached_at, write_cached
from replaybench.data.record import read_header
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.population import PopulationEnv
from replaybench.runtime.configuration import build
from replaybench.runtime.errors import UserError
from replaybench.runtime.version import NUMERICS_VERSION

PID: Final = "PID"
TUNING_EPISODES: Final = 3000
"""Number of training episodes of a study by default. A PID controller is tuned on as many."""

_SEED: Final = 2018
_KIND: Final = "rival"


@dataclass(frozen=True)
class Rival:
    """The score of a rival controller on a plant, at one control rate and noise."""

    score: float  # mean score of its episodes
    note: str = ""  # gains and cost of tuning, on one line
    gains: tuple[float, ...] = ()  # tuned values, which define the controller; empty if it has none


@dataclass(frozen=True)
class Rivals:
    """The rivals with which a study compares its learners.

    Attributes:
        episodes: Number of training episodes of a learner, which is the budget for tuning.
    """

    episodes: int = TUNING_EPISODES

    def scores(self, plant: Plant, frequency: float, noise: float, *, compute: bool = True) -> dict[str, Rival]:
        """Return the rivals of a plant by name, from the cache or, if `compute`, tuned and scored.

        Rivals that the plant does not permit are left out.
        """
        found = {}
        for name in _names(plant):
            path = _kept_at(plant, frequency, noise, name, self)
            known = _read(path)
            if known is None and compute:
                known = _measure(plant, frequency, noise, name, self)
                write_cached(path, _KIND, dataclasses.asdict(known))
            if known is not None:
                found[name] = known
        return found


def controller(plant: Plant, frequency: float, name: str, rival: Rival) -> Callable[[], Controller]:
    """Return a function that makes the controller of a rival for one episode of a population."""
    assert isinstance(plant, OdePlant)
    gains = np.reshape(rival.gains, (-1, pid.GAINS))
    return lambda: pid.Pid(plant, frequency, gains).act


def _names(plant: Plant) -> Iterator[str]:
    if isinstance(plant, OdePlant) and plant.regulated:
        yield PID


def _measure(plant: Plant, frequency: float, noise: float, name: str, chosen: Rivals) -> Rival:
    unscored = Rival(np.nan)
    if isinstance(plant, OdePlant):
        gains, episodes = pid.tune(plant, frequency, noise, chosen.episodes)
        note = f"{pid.described(plant, gains)}; tuned on {episodes:,} episodes"
        unscored = Rival(np.nan, note, tuple(gains.ravel().tolist()))
    env = PopulationEnv(
        plant, plant.reference_episodes, frequency=frequency, sensor_noise=noise, actuator_noise=noise, seed=_SEED,
        role="evaluation",
    )  # fmt: skip
    with contextlib.closing(env):
        score = run_episode(controller(plant, frequency, name, unscored)(), env)
    return dataclasses.replace(unscored, score=float(score.mean()))


def _kept_at(plant: Plant, frequency: float, noise: float, name: str, chosen: Rivals) -> Path:
    declared = (
        [sorted(plant.regulated.items()), sorted(plant.set_points.items())] if isinstance(plant, OdePlant) else []
    )
    facts = [plant.fingerprint(), declared, name, float(frequency), float(noise), chosen.episodes]
    return cached_at("rivals/", [*facts, plant.reference_episodes, _SEED, NUMERICS_VERSION])


def _read(path: Path) -> Rival | None:
    with contextlib.suppress(OSError, UserError):
        return build(Rival, read_header(path, _KIND).facts, str(path))
    return None
