"""What a recording says of learning: how good its episodes were, whether they got better, and how exploration faded."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from replaybench.experiments.advice.ninety_percent import LEAST_EPISODES, Capacity, ninety_percent, surely_improves
from replaybench.experiments.advice.traits import decay_of
from replaybench.experiments.offline.recording import Recording

Floats = NDArray[np.float64]

_START: Final = 20
"""The first of so many parts of a recording is where learning began."""
_ENDS: Final = 10
"""The first and the last of so many parts of it say how far exploration decayed."""


def capacity_of(rewards: Floats, steps: NDArray[np.int64]) -> Capacity | None:
    """Apply the 90 % rule to episodes `[recordings, E]` of which the first twentieth is where learning began.

    Returns:
        None of fewer than 20 episodes, or where they do not surely improve.
    """
    episodes = rewards.shape[1]
    if episodes < LEAST_EPISODES or not surely_improves(rewards):
        return None
    return ninety_percent(rewards, steps.astype(np.float64), float(rewards[:, : episodes // _START].mean()))


def decay(recording: Recording) -> float | None:
    """Return how much weaker exploration was at the end: as its learner's settings say, or as it is stored."""
    arrays = recording.arrays
    if recording.facts.cell is not None and "episode" in arrays:
        return decay_of(recording.facts.cell.settings, int(arrays["episode"].max()) + 1)
    if "exploration" not in arrays:
        return None
    turns = zip(recording.members, recording.orders, strict=True)
    parts = [_ends(arrays["exploration"][m, order, 0].astype(np.float64)) for m, order in turns]
    first, last = np.mean(parts, axis=0).tolist()
    return 1.0 if first == last else float("inf") if last == 0 else first / last


def _ends(values: Floats) -> tuple[float, float]:
    """Return the means of the first and of the last tenth of a recording."""
    tenth = max(1, len(values) // _ENDS)
    return float(values[:tenth].mean()), float(values[-tenth:].mean())
