"""What every strategy promises: of a buffer that it keeps and replays from, without a learner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from replaybench.experiments.contracts.promises import Promises, difference
from replaybench.replay.batch import ReplayBatch
from replaybench.replay.buffer import Replay, step_fields
from replaybench.replay.strategies.notation import parse
from replaybench.replay.strategies.strategy import Strategy
from replaybench.replay.strategies.view import Context

_CAPACITY, _BATCH, _STEPS, _EPISODES, _UPDATES = 64, 8, 20, 12, 2
_FIELDS: Final = {**step_fields(2, 1), "exploration": 1}
_FALSE_ALARM: Final = 1e-6
_DRAWS: Final = 600


class _Model:
    """A plant and a policy, for `Synth`."""

    def possible(self, action: Any) -> Any:
        return action

    def simulate(self, observation: Any, action: Any) -> tuple[Any, Any, Any]:
        return observation * 0.5, observation[:, 0] + action[:, 0], observation[:, 0] > 0.9

    def explore(self, observation: Any) -> tuple[Any, Any, Any]:
        return observation[:, :1] * 0.1, np.abs(observation[:, 0]), {}

    def deviation(self, observation: Any, action: Any) -> Any:
        return np.abs(action[:, 0])


class _Rule:
    """A learner's traces, for strategies that go by them: they stay what they were at first."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def _nothing(self, *_: Any, **__: Any) -> None:
        return None

    followed = evicting = stored = annotated = _nothing


class Run:
    """A buffer in use: episodes are collected, and after each there are a few batches with answers."""

    def __init__(self, strategy: Strategy, members: Sequence[int]) -> None:
        capacity = strategy.room(_CAPACITY) if strategy.retention.bounded else _EPISODES * _STEPS
        names = strategy.retention.traces
        rule: Any = _Rule(names) if names else None
        self.replay = Replay(strategy, _FIELDS, capacity, 0, members, _BATCH, model=_Model(), traces=rule)
        self.extra, self.number = dict.fromkeys(names, 1), 0

    def random(self, number: int, *shape: int) -> NDArray[np.float32]:
        """Return numbers of every member that depend on it and on `number` only."""
        seeds = [[member, number] for member in self.replay.members]
        return np.stack([np.random.Generator(np.random.PCG64(seed)).random(shape, np.float32) for seed in seeds])

    def collect(self) -> None:
        """Collect an episode."""
        everyone = np.ones(len(self.replay.members), np.bool_)
        for t in range(_STEPS):
            fields = {**_FIELDS, **self.extra}
            numbers = self.random(1000 * self.number + t, sum(fields.values()))
            parts = np.split(numbers, np.cumsum(list(fields.values()))[:-1], axis=1)
            self.replay.add(dict(zip(fields, parts, strict=True)), everyone, everyone & (t == _STEPS - 1))
        self.number += 1

    def batches(self) -> Iterator[ReplayBatch]:
        """Draw batches, each answered when the next is asked for."""
        for update in range(_UPDATES):
            at = 1000 * self.number + 500 + update
            batch = self.replay.sample(Context(update, _UPDATES, self.number / _EPISODES, self.random(at, 2)))
            yield batch
            self.replay.annotate(batch, {"td_error": self.random(at, _BATCH)})

    def history(self, episodes: int) -> Iterator[dict[str, NDArray[Any]]]:
        """Go on for so many episodes; yield what was drawn in each update, as copies."""
        for _ in range(episodes):
            self.collect()
            for batch in self.batches():
                names = ("idx", "serial", "probability", "weight", "actor_weight", "rate_factor")
                yield {name: np.array(getattr(batch, name)) for name in names}


def _written(strategy: Strategy) -> str:
    again = parse(str(strategy))
    return "" if again == strategy else f"{strategy} is read as {again}"


