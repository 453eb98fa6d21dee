"""A report and a browser for all tests of it."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replaybench.experiments.dataset import add_scores
from replaybench.experiments.results_file import write_results
from tests.helpers.commands import call
from tests.helpers.made_results import HOSTILE, made_results
from tests.helpers.made_snapshots import add_snapshots

ENDS = (0.9, 0.7, 0.71, 0.3, 0.5)
"""Ends of the curves of the five strategies."""


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two plants, two noise levels, two rates, two learners, five strategies; one run of the fourth strategy failed."""
    folder = tmp_path_factory.mktemp("report")
    strategies = ["FULL[PER]", "FIFO[Uniform]", "FIFO[PER]", HOSTILE, "FULL[Uniform]"]
    axes = ["PendulumDCSC", "Magman"], ["DDPG", "SAC"], strategies, [0.0, 0.02], [50.0, 100.0]

    def ends(plant: int, learner: int, strategy: int, noise: int, rate: int) -> float:
        return ENDS[strategy] - 0.1 * learner - 0.05 * plant - 0.02 * noise

    data = made_results(*axes, seeds=6, episodes=60, ends=ends)
    data["reward"].values[0, 0, 3, 1, 1, 2, 30:] = np.nan
    data["reward"].values[1, 1, 1] = np.nan  # cells that were never run
    add_scores(data)
    add_snapshots(folder, data)
    write_results(folder / "results.nc", data)
    assert call("report", folder, "--output", folder / "page.html") == 0
    return folder / "page.html"


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium; without one, tests are skipped."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("there is no Chromium here (Debian: apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=path)
        yield found
        found.close()
