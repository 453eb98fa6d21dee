"""What the tests of the replay wing share."""

from typing import Any

import numpy as np
from scipy.stats import chi2

from replaybench.data.batch import TraceRule
from replaybench.replay.buffer import Replay, step_fields
from replaybench.replay.storage.slots import STEP, Unit
from replaybench.replay.strategies.notation import parse
from replaybench.replay.strategies.strategy import Strategy

ALARM = 1e-6
"""False-alarm rate of every χ² test, whose seeds are fixed."""
FIELDS = {**step_fields(2, 1), "exploration": 1}


class Model:
    """A plant and a policy that a test can compute by hand, the same for one member as for eight."""

    def possible(self, action: Any) -> Any:
        return action

    def simulate(self, observation: Any, action: Any) -> tuple[Any, Any, Any]:
        successor = observation * np.float64(0.5) + action
        return successor, successor[:, 0] - 1.0, successor[:, 1] > 0.25

    def explore(self, observation: Any) -> tuple[Any, Any, Any]:
        quarter = observation[:, :1] * np.float32(0.25)
        return quarter, np.abs(observation[:, 1]), {"behaviour_mean": quarter}

    def deviation(self, observation: Any, action: Any) -> Any:
        return np.abs(action[:, 0] - observation[:, 0])


class FarRule(TraceRule):
    """A learner's rule with the trace `far`, given with each step; an annotation `far` `[M, B]` renews it."""

    names = ("far",)

    def annotated(self, values: Any, previous: Any, next: Any, idx: Any, annotations: Any) -> None:
        if "far" in annotations:
            for m, b in np.argwhere(idx >= 0):
                values[m, idx[m, b], self.names.index("far")] = annotations["far"][m, b]


def rule_for(strategy: Strategy) -> FarRule | None:
    """Return a rule for strategies that need one."""
    return FarRule() if strategy.retention.traces else None


def make(strategy: str, members: int = 1, capacity: int = 32, batch: int = 8, unit: Unit = STEP) -> Replay:
    parsed = parse(strategy)
    return Replay(parsed, FIELDS, capacity, 0, range(members), batch, unit, traces=rule_for(parsed))


def fill(replay: Replay, count: int, start: int = 0, **given: Any) -> None:
    """Offer experiences whose fields all hold their number, or what is given (broadcast to `[M, width]`)."""
    members = len(replay.offers)
    for number in range(start, start + count):
        experience = {
            name: np.full((members, width), given.get(name, number), np.float32)
            for name, width in replay.columns.fields.items()
        }
        replay.add(experience, np.ones(members, np.bool_))


def chi_square(counts: np.ndarray, expected: np.ndarray, scale: float = 1.0) -> None:
    """Check counts; `scale` makes up for draws that exclude each other."""
    counts, expected = np.ravel(counts), np.ravel(expected)
    assert expected.min() >= 5, "too few draws for χ²"
    assert counts.sum() == round(expected.sum())
    statistic = scale * ((counts - expected) ** 2 / expected).sum()
    assert statistic < chi2.isf(ALARM, len(counts) - 1), (statistic, counts, expected)


def saved(replay: Replay) -> dict[str, np.ndarray]:
    """Return a copy of the state, as a file would hold it."""
    return {name: np.array(array) for name, array in replay.state_dict().items()}


def set_errors(replay: Replay, errors: np.ndarray) -> None:
    """Make `errors` `[M, n]` the |δ| of what is stored."""
    replay.load_state_dict({**saved(replay), "td_error": np.asarray(errors, np.float32)})
