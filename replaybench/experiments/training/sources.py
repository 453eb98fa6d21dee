"""What of a cell is not this package's: the code of users and of other packages behind its learner and strategy.

It is part of the cell's identity, as the fingerprint of its plant is: results are stale once it has changed.
"""

from __future__ import annotations

from replaybench.data.user_code.source_hash import made_of
from replaybench.replay.strategies.strategy import Strategy


def sources_of(learner: type, strategy: Strategy) -> str:
    """Describe the code of others that a learner's class and a strategy's terms are made of; empty if there is none."""
    return made_of(learner, *(type(term) for term in strategy.terms))
