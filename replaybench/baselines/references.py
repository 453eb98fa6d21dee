"""Reference scores of plants, where μ_r = 0 is random control and μ_r = 1 is dynamic programming.

Both controllers act under the learner's noise and control rate (de Bruin et al., 2018, section 5.1 and appendix C). The
score 1 is no upper bound, because dynamic programming uses a grid and treats noisy observations as states. On the
pendulum, zero control has a better score than random control.
"""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from replaybench.baselines import controllers, grid_choice
from replaybench.baselines.controllers import Controller, Policy, predicting
from replaybench.baselines.fuzzy_q_iteration import cached_at, write_cached
from replaybench.baselines.grid import grid_facts
from replaybench.baselines.grid_choice import REPETITIONS, Rule
from replaybench.baselines.rivals import Rival, Rivals
from replaybench.data.record import read_header
from replaybench.envs.interface.plant import EpisodeMetric, Plant
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.population import PopulationEnv
from replaybench.runtime.arrays import Floats
from replaybench.runtime.configuration import build
from replaybench.runtime.errors import UserError
from replaybench.runtime.version import NUMERICS_VERSION

_SEED: Final = 2018
_KIND: Final = "reference"
_NO_DP: Final[dict[str, Any]] = {
    **dict.fromkeys(("lqr", "dp", "dp_mean", "interpolated", "discount", "change"), math.nan),
    **dict.fromkeys(("actions", "sweeps"), 0),
    "nodes": (),
    "rule": "",
}


@dataclass(frozen=True)
class Reference:
    """Scores of a plant's episodes under simple controllers, and the settings of its dynamic programming (DP)."""

    plant: str
    frequency: float  # control rate in Hz
    noise: float  # standard deviation of sensor and actuator noise, normalised
    random: float  # mean score of random control, which defines μ_r = 0
    random_sd: float  # standard deviation of the scores of random control
    zero: float  # mean score of zero control
    lqr: float  # mean score of the linear-quadratic regulator, or NaN
    dp: float  # score of greedy DP control (μ_r = 1), or NaN without a grid; with noise, mean of the best episodes,
    # unless starts or set points are random
    dp_mean: float  # mean score of all episodes of greedy DP control
    interpolated: float  # mean score of the interpolated DP policy
    discount: float  # γ per control step in DP
    nodes: tuple[int, ...]  # number of grid nodes on each axis
    actions: int  # number of actions in DP
    sweeps: int  # number of sweeps until DP converged
    rule: str = ""  # rule that chose the grid, "converged" or "paper"
    change: float = math.nan  # last change of the greedy return by refinement, relative to its distance from random
    dp_averaged: float = math.nan  # mean score of greedy control with values averaged over the noise
    dp_observer: float = math.nan  # mean score of greedy control with an observer of the state
    dp_unaware: float = math.nan  # mean score of greedy control that takes readings as the state; with a channel only
    lqr_predicted: float = math.nan  # mean score of the linear-quadratic regulator with prediction; with a channel only
    dp_from: str = ""  # what the prediction of `dp` starts from, "reading" or "observer"; with a channel only
    episode_metric: EpisodeMetric = "mean reward"
    rivals: Mapping[str, Rival] = field(default_factory=dict)  # by name

    @property
    def usable(self) -> bool:
        """Whether the scores of random control and of DP differ enough to define the normalised score μ_r."""
        return grid_choice.apart(self.dp, self.random)

    @property
    def grid(self) -> str:
        """Description of the grid of dynamic programming and its convergence, or an empty string without a grid."""
        if not self.nodes:
            return ""
        text = f"{' × '.join(map(str, self.nodes))} nodes, {self.actions} actions"
        if self.rule == "paper":
            return f"{text}, as declared"
        if not math.isfinite(self.change):
            return f"{text}, not converged"
        verb = "converged" if self.change < grid_choice.CLOSE else "not converged"
        return f"{text}, {verb} (last change {100 * self.change:.2g} %)"


def no_score(dp: float, random: float) -> str:
    """Return, as text, why the scores of dynamic programming and random control define no normalised score μ_r.

    The result is empty if the two scores define μ_r, or if `dp` is not finite.
    """
    if not math.isfinite(dp) or grid_choice.apart(dp, random):
        return ""
    how = "hardly better" if dp > random else "no better"
    return f"no μ_r, because dynamic programming ({dp:.4g}) is {how} than random control ({random:.4g})"


