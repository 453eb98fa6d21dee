"""Where choosing matters: luck of the best of many is no advantage, and what is surely ahead is found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from replaybench.baselines.references import Reference
from replaybench.data.provenance import Stopwatch, stint_facts
from replaybench.data.records.record import write_record
from replaybench.experiments.figures.maps.advantage_map import advantage_map
from replaybench.experiments.presets.preset import read_preset
from replaybench.experiments.results.advantage import advantage, advantages, by_capacity
from replaybench.experiments.results.dataset import assemble
from replaybench.experiments.training.study import Study

NAMES = ["FIFO[Uniform]", "FULL[Uniform]", *(f"Resv[PER(0.{i})]" for i in range(1, 10)), "FULL[PER]"]


def test_the_best_of_twelve_alike_is_not_ahead() -> None:
    rng = np.random.Generator(np.random.PCG64(4))
    sizes, certain = [], 0
    for _ in range(200):
        found = advantage({name: rng.normal(0.8, 0.1, 10) for name in NAMES}, NAMES[0])
        assert found is not None
        sizes.append((found.size, found.loss))
        certain += found.certain + found.harmful
    assert np.mean(sizes, axis=0) == pytest.approx([0.0, 0.0], abs=0.01)  # the naive maximum would be 0.07 ahead
    assert certain <= 8


def test_what_is_surely_ahead_is_found_by_name() -> None:
    rng = np.random.Generator(np.random.PCG64(4))
    scores = {name: rng.normal(0.6, 0.02, 12) for name in NAMES}
    scores["FULL[PER]"] += 0.2
    scores["Resv[PER(0.3)]"] -= 0.3
    found = advantage(scores, NAMES[0])
    assert found is not None
    assert (found.best, found.worst) == ("FULL[PER]", "Resv[PER(0.3)]")
    assert found.certain
    assert found.harmful
    assert found.size == pytest.approx(0.2, abs=0.03)
    assert found.loss == pytest.approx(-0.3, abs=0.03)
    small = advantage({**scores, "FULL[PER]": scores["FULL[PER]"] - 0.17}, NAMES[0])
    assert small is not None
    assert small.harmful
    assert not small.certain, "0.03 ahead does not matter, however sure"
    assert advantage({name: sample[:3] for name, sample in scores.items()}, NAMES[0]) is None


def test_capacities_are_told_apart_and_full_belongs_to_all() -> None:
    groups = by_capacity(["FULL[PER]", "FIFO(500)[Uniform]", "FIFO(9000)[Uniform]", "TDE(capacity=500)[PER]"])
    assert groups == {
        500: {"FULL[PER]": "FULL[PER]", "FIFO[Uniform]": "FIFO(500)[Uniform]", "TDE[PER]": "TDE(capacity=500)[PER]"},
        9000: {"FULL[PER]": "FULL[PER]", "FIFO[Uniform]": "FIFO(9000)[Uniform]"},
    }


@pytest.mark.parametrize("scale", ["quick", "standard", "paper"])
def test_the_map_has_twelve_strategies_everywhere(scale: str) -> None:
    preset = read_preset("when/map")
    study = preset.study(scale)  # type: ignore[arg-type]
    groups = by_capacity([*study.strategies])
    assert all(len(named) == 12 for named in groups.values())
    assert len(groups) >= 2
    assert {cell.settings["replays_per_experience"] for cell in study.cells()} >= {8.0}
    assert scale == "paper" or preset.reductions(scale)  # type: ignore[arg-type]


def test_the_picture_frames_what_is_sure(tmp_path: Path) -> None:
    strategies = ("FULL[Uniform]", "FULL[PER]", "FIFO(500)[Uniform]", "Resv(500)[Uniform]")
    study = Study(
        name="t", plants=("PendulumDCSC",), strategies=strategies, seeds=12, episodes=20, frequency=(50, 100),
        noise=(0.0, 0.02),
    )  # fmt: skip
    rng = np.random.Generator(np.random.PCG64(7))
    references = {}
    for cell in study.cells():
        gain = 20.0 * (cell.strategy == "FULL[PER]" and cell.frequency == 100)
        reward = rng.normal(-50.0, 1.0, (12, 20)) + gain
        arrays = {"reward": reward, "reward_greedy": reward[:, 9::10], "episode_steps": np.full_like(reward, 200)}
        write_record(tmp_path / cell.id / "scores.h5", "scores", stint_facts(Stopwatch().stints()), arrays)
        references[cell.plant, cell.frequency, cell.noise] = Reference(
            cell.plant,
            cell.frequency,
            cell.noise,
            -100.0,
            3.0,
            -90.0,
            np.nan,
            0.0,
            0.0,
            0.0,
            0.95,
            (3, 3),
            3,
            9,
            "paper",
        )
    folders = {cell.id: tmp_path / cell.id for cell in study.cells()}
    data = assemble(study.cells(), references, folders).sel(plant="PendulumDCSC")
    found = advantages(data, "FIFO[Uniform]")
    assert {place[2:]: one.certain for place, one in found.items()} == {
        (noise, rate): rate == 100 for noise in (0.0, 0.02) for rate in (50.0, 100.0)
    }
    figure = advantage_map(data)
    assert figure is not None
    first = figure.axes[0]
    assert first.get_title() == "C = 500"
    assert len(first.patches) == 2
    texts = [text.get_text() for text in first.texts]
    assert sum(text.endswith("FULL[PER]") for text in texts) >= 2
    assert advantage_map(data.sel(noise=[0.0])) is None
    data["reference_dp"].loc[{"frequency": 100}] = np.nan
    assert {place[3] for place in advantages(data, "FIFO[Uniform]")} == {50.0}, "rewards are no μ_r"


def test_strategies_that_are_not_known_here_are_left_out() -> None:
    assert by_capacity(["FIFO[Uniform]", "FIFO[Elsewhere]", "FIFO[evil.py:Foo]"]) == {
        None: {"FIFO[Uniform]": "FIFO[Uniform]"}
    }
