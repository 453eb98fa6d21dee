"""Drafting by other readings, and in shorter episodes, for drafting-readings.toml and drafting-starts.toml."""

from __future__ import annotations

from dataclasses import dataclass

from replaybench.envs.flow.plant import Drafting


@dataclass(frozen=True, kw_only=True)
class PaperUnit(Drafting):
    """Actions are counted in ρU²D, as printed, so that full actions are four times as strong."""

    action_unit: str = "paper"


@dataclass(frozen=True, kw_only=True)
class January(Drafting):
    """The shorter box and the wider start angles of the authors' code of January 2019."""

    revision: str = "january"


@dataclass(frozen=True, kw_only=True)
class Short(Drafting):
    """Episodes of 25 actions: with equal steps, sixteen times as many starts."""

    episode_seconds = 25.0
