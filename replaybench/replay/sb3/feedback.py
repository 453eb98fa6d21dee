"""What a strategy needs of the training code beyond storing and drawing; without it the strategy is refused."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from replaybench.data.errors import UserError, unknown
from replaybench.replay.strategies.strategy import Strategy

FEEDBACK: Final = {
    "td_error": "TD errors from the learner",
    "weight": "importance weights in the learner's losses",
    "rate": "a factor on the learner's learning rate",
    "state": "the state that the agent is in",
    "phase": "the place of each update in its phase and the progress of the run",
    "exploration": "each action's distance from the policy's own",
}
"""What training code can take care of, and what each is."""


def check_feedback(strategy: Strategy, feedback: Collection[str]) -> None:
    """Refuse a strategy that would silently do something else than its name says."""
    for name in feedback:
        if name not in FEEDBACK:
            raise unknown("feedback", name, FEEDBACK)
    if strategy.synth is not None:
        raise UserError(
            f"{strategy}: Synth needs the plant's model, which Stable-Baselines3 does not have; leave Synth out"
        )
    if strategy.refer is not None:
        raise UserError(
            f"{strategy}: ReFER changes the learner's gradients, which no learner of Stable-Baselines3 lets it; "
            "leave ReFER out"
        )
    missing = [FEEDBACK[name] for name in needs(strategy) if name not in feedback]
    if missing:
        raise UserError(
            f"{strategy} needs {' and '.join(missing)}, which this training code does not give; use StrategyDDPG, "
            "StrategyTD3 or StrategySAC from replaybench.replay.sb3.learners"
        )


def needs(strategy: Strategy) -> tuple[str, ...]:
    """Return the names of the `FEEDBACK` that a strategy cannot do without."""
    wanted = {
        "td_error": strategy.by_td_error,
        "weight": strategy.weights is not None,
        "rate": "rate" in strategy.sampling.feedback,
        "state": strategy.sampling.needs_state,
        "phase": "phase" in strategy.sampling.feedback or strategy.weights is not None,
        "exploration": "exploration" in strategy.orders,
    }
    return tuple(name for name, is_wanted in wanted.items() if is_wanted)