def normalise(reward: ArrayLike, reference: Reference) -> Floats:
    """Return the normalised scores μ_r = (r − r_random) / (r_dp − r_random) of scores r, in the shape of r.

    r_random and r_dp are the scores of random control and dynamic programming. If they are not `usable`, μ_r is NaN.
    """
    span = reference.dp - reference.random if reference.usable else np.nan
    return np.asarray((np.asarray(reward, np.float64) - reference.random) / span)


def reference(
    plant: Plant, frequency: float | None = None, noise: float = 0.0, rule: Rule | None = None,
    rivals: Rivals | None = None,
) -> Reference:  # fmt: skip
    """Return the scores of a plant under simple controllers from the cache or computed.

    Args:
        plant: The plant.
        frequency: Control rate in Hz. By default this is the plant's rate.
        noise: Standard deviation of both sensor and actuator noise, normalised.
        rule: Rule that chooses the grid, `converged` or `paper`. By default this is the plant's rule.
        rivals: Settings of rivals, such as a tuned PID controller, whose scores are added. By default there are none.

    Raises:
        UserError: A setting is out of its range, or the computation would take hours.
    """
    frequency = plant.frequency if frequency is None else frequency
    known = kept_reference(plant, frequency, noise, rule)
    if known is None:
        grid_choice.check_effort(plant, frequency, noise)
        known = _measure(plant, float(frequency), float(noise), _rule(plant, rule))
        facts = dataclasses.asdict(known)
        del facts["rivals"]  # which have files of their own
        write_cached(kept_at(plant, frequency, noise, rule), _KIND, facts)
    if rivals is None:
        return known
    return dataclasses.replace(known, rivals=rivals.scores(plant, float(frequency), float(noise)))


def kept_reference(
    plant: Plant, frequency: float, noise: float, rule: Rule | None, rivals: Rivals | None = None
) -> Reference | None:
    """Read a plant's scores under simple controllers from the cache, or return None if no valid file exists."""
    path = kept_at(plant, frequency, noise, rule)
    with contextlib.suppress(OSError, UserError):
        known = build(Reference, read_header(path, _KIND).facts, str(path))
        rivals_known = {} if rivals is None else rivals.scores(plant, float(frequency), float(noise), compute=False)
        return dataclasses.replace(known, rivals=rivals_known)
    return None


def kept_at(plant: Plant, frequency: float, noise: float, rule: Rule | None) -> Path:
    """Return the path of the cached file with a plant's scores under simple controllers."""
    facts = [plant.fingerprint(), grid_facts(plant), _rule(plant, rule), float(frequency), float(noise)]
    refinement, averaging = grid_choice.refinement_key(plant), [REPETITIONS, controllers.OBSERVER_GAIN, _SEED]
    depends_on = [*facts, NUMERICS_VERSION, *refinement, *averaging]
    return cached_at("references/", depends_on)


def _rule(plant: Plant, asked: Rule | None) -> Rule | None:
    return grid_choice.rule_for(plant, asked) if isinstance(plant, OdePlant) else None


def _measure(plant: Plant, frequency: float, noise: float, rule: Rule | None) -> Reference:
    with contextlib.ExitStack() as opened:
        many, channel = opened.enter_context(_population(plant, frequency, noise)), plant.channel
        env = many if _episodes(plant, noise) > 1 else opened.enter_context(_population(plant, frequency, noise, 1))
        random = controllers.run_episode(controllers.RandomController(plant, many.members, _SEED).act, many)
        zero, found = controllers.run_episode(controllers.zero_control(plant), env), dict[str, Any](_NO_DP)
        if isinstance(plant, OdePlant):
            with contextlib.suppress(UserError):
                regulator = controllers.linear_quadratic_regulator(plant, frequency)
                found["lqr"] = _mean(controllers.unaware(plant, regulator.act), env)
                if not channel.is_off:
                    found["lqr_predicted"] = _mean(predicting(plant, frequency, regulator.act), env)
            found |= _measure_dp(plant, frequency, rule, env) if plant.grid_nodes else {}
        return Reference(
            plant=plant.name, frequency=frequency, noise=noise, random=float(random.mean()),
            random_sd=float(random.std(ddof=1)), zero=float(zero.mean()),
            episode_metric=plant.episode_metric, **found,
        )  # fmt: skip


