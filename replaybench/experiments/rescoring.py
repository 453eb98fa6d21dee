"""Scores of finished runs relative to the references of this version, from their stored rewards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import xarray as xr

from replaybench.baselines.grid_choice import Rule
from replaybench.baselines.references import reference
from replaybench.data.user_code.user_file import imports_only
from replaybench.envs.registry import make_plant
from replaybench.experiments.results.dataset import add_references, add_scores


def rescore(
    data: xr.Dataset, parameters: Mapping[str, Mapping[str, Any]] | None = None, rule: Rule | None = None
) -> xr.Dataset:
    """Return results with new references and scores, and the same rewards.

    Args:
        data: dataset of `results.assemble`, of any version.
        parameters: changed parameters of plants, by name, as a study's `[plant.NAME]` tables. Plants in Python files
            must be among them: a name in a results file does not run code.
        rule: how the grids of dynamic programming are chosen; each plant's own rule if not given.

    Raises:
        UserError: a plant cannot be made here, or lies in a Python file that was not named.
    """
    found = {}
    for plant in data["plant"].values.tolist():
        with imports_only(*(parameters or {})):
            made = make_plant(plant, **(parameters or {}).get(plant, {}))
        there = data["reward"].sel(plant=plant).notnull().any(["learner", "strategy", "seed", "episode"])
        for noise in data["noise"].values.tolist():
            for frequency in data["frequency"].values.tolist():
                if there.sel(noise=noise, frequency=frequency):
                    found[plant, frequency, noise] = reference(made, frequency, noise, rule)
    data = data.copy()
    add_references(data, found)
    add_scores(data)
    return data
