"""Results of studies that were never run, for tests of what is made from results."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xarray as xr

from replaybench.experiments.dataset import AXES, add_scores, score_key
from replaybench.experiments.results_file import _COORDINATES, _NEEDED
from replaybench.experiments.statistics import score

Rise = Callable[[int, int, int, int, int], float]
"""By place on each of the `AXES`: the μ_r at which curves end."""

HOSTILE = "<script>alert(1)</script>"
"""A strategy's name in a file from a stranger."""


def made_results(
    plants: Sequence[str],
    learners: Sequence[str],
    strategies: Sequence[str],
    noise: Sequence[float],
    frequency: Sequence[float],
    *,
    seeds: int,
    episodes: int,
    ends: Rise,
    exact: bool = True,
) -> xr.Dataset:
    """Return results in which seeds share their luck, random control has reward −2, dynamic programming −1.

    Args:
        exact: whether intervals are those of the project; else stand-ins, for speed.
    """
    coordinates: dict[str, Any] = dict(zip(AXES, (plants, learners, strategies, noise, frequency), strict=True))
    coordinates |= {"seed": np.arange(seeds), "block": [0], "episode": np.arange(1, episodes + 1)}
    coordinates["greedy_episode"] = np.arange(1, episodes // 10 + 1) * 10
    data = xr.Dataset(coords=coordinates)
    shape = tuple(len(coordinates[axis]) for axis in AXES)
    rng = np.random.Generator(np.random.PCG64(3))
    luck = 0.05 * rng.standard_normal((seeds, 1))
    t = np.linspace(0, 1, episodes)
    reward = np.empty((*shape, seeds, episodes))
    for place in itertools.product(*map(range, shape)):
        mu = (ends(*place) + luck) * (1 - np.exp(-6 * t)) + 0.02 * rng.standard_normal((seeds, episodes))
        reward[place] = mu - 2
    data["reward"] = (*AXES, "seed", "episode"), reward
    data["reward_greedy"] = (*AXES, "seed", "greedy_episode"), reward[..., 9::10]
    data["seconds"] = (*AXES, "block"), np.full((*shape, 1), 30.0)
    for name, value in (("reference_random", -2.0), ("reference_dp", -1.0)):
        data[name] = ("plant", "noise", "frequency"), np.full((shape[0], shape[3], shape[4]), value)
    for name in ("commit", "processor", "target", "started"):
        data.coords[name] = (*AXES, "block"), np.full((*shape, 1), f"{name} of all", object)
    data.coords["episode_metric"] = "plant", ["mean reward"] * len(plants)
    for name, (axes, dtype) in _NEEDED.items():
        if name not in data.variables:
            nothing: Any = {"text": "", "whole numbers": 0}.get(dtype, np.nan)
            values = np.full([data.sizes[axis] for axis in axes], nothing, object if dtype == "text" else None)
            (data.coords if name in _COORDINATES else data)[name] = axes, values
    data.attrs = {"title": "made", "version": "0", "numerics_version": 0, "reward": ""}
    if exact:
        add_scores(data)
    else:
        _stand_ins(data)
    return data


def _stand_ins(data: xr.Dataset) -> None:
    mu = data["reward"].values + 2
    flat = score(mu.reshape(-1, mu.shape[-1]), np.zeros(mu[..., 0].size, np.bool_))
    for name in ("final", "best", "rise"):
        values = getattr(flat, name).reshape(mu.shape[:-1])
        data[score_key(name)] = (*AXES, "seed"), values
        for bound, shift in (("mean", 0.0), ("low", -0.01), ("high", 0.01)):
            data[f"{score_key(name)}_{bound}"] = AXES, values.mean(axis=-1) + shift
    for name in ("failed", "dead", "censored"):
        data[name] = AXES, np.zeros(mu.shape[:-2])
