"""What every plant must do."""

from __future__ import annotations

import contextlib
import itertools
import math
import warnings
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from gymnasium.utils.env_checker import check_env
from numpy.typing import NDArray
from scipy import stats

from replaybench.data.errors import UserError
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.ode.rk4 import simulate
from replaybench.envs.population import PopulationEnv
from replaybench.envs.single import SingleEnv
from replaybench.experiments.contracts.promises import Promises, difference

_NOISE: Final[dict[str, Any]] = {"sensor_noise": 0.02, "actuator_noise": 0.05}
_FALSE_ALARM: Final = 1e-6
_FLOAT32: Final = 1e-5
"""Relative error of states that were observed."""


@contextlib.contextmanager
def _population(plant: Plant, count: int, **settings: Any) -> Iterator[PopulationEnv]:
    with contextlib.closing(PopulationEnv(plant, count, **settings)) as env:
        yield env


def _actions(env: PopulationEnv, steps: int, members: int) -> NDArray[np.float32]:
    size = env.single_action_space.shape or (1,)
    return np.random.Generator(np.random.PCG64(7)).uniform(-1, 1, (steps, members, *size)).astype(np.float32)


def rollout(env: PopulationEnv, actions: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
    """Step whether episodes end or not; return observations, rewards, flags and infos by name, `[M, T, …]`."""
    names = ("observation", "reward", "terminated", "truncated")
    steps: list[dict[str, Any]] = [
        dict(zip(names, found[:4], strict=True)) | found[4] for found in map(env.step, actions)
    ]
    return {name: np.stack([step[name] for step in steps], axis=1) for name in steps[0]}


def _of(members: list[int], run: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name: array[members] for name, array in run.items()}


def _checker(plant: Plant) -> str:
    with warnings.catch_warnings(), contextlib.closing(SingleEnv(plant, **_NOISE)) as env:
        warnings.simplefilter("error")
        check_env(env, skip_render_check=True)
    return ""


def _alike_in_any_population(plant: Plant) -> str:
    members = [4, 0, 7]
    with _population(plant, 3, members=members, **_NOISE) as env:
        actions = _actions(env, 25, 3)
        env.reset()
        together = rollout(env, actions)
    for row, member in enumerate(members):
        with _population(plant, 1, members=[member], **_NOISE) as one:
            one.reset()
            if wrong := difference(_of([row], together), rollout(one, actions[:, [row]])):
                return wrong
    return ""


def _independent(plant: Plant) -> str:
    with _population(plant, 3, **_NOISE) as env:
        actions = _actions(env, 25, 3)
        other = actions.copy()
        other[:, 1] *= -1
        env.reset(seed=0)
        before = rollout(env, actions)
        env.reset(seed=0)
        return difference(_of([0, 2], before), _of([0, 2], rollout(env, other)))


def _finite(plant: Plant) -> str:
    with _population(plant, 3) as env:
        actions = _actions(env, min(100, env.steps_per_episode), 3)
        actions[:, 1] = np.sign(actions[0, 1])
        env.reset()
        furthest = np.zeros(len(plant.state_names), np.float32)
        for action in actions:
            observation, reward, terminated, truncated, _ = env.step(action)
            furthest = np.maximum(furthest, np.abs(observation).max(axis=0))
            if not (np.isfinite(reward).all() and np.isfinite(observation).all()):
                return "an observation or a reward is not finite"
            if (ended := terminated | truncated).any():
                env.reset(options={"reset_mask": ended})
        return _beyond(plant, furthest, env.single_observation_space.high)


def _beyond(plant: Plant, furthest: NDArray[np.float32], limits: NDArray[np.float32]) -> str:
    problems = [
        f"{name} gets {far:.3g} times its scale away from its center, beyond its observation_limit of {limit:g}"
        for name, far, limit in zip(plant.state_names, furthest, limits, strict=True)
        if far > limit
    ]
    return f"{', '.join(problems)}; declare how far each state may get" if problems else ""


def _angles(plant: Plant) -> str:
    """Say which angles leave [−π, π): from a state just beyond it, where equations allow that, and along a rollout."""
    angles = np.flatnonzero(plant.periodic)
    with _population(plant, 3) as env:
        actions = _actions(env, min(100, env.steps_per_episode), 3)
        actions[:, 1] = np.sign(actions[0, 1])
        first, _ = env.reset()
        seen = plant.denormalise_state(np.concatenate([first[:, None], rollout(env, actions)["observation"]], axis=1))
    states = [seen.reshape(-1, len(plant.state_names))]
    if isinstance(plant, OdePlant):
        for angle, beyond in itertools.product(angles, (-np.pi - 0.1, np.pi + 0.1)):
            state = np.array(plant.initial_state, np.float64)
            state[angle] = beyond
            states.append(simulate(plant, state[None], plant.action_range()[0][None], 1 / plant.frequency)[0])
    furthest = np.abs(np.concatenate(states))[:, angles].max(axis=0)
    problems = [
        f"{plant.state_names[angle]} gets to {far:.3g} rad"
        for angle, far in zip(angles, furthest, strict=True)
        if far > np.pi * (1 + _FLOAT32)
    ]
    return (
        f"{', '.join(problems)}; wrap it in project (wrap_angle), or declare the state not periodic" if problems else ""
    )


def _masked_reset(plant: Plant) -> str:
    with _population(plant, 3, **_NOISE) as env, _population(plant, 3, **_NOISE) as other:
        actions = _actions(env, 12, 3)
        for each in (env, other):
            each.reset()
            rollout(each, actions[:4])
        env.reset(options={"reset_mask": np.array([False, True, False])})
        return difference(*(_of([0, 2], rollout(each, actions[4:])) for each in (env, other)))


def _saved(plant: Plant) -> str:
    with _population(plant, 2, **_NOISE) as env, _population(plant, 2, seed=9, **_NOISE) as other:
        actions = _actions(env, 20, 2)
        for each in (env, other):
            each.reset()
            rollout(each, actions[:8])
        state = env.get_state()
        expected = rollout(env, actions[8:])
        other.set_state(state)
        return difference(expected, rollout(other, actions[8:]))


def _noise(plant: Plant) -> str:
    sigma = 0.05
    with _population(plant, 6, sensor_noise=sigma, actuator_noise=sigma, seed=5) as env:
        env.reset()
        drawn: dict[str, list[NDArray[Any]]] = {"sensor_noise": [], "actuator_noise": []}
        for _ in range(30):
            state = env.get_state()
            running = ~(state["terminated"] | state["truncated"])
            infos = env.step(np.zeros((6, *(env.single_action_space.shape or ())), np.float32))[4]
            for name, columns in drawn.items():
                columns.append(np.asarray(infos[name])[running].astype(np.float64).ravel())
    for name, columns in drawn.items():
        draws = np.concatenate(columns)
        low, high = stats.chi2.ppf([_FALSE_ALARM / 2, 1 - _FALSE_ALARM / 2], draws.size)
        if not low < (draws**2).sum() / sigma**2 < high:
            return f"{name} of σ = {sigma} has a spread of {draws.std():.3g}"
    return ""


def _held_action(plant: Plant) -> str:
    try:
        slow = PopulationEnv(plant, 2, frequency=plant.frequency / 2)
    except UserError:  # a plant of a fixed rate
        return ""
    with contextlib.closing(slow), _population(plant, 2, frequency=plant.frequency) as quick:
        actions = 0.3 * _actions(slow, 4, 2)
        for each in (slow, quick):
            each.reset(seed=1)
        here, there = rollout(slow, actions), rollout(quick, np.repeat(actions, 2, axis=0))
    alive = ~(here["terminated"] | there["terminated"][:, 1::2])
    after, twice = here["observation"][alive], there["observation"][:, 1::2][alive]
    with np.errstate(invalid="ignore"):
        worst = float(np.abs(after - twice).max(initial=0.0))
    return f"observations differ by {worst:.2g}" if worst > 2e-3 or math.isnan(worst) else ""


PLANT: Final[Promises[Plant]] = {
    "Gymnasium's checker finds nothing": _checker,
    "a member is the same bit for bit in any population": _alike_in_any_population,
    "members do not influence each other": _independent,
    "observations stay inside their space, rewards finite": _finite,
    "periodic states stay in [−π, π)": _angles,
    "a masked reset touches only the masked": _masked_reset,
    "a saved state continues bit for bit": _saved,
    "noise has the stated spread": _noise,
    "a held action leads to the same place at another rate": _held_action,
}
