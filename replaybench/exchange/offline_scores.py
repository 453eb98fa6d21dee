"""Scores of offline learners, compared with the recording, and a check for extrapolated values.

No experience corrects the values of actions that the recording lacks. If a learner maximises over such actions, its
values grow by bootstrapping (Fujimoto et al., 2019, "Off-policy deep reinforcement learning without exploration"). The
check finds values that the recorded rewards cannot give. Values within these bounds can be wrong, too.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from replaybench.baselines.references import Reference, no_score, normalise
from replaybench.controllers.learner import Learner
from replaybench.controllers.registry import algorithm_of
from replaybench.data.record import read_record, write_record
from replaybench.experiments.comparison import LABELS, NONE_BEATS_RANDOM, beats_random
from replaybench.experiments.recorded_buffer import Recording, parts
from replaybench.experiments.statistics import interval
from replaybench.replay.storage.schema import open_buffer
from replaybench.runtime.arrays import Floats, Floats32, Integers
from replaybench.runtime.configuration import build
from replaybench.runtime.errors import UserError
from replaybench.runtime.quantities import decimals

KIND: Final = "offline scores"


@dataclass(frozen=True)
class OfflineScores:
    """Scores of an offline replay with K evaluations, and the rewards to compare them with.

    Attributes:
        about: Metadata of the file `scores.h5`: learner, strategy, buffer, plant and more.
        updates: Number of updates before each evaluation, `[K]`.
        reward: Score of the greedy episode of each learner in each evaluation, `[learners, K]`.
        recorded: Mean episode score of each recorded run; empty if it is not known.
        online: Rewards of the runs that filled the buffer, by a label. It is empty if the rewards are unknown or not
            comparable.
    """

    about: Mapping[str, Any]
    updates: Integers
    reward: Floats
    recorded: Floats
    online: Mapping[str, Sequence[float]]
    reference: Reference

    @property
    def label(self) -> str:
        """Learner and strategy as text, for titles and legends."""
        return f"{self.about['learner']}, {self.about['strategy']}"

    def levels(self) -> dict[str, Floats]:
        """Return the known rewards of the recorded data and of the runs that filled the buffer, one array per label."""
        recorded = {f"the recording itself: {Path(str(self.about['buffer'])).name}": self.recorded}
        found = {name: np.array(values, np.float64) for name, values in self.online.items()} | recorded
        return {name: values for name, values in found.items() if np.isfinite(values).any()}

    def rows(self) -> list[tuple[str, str, str]]:
        """Return the rows of a table that compares the final score with the recorded data and reference controllers.

        Each row has a label, the reward, and the score μ_r (0: random control, 1: dynamic programming). Reward and μ_r
        are strings, with a mean over runs and its 95 % interval, or a dash if there is no value.
        """
        found = {f"offline: {self.label}, {self.updates[-1]} updates": self.reward[:, -1], **self.levels()}
        known = {LABELS[name]: getattr(self.reference, name.removeprefix("reference_")) for name in LABELS}
        best = self.reference.dp
        known = {name: value for name, value in known.items() if not (name.startswith("DP") and value == best)}
        levels = {name: value for name, value in known.items() if np.isfinite(value)}
        digits = decimals([*levels.values(), *(value for values in found.values() for value in values)])
        runs = {**found, **{name: np.array([value]) for name, value in levels.items()}}
        return [
            (name, _text(values, digits), _text(normalise(values, self.reference), 2)) for name, values in runs.items()
        ]

    def headlines(self) -> list[str]:
        """Return sentences that warn if the learners score no higher than random control or than the recorded data."""
        sentences, final = [], self.reward[:, -1]
        if not beats_random(final, self.reference.random):
            sentences.append(NONE_BEATS_RANDOM)
        if self.recorded.size and np.isfinite(self.recorded).all() and not beats_random(final, self.recorded.mean()):
            sentences.append("The learners end below the recording itself")
        return sentences

    def no_score(self) -> str:
        """Return why the score μ_r (0: random control, 1: dynamic programming) is undefined, or "" if it is defined."""
        return no_score(self.reference.dp, self.reference.random)

    def write(self, path: Path) -> None:
        """Write the scores to a file `scores.h5`."""
        about = {**self.about, "online": dict(self.online), "reference": dataclasses.asdict(self.reference)}
        arrays = {"updates": self.updates, "reward_greedy": self.reward, "reward_recorded": self.recorded}
        write_record(path, KIND, about, arrays)


def _text(values: Floats, digits: int) -> str:
    text = interval(values).text(digits)
    return text.removesuffix(" (no spread)") if values.size == 1 else text


@dataclass(frozen=True, kw_only=True)
class _Facts:
    learner: str
    strategy: str
    buffer: str
    plant: str
    online: dict[str, tuple[float, ...]]
    reference: Reference


def read_scores(path: Path) -> OfflineScores:
    """Read the file `scores.h5` of an offline replay."""
    header, arrays = read_record(path, KIND)
    needed = [field.name for field in dataclasses.fields(_Facts)]
    if not {*needed} <= header.facts.keys() or not {"updates", "reward_greedy", "reward_recorded"} <= arrays.keys():
        raise UserError(f"{path} does not hold all arrays of an offline replay; run replaybench replay again")
    facts = build(_Facts, {name: header.facts[name] for name in needed}, str(path))
    updates, reward, recorded = (arrays[name] for name in ("updates", "reward_greedy", "reward_recorded"))
    if (updates.ndim, reward.ndim, recorded.ndim) != (1, 2, 1) or not 0 < reward.shape[1] == len(updates):
        raise UserError(f"{path} is damaged: its scores do not belong together; replay again")
    about = {name: value for name, value in header.facts.items() if name not in ("online", "reference")}
    rewards = reward.astype(np.float64), recorded.astype(np.float64)
    return OfflineScores(about, updates.astype(np.int64), *rewards, facts.online, facts.reference)


_STATES: Final = 1000
"""Number of recorded states of each learner whose values are checked."""
_FIELDS: Final = ("observation", "reward", "terminated")
_UNLEARNED: Final = 0.9
"""Remaining share of the initial values above which learners are not checked; see `unlearned`."""
_SETTLED: Final = 0.05
"""Remaining share of the initial values below which the initial values are ignored."""
_SHARE: Final = 0.05
"""Fraction of states whose values may be outside the bounds, and margin of the bounds relative to their distance."""


class Extrapolation(NamedTuple):
    """Values that learners predict for recorded states, but that the recorded rewards cannot give.

    Values are discounted returns of unscaled rewards.

    Attributes:
        learners: Number of learners with such values.
        of: Number of all learners.
        value: The value that is farthest outside the bounds.
        low, high: Bounds of the return for the recorded run to which `value` belongs.
    """

    learners: int
    of: int
    value: float
    low: float
    high: float

    def words(self, learner: str, choices: bool = False) -> str:
        """Return a warning that critics predict returns beyond the recorded ones, and a remedy.

        The remedy is for discrete actions if `choices` is True, and otherwise for continuous actions.
        """
        remedy = "a smaller --set alpha=… keeps it nearer to the recording"
        if choices:
            remedy = "a recording that tries each choice in more states corrects them"
        elif algorithm_of(learner) != "TD3+BC":
            remedy = "--learner TD3+BC stays near what was recorded"
        return (
            f"{self.learners} of {self.of} learners extrapolate: one predicts a discounted return of "
            f"{self.value:.4g}, and its recorded rewards give {self.low:.4g} to {self.high:.4g}; {remedy}"
        )


def return_bounds(reward: Floats, terminates: bool, discount: float) -> tuple[float, float]:
    """Return the smallest and largest discounted return Σ γᵗ r_t, γ < 1, that recorded rewards permit.

    `terminates` is whether episodes may terminate. Otherwise, episodes are taken as infinitely long.
    """
    least, greatest, whole = float(reward.min()), float(reward.max()), 1.0 / (1.0 - discount)
    lengths = (1.0, whole) if terminates else (whole, whole)
    return min(least * length for length in lengths), max(greatest * length for length in lengths)


def unlearned(agent: Learner, updates: int) -> float:
    """Return the fraction of the value estimates of untrained networks that may remain after a number of updates.

    The target networks adapt most slowly. With the target rate τ of the learner's schedule and a discount factor γ,
    each update multiplies the fraction by 1 − τ (1 − γ). If τ is unknown, the result is 1.
    """
    rate = agent.schedule.target_rate or 0.0
    return float((1.0 - rate * (1.0 - agent.task.discount)) ** updates)


def extrapolation(recording: Recording, agent: Learner, learners: int, updates: int) -> Extrapolation | None:
    """Check whether the values that learners predict for recorded states are possible, and describe impossible ones.

    A value is possible if it is a discounted return that recorded rewards permit. Values of untrained networks are near
    0, which may be impossible. Values are therefore checked only after enough `updates`, and values near 0 are accepted
    until the initial values have decayed. The result is None if all values are possible, or if they cannot be checked.
    """
    discount, scale = agent.task.discount, agent.task.reward_scale
    if discount >= 1.0 or scale <= 0.0 or agent.schedule.window > 1:  # values depend on earlier states
        return None
    if (left := unlearned(agent, updates)) > _UNLEARNED:
        return None
    seen = _recorded(recording) if recording.arrays else _streamed(recording)
    bounds = [return_bounds(reward, ends, discount) for _, reward, ends in seen]
    shortest = min(len(observation) for observation, _, _ in seen)
    sources = [m % len(seen) for m in range(learners)]
    values = agent.value(np.array([seen[i][0][:shortest] for i in sources])).astype(np.float64) / scale
    low, high = (np.array([bounds[i][side] for i in sources]) for side in (0, 1))
    high = high + agent.value_bonus() / (scale * (1.0 - discount))
    least, most = low, high
    slack = _SHARE * (high - low)
    if left > _SETTLED:
        low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    beyond = np.maximum(values - (high + slack)[:, None], (low - slack)[:, None] - values)
    extrapolates = (beyond > 0.0).mean(axis=1) > _SHARE
    if not extrapolates.any():
        return None
    farthest = np.unravel_index(np.argmax(np.where(extrapolates[:, None], beyond, -np.inf)), beyond.shape)
    learner = farthest[0]
    count = int(extrapolates.sum())
    return Extrapolation(count, learners, float(values[farthest]), float(least[learner]), float(most[learner]))


def _recorded(recording: Recording) -> list[tuple[Floats32, Floats, bool]]:
    """Return some states `[n, S]`, all rewards, and whether an episode terminated, for each recorded run."""
    found = []
    for member, order in zip(recording.members, recording.orders, strict=True):
        observation, reward, terminated = (recording.arrays[name][member] for name in _FIELDS)
        some = order[np.linspace(0, len(order) - 1, min(_STATES, len(order))).astype(np.int64)]
        found.append((observation[some], reward[order], bool(terminated[order].any())))
    return found


def _streamed(recording: Recording) -> list[tuple[Floats32, Floats, bool]]:
    found = []
    with open_buffer(recording.path) as file:
        for member in recording.members:
            pieces = list(parts(int(file.count[member])))
            rewards = [file.record.read("reward", member, rows) for rows in pieces]
            ends = np.array([[part.min(), part.max()] for part in rewards])
            terminated = any(file.record.read("terminated", member, rows).any() for rows in pieces)
            observation = file.record.read("observation", member, pieces[0])
            found.append((observation[:: max(1, len(observation) // _STATES)], ends, terminated))
    return found