def scores_on(
    plant: Plant, frequency: float, rule: Rule | None, known: Reference, actual: Plant, noise: float
) -> Iterator[tuple[str, float]]:
    """Yield the scores of reference controllers that are made for `plant`, on the plant `actual` under a noise.

    The names are those of attributes of `Reference`: `random`, `lqr` or `lqr_predicted`, and `dp`. Only the plants'
    parameters and channels may differ. `known` has the scores of `plant`.
    """
    with _population(actual, frequency, noise) as env:
        yield "random", _mean(controllers.RandomController(actual, env.members, _SEED).act, env)
    if not isinstance(plant, OdePlant):
        return
    policies: list[tuple[str, Policy, bool]] = []
    with contextlib.suppress(UserError):
        regulator = controllers.linear_quadratic_regulator(plant, frequency)
        policies.append(("lqr" if plant.channel.is_off else "lqr_predicted", regulator.act, False))
    if plant.grid_nodes:
        solution = grid_choice.reference_solution(plant, frequency, rule).solution
        policies.append(("dp", solution.greedy, known.dp_from == "observer"))
    for name, policy, observer in policies:
        with _population(actual, frequency, noise, _episodes(actual, noise)) as env:
            yield name, _mean(predicting(plant, frequency, policy, observer), env)


def _episodes(plant: Plant, noise: float) -> int:
    """Return the number of episodes of a deterministic controller. Without randomness, all of them are equal."""
    constant = isinstance(plant, OdePlant) and not plant.episodes_differ(noise)
    return 1 if constant else plant.reference_episodes


@contextlib.contextmanager
def _population(plant: Plant, frequency: float, noise: float, members: int | None = None) -> Iterator[PopulationEnv]:
    env = PopulationEnv(
        plant, members or plant.reference_episodes, frequency=frequency, sensor_noise=noise, actuator_noise=noise,
        seed=_SEED, role="evaluation",
    )  # fmt: skip
    with contextlib.closing(env):
        yield env


def _mean(controller: Controller, env: PopulationEnv) -> float:
    return float(controllers.run_episode(controller, env).mean())


def _measure_dp(plant: OdePlant, frequency: float, rule: Rule | None, env: PopulationEnv) -> dict[str, Any]:
    refined = grid_choice.reference_solution(plant, frequency, rule)
    solution = refined.solution
    channel, found, observer = plant.channel, dict[str, Any](), False
    acting = partial(predicting, plant, frequency)
    if not channel.is_off:
        found["dp_unaware"] = _mean(controllers.unaware(plant, solution.greedy), env)
        if env.num_envs > 1 or channel.resolution or channel.differentiate:  # else, readings are exact
            reading, estimate = (_mean(acting(solution.greedy, each), env) for each in (False, True))
            observer = estimate > reading
        found["dp_from"] = "observer" if observer else "reading"
    # With random starts or set points, the best episode is only the easiest one. The mean is the reference then.
    best_of = env.num_envs > 1 and not plant.random_episodes
    repetitions = REPETITIONS if best_of else 1
    greedy = np.array([controllers.run_episode(acting(solution.greedy, observer), env) for _ in range(repetitions)])
    if (noise := plant.sensor_noise(env.sensor_noise)).any():
        averaged = controllers.averaged_over_noise(solution, noise)
        found["dp_averaged"] = _mean(acting(averaged.greedy), env)
        found["dp_observer"] = _mean(acting(solution.greedy, observer=True), env)
    return {
        **found,
        "dp": float(greedy.max(axis=1).mean() if best_of else greedy.mean()),
        "dp_mean": float(greedy.mean()),
        "interpolated": _mean(acting(solution.interpolated), env),
        "discount": solution.discount,
        "nodes": solution.grid.nodes,
        "actions": len(solution.actions),
        "sweeps": solution.sweeps,
        "rule": refined.rule,
        "change": refined.change,
    }
