"""Contract checks of plants and strategies: tests that any class of a user must pass to work in studies."""

import contextlib
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env
from scipy import stats

from replaybench.data.batch import ReplayBatch, TraceRule
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.ode.rk4 import simulate
from replaybench.envs.population import PopulationEnv, SingleEnv
from replaybench.replay.buffer import Replay, step_fields
from replaybench.replay.storage.slots import STEP, Unit
from replaybench.replay.strategies.interface import Context
from replaybench.replay.strategies.mixed import FixedExperiences
from replaybench.replay.strategies.notation import parse
from replaybench.replay.strategies.strategy import Strategy
from replaybench.runtime.arrays import Floats32
from replaybench.runtime.errors import UserError
from replaybench.runtime.user_file import FAILURES, error_text, line_of

S = TypeVar("S")

Promises = Mapping[str, Callable[[S], str]]
"""Required behaviours as text, each with a function that tests it.

The function returns a description of the fault, or an empty string if the behaviour is as required.
"""


def checked(promises: Promises[S], subject: S) -> Iterator[tuple[str, str]]:
    """Test a plant, strategy or learner, and yield each required behaviour with a description of the fault.

    The description is empty if the test passed. An exception counts as a fault. Its description contains the last line
    of the traceback that lies in a user's file. `promises` maps each required behaviour to a function that tests it.
    """
    for promise, problem in promises.items():
        try:
            yield promise, problem(subject)
        except FAILURES as error:
            line = line_of(error)
            place = f" ({line})" if line else ""
            yield promise, f"{error_text(error)}{place}"


