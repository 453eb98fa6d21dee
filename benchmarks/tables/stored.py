"""Stored results of studies, cell by cell, and how they were made."""

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from benchmarks.tables.text import listed
from replaybench.experiments.dataset import last_of
from replaybench.experiments.results_file import read_results

RESULTS = Path(__file__).resolve().parents[1] / "results"


@dataclass(frozen=True)
class Cell:
    """One point of a study: rewards `[seeds, episodes]`, of greedy episodes `[seeds, looks]`, and its scores."""

    plant: str
    learner: str
    strategy: str
    data: xr.Dataset
    last: int

    @property
    def final(self) -> np.ndarray:
        """Mean of each seed's last training episodes, which make its final score. [seeds]"""
        means: np.ndarray = self.data["reward"].values[:, -self.last :].mean(axis=1)
        return means

    def late(self, last: int) -> np.ndarray:
        """Greedy episodes after the last so many training episodes. [seeds, looks]"""
        late = self.data["greedy_episode"].values > self.data.sizes["episode"] - last
        episodes: np.ndarray = self.data["reward_greedy"].values[:, late]
        return episodes

    def looks(self, last: int) -> np.ndarray:
        """Mean of each seed's greedy episodes of the last so many training episodes. [seeds]"""
        means: np.ndarray = self.late(last).mean(axis=1)
        return means

    @property
    def greedy(self) -> np.ndarray:
        """Mean of each seed's greedy episodes among the last training episodes. [seeds]"""
        return self.looks(self.last)

    def __getitem__(self, name: str) -> float:
        return float(self.data[name])


@functools.cache
def results(study: str) -> xr.Dataset:
    """Return a study's stored results, their checksum verified."""
    return read_results(RESULTS / study / "results.nc")


@functools.cache
def cells(study: str) -> list[Cell]:
    """Return those cells that hold results, in the study's order."""
    data, found = results(study), []
    axes = ("plant", "learner", "strategy", "noise", "frequency")
    there = data["reward"].notnull().any("episode").transpose(*axes, "seed")
    for place in np.argwhere(there.any("seed").values):
        point = dict(zip(axes, place.tolist(), strict=True))
        here, seeds = data.isel(point), there.isel(point).values
        here = here if seeds.all() else here.isel(seed=np.flatnonzero(seeds))
        names = (str(here[axis].item()) for axis in axes[:3])
        found.append(Cell(*names, here, last_of(data.isel(plant=place[0]))))
    return found


def cell(study: str, **point: str) -> Cell:
    """Return the only cell at a point."""
    (found,) = (c for c in cells(study) if all(getattr(c, axis) == value for axis, value in point.items()))
    return found


def looks(study: str, last: int | None = None) -> str:
    """Return the training episodes before the last greedy episodes, as a list."""
    data = results(study)
    last = last_of(data.isel(plant=0)) if last is None else last
    return listed([e for e in data["greedy_episode"].values if e > data.sizes["episode"] - last])


def runs(study: str, unit: str = "episodes") -> str:
    """Return number and length of a study's runs, and the cells with fewer."""
    sizes = results(study).sizes
    fewer = [(c.strategy, c.data["seed"].values) for c in cells(study) if c.data.sizes["seed"] < sizes["seed"]]
    text = "".join(f" (only {s.size} under {name}, {s.min()} to {s.max()})" for name, s in fewer)
    return f"{sizes['seed']} seeds{text} × {sizes['episode']} {unit}"


def facts(path: str) -> Any:
    """Return a stored JSON file."""
    return json.loads((RESULTS / path).read_text(encoding="utf-8"))
