"""Whether offline learners believe what no recorded experience can teach: returns out of reach of recorded rewards.

A learner that maximises over actions of which nothing is recorded is never corrected there, and its values grow by
bootstrapping from themselves (Fujimoto et al. 2019, "Off-policy deep reinforcement learning without exploration").
Not every such learner is caught here: values within the bounds can be wrong, too.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.learner import Learner
from replaybench.controllers.registry import algorithm_of
from replaybench.experiments.offline.recording import Recording
from replaybench.replay.files.buffer_schema import open_buffer

Floats = NDArray[np.float64]

_STATES: Final = 1000
"""Recorded states of each learner whose values are looked at."""
_FIELDS: Final = ("observation", "reward", "terminated")
_PART_ROWS: Final = 1 << 16
_SLOW: Final = 0.005
"""How fast the copies follow of learners that do not say it."""
_UNLEARNED: Final = 0.9
"""Learners that may have more than this part of their values from where they began have not learned yet."""
_SETTLED: Final = 0.05
"""Those that may have less than this of it have left it behind."""
_SHARE: Final = 0.05
"""Of these states so many may have values that are beyond the bounds by this part of their distance."""


class Extrapolation(NamedTuple):
    """What learners believe of recorded states, in discounted returns of unscaled rewards.

    Attributes:
        learners: how many believe the impossible of some states.
        of: how many there are.
        value: the value farthest out, of those that are beyond the bounds.
        low, high: what discounted returns of the rewards are between that its learner's recording holds.
    """

    learners: int
    of: int
    value: float
    low: float
    high: float

    def words(self, learner: str, choices: bool = False) -> str:
        """Say it in a line, with what may help.

        Args:
            learner: name of what learned.
            choices: whether the plant takes choices, which TD3+BC cannot make.
        """
        remedy = "a smaller --set alpha=… keeps it nearer to the recording"
        if choices:
            remedy = "a recording that tries each choice in more states corrects them"
        elif algorithm_of(learner) != "TD3+BC":
            remedy = "--learner TD3+BC stays near what was recorded"
        return (
            f"{self.learners} of {self.of} learners extrapolate: one believes in a discounted return of "
            f"{self.value:.4g}, and its recorded rewards give {self.low:.4g} to {self.high:.4g}; {remedy}"
        )


def return_bounds(reward: Floats, terminates: bool, discount: float) -> tuple[float, float]:
    """Return the least and the greatest discounted return Σ γᵗ r_t of rewards between the least and the greatest.

    Args:
        reward: the recorded rewards.
        terminates: whether an episode may end after any step; else it goes on for ever.
        discount: γ < 1.
    """
    least, greatest, whole = float(reward.min()), float(reward.max()), 1.0 / (1.0 - discount)
    lengths = (1.0, whole) if terminates else (whole, whole)
    return min(least * length for length in lengths), max(greatest * length for length in lengths)


def unlearned(agent: Learner, updates: int) -> float:
    """Return which part of where its values began may still be in them.

    What is slowest are the copies that values are learned from: they follow by a rate τ, and with a discount γ the
    beginning fades by 1 − τ (1 − γ) in an update.
    """
    config = getattr(agent, "config", None)
    rates = {"tau": lambda tau: tau, "average": lambda average: 1.0 - average, "copy_every": lambda every: 1.0 / every}
    rate = next((rates[name](getattr(config, name)) for name in rates if hasattr(config, name)), _SLOW)
    rate /= getattr(config, "policy_delay", 1)  # TD3's copies wait for its policy
    return float((1.0 - rate * (1.0 - agent.task.discount)) ** updates)


def extrapolation(recording: Recording, agent: Learner, learners: int, updates: int) -> Extrapolation | None:
    """Look at the values of recorded states; None if no learner believes what cannot be, or if that cannot be told.

    Values begin near 0, which may be out of reach of the rewards. Until `updates` have moved them nothing is told, and
    until they have left it behind, what lies on their way from there is no belief of theirs.
    """
    discount, scale = agent.task.discount, agent.task.reward_scale
    if discount >= 1.0 or scale <= 0.0 or agent.window > 1:  # what was remembered before a state is not known here
        return None
    if not hasattr(agent, "value") or (left := unlearned(agent, updates)) > _UNLEARNED:
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
    astray = (beyond > 0.0).mean(axis=1) > _SHARE
    if not astray.any():
        return None
    farthest = np.unravel_index(np.argmax(np.where(astray[:, None], beyond, -np.inf)), beyond.shape)
    who = farthest[0]
    return Extrapolation(int(astray.sum()), learners, float(values[farthest]), float(least[who]), float(most[who]))


def _recorded(recording: Recording) -> list[tuple[NDArray[np.float32], Floats, bool]]:
    """Return, of each recording, states spread over it `[n, S]`, all rewards, and whether an episode terminated."""
    found = []
    for member, order in zip(recording.members, recording.orders, strict=True):
        observation, reward, terminated = (recording.arrays[name][member] for name in _FIELDS)
        some = order[np.linspace(0, len(order) - 1, min(_STATES, len(order))).astype(np.int64)]
        found.append((observation[some], reward[order], bool(terminated[order].any())))
    return found


def _streamed(recording: Recording) -> list[tuple[NDArray[np.float32], Floats, bool]]:
    """Return the same from the file, in parts; states are those of the first of them."""
    found = []
    with open_buffer(recording.path) as file:
        for member in recording.members:
            count = int(file.count[member])
            parts = [slice(start, min(start + _PART_ROWS, count)) for start in range(0, count, _PART_ROWS)]
            rewards = [file.record.read("reward", member, rows) for rows in parts]
            ends = np.array([[part.min(), part.max()] for part in rewards])
            terminated = any(file.record.read("terminated", member, rows).any() for rows in parts)
            observation = file.record.read("observation", member, parts[0])
            found.append((observation[:: max(1, len(observation) // _STATES)], ends, terminated))
    return found
