"""PID controllers for plants that declare what is regulated, and their tuning by differential evolution.

The law of each loop is that of Åström and Hägglund (Advanced PID Control, 2006, chapter 3): u = Kp e + Ki ∫e dt − Kd ẏ.
The derivative of the reading y passes a first-order low-pass filter. The integral stops while the action is saturated
and the error would drive it further (conditional integration).
"""

import math
from typing import Final

import numpy as np
from scipy.optimize import differential_evolution

from replaybench.baselines.controllers import run_episode
from replaybench.envs.interface.signals import short_way
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.population import PopulationEnv
from replaybench.runtime import elementwise
from replaybench.runtime.arrays import Floats, Floats32

GAINS: Final = 4
"""Number of tuned values of a loop: Kp, Ki [1/s], Kd [s] and the time constant of the filter [s]."""
_SMALLEST: Final = np.array([0.01, 0.1, 0.001])  # Kp, Ki and Kd that the search resolves, in normalised units
_RANGE: Final = 9.0  # the largest gain is sinh(9) = 4052 times as large
_FILTER: Final = 0.1, 20.0  # bounds of the filter's time constant, in control periods
_CANDIDATES: Final = 8  # for each tuned value
_SCENARIOS: Final = 4  # most episodes of each candidate, if episodes are random
_GENERATIONS: Final = 10  # that the search should have before candidates get a further episode
_SEED: Final = 59


def set_point_columns(plant: OdePlant) -> tuple[list[int], list[int | None]]:
    """Return the index of each regulated state, and the index of its set point, or None for the reference state."""
    states = [plant.state_names.index(name) for name in plant.regulated]
    points = [plant.set_points.get(name) for name in plant.regulated]
    return states, [None if name is None else plant.state_names.index(name) for name in points]


def control_errors(plant: OdePlant, observation: Floats) -> Floats:
    """Return set point minus reading of the L regulated states, `[M, L]`, from normalised observations `[M, S]`."""
    states, points = set_point_columns(plant)
    physical = plant.denormalise_state(observation)
    goals = np.stack(
        [
            np.full(len(physical), plant.reference_state[state]) if point is None else physical[:, point]
            for state, point in zip(states, points, strict=True)
        ],
        axis=1,
    )
    scale, periodic = (np.array(values)[states] for values in (plant.state_scale, plant.periodic))
    return short_way((goals - physical[:, states]) / scale, periodic.tolist(), scale.tolist())


class Pid:
    """The PID controllers of M copies of a plant, for one episode.

    Args:
        plant: The plant, which declares `regulated`.
        frequency: Control rate in Hz.
        gains: Kp, Ki, Kd and filter time constant of L loops, in normalised units of state and action, `[L, 4]`, or
            with own gains for each copy, `[M, L, 4]`.
    """

    def __init__(self, plant: OdePlant, frequency: float, gains: Floats) -> None:
        self._plant, self._period = plant, 1.0 / frequency
        self._kp, self._ki, self._kd, filtered = np.moveaxis(np.asarray(gains, np.float64), -1, 0)
        self._decay = elementwise.exp(-self._period / filtered)
        self._states, _ = set_point_columns(plant)
        self._loops = np.zeros((len(plant.regulated), len(plant.action_names)))
        for loop, action in enumerate(plant.regulated.values()):
            self._loops[loop, plant.action_names.index(action)] = 1.0
        self._rest = plant.normalise_action(plant.zero_action)
        self._integral, self._slope = np.zeros((2, *self._kp.shape))
        self._last: Floats | None = None

    def act(self, observation: Floats32) -> Floats32:
        """Return the actions, float32 `[M, A]`, for the next normalised observations `[M, S]`."""
        seen = np.asarray(observation, np.float64)[:, : len(self._plant.state_names)]  # without past commands
        error, reading = control_errors(self._plant, seen), seen[:, self._states]
        if self._last is not None:
            scale, periodic = (np.array(own)[self._states] for own in (self._plant.state_scale, self._plant.periodic))
            moved = short_way(reading - self._last, periodic.tolist(), scale.tolist()) / self._period
            self._slope = self._decay * self._slope + (1.0 - self._decay) * moved
        self._last = reading
        output = self._kp * error + self._integral - self._kd * self._slope
        step = self._ki * error * self._period
        wanted = self._rest + output @ self._loops
        saturated = np.sign(wanted) * (np.abs(wanted) > 1.0) @ self._loops.T
        self._integral = self._integral + np.where(saturated * step > 0.0, 0.0, step)
        action: Floats32 = np.clip(wanted, -1.0, 1.0).astype(np.float32)
        return action