def difference(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """Compare two dictionaries of arrays, and return the names of unequal arrays as text, or an empty string.

    The comparison is bit for bit, and NaN equals NaN. An array that only one dictionary has counts as unequal.
    """
    differ = [
        name for name in {**first, **second}
        if name not in first or name not in second or not np.array_equal(first[name], second[name], equal_nan=True)
    ]  # fmt: skip
    return f"{', '.join(differ)} differ" if differ else ""


def rows(run: Mapping[str, np.ndarray], members: list[int]) -> dict[str, np.ndarray]:
    """Select the given indices along the first axis of every array in a dictionary."""
    return {name: array[members] for name, array in run.items()}


_CAPACITY, _BATCH, _STEPS, _EPISODES, _UPDATES = 64, 8, 20, 12, 2
_FIELDS: Final = {**step_fields(2, 1), "exploration": 1, "label": 1}
"""Number of values in each stored field. `label` is the serial number of a step, or 0 for a synthetic step."""
_FALSE_ALARM: Final = 1e-6
_LARGE, _LARGE_BATCH = 4000, 64
"""Capacity and batch size of the test of probabilities. Smaller buffers hide how probabilities depend on age."""
_DRAWS: Final = 600
_GROUPS: Final = 50
"""Number of groups of experiences, by age or by probability, whose draws are counted together."""
_DETECTED: Final = 150.0
"""Noncentrality at which a χ² test with `_GROUPS` groups finds a difference nearly always (power > 0.99)."""
_FEW: Final = 20
"""Number of experiences that a full buffer must take, so that it can be tested how long it keeps them."""
TOO_WEAK: Final = "too weak to decide"
"""Beginning of the result of a test that could not have found a fault."""
_FIXED: Final = FixedExperiences({}, np.array([_STEPS]), np.full((1, _STEPS), -1, np.int32))
"""A recording of zeros for strategies with `Mix`."""
_DRAWN: Final = ("idx", "serial", "probability", "weight", "actor_weight", "rate_factor")


class Case(NamedTuple):
    """A replay strategy to test, with the unit that is stored and sampled: a single step or a trajectory segment."""

    strategy: Strategy
    unit: Unit = STEP


class _Model:
    """A simple plant model and policy, which strategies with synthetic experiences call."""

    def possible(self, action: Any) -> Any:
        return action

    def simulate(self, observation: Any, action: Any) -> tuple[Any, Any, Any]:
        return observation * 0.5, observation[:, 0] + action[:, 0], observation[:, 0] > 0.9

    def explore(self, observation: Any) -> tuple[Any, Any, Any]:
        return observation[:, :1] * 0.1, np.abs(observation[:, 0]), {}

    def deviation(self, observation: Any, action: Any) -> Any:
        return np.abs(action[:, 0])


class _Rule(TraceRule):
    """A rule that sets the learner's stored values to 0 or 1 after each update."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def annotated(self, values: Any, previous: Any, next: Any, idx: Any, annotations: Any) -> None:
        member, place = np.nonzero(idx >= 0)
        values[member, idx[member, place]] = (annotations["td_error"][member, place] > 0.5)[:, None]


class Run:
    """A simulated training run that alternates between storing an episode and sampling a few batches.

    Random numbers replace the TD errors. `members` are the numbers of the members, each with its own buffer.
    """

    def __init__(
        self, case: Case, members: Sequence[int], capacity: int = _CAPACITY, batch: int = _BATCH,
        episodes: int = _EPISODES,
    ) -> None:  # fmt: skip
        strategy, unit = case
        capacity, self.batch = strategy.capacity_or(capacity), batch
        if not strategy.retention.bounded:  # room for the largest possible number of whole units
            capacity = episodes * -(-_STEPS // unit.steps) * unit.steps
        traces = strategy.retention.traces
        rule: Any = _Rule(traces) if traces else None
        self.replay = Replay(strategy, _FIELDS, capacity, 0, members, batch, unit, _Model(), rule, fixed=_FIXED)
        self.traces, self.number = traces, 0

    def random(self, number: int, *shape: int) -> Floats32:
        """Return random numbers in [0, 1), `[M, *shape]`, which are seeded by each member and `number`."""
        seeds = [[member, number] for member in self.replay.members]
        return np.stack([np.random.Generator(np.random.PCG64(seed)).random(shape, np.float32) for seed in seeds])

    def collect(self) -> None:
        """Store an episode of random experiences for each member, with slightly different lengths."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """Store an episode as `collect` does, and yield after each step."""
        last = _STEPS - 1 - (self.number + np.array(self.replay.members)) % 3
        widths = {**_FIELDS, **dict.fromkeys(self.traces, 1)}
        for t in range(_STEPS):
            numbers = self.random(1000 * self.number + t, sum(widths.values()))
            parts = np.split(numbers, np.cumsum([*widths.values()])[:-1], axis=1)
            step: dict[str, Any] = dict(zip(widths, parts, strict=True))
            step["label"] = self.replay.collected[:, None] + 1
            step |= {name: np.round(step[name]) for name in self.traces}
            self.replay.add(step, np.less_equal(t, last), np.equal(t, last))
            yield
        self.number += 1

    def sample(self, update: int = 0) -> ReplayBatch:
        """Sample a batch for update number `update` after the last stored episode."""
        state = self.random(1000 * self.number + 500 + update, 2)
        return self.replay.sample(Context(update, _UPDATES, self.number / _EPISODES, state))

    def batches(self) -> Iterator[ReplayBatch]:
        """Yield the batches that are sampled after an episode, and store TD errors for each batch before the next."""
        for update in range(_UPDATES):
            at = 1000 * self.number + 500 + update
            yield (batch := self.sample(update))
            self.replay.annotate(batch, {"td_error": self.random(at, self.batch)})

    def history(self, episodes: int) -> Iterator[dict[str, np.ndarray]]:
        """Continue the run for a number of episodes, and yield a copy of each sampled batch as arrays by name."""
        for _ in range(episodes):
            self.collect()
            for batch in self.batches():
                yield {name: np.array(getattr(batch, name)) for name in _DRAWN} | {
                    name: np.array(column) for name, column in batch.columns.items()
                }

    def saved(self) -> dict[str, np.ndarray]:
        """Return copies of the buffer's arrays by name, as in a checkpoint."""
        return {name: np.array(array) for name, array in self.replay.state_dict().items()}


def _written(case: Case) -> str:
    again = parse(str(case.strategy))
    return "" if again == case.strategy else f"{case.strategy} is read as {again}"


def _stored_only(case: Case) -> str:
    run = Run(case, (0, 1))
    for _ in range(_EPISODES):
        run.collect()
        before = run.replay.columns.rows.copy()
        for batch in run.batches():
            if wrong := _not_stored(run.replay, batch):
                return wrong
            if not np.array_equal(before, run.replay.columns.rows) and case.strategy.synth is None:
                return "drawing changed stored experiences"
    return ""


def _not_stored(replay: Replay, batch: ReplayBatch) -> str:
    """Return a text that states how a batch differs from the stored experiences, or an empty text if equal."""
    if (batch.idx < 0).any() or (batch.idx >= replay.count[:, None]).any():
        return f"slots {batch.idx.min()} to {batch.idx.max()} were drawn, but {replay.count.min()} are stored"
    from_file = (batch.serial == 0) & (replay.mix is not None)
    stored = replay.columns.serial[np.arange(len(batch.idx))[:, None], batch.idx]
    if not np.array_equal(batch.serial, np.where(from_file, 0, stored)):
        return "a batch holds other experiences than its slots"
    label, length = batch.columns["label"][..., 0], batch.length
    if length is None:
        sound = (label == batch.serial) | ((label == 0) & (replay.strategy.synth is not None))
    else:
        steps = np.arange(label.shape[2])
        sound = label == np.where(steps < length[..., None], batch.serial[..., None] + steps, 0)
        for m, starts in enumerate(replay.episodes.starts):
            ends = (np.searchsorted(starts, batch.serial[m] + more, side="right") for more in (0, length[m] - 1))
            if not np.array_equal(*ends):
                return "a sample holds steps of two episodes"
    if not sound.all():
        return "a sample holds other steps than those of its serial number"
    if not np.isfinite(batch.weight).all() or (batch.weight < 0).any():
        return "a weight is negative or not finite"
    if (batch.rate_factor < 1).any():
        return "a factor of the learning rate is below 1"
    known = batch.probability[~np.isnan(batch.probability)]
    return "a probability is not above 0 and at most 1" if ((known <= 0) | (known > 1 + 1e-9)).any() else ""


def _probabilities(case: Case) -> str:
    """Test by χ² tests whether experiences are drawn as often as the returned probabilities state."""
    episodes = _LARGE * 5 // (_STEPS * 4)
    run = Run(case, (0,), _LARGE, _LARGE_BATCH, episodes)
    for _ in run.history(episodes):
        pass
    stored = int(run.replay.count[0])
    chances = np.full(stored, np.nan)
    for _ in range(2):  # the first draws determine the probabilities, and the others are counted
        known, counts = ~np.isnan(chances), np.zeros(stored)
        for _ in range(_DRAWS):
            batch = run.replay.sample(Context(0, _UPDATES, 0.5, np.full((1, 2), 0.5, np.float32)))
            own = batch.serial[0] > 0  # the others are from the file of `Mix`
            chance, idx = batch.probability[0, own], batch.idx[0, own]
            if np.isnan(chance).any():
                return ""
            if (chance <= 0).any() or (chance > 1 + 1e-9).any():
                return f"a probability of {chance.min():g} to {chance.max():g} is returned"
            if (~np.isnan(chances[idx]) & ~np.isclose(chances[idx], chance, rtol=1e-6)).any():
                sampling = case.strategy.sampling
                vary = "phase" in sampling.feedback or sampling.estimated
                return "" if vary else "probabilities change from batch to batch, although the buffer does not"
            np.add.at(counts, idx, 1)
            chances[idx] = chance
    if (total := np.nansum(chances)) > 1 + 1e-6:
        return f"the probabilities of {(~np.isnan(chances)).sum()} experiences sum to {total:.4g}"
    each, draws = chances[known], counts.sum()
    rare = each * draws < 5  # these experiences are counted together
    groups = {"each": np.where(rare, 0, 1 + np.arange(each.size))}
    for name, order in (("age", run.replay.columns.serial[0, :stored][known]), ("probability", each)):
        groups[name] = np.argsort(np.argsort(order, kind="stable")) * _GROUPS // each.size
    apart = 0.0
    for group in groups.values():
        # The experiences of unknown probability are one more group.
        observed = np.append(np.bincount(group, counts[known]), counts[~known].sum())
        expected = np.append(np.bincount(group, each), max(0.0, 1 - each.sum())) * draws
        uniform = np.append(np.bincount(group), (~known).sum()) * draws / stored
        possible = expected > 1e-6
        statistic, far = (
            float(((found - expected)[possible] ** 2 / expected[possible]).sum()) for found in (observed, uniform)
        )
        limit = float(stats.chi2.isf(_FALSE_ALARM, max(1, possible.sum() - 1)))
        if statistic > limit:
            return f"counts do not fit the probabilities (χ² = {statistic:.0f} > {limit:.0f})"
        apart = max(apart, far if possible.sum() <= _GROUPS + 1 else 0.0)
    if apart < _DETECTED and not np.allclose(each, 1 / stored, rtol=1e-6):
        return f"{TOO_WEAK}: with {stored:,} experiences, these probabilities are nearly equal"
    return ""


def _kept(case: Case) -> str:
    """Test whether a full buffer takes new experiences, and keeps enough of them for a while."""
    run, least = Run(case, (0, 1)), case.strategy.retention.least_kept
    slots, lag = run.replay.slots, max(1, run.replay.slots * case.unit.steps // 4)
    stored: list[list[set[int]]] = []
    for _ in range(_EPISODES):
        for _ in run.steps():
            serial, count = run.replay.columns.serial, run.replay.count
            stored.append([set(serial[m, : count[m]].tolist()) for m in range(2)])
        for _ in run.batches():
            pass
    taken = kept = offered = 0
    for before, now, later in zip(stored, stored[1:], stored[1 + lag :], strict=False):
        for m in range(2):
            if len(before[m]) == slots:
                offered += 1
                taken += len(now[m] - before[m])
                kept += len((now[m] - before[m]) & later[m])
    remedy = f"lower least_kept, which is {least:g}, if this is meant"
    if not offered or not least:
        return ""
    if not taken:
        return f"a full buffer takes no new experience; {remedy}"
    if taken < _FEW:
        return f"{TOO_WEAK}: a full buffer takes only {taken} of {offered} new experiences"
    if kept >= least * taken:
        return ""
    return f"of {taken} new experiences in a full buffer, only {kept} are still stored {lag} steps later; {remedy}"


def _strategy_equal_in_any_population(case: Case) -> str:
    together, alone = Run(case, range(8)), Run(case, (5,))
    for many, one in zip(together.history(_EPISODES), alone.history(_EPISODES), strict=True):
        if wrong := difference(rows(many, [5]), one):
            return wrong
    return ""


def _strategy_saved(case: Case) -> str:
    run, other = Run(case, (3, 4)), Run(case, (3, 4))
    for _ in run.history(_EPISODES * 2 // 3):
        pass
    other.replay.load_state_dict(run.saved())
    other.number = run.number
    rest = _EPISODES - run.number
    for expected, restored in zip(run.history(rest), other.history(rest), strict=True):
        if wrong := difference(expected, restored):
            return wrong
    return difference(run.saved(), other.saved())


STRATEGY: Final[Promises[Case]] = {
    "its notation is read as the same strategy": _written,
    "only stored experiences are drawn, and drawing changes nothing": _stored_only,
    "draws have the probabilities that are returned": _probabilities,
    "a full buffer takes new experiences and keeps them for a while": _kept,
    "a member is the same bit for bit in any population": _strategy_equal_in_any_population,
    "a saved buffer continues with identical draws": _strategy_saved,
}


_NOISE: Final[dict[str, Any]] = {"sensor_noise": 0.02, "actuator_noise": 0.05}
_FLOAT32: Final = 1e-5
"""Relative rounding error of observations, which are stored as float32."""


@contextlib.contextmanager
def _population(plant: Plant, count: int, **settings: Any) -> Iterator[PopulationEnv]:
    with contextlib.closing(PopulationEnv(plant, count, **settings)) as env:
        yield env


def _actions(env: PopulationEnv, steps: int, members: int) -> Floats32:
    size = env.single_action_space.shape or (1,)
    return np.random.Generator(np.random.PCG64(7)).uniform(-1, 1, (steps, members, *size)).astype(np.float32)


def rollout(env: PopulationEnv, actions: Floats32) -> dict[str, np.ndarray]:
    """Apply a sequence of T actions to every member, and return all results of `step` by name, `[M, T, …]`.

    The results are observations, rewards, termination and truncation flags, and infos. Environments are not reset when
    an episode ends. `actions` has shape `[T, M, A]`.
    """
    names = ("observation", "reward", "terminated", "truncated")
    steps: list[dict[str, Any]] = [
        dict(zip(names, results[:4], strict=True)) | results[4] for results in map(env.step, actions)
    ]
    return {name: np.stack([step[name] for step in steps], axis=1) for name in steps[0]}


def _checker(plant: Plant) -> str:
    with warnings.catch_warnings(record=True) as caught, contextlib.closing(SingleEnv(plant, **_NOISE)) as env:
        warnings.simplefilter("always")
        check_env(env, skip_render_check=True)
    # A plant may warn, too, which is no fault.
    own = Path(gymnasium.utils.__file__).parent
    return next((str(warning.message) for warning in caught if Path(warning.filename).is_relative_to(own)), "")


def _plant_equal_in_any_population(plant: Plant) -> str:
    members = [4, 0, 7]
    with _population(plant, 3, members=members, **_NOISE) as env:
        actions = _actions(env, 25, 3)
        env.reset()
        together = rollout(env, actions)
    for row, member in enumerate(members):
        with _population(plant, 1, members=[member], **_NOISE) as one:
            one.reset()
            if wrong := difference(rows(together, [row]), rollout(one, actions[:, [row]])):
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
        return difference(rows(before, [0, 2]), rows(rollout(env, other), [0, 2]))


def _finite(plant: Plant) -> str:
    plant.trial_warning()  # raises an error if many observations are clipped, which the environment below would hide
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
        limits = env.single_observation_space.high
    problems = [
        f"{name} is {far:.3g} times its scale away from its center, beyond its observation_limit of {limit:g}"
        for name, far, limit in zip(plant.state_names, furthest, limits, strict=True)
        if far > limit
    ]
    return f"{', '.join(problems)}; let an end stop hold it, or declare how far each state may get" if problems else ""


def _angles(plant: Plant) -> str:
    """Return a text that names the angles which leave [−π, π) in a rollout, or in a step from just outside."""
    angles = np.flatnonzero(plant.periodic)
    with _population(plant, 3) as env:
        actions = _actions(env, min(100, env.steps_per_episode), 3)
        actions[:, 1] = np.sign(actions[0, 1])
        first, _ = env.reset()
        observed = np.concatenate([first[:, None], rollout(env, actions)["observation"]], axis=1)
    states = [plant.denormalise_state(observed).reshape(-1, len(plant.state_names))]
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
    remedy = "; wrap it in project (wrap_angle), or declare the state not periodic"
    return ", ".join(problems) + remedy * bool(problems)


def _masked_reset(plant: Plant) -> str:
    with _population(plant, 3, **_NOISE) as env, _population(plant, 3, **_NOISE) as other:
        actions = _actions(env, 12, 3)
        for each in (env, other):
            each.reset()
            rollout(each, actions[:4])
        env.reset(options={"reset_mask": np.array([False, True, False])})
        return difference(*(rows(rollout(each, actions[4:]), [0, 2]) for each in (env, other)))


def _plant_saved(plant: Plant) -> str:
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
    sigma, noisy = 0.05, {"sensor_noise": np.array(plant.noisy), "actuator_noise": np.array(True)}
    with _population(plant, 6, sensor_noise=sigma, actuator_noise=sigma, seed=5) as env:
        env.reset()
        drawn: dict[str, list[np.ndarray]] = {"sensor_noise": [], "actuator_noise": []}
        for _ in range(30):
            state = env.get_state()
            running = ~(state["terminated"] | state["truncated"])
            infos = env.step(np.zeros((6, *(env.single_action_space.shape or ())), np.float32))[4]
            for name, columns in drawn.items():
                noise = np.asarray(infos[name])[running].astype(np.float64)
                columns.append(noise[np.broadcast_to(noisy[name], noise.shape)])
    for name, columns in drawn.items():
        draws = np.concatenate(columns)
        low, high = stats.chi2.ppf([_FALSE_ALARM / 2, 1 - _FALSE_ALARM / 2], draws.size)
        if not low < (draws**2).sum() / sigma**2 < high:
            return f"{name} of σ = {sigma} has a spread of {draws.std():.3g}"
    return ""


def _held_action(plant: Plant) -> str:
    if plant.depends_on_rate:
        return ""
    try:
        slow = PopulationEnv(plant, 2, frequency=plant.frequency / 2)
    except UserError:  # the plant has a fixed rate
        return ""
    with contextlib.closing(slow), _population(plant, 2, frequency=plant.frequency) as fast:
        actions = 0.3 * _actions(slow, 4, 2)
        for each in (slow, fast):
            each.reset(seed=1)
        once, twice = rollout(slow, actions), rollout(fast, np.repeat(actions, 2, axis=0))
    running = ~(once["terminated"] | twice["terminated"][:, 1::2])
    with np.errstate(invalid="ignore"):
        differences = once["observation"][running] - twice["observation"][:, 1::2][running]
        worst = float(np.abs(differences).max(initial=0.0))
    if worst <= 2e-3:
        return ""
    return f"observations differ by {worst:.2g}; declare depends_on_rate = True if the plant counts control steps"


PLANT: Final[Promises[Plant]] = {
    "Gymnasium's checker finds nothing": _checker,
    "a member is the same bit for bit in any population": _plant_equal_in_any_population,
    "members do not influence each other": _independent,
    "observations stay inside their space, rewards finite": _finite,
    "periodic states stay in [−π, π)": _angles,
    "a masked reset touches only the masked": _masked_reset,
    "a saved state continues bit for bit": _plant_saved,
    "noise has the stated spread": _noise,
    "a held action leads to the same place at another rate": _held_action,
}
