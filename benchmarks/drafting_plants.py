"""Drafting by other readings, in shorter episodes and in the wakes that are to carry over, for `drafting-*.toml`."""

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


@dataclass(frozen=True, kw_only=True)
class Held(Drafting):
    """The default wake in episodes of 50 actions."""

    episode_seconds = 50.0


@dataclass(frozen=True, kw_only=True)
class Free(Held):
    """The wake as an ellipse that moves freely feels it."""

    fidelity: str = "free-wake"


@dataclass(frozen=True, kw_only=True)
class Varied(Free):
    """The same, each episode's by factors of its own, with an irregular street and sensors that err as in the flow."""

    strength_spread: float = 0.2
    period_spread: float = 0.1
    load_spread: float = 0.2
    phase_noise: float = 0.03
    reading_noise: float = 0.2


@dataclass(frozen=True, kw_only=True)
class Rough(Varied):
    """The same with all disturbances twice as large, and a phase that is soon forgotten."""

    strength_spread: float = 0.4
    period_spread: float = 0.2
    load_spread: float = 0.4
    phase_noise: float = 0.1
    reading_noise: float = 0.4


@dataclass(frozen=True, kw_only=True)
class Coarse(Held):
    """The flow itself on a grid half as fine in each direction, at a sixth of the time."""

    fidelity: str = "navier-stokes"
    cells: float = 8.0


@dataclass(frozen=True, kw_only=True)
class Flow(Held):
    """The flow itself."""

    fidelity: str = "navier-stokes"
