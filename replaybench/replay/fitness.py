"""Check that a strategy can work with what a learner stores, before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping

from replaybench.data.errors import UserError, unknown
from replaybench.replay.storage.traces import TraceRule
from replaybench.replay.storage.units import Unit
from replaybench.replay.strategies.sampling.interface import FEEDBACK, RunningSampling
from replaybench.replay.strategies.strategy import Strategy


def check_fits(strategy: Strategy, fields: Mapping[str, int], unit: Unit, traces: TraceRule | None) -> None:
    """Raise `UserError` if a strategy cannot work with these fields, this unit or these traces."""
    if traces is not None and unit.steps > 1:
        raise UserError(f"the learner's traces follow single steps: replay steps, not units of {unit.steps}")
    if traces is not None and strategy.synth is not None:
        raise UserError(
            f"{strategy}: Synth alters single experiences, which breaks the trajectories that the learner's traces "
            "follow; leave Synth out"
        )
    for named, allowed in ((strategy.orders, ("td_error", "exploration")), (strategy.sampling.feedback, FEEDBACK)):
        for name in named:
            if name not in allowed:
                raise unknown(f"metric or feedback of {strategy}", name, allowed)
    kept = () if traces is None else traces.names
    for name in strategy.retention.traces:
        if name not in kept:
            raise UserError(
                f"{strategy} selects by the trace {name!r}, which this learner does not keep; "
                "use V-RACER, or add +ReFER"
            )
    if strategy.synth is not None and unit.steps > 1:
        raise UserError(
            f"{strategy}: Synth alters single experiences, which breaks the trajectory in a unit of {unit.steps} steps"
        )
    needs = {"exploration": "exploration" in strategy.retention.orders, "observation": strategy.sampling.needs_state}
    for name in needs:
        if needs[name] and name not in fields:
            raise UserError(f"{strategy} selects by {name}, which is not among the stored fields: {', '.join(fields)}")


def check_annotates(strategy: Strategy, running: RunningSampling) -> None:
    """Refuse a sampling that has `annotate` and does not declare that it needs TD errors: it would never be called."""
    if type(running).annotate is not RunningSampling.annotate and not strategy.by_td_error:
        name = strategy.sampling.written_name()
        raise UserError(f'{name} has annotate, which is called only with feedback = ("td_error",) in its class')
