"""Rivals of learners: controllers that an engineer would try first, tuned and scored once and then stored.

A rival acts on the same noisy observations, at the same control rate, as learners. Its score is measured on the random
streams of the other reference controllers.
"""

import contextlib
import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from replaybench.baselines import pid
from replaybench.baselines.controllers import Controller, predicting, run_episode
from replaybench.baselines.fuzzy_q_iteration import cached_at, write_cached
from replaybench.baselines.lqi import Lqi, lqi_gains
from replaybench.baselines.mppi import HOLD, HORIZON, ITERATIONS, SAMPLES, TEMPERATURE, Mppi
from replaybench.data.record import read_header
from replaybench.envs.interface.plant import Plant
from replaybench.envs.measures import MEASURES
from replaybench.envs.ode import rk4
from replaybench.envs.ode.plant import OdePlant, with_equations
from replaybench.envs.population import PopulationEnv
from replaybench.runtime.arrays import Floats32
from replaybench.runtime.configuration import build
from replaybench.runtime.errors import UserError
from replaybench.runtime.source_hash import made_of
from replaybench.runtime.user_file import Registry, one_line_errors
from replaybench.runtime.version import NUMERICS_VERSION

PID: Final = "PID"
LQI: Final = "LQI"
MPPI: Final = "MPPI"
_OWN_RIVALS: Final = (PID, LQI, MPPI)
TUNING_EPISODES: Final = 3000
"""Largest number of episodes on which a PID controller is tuned, as many as the training episodes of de Bruin et al.

With 200 episodes, the luck of the search decides: on `Servo` with 10 ms of delay at 50 Hz, three searches ended at
−1.4, −1.2 and −2.8. With 3,000 episodes they ended at −0.82, −0.83 and −0.85, in 3 s.
"""
SIMULATED_EPISODES: Final = 3, 10
"""Largest numbers of episodes over which the score of MPPI is averaged, if they differ by its samples only or also by
noise, starts or set points."""

_SUBSTEP: Final = 2e-8  # seconds of one Runge-Kutta step of one copy of a plant
_STEP: Final = 3e-7  # further seconds of a control step
_SEED: Final = 2018
_KIND: Final = "rival"


class ReferenceController(ABC):
    """The base class of users' controllers, which tables compare with learners.

    A new instance controls each episode of M members, which are copies of the plant. An instance may keep a state.

    Attributes:
        plant: The plant.
        frequency: Control rate in Hz.
    """

    def __init__(self, plant: Plant, frequency: float) -> None:
        self.plant, self.frequency = plant, frequency

    @abstractmethod
    def act(self, observation: Floats32) -> Floats32:
        """Return the actions in [−1, 1], `[M, A]`, for the next normalised observations `[M, S]`.

        `self.plant.denormalise_state(observation)` are the observed states in physical units, and
        `self.plant.normalise_action(action)` converts physical actions. With the key `history` of a channel, past
        commands follow the S states.
        """


CONTROLLERS: Final = Registry(
    kind="controller", own={}, base="replaybench.baselines.rivals:ReferenceController", group="replaybench.controllers"
)


@dataclass(frozen=True)
class Rival:
    """The score of a rival controller on a plant, at one control rate and noise."""

    score: float  # mean score of its episodes
    measures: Mapping[str, float]  # their means of those of `MEASURES` that the plant has
    note: str = ""  # gains and cost of tuning, on one line
    gains: tuple[float, ...] = ()  # tuned values, which define the controller; empty if it has none


@dataclass(frozen=True)
class Rivals:
    """The rivals with which a study compares its learners.

    Attributes:
        own: Names of users' controllers, such as `pid.py:MyPID`.
    """

    own: tuple[str, ...] = ()

    def scores(self, plant: Plant, frequency: float, noise: float, *, compute: bool = True) -> dict[str, Rival]:
        """Return the rivals of a plant by name, from the cache or, if `compute`, tuned and scored.

        Rivals that the plant does not permit are left out.
        """
        names = (*_names(plant, frequency), *self.own)
        found = {name: self.score(plant, frequency, noise, name, compute=compute) for name in names}
        return {name: known for name, known in found.items() if known is not None}

    def score(self, plant: Plant, frequency: float, noise: float, name: str, *, compute: bool = True) -> Rival | None:
        """Return one rival from the cache or, if `compute`, tuned and scored; else return None."""
        path = _kept_at(plant, frequency, noise, name)
        known = _read(path)
        if known is None and compute:
            known = _measure(plant, frequency, noise, name)
            write_cached(path, _KIND, dataclasses.asdict(known))
        return known

    def seconds(self, plant: Plant, frequency: float, noise: float) -> float:
        """Estimate the seconds that the package's rivals of a plant take on one core, as far as they are not stored."""
        names = [name for name in _names(plant, frequency) if name != LQI]
        missing = [name for name in names if not _kept_at(plant, frequency, noise, name).is_file()]
        if not missing:
            return 0.0
        steps = plant.steps_per_episode(frequency)
        substeps = rk4.substeps(with_equations(plant, PID), 1.0 / frequency)
        simulated = _simulated_episodes(plant, noise) * ITERATIONS * SAMPLES * HORIZON * frequency
        counts = {PID: TUNING_EPISODES + plant.reference_episodes, MPPI: simulated}
        return sum(counts[name] * steps * (substeps * _SUBSTEP + _STEP) for name in missing)


