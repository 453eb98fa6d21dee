"""What every strategy must do with a buffer that it fills and samples, without a learner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from replaybench.experiments.contracts.promises import Promises, difference
from replaybench.replay.batch import ReplayBatch
from replaybench.replay.buffer import Replay, step_fields
from replaybench.replay.storage.units import STEP, Unit
from replaybench.replay.strategies.notation import parse
from replaybench.replay.strategies.strategy import Strategy
from replaybench.replay.strategies.view import Context

_CAPACITY, _BATCH, _STEPS, _EPISODES, _UPDATES = 64, 8, 20, 12, 2
_FIELDS: Final = {**step_fields(2, 1), "exploration": 1, "label": 1}
"""`label` is the serial number of a step; synthetic steps have none."""
_FALSE_ALARM: Final = 1e-6
_DRAWS: Final = 600
_DRAWN: Final = ("idx", "serial", "probability", "weight", "actor_weight", "rate_factor")


class Case(NamedTuple):
    """A strategy, and the unit that it stores and samples."""

    strategy: Strategy
    unit: Unit = STEP


class Model:
    """A plant and a policy, for `Synth`."""

    def possible(self, action: Any) -> Any:
        """Return actions as the plant takes them."""
        return action

    def simulate(self, observation: Any, action: Any) -> tuple[Any, Any, Any]:
        """Return next observations, rewards and ends."""
        return observation * 0.5, observation[:, 0] + action[:, 0], observation[:, 0] > 0.9

    def explore(self, observation: Any) -> tuple[Any, Any, Any]:
        """Return exploring actions, their deviations and nothing else to store."""
        return observation[:, :1] * 0.1, np.abs(observation[:, 0]), {}

    def deviation(self, observation: Any, action: Any) -> Any:
        """Return how far actions are from the policy's."""
        return np.abs(action[:, 0])


class _Rule:
    """A learner's traces: 0 or 1, set anew by each annotation."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def followed(self, *_: Any) -> None:
        return None

    evicting = stored = followed

    def annotated(self, values: Any, previous: Any, next: Any, idx: Any, annotations: Any) -> None:
        member, place = np.nonzero(idx >= 0)
        values[member, idx[member, place]] = (annotations["td_error"][member, place] > 0.5)[:, None]


class Run:
    """A buffer in use: episodes are collected, and after each a few batches are sampled and annotated."""

    def __init__(self, case: Case, members: Sequence[int]) -> None:
        strategy, unit = case
        capacity = strategy.room(_CAPACITY)
        if not strategy.retention.bounded:  # as many units as there can be, each of the full length
            capacity = _EPISODES * -(-_STEPS // unit.steps) * unit.steps
        traces = strategy.retention.traces
        rule: Any = _Rule(traces) if traces else None
        self.replay = Replay(strategy, _FIELDS, capacity, 0, members, _BATCH, unit, Model(), rule)
        self.traces, self.number = traces, 0

    def random(self, number: int, *shape: int) -> NDArray[np.float32]:
        """Return numbers of every member that depend on the member and on `number` only."""
        seeds = [[member, number] for member in self.replay.members]
        return np.stack([np.random.Generator(np.random.PCG64(seed)).random(shape, np.float32) for seed in seeds])

    def collect(self) -> None:
        """Collect an episode of each member, of slightly different lengths."""
        last = _STEPS - 1 - (self.number + np.array(self.replay.members)) % 3
        widths = {**_FIELDS, **dict.fromkeys(self.traces, 1)}
        for t in range(_STEPS):
            numbers = self.random(1000 * self.number + t, sum(widths.values()))
            parts = np.split(numbers, np.cumsum([*widths.values()])[:-1], axis=1)
            step: dict[str, Any] = dict(zip(widths, parts, strict=True))
            step["label"] = self.replay.collected[:, None] + 1
            step |= {name: np.round(step[name]) for name in self.traces}
            self.replay.add(step, np.less_equal(t, last), np.equal(t, last))
        self.number += 1

    def sample(self, update: int = 0) -> ReplayBatch:
        """Sample the batch of an update of the present phase."""
        state = self.random(1000 * self.number + 500 + update, 2)
        return self.replay.sample(Context(update, _UPDATES, self.number / _EPISODES, state))

    def batches(self) -> Iterator[ReplayBatch]:
        """Sample the batches of a phase, each annotated when the next is asked for."""
        for update in range(_UPDATES):
            at = 1000 * self.number + 500 + update
            yield (batch := self.sample(update))
            self.replay.annotate(batch, {"td_error": self.random(at, _BATCH)})

    def history(self, episodes: int) -> Iterator[dict[str, NDArray[Any]]]:
        """Go on for so many episodes; yield what each update sampled, as copies."""
        for _ in range(episodes):
            self.collect()
            for batch in self.batches():
                yield {name: np.array(getattr(batch, name)) for name in _DRAWN} | {
                    name: np.array(column) for name, column in batch.columns.items()
                }

    def saved(self) -> dict[str, NDArray[Any]]:
        """Return the buffer's state, as copies."""
        return {name: np.array(array) for name, array in self.replay.state_dict().items()}


