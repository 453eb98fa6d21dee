"""Scores of offline learners, of the recording itself and of controllers that learn nothing: `scores.h5`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.baselines.references import Reference, no_score, normalise
from replaybench.data.configuration import build
from replaybench.data.errors import UserError
from replaybench.data.quantities import decimals
from replaybench.data.records.record import read_record, write_record
from replaybench.experiments.results.references import LABELS, NONE_BEATS_RANDOM, beats_random
from replaybench.experiments.results.statistics import interval

Floats = NDArray[np.float64]

KIND: Final = "offline scores"


@dataclass(frozen=True)
class OfflineScores:
    """Scores of an offline replay.

    Attributes:
        about: settings, as plain values.
        updates: updates done at each evaluation `[K]`.
        reward: score of a greedy episode of each learner, `[learners, K]`.
        recorded: mean score of each recording; empty where not known.
        online: rewards of the runs that filled the buffer, by name; empty where not known or not comparable.
        reference: scores of the reference controllers.
    """

    about: Mapping[str, Any]
    updates: NDArray[np.int64]
    reward: Floats
    recorded: Floats
    online: Mapping[str, Sequence[float]]
    reference: Reference

    @property
    def label(self) -> str:
        """Learner and strategy."""
        return f"{self.about['learner']}, {self.about['strategy']}"

    def levels(self) -> dict[str, Floats]:
        """Return the rewards to compare with, each `[runs]`, by name."""
        recorded = {f"the recording itself: {Path(str(self.about['buffer'])).name}": self.recorded}
        found = {name: np.array(values, np.float64) for name, values in self.online.items()} | recorded
        return {name: values for name, values in found.items() if np.isfinite(values).any()}

    def rows(self) -> list[tuple[str, str, str]]:
        """Return rows of name, reward, and μ_r (a dash where there is none): means over runs with 95 % intervals."""
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
        """Return whether learners are worse than random control, or than the recording, in sentences."""
        said, final = [], self.reward[:, -1]
        if not beats_random(final, self.reference.random):
            said.append(NONE_BEATS_RANDOM)
        if self.recorded.size and np.isfinite(self.recorded).all() and not beats_random(final, self.recorded.mean()):
            said.append("The learners end below the recording itself")
        return said

    def no_score(self) -> str:
        """Return why there is no μ_r; empty where there is."""
        return no_score(self.reference.dp, self.reference.random)

    def write(self, path: Path) -> None:
        """Write `scores.h5`."""
        about = {**self.about, "online": dict(self.online), "reference": dataclasses.asdict(self.reference)}
        arrays = {"updates": self.updates, "reward_greedy": self.reward, "reward_recorded": self.recorded}
        write_record(path, KIND, about, arrays)


def _text(values: Floats, digits: int) -> str:
    """Return the mean of runs and its interval as text, of one run its value."""
    text = interval(values).text(digits)
    return text.removesuffix(" (no spread)") if values.size == 1 else text


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """Facts that a file of scores must have."""

    learner: str
    strategy: str
    buffer: str
    plant: str
    online: dict[str, tuple[float, ...]]
    reference: Reference


def read_scores(path: Path) -> OfflineScores:
    """Read `scores.h5` of an offline replay.

    Raises:
        UserError: it is damaged, holds something else, or an older version wrote it.
    """
    header, arrays = read_record(path, KIND)
    needed = [field.name for field in dataclasses.fields(_Facts)]
    if not {*needed} <= header.facts.keys() or "reward_recorded" not in arrays:
        raise UserError(f"{path}, of an older version, does not hold what its scores are compared with; replay again")
    facts = build(_Facts, {name: header.facts[name] for name in needed}, str(path))
    updates, reward, recorded = (arrays[name] for name in ("updates", "reward_greedy", "reward_recorded"))
    if (updates.ndim, reward.ndim, recorded.ndim) != (1, 2, 1) or not 0 < reward.shape[1] == len(updates):
        raise UserError(f"{path} is damaged: its scores do not belong together; replay again")
    about = {name: value for name, value in header.facts.items() if name not in ("online", "reference")}
    rewards = reward.astype(np.float64), recorded.astype(np.float64)
    return OfflineScores(about, updates.astype(np.int64), *rewards, facts.online, facts.reference)
