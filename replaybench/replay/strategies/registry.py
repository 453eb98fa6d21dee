"""Strategies by name: the package's own, those that installed packages offer, and those in users' files."""

from __future__ import annotations

from typing import Final

from replaybench.data.registry import Registry

_HERE: Final = "replaybench.replay.strategies"


def _registry(kind: str, base: str, own: dict[str, str]) -> Registry:
    places = {name: f"{_HERE}.{place}" for name, place in own.items()}
    return Registry(kind=kind, own=places, base=f"{_HERE}.{base}", group="replaybench.strategies")


ENTRIES: Final = Registry(
    kind="modifier of what enters",
    own={"Drop": f"{_HERE}.entry.drop:Drop", "Synth": f"{_HERE}.entry.synth:Synth"},
    base=f"{_HERE}.term:Term",
    group="",
    also_named=(),
)
"""A strategy has a place for each of these and for no other, so nobody else offers any."""
RETENTIONS: Final = _registry(
    "retention strategy",
    "retention.interface:Retention",
    {
        "FIFO": "retention.fifo:FIFO",
        "FULL": "retention.full:FULL",
        "Resv": "retention.reservoir:Resv",
        "TDE": "retention.ranked:TDE",
        "Expl": "retention.ranked:Expl",
        "FarPol": "retention.far_policy:FarPol",
    },
)
SAMPLINGS: Final = _registry(
    "sampling strategy",
    "sampling.interface:Sampling",
    {
        "Uniform": "sampling.uniform:Uniform",
        "PER": "sampling.rank_based:PER",
        "PERprop": "sampling.proportional:PERprop",
        "Annealed": "sampling.annealed:Annealed",
        "AER": "sampling.attentive:AER",
        "ERE": "sampling.recent:ERE",
        "ERE+PER": "sampling.recent_proportional:EREPER",
    },
)
WEIGHTINGS: Final = _registry(
    "sampling modifier",
    "weighting.interface:Weighting",
    {"IS": "weighting.importance:IS", "FIS": "weighting.full_importance:FIS"},
)
REFER: Final = _registry(
    "form of ReF-ER", "refer:ReFER1", {"ReFER": "refer:ReFER", "ReFER-1": "refer:ReFER1", "ReFER-2": "refer:ReFER2"}
)