def gains_of(values: Floats, frequency: float) -> Floats:
    """Convert values in [−1, 1], `[..., 4 L]`, to gains `[..., L, 4]` as `Pid` takes them.

    Gains are fine near 0 and coarse far from it. Kp may be negative, because an action may lower its state. Ki and Kd
    have its sign.
    """
    loops = np.reshape(values, (*np.shape(values)[:-1], -1, GAINS)).copy()
    loops[..., 1:3] = np.where(loops[..., :1] < 0.0, -0.5, 0.5) * (loops[..., 1:3] + 1.0)
    low, high = map(math.log, _FILTER)
    filtered = elementwise.exp(low + (high - low) * 0.5 * (loops[..., 3:] + 1.0)) / frequency
    grown = elementwise.exp(_RANGE * loops[..., :3])
    return np.concatenate([_SMALLEST * 0.5 * (grown - 1.0 / grown), filtered], axis=-1)  # the hyperbolic sine


def tune(plant: OdePlant, frequency: float, noise: float, episodes: int) -> tuple[Floats, int]:
    """Tune the gains of a plant's PID controllers by differential evolution (Storn and Price, 1997).

    All candidates meet the same noise, starts and set points, and the nominal parameters of the plant. Their random
    streams are not those of scores.

    Args:
        plant: The plant, which declares `regulated`.
        frequency: Control rate in Hz.
        noise: Standard deviation of sensor and actuator noise, normalised.
        episodes: Largest number of episodes. At least one generation is computed.

    Returns:
        gains: The best gains, `[L, 4]`.
        episodes: Number of episodes that were simulated.
    """
    plant, values = plant.nominal().through(plant.channel), GAINS * len(plant.regulated)
    candidates = _CANDIDATES * values
    scenarios = max(1, min(_SCENARIOS, episodes // (_GENERATIONS * candidates)))
    scenarios = scenarios if plant.episodes_differ(noise) else 1
    count = candidates * scenarios
    env = PopulationEnv(
        plant, count, frequency=frequency, sensor_noise=noise, actuator_noise=noise, seed=_SEED, nan_actions="fail"
    )
    first = np.repeat(env.reset()[0][:scenarios], candidates, axis=0)
    start = {name: np.repeat(array[:scenarios], candidates, axis=0) for name, array in env.get_state().items()}

    def costs(trial: Floats) -> Floats:
        gains = np.tile(gains_of(trial.T, frequency), (scenarios, 1, 1))
        env.set_state(start)
        scores = run_episode(Pid(plant, frequency, gains).act, env, first)
        means: Floats = -scores.reshape(scenarios, candidates).mean(axis=0)
        return np.where(np.isfinite(means), means, np.inf)

    generations = max(1, episodes // count)
    found = differential_evolution(
        costs, [(-1.0, 1.0)] * values, popsize=_CANDIDATES, maxiter=generations - 1, tol=0.0, polish=False,
        vectorized=True, updating="deferred", rng=np.random.Generator(np.random.PCG64(_SEED)),
    )  # fmt: skip
    return gains_of(found.x, frequency), generations * count


def described(plant: OdePlant, gains: Floats) -> str:
    """Describe the gains `[L, 4]` of a plant's PID controllers in physical units, on one line."""
    states, _ = set_point_columns(plant)
    _, half = plant.action_range()
    parts = []
    for (name, action), state, (kp, ki, kd, filtered) in zip(plant.regulated.items(), states, gains, strict=True):
        number = plant.action_names.index(action)
        factor = half[number] / plant.state_scale[state]
        unit, per = plant.action_units[number], plant.state_units[state]
        per = f"({per})" if "/" in per else per
        parts.append(
            f"{name}: Kp = {kp * factor:.3g} {unit}/{per}, Ki = {ki * factor:.3g} {unit}/({per}·s), "
            f"Kd = {kd * factor:.3g} {unit}·s/{per}, filter {filtered:.2g} s"
        )
    return "; ".join(parts)
