"""Golden runs of strategies: each registered retention, sampling, weighting and modifier, without a learner.

Two members collect short episodes into a small buffer, replay them and answer with made-up TD errors. What is measured
is which experiences each update drew, what the strategy said of them, and what is left in the end. Serial numbers are
whole numbers, so that one other draw shows.
"""

from typing import Any

import numpy as np

from replaybench.data.batch import TraceRule
from replaybench.evidence.contracts import _FIXED, _Model
from replaybench.replay.buffer import Replay, step_fields
from replaybench.replay.storage.slots import STEP, Unit, episode, segment
from replaybench.replay.strategies.interface import Context
from replaybench.replay.strategies.notation import ENTRIES, RETENTIONS, SAMPLINGS, WEIGHTINGS, parse
from replaybench.runtime.errors import UserError
from tests.golden.golden_store import Measured

MEMBERS, CAPACITY, BATCH, STEPS, EPISODES, UPDATES = 2, 64, 8, 20, 12, 4
FIELDS = {**step_fields(2, 1), "exploration": 1}
UNITS = {"": STEP, " segments": segment(7), " episodes": episode(STEPS)}
NEEDED = {"Drop": "(0.3)", "Synth": "(state=0.2, action=0.3, refresh=0.5)", "Mix": "(a.h5)"}
"""Entries that say nothing without numbers."""
FURTHER = ("TDE(segments=none)[Uniform]", "FIFO[PER+IS(normalise=true, all_networks=true)]", "FIFO[ERE(c_min=16)]")


def combinations() -> list[str]:
    """Return strategies in which every registered part occurs, most beside the plainest other parts."""
    found = [f"{retention}[{sampling}]" for retention in RETENTIONS for sampling in ("Uniform", "PER")]
    samplings = [*SAMPLINGS]
    found += [f"{retention}[{sampling}]" for retention in ("FIFO", "TDE") for sampling in samplings]
    for sampling in samplings:
        for weighting in WEIGHTINGS:
            try:
                parse(strategy := f"FIFO[{sampling}+{weighting}]")
            except UserError:  # a pair that makes no sense
                continue
            found.append(strategy)
    entries = [f"{name}{NEEDED.get(name, '')}" for name in ENTRIES]
    return [*found, *(f"{entry}*{rest}" for entry in entries for rest in ("FIFO[Uniform]", "TDE[PER]")), *FURTHER]


CASES: dict[str, tuple[str, Unit]] = {strategy: (strategy, STEP) for strategy in combinations()}
"""Strategy and unit, by case."""
CASES |= {f"FIFO[{sampling}]{unit}": (f"FIFO[{sampling}]", UNITS[unit]) for sampling in SAMPLINGS for unit in UNITS}


class Rule(TraceRule):
    """A learner's traces for retentions that go by them: `far` is whether a step's TD error was positive."""

    names = ("far",)

    def annotated(self, values: Any, previous: Any, next: Any, idx: Any, annotations: Any) -> None:
        for m in range(MEMBERS):
            live = idx[m] >= 0
            values[m, idx[m, live], 0] = annotations["td_error"][m, live] > 0


def measure(case: str) -> Measured:
    """Run a case."""
    text, unit = CASES[case]
    strategy = parse(text).at(50.0)
    capacity = CAPACITY if strategy.retention.bounded else EPISODES * -(-STEPS // unit.steps) * unit.steps
    rule = Rule() if strategy.retention.traces else None
    replay = Replay(strategy, FIELDS, capacity, 0, range(MEMBERS), BATCH, unit, _Model(), rule, fixed=_FIXED)
    rng = np.random.Generator(np.random.PCG64(0))
    told: dict[str, list[Any]] = {name: [] for name in ("serial", "probability", "weight", "actor weight", "rate")}
    for number in range(EPISODES):
        for t in range(STEPS):
            step: dict[str, np.ndarray] = {name: rng.random((MEMBERS, n), np.float32) for name, n in FIELDS.items()}
            if rule:
                step["far"] = step["reward"] > 0.7
            replay.add(step, np.ones(MEMBERS, np.bool_), np.full(MEMBERS, t == STEPS - 1))
        for update in range(UPDATES):
            attended = rng.random((MEMBERS, 2), np.float32)
            batch = replay.sample(Context(update, UPDATES, number / EPISODES, attended))
            place = np.arange(1, BATCH + 1)  # another order is another number
            told["serial"].append((batch.serial * place).sum())
            told["probability"].append(np.nansum(batch.probability * place))
            told["weight"].append((batch.weight * place).sum(dtype=np.float64))
            told["actor weight"].append((batch.actor_weight * place).sum(dtype=np.float64))
            told["rate"].append(batch.rate_factor.sum())
            replay.annotate(batch, {"td_error": rng.normal(size=batch.idx.shape).astype(np.float32)})
    kept = [np.sort(serial[:count]) for serial, count in zip(replay.columns.serial, replay.count, strict=True)]
    return {**told, "kept": [(serial * np.arange(len(serial))).sum(dtype=np.float64) for serial in kept]}
