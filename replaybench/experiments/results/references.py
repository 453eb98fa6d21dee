"""Reference controllers as rows of tables, and likely causes where no learner beats random control."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from replaybench.data.quantities import decimals, duration, fixed
from replaybench.experiments.results.dataset import counted_in, last_of, mu_r, runs_there

Floats = NDArray[np.float64]

NONE_BEATS_RANDOM: Final = "No learner beats random control"

LABELS: Final = {
    "reference_random": "random control",
    "reference_zero": "doing nothing",
    "reference_lqr": "linear-quadratic regulator",
    "reference_dp": "dynamic programming",
    "reference_dp_mean": "DP, mean episode",
    "reference_dp_averaged": "DP, values averaged over the noise",
    "reference_dp_observer": "DP, on a model observer",
}
"""Names of references in tables. Under noise, μ_r = 1 is the best of many episodes of dynamic programming."""

_TOO_SHORT, _TOO_FAR = 0.05, 1.0
"""Discounts with a horizon outside these shares of an episode are suspect."""
_MOST_NAMED: Final = 3
"""Conditions that a headline names."""


class ReferenceRow(NamedTuple):
    """A reference at one noise and rate: its name in results and in tables, its reward, and its μ_r (NaN without)."""

    name: str
    label: str
    reward: float
    mu: float


def beats_random(final: Floats, random: float) -> bool:
    """Return whether the mean of final rewards `[...]` is above random control; failed runs are NaN.

    True if the reward of random control is unknown (NaN), False if every run failed.
    """
    finite = final[np.isfinite(final)]
    return bool(np.isnan(random) or (finite.size and finite.mean() > random))


def why_same(data: xr.Dataset) -> str:
    """Return why cells have equal rewards in all episodes."""
    if "shared_from" in data.coords and (data["shared_from"] != "").any():
        return "their buffers never filled, so that retention decided nothing"
    return "equal rewards in all episodes, as of buffers that never fill"


def reference_rows(here: xr.Dataset) -> list[ReferenceRow]:
    """Return the known references of one plant at one noise and rate, without duplicates of dynamic programming."""
    best, found = float(here["reference_dp"]), []
    for name, label in LABELS.items():
        reward = float(here[name]) if name in here else np.nan
        if np.isfinite(reward) and not (label.startswith("DP") and reward == best):
            found.append(ReferenceRow(name, label, reward, float(mu_r(here, here[name]))))
    return found


def final_rewards(data: xr.Dataset) -> xr.DataArray:
    """Return one plant's final rewards of each run, NaN where it failed."""
    late = data["reward"].isel(episode=slice(-last_of(data), None)).mean("episode", skipna=False)
    return late.where((abs(data["reward"]) < np.inf).all("episode"))


def unbeaten(data: xr.Dataset) -> NDArray[np.bool_]:
    """Return where no learner of one plant beats random control, though some run has a score, `[noise, frequency]`."""
    final = final_rewards(data).transpose("noise", "frequency", "learner", "strategy", "seed").values
    random = data["reference_random"].transpose("noise", "frequency").values
    found = np.zeros(random.shape, np.bool_)
    for place in np.ndindex(random.shape):
        series = final[place].reshape(-1, final.shape[-1])
        found[place] = np.isfinite(series).any() and not any(beats_random(one, float(random[place])) for one in series)
    return found


def no_learning(data: xr.Dataset) -> tuple[str, list[str]]:
    """Return a headline and likely causes, in order, where no learner of one plant beats random control.

    The headline names the conditions unless they are all; both are empty if some learner is better everywhere.
    """
    places = np.argwhere(unbeaten(data))
    if not len(places):
        return "", []
    noises, rates = (data[axis].values for axis in ("noise", "frequency"))
    run = runs_there(data).any(["learner", "strategy", "seed"])
    where = "; at ".join(f"noise {noises[i]:g}, {rates[j]:g} Hz" for i, j in places)
    headline = NONE_BEATS_RANDOM
    if len(places) < (count := int(run.sum())):
        headline += f" at {where}" if len(places) <= _MOST_NAMED else f" in {len(places)} of {count} conditions"
    here = data.isel(noise=sorted({i for i, _ in places}), frequency=sorted({j for _, j in places}))
    return headline, [*_discounts(here), _length(here), _exploration(here)]


def _discounts(data: xr.Dataset) -> Iterator[str]:
    if "discount" not in data or "episode_steps" not in data:
        yield "the discount, which may look too far or not far enough (these results do not hold it)"
        return
    found: dict[str, list[str]] = {}
    for learner, rate in itertools.product(data["learner"].values, data["frequency"].values):
        cell = data.sel(learner=learner, frequency=rate)
        gamma, episode = float(cell["discount"]), float(cell["episode_steps"].max()) / rate
        if not np.isfinite([gamma, episode]).all():  # no run of this learner at this rate
            continue
        ahead = np.inf if gamma >= 1 else 1 / ((1 - gamma) * rate)
        part = ahead / episode
        verdict = "perhaps not far enough" if part < _TOO_SHORT else "too far" if part > _TOO_FAR else "plausible"
        looks = "to its end and beyond" if np.isinf(ahead) else f"{duration(ahead)} ahead"
        text = f"γ = {gamma:g} at {rate:g} Hz looks {looks}, an episode takes {duration(episode)}: {verdict}"
        found.setdefault(text, []).append(str(learner))
    for text, learners in found.items():
        whose = f" of {', '.join(learners)}" if len(learners) < data.sizes["learner"] else ""
        yield f"the discount{whose}: {text}"


def _length(data: xr.Dataset) -> str:
    episodes = data.sizes["episode"]
    curve = data["reward"].where(np.isfinite(data["reward"])).mean([d for d in data["reward"].dims if d != "episode"])
    tenth = max(1, episodes // 10)
    ends = [float(curve.isel(episode=part).mean()) for part in (slice(-2 * tenth, -tenth), slice(-tenth, None))]
    digits = decimals(ends)
    rose = f"rewards went from {fixed(ends[0], digits)} to {fixed(ends[1], digits)} over its last two tenths"
    if not np.isfinite(ends).all():
        rose = "too short to tell whether rewards still rise"
    return f"the length of the run: {episodes:,} {counted_in(data)}; {rose}"


def _exploration(data: xr.Dataset) -> str:
    last = data["greedy_episode"].values > data.sizes["episode"] - last_of(data)
    greedy = data["reward_greedy"].isel(greedy_episode=last).mean(["greedy_episode", "seed"])
    ahead = (greedy - data["reference_random"]).values
    if not np.isfinite(ahead).any():
        return "exploration: no greedy episode at the end shows what it costs"
    gap = float(np.nanmax(ahead))
    verdict = "explore less at the end of the run" if gap > 0 else "so it is not exploration alone that costs reward"
    beside = f"{fixed(abs(gap), decimals([gap]))} {'above' if gap > 0 else 'below'} random control"
    return f"exploration: without it, greedy episodes of the best are {beside}, {verdict}"
