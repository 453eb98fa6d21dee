"""What nobody would wait for is refused before it is begun, with what to lower."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from replaybench.baselines.grid_choice import check_effort, reference_bytes
from replaybench.baselines.references import reference
from replaybench.envs.ode.pendulum import Pendulum
from replaybench.runtime.errors import UserError


@dataclass(frozen=True, kw_only=True)
class ManyStarts(Pendulum):
    reference_episodes: ClassVar[int] = 10**9


@dataclass(frozen=True, kw_only=True)
class Long(Pendulum):
    episode_seconds: ClassVar[float] = 2e4


@dataclass(frozen=True, kw_only=True)
class SmallGrid(Pendulum):
    grid_nodes: ClassVar[tuple[int, int]] = (11, 12)
    refine_grid: ClassVar[bool] = False


@pytest.mark.parametrize(
    ("plant", "frequency", "noise", "told"),
    [
        (Pendulum(), 1e5, 0.0, r"sweeps \(γ = 0.9999744\) over 603,000 pairs .* lower the frequency"),
        (Long(), 5e-4, 0.0, "Runge-Kutta steps .* raise the frequency"),
        (SmallGrid(), 1e5, 0.01, "50,000 episodes of 400,000 samples; lower the frequency"),
        (ManyStarts(), 50.0, 0.0, "lower .* reference_episodes"),
    ],
)
def test_references_that_take_hours_are_refused(plant: Pendulum, frequency: float, noise: float, told: str) -> None:
    with pytest.raises(UserError, match=f"would take hours: .*{told}"):
        reference(plant, frequency, noise)


def test_what_takes_minutes_is_not_refused() -> None:
    check_effort(Pendulum(), 2000.0, 0.02)
    check_effort(SmallGrid(), 1e5)


def test_the_memory_of_a_reference_includes_refined_grids() -> None:
    assert 5e8 < reference_bytes(Pendulum(), "converged") < 1e9  # some 900 MB in a process that holds 300 MB before
    assert reference_bytes(Pendulum(), None) == reference_bytes(Pendulum(), "converged")
    assert reference_bytes(Pendulum(), "paper") < 1e8
    assert reference_bytes(SmallGrid(), None) < 1e6