def controller(plant: Plant, frequency: float, name: str, rival: Rival, members: Sequence[int]) -> Controller:
    """Return the controller of a rival for one episode of M members."""
    if name not in _OWN_RIVALS:
        with one_line_errors(name):
            return _with_one_line_errors(CONTROLLERS.load(name)(plant, frequency), name)
    ode = with_equations(plant, name)
    if name == MPPI:
        return predicting(ode, frequency, Mppi(ode, frequency, members).act)
    if name == LQI:
        return Lqi(ode, frequency).act
    return pid.Pid(ode, frequency, np.reshape(rival.gains, (-1, pid.GAINS))).act


def _with_one_line_errors(made: ReferenceController, name: str) -> Controller:
    def act(observation: Floats32) -> Floats32:
        with one_line_errors(name):
            return np.asarray(made.act(observation), np.float32)

    return act


def _names(plant: Plant, frequency: float) -> Iterator[str]:
    if isinstance(plant, OdePlant):
        if plant.regulated:
            yield PID
        if plant.set_points:
            with contextlib.suppress(UserError):  # not every plant can be linearised
                lqi_gains(plant, frequency)
                yield LQI
        if not plant.action_choices:
            yield MPPI


def _simulated_episodes(plant: Plant, noise: float) -> int:
    return min(plant.reference_episodes, SIMULATED_EPISODES[with_equations(plant, MPPI).episodes_differ(noise)])


def _measure(plant: Plant, frequency: float, noise: float, name: str) -> Rival:
    unscored = Rival(math.nan, {})
    if name == PID:
        ode = with_equations(plant, name)
        gains, simulated = pid.tune(ode, frequency, noise, TUNING_EPISODES)
        note = f"{pid.described(ode, gains)}; tuned on {simulated:,} episodes"
        unscored = Rival(math.nan, {}, note, tuple(gains.ravel().tolist()))
    if name == MPPI:
        episodes = _simulated_episodes(plant, noise)
        note = f"knows the model; {SAMPLES} samples of {HORIZON:g} s, {ITERATIONS} times a step; {episodes} episodes"
        unscored = Rival(math.nan, {}, note)
    return scored_on(plant, frequency, name, unscored, plant, noise)


def scored_on(plant: Plant, frequency: float, name: str, rival: Rival, actual: Plant, noise: float) -> Rival:
    """Return a rival that was made for `plant` with its score on the plant `actual`, which may be another one."""
    episodes = _simulated_episodes(actual, noise) if name == MPPI else actual.reference_episodes
    env = PopulationEnv(
        actual, episodes, frequency=frequency, sensor_noise=noise, actuator_noise=noise, seed=_SEED, role="evaluation"
    )
    with contextlib.closing(env):
        score = float(run_episode(controller(plant, frequency, name, rival, env.members), env).mean())
        means = dict(zip(MEASURES, env.measures().mean(axis=0).tolist(), strict=True))
        known = {name: mean for name, mean in means.items() if math.isfinite(mean)}
        return dataclasses.replace(rival, score=score, measures=known)


def _kept_at(plant: Plant, frequency: float, noise: float, name: str) -> Path:
    facts = [plant.fingerprint(), name, float(frequency), float(noise), plant.reference_episodes, _SEED]
    if name == MPPI:
        own: list[Any] = [SIMULATED_EPISODES, HORIZON, HOLD, SAMPLES, ITERATIONS, TEMPERATURE]
    elif name not in _OWN_RIVALS:
        own = [made_of(CONTROLLERS.load(name))]
    else:
        ode = with_equations(plant, name)
        own = [sorted(ode.regulated.items()), sorted(ode.set_points.items()), TUNING_EPISODES]
    return cached_at("rivals/", [*facts, *own, NUMERICS_VERSION])


def _read(path: Path) -> Rival | None:
    with contextlib.suppress(OSError, UserError):
        return build(Rival, read_header(path, _KIND).facts, str(path))
    return None
