"""Advantage of the best of several strategies: no selection bias, and significant differences are found."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from drawn_studies import USABLE, stored

from replaybench.evidence.preset import read_preset
from replaybench.experiments.advantage import advantage, advantages, by_capacity
from replaybench.experiments.study import Cell, Study
from replaybench.reports.figures.maps import advantage_map

NAMES = ["FIFO[Uniform]", "FULL[Uniform]", *(f"Resv[PER(0.{i})]" for i in range(1, 10)), "FULL[PER]"]


def test_the_best_of_twelve_equal_strategies_is_not_better() -> None:
    rng = np.random.Generator(np.random.PCG64(4))
    found = [advantage({name: rng.normal(0.8, 0.1, 10) for name in NAMES}, NAMES[0]) for _ in range(200)]
    sizes = np.mean([(each.size, each.loss) for each in found if each], axis=0)
    assert sizes == pytest.approx([0.0, 0.0], abs=0.01)  # the naive maximum would be 0.07 ahead
    assert sum(each.certain + each.harmful for each in found if each) <= 8


def test_significant_differences_are_found() -> None:
    rng = np.random.Generator(np.random.PCG64(4))
    scores = {name: rng.normal(0.6, 0.02, 12) for name in NAMES}
    scores["FULL[PER]"] += 0.2
    scores["Resv[PER(0.3)]"] -= 0.3
    found = advantage(scores, NAMES[0])
    assert found is not None
    assert (found.best, found.worst, found.certain, found.harmful) == ("FULL[PER]", "Resv[PER(0.3)]", True, True)
    assert (found.size, found.loss) == pytest.approx((0.2, -0.3), abs=0.03)
    small = advantage({**scores, "FULL[PER]": scores["FULL[PER]"] - 0.17}, NAMES[0])
    assert small is not None
    assert (small.certain, small.harmful) == (False, True), "0.03 is below the smallest effect of interest"
    assert advantage({name: sample[:3] for name, sample in scores.items()}, NAMES[0]) is None


def test_strategies_are_grouped_by_capacity() -> None:
    groups = by_capacity(["FULL[PER]", "FIFO(500)[Uniform]", "FIFO(9000)[Uniform]", "TDE(capacity=500)[PER]"])
    assert groups == {
        500: {"FULL[PER]": "FULL[PER]", "FIFO[Uniform]": "FIFO(500)[Uniform]", "TDE[PER]": "TDE(capacity=500)[PER]"},
        9000: {"FULL[PER]": "FULL[PER]", "FIFO[Uniform]": "FIFO(9000)[Uniform]"},
    }
    unknown = ["FIFO[Uniform]", "FIFO[Elsewhere]", "FIFO[evil.py:Foo]"]
    assert by_capacity(unknown) == {None: {"FIFO[Uniform]": "FIFO[Uniform]"}}


@pytest.mark.parametrize("scale", ["quick", "standard", "paper"])
def test_the_map_has_twelve_strategies_everywhere(scale: str) -> None:
    preset = read_preset("when/map")
    study = preset.study(scale)  # type: ignore[arg-type]
    groups = by_capacity([*study.strategies])
    assert all(len(named) == 12 for named in groups.values())
    assert len(groups) >= 2
    assert {cell.settings["replays_per_experience"] for cell in study.cells()} >= {8.0}
    assert scale == "paper" or preset.reductions(scale)  # type: ignore[arg-type]


def test_the_map_frames_significant_advantages(tmp_path: Path) -> None:
    strategies = ("FULL[Uniform]", "FULL[PER]", "FIFO(500)[Uniform]", "Resv(500)[Uniform]")
    study = Study(
        name="t", plants=("PendulumDCSC",), strategies=strategies, seeds=12, episodes=20, frequency=(50, 100),
        noise=(0.0, 0.02),
    )  # fmt: skip
    rng = np.random.Generator(np.random.PCG64(7))

    def rewards(cell: Cell) -> np.ndarray:
        return rng.normal(-50.0, 1.0, (12, 20)) + 20.0 * (cell.strategy == "FULL[PER]" and cell.frequency == 100)

    reference = dataclasses.replace(USABLE, random=-100.0, zero=-90.0, dp=0.0, dp_mean=0.0)
    data = stored(tmp_path, study, rewards, reference).sel(plant="PendulumDCSC")
    found = advantages(data, "FIFO[Uniform]")
    certain = {place[2:]: one.certain for place, one in found.items()}
    assert certain == {(noise, rate): rate == 100 for noise in (0.0, 0.02) for rate in (50.0, 100.0)}
    figure = advantage_map(data)
    assert figure is not None
    first = figure.axes[0]
    assert (first.get_title(), len(first.patches)) == ("C = 500", 2)
    assert sum(text.get_text().endswith("FULL[PER]") for text in first.texts) >= 2
    assert advantage_map(data.sel(noise=[0.0])) is None
    data["reference_dp"].loc[{"frequency": 100}] = np.nan
    assert {place[3] for place in advantages(data, "FIFO[Uniform]")} == {50.0}, "rewards are no μ_r"