def _stored_only(strategy: Strategy) -> str:
    run = Run(strategy, (0, 1))
    members = np.arange(2)[:, None]
    for _ in range(_EPISODES):
        run.collect()
        rows = run.replay.columns.rows.copy()
        for batch in run.batches():
            if (batch.idx < 0).any() or (batch.idx >= run.replay.count[:, None]).any():
                return f"slots {batch.idx.min()} to {batch.idx.max()} were drawn, {run.replay.count.min()} are stored"
            if not np.array_equal(batch.serial, run.replay.columns.serial[members, batch.idx]):
                return "a batch does not hold what its slots hold"
            if not np.isfinite(batch.weight).all():
                return "a weight is not finite"
            if not np.array_equal(rows, run.replay.columns.rows) and strategy.synth is None:
                return "what is stored was changed by drawing it"
    return ""


def _probabilities(strategy: Strategy) -> str:
    """Compare counts with the chances that are told, where they are the same from batch to batch."""
    run = Run(strategy, (0,))
    for _ in run.history(_EPISODES // 2):
        pass
    stored = int(run.replay.count[0])
    counts, chances = np.zeros(stored), np.full(stored, np.nan)
    for _ in range(_DRAWS):
        batch = run.replay.sample(Context(0, _UPDATES, 0.5, np.full((1, 2), 0.5, np.float32)))
        told, idx = batch.probability[0], batch.idx[0]
        if np.isnan(told).any():
            return ""
        if (told <= 0).any() or (told > 1 + 1e-9).any():
            return f"a chance of {told.min():g} to {told.max():g} is told"
        changed = ~np.isnan(chances[idx]) & ~np.isclose(chances[idx], told, rtol=1e-6)
        if changed.any():
            return (
                ""
                if "phase" in strategy.sampling.feedback
                else "chances change from batch to batch, and nothing else did"
            )
        np.add.at(counts, idx, 1)
        chances[idx] = told
    seen = ~np.isnan(chances)
    if (total := chances[seen].sum()) > 1 + 1e-6:
        return f"the chances of {seen.sum()} experiences sum to {total:.4g}"
    expected = np.append(chances[seen], max(0.0, 1 - total)) * _DRAWS * _BATCH
    found, frequent = np.append(counts[seen], 0.0), expected >= 5
    if not frequent.all():  # those that are rare are counted together
        found, expected = (np.append(each[frequent], each[~frequent].sum()) for each in (found, expected))
    there = expected > 1e-6
    statistic = float(((found - expected)[there] ** 2 / expected[there]).sum())
    limit = float(stats.chi2.isf(_FALSE_ALARM, max(1, there.sum() - 1)))
    return (
        f"counts do not fit the chances that are told (χ² = {statistic:.0f} > {limit:.0f})" if statistic > limit else ""
    )


def _alike_in_any_population(strategy: Strategy) -> str:
    together, alone = Run(strategy, range(8)), Run(strategy, (5,))
    for many, one in zip(together.history(_EPISODES), alone.history(_EPISODES), strict=True):
        if wrong := difference({name: array[[5]] for name, array in many.items()}, one):
            return wrong
    return ""


def _saved(strategy: Strategy) -> str:
    run, other = Run(strategy, (3, 4)), Run(strategy, (3, 4))
    for _ in run.history(_EPISODES // 2):
        pass
    state = {name: np.array(array) for name, array in run.replay.state_dict().items()}
    other.replay.load_state_dict(state)
    other.number = run.number
    rest = _EPISODES - run.number
    for mine, theirs in zip(run.history(rest), other.history(rest), strict=True):
        if wrong := difference(mine, theirs):
            return wrong
    states = ({name: np.array(array) for name, array in each.replay.state_dict().items()} for each in (run, other))
    return difference(*states)


STRATEGY: Final[Promises[Strategy]] = {
    "what is written is read as the same": _written,
    "only what is stored is drawn, and nothing is changed by that": _stored_only,
    "draws have the chances that are told": _probabilities,
    "a member is the same bit for bit in any population": _alike_in_any_population,
    "a saved buffer continues with identical draws": _saved,
}
