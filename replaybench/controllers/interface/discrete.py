"""Finite sets of actions, and the settings of learners that choose from them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from replaybench.controllers.interface.agent import LearnerConfig
from replaybench.runtime.arrays import AnyFloats
from replaybench.runtime.errors import UserError

MOST = 1000
"""Largest number of discrete actions. Each action is an output of a network, and some learners store its
probability."""

USUAL = 15
"""Default number of values of each action dimension if a continuous action is discretised.

De Bruin et al. (2018, section 6.3) use this number.
"""


class ActionLevels:
    """A finite set of actions, with evenly spaced levels from −1 to 1 in each dimension.

    Args:
        levels: Number of levels in each dimension. By default, it is that of `choices` or, if actions are continuous,
            `USUAL`.
        actions: Number of action dimensions A.
        choices: Number of values that the plant accepts in each dimension. It is empty if actions are continuous.

    Attributes:
        counts: Number of levels in each dimension; int64, shape `[A]`.
        table: All n combinations of levels; float32, shape `[n, A]`. The last dimension changes fastest.

    Raises:
        UserError: There are fewer than 2 levels or more than `MOST` combinations, or `levels` contradicts `choices`.
    """

    def __init__(self, levels: int | None, actions: int, choices: Sequence[int] = ()) -> None:
        counts = tuple(choices) or (USUAL if levels is None else levels,) * actions
        product = " × ".join(map(str, counts))
        if levels is not None and set(counts) != {levels}:
            raise UserError(f"levels = {levels}, but the plant takes {product} choices; leave levels out")
        if min(counts) < 2:
            raise UserError(f"levels must be at least 2, not {min(counts)}")
        if (combinations := prod(counts)) > MOST and choices:
            what = f"the plant's {product} choices are {combinations} actions"
            raise UserError(f"{what}; no learner takes more than {MOST}")
        if combinations > MOST:
            fitting = int(np.floor(MOST ** (1 / actions) + 1e-9))
            remedy = f"set levels to at most {fitting}" if fitting > 1 else "take a learner with continuous actions"
            raise UserError(f"levels = {counts[0]} in {actions} dimensions are {combinations} actions; {remedy}")
        self.counts = np.array(counts, np.int64)
        grid = np.meshgrid(*[np.linspace(-1.0, 1.0, count, dtype=np.float32) for count in counts], indexing="ij")
        self.table: AnyFloats = np.stack(grid, axis=-1).reshape(-1, actions)


@dataclass(frozen=True, kw_only=True)
class DiscreteConfig(LearnerConfig):
    """Settings of learners that choose from a finite set of actions.

    Each action dimension has `levels` evenly spaced values in [−1, 1]. None means the plant's own choices, or 15 levels
    if actions are continuous.
    """

    levels: int | None = None