def _written(case: Case) -> str:
    again = parse(str(case.strategy))
    return "" if again == case.strategy else f"{case.strategy} is read as {again}"


def _stored_only(case: Case) -> str:
    run = Run(case, (0, 1))
    for _ in range(_EPISODES):
        run.collect()
        rows = run.replay.columns.rows.copy()
        for batch in run.batches():
            if wrong := _not_stored(run.replay, batch):
                return wrong
            if not np.array_equal(rows, run.replay.columns.rows) and case.strategy.synth is None:
                return "drawing changed stored experiences"
    return ""


def _not_stored(replay: Replay, batch: ReplayBatch) -> str:
    """Return how a batch differs from its slots, or from what was collected under its serial numbers."""
    if (batch.idx < 0).any() or (batch.idx >= replay.count[:, None]).any():
        return f"slots {batch.idx.min()} to {batch.idx.max()} were drawn, {replay.count.min()} are stored"
    if not np.array_equal(batch.serial, replay.columns.serial[np.arange(len(batch.idx))[:, None], batch.idx]):
        return "a batch does not hold what its slots hold"
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
        return "a sample holds other steps than its serial number says"
    if not np.isfinite(batch.weight).all() or (batch.weight < 0).any():
        return "a weight is not finite, or negative"
    if (batch.rate_factor < 1).any():
        return "a factor of the learning rate is below 1"
    known = batch.probability[~np.isnan(batch.probability)]
    return "a probability is not above 0 and at most 1" if ((known <= 0) | (known > 1 + 1e-9)).any() else ""


def _probabilities(case: Case) -> str:
    """Compare counts with the probabilities of a batch, where these stay the same from batch to batch."""
    run = Run(case, (0,))
    for _ in run.history(_EPISODES // 2):
        pass
    stored = int(run.replay.count[0])
    counts, chances = np.zeros(stored), np.full(stored, np.nan)
    for _ in range(_DRAWS):
        batch = run.replay.sample(Context(0, _UPDATES, 0.5, np.full((1, 2), 0.5, np.float32)))
        chance, idx = batch.probability[0], batch.idx[0]
        if np.isnan(chance).any():
            return ""
        if (chance <= 0).any() or (chance > 1 + 1e-9).any():
            return f"a probability of {chance.min():g} to {chance.max():g} is returned"
        if (~np.isnan(chances[idx]) & ~np.isclose(chances[idx], chance, rtol=1e-6)).any():
            by_phase = "phase" in case.strategy.sampling.feedback
            return "" if by_phase else "probabilities change from batch to batch, and nothing else did"
        np.add.at(counts, idx, 1)
        chances[idx] = chance
    seen = ~np.isnan(chances)
    if (total := chances[seen].sum()) > 1 + 1e-6:
        return f"the probabilities of {seen.sum()} experiences sum to {total:.4g}"
    expected = np.append(chances[seen], max(0.0, 1 - total)) * _DRAWS * _BATCH
    found, frequent = np.append(counts[seen], 0.0), expected >= 5
    if not frequent.all():  # those that are rare are counted together
        found, expected = (np.append(each[frequent], each[~frequent].sum()) for each in (found, expected))
    there = expected > 1e-6
    statistic = float(((found - expected)[there] ** 2 / expected[there]).sum())
    limit = float(stats.chi2.isf(_FALSE_ALARM, max(1, there.sum() - 1)))
    return f"counts do not fit the probabilities (χ² = {statistic:.0f} > {limit:.0f})" if statistic > limit else ""


def _alike_in_any_population(case: Case) -> str:
    together, alone = Run(case, range(8)), Run(case, (5,))
    for many, one in zip(together.history(_EPISODES), alone.history(_EPISODES), strict=True):
        if wrong := difference({name: array[[5]] for name, array in many.items()}, one):
            return wrong
    return ""


def _saved(case: Case) -> str:
    run, other = Run(case, (3, 4)), Run(case, (3, 4))
    for _ in run.history(_EPISODES * 2 // 3):
        pass
    other.replay.load_state_dict(run.saved())
    other.number = run.number
    rest = _EPISODES - run.number
    for mine, theirs in zip(run.history(rest), other.history(rest), strict=True):
        if wrong := difference(mine, theirs):
            return wrong
    return difference(run.saved(), other.saved())


STRATEGY: Final[Promises[Case]] = {
    "its notation is read as the same strategy": _written,
    "only stored experiences are drawn, and drawing changes nothing": _stored_only,
    "draws have the probabilities that are returned": _probabilities,
    "a member is the same bit for bit in any population": _alike_in_any_population,
    "a saved buffer continues with identical draws": _saved,
}
